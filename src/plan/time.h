/* Predicts the time of a training step: a plan's layout simulated on a cluster's devices and links.
 *
 * The result is a steady-state step; data loading, evaluation and checkpoints are not included. All replicas
 * and tensor-parallel ranks of a stage do the same work at the same time, so one rank stands for each stage.
 */
#ifndef WEFT_PLAN_TIME_H
#define WEFT_PLAN_TIME_H

#include "plan/simulate.h"

const char *time_phase(TimePhase phase); /* "forward" ... */

typedef struct StepEstimate {
    double step_s;
    double phase_s[TIME_COUNT]; /* averaged over the stages; they add up to step_s */
    double samples_per_s, tokens_per_s;
    double model_flops;      /* per step on all ranks: forward and backward GEMMs, without recompute */
    double mfu;              /* model FLOPs utilization, relative to the peak rate of the run's precision */
    double bubble;           /* fraction of the step time */
    double utilization;      /* fraction of the step time in which devices execute kernels */
    double sent[COMM_KINDS]; /* bytes per step, of the rank that sends most */
} StepEstimate;

/* The plan must have been made with PlanSpec.timed. memory_only makes planning faster and does not affect the
 * result. */
MUST_USE Status plan_time(const Plan *plan, const Cluster *cluster, StepEstimate *ret_time);
/* Writes the simulated step as a timeline (base/trace.h) in the format of a run's trace.json, with a row per
 * stage. */
MUST_USE Status plan_trace(const Plan *plan, const Cluster *cluster, const char *path);
/* What one rank of every stage does during the simulated step. */
typedef struct PlanTimeline {
    SimSpans *stage; /* [stages] */
    int stages;
    double step_s;
} PlanTimeline;

MUST_USE Status plan_timeline(const Plan *plan, const Cluster *cluster, PlanTimeline *ret_timeline);
void plan_timeline_done(PlanTimeline *timeline);
/* Adds "step_ms", "phases_ms", "samples_per_s", "tokens_per_s", "model_flops", "mfu", "bubble" and
 * "utilization" to a plan. */
MUST_USE Status time_json(const StepEstimate *time, json_t *json);

#endif
