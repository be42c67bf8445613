/* The page of a scaling sweep: curves, cost against speed, and the fastest layout of every size. */
#include <math.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/page.h"
#include "report/page_plan.h"
#include "report/sweep_panels.h"

typedef struct SweepPage {
    const PlanFacts *facts;
    const Sweep *sweep;
} SweepPage;

static const char *const leads[SCALING_COUNT] = {"The batch stays the same.",
                                                 "The batch grows with the devices."};

static double tokens_of(const SweepPoint *point) {
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

static void put_summary(FILE *out, const SweepPage *page) {
    const Sweep *sweep = page->sweep;
    const SweepPoint *strong = last_fit(sweep, SCALING_STRONG), *weak = last_fit(sweep, SCALING_WEAK);
    char text[FORMAT_SIZE], number[FORMAT_SIZE + 16], name[64], detail[64];
    fputs("<section class=\"verdict\">\n<p>", out);
    if (!strong && !weak) fputs("No layout fits at any size.", out);
    if (strong)
        fprintf(out, "With a fixed batch, %d devices reach %.0f%% efficiency. ", strong->ranks,
                100 * strong->efficiency);
    if (weak)
        fprintf(out, "With a batch that grows, %d devices reach %.0f%% efficiency at %s tokens/s.",
                weak->ranks, 100 * weak->efficiency, format_count(text, tokens_of(weak)));
    fputs("</p>\n<div class=\"tiles\">\n", out);
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        const SweepPoint *point = s == SCALING_STRONG ? strong : weak;
        if (!point) continue;
        snprintf(number, sizeof number, "%s tokens/s", format_count(text, tokens_of(point)));
        snprintf(name, sizeof name, "%d devices, batch %lld", point->ranks, (long long)point->batch);
        snprintf(detail, sizeof detail, "MFU %.1f%%", 100 * point->plan.time.mfu);
        put_tile(out, s == SCALING_STRONG ? "Strong scaling" : "Weak scaling", number, name, detail);
    }
    fputs("</div>\n</section>\n", out);
}

/* ---- plots ---- */

static const char *const details[SWEEP_PANELS] = {"tokens/s; dashed: linear scaling",
                                                  "throughput per device relative to the first size", "",
                                                  "of the fastest layout"};

/* Cost of a million tokens against speed, a point per size. */
static Status put_cost(FILE *out, const SweepPage *page, Figures *drawn) {
    const Sweep *sweep = page->sweep;
    CLEANUP(mem_freep) double *values = NULL;
    CLEANUP(mem_freep) const char **names = NULL;
    CLEANUP(mem_freep) char(*texts)[48] = NULL;
    Series series[SCALING_COUNT];
    size_t each = (size_t)sweep->count, at = 0;
    Plot plot = {.kind = PLOT_LINES,
                 .name = "speed-cost",
                 .x_label = "tokens/s",
                 .y_label = "cost of a million tokens",
                 .series = series,
                 .x_format = AXIS_COUNTS,
                 .from_zero = true};
    if (!(page->facts->price > 0)) return OK;
    TRY(mem_new(2 * SCALING_COUNT * each, sizeof *values, &values));
    TRY(mem_new(SCALING_COUNT * each, sizeof *names, &names));
    TRY(mem_new(SCALING_COUNT * each, sizeof *texts, &texts));
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        Series *line = &series[plot.count++];
        *line = (Series){.label = s == SCALING_WEAK ? "weak scaling" : "strong scaling",
                         .x = values + 2 * each * s,
                         .y = values + 2 * each * s + each,
                         .names = names + at,
                         .color = (int)s,
                         .width = 2,
                         .points = true};
        for (int i = 0; i < sweep->count; i++) {
            const SweepPoint *point = &sweep->point[s][i];
            if (!point->fits) continue;
            values[2 * each * s + line->count] = tokens_of(point);
            values[2 * each * s + each + line->count++] =
                plan_cost(page->facts, point->ranks, tokens_of(point));
            snprintf(texts[at], sizeof texts[at], "%d devices, %s scaling", point->ranks, scaling_name(s));
            names[at] = texts[at];
            at++;
        }
    }
    return put_plot(out, &plot, "Speed and cost", "right and down is better", drawn);
}

