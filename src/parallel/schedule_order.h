/* The order of computations on every stage, before messages are inserted. */
#ifndef WEFT_PARALLEL_SCHEDULE_ORDER_H
#define WEFT_PARALLEL_SCHEDULE_ORDER_H

#include "parallel/schedule.h"

typedef struct Orders {
    ScheduleSpec spec;
    int count;      /* computations per stage, equal on all stages */
    Action *action; /* [stages][count] */
    int *end;       /* [stages][count]: end time if a forward and each half of a backward take 1 */
    int *forward_end, *backward_end; /* [parts][micros]: end times by part; for backward, of its input half */
} Orders;

/* `spec` must be valid. */
MUST_USE Status orders_init(Orders *ret_orders, const ScheduleSpec *spec);
void orders_done(Orders *orders);

#endif
