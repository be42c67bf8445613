/* The cost of device failures: the fraction of a run's time that is progress (goodput), and the best
 * checkpoint interval.
 *
 * Every device fails after an exponentially distributed time, and one failure stops the run. The run then
 * restarts from its newest checkpoint, and the restart may fail too. An interval, w seconds of work followed
 * by a checkpoint of c seconds, counts once it completes without a failure; otherwise it is repeated. With r
 * the failure rate of all devices together and s seconds per restart, an interval takes
 *
 *     exp(r s) (exp(r (w + c)) - 1) / r
 *
 * seconds on average. This is exact even for frequent failures, and so is the best w, which solves
 * r w = 1 - exp(-r (w + c)). Young's and Daly's formulas approximate this root.
 *
 * A checkpoint that is written in the background within b seconds after a pause of c counts only then, so a
 * failure loses up to b seconds more: the average is exp(r b) times as long. Work w + c is at least b,
 * because a save waits for the one before. */
#ifndef WEFT_PLAN_FAILURE_H
#define WEFT_PLAN_FAILURE_H

#include "base/json.h"

typedef struct FailureSpec {
    double devices;
    double mtbf_s;       /* mean time between failures of one device */
    double checkpoint_s; /* training pauses this long for a checkpoint */
    double restart_s;    /* from a failure to the next step */
    double interval_s;   /* work between checkpoints; 0: use the best interval */
    double write_s;      /* from the pause until a checkpoint is written; 0: it is written during the pause */
} FailureSpec;

/* Fractions of the run's time that add up to 1. */
typedef struct FailureShares {
    double goodput, checkpoints, lost, restarts;
} FailureShares;

typedef struct Failure {
    double mtbf_s;                  /* mean time between failures of the whole run */
    double interval_s;              /* the given interval, or the best */
    FailureShares shares;           /* with this interval */
    double best_s, young_s, daly_s; /* checkpoint intervals */
    double best_goodput, young_goodput, daly_goodput;
} Failure;

/* Fails with a usage error if a time or the number of devices is out of range. */
MUST_USE Status failure_find(Failure *ret_failure, const FailureSpec *spec);
/* Evaluates a given interval; spec->interval_s is ignored. */
FailureShares failure_shares(const FailureSpec *spec, double interval_s);
json_t *failure_json(const Failure *failure, const FailureSpec *spec);

#endif
