/* Lion (Chen et al., "Symbolic discovery of optimization algorithms"): the sign of a moving average of
 * gradients. Learning rates are 3 to 10 times lower than AdamW's, and weight decay higher by the same factor.
 */
#include "optim/rows.h"

static Status step_part(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part) {
    Lion update = {.lr = (float)(step->lr * part->rule->lr),
                   .beta1 = (float)spec->beta1,
                   .beta2 = (float)spec->beta2,
                   .decay = (float)part->rule->decay,
                   .grad_scale = (float)step->grad_scale,
                   .keep_zeros = part->rule->keep_zeros};
    return lion_step(exec, part->param, part->state[0], part->copy, part->grad, update);
}

static Status lion(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part,
                   int parts) {
    for (int i = 0; i < parts; i++) TRY(step_part(exec, spec, step, &part[i]));
    return OK;
}

static const OptimSetting settings[] = {
    {"lr", 1e-4}, {"weight-decay", 0.1}, {"beta1", 0.9}, {"beta2", 0.99}, {0}};

const Optimizer optim_lion = {
    .name = "lion",
    .settings = settings,
    .states = {1, {"exp_avg"}},
    .step = lion,
};
