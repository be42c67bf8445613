/* From layout options to a mesh of ranks.
 *
 * The number of ranks is the product of the extents of all axes. It is set by the launcher, else by --ranks,
 * else by the product; --dp, if not given, follows from the others. The command line overrides a file even
 * for related options, so that --ranks 4 alone resumes a run of 8 ranks on 4.
 */
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "comm/cores.h"
#include "comm/gpus.h"
#include "comm/mpi.h"
#include "comm/watchdog.h"

static Source source_of(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? slot->source : SOURCE_DEFAULT;
}

static bool on_line(const Invocation *call, const char *name) {
    return source_of(call, name) == SOURCE_LINE;
}

/* The axes that divide a replica: all but the first, whose extent may follow from the others. */
enum { AXES_OTHERS = AXES_ALL & ~AXIS_SET(0) };

static bool others_on_line(const Invocation *call) {
    for (Axis axis = 1; axis < AXIS_COUNT; axis++)
        if (on_line(call, axis_info(axis)->name)) return true;
    return false;
}

MeshSpec layout_mesh(const Layout *layout) {
    MeshSpec mesh = {.shard = (int)layout->shard, .heads = (int)layout->heads, .ep = (int)layout->ep};
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) mesh.extent[axis] = (int)layout->extent[axis];
    return mesh;
}

/* The number of ranks set by the launcher or --ranks; 0 if the product determines it. */
static Status ranks_given(const Invocation *call, const Layout *layout, int64_t world, int64_t *ret_ranks) {
    Source ranks = source_of(call, "ranks");
    bool others = on_line(call, axis_info(0)->name) || others_on_line(call);
    if (world && ranks == SOURCE_LINE && layout->ranks != world)
        return USAGE("--ranks %lld does not match the %lld rank%s that the launcher started; remove --ranks",
                     (long long)layout->ranks, (long long)world, PLURAL(world));
    if (world)
        *ret_ranks = world;
    else
        *ret_ranks = ranks == SOURCE_LINE || (ranks == SOURCE_FILE && !others) ? layout->ranks : 0;
    return OK;
}

static Status reject_ranks(const Invocation *call, const Layout *layout, int64_t ranks) {
    char label[LABEL_SIZE], text[MESH_TEXT];
    MeshSpec mesh = layout_mesh(layout);
    int64_t model = mesh_ranks(mesh, AXES_OTHERS), below = ranks / model * model;
    Axis axis = 1;
    while (axis + 1 < AXIS_COUNT && mesh_extent(mesh, axis) == 1) axis++;
    invocation_label(call, axis_info(axis)->name, label);
    mesh_join(mesh, AXES_OTHERS, " x ", text);
    if (below == 0)
        return USAGE("%s %d: %s needs more than %lld rank%s; use --ranks %lld or a multiple of it", label,
                     mesh_extent(mesh, axis), text, (long long)ranks, PLURAL(ranks), (long long)model);
    return USAGE("%s %d: %s does not divide %lld ranks; use --ranks %lld or %lld", label,
                 mesh_extent(mesh, axis), text, (long long)ranks, (long long)below,
                 (long long)(below + model));
}

int64_t layout_number(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? *(const int64_t *)slot->field : 0;
}

/* A file's heads+ring, where the command line changes --cp to ranks that its groups do not divide: the mode
 * is chosen anew. */
static void drop_groups(const Invocation *call, Layout *layout) {
    int64_t cp = layout->cp ? layout->cp : 1;
    bool divides = layout->heads && layout->heads < cp && cp % layout->heads == 0;
    if (!layout->heads || divides || !on_line(call, "cp") || on_line(call, "cp-heads")) return;
    layout->heads = 0;
    if (!on_line(call, "cp-mode")) *(unsigned *)invocation_slot(call, "cp-mode")->field = CONTEXT_AUTO;
}

