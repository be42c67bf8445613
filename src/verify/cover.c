#include "verify/cover.h"

#include "base/memory.h"

enum { LAYERS = 6, HEADS = 4 };

static const int values_of_rest[COVER_AXES] = {[COVER_ZERO] = 4,
                                               [COVER_SCHEDULE] = SCHEDULE_EVAL,
                                               [COVER_RECOMPUTE] = 3,
                                               [COVER_CONTEXT] = CONTEXT_BOTH,
                                               [COVER_EXPERTS] = 3, /* 1, 2 and 4 ranks */
                                               [COVER_SEQUENCE] = 2,
                                               [COVER_MICRO] = 2,
                                               [COVER_OFFLOAD] = OFFLOAD_COUNT,
                                               [COVER_KEEP] = 2};

static bool splits_context(const TrialSpec *spec, const ModelConfig *config) {
    int tp = mesh_extent(spec->mesh, AXIS_TP), cp = mesh_extent(spec->mesh, AXIS_CP);
    if (cp == 1) return spec->cp_mode <= CONTEXT_HEADS;
    int swap = spec->cp_mode <= CONTEXT_HEADS ? cp : spec->cp_mode == CONTEXT_BOTH ? spec->mesh.heads : 1;
    if (spec->cp_mode == CONTEXT_BOTH && (swap < 2 || swap == cp || cp % swap)) return false;
    if (!config_splits_context(config, tp, swap)) return false;
    return TRIAL_SEQ % cp == 0 && (!spec->sequence || TRIAL_SEQ / cp % tp == 0);
}

bool trial_splits_context(const TrialSpec *spec) {
    ModelConfig config;
    trial_config(spec, &config);
    return splits_context(spec, &config);
}

/* Whether the model can be divided like that. Only mixtures have experts to divide. */
static bool divides_model(const TrialSpec *spec, int chunks) {
    MeshSpec mesh = spec->mesh;
    ModelConfig config;
    trial_config(spec, &config);
    int ep = mesh_experts(mesh);
    if (!config_splits_layers(&config, mesh.tp)) return false;
    if (mesh.pp * chunks > config.layers) return false;
    if (ep > 1 && (!config.experts || config.experts % ep)) return false;
    if (config.experts && spec->fp8) return false;
    return splits_context(spec, &config);
}

bool trial_is_legal(const TrialSpec *spec) {
    MeshSpec mesh = spec->mesh;
    int batch = spec->batch ? spec->batch : TRIAL_BATCH;
    int micros = batch / mesh.dp / spec->micro_batch, chunks = spec->chunks ? spec->chunks : 1;
    bool sharded = spec->zero > 0;
    if (micros < 1 || batch % (mesh.dp * spec->micro_batch)) return false;
    if (mesh.shard && !sharded) return false;
    if (mesh_copies(mesh) % mesh_experts(mesh)) return false;
    if (spec->sequence && mesh.tp == 1) return false;
    if (spec->keep && spec->zero != 3) return false;
    if (offload_state(spec->offload) == OFFLOAD_PARAMS && spec->zero != 3) return false;
    if (spec->schedule != SCHEDULE_1F1B && mesh.pp == 1) return false;
    if (spec->schedule == SCHEDULE_INTERLEAVED && micros % mesh.pp) return false;
    if (spec->fp8 && spec->micro_batch == 1) return false; /* rows come in multiples of 16 */
    return divides_model(spec, chunks);
}

static TrialSpec spec_of(const Cover *cover, const CoverPoint *point) {
    const uint8_t *at = point->at;
    ContextMode mode = at[COVER_CONTEXT] ? (ContextMode)(at[COVER_CONTEXT] + CONTEXT_HEADS) : CONTEXT_AUTO;
    MeshSpec mesh = cover->grid[at[COVER_GRID]];
    if (mode == CONTEXT_BOTH) mesh.heads = 2;
    if (at[COVER_EXPERTS]) mesh.ep = 1 << at[COVER_EXPERTS];
    const Precision *precision = &cover->precision[at[COVER_PRECISION]];
    return (TrialSpec){.job = at[COVER_JOB],
                       .mesh = mesh,
                       .batch = cover->batch,
                       .zero = at[COVER_ZERO],
                       .chunks = at[COVER_SCHEDULE] == SCHEDULE_INTERLEAVED ? 2 : 1,
                       .micro_batch = 1 + at[COVER_MICRO],
                       .schedule = (ScheduleKind)at[COVER_SCHEDULE],
                       .recompute = (Recompute)at[COVER_RECOMPUTE],
                       .cp_mode = mode,
                       .sequence = at[COVER_SEQUENCE],
                       .keep = at[COVER_KEEP],
                       .offload = (Offload)at[COVER_OFFLOAD],
                       .dtype = precision->dtype,
                       .fp8 = precision->fp8,
                       .wide = precision->fp8};
}

