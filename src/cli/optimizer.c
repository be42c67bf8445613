#include "cli/optimizer.h"

#include "optim/optim.h"

static void set_default(Slot *slot, double value) {
    if (slot->option->type == OPTION_FLOAT) *(double *)slot->field = value;
    if (slot->option->type == OPTION_FLAG) option_set_flag(slot->option, slot->field, value > 0);
}

/* Warns about a setting of another optimizer that is on the command line. */
static Status check_other(Invocation *call, const Optimizer *kind, int row, const char *option) {
    double value;
    const Slot *slot = invocation_slot(call, option);
    if (!slot || slot->source != SOURCE_LINE || optim_setting(kind, option, &value)) return OK;
    for (int i = 0; i < row; i++)
        if (optim_setting(optim_row(i), option, &value)) return OK; /* checked with that row */
    return invocation_warn(call, "--%s has no effect with --optimizer %s", option, kind->name);
}

Status optimizer_settle(Invocation *call) {
    const Optimizer *kind = NULL;
    const Slot *named = invocation_slot(call, "optimizer");
    if (!named || !invocation_slot(call, "weight-decay")) return OK;
    TRY(optim_find(*(const char *const *)named->field, &kind));
    for (const OptimSetting *setting = kind->settings; setting->option; setting++) {
        Slot *slot = invocation_slot(call, setting->option);
        if (slot && slot->source == SOURCE_DEFAULT) set_default(slot, setting->value);
    }
    for (int i = 0; optim_row(i); i++)
        for (const OptimSetting *setting = optim_row(i)->settings; setting->option; setting++)
            TRY(check_other(call, kind, i, setting->option));
    return OK;
}