/* A file's --ep is reduced to what divides the ranks that the command line asks for. */
static void fit_experts(const Invocation *call, Layout *layout) {
    if (source_of(call, "ep") == SOURCE_FILE) layout->ep = mesh_experts_fit(layout_mesh(layout));
}

/* Each replica is a worker, unless --shard groups them. A file's groups were made for its own --cp. With
 * ZeRO, a replica on one rank has nothing to shard, so users choose. */
static void settle_workers(const Invocation *call, Layout *layout) {
    int64_t cp = layout->cp ? layout->cp : 1;
    if (!layout_number(call, "sync-every")) return;
    if (on_line(call, "cp") && source_of(call, "shard") == SOURCE_FILE) layout->shard = 0;
    if (!layout->shard && (!layout_number(call, "zero") || cp > 1)) layout->shard = cp;
}

Status layout_settle(const Invocation *call, Layout *layout, int64_t world) {
    int64_t ranks = 0, model = mesh_ranks(layout_mesh(layout), AXES_OTHERS);
    TRY(ranks_given(call, layout, world, &ranks));
    bool overridden = world || on_line(call, "ranks") || others_on_line(call);
    Source dp = source_of(call, "dp");
    bool dp_given = dp == SOURCE_LINE || (dp == SOURCE_FILE && !(ranks && overridden));
    if (!ranks) ranks = (dp_given ? layout->dp : 1) * model;
    if (!dp_given) {
        if (ranks % model) return reject_ranks(call, layout, ranks);
        layout->dp = ranks / model;
    }
    char text[MESH_TEXT];
    if (layout->dp * model != ranks)
        return USAGE("--dp %lld: %s is %lld rank%s, but there are %lld; remove --dp, or use --ranks %lld",
                     (long long)layout->dp, mesh_text(layout_mesh(layout), text),
                     (long long)(layout->dp * model), PLURAL(layout->dp * model), (long long)ranks,
                     (long long)(layout->dp * model));
    layout->ranks = ranks;
    drop_groups(call, layout);
    fit_experts(call, layout);
    settle_workers(call, layout);
    return OK;
}

/* The layout before the ranks start; one rank if it is not valid. */
static Layout layout_expected(const Invocation *call) {
    const Layout alone = {.ranks = 1};
    const Slot *ranks = invocation_slot(call, "ranks");
    if (!ranks) return alone;
    Launched launched = mpi_launched();
    Layout layout = {.ranks = *(const int64_t *)ranks->field};
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        const Slot *slot = invocation_slot(call, axis_info(axis)->name);
        if (!slot) return alone;
        layout.extent[axis] = *(const int64_t *)slot->field;
    }
    CLEANUP(status_freep)
    Status invalid = layout_settle(call, &layout, launched.launched ? launched.size : 0);
    return invalid ? alone : layout;
}

int64_t layout_replicas(const Invocation *call) {
    Layout layout = layout_expected(call);
    return mesh_extent(layout_mesh(&layout), AXIS_DP);
}

int64_t layout_copies(const Invocation *call) {
    Layout layout = layout_expected(call);
    return mesh_copies(layout_mesh(&layout));
}

/* Divides the cores of a node among its ranks. */
static Status share_cores(const Invocation *call, Settings *config) {
    CoreShare share;
    if (call->world->size == 1) return OK;
    const char *openmp = getenv("OMP_NUM_THREADS");
    int requested = config->device.threads ? (int)config->device.threads : openmp ? atoi(openmp) : 0;
    TRY(cores_share(call->world, requested, &share));
    config->device.threads = share.threads;
    return OK;
}

/* With --device cuda: selects this rank's GPU and replaces the world by a group over the ranks' GPUs. */
static Status share_gpus(Invocation *call, Settings *config) {
    GpuShare share;
    char note[GPU_NOTE];
    if (strcmp(config->device.name, "cuda")) return OK;
    TRY(gpus_share(call->world, &share));
    TRY(device_new(&call->device, config->device.name, share.index, (int)config->device.threads));
    config->device.on = call->device;
    TRY(group_over_gpus(&call->world, call->world, call->device, &share, note));
    if (note[0] && call->world->rank == 0 && !config->report.quiet) fprintf(stderr, "%s\n", note);
    return OK;
}

