/* Ranks layouts by full plans. Estimates only decide which layouts are planned: the fastest ones that might
 * fit, the fastest of every grid dp x tp x pp, the neighbors of the best, the alternatives that are reported,
 * and those that seem faster than the best once estimates are corrected by the plans of similar layouts. */
#include "plan/search.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "plan/fit.h"
#include "plan/search_cost.h"
#include "plan/search_space.h"
#include "train/job.h"

enum {
    FULL_PLANS = 40,  /* full plans that fit, of which the best are shown */
    FULL_TRIES = 2,   /* at most FULL_TRIES * FULL_PLANS full plans, including those that do not fit */
    OTHER_TRIES = 6,  /* full plans per alternative */
    LAST_TRIES = 100, /* smallest layouts planned if none fits */
    CLIMBS = 3,       /* best layouts whose neighbors are planned... */
    CLIMB_ROUNDS = 4, /* ...for at most this many rounds */
    MAX_GRIDS = 64,   /* grids of which the fastest layout is planned... */
    GRID_TRIES = 4,   /* ...unless it and this many others do not fit */
};
/* Memory estimates are usually off by a few percent: layouts within fit_margin of the available memory are
 * planned. Some are off by more: before the search reports that nothing fits, it has planned all layouts
 * within fit_reach. */
#define FIT_MARGIN 0.94
static const double fit_margin = FIT_MARGIN, fit_reach = 0.6;

typedef struct Finder {
    const SearchSpec *spec;
    const Cluster *cluster;
    SearchSpace space;
    SearchCosts costs;
    Model *model;
    Search found;
    SearchResult *plan; /* full plans so far */
    size_t plans, capacity;
} Finder;

static void finder_done(Finder *finder) {
    search_space_done(&finder->space);
    search_costs_done(&finder->costs);
    model_free(finder->model);
    free(finder->plan);
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const SearchLayout *)a)->seconds, y = ((const SearchLayout *)b)->seconds;
    return (x > y) - (x < y);
}

/* Resolves the model's configuration with a plan for a single rank. */
static Status find_model(Finder *finder) {
    CLEANUP(plan_done) Plan plan = {0};
    PlanSpec spec = finder->spec->base;
    spec.mesh = (MeshSpec){.dp = 1, .tp = 1, .pp = 1};
    spec.memory_only = true;
    spec.config.training.batch = spec.config.run.micro_batch = 1;
    spec.config.run.zero = 0;
    spec.config.run.sequence = false;
    spec.config.run.schedule = SCHEDULE_1F1B;
    spec.config.run.chunks = 0;
    TRY(plan_init(&plan, &spec));
    finder->found.model = plan.model;
    finder->found.seq = plan.seq;
    finder->found.params_total = plan.params_total;
    finder->found.available = finder->cluster->memory_bytes - finder->cluster->reserve_bytes;
    const TrainingSettings *training = &finder->spec->base.config.training;
    TRY(model_new(&finder->model, &plan.model));
    return job_adapt(training, finder->model);
}

static Status estimate_all(Finder *finder) {
    SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    for (size_t i = 0; i < space->count; i++) {
        TRY(search_estimate(&finder->costs, &space->layout[i]));
        found->estimated_to_fit += space->layout[i].bytes <= found->available;
    }
    found->legal = space->count;
    found->grids = space->grids;
    qsort(space->layout, space->count, sizeof *space->layout, by_seconds);
    return OK;
}

/* ---- full plans ---- */

static bool same(const SearchLayout *a, const SearchLayout *b) {
    return mesh_same(a->mesh, b->mesh) && a->zero == b->zero && a->chunks == b->chunks &&
           a->sequence == b->sequence && a->cp_mode == b->cp_mode && a->schedule == b->schedule &&
           a->recompute == b->recompute && a->micro_batch == b->micro_batch;
}

static Status plan_layout(const Finder *finder, const SearchLayout *layout, bool sketch,
                          SearchResult *ret_result) {
    CLEANUP(plan_done) Plan plan = {0};
    PlanSpec spec = search_plan_spec(finder->spec, layout);
    spec.timed = true;
    spec.sketch = sketch;
    spec.memory_only = !sketch;
    TRY(plan_init(&plan, &spec));
    SearchResult result = {
        .layout = *layout, .bytes = plan.stage[plan.fullest].memory.needed, .sketched = sketch};
    result.fits = fit_fits(&plan, finder->cluster);
    TRY(plan_time(&plan, finder->cluster, &result.time));
    *ret_result = result;
    return OK;
}

