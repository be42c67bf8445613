/* What failures cost: how much of a run's time is progress when devices fail now and then, and how often to
 * write checkpoints.
 *
 * Each device fails after a time that is exponentially distributed, and one that fails stops all of them.
 * The run then starts again from its newest checkpoint, which may fail, too. Work and a checkpoint make a
 * stretch: done once it comes through without a failure, begun again where not. With the failures' rate r of
 * all devices together, work w, a checkpoint of c and a restart of s seconds, a stretch takes
 *
 *     exp(r s) (exp(r (w + c)) - 1) / r
 *
 * on average. This is exact, also where failures are frequent, and so is the best w that comes of it: the one
 * with r w = 1 - exp(-r (w + c)). Young's and Daly's well-known formulas are approximations of that root. */
#ifndef WEFT_PLAN_FAILURE_H
#define WEFT_PLAN_FAILURE_H

#include "base/json.h"

typedef struct FailureSpec {
    double devices;
    double mtbf_s;       /* mean time between failures of one device */
    double checkpoint_s; /* a run stands still for so long while one is written */
    double restart_s;    /* from a failure to the first step after it */
    double interval_s;   /* work between checkpoints; 0: the best */
} FailureSpec;

/* Shares of the run's time; with `goodput` they add up to 1. */
typedef struct FailureShares {
    double goodput, checkpoints, lost, restarts;
} FailureShares;

typedef struct Failure {
    double mtbf_s; /* of all devices together */
    double interval_s;
    FailureShares shares;           /* with this interval */
    double best_s, young_s, daly_s; /* intervals */
    double best_goodput, young_goodput, daly_goodput;
} Failure;

/* Refuses what is no time, or no number of devices, naming it. */
MUST_USE Status failure_find(Failure *ret_failure, const FailureSpec *spec);
/* Of a run with some interval. */
FailureShares failure_shares(const FailureSpec *spec, double interval_s);
json_t *failure_json(const Failure *failure, const FailureSpec *spec);

#endif
