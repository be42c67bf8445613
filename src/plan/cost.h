/* The time of a single kernel on a device, or of a single communication operation on a link.
 *
 * A kernel takes the longer of its compute and its memory time, as if it had the device to itself; GEMMs also
 * lose time to partially filled waves (see Cluster). A collective takes the longer of two times, plus the
 * latency of its hops: that of the bytes that a rank moves within its node, and that of the bytes that a node
 * sends to others over the link that its ranks share. Overlap and waiting are handled by plan/simulate.h. */
#ifndef WEFT_PLAN_COST_H
#define WEFT_PLAN_COST_H

#include "plan/cluster.h"
#include "plan/plan.h"

typedef struct Cost {
    double device_s;
    double launches; /* kernel launches by the host */
    double stall_s;  /* > 0: the host then synchronizes with the device and is busy for this long */
} Cost;

typedef enum { PORT_WITHIN, PORT_BETWEEN, PORT_FROM_HOST, PORT_TO_HOST, PORT_COUNT } Port;

/* How the ranks of a group are connected. */
typedef struct GroupLink {
    int size;
    double per_node, nodes;
    Port port;              /* the slowest on the path; operations on the same port share its bandwidth */
    double within, between; /* bytes/s of a rank, and of the group's ranks of a node together */
    double hops_within, hops_between; /* steps of a tree over the ranks */
} GroupLink;

typedef struct Costs {
    const Cluster *cluster;
    Rate rate;
    double width; /* bytes per element of activations */
    GroupLink channel[CHANNEL_COUNT];
    bool host_state; /* the optimizer state is in host memory */
} Costs;

Costs costs_of(const Plan *plan, const Cluster *cluster);
/* All results are in seconds on one rank. */
/* A kernel's memory traffic, and an M x N x K GEMM. */
double cost_memory(const Costs *costs, double bytes);
double cost_gemm(const Costs *costs, Rate rate, double M, double N, double K);
/* Host time per kernel launch. */
double cost_launch(const Costs *costs);
/* A kernel, copy or memset. */
Cost cost_event(const Costs *costs, const StepEvent *event);
/* The operation that a STEP_START event starts, and the bytes that a rank sends for it (see CommKind). */
double cost_operation(const Costs *costs, const StepEvent *event);
double cost_sent(const Costs *costs, const StepEvent *event);
/* A message from a stage to the next one, or from the last stage to the first. */
double cost_message(const Costs *costs, const Plan *plan, int stage, double bytes);

#endif
