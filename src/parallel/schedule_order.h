/* The computations of every stage in order, before messages are put between them. */
#ifndef WEFT_PARALLEL_SCHEDULE_ORDER_H
#define WEFT_PARALLEL_SCHEDULE_ORDER_H

#include "parallel/schedule.h"

typedef struct Orders {
    ScheduleSpec spec;
    int count;      /* computations of a stage, as many on each */
    Action *action; /* [stages][count] */
    int *end;       /* [stages][count]: when it ends if each forward and each half of a backward takes 1 */
    int *forward_end, *backward_end; /* [parts][micros]: the same by part; a backward's input half counts */
} Orders;

/* The specification is one that can be. */
MUST_USE Status orders_init(Orders *ret_orders, const ScheduleSpec *spec);
void orders_done(Orders *orders);

#endif
