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
    double phase_s[TIME_COUNT]; /* averaged over the stages; they add up to step_s */
    double busy_s;              /* time in which a device executes kernels, likewise averaged */
} Simulated;

/* What a stage does, in seconds since the start of the step. Between spans it waits for other stages. What
 * comes before the schedule, such as zeroing gradients, counts as part of the optimizer step. */
typedef enum { SPAN_FORWARD, SPAN_BACKWARD, SPAN_WEIGHT, SPAN_COMMUNICATION, SPAN_OPTIMIZER } SpanKind;

typedef struct SimSpan {
    SpanKind kind;
    int micro, chunk;
    double start, end;
    double communication; /* the part of it that the device waits for communication */
} SimSpan;

typedef struct SimSpans {
    SimSpan *span;
    size_t count, capacity;
} SimSpans;

/* Where a simulation is recorded: by stage, each of them NULL or an array of one element per stage. */
typedef struct SimRecord {
    Trace *const *traces;
    SimSpans *spans;
} SimRecord;

/* Records the second step; `record` may be NULL. The plan must have step events. */
MUST_USE Status simulate(const Plan *plan, const Costs *costs, const SimRecord *record,
                         Simulated *ret_result);

#endif
