/* One training step in the plainest order: the definition of a step, as kernels/ref is the definition of a
 * kernel. One rank, fp32; nothing overlaps, and nothing is sharded, prefetched, recomputed or replayed. In
 * every layout, a step of the runner (runner.h) computes the same, apart from rounding; tests compare them.
 * Read it first. */
#ifndef WEFT_TRAIN_STEP_REFERENCE_H
#define WEFT_TRAIN_STEP_REFERENCE_H

#include "train/runner.h"

typedef struct Reference {
    const Model *model;
    OptimSpec optim;
    int64_t micro_batch, seq; /* maximum size of a micro-batch */
    uint64_t seed;
    Exec exec; /* the kernels, and the stream on which they run one after the other */
    Device *device;
    Group *alone;                                /* of one rank: nobody splits a tensor */
    Store *params, *grads, *state[OPTIM_STATES]; /* all values of the model, each in fp32 */
    Buffer ids;                                  /* a micro-batch's tokens and labels */
    Buffer *output, *saved;                      /* of each block: its output, and what its backward needs */
    Buffer gradient; /* of a block's output and then, in the same place, of its input */
    Buffer scratch, rope, sums;
    Tensor rope_table;
    Balance balance;             /* of mixtures of experts: see runner_balance.c; */
    Buffer load, counts;         /* its memory, */
    double balance_coef, z_coef; /* and the factors of its losses */
} Reference;

/* Of the spec, it takes the table of kernels, the sizes, optimizer, seed and balance. Parameters are
 * undefined. */
MUST_USE Status reference_new(Reference **ret_reference, const Model *model, Device *device,
                              const RunnerSpec *spec);
void reference_free(Reference *reference);
DEFINE_FREEP(Reference, reference)

/* One optimizer step, numbered from 1, over a batch in micro-batches. Of the result, it sets the losses, the
 * gradient norm and the tokens. */
MUST_USE Status reference_step(Reference *reference, HostBatch *const *micros, int count, int64_t step,
                               double lr, StepResult *ret_result);
/* The loss without dropout. */
MUST_USE Status reference_eval(Reference *reference, HostBatch *const *micros, int count, double *ret_loss);

#endif
