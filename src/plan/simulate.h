/* Event-driven simulation of a training step on all pipeline stages.
 *
 * Each stage is represented by one rank: a device that executes its work in order, a host that launches it,
 * and ports to its links. Computations come from the stage's events (plan/step_events.h), in the order of the
 * schedule that a run executes. Asynchronous communication overlaps with computation, and operations on the
 * same port share its bandwidth. */
#ifndef WEFT_PLAN_SIMULATE_H
#define WEFT_PLAN_SIMULATE_H

#include "plan/cost.h"

typedef struct Simulated {
    double step_s;
    double phase_s[PHASE_COUNT]; /* averaged over the stages; they add up to step_s */
} Simulated;

/* Records each stage's second step in traces[stage]; `traces` may be NULL. The plan must have step events. */
MUST_USE Status simulate(const Plan *plan, const Costs *costs, Trace *const *traces, Simulated *ret_result);

#endif
