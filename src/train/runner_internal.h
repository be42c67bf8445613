/* Between the runner's files. */
#ifndef WEFT_TRAIN_RUNNER_INTERNAL_H
#define WEFT_TRAIN_RUNNER_INTERNAL_H

#include "train/runner.h"

Shape runner_shape(const Runner *runner, int64_t B, int64_t T, bool train);
/* Whether a block's activations last only from its recomputation to its backward. */
bool runner_recomputes(const Runner *runner, int block);

/* ---- memory ---- */

/* Cuts the model into parts and finds those of this stage. */
MUST_USE Status runner_chunks_init(Runner *runner);
void runner_chunks_done(Runner *runner);
/* Memory for what a schedule has in flight, as far as it is not there yet. */
MUST_USE Status runner_reserve(Runner *runner, const Schedule *schedule);
/* A free flight for a micro-batch; the one that a micro-batch has; and its end. */
MUST_USE Status micro_buffers_open(Runner *runner, int chunk, int micro, MicroBuffers **ret_buffer_set);
MicroBuffers *micro_buffers_find(Runner *runner, int chunk, int micro);
/* Likewise for messages. */
MUST_USE Status message_open(Runner *runner, MessageKind way, int chunk, int micro,
                             StageMessage **ret_message);
StageMessage *message_find(Runner *runner, MessageKind way, int chunk, int micro);

/* ---- actions ---- */

/* What a head scores, instead of losses; `out` is host memory, for one micro-batch. */
typedef struct Scores {
    OutputHead head;
    float *out;
} Scores;

/* What a schedule is carried out over. */
typedef struct Round {
    HostBatch *const *micros;
    int count;
    bool train;
    int64_t step;
    float loss_grad[LOSS_COUNT];
    const Scores *scores; /* NULL: losses */
} Round;

MUST_USE Status runner_run(Runner *runner, const Schedule *schedule, const Round *round);
/* Whether a chunk ends with the model's heads. */
bool runner_has_output(const Runner *runner, const Chunk *chunk);
/* The round's scores of a flight that has gone through all blocks of its chunk before the heads. */
MUST_USE Status runner_score(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set);
/* Forward of blocks from .. end - 1 of a chunk for a flight whose data is there. */
MUST_USE Status runner_forward(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set,
                               int end);
/* The output of a chunk's block `at` (counted in the chunk; -1: the chunk's input). */
Tensor runner_output(Runner *runner, const Chunk *chunk, const MicroBuffers *buffer_set, Shape shape, int at);
/* Makes the parameters of a block ready and lets them go. */
MUST_USE Status runner_enter(Runner *runner, Pass *pass, int block, bool params, bool grads);
void runner_leave(Runner *runner, int block);
Pass runner_pass(Runner *runner, const Round *round, const MicroBuffers *buffer_set);

#endif
