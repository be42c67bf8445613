/* The page of a scaling sweep: curves, cost against speed, and the fastest layout of every size. */
#include <math.h>

#include "base/format.h"
#include "report/page.h"
#include "report/page_plan.h"

typedef struct SweepPage {
    const PlanFacts *facts;
    const Sweep *sweep;
} SweepPage;

static const char *const leads[SCALING_COUNT] = {"The batch stays the same.",
                                                 "The batch grows with the devices."};

static double rate_of(const SweepPoint *point) {
    return point->goodput * point->plan.time.tokens_per_s;
}

/* ---- summary ---- */

static const SweepPoint *last_fit(const Sweep *sweep, Scaling scaling) {
    for (int i = sweep->count; i-- > 0;)
        if (sweep->point[scaling][i].fits) return &sweep->point[scaling][i];
    return NULL;
}

static bool any_failures(const Sweep *sweep) {
    for (Scaling s = 0; s < SCALING_COUNT; s++)
        for (int i = 0; i < sweep->count; i++)
            if (sweep->point[s][i].goodput < 1) return true;
    return false;
}

static void put_summary(Page *page, const SweepPage *plan) {
    const Sweep *sweep = plan->sweep;
    const SweepPoint *strong = last_fit(sweep, SCALING_STRONG), *weak = last_fit(sweep, SCALING_WEAK);
    char text[FORMAT_SIZE], number[FORMAT_SIZE + 16], name[64], detail[64];
    page_verdict(page);
    if (!strong && !weak) page_put(page, "No layout fits at any size.");
    if (strong)
        page_put(page, "With a fixed batch, %d devices reach %.0f%% efficiency. ", strong->ranks,
                 100 * strong->efficiency);
    if (weak)
        page_put(page, "With a batch that grows, %d devices reach %.0f%% efficiency at %s tokens/s.",
                 weak->ranks, 100 * weak->efficiency, format_count(text, rate_of(weak)));
    page_put(page, "</p>\n");
    page_group(page, "tiles");
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        const SweepPoint *point = s == SCALING_STRONG ? strong : weak;
        if (!point) continue;
        snprintf(number, sizeof number, "%s tokens/s", format_count(text, rate_of(point)));
        snprintf(name, sizeof name, "%d devices, batch %lld", point->ranks, (long long)point->batch);
        snprintf(detail, sizeof detail, "MFU %.1f%%", 100 * point->plan.time.mfu);
        put_tile(page, s == SCALING_STRONG ? "Strong scaling" : "Weak scaling", number, name, detail);
    }
}

/* ---- plots ---- */

static double efficiency_of(const SweepPoint *point) {
    return 100 * point->efficiency;
}
static double mfu_of(const SweepPoint *point) {
    return 100 * point->plan.time.mfu;
}
static double memory_of(const SweepPoint *point) {
    return (double)point->plan.bytes;
}

static const struct {
    const char *name, *label, *title, *detail;
    double (*value)(const SweepPoint *point);
    AxisFormat format;
} panels[SWEEP_PANELS] = {
    {"tokens", "tokens/s", "Throughput", "tokens/s; dashed: linear scaling", rate_of, AXIS_POWERS},
    {"efficiency", "scaling efficiency", "Efficiency", "throughput per device relative to the first size",
     efficiency_of, AXIS_PERCENT},
    {"mfu", "model FLOPs utilization", "MFU", "", mfu_of, AXIS_PERCENT},
    {"memory", "memory per device", "Memory", "of the fastest layout", memory_of, AXIS_BYTES},
};

static Status add_scaling(Plot *plot, Scaling scaling) {
    return plot_series(plot, (Series){.label = scaling == SCALING_WEAK ? "weak scaling" : "strong scaling",
                                      .color = (int)scaling,
                                      .width = 2,
                                      .dots = true});
}

/* Linear scaling from the first point of the last series. */
static Status add_ideal(Plot *plot) {
    const Series *real = &plot->series[plot->count - 1];
    if (!real->count) return OK;
    PlotPoint first = real->points[0], last = real->points[real->count - 1];
    TRY(plot_series(plot, (Series){.label = "ideal", .color = COLOR_GRAY, .width = 1, .gap = 6}));
    TRY(plot_point(plot, first.x, first.y, NAN, NULL));
    return plot_point(plot, last.x, first.y * last.x / first.x, NAN, NULL);
}

