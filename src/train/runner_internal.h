/* Internal interface between the files that make up the runner. */
#ifndef WEFT_TRAIN_RUNNER_INTERNAL_H
#define WEFT_TRAIN_RUNNER_INTERNAL_H

#include "train/runner.h"

Shape runner_shape(const Runner *runner, int64_t B, int64_t T, bool train);
/* The shape of the largest micro-batch, on this rank. */
Shape runner_largest(const Runner *runner);
/* The ranks of context parallelism that swap rows for heads; NULL: none. */
Group *runner_swap(const Runner *runner);
/* Which positions this rank has of each sequence, T in all. */
Positions runner_positions(const Runner *runner, int64_t T);
/* Whether a block recomputes its activations just before its backward instead of keeping them. */
bool runner_recomputes(const Runner *runner, int block);

/* Whether a block's activations are kept for its backward, in memory of their own. */
bool runner_saves(const Runner *runner, int block);
/* Whether a block's backward can leave weight gradients for later. */
bool runner_defers(const Runner *runner, int block);

/* Replicas, of whole sequences, whose gradients are reduced together. */
int runner_worker_size(const Runner *runner);
/* Makes a schedule for that many micro-batches, unless it is one already, and allocates what it needs. */
MUST_USE Status runner_set_schedule(Runner *runner, Schedule *schedule, ScheduleKind kind, int micros);

/* ---- batches and losses ---- */

/* This rank's parts of batches of whole sequences, until the next call. Fails if a batch is larger than the
 * runner's memory allows. */
MUST_USE Status runner_take_parts(Runner *runner, HostBatch *const *batches, int count,
                                  HostBatch *const **ret_parts);
/* Counts loss terms and tokens over all replicas, and the loss terms of this worker. */
MUST_USE Status runner_count_terms(Runner *runner, HostBatch *const *micros, int count,
                                   int64_t counts[LOSS_COUNT], int64_t own[LOSS_COUNT], int64_t *ret_tokens);
/* The largest number of rows that any replica's micro-batch has for the token loss. Output heads with pieces
 * of a vocabulary matrix process that many, because all replicas gather together. */
MUST_USE Status runner_count_head_rows(Runner *runner, HostBatch *const *micros, int count, int64_t *rows);
/* Reads the first `count` loss and hit sums, reduced over all replicas, on all ranks. They are nonzero only
 * on the last stage and equal on its tensor-parallel ranks. */
MUST_USE Status runner_read_losses(Runner *runner, int count, double *sums);

/* ---- memory ---- */

/* Partitions the model and sets up this stage's chunks. */
MUST_USE Status runner_chunks_init(Runner *runner);
void runner_chunks_done(Runner *runner);
/* Bytes of a block's input or output of the largest micro-batch. */
size_t runner_rows_bytes(const Runner *runner);
/* Allocates the buffer sets that a schedule needs, beyond those that exist. */
MUST_USE Status runner_reserve(Runner *runner, const Schedule *schedule);
/* Claims a free buffer set for a micro-batch, or finds the one it uses (NULL: none). Setting `used` to false
 * releases it.
 */
MUST_USE Status micro_buffers_open(Runner *runner, int chunk, int micro, MicroBuffers **ret_buffer_set);
MicroBuffers *micro_buffers_find(Runner *runner, int chunk, int micro);
/* The same for messages. message_open may move the list, so pointers to other messages become invalid. */
/* `stream`: of the work that will write to the buffer. */
MUST_USE Status message_open(Runner *runner, Stream *stream, MessageKind kind, int chunk, int micro,
                             StageMessage **ret_message);
StageMessage *message_find(Runner *runner, MessageKind kind, int chunk, int micro);

/* ---- overlap ---- */

/* What forward and backward run on. Outside training, overlap.on is false. */
Exec *runner_exec(Runner *runner);
/* Whether this runner may record steps. */
bool runner_may_record(const Runner *runner);
/* Whether units are updated, and added to the norm, one after the other, beside other work. */
bool runner_updates_by_unit(const Runner *runner);
/* Whether the gradients of a block's units are added to the norm as soon as they are complete. */
bool runner_squares_early(const Runner *runner, int block);
MUST_USE Status overlap_init(Runner *runner);
void overlap_done(Runner *runner);
/* Begins and ends a training step. `alone`: use one stream. After the end, `stream` follows all of the step.
 */
MUST_USE Status overlap_begin(Runner *runner, bool alone);
MUST_USE Status overlap_end(Runner *runner);
/* Before and after an update is put on `stream`. */
MUST_USE Status overlap_update_begin(Runner *runner);
MUST_USE Status overlap_update_end(Runner *runner);
/* Before anything but a training step uses `stream`, and after a step that failed. */
MUST_USE Status overlap_settle(Runner *runner);
/* Before a block runs forward or backward: waits for its unit's update, and for cleared gradients. */
MUST_USE Status overlap_enter(Runner *runner, int unit, bool grads);
/* The buffer for the operands of a block's weight gradients; empty: backward computes these. */
Buffer overlap_operands(const Runner *runner, int block);
/* The buffer for the gradient of that block's input, given the one of its output in `dy`, and the message's.
 */