/* Plans and simulates a layout, or returns the earlier result. *ret_plan is valid until the next call. */
static Status plan_full(Finder *finder, const SearchLayout *layout, const SearchResult **ret_plan) {
    SearchResult result;
    for (size_t i = 0; i < finder->plans; i++)
        if (same(&finder->plan[i].layout, layout)) {
            *ret_plan = &finder->plan[i];
            return OK;
        }
    TRY(plan_layout(finder, layout, true, &result));
    TRY(mem_grow(&finder->plan, &finder->capacity, finder->plans + 1, sizeof *finder->plan));
    finder->plan[finder->plans] = result;
    *ret_plan = &finder->plan[finder->plans++];
    return OK;
}

static int by_step(const void *a, const void *b) {
    const SearchResult *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    return (x->time.step_s > y->time.step_s) - (x->time.step_s < y->time.step_s);
}

static int by_bytes(const void *a, const void *b) {
    double x = ((const SearchLayout *)a)->bytes, y = ((const SearchLayout *)b)->bytes;
    return (x > y) - (x < y);
}

/* Plans the smallest layouts until one fits or the rest is out of reach. */
static Status plan_smallest(Finder *finder) {
    SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    const SearchResult *result = NULL;
    qsort(space->layout, space->count, sizeof *space->layout, by_bytes);
    found->all_tried = true;
    for (size_t i = 0; i < space->count; i++) {
        bool within_reach = i < OTHER_TRIES || fit_reach * space->layout[i].bytes <= found->available;
        if (!within_reach) break;
        if (i == LAST_TRIES) {
            found->all_tried = false;
            break;
        }
        TRY(plan_full(finder, &space->layout[i], &result));
        if (!i || result->bytes < found->smallest.bytes) found->smallest = *result;
        if (result->fits) break;
    }
    qsort(space->layout, space->count, sizeof *space->layout, by_seconds);
    return OK;
}

static Status plan_best(Finder *finder) {
    const SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    int fitting = 0, tried = 0, wanted = finder->spec->plans ? finder->spec->plans : FULL_PLANS;
    for (size_t i = 0; i < space->count && fitting < wanted && tried < FULL_TRIES * wanted; i++) {
        const SearchLayout *layout = &space->layout[i];
        const SearchResult *result;
        if (fit_margin * layout->bytes > found->available) continue;
        TRY(plan_full(finder, layout, &result));
        fitting += result->fits;
        tried++;
    }
    return fitting ? OK : plan_smallest(finder);
}

static void keep_best(Finder *finder) {
    Search *found = &finder->found;
    qsort(finder->plan, finder->plans, sizeof *finder->plan, by_step);
    found->count = 0;
    for (size_t i = 0; i < finder->plans && finder->plan[i].fits && found->count < SEARCH_BEST; i++)
        found->best[found->count++] = finder->plan[i];
    found->planned = finder->plans;
}

/* ---- correcting for misleading estimates ---- */

/* A grid, and how many of its layouts have been planned without finding one that fits. */
typedef struct Grid {
    SearchLayout layout;
    int tries;
    bool fits;
} Grid;

/* Whether two layouts have the same extents. How context parallelism groups its ranks is part of its mode,
 * and how experts are divided is a setting of its own. */
static bool same_extents(const SearchLayout *a, const SearchLayout *b) {
    MeshSpec one = a->mesh, other = b->mesh;
    one.heads = other.heads = one.ep = other.ep = 0;
    return mesh_same(one, other);
}

/* Plans the fastest layout that fits of every grid, since estimates can be wrong for an entire grid. */
static Status plan_grids(Finder *finder) {
    const SearchSpace *space = &finder->space;
    const SearchResult *result;
    Grid seen[MAX_GRIDS];
    int grids = 0;
    for (size_t i = 0; i < space->count; i++) {
        const SearchLayout *layout = &space->layout[i];
        int k = 0;
        if (fit_margin * layout->bytes > finder->found.available) continue;
        while (k < grids && !same_extents(&seen[k].layout, layout)) k++;
        if (k == grids && grids == MAX_GRIDS) continue;
        if (k == grids) seen[grids++] = (Grid){.layout = *layout};
        if (seen[k].fits || seen[k].tries++ == GRID_TRIES) continue;
        TRY(plan_full(finder, layout, &result));
        seen[k].fits = result->fits;
    }
    return OK;
}

