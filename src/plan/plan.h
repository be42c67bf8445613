/* Predicts a layout's parameters, memory and communication per pipeline stage, without training.
 *
 * The planner executes the real training code in dry-run mode (plan/dryrun.h), once per stage: all replicas
 * and tensor-parallel ranks of a stage have the same sizes. The configuration passes the same checks as that
 * of a run (train/job.h). */
#ifndef WEFT_PLAN_PLAN_H
#define WEFT_PLAN_PLAN_H

#include "base/progress.h"
#include "plan/cluster.h"
#include "plan/dryrun.h"
#include "train/train.h"

/* Progress of one or many plans, shown on a terminal once planning has taken half a second. */
typedef struct PlanProgress {
    Progress *bar;
    double start;
    int64_t plans; /* completed */
    char what[96]; /* what the plans are for; may be empty */
} PlanProgress;

MUST_USE Status plan_progress_init(PlanProgress *ret_progress, FILE *out);
void plan_progress_done(PlanProgress *progress);
/* Sets `what` and redraws; NULL progress: does nothing. */
void plan_progress_note(PlanProgress *progress, const char *fmt, ...) PRINTF_LIKE(2, 3);

typedef struct PlanSpec {
    Settings config; /* model, batch and layout; its mesh and device objects are ignored */
    MeshSpec mesh;
    bool memory_only;         /* skip the exact count of bytes sent, which makes planning faster */
    bool timed;               /* record step events for plan_time, see plan/time.h */
    int capability;           /* of the GPU: 90 is 9.0; 0: not known */
    int per_node;             /* ranks per node; 0: all on one */
    const Software *software; /* plan for this program instead of weft; NULL: weft */
    bool sketch;              /* memory_only, and skip stages that cannot have the highest memory */
    PlanProgress *progress;   /* NULL: none is shown */
} PlanSpec;

typedef struct Plan {
    MeshSpec mesh;
    ModelConfig model;
    RunnerSpec runner; /* with defaults resolved: micro-batches, precision, schedule ... */
    bool tf32;         /* fp32 with tf32 GEMMs */
    int64_t seq, batch;
    int64_t params_total, params_stored, params_trained, params_adapters;
    int forward_only;  /* see ScheduleSpec */
    DryRunRank *stage; /* [stages]: one rank of each */
    int stages;
    int fullest; /* the stage that needs the most memory */
} Plan;

/* Fails with a usage error if the layout is invalid or too large to plan. */
MUST_USE Status plan_init(Plan *ret_plan, const PlanSpec *spec);
void plan_done(Plan *plan);
/* {"params_total", "params_stored", "params_per_rank", "memory_per_rank", "memory_saving", "memory_snapshot",
 * "comm", "layout", "stages"} and, if some parameters are frozen, "params_trained", and with
 * adapters "params_adapters", a part of the total */
MUST_USE Status plan_json(const Plan *plan, const PlanSpec *spec, json_t **ret_json);

#endif
