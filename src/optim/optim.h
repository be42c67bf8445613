/* AdamW with decoupled decay, gradients clipped by their global norm: the numbers of one update. Who holds
 * what, and the update itself, is parallel/shard.h. */
#ifndef WEFT_OPTIM_OPTIM_H
#define WEFT_OPTIM_OPTIM_H

#include "kernels/kernels.h"

typedef struct OptimSpec {
    double beta1, beta2, eps;
    double weight_decay; /* on parameters whose descriptor says so */
    double clip;         /* largest norm; 0: not clipped */
    bool keep_zeros;     /* weights of matrices that are 0 stay 0: pruned ones */
} OptimSpec;

/* What gradients of this norm are multiplied by. */
double optim_clip_scale(const OptimSpec *spec, double norm);
/* The update number `step` from 1; the decay is the caller's to set, parameter by parameter. */
AdamW optim_adamw(const OptimSpec *spec, int64_t step, double lr, double grad_scale);

/* The factor that keeps fp16's small gradients from vanishing: halved when they overflow, and the step is
 * left out; doubled after `interval` steps without. */
typedef struct LossScale {
    double scale;
    int64_t good, interval; /* steps since the last change */
} LossScale;

void loss_scale_next(LossScale *scale, bool overflowed);

#endif
