/* Searches on random models, devices and memory limits: a search finds nothing slower than any narrower
 * search, and reports for every layout what a plan of that layout says.
 *
 * WEFT_TEST_ALL=1 runs many cases. WEFT_TEST_SEED=N runs only case N. */
#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "base/rng.h"
#include "plan/fit.h"
#include "plan/search_space.h"

/* The first two cases have the most layouts, which takes long with the sanitizers. */
enum {
    FIRST_CASE = SANITIZED ? 2 : 0,
    CASES = SANITIZED ? 4 : 8,
    ALL_CASES = 300,
    MIXTURES_FROM = 1000, /* cases of mixtures of experts */
    MIXTURES = SANITIZED ? 1 : 2,
    ALL_MIXTURES = 50,
    NARROWER = SANITIZED ? 1 : 4
};

typedef struct Draws {
    RngKey key;
    uint64_t at;
} Draws;

static int draw(Draws *draws, int below) {
    return (int)(rng_u32(draws->key, draws->at++) % (uint32_t)below);
}

#define PICK(draws, array) (array)[draw(draws, (int)(sizeof(array) / sizeof *(array)))]

typedef struct Case {
    SearchSpec spec;
    Cluster cluster;
    char about[200];
} Case;

/* Models whose heads and layers allow many layouts, with a limit that some of them exceed. */
static void draw_case(Draws *draws, bool mixture, Case *c) {
    static const char *const models[] = {"gpt2", "bert-base", "llama-15m", "gpt2"};
    static const char *const clusters[] = {"h100", "dgx-a100", "cpu", "dgx2-v100", "h200"};
    static const int layers[] = {2, 4, 6, 8, 12, 15, 24}, ranks[] = {2, 4, 6, 8, 12, 16, 32, 64};
    static const int widths[] = {256, 512, 768, 1536, 3072}, per_rank[] = {1, 2, 3, 8};
    static const double limits[] = {0.3e9, 1e9, 3e9, 8e9, 20e9};
    const char *drawn = PICK(draws, models), *model = mixture ? "moe-1m" : drawn,
               *cluster = PICK(draws, clusters);
    int hidden = PICK(draws, widths);
    *c = (Case){.spec = {.ranks = PICK(draws, ranks)}};
    c->spec.base.config = (Settings){.model = {.name = model,
                                               .task = "auto",
                                               .layers = PICK(draws, layers),
                                               .hidden = hidden,
                                               .heads = hidden / 64,
                                               .seq = 256 << draw(draws, 2),
                                               .dropout = draw(draws, 2) ? -1 : 0},
                                     .data = {.format = "auto"},
                                     .training = {.batch = c->spec.ranks * PICK(draws, per_rank)},
                                     .run = {.keep_params = draw(draws, 4) == 0},
                                     .device = {.threads = 1}};
    if (mixture || !strcmp(model, "llama-15m")) c->spec.base.config.model.heads = 0;
    if (mixture || !strcmp(model, "llama-15m")) c->spec.base.config.model.hidden = 0;
    assert_ok(cluster_find(cluster, &c->cluster));
    double limit = PICK(draws, limits) * (mixture ? 0.1 : 1); /* it is small */
    c->cluster.memory_bytes = c->cluster.reserve_bytes + limit;
    assert_ok(fit_settle(&c->spec.base, &c->cluster));
    const Settings *s = &c->spec.base.config;
    snprintf(c->about, sizeof c->about,
             "%s, %lld layers of %lld, %lld tokens, batch %lld, %d on %s with %.2g GB", model,
             (long long)s->model.layers, (long long)s->model.hidden, (long long)s->model.seq,
             (long long)s->training.batch, c->spec.ranks, cluster, 1e-9 * limit);
}

/* Fixes a few settings to those of a layout. */
static SearchSpec narrow(Draws *draws, const SearchSpec *spec, const SearchLayout *layout) {
    static const unsigned bits[] = {FIXED_ZERO,     FIXED_SEQUENCE, FIXED_MICRO_BATCH,
                                    FIXED_SCHEDULE, FIXED_CHUNKS,   FIXED_RECOMPUTE};
    enum { BITS = sizeof bits / sizeof *bits };
    SearchSpec narrower = *spec;
    RunnerSpec *run = &narrower.base.config.run;
    for (int i = 1 + draw(draws, 5); i > 0; i--) {
        int which = draw(draws, AXIS_COUNT + BITS);
        if (which < AXIS_COUNT)
            narrower.axes |= AXIS_SET(which);
        else
            narrower.fixed |= bits[which - AXIS_COUNT];
    }
    if (spec->base.config.model.name[0] == 'm' && draw(draws, 2)) narrower.fixed |= FIXED_EXPERTS;
    if (layout->chunks == 1) narrower.fixed &= ~(unsigned)FIXED_CHUNKS;
    narrower.base.mesh = layout->mesh;
    run->zero = layout->zero;
    run->sequence = layout->sequence;
    run->micro_batch = layout->micro_batch;
    run->schedule = layout->schedule;
    run->chunks = layout->chunks;
    run->recompute = layout->recompute;
    return narrower;
}

