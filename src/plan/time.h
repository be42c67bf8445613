/* How long a step takes: a plan's layout, carried out on a cluster's devices and links.
 *
 * The time is that of a step in a long run: reading data, evaluating and writing checkpoints are not in it.
 * All replicas and tensor ranks of a stage do the same at the same time, so one rank of each stage stands for
 * them.
 */
#ifndef WEFT_PLAN_TIME_H
#define WEFT_PLAN_TIME_H

#include "plan/cluster.h"
#include "plan/plan.h"

const char *time_phase(TimePhase phase); /* "forward" ... */

typedef struct StepEstimate {
    double step_s;
    double phase_s[PHASE_COUNT]; /* means over the stages; their sum is step_s */
    double samples_per_s, tokens_per_s;
    double model_flops;      /* of a step on all ranks: forward and backward, nothing twice */
    double mfu;              /* of the devices' peak rate in the precision of the run */
    double bubble;           /* share of the step */
    double sent[COMM_KINDS]; /* bytes of a step, by the rank that sends most */
} StepEstimate;

/* The plan was made with PlanSpec.timed; memory_only makes it quicker and changes nothing here. */
MUST_USE Status plan_time(const Plan *plan, const Cluster *cluster, StepEstimate *ret_time);
/* The same step as a timeline (base/trace.h): trace.json as a run writes it, with a row for each stage. */
MUST_USE Status plan_trace(const Plan *plan, const Cluster *cluster, const char *path);
/* Adds "step_ms", "phases_ms", "samples_per_s", "tokens_per_s", "model_flops", "mfu" and "bubble" to a plan.
 */
MUST_USE Status time_json(const StepEstimate *time, json_t *json);

#endif
