#include "optim/lr.h"

#include <math.h>
#include <string.h>

Status lr_parse(const char *name, LrKind *ret_kind) {
    static const char *const names[] = {"linear", "cosine", "constant"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i])) continue;
        *ret_kind = (LrKind)i;
        return OK;
    }
    return USAGE("schedule '%s' is unknown, expected linear, cosine or constant", name);
}

double lr_at(const LrSchedule *schedule, int64_t step) {
    if (step <= schedule->warmup) return schedule->peak * (double)step / (double)schedule->warmup;
    if (schedule->kind == LR_CONSTANT) return schedule->peak;
    int64_t past = step - schedule->warmup, length = schedule->steps + 1 - schedule->warmup;
    double done = past >= length ? 1.0 : (double)past / (double)length;
    double share = schedule->kind == LR_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(3.141592653589793 * done));
    return schedule->floor + (schedule->peak - schedule->floor) * share;
}