/* Whether two layouts have the same grid and differ in exactly one other setting. */
static bool is_neighbor(const SearchLayout *a, const SearchLayout *b) {
    int differences = (a->zero != b->zero) + (a->sequence != b->sequence) +
                      (a->cp_mode != b->cp_mode || a->mesh.heads != b->mesh.heads) +
                      (mesh_experts(a->mesh) != mesh_experts(b->mesh)) + (a->recompute != b->recompute) +
                      (a->micro_batch != b->micro_batch) +
                      (a->schedule != b->schedule || a->chunks != b->chunks);
    return differences == 1 && same_extents(a, b);
}

/* Hill climbing: plans the neighbors of the best layouts until no new ones are found. */
static Status climb(Finder *finder) {
    const SearchSpace *space = &finder->space;
    const SearchResult *result;
    for (int round = 0; round < CLIMB_ROUNDS; round++) {
        SearchLayout from[CLIMBS];
        int count = finder->found.count < CLIMBS ? finder->found.count : CLIMBS;
        size_t before = finder->plans;
        for (int k = 0; k < count; k++) from[k] = finder->found.best[k].layout;
        for (int k = 0; k < count; k++)
            for (size_t i = 0; i < space->count; i++)
                if (is_neighbor(&from[k], &space->layout[i]) &&
                    fit_margin * space->layout[i].bytes <= finder->found.available)
                    TRY(plan_full(finder, &space->layout[i], &result));
        if (finder->plans == before) break;
        keep_best(finder);
    }
    return OK;
}

/* How far estimates are off for one kind of layout: planned relative to estimated, the least of all planned
 * layouts of the kind. 0: none was planned. */
typedef struct Correction {
    double seconds, bytes;
} Correction;

/* Kinds, from the narrowest: layouts of a grid with the same ZeRO stage, schedule, recompute mode and
 * sequence parallelism; of a grid with the same ZeRO stage; of any grid with the same ZeRO stage and
 * recompute mode. The first two tell apart whether there are enough micro-batches to fill the pipeline. */
enum { STAGES = 4, RECOMPUTES = 3, MODES = SCHEDULE_KINDS * RECOMPUTES * 2, LEVELS = 3 };

typedef struct Corrections {
    Correction *level[LEVELS];
} Corrections;

static Correction *correction_at(const Corrections *corrections, int level, const SearchLayout *l) {
    int coarse = (l->grid * STAGES + l->zero) * 2 + (l->micros < l->mesh.pp), schedule = (int)l->schedule,
        recompute = (int)l->recompute;
    int at = level == 0   ? coarse * MODES + (schedule * RECOMPUTES + recompute) * 2 + l->sequence
             : level == 1 ? coarse
                          : l->zero * RECOMPUTES + recompute;
    return &corrections->level[level][at];
}

static void corrections_done(Corrections *corrections) {
    for (int level = 0; level < LEVELS; level++) free(corrections->level[level]);
}

static void correct(Corrections *corrections, const SearchResult *plan) {
    double seconds = plan->time.step_s / plan->layout.seconds,
           bytes = (double)plan->bytes / plan->layout.bytes;
    for (int level = 0; level < LEVELS; level++) {
        Correction *by = correction_at(corrections, level, &plan->layout);
        by->seconds = by->seconds > 0 ? fmin(by->seconds, seconds) : seconds;
        by->bytes = by->bytes > 0 ? fmin(by->bytes, bytes) : bytes;
    }
}

/* Memory by the narrowest kind; time by the most favorable one of the grid, since it depends on more. */
static Correction correction_of(const Corrections *corrections, const SearchLayout *layout) {
    Correction by = *correction_at(corrections, 0, layout), coarse = *correction_at(corrections, 1, layout);
    if (by.seconds > 0) return (Correction){fmin(by.seconds, coarse.seconds), by.bytes};
    if (coarse.seconds > 0) return coarse;
    by = *correction_at(corrections, 2, layout);
    return by.seconds > 0 ? by : (Correction){1, 1};
}

/* A round of refinement: which layouts it plans, and how many. */
typedef struct Round {
    double reach;  /* corrected times up to this multiple of the best... */
    double margin; /* ...and this fraction of corrected memory within the limit */
    int plans;
    double layers; /* it may execute more plans until it has executed this many layers, about 10 us each */
} Round;

