/* A group is a row: the axes along which its ranks differ, and which of those ranks it has. Both the split of
 * the world and the dry run's group follow from its members, which are in the world's order. */
#include "comm/mesh.h"

#include "base/format.h"
#include "base/memory.h"

/* ---- coordinates ---- */

MeshSpec mesh_spec(const Mesh *mesh) {
    MeshSpec spec = {.ep = mesh->ep};
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) spec.extent[axis] = mesh->extent[axis];
    return spec;
}

int mesh_number(const Mesh *mesh, unsigned axes, int rank) {
    int number = 0;
    for (int n = AXIS_COUNT - 1; n >= 0; n--) {
        Axis axis = axis_by_distance(n);
        if (!(axes & AXIS_SET(axis))) continue;
        number = number * mesh->extent[axis] + rank / mesh->stride[axis] % mesh->extent[axis];
    }
    return number;
}

int mesh_numbered(const Mesh *mesh, unsigned axes, int number) {
    int rank = mesh->rank;
    for (int n = 0; n < AXIS_COUNT; n++) {
        Axis axis = axis_by_distance(n);
        if (!(axes & AXIS_SET(axis))) continue;
        rank += (number % mesh->extent[axis] - mesh->at[axis]) * mesh->stride[axis];
        number /= mesh->extent[axis];
    }
    return rank;
}

static void set_coordinates(Mesh *mesh, int rank, MeshSpec spec) {
    mesh->rank = rank;
    mesh->ep = mesh_experts(spec);
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) {
        mesh->extent[axis] = mesh_extent(spec, axis);
        mesh->stride[axis] = mesh_stride(spec, axis);
        mesh->at[axis] = rank / mesh->stride[axis] % mesh->extent[axis];
    }
}

/* ---- groups ---- */

/* Which of the ranks that differ only along some axes. They are divided into sets of consecutive ones, as
 * many as shard groups, groups that swap heads, or ranks of expert parallelism. */
typedef enum {
    PART_ALL,
    PART_SHARD,
    PART_REPLICA, /* those in the same place of each shard group */
    PART_SWAP,
    PART_RING,
    PART_EXPERT,
    PART_EXPERT_SHARD,
    PART_EXPERT_REPLICA,
    PART_ENDS, /* the first and the last; each other rank is alone */
} GroupPart;

typedef struct GroupRow {
    size_t field; /* of Mesh */
    unsigned axes;
    GroupPart part;
    GroupUse use;
} GroupRow;

