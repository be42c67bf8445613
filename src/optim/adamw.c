/* AdamW (Loshchilov and Hutter): Adam with decoupled weight decay. */
#include <math.h>

#include "optim/rows.h"

Status adamw(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part) {
    AdamW update = {
        .lr = (float)(step->lr * part->rule->lr),
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .decay = (float)part->rule->decay,
        .correction1 = (float)(1 - pow(spec->beta1, (double)step->number)),
        .correction2 = (float)(1 - pow(spec->beta2, (double)step->number)),
        .grad_scale = (float)step->grad_scale,
        .keep_zeros = part->rule->keep_zeros,
    };
    return adamw_step(exec, part->param, part->state[0], part->state[1], part->copy, part->grad, update);
}

static const OptimSetting settings[] = {{"lr", 6e-4},     {"weight-decay", 0.01}, {"beta1", 0.9},
                                        {"beta2", 0.999}, {"eps", 1e-8},          {0}};

const Optimizer optim_adamw = {
    .name = "adamw",
    .settings = settings,
    .states = {2, {"exp_avg", "exp_avg_sq"}},
    .step = adamw,
};
