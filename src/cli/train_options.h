/* The options of commands that run a training step, or plan one: train, bench, plan and prune. */
#ifndef WEFT_CLI_TRAIN_OPTIONS_H
#define WEFT_CLI_TRAIN_OPTIONS_H

#include "cli/command.h"
#include "train/train.h"

/* How the work is laid out over ranks and devices. */
typedef struct Layout {
    int64_t ranks, dp, tp, pp, shard;
} Layout;

typedef struct TrainArgs {
    TrainConfig config;
    Layout layout;
} TrainArgs;

typedef struct BenchArgs {
    TrainArgs train;         /* first: the tables of train's options lie in it */
    const char *leaderboard; /* NULL: a step by kernel instead */
    const char **data;
    int data_count;
    int64_t accumulate, new_tokens;
} BenchArgs;

/* What plan makes of failures; see plan/failure.h. */
typedef struct FailureArgs {
    double mtbf_hours; /* 0: devices do not fail */
    const char *checkpoint_every;
    double checkpoint_seconds, restart_seconds; /* below 0: from the state's size */
    int64_t storage_bandwidth;
} FailureArgs;

typedef struct PlanArgs {
    TrainArgs train; /* model, layout, batch and micro-batch alone */
    const char *cluster;
    const char *sweep; /* numbers of devices; NULL: none */
    const char *out;   /* of --measure */
    bool draw, search, measure;
    int64_t micros;
    FailureArgs failure;
} PlanArgs;

typedef struct PruneArgs {
    TrainArgs train; /* first: the tables of train's options lie in it */
    const char *kind, *ramp;
    const char *beside; /* another run of rounds; NULL: none */
    double amount;
    bool global, per_matrix, resume;
    int64_t rounds, steps_per_round, row_multiple;
} PruneArgs;

enum { TRAIN_GROUPS = 5, BENCH_GROUPS = 4, PLAN_GROUPS = 4, PRUNE_GROUPS = 5 };
extern const OptionGroup train_groups[TRAIN_GROUPS], bench_groups[BENCH_GROUPS], plan_groups[PLAN_GROUPS],
    prune_groups[PRUNE_GROUPS];

extern const char *const task_choices[],
    *const format_choices[], *const device_choices[], *const kernel_choices[], *const precision_choices[];

/* From here on the first signal sets the flag, and the second one kills. */
const volatile sig_atomic_t *stop_catch(void);

/* Becomes one of the layout's ranks: args->config.mesh is their grid, and threads are shared out; or, where
 * they are yet to be started, has them run this command line, and *ret_here is false. `stops` as in launch.
 */
MUST_USE Status layout_enter(Invocation *call, TrainArgs *args, bool stops, bool *ret_here);
/* Makes dp x tp x pp the number of ranks, or says what would. `world`: ranks that a launcher started, or 0.
 */
MUST_USE Status layout_settle(const Invocation *call, Layout *layout, int64_t world);
/* Refuses, before any work, a layout that this version cannot run, and says what it can. */
MUST_USE Status layout_check(const Invocation *call, const TrainArgs *args);

#endif