#define AXIS_ROW(id, name, title, place, distance, use, ...)                                                 \
    {offsetof(Mesh, axis[AXIS_##id]), AXIS_SET(AXIS_##id), PART_ALL, use},
static const GroupRow rows[] = {
    MESH_AXES(AXIS_ROW) /* one per axis, then */
    {offsetof(Mesh, shard), AXES_COPIES, PART_SHARD, GROUP_TENSORS},
    {offsetof(Mesh, replica), AXES_COPIES, PART_REPLICA, GROUP_TENSORS},
    {offsetof(Mesh, swap), AXIS_SET(AXIS_CP), PART_SWAP, GROUP_TENSORS},
    {offsetof(Mesh, ring), AXIS_SET(AXIS_CP), PART_RING, GROUP_TENSORS},
    {offsetof(Mesh, expert), AXES_COPIES, PART_EXPERT, GROUP_TENSORS},
    {offsetof(Mesh, expert_shard), AXES_COPIES, PART_EXPERT_SHARD, GROUP_TENSORS},
    {offsetof(Mesh, expert_replica), AXES_COPIES, PART_EXPERT_REPLICA, GROUP_TENSORS},
    {offsetof(Mesh, model), AXES_MODEL, PART_ALL, GROUP_HOST},
    {offsetof(Mesh, ends), AXIS_SET(AXIS_PP), PART_ENDS, GROUP_TENSORS}};

enum { ROWS = sizeof rows / sizeof *rows };

static Group **group_at(const Mesh *mesh, const GroupRow *row) {
    return (Group **)((char *)mesh + row->field);
}

/* A group has the ranks numbered first, first + step and so on along `axes`; this rank is number `place` in
 * it. */
typedef struct Members {
    unsigned axes;
    int first, step, size, place;
} Members;

/* Of every `set` consecutive ranks, those that are a multiple of `step` apart from this one. */
static Members every(int here, int step, int set) {
    return (Members){.first = here / set * set + here % step,
                     .step = step,
                     .size = set / step,
                     .place = here % set / step};
}

static Members members_of(const Mesh *mesh, const GroupRow *row, MeshSpec spec) {
    int all = (int)mesh_ranks(mesh_spec(mesh), row->axes), here = mesh_number(mesh, row->axes, mesh->rank);
    int shard = mesh_shard(spec), ep = mesh->ep, same = ep * mesh_experts_shard(spec);
    bool end = here == 0 || here == all - 1;
    const Members alone = {.first = here, .step = 1, .size = 1};
    Members members = alone;
    switch (row->part) {
    case PART_ALL: members = every(here, 1, all); break;
    case PART_SHARD: members = every(here, 1, shard); break;
    case PART_REPLICA: members = every(here, shard, all); break;
    case PART_SWAP: members = spec.heads ? every(here, 1, spec.heads) : alone; break;
    case PART_RING: members = spec.heads ? every(here, spec.heads, all) : alone; break;
    case PART_EXPERT: members = every(here, 1, ep); break;
    case PART_EXPERT_SHARD: members = ep > 1 ? every(here, ep, same) : alone; break;
    case PART_EXPERT_REPLICA: members = ep > 1 ? every(here, same, all) : alone; break;
    case PART_ENDS:
        if (end && all > 1) members = (Members){.step = all - 1, .size = 2, .place = here > 0};
        break;
    }
    members.axes = row->axes;
    return members;
}

static int member(const Mesh *mesh, const Members *members, int at) {
    return mesh_numbered(mesh, members->axes, members->first + at * members->step);
}

/* A group's color is its first rank. */
static Status split_group(Mesh *mesh, const GroupRow *row, MeshSpec spec) {
    Members members = members_of(mesh, row, spec);
    return group_split(mesh->world, member(mesh, &members, 0), mesh->rank, row->use, group_at(mesh, row));
}

static Status dryrun_group(const Mesh *mesh, const Members *members, int per_node, bool staged,
                           Group **ret_group) {
    CLEANUP(mem_freep) int *node = NULL;
    TRY(mem_new((size_t)members->size, sizeof *node, &node));
    for (int i = 0; i < members->size && per_node; i++) node[i] = member(mesh, members, i) / per_node;
    return group_new_dryrun(ret_group, members->place, members->size, node, staged);
}

/* ---- a mesh ---- */

static Status refuse_groups(int heads, int cp) {
    char text[160] = "";
    size_t used = 0;
    for (int d = 2; d < cp && used + 16 < sizeof text; d++)
        if (cp % d == 0) used += (size_t)snprintf(text + used, sizeof text - used, used ? ", %d" : "%d", d);
    if (!used)
        return USAGE("{cp-heads} %d does not divide {cp} %d, nor does any other; use {cp} %d", heads, cp,
                     cp + 1);
    return USAGE("{cp-heads} %d does not divide {cp} %d; valid values: %s", heads, cp, text);
}

static Status check_spec(int ranks, MeshSpec spec) {
    char text[MESH_TEXT], divisors[DIVISORS_TEXT];
    bool valid = mesh_ranks(spec, AXES_ALL) == ranks;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++) valid &= spec.extent[axis] >= 0;
    if (!valid)
        return USAGE("layout %s: the product must equal the number of ranks, %d", mesh_text(spec, text),
                     ranks);
    if (spec.shard < 0 || (spec.shard && mesh_copies(spec) % spec.shard))
        return USAGE("{shard}: cannot divide %d replicas into groups of %d; choose a divisor",
                     mesh_copies(spec), spec.shard);
    if (spec.heads < 0 || (spec.heads && mesh_extent(spec, AXIS_CP) % spec.heads))
        return refuse_groups(spec.heads, mesh_extent(spec, AXIS_CP));
    if (spec.ep < 0 || mesh_copies(spec) % mesh_experts(spec))
        return USAGE("{ep} %d does not divide the %d rank%s that hold the same parameters; valid values: %s",
                     spec.ep, mesh_copies(spec), PLURAL(mesh_copies(spec)),
                     format_divisors(divisors, mesh_copies(spec), mesh_copies(spec)));
    return OK;
}

static void set_names(Mesh *mesh);

Status mesh_new(Mesh **ret_mesh, Group *world, MeshSpec spec) {
    TRY(check_spec(world->size, spec));
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    TRY(mem_new(1, sizeof *mesh, &mesh));
    mesh->world = world;
    mesh->size = world->size;
    set_coordinates(mesh, world->rank, spec);
    for (int i = 0; i < ROWS; i++) TRY(split_group(mesh, &rows[i], spec));
    set_names(mesh);
    return MOVE(ret_mesh, mesh);
}

Status mesh_new_self(Mesh **ret_mesh) {
    CLEANUP(group_freep) Group *world = NULL;
    TRY(group_new_self(&world));
    Mesh *mesh = NULL;
    TRY(mesh_new(&mesh, world, (MeshSpec){0}));
    mesh->owns_world = true;
    world = NULL;
    *ret_mesh = mesh;
    return OK;
}

Status mesh_new_dryrun(Mesh **ret_mesh, MeshSpec spec, int rank, int per_node, bool staged) {
    static const GroupRow all = {.axes = AXES_ALL};
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    TRY(mem_new(1, sizeof *mesh, &mesh));
    mesh->size = (int)mesh_ranks(spec, AXES_ALL);
    TRY(check_spec(mesh->size, spec));
    set_coordinates(mesh, rank, spec);
    Members members = members_of(mesh, &all, spec);
    TRY(dryrun_group(mesh, &members, per_node, staged, &mesh->world));
    mesh->owns_world = true;
    for (int i = 0; i < ROWS; i++) {
        members = members_of(mesh, &rows[i], spec);
        TRY(dryrun_group(mesh, &members, per_node, staged, group_at(mesh, &rows[i])));
    }
    set_names(mesh);
    return MOVE(ret_mesh, mesh);
}

void mesh_free(Mesh *mesh) {
    if (!mesh) return;
    for (int i = 0; i < ROWS; i++) group_free(*group_at(mesh, &rows[i]));
    if (mesh->owns_world) group_free(mesh->world);
    free(mesh);
}

Status mesh_reduce(Mesh *mesh, unsigned axes, void *data, int64_t count, DType dtype, ReduceOp op) {
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (axes & AXIS_SET(axis)) TRY(host_reduce(mesh->axis[axis], data, count, dtype, op));
    return OK;
}

/* All groups of a mesh with the axis as whose their waits count, the one with the most distant ranks, or
 * AXIS_COUNT for the world; and as what their bytes count. */
enum { MESH_GROUPS = ROWS + 1 };
typedef struct MeshGroup {
    Group *group;
    Axis axis;
    int traffic;
} MeshGroup;

static Axis counted_axis(const Mesh *mesh, unsigned axes) {
    Axis most = axis_by_distance(0);
    for (int n = 0; n < AXIS_COUNT; n++) {
        Axis axis = axis_by_distance(n);
        if ((axes & AXIS_SET(axis)) && (mesh->extent[axis] > 1 || !(axes & AXIS_SET(most)))) most = axis;
    }
    return most;
}

static void groups_of(const Mesh *mesh, MeshGroup groups[MESH_GROUPS]) {
    groups[0] = (MeshGroup){mesh->world, AXIS_COUNT, TRAFFIC_ALL};
    for (int i = 0; i < ROWS; i++) {
        Axis axis = counted_axis(mesh, rows[i].axes);
        int traffic = rows[i].part == PART_EXPERT ? TRAFFIC_EXPERT : (int)axis;
        groups[i + 1] = (MeshGroup){*group_at(mesh, &rows[i]), axis, traffic};
    }
}

void mesh_sent(const Mesh *mesh, CommBytes sent[COMM_KINDS]) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int k = 0; k < COMM_KINDS; k++) sent[k] = (CommBytes){0};
    for (int i = 0; i < MESH_GROUPS; i++)
        for (int k = 0; k < COMM_KINDS; k++) comm_bytes_add(&sent[k], groups[i].group->sent[k], 1);
}

