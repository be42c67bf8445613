/* Groups are splits of the world: ranks that differ only in the group's coordinates get the same color, and
 * keys preserve the world's order. */
#include "comm/mesh.h"

#include "base/memory.h"

int mesh_rank(const Mesh *mesh, int dp, int tp, int pp) {
    return (pp * mesh->extent[AXIS_DP] + dp) * mesh->extent[AXIS_TP] + tp;
}

static void set_coordinates(Mesh *mesh, MeshSpec spec) {
    mesh->extent[AXIS_DP] = spec.dp;
    mesh->extent[AXIS_TP] = spec.tp;
    mesh->extent[AXIS_PP] = spec.pp;
    mesh->at[AXIS_TP] = mesh->rank % spec.tp;
    mesh->at[AXIS_DP] = mesh->rank / spec.tp % spec.dp;
    mesh->at[AXIS_PP] = mesh->rank / spec.tp / spec.dp;
}

/* A group's color is the rank of its member whose varying coordinates are zero. */
static Status split_groups(Mesh *mesh, int shard) {
    Group *world = mesh->world;
    int dp = mesh->at[AXIS_DP], tp = mesh->at[AXIS_TP], pp = mesh->at[AXIS_PP], rank = mesh->rank;
    bool end = pp == 0 || pp == mesh->extent[AXIS_PP] - 1;
    TRY(group_split(world, mesh_rank(mesh, 0, tp, pp), rank, GROUP_HOST, &mesh->axis[AXIS_DP]));
    TRY(group_split(world, mesh_rank(mesh, dp, 0, pp), rank, GROUP_TENSORS, &mesh->axis[AXIS_TP]));
    TRY(group_split(world, mesh_rank(mesh, dp, tp, 0), rank, GROUP_RING, &mesh->axis[AXIS_PP]));
    TRY(group_split(world, mesh_rank(mesh, dp / shard * shard, tp, pp), rank, GROUP_TENSORS, &mesh->shard));
    TRY(group_split(world, mesh_rank(mesh, dp % shard, tp, pp), rank, GROUP_TENSORS, &mesh->replica));
    TRY(group_split(world, mesh_rank(mesh, dp, 0, 0), rank, GROUP_HOST, &mesh->model));
    return group_split(world, mesh_rank(mesh, dp, tp, end ? 0 : pp), rank, GROUP_TENSORS, &mesh->ends);
}

static Status check_spec(const Group *world, MeshSpec spec) {
    if (spec.dp < 1 || spec.tp < 1 || spec.pp < 1 || (int64_t)spec.dp * spec.tp > world->size / spec.pp ||
        (int64_t)spec.dp * spec.tp * spec.pp != world->size)
        return USAGE("layout dp %d x tp %d x pp %d: the product must equal the number of ranks, %d", spec.dp,
                     spec.tp, spec.pp, world->size);
    if (spec.shard < 0 || (spec.shard && spec.dp % spec.shard))
        return USAGE("{shard}: cannot divide %d replicas into groups of %d; choose a divisor", spec.dp,
                     spec.shard);
    return OK;
}

static void set_names(Mesh *mesh);

Status mesh_new(Mesh **ret_mesh, Group *world, MeshSpec spec) {
    TRY(check_spec(world, spec));
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    TRY(mem_new(1, sizeof *mesh, &mesh));
    mesh->world = world;
    mesh->rank = world->rank;
    mesh->size = world->size;
    set_coordinates(mesh, spec);
    TRY(split_groups(mesh, spec.shard ? spec.shard : spec.dp));
    set_names(mesh);
    *ret_mesh = mesh;
    mesh = NULL;
    return OK;
}

Status mesh_new_self(Mesh **ret_mesh) {
    CLEANUP(group_freep) Group *world = NULL;
    TRY(group_new_self(&world));
    Mesh *mesh = NULL;
    TRY(mesh_new(&mesh, world, (MeshSpec){.dp = 1, .tp = 1, .pp = 1}));
    mesh->owns_world = true;
    world = NULL;
    *ret_mesh = mesh;
    return OK;
}

/* A dry-run group of the world's ranks first, first + stride and so on. This rank is number `rank` in it. */
static Status dryrun_group(Group **ret_group, int rank, int size, int first, int stride, int per_node,
                           bool staged) {
    CLEANUP(mem_freep) int *node = NULL;
    TRY(mem_new((size_t)size, sizeof *node, &node));
    for (int r = 0; r < size && per_node; r++) node[r] = (first + r * stride) / per_node;
    return group_new_dryrun(ret_group, rank, size, node, staged);
}