static const Round rounds[] = {
    {1, FIT_MARGIN, 60, 0},    /* seems faster */
    {1.25, FIT_MARGIN, 30, 0}, /* seems almost as fast */
    {1.6, 0.75, 0, 4e4},       /* small models, whose estimates are worse and whose plans take little time */
};

/* The unplanned layout with the least corrected time of those that the round plans. */
static const SearchLayout *most_promising(const Finder *finder, const Corrections *corrections,
                                          const bool *tried, const Round *round, double best,
                                          size_t *ret_at) {
    const SearchLayout *found = NULL;
    double least = round->reach * best;
    for (size_t i = 0; i < finder->space.count; i++) {
        const SearchLayout *layout = &finder->space.layout[i];
        Correction by = correction_of(corrections, layout);
        double seconds = by.seconds * layout->seconds, bytes = fmin(by.bytes, 1) * layout->bytes;
        if (tried[i] || seconds >= least || round->margin * bytes > finder->found.available) continue;
        least = seconds;
        found = layout;
        *ret_at = i;
    }
    return found;
}

/* Layers that a plan executes: a few micro-batches of every stage. */
static double work_of(const Finder *finder, const SearchLayout *layout) {
    double micros = fmin(layout->micros, 3 * layout->mesh.pp + 1);
    return 2 * micros * ((double)finder->found.model.layers + 2 * layout->mesh.pp);
}

/* Plans layouts of one round, the most promising first; `best` is the least step time so far. */
static Status refine_round(Finder *finder, const Round *round, Corrections *corrections, bool *tried,
                           double *best) {
    double layers = 0;
    for (int n = 0; n < round->plans || layers < round->layers;) {
        const SearchResult *result;
        size_t before = finder->plans, at = 0;
        const SearchLayout *layout = most_promising(finder, corrections, tried, round, *best, &at);
        if (!layout) break;
        tried[at] = true;
        TRY(plan_full(finder, layout, &result));
        if (finder->plans == before) continue;
        n++;
        layers += work_of(finder, layout);
        correct(corrections, result);
        if (result->fits) *best = fmin(*best, result->time.step_s);
    }
    return OK;
}

/* Corrects the estimates by what similar layouts turned out to be, and plans those that then seem faster than
 * the best, or not much slower. */
static Status refine(Finder *finder) {
    const SearchSpace *space = &finder->space;
    CLEANUP(corrections_done) Corrections corrections = {0};
    CLEANUP(mem_freep) bool *tried = NULL;
    size_t grids = (size_t)(space->grids.all + 1) * CONTEXT_MODES * (size_t)space->divisions;
    if (!finder->found.count) return OK;
    TRY(mem_new(2 * grids * STAGES * MODES, sizeof(Correction), &corrections.level[0]));
    TRY(mem_new(2 * grids * STAGES, sizeof(Correction), &corrections.level[1]));
    TRY(mem_new(STAGES * RECOMPUTES, sizeof(Correction), &corrections.level[2]));
    TRY(mem_new(space->count, sizeof *tried, &tried));
    for (size_t i = 0; i < finder->plans; i++) correct(&corrections, &finder->plan[i]);
    double best = finder->found.best[0].time.step_s;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        TRY(refine_round(finder, &rounds[i], &corrections, tried, &best));
    return OK;
}

/* ---- alternatives ---- */

static bool is_other(const Finder *finder, const SearchLayout *l, SearchOther other) {
    bool parts = mesh_extent(l->mesh, AXIS_CP) > 1, data = mesh_ranks(l->mesh, AXES_MODEL) == 1 && !parts;
    switch (other) {
    case OTHER_DDP: return data && l->zero == 0;
    case OTHER_FSDP: return data && l->zero == 3;
    case OTHER_DATA: return data;
    case OTHER_TENSOR: return l->mesh.pp == 1 && l->mesh.tp > 1;
    case OTHER_PIPELINE: return l->mesh.tp == 1 && l->mesh.pp > 1;
    case OTHER_WIDE: return l->mesh.tp > finder->cluster->devices_per_node;
    case OTHER_WHOLE: return !parts && finder->space.parts;
    case OTHER_HEADS: return parts && l->cp_mode == CONTEXT_HEADS;
    case OTHER_GATHER: return parts && l->cp_mode == CONTEXT_GATHER;
    case OTHER_RING: return parts && l->cp_mode == CONTEXT_RING;
    case OTHER_BOTH: return parts && l->cp_mode == CONTEXT_BOTH;
    case OTHER_TOGETHER: return mesh_experts(l->mesh) == 1 && finder->space.divided;
    case OTHER_NO_RECOMPUTE: return l->recompute == RECOMPUTE_NONE;
    case OTHER_1F1B: return l->mesh.pp > 1 && l->schedule == SCHEDULE_1F1B;
    default: return false;
    }
}