/* What `weft plan` says of the layout. */
static void check_result(const Case *c, const SearchResult *result, const char *what) {
    Plan plan = {0};
    StepEstimate time;
    char options[SEARCH_OPTIONS];
    PlanSpec spec = search_plan_spec(&c->spec, &result->layout);
    spec.timed = true;
    search_options(&result->layout, options);
    assert_ok(plan_init(&plan, &spec));
    assert_ok(plan_time(&plan, &c->cluster, &time));
    if (plan.stage[plan.fullest].memory.needed != result->bytes)
        fail_msg("%s: %s %s: %zu bytes, planned %zu", c->about, what, options, result->bytes,
                 plan.stage[plan.fullest].memory.needed);
    if (time.step_s != result->time.step_s || time.mfu != result->time.mfu)
        fail_msg("%s: %s %s: %.9g s, planned %.9g", c->about, what, options, result->time.step_s,
                 time.step_s);
    assert_int_equal(fit_fits(&plan, &c->cluster), result->fits);
    plan_done(&plan);
}

static bool is_kind(const SearchLayout *l, SearchOther other) {
    switch (other) {
    case OTHER_TENSOR: return l->mesh.pp == 1 && l->mesh.tp > 1;
    case OTHER_PIPELINE: return l->mesh.tp == 1 && l->mesh.pp > 1;
    case OTHER_NO_RECOMPUTE: return l->recompute == RECOMPUTE_NONE;
    case OTHER_1F1B: return l->mesh.pp > 1 && l->schedule == SCHEDULE_1F1B;
    case OTHER_TOGETHER: return mesh_experts(l->mesh) == 1;
    default: return l->mesh.tp == 1 && l->mesh.pp == 1 && (other != OTHER_DDP || l->zero == 0);
    }
}

/* No planned layout is faster than the alternative of its kind. */
static void check_alternatives(const Case *c, const Search *search) {
    static const SearchOther kinds[] = {OTHER_DDP,          OTHER_DATA, OTHER_TENSOR,  OTHER_PIPELINE,
                                        OTHER_NO_RECOMPUTE, OTHER_1F1B, OTHER_TOGETHER};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const SearchResult *other = &search->other[kinds[k]];
        for (size_t i = 0; search->has_other[kinds[k]] && i < search->planned; i++) {
            const SearchResult *plan = &search->plan[i];
            char options[SEARCH_OPTIONS];
            if (!plan->fits || !is_kind(&plan->layout, kinds[k])) continue;
            if (!other->fits || plan->time.step_s < other->time.step_s)
                fail_msg("%s: %s takes %.9g s, '%s' %.9g s", c->about, search_options(&plan->layout, options),
                         plan->time.step_s, search_other_name(kinds[k]), other->time.step_s);
        }
    }
}

static void check_narrower(Draws *draws, const Case *c, const Search *full) {
    SearchSpace space = {0};
    assert_ok(search_space_init(&space, &c->spec, &full->model, full->seq));
    for (int i = 0; i < NARROWER; i++) {
        const SearchLayout *layout = &space.layout[draw(draws, (int)space.count)];
        SearchSpec spec = narrow(draws, &c->spec, layout);
        Search search = {0};
        char options[SEARCH_OPTIONS], best[SEARCH_OPTIONS] = "nothing";
        assert_ok(search_find(&search, &spec, &c->cluster));
        if (search.count && full->count) search_options(&full->best[0].layout, best);
        if (search.count && (!full->count || search.best[0].time.step_s < full->best[0].time.step_s))
            fail_msg("%s: found %s at %.9g s, but a narrower search %s at %.9g s", c->about, best,
                     full->count ? full->best[0].time.step_s : 0,
                     search_options(&search.best[0].layout, options), search.best[0].time.step_s);
        search_done(&search);
    }
    search_space_done(&space);
}

static void run_case(int number) {
    Draws draws = {.key = rng_key((uint64_t)number, "search", 0)};
    Case *c = calloc(1, sizeof *c);
    Search full = {0};
    assert_non_null(c);
    draw_case(&draws, number >= MIXTURES_FROM, c);
    Status status = search_find(&full, &c->spec, &c->cluster);
    if (!status) {
        for (int i = 0; i < full.count; i++) check_result(c, &full.best[i], "result");
        for (int i = 0; i < OTHER_COUNT; i++)
            if (full.has_other[i]) check_result(c, &full.other[i], "alternative");
        check_alternatives(c, &full);
        check_narrower(&draws, c, &full);
    } else {
        assert_int_equal(status_exit_code(status), STATUS_USAGE); /* no valid layout */
        status_free(status);
    }
    search_done(&full);
    free(c);
}

static void random_searches(void **state) {
    const char *one = getenv("WEFT_TEST_SEED");
    bool all = getenv("WEFT_TEST_ALL");
    int from = one ? atoi(one) : all ? 0 : FIRST_CASE, count = one ? 1 : all ? ALL_CASES : CASES;
    for (int i = from; i < from + count; i++) run_case(i);
    for (int i = 0; !one && i < (all ? ALL_MIXTURES : MIXTURES); i++) run_case(MIXTURES_FROM + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_searches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
