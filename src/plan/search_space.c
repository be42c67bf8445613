/* Nested loops over all settings, from the grid dp x tp x pp to the recompute mode. Each level fills in its
 * part of the layout and calls the next one. */
#include "plan/search_space.h"

#include <string.h>

#include "base/memory.h"

/* Parts of sequences that are shorter rarely pay: attention is then a small part of the work. */
enum { PART_TOKENS = 2048 };
enum { MAX_MICRO_BATCH = 64, MAX_MICROS = 1 << 16, MAX_CHUNKS = 64, MAX_LAYOUTS = 1 << 20 };

void search_space_done(SearchSpace *space) {
    free(space->layout);
    *space = (SearchSpace){0};
}

PlanSpec search_plan_spec(const SearchSpec *spec, const SearchLayout *layout) {
    PlanSpec plan = spec->base;
    Settings *c = &plan.config;
    plan.mesh = layout->mesh;
    c->run.zero = layout->zero;
    c->run.sequence = layout->sequence;
    c->run.cp_mode = layout->cp_mode;
    c->run.micro_batch = layout->micro_batch;
    c->run.schedule = layout->schedule;
    c->run.chunks = layout->schedule == SCHEDULE_INTERLEAVED ? layout->chunks : 0;
    c->run.recompute = layout->recompute;
    return plan;
}

/* `at` is the layout under construction. */
typedef struct Enumerator {
    SearchSpace *space;
    const SearchSpec *spec;
    const ModelConfig *model;
    int64_t seq;
    SearchLayout at;
} Enumerator;

static bool is_fixed(const Enumerator *it, Fixed what) {
    return it->spec->fixed & what;
}

static Status add_layout(Enumerator *it) {
    SearchSpace *space = it->space;
    if (space->count == MAX_LAYOUTS)
        return USAGE("more than %d valid layouts; narrow the search with {tp}, {pp} or {micro-batch}",
                     MAX_LAYOUTS);
    TRY(mem_grow(&space->layout, &space->capacity, space->count + 1, sizeof *space->layout));
    space->layout[space->count++] = it->at;
    return OK;
}

static Status list_recompute(Enumerator *it) {
    Recompute only = it->spec->base.config.run.recompute;
    for (Recompute r = RECOMPUTE_NONE; r <= RECOMPUTE_BLOCK; r++) {
        if (is_fixed(it, FIXED_RECOMPUTE) && r != only) continue;
        it->at.recompute = r;
        TRY(add_layout(it));
    }
    return OK;
}

/* Sequence parallelism needs several tensor-parallel ranks that divide the sequence. */
static Status list_sequence(Enumerator *it) {
    for (int on = 0; on <= 1; on++) {
        bool fixed = is_fixed(it, FIXED_SEQUENCE) && on != it->spec->base.config.run.sequence;
        if (it->at.mesh.tp == 1 ? on : fixed) continue;
        if (on && it->seq / mesh_extent(it->at.mesh, AXIS_CP) % it->at.mesh.tp) continue;
        it->at.sequence = on;
        TRY(list_recompute(it));
    }
    return OK;
}

static Status list_zero(Enumerator *it) {
    for (int zero = 0; zero <= 3; zero++) {
        if (is_fixed(it, FIXED_ZERO) ? zero != it->spec->base.config.run.zero
                                     : zero && mesh_copies(it->at.mesh) == 1)
            continue;
        it->at.zero = zero;
        TRY(list_sequence(it));
    }
    return OK;
}

/* Numbers of chunks that split the layers evenly; if there are none, the largest number. */
static Status list_chunks(Enumerator *it) {
    const ModelConfig *model = it->model;
    int64_t fixed = it->spec->base.config.run.chunks;
    int max_chunks = (int)(model->layers / it->at.mesh.pp), listed = 0;
    for (int chunks = 2; chunks <= max_chunks && chunks <= MAX_CHUNKS; chunks++) {
        bool even = model->layers % ((int64_t)chunks * it->at.mesh.pp) == 0;
        if (is_fixed(it, FIXED_CHUNKS) ? chunks != fixed : !even && !(chunks == max_chunks && !listed))
            continue;
        it->at.chunks = chunks;
        listed++;
        TRY(list_zero(it));
    }
    return OK;
}

static Status list_schedules(Enumerator *it) {
    static const ScheduleKind kinds[] = {SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZERO_BUBBLE,
                                         SCHEDULE_GPIPE};
    ScheduleKind only = it->spec->base.config.run.schedule;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool staged = it->at.mesh.pp > 1;
        if (staged ? is_fixed(it, FIXED_SCHEDULE) && kinds[i] != only : i > 0) continue;
        it->at.schedule = kinds[i];
        it->at.chunks = 1;
        if (kinds[i] == SCHEDULE_INTERLEAVED)
            TRY(list_chunks(it));
        else
            TRY(list_zero(it));
    }
    return OK;
}

static Status list_micro_batches(Enumerator *it) {
    const Settings *c = &it->spec->base.config;
    int64_t share = c->training.batch / it->at.mesh.dp;
    for (int64_t micro = 1; micro <= share && micro <= MAX_MICRO_BATCH; micro++) {
        if (share % micro || share / micro > MAX_MICROS) continue;
        if (is_fixed(it, FIXED_MICRO_BATCH) && micro != c->run.micro_batch) continue;
        it->at.micro_batch = micro;
        it->at.micros = (int)(share / micro);
        TRY(list_schedules(it));
    }
    return OK;
}