/* Of two alternatives of a kind: the faster one that fits, otherwise the smaller one. */
static bool is_better(const SearchResult *a, const SearchResult *b) {
    if (a->fits != b->fits) return a->fits;
    return a->fits ? a->time.step_s < b->time.step_s : a->bytes < b->bytes;
}

/* The best planned layout of this kind; NULL if none was planned. */
static SearchResult *best_other(const Finder *finder, SearchOther other) {
    SearchResult *best = NULL;
    for (size_t i = 0; i < finder->plans; i++) {
        SearchResult *plan = &finder->plan[i];
        if (is_other(finder, &plan->layout, other) && (!best || is_better(plan, best))) best = plan;
    }
    return best;
}

/* Plans the fastest few layouts of a kind by estimate and, if none of them fits, the smallest one. */
static Status plan_other(Finder *finder, SearchOther other) {
    const SearchSpace *space = &finder->space;
    const SearchLayout *least = NULL;
    const SearchResult *result;
    int tried = 0;
    for (size_t i = 0; i < space->count && tried < OTHER_TRIES; i++) {
        const SearchLayout *layout = &space->layout[i];
        if (!is_other(finder, layout, other)) continue;
        if (!least || layout->bytes < least->bytes) least = layout;
        if (fit_margin * layout->bytes > finder->found.available) continue;
        TRY(plan_full(finder, layout, &result));
        tried++;
    }
    result = best_other(finder, other);
    return least && (!result || !result->fits) ? plan_full(finder, least, &result) : OK;
}

/* The fastest layout by estimate of those that do not fit; NULL if there is none. */
static const SearchLayout *fastest_large(const Finder *finder) {
    for (size_t i = 0; i < finder->space.count; i++)
        if (finder->space.layout[i].bytes > finder->found.available) return &finder->space.layout[i];
    return NULL;
}

static Status plan_others(Finder *finder) {
    const SearchLayout *large = fastest_large(finder);
    const SearchResult *result;
    for (SearchOther other = 0; other < OTHER_LARGE; other++)
        if (!finder->found.count || !is_other(finder, &finder->found.best[0].layout, other))
            TRY(plan_other(finder, other));
    return large ? plan_full(finder, large, &result) : OK;
}

/* Plans a result again with all stages in full. */
static Status confirm(const Finder *finder, SearchResult *result) {
    return result->sketched ? plan_layout(finder, &result->layout, false, result) : OK;
}

/* Confirms everything that is reported. A layout that does not fit after all makes room for the next. */
static Status confirm_all(Finder *finder) {
    Search *found = &finder->found;
    for (int i = 0; i < found->count;) {
        TRY(confirm(finder, &finder->plan[i])); /* of which found->best are the first */
        bool moved = !finder->plan[i].fits;
        if (!moved) i++;
        keep_best(finder);
        if (!moved && finder->spec->plans) break; /* only the best matters */
    }
    return found->count ? OK : confirm(finder, &found->smallest);
}

/* Chooses the alternatives once all layouts are planned, so that none of these is faster. */
static Status choose_others(Finder *finder) {
    Search *found = &finder->found;
    const SearchResult *best = found->count ? &found->best[0] : NULL, *plan;
    for (SearchOther other = 0; other < OTHER_LARGE; other++) {
        SearchResult *chosen = NULL;
        if (best && is_other(finder, &best->layout, other)) continue;
        while ((chosen = best_other(finder, other)) && chosen->sketched) TRY(confirm(finder, chosen));
        found->has_other[other] = chosen != NULL;
        if (chosen) found->other[other] = *chosen;
    }
    const SearchLayout *large = fastest_large(finder);
    if (!large || !best) return OK;
    TRY(plan_full(finder, large, &plan));
    found->other[OTHER_LARGE] = *plan;
    TRY(confirm(finder, &found->other[OTHER_LARGE]));
    found->has_other[OTHER_LARGE] =
        !found->other[OTHER_LARGE].fits && found->other[OTHER_LARGE].time.step_s < best->time.step_s;
    return OK;
}

