/* Speed and cost of the planned layouts against their memory, with the Pareto front: the layouts that no
 * other one beats in both. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/page.h"
#include "report/page_plan.h"

/* Layouts over the limit are shown up to this multiple of it. */
static const double shown_over = 1.5;

static bool beats(const SearchResult *a, const SearchResult *b) {
    double faster = b->time.step_s - a->time.step_s, smaller = (double)b->bytes - (double)a->bytes;
    return a->fits && faster >= 0 && smaller >= 0 && (faster > 0 || smaller > 0);
}

bool on_front(const Search *search, const SearchResult *result) {
    for (size_t i = 0; i < search->planned; i++)
        if (beats(&search->plan[i], result)) return false;
    return true;
}

/* The series of a plot: layouts on the front, others that fit, and those that do not. */
typedef enum { SET_OTHER, SET_OVER, SET_FRONT, SET_LIMIT, SETS } PointSet;

typedef struct Points {
    double *x[SETS], *y[SETS];
    const char **names[SETS];
    char (*texts)[2 * LAYOUT_TEXT];
    size_t count[SETS];
} Points;

static void points_done(Points *points) {
    for (int g = 0; g < SETS; g++) {
        free(points->x[g]);
        free(points->y[g]);
        free(points->names[g]);
    }
    free(points->texts);
}

static Status points_init(Points *points, size_t count) {
    for (int g = 0; g < SETS; g++) {
        TRY(mem_new(count + 2, sizeof(double), &points->x[g]));
        TRY(mem_new(count + 2, sizeof(double), &points->y[g]));
        TRY(mem_new(count + 2, sizeof(char *), &points->names[g]));
    }
    return mem_new(count + 1, sizeof *points->texts, &points->texts);
}

static void add_point(Points *points, PointSet set, double x, double y, const char *name) {
    size_t at = points->count[set]++;
    /* The front is a line from left to right. */
    for (; set == SET_FRONT && at > 0 && points->x[set][at - 1] > x; at--) {
        points->x[set][at] = points->x[set][at - 1];
        points->y[set][at] = points->y[set][at - 1];
        points->names[set][at] = points->names[set][at - 1];
    }
    points->x[set][at] = x;
    points->y[set][at] = y;
    points->names[set][at] = name;
}

static Status collect(Points *points, const PlanFacts *facts, const Search *search, bool cost) {
    TRY(points_init(points, search->planned));
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < search->planned; i++) {
        const SearchResult *r = &search->plan[i];
        char grid[LAYOUT_TEXT], rest[LAYOUT_TEXT];
        if ((double)r->bytes > shown_over * search->available) continue;
        snprintf(points->texts[i], sizeof points->texts[i], "%s, %s", layout_grid(&r->layout, grid),
                 layout_rest(&r->layout, rest));
        double y = cost ? plan_cost(facts, facts->ranks, r->time.tokens_per_s) : r->time.tokens_per_s;
        PointSet set = !r->fits ? SET_OVER : on_front(search, r) ? SET_FRONT : SET_OTHER;
        add_point(points, set, (double)r->bytes, y, points->texts[i]);
        low = fmin(low, y);
        high = fmax(high, y);
    }
    if (!points->count[SET_OVER]) return OK;
    add_point(points, SET_LIMIT, search->available, cost ? low : 0, "available memory");
    add_point(points, SET_LIMIT, search->available, high, "available memory");
    return OK;
}

static const int set_colors[SETS] = {
    [SET_OTHER] = PLOT_GRAY, [SET_OVER] = 1, [SET_FRONT] = 0, [SET_LIMIT] = 1};

static const char *const set_groups[SETS] = {
    [SET_OTHER] = "no", [SET_OVER] = "does not fit", [SET_FRONT] = "yes"};

static Status put_one(FILE *out, const PlanFacts *facts, const Search *search, bool cost, Figures *drawn) {
    CLEANUP(points_done) Points points = {0};
    Series series[SETS];
    Plot plot = {.kind = PLOT_POINTS,
                 .name = cost ? "cost-memory" : "speed-memory",
                 .x_label = "memory per rank",
                 .y_label = cost ? "cost of a million tokens" : "tokens/s",
                 .series = series,
                 .x_format = AXIS_BYTES,
                 .y_format = cost ? AXIS_PLAIN : AXIS_COUNTS,
                 .from_zero = !cost,
                 .groups = "pareto_front"};
    TRY(collect(&points, facts, search, cost));
    for (int g = 0; g < SETS; g++)
        if (points.count[g])
            series[plot.count++] = (Series){.x = points.x[g],
                                            .y = points.y[g],
                                            .names = points.names[g],
                                            .group = set_groups[g],
                                            .count = points.count[g],
                                            .color = set_colors[g],
                                            .width = g == SET_FRONT   ? 1.6
                                                     : g == SET_LIMIT ? 1
                                                                      : 0,
                                            .gap = g == SET_LIMIT ? 6 : 0,
                                            .points = g != SET_LIMIT};
    return put_plot(out, &plot, cost ? "Cost and memory" : "Speed and memory",
                    cost ? "down and left is better" : "up and left is better", drawn);
}

Status put_plan_front(FILE *out, const PlanFacts *facts, const Search *search, Figures *drawn) {
    size_t over = 0;
    for (size_t i = 0; i < search->planned; i++) over += !search->plan[i].fits;
    put_section(
        out, facts->price > 0 ? "Speed, memory and cost" : "Speed and memory",
        "Every layout that was planned in full. On the Pareto front, a layout can be made faster only with "
        "more memory, and smaller only by being slower.");
    fputs("<div class=\"legend\">", out);
    put_key(out, "var(--c0)", "Pareto front");
    put_key(out, "var(--c7)", "other layouts that fit");
    if (over) put_key(out, "var(--c1)", "does not fit (dashed: available memory)");
    fputs("</div>\n<div class=\"plots\">\n", out);
    TRY(put_one(out, facts, search, false, drawn));
    if (facts->price > 0) TRY(put_one(out, facts, search, true, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}