Tensor overlap_gradient(const Runner *runner, int block, Tensor dy, Tensor message);
/* After backward has left operands there: computes the weight gradients beside what follows. */
MUST_USE Status overlap_weights(Runner *runner, const Pass *pass, int block, Tensor x);
/* After a micro-batch's backward, before its activations are overwritten. */
MUST_USE Status overlap_micro_end(Runner *runner);

/* ---- offloaded activations ---- */

/* `input` is a MicroBuffers.input, `bytes` what the micro-batch has of it. If activations are not offloaded,
 * these functions do nothing, and the device buffer is `input` itself. */
bool runner_offloads(const Runner *runner);
MUST_USE Status offload_init(Runner *runner);
void offload_done(Runner *runner);
/* Its device buffer; NULL: it is in host memory alone. */
Buffer *offload_buffer(Runner *runner, Buffer *input);
/* Before it is written: claims a device buffer. After that: store starts to copy it to the host, and drop
 * forgets what was written. */
MUST_USE Status offload_claim(Runner *runner, const Buffer *input);
MUST_USE Status offload_store(Runner *runner, const Buffer *input, size_t bytes);
void offload_drop(Runner *runner, const Buffer *input);
/* Before it is read in backward: fetch starts to copy it back, ready waits for it. */
MUST_USE Status offload_fetch(Runner *runner, const Buffer *input, size_t bytes);
MUST_USE Status offload_ready(Runner *runner, const Buffer *input, size_t bytes);

/* ---- delayed scaling in fp8 ---- */

MUST_USE Status runner_fp8_init(Runner *runner);
Fp8State runner_fp8_state(const Runner *runner, bool train);
/* At the start of a step, on the stream with forward; at its end, before waiting for the device; and after
 * that, if it is applied, before the update. */
MUST_USE Status runner_fp8_begin(Runner *runner);
MUST_USE Status runner_fp8_read(Runner *runner);
MUST_USE Status runner_fp8_next(Runner *runner);

/* ---- balance of experts ---- */

MUST_USE Status runner_balance_init(Runner *runner);
void runner_balance_done(Runner *runner);
MUST_USE Status runner_balance_clear(Runner *runner);
/* As those of delayed scaling; sum combines all ranks' counts of a step with that many tokens. */
MUST_USE Status runner_balance_begin(Runner *runner);
MUST_USE Status runner_balance_read(Runner *runner);
MUST_USE Status runner_balance_sum(Runner *runner, int64_t tokens, ExpertStats *ret_stats);
MUST_USE Status runner_balance_next(Runner *runner);

/* ---- actions ---- */

/* Requests outputs instead of losses, of one micro-batch. */
typedef struct Scores {
    const OutputWork *work;
    const int32_t *rows;   /* (count) rows here of the work; NULL: all there are, in order */
    const int32_t *number; /* (count) their numbers in the work */
    int64_t count;
    float *out; /* (rows of the work, width) in host memory */
} Scores;

/* The data of one execution of a schedule. */
typedef struct Round {
    HostBatch *const *micros;
    int count;
    bool train;
    const Buffer *ids; /* per micro-batch: where the caller copies it to; NULL: copy it where it is used */
    int64_t step;
    float loss_grad[LOSS_COUNT];
    float balance_grad, z_grad; /* see Balance */
    const int64_t *head_rows;   /* per micro-batch: Pass.head_rows; NULL: no token loss */
    const Scores *scores;       /* NULL: compute losses */
} Round;

/* Sets the round's factors of losses that balance experts, for a step with that many tokens. */
void runner_balance_grads(const Runner *runner, Round *round, int64_t tokens);
Balance runner_balance_state(const Runner *runner, const Round *round);
MUST_USE Status runner_run(Runner *runner, const Schedule *schedule, const Round *round);
/* CPU: completes the last update of the embedding's rows that a step needs. */
MUST_USE Status overlap_rows(Runner *runner, const Round *round);
/* Whether a chunk ends with the model's output heads. */
bool runner_has_output(const Runner *runner, const Chunk *chunk);
/* Computes round->scores for a micro-batch that has passed all blocks before the heads. */
MUST_USE Status runner_score(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set);
/* Forward through blocks 0 .. end - 1 of a chunk; the micro-batch's data must be on the device. */
MUST_USE Status runner_forward(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set,
                               int end);
/* The output of block `at` of a chunk (index within the chunk; -1: the chunk's input). */
Tensor runner_output(Runner *runner, const Chunk *chunk, const MicroBuffers *buffer_set, Shape shape, int at);
/* Gathers a block's parameters and gradient buffers and sets the views in `pass`; runner_leave releases them.
 */
MUST_USE Status runner_enter(Runner *runner, Pass *pass, int block, bool params, bool grads);
void runner_leave(Runner *runner, int block);
/* After runner_enter, for outputs that need a vocabulary matrix at once: gathers it into *ret_whole, which
 * the caller frees, unless it is there already. */
MUST_USE Status runner_gather_pieces(Runner *runner, Pass *pass, int block, Buffer *ret_whole);
Pass runner_pass(Runner *runner, const Round *round, const MicroBuffers *buffer_set);

/* ---- replay ---- */

/* Puts a training step on the device's streams, up to the sums of the gradient norm; runner_launch does so
 * kernel by kernel. */
MUST_USE Status runner_launch(Runner *runner, const Round *round);
MUST_USE Status runner_launch_or_replay(Runner *runner, const Round *round);
MUST_USE Status replay_init(Runner *runner);
void replay_done(Runner *runner);

#endif
