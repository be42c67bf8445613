/* Optimizers: a table with one row per optimizer, and what they have in common: gradient clipping, loss
 * scaling, rules for single parameters.
 *
 * A row names the optimizer's state, which is stored like the parameters (parallel/shard.h) and saved with
 * them (checkpoint/), and implements its update. No other folder knows which optimizer runs.
 */
#ifndef WEFT_OPTIM_OPTIM_H
#define WEFT_OPTIM_OPTIM_H

#include "kernels/kernels.h"
#include "param/param.h"

enum { OPTIM_STATES = 2 };

typedef struct Optimizer Optimizer;

/* An optimizer with its settings; those that it does not have are ignored. */
typedef struct OptimSpec {
    const Optimizer *kind; /* NULL: AdamW */
    double beta1, beta2, eps;
    double weight_decay; /* applied to parameters whose descriptor enables it */
    double clip;         /* maximum gradient norm; 0: no clipping */
    bool keep_zeros;     /* zero weights of matrices (pruned ones) stay zero */
} OptimSpec;

/* How one parameter is updated. */
typedef struct ParamRule {
    double lr; /* factor on the learning rate */
    double decay;
    bool keep_zeros;
} ParamRule;

/* One update of all parameters. */
typedef struct OptimStep {
    int64_t number; /* from 1 */
    double lr;
    double grad_scale; /* multiplies gradients first: clipping and loss scaling */
} OptimStep;

/* A contiguous range of a rank's parameters with one rule. All tensors are flat, of the same length, and fp32
 * except `copy`, which receives the new parameters in the compute type; it may be absent. */
typedef struct OptimPart {
    const ParamRule *rule;
    Tensor param, copy, grad;
    Tensor state[OPTIM_STATES]; /* those that the row lists */
} OptimPart;

typedef struct OptimStates {
    int count;
    const char *name[OPTIM_STATES]; /* prefixes of the tensors in a checkpoint */
} OptimStates;

struct Optimizer {
    const char *name;   /* as in --optimizer */
    OptimStates states; /* fp32, with the parameter's shape, initially zero */
    Status (*step)(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part);
};

/* Row `index` of the table, from 0; NULL past its end. */
const Optimizer *optim_row(int index);
MUST_USE Status optim_find(const char *name, const Optimizer **ret_kind);
const Optimizer *optim_kind(const OptimSpec *spec);

ParamRule optim_rule(const OptimSpec *spec, const ParamDesc *desc);
bool optim_rule_same(const ParamRule *a, const ParamRule *b);

/* Number of state tensors. */
int optim_states(const OptimSpec *spec);
/* Prefix of a parameter's state tensor `state` in checkpoints; NULL if the parameter has no such state. */
const char *optim_state_name(const OptimSpec *spec, const ParamDesc *desc, int state);

/* Factor on gradients of this norm: at most 1. */
double optim_clip_scale(const OptimSpec *spec, double norm);

/* Dynamic loss scaling, which keeps small fp16 gradients from underflowing: the scale is halved when
 * gradients overflow (that step is skipped) and doubled after `interval` steps without overflow, up to 2^24.
 */
typedef struct LossScale {
    double scale;
    int64_t good, interval; /* good: steps since the last change */
} LossScale;

void loss_scale_next(LossScale *scale, bool overflowed);

#endif
