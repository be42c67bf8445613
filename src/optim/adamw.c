/* AdamW (Loshchilov and Hutter): Adam with decoupled weight decay. */
#include <math.h>

#include "base/memory.h"
#include "optim/rows.h"

Status adamw(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part, int parts) {
    AdamW update = {
        .beta1 = (float)spec->beta1,
        .beta2 = (float)spec->beta2,
        .eps = (float)spec->eps,
        .correction1 = (float)(1 - pow(spec->beta1, (double)step->number)),
        .correction2 = (float)(1 - pow(spec->beta2, (double)step->number)),
        .grad_scale = (float)step->grad_scale,
    };
    CLEANUP(mem_freep) AdamWPart *updated = NULL;
    TRY(mem_new((size_t)parts, sizeof *updated, &updated));
    for (int i = 0; i < parts; i++)
        updated[i] = (AdamWPart){.param = part[i].param,
                                 .m = part[i].state[0],
                                 .v = part[i].state[1],
                                 .copy = part[i].copy,
                                 .grad = part[i].grad,
                                 .lr = (float)(step->lr * part[i].rule->lr),
                                 .decay = (float)part[i].rule->decay,
                                 .keep_zeros = part[i].rule->keep_zeros};
    return adamw_step(exec, updated, parts, update);
}

static const OptimSetting settings[] = {{"lr", 6e-4},     {"weight-decay", 0.01}, {"beta1", 0.9},
                                        {"beta2", 0.999}, {"eps", 1e-8},          {0}};

const Optimizer optim_adamw = {
    .name = "adamw",
    .settings = settings,
    .states = {2, {"exp_avg", "exp_avg_sq"}},
    .step = adamw,
    .joins = true,
};
