/* A step of all stages, event by event.
 *
 * Each stage is one rank: a device that works through its list in order, a host that starts what the device
 * does, and ports to its links. Computations come from the stage's tape (plan/step_events.h) in the order of
 * its schedule, the same list that a run carries out. Operations between ranks that are started and not
 * waited for go on beside it, and those that meet on a port share it. */
#ifndef WEFT_PLAN_SIMULATE_H
#define WEFT_PLAN_SIMULATE_H

#include "plan/cost.h"

typedef struct Simulated {
    double step_s;
    double phase_s[PHASE_COUNT]; /* means over the stages; their sum is step_s */
} Simulated;

/* traces[stages] take what each stage does when, from trace_start on; NULL: nobody looks. */
MUST_USE Status simulate(const Plan *plan, const Costs *costs, Trace *const *traces, Simulated *ret_result);

#endif
