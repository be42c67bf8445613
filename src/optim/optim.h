/* The optimizer over stores: AdamW with decoupled decay, gradients clipped by their global norm. */
#ifndef WEFT_OPTIM_OPTIM_H
#define WEFT_OPTIM_OPTIM_H

#include "model/model.h"

typedef struct OptimSpec {
    double beta1, beta2, eps;
    double weight_decay; /* on parameters whose descriptor says so */
    double clip;         /* largest norm; 0: not clipped */
} OptimSpec;

/* The norm over all gradients, each parameter once. `total` is room for one double on the device. */
MUST_USE Status optim_grad_norm(const Store *grads, Exec *exec, Group *world, Buffer total, double *ret_norm);
/* What gradients of this norm are multiplied by. */
double optim_clip_scale(const OptimSpec *spec, double norm);
/* One update, number `step` from 1. */
MUST_USE Status optim_update(const OptimSpec *spec, Exec *exec, Store *params, Store *m, Store *v,
                             const Store *grads, int64_t step, double lr, double grad_scale);

#endif