static void warn(const char *text) {
    fprintf(stderr, "weft: warning: %s\n", text);
}

static void watch_waits(Invocation *call, double timeout) {
    Watchdog *watch = group_watchdog(call->world);
    if (!watch) return;
    watch->warn = warn;
    watch->give_up = call->give_up;
    watch->context = call;
    watch->limit_s = timeout < 0 ? TIMEOUT_LEAST : timeout;
}

/* Open MPI's mpirun, when it gets SIGTERM or Ctrl-C, kills its ranks after twice this time. It passes its
 * parameters to the ranks. */
static void note_grace(const Settings *config) {
    static char text[160];
    const char *grace = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    if (!config->ckpt.out || !getenv("OMPI_COMM_WORLD_RANK") || launch_is_ours()) return;
    snprintf(text, sizeof text,
             "\nweft: warning: mpirun kills the ranks after %d s; to give them longer to save, start it with "
             "--mca odls_base_sigkill_timeout 30\n",
             2 * (grace ? atoi(grace) : 1));
    stop_save_notice(text);
}

/* Tensor-parallel ranks exchange activations in every layer; between nodes that is many times slower. */
static void check_placement(const Invocation *call, const Layout *layout) {
    const Group *world = call->world;
    int tp = (int)layout->tp, most = 0, first = -1;
    char host[HOST_SIZE], other[HOST_SIZE];
    if (tp == 1 || world->rank > 0 || group_hosts(world) == 1) return;
    for (int r = 0; r < world->size; r++) {
        int here = 0;
        group_host(world, r, host);
        for (int s = 0; s < world->size; s++) here += !strcmp(host, group_host(world, s, other));
        if (here > most) most = here;
        if (first < 0 && strcmp(host, group_host(world, r - r % tp, other))) first = r;
    }
    if (first < 0) return;
    int from = first - first % tp, each = most / tp * tp;
    fprintf(stderr,
            "weft: warning: a tensor-parallel group spans nodes (rank %d is on %s, rank %d on %s), which is "
            "slow; ",
            from, group_host(world, from, other), first, group_host(world, first, host));
    if (each)
        fprintf(
            stderr,
            "start a multiple of %d consecutive ranks on each node, with Open MPI: --map-by ppr:%d:node\n",
            tp, each);
    else
        fprintf(stderr, "no node has more than %d rank%s: use --tp %d\n", most, PLURAL(most), most);
}

Status layout_enter(Invocation *call, TrainArgs *args, bool stops, bool *ret_here) {
    Layout *layout = &args->layout;
    if (stops && mpi_launched().launched) {
        stop_catch(SA_RESTART); /* also while the ranks connect */
        stop_catch_orphaned();
    }
    TRY(launch_join(call, args->config.fault.timeout < 0 ? TIMEOUT_LEAST : args->config.fault.timeout));
    TRY(layout_settle(call, layout, call->world ? call->world->size : 0));
    TRY(layout_check(call, args));
    TRY(launch(call, layout->ranks, stops, ret_here));
    if (!*ret_here) return OK;
    if (stops || args->config.fault.timeout > 0) watch_waits(call, args->config.fault.timeout);
    if (stops) note_grace(&args->config);
    check_placement(call, layout);
    TRY(share_cores(call, &args->config));
    if (args->config.ckpt.gather && call->world->size > 1) {
        TRY(group_split(call->world, 0, call->world->rank, GROUP_TENSORS, &call->files));
        args->config.ckpt.files = call->files;
    }
    TRY(share_gpus(call, &args->config));
    TRY(mesh_new(&call->mesh, call->world, layout_mesh(layout)));
    args->config.run.mesh = call->mesh;
    if (call->world->rank > 0) args->config.report.quiet = true;
    return OK;
}
