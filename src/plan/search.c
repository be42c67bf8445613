#include "plan/search.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "plan/fit.h"
#include "plan/search_cost.h"
#include "plan/search_space.h"

enum {
    WHOLE_PLANS = 40, /* that fit, of which the best are shown */
    WHOLE_TRIES = 2,  /* as many times that are tried, those that turn out not to fit among them */
    OTHER_TRIES = 6,  /* of one kind */
    LAST_TRIES = 100, /* of the smallest, where none fits */
    CLIMBS = 3,       /* layouts that are looked around from... */
    CLIMB_ROUNDS = 4, /* ...as long as that finds better ones, but no longer */
    MOST_GRIDS = 64,  /* that are each tried */
};
/* Estimates of memory are off by a few percent: who is so near is looked at. A few are off by more: before it
 * is said that none fits, all that are within reach have been planned. */
static const double near = 0.94, reach = 0.6;

typedef struct Finder {
    const SearchSpec *spec;
    const Cluster *cluster;
    SearchSpace space;
    SearchCosts costs;
    Model *model;
    Search found;
    SearchResult *plan; /* those planned as wholes so far */
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

/* What model it is: a plan of one rank knows. */
static Status settle_model(Finder *finder) {
    CLEANUP(plan_done) Plan plan = {0};
    PlanSpec spec = finder->spec->base;
    spec.mesh = (MeshSpec){.dp = 1, .tp = 1, .pp = 1};
    spec.memory_only = true;
    spec.config.batch = spec.config.micro_batch = 1;
    spec.config.zero = 0;
    spec.config.sequence = false;
    spec.config.pp_schedule = "1f1b";
    spec.config.pp_chunks = 0;
    TRY(plan_init(&plan, &spec));
    finder->found.model = plan.model;
    finder->found.seq = plan.seq;
    finder->found.params_total = plan.params_total;
    finder->found.available = finder->cluster->memory_bytes - finder->cluster->reserve_bytes;
    return model_new(&finder->model, &plan.model);
}

static Status estimate_all(Finder *finder) {
    SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    for (size_t i = 0; i < space->count; i++) {
        TRY(search_estimate(&finder->costs, &space->layout[i]));
        found->roomy += space->layout[i].bytes <= found->available;
    }
    found->legal = space->count;
    found->grids = space->grids;
    qsort(space->layout, space->count, sizeof *space->layout, by_seconds);
    return OK;
}

/* ---- whole plans ---- */

static bool same(const SearchLayout *a, const SearchLayout *b) {
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->zero == b->zero &&
           a->chunks == b->chunks && a->sequence == b->sequence && a->schedule == b->schedule &&
           a->recompute == b->recompute && a->micro_batch == b->micro_batch;
}

static Status plan_whole(Finder *finder, const SearchLayout *layout, const SearchResult **ret_plan) {
    CLEANUP(plan_done) Plan plan = {0};
    for (size_t i = 0; i < finder->plans; i++)
        if (same(&finder->plan[i].layout, layout)) {
            *ret_plan = &finder->plan[i];
            return OK;
        }
    PlanSpec spec = search_plan_spec(finder->spec, layout);
    spec.timed = spec.sketch = true;
    TRY(plan_init(&plan, &spec));
    SearchResult whole = {.layout = *layout, .bytes = plan.stage[plan.fullest].memory.saving};
    whole.fits = fit_fits(&plan, finder->cluster);
    TRY(plan_time(&plan, finder->cluster, &whole.time));
    TRY(mem_grow(&finder->plan, &finder->capacity, finder->plans + 1, sizeof *finder->plan));
    finder->plan[finder->plans] = whole;
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

/* The smallest ones, until one fits or none is within reach. */
static Status plan_smallest(Finder *finder) {
    SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    const SearchResult *whole = NULL;
    qsort(space->layout, space->count, sizeof *space->layout, by_bytes);
    found->sure = true;
    for (size_t i = 0; i < space->count; i++) {
        bool near_enough = i < OTHER_TRIES || reach * space->layout[i].bytes <= found->available;
        if (!near_enough) break;
        if (i == LAST_TRIES) {
            found->sure = false;
            break;
        }
        TRY(plan_whole(finder, &space->layout[i], &whole));
        if (!i || whole->bytes < found->smallest.bytes) found->smallest = *whole;
        if (whole->fits) break;
    }
    qsort(space->layout, space->count, sizeof *space->layout, by_seconds);
    return OK;
}

static Status plan_best(Finder *finder) {
    const SearchSpace *space = &finder->space;
    Search *found = &finder->found;
    int fitting = 0, tried = 0, wanted = finder->spec->plans ? finder->spec->plans : WHOLE_PLANS;
    for (size_t i = 0; i < space->count && fitting < wanted && tried < WHOLE_TRIES * wanted; i++) {
        const SearchLayout *layout = &space->layout[i];
        const SearchResult *whole;
        if (near * layout->bytes > found->available) continue;
        TRY(plan_whole(finder, layout, &whole));
        fitting += whole->fits;
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

/* ---- where estimates mislead ---- */

static bool same_grid(const SearchLayout *a, const SearchLayout *b) {
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp;
}

/* Each grid's most promising layout: an estimate may be wrong about all of a grid's. */
static Status plan_grids(Finder *finder) {
    const SearchSpace *space = &finder->space;
    const SearchResult *whole;
    SearchLayout seen[MOST_GRIDS];
    int grids = 0;
    for (size_t i = 0; i < space->count && grids < MOST_GRIDS; i++) {
        const SearchLayout *layout = &space->layout[i];
        int k = 0;
        while (k < grids && !same_grid(&seen[k], layout)) k++;
        if (k < grids || near * layout->bytes > finder->found.available) continue;
        seen[grids++] = *layout;
        TRY(plan_whole(finder, layout, &whole));
    }
    return OK;
}

/* One step from each other: the same grid, and one thing that is different. */
static bool is_neighbour(const SearchLayout *a, const SearchLayout *b) {
    int apart = (a->zero != b->zero) + (a->sequence != b->sequence) + (a->recompute != b->recompute) +
                (a->micro_batch != b->micro_batch) + (a->schedule != b->schedule || a->chunks != b->chunks);
    return apart == 1 && same_grid(a, b);
}

/* Plans what lies around the best few, and around what is better there. */
static Status climb(Finder *finder) {
    const SearchSpace *space = &finder->space;
    const SearchResult *whole;
    for (int round = 0; round < CLIMB_ROUNDS; round++) {
        SearchLayout from[CLIMBS];
        int count = finder->found.count < CLIMBS ? finder->found.count : CLIMBS;
        size_t before = finder->plans;
        for (int k = 0; k < count; k++) from[k] = finder->found.best[k].layout;
        for (int k = 0; k < count; k++)
            for (size_t i = 0; i < space->count; i++)
                if (is_neighbour(&from[k], &space->layout[i]) &&
                    near * space->layout[i].bytes <= finder->found.available)
                    TRY(plan_whole(finder, &space->layout[i], &whole));
        if (finder->plans == before) break;
        keep_best(finder);
    }
    return OK;
}

/* ---- others ---- */

static bool is_other(const Finder *finder, const SearchLayout *l, SearchOther other) {
    bool data = l->tp == 1 && l->pp == 1;
    switch (other) {
    case OTHER_DDP: return data && l->zero == 0;
    case OTHER_FSDP: return data && l->zero == 3;
    case OTHER_DATA: return data;
    case OTHER_TENSOR: return l->pp == 1 && l->tp > 1;
    case OTHER_PIPELINE: return l->tp == 1 && l->pp > 1;
    case OTHER_WIDE: return l->tp > finder->cluster->devices_per_node;
    case OTHER_NO_RECOMPUTE: return l->recompute == RECOMPUTE_NONE;
    case OTHER_1F1B: return l->pp > 1 && l->schedule == SCHEDULE_1F1B;
    default: return false;
    }
}

/* The fastest of the kind that was planned and fits. */
static const SearchResult *fastest_other(const Finder *finder, SearchOther other) {
    const SearchResult *fastest = NULL;
    for (size_t i = 0; i < finder->plans; i++) {
        const SearchResult *plan = &finder->plan[i];
        if (!plan->fits || !is_other(finder, &plan->layout, other)) continue;
        if (!fastest || plan->time.step_s < fastest->time.step_s) fastest = plan;
    }
    return fastest;
}

/* Plans the most promising few of a kind; where none of it fits, the one that needs least. */
static Status plan_others(Finder *finder, SearchOther other, const SearchLayout **ret_least) {
    const SearchSpace *space = &finder->space;
    const SearchResult *whole;
    int tried = 0;
    for (size_t i = 0; i < space->count && tried < OTHER_TRIES; i++) {
        const SearchLayout *layout = &space->layout[i];
        if (!is_other(finder, layout, other)) continue;
        if (!*ret_least || layout->bytes < (*ret_least)->bytes) *ret_least = layout;
        if (near * layout->bytes > finder->found.available) continue;
        TRY(plan_whole(finder, layout, &whole));
        tried++;
    }
    return OK;
}

static Status find_other(Finder *finder, SearchOther other) {
    Search *found = &finder->found;
    const SearchLayout *least = NULL;
    if (found->count && is_other(finder, &found->best[0].layout, other)) return OK;
    TRY(plan_others(finder, other, &least));
    const SearchResult *plan = fastest_other(finder, other);
    if (!least) return OK;
    if (!plan) TRY(plan_whole(finder, least, &plan));
    found->other[other] = *plan;
    found->has_other[other] = true;
    return OK;
}

/* The most promising of those too large, where it would be faster. */
static Status find_large(Finder *finder) {
    Search *found = &finder->found;
    for (size_t i = 0; i < finder->space.count; i++) {
        const SearchLayout *layout = &finder->space.layout[i];
        const SearchResult *plan;
        if (layout->bytes <= found->available) continue;
        TRY(plan_whole(finder, layout, &plan));
        found->other[OTHER_LARGE] = *plan;
        found->has_other[OTHER_LARGE] =
            !plan->fits && found->count && plan->time.step_s < found->best[0].time.step_s;
        break;
    }
    return OK;
}

/* One that is told of already is not told of again. */
static void drop_twins(Search *found) {
    for (int i = 0; found->count && i < OTHER_COUNT; i++)
        if (same(&found->other[i].layout, &found->best[0].layout)) found->has_other[i] = false;
    for (int i = 0; i < OTHER_COUNT; i++)
        for (int k = 0; k < i; k++)
            if (found->has_other[i] && found->has_other[k] &&
                same(&found->other[i].layout, &found->other[k].layout))
                found->has_other[i] = false;
}

static Status refuse_space(const Finder *finder) {
    const SearchGrids *grids = &finder->found.grids;
    const TrainConfig *c = &finder->spec->base.config;
    int ranks = finder->spec->ranks;
    if (!grids->all) return USAGE("--ranks %d: is not a multiple of the --dp x --tp x --pp given", ranks);
    if (grids->by_heads == grids->all)
        return USAGE("--ranks %d: no layout is legal: %lld heads and an inner width of %lld do not divide "
                     "over the tensor ranks given",
                     ranks, (long long)finder->found.model.heads, (long long)finder->found.model.inner);
    if (grids->by_batch)
        return USAGE("--ranks %d: no layout is legal for a batch of %lld sequences: it does not divide over "
                     "replicas and micro-batches; use a larger --batch, such as %d",
                     ranks, (long long)c->batch, ranks);
    return USAGE("--ranks %d: no layout of this model of %lld layers and %lld heads makes so many ranks",
                 ranks, (long long)finder->found.model.layers, (long long)finder->found.model.heads);
}

Status search_find(Search *ret_search, const SearchSpec *spec, const Cluster *cluster) {
    CLEANUP(finder_done) Finder finder = {.spec = spec, .cluster = cluster};
    TRY(settle_model(&finder));
    Search *found = &finder.found;
    TRY(search_space_init(&finder.space, spec, &found->model, found->seq));
    found->grids = finder.space.grids;
    if (!finder.space.count) return refuse_space(&finder);
    TRY(search_costs_init(&finder.costs, spec, cluster, finder.model, found->seq));
    TRY(estimate_all(&finder));
    TRY(plan_best(&finder));
    if (!spec->plans) TRY(plan_grids(&finder));
    keep_best(&finder);
    if (!spec->plans) TRY(climb(&finder));
    for (SearchOther other = 0; !spec->plans && other < OTHER_LARGE; other++) TRY(find_other(&finder, other));
    if (!spec->plans) TRY(find_large(&finder));
    keep_best(&finder); /* one of the others may be better than its estimate */
    drop_twins(found);
    *ret_search = *found;
    return OK;
}