Status mesh_new_dryrun(Mesh **ret_mesh, MeshSpec spec, int rank, int per_node, bool staged) {
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    TRY(mem_new(1, sizeof *mesh, &mesh));
    int size = spec.dp * spec.tp * spec.pp, shard = spec.shard ? spec.shard : spec.dp;
    TRY(dryrun_group(&mesh->world, rank, size, 0, 1, per_node, staged));
    mesh->owns_world = true;
    TRY(check_spec(mesh->world, spec));
    mesh->rank = rank;
    mesh->size = size;
    set_coordinates(mesh, spec);
    int dp = mesh->at[AXIS_DP], tp = mesh->at[AXIS_TP], pp = mesh->at[AXIS_PP], each = spec.dp * spec.tp;
    bool end = spec.pp > 1 && (pp == 0 || pp == spec.pp - 1);
    const struct {
        Group **group;
        int rank, size, first, stride;
    } groups[] = {
        {&mesh->axis[AXIS_DP], dp, spec.dp, mesh_rank(mesh, 0, tp, pp), spec.tp},
        {&mesh->axis[AXIS_TP], tp, spec.tp, mesh_rank(mesh, dp, 0, pp), 1},
        {&mesh->axis[AXIS_PP], pp, spec.pp, mesh_rank(mesh, dp, tp, 0), each},
        {&mesh->shard, dp % shard, shard, mesh_rank(mesh, dp / shard * shard, tp, pp), spec.tp},
        {&mesh->replica, dp / shard, spec.dp / shard, mesh_rank(mesh, dp % shard, tp, pp), spec.tp * shard},
        {&mesh->ends, end && pp > 0, end ? 2 : 1, mesh_rank(mesh, dp, tp, 0), each * (spec.pp - 1)},
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        TRY(dryrun_group(groups[i].group, groups[i].rank, groups[i].size, groups[i].first, groups[i].stride,
                         per_node, staged));
    /* Tensor-parallel ranks are adjacent, stages are not. */
    CLEANUP(mem_freep) int *node = NULL;
    TRY(mem_new((size_t)(spec.tp * spec.pp), sizeof *node, &node));
    for (int i = 0; i < spec.tp * spec.pp && per_node; i++)
        node[i] = mesh_rank(mesh, dp, i % spec.tp, i / spec.tp) / per_node;
    TRY(group_new_dryrun(&mesh->model, pp * spec.tp + tp, spec.tp * spec.pp, node, staged));
    set_names(mesh);
    *ret_mesh = mesh;
    mesh = NULL;
    return OK;
}

void mesh_free(Mesh *mesh) {
    if (!mesh) return;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) group_free(mesh->axis[axis]);
    group_free(mesh->shard);
    group_free(mesh->replica);
    group_free(mesh->model);
    group_free(mesh->ends);
    if (mesh->owns_world) group_free(mesh->world);
    free(mesh);
}

/* All groups of a mesh with the axis along which their ranks differ; AXIS_COUNT for the world. */
enum { MESH_GROUPS = 8 };
typedef struct MeshGroup {
    Group *group;
    Axis axis;
} MeshGroup;

static void groups_of(const Mesh *mesh, MeshGroup groups[MESH_GROUPS]) {
    Axis model = mesh->extent[AXIS_PP] > 1 ? AXIS_PP : AXIS_TP;
    const MeshGroup all[MESH_GROUPS] = {{mesh->world, AXIS_COUNT},      {mesh->axis[AXIS_DP], AXIS_DP},
                                        {mesh->axis[AXIS_TP], AXIS_TP}, {mesh->axis[AXIS_PP], AXIS_PP},
                                        {mesh->shard, AXIS_DP},         {mesh->replica, AXIS_DP},
                                        {mesh->model, model},           {mesh->ends, AXIS_PP}};
    for (int i = 0; i < MESH_GROUPS; i++) groups[i] = all[i];
}

void mesh_sent(const Mesh *mesh, CommBytes sent[COMM_KINDS]) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int k = 0; k < COMM_KINDS; k++) sent[k] = (CommBytes){0};
    for (int i = 0; i < MESH_GROUPS; i++)
        for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&sent[k], groups[i].group->sent[k], 1);
}

void mesh_sent_by_axis(const Mesh *mesh, CommBytes sent[AXIS_COUNT + 1][COMM_KINDS]) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int axis = 0; axis <= AXIS_COUNT; axis++)
        for (int k = 0; k < COMM_KINDS; k++) sent[axis][k] = (CommBytes){0};
    for (int i = 0; i < MESH_GROUPS; i++)
        for (int k = 0; k < COMM_KINDS; k++)
            comm_bytes_add(&sent[groups[i].axis][k], groups[i].group->sent[k], 1);
}

const char *mesh_axis_name(int axis) {
    static const char *const axis_names[AXIS_COUNT + 1] = {
        [AXIS_DP] = "data", [AXIS_TP] = "tensor", [AXIS_PP] = "pipeline", [AXIS_COUNT] = "all"};
    return axis_names[axis];
}

