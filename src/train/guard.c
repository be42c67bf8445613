/* Spikes are outliers by the median of recent steps and the median absolute change from step to step, which
 * outliers themselves hardly move; changes, unlike deviations from a mean, do not grow with a loss that falls
 * quickly. Values are compared as logarithms: losses of small batches and gradient norms are skewed, and a
 * ratio means the same early and late in a run. */
#include "train/guard.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A value is a spike if it exceeds the median by this many standard deviations of the noise and by this
 * factor. */
typedef struct SpikeRule {
    double deviations, factor;
    double least; /* and, for a loss, by this fraction of the first one */
} SpikeRule;

static const SpikeRule loss_rule = {6, 1.25, 0.05}, norm_rule = {8, 10, 0};

static const char *const policy_names[] = {[ON_DIVERGENCE_STOP] = "stop",
                                           [ON_DIVERGENCE_WARN] = "warn",
                                           [ON_DIVERGENCE_SKIP] = "skip",
                                           [ON_DIVERGENCE_ROLLBACK] = "rollback"};

Status guard_parse(const char *name, GuardPolicy *ret_policy) {
    size_t i = 0;
    while (name && i < sizeof policy_names / sizeof *policy_names && strcmp(name, policy_names[i])) i++;
    if (i == sizeof policy_names / sizeof *policy_names)
        return USAGE("{on-divergence} '%s': must be stop, warn, skip or rollback", name);
    *ret_policy = (GuardPolicy)i;
    return OK;
}

void guard_init(Guard *guard) {
    *guard = (Guard){.first = NAN};
}

double guard_limit(const Guard *guard) {
    return 3 * guard->first + 1;
}

static double log_of(double value) {
    return log(fmax(value, 1e-30));
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the values. */
static double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, ascending);
    return count % 2 ? value[count / 2] : 0.5 * (value[count / 2 - 1] + value[count / 2]);
}

static int held(const Guard *guard) {
    return guard->count < GUARD_WINDOW ? (int)guard->count : GUARD_WINDOW;
}

/* Whether a value is a spike relative to the window; *ret_usual is the window's median. */
static bool is_spike(const Guard *guard, const double *window, SpikeRule rule, double value,
                     double *ret_usual) {
    const double mad_to_deviation = 1.4826; /* for a normal distribution */
    double recent[GUARD_LEAST], change[GUARD_WINDOW];
    int count = held(guard);
    if (count < GUARD_LEAST) return false;
    for (int i = 0; i < GUARD_LEAST; i++) recent[i] = window[(guard->count - 1 - i) % GUARD_WINDOW];
    for (int i = 0; i < count - 1; i++)
        change[i] = fabs(window[(guard->count - 1 - i) % GUARD_WINDOW] -
                         window[(guard->count - 2 - i) % GUARD_WINDOW]);
    double middle = median(recent, GUARD_LEAST);
    double deviation = mad_to_deviation / sqrt(2) * median(change, count - 1);
    *ret_usual = exp(middle);
    return value - *ret_usual > rule.least * guard->first &&
           log_of(value) > middle + fmax(rule.deviations * deviation, log(rule.factor));
}

/* A step whose samples have nothing to predict says nothing about the run. */
static bool is_void(double loss, double norm) {
    return loss == 0 && norm == 0;
}

StepVerdict guard_judge(const Guard *guard, double loss, double norm, bool last, char text[GUARD_TEXT]) {
    double usual = 0;
    text[0] = 0;
    if (is_void(loss, norm)) return STEP_FINE;
    if (!isfinite(loss) || !isfinite(norm)) {
        snprintf(text, GUARD_TEXT, "training diverged (loss %g, gradient norm %g)", fabs(loss), fabs(norm));
        return STEP_NONFINITE;
    }
    int64_t over = loss > guard_limit(guard) ? guard->over + 1 : 0;
    if (over >= (last ? GUARD_OVER_END : GUARD_OVER)) {
        snprintf(text, GUARD_TEXT,
                 "training diverged: the loss is %.5g and was above %.3g, three times the first loss plus "
                 "1, for %lld steps",
                 loss, guard_limit(guard), (long long)over);
        return STEP_DIVERGED;
    }
    if (is_spike(guard, guard->loss, loss_rule, loss, &usual))
        snprintf(text, GUARD_TEXT, "loss spike: %.5g; the median of the last %d steps is %.5g", loss,
                 GUARD_LEAST, usual);
    else if (is_spike(guard, guard->norm, norm_rule, norm, &usual))
        snprintf(text, GUARD_TEXT, "gradient norm spike: %.5g; the median of the last %d steps is %.5g", norm,
                 GUARD_LEAST, usual);
    else if (over == 1)
        snprintf(text, GUARD_TEXT, "loss spike: %.5g; the first loss was %.5g", loss, guard->first);
    return *text ? STEP_SPIKE : STEP_FINE;
}

void guard_add(Guard *guard, double loss, double norm) {
    if (is_void(loss, norm)) return;
    if (isnan(guard->first)) guard->first = loss;
    guard->over = loss > guard_limit(guard) ? guard->over + 1 : 0;
    guard->loss[guard->count % GUARD_WINDOW] = log_of(loss);
    guard->norm[guard->count % GUARD_WINDOW] = log_of(norm);
    guard->count++;
    guard->skips = 0;
}

/* ---- checkpoints ---- */

static const struct {
    const char *name;
    size_t offset;
} counters[] = {
    {"count", offsetof(Guard, count)},         {"over", offsetof(Guard, over)},
    {"spikes", offsetof(Guard, spikes)},       {"skips", offsetof(Guard, skips)},
    {"rollbacks", offsetof(Guard, rollbacks)}, {"batches", offsetof(Guard, batches)},
};

static int64_t *counter(Guard *guard, size_t i) {
    return (int64_t *)((char *)guard + counters[i].offset);
}

Status guard_save(const Guard *guard, json_t **ret_json) {
    Guard copy = *guard;
    json_t *loss = json_array(), *norm = json_array();
    for (int i = 0; i < held(guard); i++) {
        json_array_append_new(loss, json_real(guard->loss[i]));
        json_array_append_new(norm, json_real(guard->norm[i]));
    }
    json_t *json =
        json_pack("{s:o, s:o, s:o}", "first", isfinite(guard->first) ? json_real(guard->first) : json_null(),
                  "loss", loss, "norm", norm);
    for (size_t i = 0; json && i < sizeof counters / sizeof *counters; i++)
        json_object_set_new(json, counters[i].name, json_integer((json_int_t)*counter(&copy, i)));
    if (!json) return FAILED("out of memory");
    *ret_json = json;
    return OK;
}

void guard_restore(Guard *guard, const json_t *json) {
    guard_init(guard);
    const json_t *loss = json_object_get(json, "loss"), *norm = json_object_get(json, "norm");
    const json_t *first = json_object_get(json, "first");
    if (json_is_number(first)) guard->first = json_number_value(first);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        int64_t value = json_integer_value(json_object_get(json, counters[i].name));
        *counter(guard, i) = value > 0 ? value : 0;
    }
    if (json_array_size(loss) != (size_t)held(guard) || json_array_size(norm) != (size_t)held(guard))
        guard->count = 0;
    for (size_t i = 0; i < (size_t)held(guard); i++) {
        guard->loss[i] = json_number_value(json_array_get(loss, i));
        guard->norm[i] = json_number_value(json_array_get(norm, i));
    }
}