/* Removes alternatives that equal the best layout or an earlier alternative. */
static void drop_duplicates(Search *found) {
    for (int i = 0; found->count && i < OTHER_COUNT; i++)
        if (same(&found->other[i].layout, &found->best[0].layout)) found->has_other[i] = false;
    for (int i = 0; i < OTHER_COUNT; i++)
        for (int k = 0; k < i; k++)
            if (found->has_other[i] && found->has_other[k] &&
                same(&found->other[i].layout, &found->other[k].layout))
                found->has_other[i] = false;
}

static Status refuse_tensor(int ranks, const ModelConfig *c) {
    char groups[96] = "";
    if (config_grouped(c))
        snprintf(groups, sizeof groups, ", and divide its %lld key-value heads or be a multiple of them",
                 (long long)config_kv_heads(c));
    return USAGE("{ranks} %d: no valid layout: {tp} must divide the model's %lld heads and its feed-forward "
                 "size %lld%s",
                 ranks, (long long)c->heads, (long long)c->inner, groups);
}

static Status refuse_experts(int ranks, const ModelConfig *c, int ep) {
    char text[DIVISORS_TEXT];
    if (!c->experts) return USAGE("{ep} %d: the model has no experts; drop {ep}", ep);
    if (c->experts % ep) {
        int most = mesh_experts_fit((MeshSpec){.dp = ranks, .ep = (int)c->experts}); /* divides both */
        return USAGE("{ep} %d does not divide the model's %lld experts; valid values: %s", ep,
                     (long long)c->experts, format_divisors(text, most, most));
    }
    return USAGE("{ranks} %d: no valid layout in which {ep} %d divides {dp} x {cp}", ranks, ep);
}

static Status refuse_space(const Finder *finder) {
    const SearchGrids *grids = &finder->found.grids;
    const Settings *c = &finder->spec->base.config;
    int ranks = finder->spec->ranks;
    char given[MESH_TEXT];
    if (!grids->all)
        return USAGE("{ranks} %d is not a multiple of the given %s", ranks,
                     mesh_join(finder->spec->base.mesh, finder->spec->axes, " x ", given));
    if (finder->spec->fixed & FIXED_EXPERTS && finder->spec->base.mesh.ep > 1)
        return refuse_experts(ranks, &finder->found.model, finder->spec->base.mesh.ep);
    if (grids->by_heads == grids->all) return refuse_tensor(ranks, &finder->found.model);
    if (grids->by_batch)
        return USAGE(
            "{ranks} %d: no valid layout for a batch of %lld sequences, which cannot be split evenly across "
            "replicas and micro-batches; use a larger {batch}, such as %d",
            ranks, (long long)c->training.batch, ranks);
    return USAGE("{ranks} %d: no valid layout for this number of layers (%lld) and heads (%lld)", ranks,
                 (long long)finder->found.model.layers, (long long)finder->found.model.heads);
}

void search_done(Search *search) {
    free(search->plan);
    *search = (Search){0};
}

Status search_find(Search *ret_search, const SearchSpec *spec, const Cluster *cluster) {
    CLEANUP(finder_done) Finder finder = {.spec = spec, .cluster = cluster};
    TRY(find_model(&finder));
    Search *found = &finder.found;
    TRY(search_space_init(&finder.space, spec, &found->model, found->seq));
    found->grids = finder.space.grids;
    if (!finder.space.count) return refuse_space(&finder);
    TRY(search_costs_init(&finder.costs, spec, cluster, finder.model, found->seq));
    plan_progress_note(spec->base.progress, "%d devices: estimating %zu layouts", spec->ranks,
                       finder.space.count);
    TRY(estimate_all(&finder));
    plan_progress_note(spec->base.progress, "%d devices: best of %zu layouts", spec->ranks,
                       finder.space.count);
    TRY(plan_best(&finder));
    if (!spec->plans) TRY(plan_grids(&finder));
    keep_best(&finder);
    if (!spec->plans) TRY(climb(&finder));
    if (!spec->plans) TRY(plan_others(&finder)); /* one may turn out faster than its estimate */
    if (!spec->plans) TRY(refine(&finder));
    keep_best(&finder);
    TRY(confirm_all(&finder));
    if (!spec->plans) TRY(choose_others(&finder));
    drop_duplicates(found);
    *ret_search = *found;
    ret_search->plan = finder.plan;
    finder.plan = NULL;
    return OK;
}
