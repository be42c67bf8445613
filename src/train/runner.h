/* The runner: the one place where model and parallel meet. It owns a rank's memory (parameters,
 * gradients, moments, activations, scratch) and carries out a step's schedule over the blocks. */
#ifndef WEFT_TRAIN_RUNNER_H
#define WEFT_TRAIN_RUNNER_H

#include "comm/mesh.h"
#include "data/data.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/schedule.h"

typedef struct RunnerSpec {
    const KernelTable *table;
    int64_t micro_batch, seq; /* the largest micro-batch it will see */
    bool train;               /* with gradients and moments */
    Recompute recompute;
    OptimSpec optim;
    uint64_t seed;
} RunnerSpec;

typedef struct Runner {
    RunnerSpec spec;
    const Model *model;
    Mesh *mesh;
    Device *device;
    Stream *stream;
    Exec exec;
    Store *params, *grads, *m, *v; /* the last three in training only */
    Schedule schedule;
    /* Memory of the micro-batch in flight. */
    Buffer inputs;   /* its int32 arrays */
    Buffer *between; /* per block but the last: its output (B,T,C) */
    Buffer *saved;   /* per block; with block recompute all layers share one */
    Buffer shared;   /* that one */
    Buffer scratch;
    Buffer gradient; /* (B,T,C), passed down from block to block */
    Buffer loss;     /* LOSS_COUNT fp64 sums */
    Buffer norm;     /* the gradients' sum of squares, fp64 */
} Runner;

typedef struct StepResult {
    double loss;             /* the objective: each part divided by its global count */
    double part[LOSS_COUNT]; /* each loss on its own */
    double grad_norm;        /* before clipping */
    int64_t tokens;          /* input positions that are not padding */
} StepResult;

MUST_USE Status runner_new(Runner **ret_runner, const Model *model, Device *device, const RunnerSpec *spec);
void runner_free(Runner *runner);
DEFINE_FREEP(Runner, runner)

/* One optimizer step, number `step` from 1, over the micro-batches in order. */
MUST_USE Status runner_step(Runner *runner, HostBatch *const *micros, int count, int64_t step, double lr,
                            StepResult *ret_result);
/* The gradients of a step without the update; runner_step is this and runner_update. */
MUST_USE Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                                 StepResult *ret_result);
MUST_USE Status runner_update(Runner *runner, int64_t step, double lr, double grad_norm);
/* Adds a batch's loss sums and counts, without dropout or gradients. */
MUST_USE Status runner_eval(Runner *runner, const HostBatch *batch, double sums[LOSS_COUNT],
                            int64_t counts[LOSS_COUNT]);
/* Forward up to the last layer, without dropout: its output (B,T,C), valid until the next call. */
MUST_USE Status runner_hidden(Runner *runner, const HostBatch *batch, Tensor *ret_hidden);
/* The whole model's scores from a head for every row it scores; `out` is host memory. */
MUST_USE Status runner_logits(Runner *runner, const HostBatch *batch, Head head, float *out);

/* The objective from sums and counts: means, the span's two sides at half weight each. */
double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]);

#endif
