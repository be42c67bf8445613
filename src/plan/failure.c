#include "plan/failure.h"

#include <math.h>

/* (exp(y) - 1) / y - 1 */
static double growth(double y) {
    return y < 1e-5 ? y / 2 + y * y / 6 : expm1(y) / y - 1;
}

FailureShares failure_shares(const FailureSpec *spec, double interval_s) {
    double rate = spec->devices / spec->mtbf_s, done = interval_s + spec->checkpoint_s;
    /* How often a stretch fails before it is done; each time a restart follows, until one comes through. */
    double failures = expm1(rate * done), lost = done * growth(rate * done);
    double restarts = failures * expm1(rate * spec->restart_s) / rate;
    double total = done + lost + restarts;
    if (!isfinite(
            total)) /* it never comes through; restarts are to what is lost as exp(rate * restart) - 1 */
        return (FailureShares){.lost = exp(-rate * spec->restart_s),
                               .restarts = -expm1(-rate * spec->restart_s)};
    return (FailureShares){.goodput = interval_s / total,
                           .checkpoints = spec->checkpoint_s / total,
                           .lost = lost / total,
                           .restarts = restarts / total};
}

/* The root of 1 - x - exp(-(x + a)) in (0, 1]. It falls ever steeper from a positive value, so halving finds
 * it, and there is no other. Where failures are rare this would cancel; there a series has it. */
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

/* Daly's estimate of higher order; checkpoints that take longer than two mean times are written as often. */
static double daly(double mtbf, double checkpoint) {
    double share = checkpoint / (2 * mtbf);
    if (share >= 1) return mtbf;
    return sqrt(2 * checkpoint * mtbf) * (1 + sqrt(share) / 3 + share / 9) - checkpoint;
}

static Status check_time(const char *what, double seconds, double least) {
    const double most = 1e13; /* 300,000 years */
    if (seconds >= least && seconds <= most) return OK;
    return USAGE("%s of %g s: expected %g to %g s", what, seconds, least, most);
}

static Status check(const FailureSpec *spec) {
    const double least = 1e-6;
    if (!(spec->devices >= 1)) return USAGE("failures of %g devices: expected at least one", spec->devices);
    TRY(check_time("a mean time between failures", spec->mtbf_s, least));
    TRY(check_time("a checkpoint", spec->checkpoint_s, least));
    TRY(check_time("a restart", spec->restart_s, 0));
    return spec->interval_s != 0 ? check_time("a checkpoint interval", spec->interval_s, least) : OK;
}

Status failure_find(Failure *ret_failure, const FailureSpec *spec) {
    TRY(check(spec));
    double mtbf = spec->mtbf_s / spec->devices;
    Failure failure = {.mtbf_s = mtbf,
                       .best_s = mtbf * best_share(spec->checkpoint_s / mtbf),
                       .young_s = sqrt(2 * spec->checkpoint_s * mtbf),
                       .daly_s = daly(mtbf, spec->checkpoint_s)};
    failure.interval_s = spec->interval_s > 0 ? spec->interval_s : failure.best_s;
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
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f}, s:o, s:o, s:o}", "device_mtbf_hours",
                     spec->mtbf_s / 3600, "mtbf_hours", failure->mtbf_s / 3600, "checkpoint_s",
                     spec->checkpoint_s, "restart_s", spec->restart_s, "checkpoint_every_s",
                     failure->interval_s, "goodput", shares->goodput, "shares", "checkpoints",
                     shares->checkpoints, "lost", shares->lost, "restarts", shares->restarts, "best",
                     interval_json(failure->best_s, failure->best_goodput), "daly",
                     interval_json(failure->daly_s, failure->daly_goodput), "young",
                     interval_json(failure->young_s, failure->young_goodput));
}