void mesh_sent_by_traffic(const Mesh *mesh, CommBytes sent[TRAFFICS][COMM_KINDS]) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int t = 0; t < TRAFFICS; t++)
        for (int k = 0; k < COMM_KINDS; k++) sent[t][k] = (CommBytes){0};
    for (int i = 0; i < MESH_GROUPS; i++)
        for (int k = 0; k < COMM_KINDS; k++)
            comm_bytes_add(&sent[groups[i].traffic][k], groups[i].group->sent[k], 1);
}

MeshWaits mesh_waits(const Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    MeshWaits waits = {0};
    groups_of(mesh, groups);
    for (int i = 0; i < MESH_GROUPS; i++) {
        double blocked = 1e-9 * (double)group_waited(groups[i].group);
        if (groups[i].axis < AXIS_COUNT) waits.axis[groups[i].axis] += blocked;
        waits.all += blocked;
        waits.tickets += 1e-9 * (double)groups[i].group->ticket_ns;
        waits.cpu += 1e-9 * (double)groups[i].group->waited_cpu_ns;
    }
    return waits;
}

/* ---- tracing ---- */

#define AXIS_NAMES(id, name, title, ...) [AXIS_##id] = COMM_NAMES(title),
static const CommNames names[TRAFFICS] = {
    MESH_AXES(AXIS_NAMES)[TRAFFIC_ALL] = COMM_NAMES("all"), [TRAFFIC_EXPERT] = COMM_NAMES("expert")};

const char *mesh_traffic_name(int traffic) {
    return names[traffic].op[0].category;
}

/* Groups can be shared: the name of the world is set first. */
static void set_names(Mesh *mesh) {
    MeshGroup groups[MESH_GROUPS];
    groups_of(mesh, groups);
    for (int i = 0; i < MESH_GROUPS; i++) groups[i].group->names = &names[groups[i].traffic];
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
    TRY(mesh_reduce(mesh, AXES_COPIES, votes, count, DT_I64, REDUCE_MAX));
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
