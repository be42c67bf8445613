/* Learning-rate schedules. */
#include "optim/lr.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
    [LR_LINEAR] = "linear", [LR_COSINE] = "cosine", [LR_CONSTANT] = "constant"};

const char *lr_name(LrKind kind) {
    return names[kind];
}

const char *lr_warmup_name(LrWarmup type) {
    return type == WARMUP_LOG ? "log" : "linear";
}

Status lr_parse(const char *name, LrKind *ret_kind) {
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i])) continue;
        *ret_kind = (LrKind)i;
        return OK;
    }
    return USAGE("unknown schedule '%s'; expected linear, cosine or constant", name);
}

Status lr_parse_warmup(const char *name, LrWarmup *ret_type) {
    bool is_log = name && strcmp(name, "log") == 0;
    if (name && !is_log && strcmp(name, "linear") != 0)
        return USAGE("unknown warm-up '%s'; expected linear or log", name);
    *ret_type = is_log ? WARMUP_LOG : WARMUP_LINEAR;
    return OK;
}

static double warmup_factor(const LrSchedule *schedule, int64_t step) {
    if (schedule->warmup < 2) return 1;
    if (schedule->warmup_type == WARMUP_LOG) return log((double)step) / log((double)schedule->warmup);
    return (double)step / (double)schedule->warmup;
}

double lr_at(const LrSchedule *schedule, int64_t step) {
    if (step <= schedule->warmup) return schedule->peak * warmup_factor(schedule, step);
    if (schedule->kind == LR_CONSTANT) return schedule->peak;
    int64_t past = step - schedule->warmup, length = schedule->steps + 1 - schedule->warmup;
    double done = past >= length ? 1.0 : (double)past / (double)length;
    double factor = schedule->kind == LR_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(3.141592653589793 * done));
    return schedule->floor + (schedule->peak - schedule->floor) * factor;
}
