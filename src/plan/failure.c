/* Evaluates the closed-form formulas of failure.h in a form that is stable for rare and for frequent
 * failures. */
#include "plan/failure.h"

#include <math.h>

/* (exp(y) - 1) / y - 1 */
static double growth(double y) {
    return y < 1e-5 ? y / 2 + y * y / 6 : expm1(y) / y - 1;
}

FailureShares failure_shares(const FailureSpec *spec, double interval_s) {
    double rate = spec->devices / spec->mtbf_s, done = interval_s + spec->checkpoint_s;
    /* Expected failures before an interval completes. A restart follows each, repeated until one succeeds. */
    double behind = expm1(rate * spec->write_s), longer = growth(rate * done);
    double failures = (1 + behind) * expm1(rate * done), lost = done * (behind * (1 + longer) + longer);
    double restarts = failures * expm1(rate * spec->restart_s) / rate;
    double total = done + lost + restarts;
    /* The interval never completes; the ratio of restart time to lost time is exp(rate * restart) - 1. */
    if (!isfinite(total))
        return (FailureShares){.lost = exp(-rate * spec->restart_s),
                               .restarts = -expm1(-rate * spec->restart_s)};
    return (FailureShares){.goodput = interval_s / total,
                           .checkpoints = spec->checkpoint_s / total,
                           .lost = lost / total,
                           .restarts = restarts / total};
}

/* The root of 1 - x - exp(-(x + a)) in (0, 1]. The function is positive at 0 and concave, so the root is
 * unique and bisection finds it. For small `a` the difference would suffer from cancellation, so a series is
 * used instead. */
static double best_share(double a) {
    double low = 0, high = 1, root = sqrt(2 * a);
    if (a < 1e-8) return root - root * root / 3 + root * root * root / 36;
    for (int i = 0; i < 200 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle == low || middle == high) break;
        if (-expm1(-(middle + a)) - middle > 0)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Daly's higher-order estimate; if a checkpoint takes longer than two MTBFs, the interval is the MTBF. */
static double daly(double mtbf, double checkpoint) {
    double share = checkpoint / (2 * mtbf);
    if (share >= 1) return mtbf;
    return sqrt(2 * checkpoint * mtbf) * (1 + sqrt(share) / 3 + share / 9) - checkpoint;
}

static Status check_time(const char *what, double seconds, double min_s) {
    const double max_s = 1e13; /* 300,000 years */
    if (seconds >= min_s && seconds <= max_s) return OK;
    return USAGE("%s of %g s: expected %g to %g s", what, seconds, min_s, max_s);
}

static Status check(const FailureSpec *spec) {
    const double min_s = 1e-6;
    if (!(spec->devices >= 1))
        return USAGE("the number of devices is %g; expected at least 1", spec->devices);
    TRY(check_time("mean time between failures", spec->mtbf_s, min_s));
    TRY(check_time("checkpoint time", spec->checkpoint_s, min_s));
    TRY(check_time("restart time", spec->restart_s, 0));
    TRY(check_time("write time", spec->write_s, 0));
    return spec->interval_s != 0 ? check_time("checkpoint interval", spec->interval_s, min_s) : OK;
}

/* A save waits for the one before. */
static double at_least_written(const FailureSpec *spec, double interval_s) {
    return fmax(interval_s, spec->write_s - spec->checkpoint_s);
}

Status failure_find(Failure *ret_failure, const FailureSpec *spec) {
    TRY(check(spec));
    double mtbf = spec->mtbf_s / spec->devices;
    Failure failure = {.mtbf_s = mtbf,
                       .best_s = at_least_written(spec, mtbf * best_share(spec->checkpoint_s / mtbf)),
                       .young_s = at_least_written(spec, sqrt(2 * spec->checkpoint_s * mtbf)),
                       .daly_s = at_least_written(spec, daly(mtbf, spec->checkpoint_s))};
    failure.interval_s = spec->interval_s > 0 ? at_least_written(spec, spec->interval_s) : failure.best_s;
    failure.shares = failure_shares(spec, failure.interval_s);
    failure.best_goodput = failure_shares(spec, failure.best_s).goodput;
    failure.young_goodput = failure_shares(spec, failure.young_s).goodput;
    failure.daly_goodput = failure_shares(spec, failure.daly_s).goodput;
    *ret_failure = failure;
    return OK;
}

static json_t *interval_json(double seconds, double goodput) {
    return json_pack("{s:f, s:f}", "interval_s", seconds, "goodput", goodput);
}

json_t *failure_json(const Failure *failure, const FailureSpec *spec) {
    const FailureShares *shares = &failure->shares;
    double written_s = spec->write_s > 0 ? spec->write_s : spec->checkpoint_s;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f}, s:o, s:o, s:o}",
                     "device_mtbf_hours", spec->mtbf_s / 3600, "mtbf_hours", failure->mtbf_s / 3600,
                     "checkpoint_s", written_s, "stall_s", spec->checkpoint_s, "restart_s", spec->restart_s,
                     "checkpoint_every_s", failure->interval_s, "goodput", shares->goodput, "shares",
                     "checkpoints", shares->checkpoints, "lost", shares->lost, "restarts", shares->restarts,
                     "best", interval_json(failure->best_s, failure->best_goodput), "daly",
                     interval_json(failure->daly_s, failure->daly_goodput), "young",
                     interval_json(failure->young_s, failure->young_goodput));
}
