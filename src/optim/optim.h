/* Scalar coefficients of an AdamW update: decoupled weight decay, clipping by the global norm, loss scaling.
 * The state and the update itself are in parallel/shard.h. */
#ifndef WEFT_OPTIM_OPTIM_H
#define WEFT_OPTIM_OPTIM_H

#include "kernels/kernels.h"

typedef struct OptimSpec {
    double beta1, beta2, eps;
    double weight_decay; /* applied to parameters whose descriptor enables it */
    double clip;         /* maximum gradient norm; 0: no clipping */
    bool keep_zeros;     /* zero weights of matrices (pruned ones) stay zero */
} OptimSpec;

/* Factor on gradients of this norm: at most 1. */
double optim_clip_scale(const OptimSpec *spec, double norm);
/* Coefficients of update number `step`, counted from 1. The caller sets `decay` per parameter. */
AdamW optim_adamw(const OptimSpec *spec, int64_t step, double lr, double grad_scale);

/* Dynamic loss scaling, which keeps small fp16 gradients from underflowing: the scale is halved when
 * gradients overflow (that step is skipped) and doubled after `interval` steps without overflow, up to 2^24.
 */
typedef struct LossScale {
    double scale;
    int64_t good, interval; /* good: steps since the last change */
} LossScale;

void loss_scale_next(LossScale *scale, bool overflowed);

#endif