static Status put_plots(FILE *out, const SweepPage *page, Figures *drawn) {
    put_section(
        out, "Scaling",
        any_failures(page->sweep)
            ? "The fastest layout at each number of devices. Throughput includes the time lost to failures."
            : "The fastest layout at each number of devices.");
    fputs("<div class=\"plots\">\n", out);
    for (int i = 0; i < SWEEP_PANELS; i++) {
        CLEANUP(sweep_panel_done) SweepPanel panel = {0};
        TRY(sweep_panel_init(&panel, page->sweep, i));
        TRY(put_plot(out, &panel.plot, panel.title, details[i], drawn));
    }
    TRY(put_cost(out, page, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}

/* ---- tables ---- */

static void put_point(FILE *out, const SweepPage *page, const SweepPoint *point, bool failures) {
    const SearchResult *r = &point->plan;
    char grid[LAYOUT_TEXT], rest[LAYOUT_TEXT], text[FORMAT_SIZE], step[32];
    double cost = plan_cost(page->facts, point->ranks, tokens_of(point));
    fprintf(out, "<tr><th scope=\"row\">%d device%s", point->ranks, PLURAL(point->ranks));
    if (!point->fits) {
        fputs("</th><td class=\"wide failed\" colspan=\"9\">", out);
        put_html(out, point->why);
        fputs("</td></tr>\n", out);
        return;
    }
    fprintf(out, "<small>%s, %s</small>", layout_grid(&r->layout, grid), layout_rest(&r->layout, rest));
    fprintf(out,
            "</th><td data-label=\"batch\">%lld</td><td data-label=\"step\">%s</td><td "
            "data-label=\"tokens/s\">%s</td><td data-label=\"efficiency\">%.1f%%</td><td "
            "data-label=\"MFU\">%.1f%%</td><td data-label=\"bubble\">%.1f%%</td><td "
            "data-label=\"memory\">%s</td>",
            (long long)point->batch, time_text(r->time.step_s, step),
            format_count(text, r->time.tokens_per_s), 100 * point->efficiency, 100 * r->time.mfu,
            100 * r->time.bubble, format_bytes(grid, (double)r->bytes));
    if (failures) fprintf(out, "<td data-label=\"goodput\">%.1f%%</td>", 100 * point->goodput);
    if (isfinite(cost))
        fprintf(out, "<td data-label=\"cost/M tokens\">%s</td>", figure_text(text, FIGURE_FORMAT_COST, cost));
    fputs("</tr>\n", out);
}

static void put_points(FILE *out, const SweepPage *page, Scaling scaling) {
    static const char *const columns[] = {"batch", "step",   "tokens/s", "efficiency",
                                          "MFU",   "bubble", "memory"};
    bool failures = any_failures(page->sweep);
    put_section(out, scaling == SCALING_WEAK ? "Weak scaling" : "Strong scaling", leads[scaling]);
    fputs("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">size and layout</th>",
          out);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        fprintf(out, "<th scope=\"col\">%s</th>", columns[i]);
    if (failures) fputs("<th scope=\"col\">goodput</th>", out);
    if (page->facts->price > 0) fputs("<th scope=\"col\">cost/M tokens</th>", out);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < page->sweep->count; i++)
        put_point(out, page, &page->sweep->point[scaling][i], failures);
    fputs("</tbody></table></div>\n</section>\n", out);
}

static Status put_sweep_page(FILE *out, const void *data, Figures *drawn) {
    const SweepPage *page = data;
    put_plan_head(out, "Scaling sweep", page->facts);
    put_summary(out, page);
    TRY(put_plots(out, page, drawn));
    for (Scaling s = 0; s < SCALING_COUNT; s++) put_points(out, page, s);
    page_end(out, drawn);
    return OK;
}

Status page_write_sweep(const PlanFacts *facts, const Sweep *sweep, const char *path, bool *ret_curves) {
    return page_save(path, put_sweep_page, &(SweepPage){facts, sweep}, ret_curves);
}