Status sweep_plot(const Sweep *sweep, int index, Plot *ret_plot) {
    AxisFormat format = panels[index].format;
    CLEANUP(plot_done)
    Plot plot = {.name = panels[index].name,
                 .x_label = "devices",
                 .y_label = panels[index].label,
                 .x_format = AXIS_WHOLE,
                 .y_format = format,
                 .x_log = true,
                 .from_zero = format != AXIS_POWERS,
                 .at_points = true};
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        TRY(add_scaling(&plot, s));
        for (int i = 0; i < sweep->count; i++) {
            const SweepPoint *point = &sweep->point[s][i];
            if (point->fits) TRY(plot_point(&plot, point->ranks, panels[index].value(point), NAN, NULL));
        }
    }
    if (format == AXIS_POWERS) TRY(add_ideal(&plot));
    *ret_plot = plot;
    plot = (Plot){0};
    return OK;
}

/* Cost of a million tokens against speed, a point per size. */
static Status put_cost(Page *page, const SweepPage *plan) {
    const Sweep *sweep = plan->sweep;
    CLEANUP(plot_done)
    Plot plot = {.name = "speed-cost",
                 .x_label = "tokens/s",
                 .y_label = "cost of a million tokens",
                 .x_format = AXIS_COUNTS,
                 .from_zero = true};
    if (!(plan->facts->price > 0)) return OK;
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        TRY(add_scaling(&plot, s));
        for (int i = 0; i < sweep->count; i++) {
            const SweepPoint *point = &sweep->point[s][i];
            char name[48];
            if (!point->fits) continue;
            snprintf(name, sizeof name, "%d devices, %s scaling", point->ranks, scaling_name(s));
            TRY(plot_point(&plot, rate_of(point), plan_cost(plan->facts, point->ranks, rate_of(point)), NAN,
                           name));
        }
    }
    return put_plot(page, &plot, "Speed and cost", "right and down is better");
}

static Status put_plots(Page *page, const SweepPage *plan) {
    page_section(
        page, "Scaling",
        any_failures(plan->sweep)
            ? "The fastest layout at each number of devices. Throughput includes the time lost to failures."
            : "The fastest layout at each number of devices.");
    page_group(page, "plots");
    for (int i = 0; i < SWEEP_PANELS; i++) {
        CLEANUP(plot_done) Plot plot = {0};
        TRY(sweep_plot(plan->sweep, i, &plot));
        TRY(put_plot(page, &plot, panels[i].title, panels[i].detail));
    }
    return put_cost(page, plan);
}

/* ---- tables ---- */

static void put_point(Page *page, const SweepPage *plan, const SweepPoint *point, bool failures) {
    char grid[LAYOUT_TEXT], rest[LAYOUT_TEXT];
    page_row(page, NULL);
    page_put(page, "%d device%s", point->ranks, PLURAL(point->ranks));
    if (!point->fits) {
        page_wide_cell(page, true, point->why);
        return;
    }
    page_put(page, "<small>%s, %s</small>", layout_grid(&point->plan.layout, grid),
             layout_rest(&point->plan.layout, rest));
    page_cell(page, "%lld", (long long)point->batch);
    page_cell(page, "%.1f%%", 100 * point->efficiency);
    put_plan_cells(page, &point->plan);
    if (failures) page_cell(page, "%.1f%%", 100 * point->goodput);
    put_cost_cell(page, plan_cost(plan->facts, point->ranks, rate_of(point)));
}

static void put_points(Page *page, const SweepPage *plan, Scaling scaling) {
    bool failures = any_failures(plan->sweep);
    page_section(page, scaling == SCALING_WEAK ? "Weak scaling" : "Strong scaling", leads[scaling]);
    page_table(page, NULL, "size and layout", "batch", "efficiency", PLAN_COLUMNS, failures ? "goodput" : "",
               plan->facts->price > 0 ? COST_COLUMN : "", NULL);
    for (int i = 0; i < plan->sweep->count; i++)
        put_point(page, plan, &plan->sweep->point[scaling][i], failures);
    page_table_end(page);
}

static Status put_sweep_page(Page *page, const void *data) {
    const SweepPage *plan = data;
    put_plan_head(page, "Scaling sweep", plan->facts);
    put_summary(page, plan);
    TRY(put_plots(page, plan));
    for (Scaling s = 0; s < SCALING_COUNT; s++) put_points(page, plan, s);
    page_end(page);
    return OK;
}

Status page_write_sweep(const PlanFacts *facts, const Sweep *sweep, const char *path) {
    return page_save(path, put_sweep_page, &(SweepPage){facts, sweep});
}
