/* Throughput and memory of every run as bars, and one against the other. */
#include <math.h>

#include "base/format.h"
#include "report/bars.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/spread.h"

enum { MAX_BARS = 40 };

static bool has_figure(const Run *run, FigureId figure) {
    return run->state == RUN_FINISHED && isfinite(run_figure(run, figure)) && run_figure(run, figure) > 0;
}

static bool is_gray(const Run *run, FigureId figure) {
    return figure_is_timed(figure) && run_contended(run);
}

const char *rate_detail(const Results *results) {
    return results_spread(results, FIGURE_TOKENS) ? "tokens/s; whiskers: 95% confidence interval"
                                                  : "tokens/s";
}

static Status put_figure(Page *page, const Results *results, FigureId figure) {
    static const BarCategory colors[] = {{"", 0}, {"", COLOR_GRAY}};
    bool memory = figure == FIGURE_PEAK;
    CLEANUP(bars_done)
    BarChart chart = {.name = memory ? "memory" : "throughput",
                      .x_label = memory ? "peak memory per rank" : "tokens/s",
                      .format = memory ? AXIS_BYTES : AXIS_COUNTS,
                      .categories = colors};
    results_foreach(results, run) {
        char spread[FORMAT_SIZE], value[FORMAT_SIZE];
        if (!has_figure(run, figure)) continue;
        TRY(bars_row(&chart,
                     (BarRow){.name = run->name,
                              .value = figure_text(value, figures[figure].unit, run_figure(run, figure)),
                              .value_detail = *spread_text(spread, run, figure, true) ? spread : NULL,
                              .spread = run_spread(run, figure)}));
        TRY(bars_add(&chart, is_gray(run, figure), run_figure(run, figure), NULL, NULL));
    }
    page_put(page, "<figure id=\"%s%s\"><figcaption>%s<small>%s</small></figcaption>\n", page_prefix(page),
             chart.name, memory ? "Peak memory" : "Throughput",
             memory ? "highest of all ranks" : rate_detail(results));
    TRY(put_bars(page, &chart));
    page_put(page, "</figure>\n");
    return OK;
}

/* Up and to the left is better. */
static Status put_against(Page *page, const Results *results) {
    CLEANUP(plot_done)
    Plot plot = {.kind = PLOT_POINTS,
                 .name = "memory-throughput",
                 .x_label = "peak memory per rank",
                 .y_label = "tokens/s",
                 .x_format = AXIS_BYTES,
                 .y_format = AXIS_COUNTS,
                 .from_zero = true};
    results_foreach(results, run) {
        if (!has_figure(run, FIGURE_TOKENS) || !has_figure(run, FIGURE_PEAK)) continue;
        TRY(plot_series(&plot,
                        (Series){.label = run->name, .color = is_gray(run, FIGURE_TOKENS) ? COLOR_GRAY : 0}));
        TRY(plot_point(&plot, run_figure(run, FIGURE_PEAK), run_figure(run, FIGURE_TOKENS),
                       run_spread(run, FIGURE_TOKENS), NULL));
    }
    if (plot.count < 2) return OK;
    return put_plot(page, &plot, "Throughput by memory", "better: up and to the left");
}

/* Models of different sizes differ in both, whatever their layout. */
Status put_charts(Page *page, const Results *results) {
    size_t known = 0;
    bool gray = false;
    results_foreach(results, run) {
        known += has_figure(run, FIGURE_TOKENS);
        gray |= has_figure(run, FIGURE_TOKENS) && is_gray(run, FIGURE_TOKENS);
    }
    if (known < 2 || known > MAX_BARS || results_differ(results, run_params)) return OK;
    char lead[96];
    Taken taken = results_taken(results, false);
    snprintf(lead, sizeof lead, "Gray: %s took the %s, so the throughput is unreliable.", taken.takers,
             taken.what);
    page_section(page, "Speed and memory", gray ? lead : NULL);
    page_group(page, "plots");
    TRY(put_figure(page, results, FIGURE_TOKENS));
    TRY(put_figure(page, results, FIGURE_PEAK));
    return put_against(page, results);
}