/* ---- pairs ---- */

static uint8_t *pair_at(const Cover *cover, const CoverPoint *point, int one, int two) {
    int first = cover->first[one] + point->at[one], second = cover->first[two] + point->at[two];
    return &cover->pair[first * cover->values + second];
}

/* The pairs of a layout that are not covered. */
static int pairs_left(const Cover *cover, const CoverPoint *point) {
    int left = 0;
    for (int one = 0; one < COVER_AXES; one++)
        for (int two = one + 1; two < COVER_AXES; two++) left += *pair_at(cover, point, one, two) != 2;
    return left;
}

static void cover_pairs(Cover *cover, const CoverPoint *point, uint8_t mark, int64_t *count) {
    for (int one = 0; one < COVER_AXES; one++)
        for (int two = one + 1; two < COVER_AXES; two++) {
            uint8_t *pair = pair_at(cover, point, one, two);
            *count += *pair != mark;
            *pair = mark;
        }
}

/* Pairs are only ever covered, so a layout has at most as many as when they were last counted. */
bool cover_next(Cover *cover, TrialSpec *ret_spec) {
    for (; cover->most; cover->most--)
        for (size_t i = 0; i < cover->count;) {
            CoverPoint *point = &cover->point[i];
            if (point->left == cover->most) point->left = (uint8_t)pairs_left(cover, point);
            if (point->left == cover->most) {
                cover_pairs(cover, point, 2, &cover->covered);
                *ret_spec = spec_of(cover, point);
                return true;
            }
            if (point->left)
                i++;
            else
                *point = cover->point[--cover->count];
        }
    return false;
}

/* ---- enumeration ---- */

/* Every grid, and with ZeRO's shards in groups of two. Far more ranks than a tiny model can use have only
 * replicas more. */
static void find_grids(Cover *cover, int ranks) {
    MeshSpec grid = {0};
    while (mesh_next(&grid, ranks, (MeshSpec){.tp = HEADS, .pp = LAYERS, .cp = HEADS}))
        for (grid.shard = 0; HEADS % (grid.tp * grid.cp) == 0 && grid.shard <= 2; grid.shard += 2)
            if ((!grid.shard || (grid.dp * grid.cp > 2 && grid.dp * grid.cp % 2 == 0)) &&
                cover->grids < COVER_GRIDS)
                cover->grid[cover->grids++] = grid;
}

/* Counts up to the next point; false after the last one. */
static bool point_next(CoverPoint *point, const int values[COVER_AXES]) {
    int axis = 0;
    while (axis < COVER_AXES && ++point->at[axis] == values[axis]) point->at[axis++] = 0;
    return axis < COVER_AXES;
}

int cover_batch(int ranks) {
    return 2 * ranks * ((TRIAL_BATCH + 2 * ranks - 1) / (2 * ranks));
}

Status cover_init(Cover *ret_cover, int ranks, bool gpu, const Precision *precision, int precisions) {
    CLEANUP(cover_done) Cover cover = {.precisions = precisions, .most = COVER_AXES * (COVER_AXES - 1) / 2};
    TrialJob job;
    int values[COVER_AXES], jobs = 0;
    for (int i = 0; i < precisions; i++) cover.precision[i] = precision[i];
    cover.batch = cover_batch(ranks);
    find_grids(&cover, ranks);
    while (trial_job(jobs, &job)) jobs++;
    for (int axis = 0; axis < COVER_AXES; axis++) values[axis] = values_of_rest[axis];
    values[COVER_JOB] = jobs;
    values[COVER_PRECISION] = precisions;
    values[COVER_GRID] = cover.grids;
    if (gpu) values[COVER_CONTEXT] = 1; /* heads mode */
    for (int axis = 0; axis < COVER_AXES; axis++) {
        cover.first[axis] = cover.values;
        cover.values += values[axis];
    }
    TRY(mem_new((size_t)cover.values * (size_t)cover.values, 1, &cover.pair));
    CoverPoint point = {0};
    do {
        TrialSpec spec = spec_of(&cover, &point);
        if (!trial_is_legal(&spec)) continue;
        TRY(mem_grow(&cover.point, &cover.capacity, cover.count + 1, sizeof *cover.point));
        cover_pairs(&cover, &point, 1, &cover.pairs);
        point.left = (uint8_t)cover.most;
        cover.point[cover.count++] = point;
    } while (point_next(&point, values));
    return MOVE(ret_cover, cover);
}

void cover_done(Cover *cover) {
    free(cover->point);
    free(cover->pair);
    *cover = (Cover){0};
}
