/* Runs a small search (plan/search.h) for every number of devices, once with a fixed and once with a growing
 * batch. */
#include "plan/sweep.h"

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "plan/search_space.h"

enum { MAX_SIZES = 256, MAX_RANKS = 1 << 20, PLANS_PER_SIZE = 12 };

const char *scaling_name(Scaling scaling) {
    static const char *const names[SCALING_COUNT] = {"strong", "weak"};
    return names[scaling];
}

/* ---- sizes ---- */

typedef struct Sizes {
    int *ranks;
    size_t count, capacity;
} Sizes;

static Status add_size(Sizes *sizes, int64_t ranks, const char *text) {
    if (sizes->count && ranks <= sizes->ranks[sizes->count - 1])
        return USAGE("{sweep} '%s': device counts must be in ascending order, but %lld is out of order", text,
                     (long long)ranks);
    if (sizes->count == MAX_SIZES) return USAGE("{sweep}: at most %d device counts are supported", MAX_SIZES);
    TRY(mem_grow(&sizes->ranks, &sizes->capacity, sizes->count + 1, sizeof *sizes->ranks));
    sizes->ranks[sizes->count++] = (int)ranks;
    return OK;
}

static Status parse_sizes(Sizes *sizes, const char *text) {
    bool dots = false;
    for (const char *at = text;;) {
        if (!dots && sizes->count && !strncmp(at, "...,", 4)) {
            dots = true;
            at += 4;
            continue;
        }
        char *end;
        errno = 0;
        long long ranks = strtoll(at, &end, 10);
        if (end == at || errno || ranks < 1 || ranks > MAX_RANKS || (*end && *end != ','))
            return USAGE("{sweep} '%s': expected device counts from 1 to %d, such as 1,2,4,...,1024", text,
                         MAX_RANKS);
        for (int64_t next; dots && (next = 2 * (int64_t)sizes->ranks[sizes->count - 1]) < ranks;)
            TRY(add_size(sizes, next, text));
        dots = false;
        TRY(add_size(sizes, ranks, text));
        if (!*end) return OK;
        at = end + 1;
    }
}

Status sweep_parse(const char *text, int **ret_ranks, int *ret_count) {
    Sizes sizes = {0};
    Status status = parse_sizes(&sizes, text);
    if (status) free(sizes.ranks);
    TRY(status);
    *ret_ranks = sizes.ranks;
    *ret_count = (int)sizes.count;
    return OK;
}

/* ---- points ---- */

void sweep_done(Sweep *sweep) {
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        for (int i = 0; sweep->point[s] && i < sweep->count; i++) free(sweep->point[s][i].why);
        free(sweep->point[s]);
    }
    *sweep = (Sweep){0};
}

/* Usage errors, such as no valid layout for this number of devices, become a point without a plan. */
static Status find_point(Sweep *sweep, SweepPoint *point, const SearchSpec *base, const Cluster *cluster) {
    SearchSpec spec = *base;
    CLEANUP(mem_freep) Search *search = NULL;
    CLEANUP(status_freep) Status status = OK;
    spec.ranks = point->ranks;
    spec.base.config.training.batch = point->batch;
    spec.plans = PLANS_PER_SIZE;
    point->goodput = 1;
    TRY(mem_new(1, sizeof *search, &search));
    status = search_find(search, &spec, cluster);
    free(search->plan);
    if (status && status_exit_code(status) == STATUS_USAGE)
        return str_dup(status_message(status), &point->why);
    if (status) return FAILED("%s", status_message(status));
    sweep->model = search->model;
    sweep->seq = search->seq;
    sweep->params_total = search->params_total;
    if (!search->count) return str_dup("no layout fits in memory", &point->why);
    point->fits = true;
    point->plan = search->best[0];
    return OK;
}

/* Tokens/s per device. */
static double rate_of(const SweepPoint *point) {
    return point->plan.time.tokens_per_s / point->ranks;
}

static void find_efficiency(SweepPoint *point, int count) {
    int first = 0;
    while (first < count && !point[first].fits) first++;
    for (int i = first; i < count; i++)
        if (point[i].fits) point[i].efficiency = rate_of(&point[i]) / rate_of(&point[first]);
}

/* The first point is the same for strong and weak scaling. */
static Status copy_point(SweepPoint *to, const SweepPoint *from) {
    *to = *from;
    to->why = NULL;
    return from->why ? str_dup(from->why, &to->why) : OK;
}

Status sweep_find(Sweep *ret_sweep, const SearchSpec *spec, const Cluster *cluster, const int *ranks,
                  int count) {
    CLEANUP(sweep_done) Sweep sweep = {.count = count};
    int64_t batch = spec->base.config.training.batch;
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        TRY(mem_new((size_t)count, sizeof **sweep.point, &sweep.point[s]));
        for (int i = 0; i < count; i++) {
            SweepPoint *point = &sweep.point[s][i];
            if (s == SCALING_WEAK && i == 0) {
                TRY(copy_point(point, &sweep.point[SCALING_STRONG][0]));
                continue;
            }
            point->ranks = ranks[i];
            point->batch = s == SCALING_WEAK ? batch * ranks[i] / ranks[0] : batch;
            TRY(find_point(&sweep, point, spec, cluster));
        }
        find_efficiency(sweep.point[s], count);
    }
    if (!sweep.params_total) return USAGE("%s", sweep.point[0][0].why);
    return MOVE(ret_sweep, sweep);
}

/* ---- JSON ---- */

static json_t *point_json(const SweepPoint *point) {
    char options[SEARCH_OPTIONS];
    const StepEstimate *time = &point->plan.time;
    if (!point->fits)
        return json_pack("{s:i, s:I, s:b, s:s}", "ranks", point->ranks, "batch", (json_int_t)point->batch,
                         "fits", 0, "why", point->why);
    return json_pack("{s:i, s:I, s:b, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks", point->ranks,
                     "batch", (json_int_t)point->batch, "fits", 1, "options",
                     search_options(&point->plan.layout, options), "memory", (json_int_t)point->plan.bytes,
                     "step_ms", 1e3 * time->step_s, "samples_per_s", time->samples_per_s, "tokens_per_s",
                     time->tokens_per_s, "mfu", time->mfu, "bubble", time->bubble, "efficiency",
                     point->efficiency, "goodput", point->goodput);
}

Status sweep_json(const Sweep *sweep, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        json_t *list = json_array();
        for (int i = 0; i < sweep->count; i++) json_array_append_new(list, point_json(&sweep->point[s][i]));
        if (json_object_set_new(json, scaling_name(s), list) != 0)
            return FAILED("out of memory while writing the sweep");
    }
    *ret_json = json_incref(json);
    return OK;
}
