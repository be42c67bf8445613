/* What a layout comes to, before anything runs: parameters, and each stage's memory and messages.
 *
 * A plan is made of runs on paper (plan/dryrun.h), one for each pipeline stage: replicas and tensor ranks of
 * a stage hold the same. The configuration goes through the same checks as that of a run (train/job.h). */
#ifndef WEFT_PLAN_PLAN_H
#define WEFT_PLAN_PLAN_H

#include "plan/cluster.h"
#include "plan/dryrun.h"
#include "train/train.h"

typedef struct PlanSpec {
    TrainConfig config; /* model, batch and layout; its mesh and device are left alone */
    MeshSpec mesh;
    bool memory_only; /* what a step sends does not matter */
    bool timed;       /* for plan_time, see plan/time.h */
    const Software
        *software; /* a program other than weft; NULL: none. Its time and what it must hold are planned. */
    bool sketch;   /* memory_only, and of the stages that cannot be the fullest not even that */
} PlanSpec;

typedef struct Plan {
    MeshSpec mesh;
    ModelConfig model;
    RunnerSpec runner; /* as settled: micro-batches, precision, schedule ... */
    bool tf32;         /* fp32 whose products round what they take */
    int64_t seq, batch;
    int64_t params_total, params_stored;
    DryRunRank *stage; /* one rank of each */
    int stages;
    int fullest; /* the stage that needs most memory */
} Plan;

MUST_USE Status plan_init(Plan *ret_plan, const PlanSpec *spec);
void plan_done(Plan *plan);
/* {"params_total", "params_stored", "params_per_rank", "memory_per_rank", "memory_saving", "comm", "layout",
 * "stages"} */
MUST_USE Status plan_json(const Plan *plan, const PlanSpec *spec, json_t **ret_json);

#endif
