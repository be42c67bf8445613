#include "optim/optim.h"

#include <string.h>

#include "optim/rows.h"

static const Optimizer *const rows[] = {&optim_adamw, &optim_lion, &optim_sgd, &optim_muon};

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
    return USAGE("unknown optimizer '%s'; expected adamw, lion, sgd or muon", name);
}

const Optimizer *optim_kind(const OptimSpec *spec) {
    return spec->kind ? spec->kind : rows[0];
}

bool optim_setting(const Optimizer *kind, const char *option, double *ret_value) {
    for (const OptimSetting *setting = kind->settings; setting->option; setting++)
        if (!strcmp(setting->option, option)) {
            *ret_value = setting->value;
            return true;
        }
    return false;
}

static double setting_of(const Optimizer *kind, const char *option) {
    double value = 0;
    return optim_setting(kind, option, &value) ? value : 0;
}

OptimSpec optim_defaults(const Optimizer *kind) {
    return (OptimSpec){.kind = kind,
                       .beta1 = setting_of(kind, "beta1"),
                       .beta2 = setting_of(kind, "beta2"),
                       .eps = setting_of(kind, "eps"),
                       .momentum = setting_of(kind, "momentum"),
                       .nesterov = setting_of(kind, "nesterov") > 0,
                       .adamw_lr = setting_of(kind, "adamw-lr") / setting_of(kind, "lr"),
                       .weight_decay = setting_of(kind, "weight-decay"),
                       .clip = 1};
}

ParamRule optim_rule(const OptimSpec *spec, const ParamDesc *desc) {
    ParamRule rule = {
        .lr = 1,
        .decay = desc->decay ? spec->weight_decay : 0,
        .keep_zeros = spec->keep_zeros && desc->decay, /* zero-initialized biases must stay trainable */
        .whole = optim_kind(spec)->whole.count && param_is_hidden_matrix(desc),
    };
    for (int i = spec->groups - 1; i >= 0; i--) {
        const OptimGroup *group = &spec->group[i];
        if (!optim_group_matches(group, desc)) continue;
        rule.lr = group->lr;
        if (group->weight_decay >= 0) rule.decay = group->weight_decay;
        break;
    }
    if (optim_kind(spec)->whole.count && !rule.whole) rule.lr *= spec->adamw_lr;
    return rule;
}

bool optim_rule_same(const ParamRule *a, const ParamRule *b) {
    return a->lr == b->lr && a->decay == b->decay && a->keep_zeros == b->keep_zeros && a->whole == b->whole;
}

int optim_states(const OptimSpec *spec) {
    const Optimizer *kind = optim_kind(spec);
    return kind->states.count > kind->whole.count ? kind->states.count : kind->whole.count;
}

bool optim_has_state(const OptimSpec *spec, const ParamRule *rule, int state) {
    const Optimizer *kind = optim_kind(spec);
    return state < (rule->whole ? kind->whole.count : kind->states.count);
}

const char *optim_state_name(const OptimSpec *spec, const ParamDesc *desc, int state) {
    const Optimizer *kind = optim_kind(spec);
    ParamRule rule = optim_rule(spec, desc);
    if (!optim_has_state(spec, &rule, state)) return NULL;
    return rule.whole ? kind->whole.name[state] : kind->states.name[state];
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