double mesh_waited_tickets(const Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    int64_t ns = 0;
    for (int i = 0; i < MESH_GROUPS; i++) ns += groups[i].group->ticket_ns;
    return 1e-9 * (double)ns;
}

double mesh_blocked(const Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    int64_t ns = 0;
    for (int i = 0; i < MESH_GROUPS; i++) ns += group_waited(groups[i].group);
    return 1e-9 * (double)ns;
}

double mesh_waited_cpu(const Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    int64_t ns = 0;
    for (int i = 0; i < MESH_GROUPS; i++) ns += groups[i].group->waited_cpu_ns;
    return 1e-9 * (double)ns;
}

void mesh_waited(const Mesh *mesh, double waited[AXIS_COUNT]) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) waited[axis] = 0;
    for (int i = 0; i < MESH_GROUPS; i++)
        if (groups[i].axis < AXIS_COUNT)
            waited[groups[i].axis] += 1e-9 * (double)group_waited(groups[i].group);
}

/* ---- tracing ---- */

#define OPERATION(kind, title, axis)                                                                         \
    [kind] = {.name = (title), .category = (axis), .number = {"bytes", "ranks", "between nodes"}}
#define NAMES(axis)                                                                                          \
    {                                                                                                        \
        .op = {OPERATION(COMM_ALL_REDUCE, "all-reduce", axis),                                               \
               OPERATION(COMM_REDUCE_SCATTER, "reduce-scatter", axis),                                       \
               OPERATION(COMM_ALL_GATHER, "all-gather", axis), OPERATION(COMM_BROADCAST, "broadcast", axis), \
               OPERATION(COMM_SEND, "send", axis)},                                                          \
        .wait = {                                                                                            \
            .name = "wait: " axis,                                                                           \
            .category = "wait",                                                                              \
            .color = TRACE_GRAY                                                                              \
        }                                                                                                    \
    }

static const CommNames names[AXIS_COUNT + 1] = {[AXIS_DP] = NAMES("data"),
                                                [AXIS_TP] = NAMES("tensor"),
                                                [AXIS_PP] = NAMES("pipeline"),
                                                [AXIS_COUNT] = NAMES("all")};

/* Groups can be shared: the name of the world is set first. */
static void set_names(Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int i = 0; i < MESH_GROUPS; i++) groups[i].group->names = &names[groups[i].axis];
}

void mesh_trace(Mesh *mesh, Trace *trace) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int i = 0; i < MESH_GROUPS; i++) groups[i].group->trace = trace;
}

/* ---- sections ---- */

void mesh_section_begin(Mesh *mesh, const volatile sig_atomic_t *stop) {
    mesh->stop = stop;
    if (mesh->world->ops->section) mesh->world->ops->section(mesh->world, SECTION_BEGIN, stop);
}

void mesh_section_begin_whole(Mesh *mesh, const volatile sig_atomic_t *stop) {
    mesh_section_begin(mesh, NULL);
    mesh->stop = stop;
}

Status mesh_section_check(Mesh *mesh) {
    bool stop = false;
    if (mesh->size == 1)
        stop = mesh->stop && *mesh->stop > 0;
    else if (mesh->world->ops->abandons)
        stop = mesh->world->ops->abandons(mesh->world);
    return stop ? STOPPED("stopped by a signal") : OK;
}

/* A rank that has voted no longer abandons on its own, only if another rank did, which has then not voted.
 * Reducing over replicas and then within each replica covers all ranks. */
Status mesh_section_vote(Mesh *mesh, bool *ret_stop, int64_t *vote) {
    Group *world = mesh->world;
    TRY(mesh_section_check(mesh));
    if (world->ops->section) world->ops->section(world, SECTION_VOTE, mesh->stop);
    int64_t votes[] = {mesh->stop && *mesh->stop, *vote};
    const int count = sizeof votes / sizeof *votes;
    TRY(host_reduce(mesh->axis[AXIS_DP], votes, count, DT_I64, REDUCE_MAX));
    TRY(host_reduce(mesh->model, votes, count, DT_I64, REDUCE_MAX));
    if (world->ops->section) world->ops->section(world, SECTION_END, NULL);
    mesh->stop = NULL;
    *ret_stop = votes[0] != 0;
    *vote = votes[1];
    return OK;
}

Status mesh_section_end(Mesh *mesh, bool *ret_stop) {
    int64_t vote = 0;
    return mesh_section_vote(mesh, ret_stop, &vote);
}

Status mesh_recover(Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    mesh->stop = NULL;
    for (int i = 0; i < MESH_GROUPS; i++)
        if (groups[i].group->ops->recover) TRY(groups[i].group->ops->recover(groups[i].group));
    return OK;
}

void mesh_drop(Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int i = 0; i < MESH_GROUPS; i++) group_drop(groups[i].group);
}
