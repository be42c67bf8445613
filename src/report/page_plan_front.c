/* Speed and cost of the planned layouts against their memory, with the Pareto front: the layouts that no
 * other one beats in both. */
#include <math.h>

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

/* The series of a plot: other layouts that fit, those that do not, and those on the front. */
typedef enum { SET_OTHER, SET_OVER, SET_FRONT, SETS } PointSet;

static const Series looks[SETS] = {[SET_OTHER] = {.group = "no", .color = COLOR_GRAY},
                                   [SET_OVER] = {.group = "does not fit", .color = 1},
                                   [SET_FRONT] = {.group = "yes", .width = 1.6, .dots = true}};

static PointSet set_of(const Search *search, const SearchResult *result) {
    return !result->fits ? SET_OVER : on_front(search, result) ? SET_FRONT : SET_OTHER;
}

static double y_of(const PlanFacts *facts, const SearchResult *result, bool cost) {
    return cost ? plan_cost(facts, facts->ranks, result->time.tokens_per_s) : result->time.tokens_per_s;
}

static Status add_set(Plot *plot, PointSet set, const PlanFacts *facts, const Search *search, bool cost) {
    TRY(plot_series(plot, looks[set]));
    for (size_t i = 0; i < search->planned; i++) {
        const SearchResult *r = &search->plan[i];
        char grid[LAYOUT_TEXT], rest[LAYOUT_TEXT], name[2 * LAYOUT_TEXT];
        if (set_of(search, r) != set || (double)r->bytes > shown_over * search->available) continue;
        snprintf(name, sizeof name, "%s, %s", layout_grid(&r->layout, grid), layout_rest(&r->layout, rest));
        TRY(plot_point(plot, (double)r->bytes, y_of(facts, r, cost), NAN, name));
    }
    plot_require(plot, 1);
    return OK;
}

/* A vertical line at the memory that is available, if layouts are beyond it. */
static Status add_limit(Plot *plot, const Search *search, bool cost) {
    static const char name[] = "available memory";
    double low = INFINITY, high = 0;
    bool over = false;
    for (size_t s = 0; s < plot->count; s++) {
        over |= plot->series[s].color == looks[SET_OVER].color;
        for (size_t i = 0; i < plot->series[s].count; i++) {
            low = fmin(low, plot->series[s].points[i].y);
            high = fmax(high, plot->series[s].points[i].y);
        }
    }
    if (!over) return OK;
    TRY(plot_series(plot, (Series){.color = 1, .width = 1, .gap = 6}));
    TRY(plot_point(plot, search->available, cost ? low : 0, NAN, name));
    return plot_point(plot, search->available, high, NAN, name);
}

static Status put_one(Page *page, const PlanFacts *facts, const Search *search, bool cost) {
    CLEANUP(plot_done)
    Plot plot = {.kind = PLOT_POINTS,
                 .name = cost ? "cost-memory" : "speed-memory",
                 .x_label = "memory per rank",
                 .y_label = cost ? "cost of a million tokens" : "tokens/s",
                 .x_format = AXIS_BYTES,
                 .y_format = cost ? AXIS_PLAIN : AXIS_COUNTS,
                 .from_zero = !cost,
                 .sorted = true,
                 .groups = "pareto_front"};
    for (PointSet set = 0; set < SETS; set++) TRY(add_set(&plot, set, facts, search, cost));
    TRY(add_limit(&plot, search, cost));
    return put_plot(page, &plot, cost ? "Cost and memory" : "Speed and memory",
                    cost ? "down and left is better" : "up and left is better");
}

Status put_plan_front(Page *page, const PlanFacts *facts, const Search *search) {
    size_t over = 0;
    for (size_t i = 0; i < search->planned; i++) over += !search->plan[i].fits;
    page_section(
        page, facts->price > 0 ? "Speed, memory and cost" : "Speed and memory",
        "Every layout that was planned in full. On the Pareto front, a layout can be made faster only with "
        "more memory, and smaller only by being slower.");
    page_put(page, "<div class=\"legend\">");
    put_key(page, 0, "Pareto front");
    put_key(page, COLOR_GRAY, "other layouts that fit");
    if (over) put_key(page, 1, "does not fit (dashed: available memory)");
    page_put(page, "</div>\n");
    page_group(page, "plots");
    TRY(put_one(page, facts, search, false));
    if (facts->price > 0) TRY(put_one(page, facts, search, true));
    return OK;
}
