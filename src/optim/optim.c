#include "optim/optim.h"

#include <string.h>

#include "optim/rows.h"

static const Optimizer *const rows[] = {&optim_adamw};

enum { ROWS = sizeof rows / sizeof *rows };

const Optimizer *optim_row(int index) {
    return index < ROWS ? rows[index] : NULL;
}

Status optim_find(const char *name, const Optimizer **ret_kind) {
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(name, rows[i]->name)) continue;
        *ret_kind = rows[i];
        return OK;
    }
    return USAGE("unknown optimizer '%s'", name);
}

const Optimizer *optim_kind(const OptimSpec *spec) {
    return spec->kind ? spec->kind : rows[0];
}

ParamRule optim_rule(const OptimSpec *spec, const ParamDesc *desc) {
    return (ParamRule){
        .lr = 1,
        .decay = desc->decay ? spec->weight_decay : 0,
        .keep_zeros = spec->keep_zeros && desc->decay, /* zero-initialized biases must stay trainable */
    };
}

bool optim_rule_same(const ParamRule *a, const ParamRule *b) {
    return a->lr == b->lr && a->decay == b->decay && a->keep_zeros == b->keep_zeros;
}

int optim_states(const OptimSpec *spec) {
    return optim_kind(spec)->states.count;
}

const char *optim_state_name(const OptimSpec *spec, const ParamDesc *desc, int state) {
    (void)desc;
    const OptimStates *states = &optim_kind(spec)->states;
    return state < states->count ? states->name[state] : NULL;
}

double optim_clip_scale(const OptimSpec *spec, double norm) {
    double scale = spec->clip / (norm + 1e-6);
    return spec->clip > 0 && scale < 1 ? scale : 1;
}

void loss_scale_next(LossScale *scale, bool overflowed) {
    const double largest = 16777216; /* 2^24 */
    if (overflowed) {
        scale->scale /= 2;
        scale->good = 0;
    } else if (++scale->good >= scale->interval) {
        if (scale->scale < largest) scale->scale *= 2;
        scale->good = 0;
    }
}
