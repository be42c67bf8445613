/* What a stage does in one optimizer step, as data: a list of actions that the runner carries out in
 * order. Gradient accumulation is the schedule of a pipeline with one stage. */
#ifndef WEFT_PARALLEL_SCHEDULE_H
#define WEFT_PARALLEL_SCHEDULE_H

#include "base/status.h"

typedef enum { ACTION_FORWARD, ACTION_BACKWARD } ActionKind;

typedef struct Action {
    ActionKind kind;
    int micro; /* which micro-batch of the step */
} Action;

typedef struct Schedule {
    Action *action;
    int count;
    int in_flight; /* most micro-batches between their forward and their backward */
} Schedule;

/* One stage: each micro-batch forward, then backward. */
MUST_USE Status schedule_single(Schedule *ret_schedule, int micros);
void schedule_done(Schedule *schedule);

#endif