/* Ranks that hold different experts: divisors of the experts and of the ranks with the same parameters. */
static Status list_experts(Enumerator *it) {
    int64_t experts = it->model->experts ? it->model->experts : 1;
    int first = it->at.grid, number = 0;
    for (int ep = 1; ep <= experts; ep++) {
        if (experts % ep) continue;
        it->at.grid = first * it->space->divisions + number++;
        if (is_fixed(it, FIXED_EXPERTS) && ep != mesh_experts(it->spec->base.mesh)) continue;
        if (mesh_copies(it->at.mesh) % ep) continue;
        it->at.mesh.ep = ep > 1 ? ep : 0;
        it->space->divided |= ep > 1;
        TRY(list_micro_batches(it));
    }
    it->at.mesh.ep = 0;
    it->at.grid = first;
    return OK;
}

/* Whether groups of `heads` ranks may exchange heads while keys and values travel from one group to the next.
 * Unless that mode is given, such groups are within nodes and the ring leads from node to node: on a single
 * node, nothing is gained over the other modes. */
static bool combines(const Enumerator *it, int heads) {
    MeshSpec mesh = it->at.mesh, given = it->spec->base.mesh;
    int cp = mesh_extent(mesh, AXIS_CP), node = it->spec->base.per_node;
    if (cp % heads || !config_splits_context(it->model, mesh.tp, heads)) return false;
    if (is_fixed(it, FIXED_CONTEXT)) return !given.heads || given.heads == heads;
    return node && mesh.tp * cp > node && node % (mesh.tp * heads) == 0;
}

static Status list_context(Enumerator *it, ContextMode mode, int heads, int *listed) {
    it->at.cp_mode = mode;
    it->at.mesh.heads = heads;
    it->space->parts = true;
    ++*listed;
    return list_experts(it);
}

/* The modes of context parallelism that the model has. With a given extent that has none, the
 * mode is that of the settings, which a plan refuses with the reason. */
static Status list_contexts(Enumerator *it) {
    const ModelConfig *model = it->model;
    const Settings *c = &it->spec->base.config;
    int64_t cp = mesh_extent(it->at.mesh, AXIS_CP);
    bool given = it->spec->axes & AXIS_SET(AXIS_CP), parts = it->seq % cp == 0 && it->seq > cp;
    int first = it->at.grid * CONTEXT_MODES, listed = 0;
    it->at.cp_mode = c->run.cp_mode;
    it->at.grid = first;
    if (cp == 1) return list_experts(it);
    for (ContextMode mode = CONTEXT_HEADS; mode < CONTEXT_MODES && parts; mode++) {
        if (is_fixed(it, FIXED_CONTEXT) && mode != c->run.cp_mode) continue;
        if (mode == CONTEXT_HEADS && !config_splits_context(model, it->at.mesh.tp, cp)) continue;
        it->at.grid = first + (int)mode;
        if (mode != CONTEXT_BOTH) TRY(list_context(it, mode, 0, &listed));
        for (int heads = 2; mode == CONTEXT_BOTH && heads < cp; heads++)
            if (combines(it, heads)) TRY(list_context(it, mode, heads, &listed));
    }
    it->at.cp_mode = c->run.cp_mode;
    it->at.mesh.heads = it->spec->base.mesh.heads;
    if (given && !listed) return list_experts(it);
    it->space->grids.by_context += !listed;
    return OK;
}

static Status list_grid(Enumerator *it, MeshSpec mesh) {
    const ModelConfig *model = it->model;
    SearchGrids *grids = &it->space->grids;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if ((it->spec->axes & AXIS_SET(axis)) && mesh.extent[axis] != mesh_extent(it->spec->base.mesh, axis))
            return OK;
    grids->all++;
    grids->context |= mesh_extent(mesh, AXIS_CP) > 1;
    if (!config_splits_layers(model, mesh.tp)) return grids->by_heads++, OK;
    if (mesh.pp > model->layers) return grids->by_layers++, OK;
    if (it->spec->base.config.training.batch % mesh.dp) return grids->by_batch++, OK;
    it->at.grid = grids->all;
    it->at.mesh = mesh;
    return list_contexts(it);
}

Status search_space_init(SearchSpace *ret_space, const SearchSpec *spec, const ModelConfig *model,
                         int64_t seq) {
    CLEANUP(search_space_done) SearchSpace space = {0};
    Enumerator it = {.space = &space, .spec = spec, .model = model, .seq = seq};
    MeshSpec mesh = {0}, most = spec->base.mesh;
    for (int64_t ep = 1; ep <= model->experts || ep == 1; ep++) space.divisions += model->experts % ep == 0;
    most.tp = most.pp = spec->ranks;
    if (!(spec->axes & AXIS_SET(AXIS_CP)) && !spec->base.software)
        most.cp = seq >= 2 * PART_TOKENS ? (int)(seq / PART_TOKENS) : 1;
    while (mesh_next(&mesh, spec->ranks, most)) TRY(list_grid(&it, mesh));
    return MOVE(ret_space, space);
}
