/* Learning-rate schedules. */
#include "optim/lr.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
    [LR_LINEAR] = "linear", [LR_COSINE] = "cosine", [LR_CONSTANT] = "constant", [LR_WSD] = "wsd"};
static const char *const decays[] = {
    [DECAY_LINEAR] = "linear", [DECAY_SQRT] = "1-sqrt", [DECAY_COSINE] = "cosine"};

enum { KINDS = sizeof names / sizeof *names, DECAYS = sizeof decays / sizeof *decays };

const char *lr_name(LrKind kind) {
    return names[kind];
}

const char *lr_warmup_name(LrWarmup type) {
    return type == WARMUP_LOG ? "log" : "linear";
}

Status lr_parse(const char *name, LrKind *ret_kind) {
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(name, names[i])) continue;
        *ret_kind = (LrKind)i;
        return OK;
    }
    return USAGE("unknown schedule '%s'; expected linear, cosine, constant or wsd", name);
}

Status lr_parse_warmup(const char *name, LrWarmup *ret_type) {
    bool is_log = name && strcmp(name, "log") == 0;
    if (name && !is_log && strcmp(name, "linear") != 0)
        return USAGE("unknown warm-up '%s'; expected linear or log", name);
    *ret_type = is_log ? WARMUP_LOG : WARMUP_LINEAR;
    return OK;
}

const char *lr_decay_name(LrDecay type) {
    return decays[type];
}

Status lr_parse_decay(const char *name, LrDecay *ret_type) {
    for (int i = 0; i < DECAYS; i++) {
        if (name && strcmp(name, decays[i])) continue;
        *ret_type = (LrDecay)i;
        return OK;
    }
    return USAGE("unknown decay '%s'; expected linear, 1-sqrt or cosine", name);
}

static double warmup_factor(const LrSchedule *schedule, int64_t step) {
    bool is_log = schedule->warmup_type == WARMUP_LOG;
    if (schedule->warmup < 1 + is_log) return 1;
    if (is_log) return step < 1 ? 0 : log((double)step) / log((double)schedule->warmup);
    return (double)step / (double)schedule->warmup;
}

/* The rate between peak and floor; 1: the peak. */
static double decay_factor(LrDecay type, double done) {
    if (type == DECAY_SQRT) return 1.0 - sqrt(done);
    return type == DECAY_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(3.141592653589793 * done));
}

double lr_at(const LrSchedule *schedule, int64_t step) {
    bool wsd = schedule->kind == LR_WSD;
    double peak = schedule->peak, first = wsd && schedule->from_zero ? schedule->floor : 0;
    step -= schedule->from_zero;
    if (step <= schedule->warmup) return first + (peak - first) * warmup_factor(schedule, step);
    if (schedule->kind == LR_CONSTANT) return peak;
    int64_t start = wsd ? schedule->steps - schedule->decay : schedule->warmup;
    if (step <= start) return peak;
    int64_t past = step - start, length = schedule->steps + !schedule->from_zero - start;
    double done = past >= length ? 1.0 : (double)past / (double)length;
    LrDecay type = wsd ? schedule->decay_type : schedule->kind == LR_COSINE ? DECAY_COSINE : DECAY_LINEAR;
    return schedule->floor + (peak - schedule->floor) * decay_factor(type, done);
}
