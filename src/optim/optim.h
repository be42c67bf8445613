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

/* Settings for the parameters whose names match a glob pattern. */
typedef struct OptimGroup {
    char pattern[PARAM_NAME];
    double lr;           /* factor on the learning rate */
    double weight_decay; /* < 0: not set */
} OptimGroup;

/* How Muon scales an update of a matrix (R,C), whose singular values are about 1: by sqrt(max(1, R / C)), as
 * published, or by 0.2 sqrt(max(R, C)), which gives it the magnitude of an AdamW update. */
typedef enum { MUON_ORIGINAL, MUON_MATCH_ADAMW } MuonScale;
extern const char *const muon_scale_names[]; /* ends with NULL */

/* An optimizer with its settings; those that it does not have are ignored. */
typedef struct OptimSpec {
    const Optimizer *kind; /* NULL: AdamW */
    double beta1, beta2, eps;
    double momentum;
    bool nesterov;
    MuonScale muon_scale;
    double adamw_lr; /* learning rate of parameters that the optimizer leaves to AdamW, relative to its own */
    double weight_decay;     /* applied to parameters whose descriptor enables it */
    double clip;             /* maximum gradient norm; 0: no clipping */
    bool keep_zeros;         /* zero weights of matrices (pruned ones) stay zero */
    const OptimGroup *group; /* the last one that matches a parameter applies */
    int groups;
} OptimSpec;

/* How one parameter is updated. */
typedef struct ParamRule {
    double lr; /* factor on the learning rate */
    double decay;
    bool keep_zeros;
    bool whole; /* as whole matrices; else element by element */
} ParamRule;

/* One update of all parameters. */
typedef struct OptimStep {
    int64_t number; /* from 1 */
    double lr;
    double grad_scale; /* multiplies gradients first: clipping and loss scaling */
} OptimStep;

/* A contiguous range of a rank's parameters with one rule. All tensors are flat, of the same length, and fp32
 * except `copy`, which receives the new parameters in the compute type; it may be absent. `param` may be
 * DT_F32_LOWER; `copy` is then the upper half (f32_halves). */
typedef struct OptimPart {
    const ParamRule *rule;
    Tensor param, copy, grad;
    Tensor state[OPTIM_STATES]; /* those that the row lists */
} OptimPart;

typedef struct OptimStates {
    int count;
    const char *name[OPTIM_STATES]; /* prefixes of the tensors in a checkpoint */
} OptimStates;

/* A setting of an optimizer: the option's name and its default for this optimizer. */
typedef struct OptimSetting {
    const char *option;
    double value;
} OptimSetting;

/* A matrix (rows,cols) in fp32, complete on one rank. */
typedef struct OptimMatrix {
    float *data;
    int64_t rows, cols;
    int column_blocks; /* > 1: `data` is not row-major; it has this many blocks (rows, cols / blocks), one
                        * after the other, each row-major */
} OptimMatrix;

/* Memory of `transform`: `bytes` of device memory, and the compute type of matmuls. */
typedef struct OptimWork {
    void *data;
    DType dtype;
} OptimWork;

/* Hidden matrices may be updated as a whole, by an optimizer that lists states for them. Such an update has
 * three parts, so that `transform` can run on one rank while the others run elementwise on all shards:
 * `begin` updates the state and replaces the gradient by a matrix, `transform` changes it in place, and
 * `finish` applies it to the parameters. */
struct Optimizer {
    const char *name;             /* as users write it */
    const OptimSetting *settings; /* ends with an option NULL */
    OptimStates states;           /* fp32, with the parameter's shape, initially zero */
    OptimStates whole; /* those of hidden matrices; none: they are updated like all other parameters */
    Status (*step)(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part,
                   int parts);
    bool joins; /* `step` updates all parts in one kernel call, however many there are */
    Status (*begin)(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part);
    Status (*transform)(Exec *exec, const OptimSpec *spec, OptimMatrix matrix, OptimWork work);
    Status (*finish)(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part);
    size_t (*work_bytes)(int64_t rows, int64_t cols, DType dtype);
};

/* Row `index` of the table, from 0; NULL past its end. */
const Optimizer *optim_row(int index);
MUST_USE Status optim_find(const char *name, const Optimizer **ret_kind);
const Optimizer *optim_kind(const OptimSpec *spec);

/* The settings that the table lists for an optimizer, with clipping at 1. */
OptimSpec optim_defaults(const Optimizer *kind);
/* The value of a setting in the optimizer's row; false if it has no such setting. */
bool optim_setting(const Optimizer *kind, const char *option, double *ret_value);

ParamRule optim_rule(const OptimSpec *spec, const ParamDesc *desc);
bool optim_rule_same(const ParamRule *a, const ParamRule *b);

/* Number of state tensors, of those parameters that have the most. */
int optim_states(const OptimSpec *spec);
/* Whether parameters with this rule have state tensor `state`. */
bool optim_has_state(const OptimSpec *spec, const ParamRule *rule, int state);
/* Prefix of a parameter's state tensor `state` in checkpoints; NULL if the parameter has no such state. */
const char *optim_state_name(const OptimSpec *spec, const ParamDesc *desc, int state);

/* Parses PATTERN:KEY=VALUE[,KEY=VALUE], with the keys lr and weight-decay. */
MUST_USE Status optim_group_parse(const char *text, OptimGroup *ret_group);
bool optim_group_matches(const OptimGroup *group, const ParamDesc *desc);

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
