/* Options of the commands that run or plan training steps: train, bench, plan and prune. */
#ifndef WEFT_CLI_TRAIN_OPTIONS_H
#define WEFT_CLI_TRAIN_OPTIONS_H

#include "cli/command.h"
#include "cli/stop.h"
#include "compress/prune_rounds.h"
#include "train/train.h"

#define MESH_AXIS_INT64(id, name, ...) int64_t name;
/* Parallel layout. 0: not given; the axis is 1 or, if it is the first, what the number of ranks leaves. */
typedef struct Layout {
    int64_t ranks, shard, heads, ep;
    union {
        int64_t extent[AXIS_COUNT]; /* at most 2^20 */
        struct {
            MESH_AXES(MESH_AXIS_INT64)
        };
    };
    const char *hosts, *hostfile; /* where to start them; NULL: here, or as the batch system says */
    bool verbose;                 /* print what the launcher says, too */
    const char *log_ranks;        /* directory for what each rank prints; NULL: none */
} Layout;

typedef struct TrainArgs {
    Settings config;
    Layout layout;
} TrainArgs;

typedef struct BenchArgs {
    TrainArgs train;         /* must be first: train's option tables use offsets from it */
    const char *leaderboard; /* output file; NULL: profile training steps instead */
    const char *published;   /* figures to compare with; NULL: none */
    const char **data;
    int data_count;
    int64_t accumulate, new_tokens;
} BenchArgs;

/* Options of the failure model, plan/failure.h. */
typedef struct FailureArgs {
    double mtbf_hours; /* of one device; 0: no failures */
    const char *checkpoint_every;
    double checkpoint_seconds, restart_seconds; /* < 0: derived from the state's size */
    int64_t storage_bandwidth;
    bool no_async_save;
    double save_stall; /* with background saves */
} FailureArgs;

typedef struct PlanArgs {
    TrainArgs train; /* only model, layout, batch and micro-batch are used */
    const char *cluster;
    const char *sweep; /* list of device counts; NULL: no sweep */
    const char *html;  /* page to write */
    const char *out;   /* output of --measure */
    bool draw, search, measure;
    int64_t micros;
    double price, power; /* of the cluster; 0: what its file has */
    FailureArgs failure;
} PlanArgs;

typedef struct PruneArgs {
    TrainArgs train; /* must be first: train's option tables use offsets from it */
    PruneSpec prune;
} PruneArgs;

extern const OptionGroup train_groups[], bench_groups[], plan_groups[], prune_groups[];

extern const char *const task_choices[], *const problem_choices[], *const format_choices[];
extern const char *const format_old_choices[], *const device_choices[], *const kernel_choices[];
extern const char *const precision_choices[];

/* The configuration file if it sets --warmup, which may then be longer than the run; else NULL. */
const char *warmup_file(const Invocation *call);

/* Settles --steps against --epochs, of which the command line's wins, and checks options that depend on each
 * other. `settings`, if not NULL, loses what does not belong to the run. */
MUST_USE Status train_settle(const Invocation *call, Settings *config, json_t *settings);
/* Joins the layout's ranks: sets args->config.run.mesh and divides the cores among the ranks of each node. If
 * the ranks have yet to be started, runs this command line under the launcher instead, and *ret_here is
 * false. `stops`: see launch. */
MUST_USE Status layout_enter(Invocation *call, TrainArgs *args, bool stops, bool *ret_here);
/* Where --ranks starts ranks; `at` is what comes before the fields: "layout." or nothing. */
/* clang-format off */
#define HOST_OPTIONS(Args, at)                                                                               \
    {OPT_TEXT("hosts", Args, at hosts, "LIST"), .shown = "this host, or a batch system's", .per_rank = PER_RANK_ANY, \
     .help = "Hosts on which --ranks starts ranks, with the number of ranks on each: node1:4,node2:4. They must " \
             "accept ssh without a password and have weft and the run directory under the same paths."},     \
    {OPT_TEXT("hostfile", Args, at hostfile, "FILE"), .shown = "none", .per_rank = PER_RANK_ANY,             \
     .help = "The same from a file for mpirun, with a line such as 'node1 slots=4' for each host."},         \
    {OPT_FLAG("verbose", Args, at verbose), .per_rank = PER_RANK_ANY,                                        \
     .help = "If ranks cannot be started, also print what mpirun says."},                                    \
    {OPT_TEXT("log-ranks", Args, at log_ranks, "DIR"), .shown = "none", .per_rank = PER_RANK_ANY,            \
     .help = "With --ranks, also write what each rank prints to files in this directory on its host; after a " \
             "restart, in its subdirectory restart-1 and so on."},
/* How context parallelism works; `run` is what comes before the fields of a RunnerSpec. */
#define CONTEXT_OPTIONS(Args, at, run)                                                                       \
    {OPT_ENUM("cp-mode", Args, run cp_mode, "MODE", context_mode_names), .fallback = "auto",                 \
     .help = "With --cp, how ranks reach each other's positions: exchange them for heads, gather all keys and " \
             "values, or pass these around a ring. auto: heads if there are enough, otherwise gather."},     \
    {OPT_INT("cp-heads", Args, at heads), .fallback = "0", RANGE(1, 1 << 20), .shown = "none",               \
     .help = "With --cp-mode heads+ring, adjacent ranks that exchange heads, such as those of a node; the ring " \
             "leads from one such group to the next."},
#define EXPERT_OPTION(Args, at)                                                                              \
    {OPT_INT("ep", Args, at ep), .fallback = "1", RANGE(1, 1 << 20),                                         \
     .help = "Expert parallelism: ranks that hold different experts of each layer and exchange tokens. Must " \
             "divide dp x cp and the number of experts."},
/* clang-format on */
/* The options of the axes, with their fields in `layout` of a structure. */
#define AXIS_OPTION(Args, id, name, title, place, distance, use, copies, shown_, help_)                      \
    {OPT_INT(#name, Args, layout.name), .fallback = AXIS_##id ? "1" : "0", RANGE(1, 1 << 20),                \
     .shown = AXIS_##id ? NULL : "ranks / (tp x pp x cp)", .help = (help_)},

/* Completes the layout so that dp x tp x pp x cp is the number of ranks, or suggests one that works. `world`:
 * number of ranks started by a launcher; 0: not under a launcher. */
MUST_USE Status layout_settle(const Invocation *call, Layout *layout, int64_t world);
/* The number of replicas, before the ranks start; 1 if the layout is not valid. */
int64_t layout_replicas(const Invocation *call);
/* The number of ranks with the same parameters, likewise. */
int64_t layout_copies(const Invocation *call);
/* The layout as a mesh, once it is settled. */
MeshSpec layout_mesh(const Layout *layout);
/* The value of an integer option; 0 if the command does not have it. */
int64_t layout_number(const Invocation *call, const char *name);
/* Rejects groups for sharding that do not divide the replicas. */
MUST_USE Status layout_check_shard(const Invocation *call, const Layout *layout);
/* Rejects layouts, devices and precisions that this build cannot run. */
MUST_USE Status layout_check(const Invocation *call, const TrainArgs *args);

#endif
