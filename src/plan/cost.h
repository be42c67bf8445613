/* How long one thing takes on a cluster: a kernel on a device, an operation between ranks on a link.
 *
 * Kernels take the longer of computing and of moving memory, as if alone on the device; products lose what
 * their tiles leave unused (see Cluster). Operations between ranks take their bytes over the slowest link on
 * their way, and its latency for each hop. What happens at once, and waits for what, is plan/simulate.h's. */
#ifndef WEFT_PLAN_COST_H
#define WEFT_PLAN_COST_H

#include "plan/cluster.h"
#include "plan/plan.h"

typedef struct Cost {
    double device_s;
    double launches; /* of the host */
    double stall_s;  /* afterwards the host waits for the device, and then so long for itself */
} Cost;

typedef enum { PORT_WITHIN, PORT_BETWEEN, PORT_HOST, PORT_COUNT } Port;

/* Where a group's ranks are. */
typedef struct Reach {
    int size;
    Port port; /* the slowest on the way: what others on it wait for */
    double bandwidth, hops_within, hops_between;
} Reach;

typedef struct Costs {
    const Cluster *cluster;
    Rate rate;
    double width; /* bytes of a number that kernels compute with */
    Reach channel[CHANNEL_COUNT];
    bool host_state; /* what the optimizer keeps is in the host's memory */
} Costs;

Costs costs_of(const Plan *plan, const Cluster *cluster);
/* Of bytes that a kernel moves, and of a product of M x N outputs, sums of K each. */
double cost_memory(const Costs *costs, double bytes);
double cost_product(const Costs *costs, Rate rate, double M, double N, double K);
/* Of the host, to start a kernel. */
double cost_launch(const Costs *costs);
Cost cost_event(const Costs *costs, const StepEvent *event);
/* Of an operation that a beat starts, and the bytes that a rank sends for it (see CommKind). */
double cost_operation(const Costs *costs, const StepEvent *event);
double cost_sent(const Costs *costs, const StepEvent *event);
/* Of a message from a stage to the next one, or from the last to the first. */
double cost_message(const Costs *costs, const Plan *plan, int stage, double bytes);

#endif
