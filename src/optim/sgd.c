/* Stochastic gradient descent with momentum, as in PyTorch: weight decay is added to the gradient. */
#include "optim/rows.h"

static Status step_part(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part) {
    Sgd update = {.lr = (float)(step->lr * part->rule->lr),
                  .momentum = (float)spec->momentum,
                  .decay = (float)part->rule->decay,
                  .grad_scale = (float)step->grad_scale,
                  .nesterov = spec->nesterov,
                  .keep_zeros = part->rule->keep_zeros};
    return sgd_step(exec, part->param, part->state[0], part->copy, part->grad, update);
}

static Status sgd(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part,
                  int parts) {
    for (int i = 0; i < parts; i++) TRY(step_part(exec, spec, step, &part[i]));
    return OK;
}

static const OptimSetting settings[] = {
    {"lr", 0.1}, {"weight-decay", 0}, {"momentum", 0.9}, {"nesterov", 0}, {0}};

const Optimizer optim_sgd = {
    .name = "sgd",
    .settings = settings,
    .states = {1, {"momentum_buffer"}},
    .step = sgd,
};
