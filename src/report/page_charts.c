/* Throughput and memory of every run as bars, and one against the other. */
#include <math.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/page_plot.h"
#include "report/spread.h"

enum { MAX_BARS = 40, TEXT_SIZE = 2 * FORMAT_SIZE };

/* Storage for one chart: a series and its point per run. */
typedef struct Chart {
    Series *series;
    double *values; /* x, y and spread of each run */
    char (*texts)[TEXT_SIZE];
} Chart;

static void chart_done(Chart *chart) {
    free(chart->series);
    free(chart->values);
    free(chart->texts);
}

static Status chart_init(Chart *ret_chart, size_t runs) {
    CLEANUP(chart_done) Chart chart = {0};
    TRY(mem_new(runs, sizeof *chart.series, &chart.series));
    TRY(mem_new(3 * runs, sizeof *chart.values, &chart.values));
    TRY(mem_new(runs, sizeof *chart.texts, &chart.texts));
    *ret_chart = chart;
    chart = (Chart){0};
    return OK;
}

static bool has_figure(const Run *run, FigureId figure) {
    return run->state == RUN_FINISHED && isfinite(run_figure(run, figure)) && run_figure(run, figure) > 0;
}

static bool is_gray(const Run *run, FigureId figure) {
    return figure_is_timed(figure) && run_contended(run);
}

static Status put_bars(FILE *out, const Results *results, FigureId figure, Chart *chart, Figures *drawn) {
    bool memory = figure == FIGURE_PEAK;
    char spread[FORMAT_SIZE], value[FORMAT_SIZE];
    Plot plot = {.kind = PLOT_BARS,
                 .name = memory ? "memory" : "throughput",
                 .x_label = memory ? "peak memory per rank" : "tokens/s",
                 .series = chart->series,
                 .y_format = memory ? AXIS_BYTES : AXIS_COUNTS};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double *at = chart->values + 3 * i;
        if (!has_figure(run, figure)) continue;
        at[1] = run_figure(run, figure);
        at[2] = run_spread(run, figure);
        spread_text(spread, run, figure, true);
        snprintf(chart->texts[i], TEXT_SIZE, "%s%s%s", figure_text(value, figures[figure].unit, at[1]),
                 *spread ? " " : "", spread);
        chart->series[plot.count++] = (Series){.label = run->name,
                                               .x = at,
                                               .y = at + 1,
                                               .spread = at + 2,
                                               .text = chart->texts[i],
                                               .count = 1,
                                               .color = is_gray(run, figure) ? PLOT_GRAY : 0};
    }
    return put_plot(out, &plot, memory ? "Peak memory" : "Throughput",
                    memory                            ? "highest of all ranks"
                    : results_spread(results, figure) ? "tokens/s; whiskers: 95% confidence interval"
                                                      : "tokens/s",
                    drawn);
}

/* Up and to the left is better. */
static Status put_against(FILE *out, const Results *results, Chart *chart, Figures *drawn) {
    Plot plot = {.kind = PLOT_POINTS,
                 .name = "memory-throughput",
                 .x_label = "peak memory per rank",
                 .y_label = "tokens/s",
                 .series = chart->series,
                 .x_format = AXIS_BYTES,
                 .y_format = AXIS_COUNTS,
                 .from_zero = true};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double *at = chart->values + 3 * i;
        if (!has_figure(run, FIGURE_TOKENS) || !has_figure(run, FIGURE_PEAK)) continue;
        at[0] = run_figure(run, FIGURE_PEAK);
        at[1] = run_figure(run, FIGURE_TOKENS);
        at[2] = run_spread(run, FIGURE_TOKENS);
        chart->series[plot.count++] = (Series){.label = run->name,
                                               .x = at,
                                               .y = at + 1,
                                               .spread = isfinite(at[2]) ? at + 2 : NULL,
                                               .count = 1,
                                               .color = is_gray(run, FIGURE_TOKENS) ? PLOT_GRAY : 0,
                                               .points = true};
    }
    if (plot.count < 2) return OK;
    return put_plot(out, &plot, "Throughput by memory", "better: up and to the left", drawn);
}

/* Models of different sizes differ in both, whatever their layout. */
Status put_charts(FILE *out, const Results *results, Figures *drawn) {
    CLEANUP(chart_done) Chart chart = {0};
    size_t known = 0;
    bool gray = false;
    for (size_t i = 0; i < results->count; i++) {
        known += has_figure(&results->runs[i], FIGURE_TOKENS);
        gray |= has_figure(&results->runs[i], FIGURE_TOKENS) && is_gray(&results->runs[i], FIGURE_TOKENS);
    }
    if (known < 2 || known > MAX_BARS || results_differ(results, run_params)) return OK;
    TRY(chart_init(&chart, results->count));
    char lead[96];
    snprintf(lead, sizeof lead, "Gray: %s took the cores, so the throughput is unreliable.",
             results_takers(results, false));
    put_section(out, "Speed and memory", gray ? lead : NULL);
    fputs("<div class=\"plots\">\n", out);
    TRY(put_bars(out, results, FIGURE_TOKENS, &chart, drawn));
    TRY(put_bars(out, results, FIGURE_PEAK, &chart, drawn));
    TRY(put_against(out, results, &chart, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}
