/* Curves of all runs laid over each other. The first is a whole line and later ones have ever longer gaps, so
 * that those that coincide are all seen. Where runs differ in their batch, also throughput and memory against
 * it. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/page.h"
#include "report/plot.h"

enum { TOKENS = 2, PEAK = 6 };

/* The <figure> of a plot. */
static Status put_plot(FILE *out, const Plot *plot, const char *caption, bool *curves) {
    CLEANUP(mem_freep) char *svg = NULL;
    if (!plot->count) return OK;
    TRY(plot_svg(plot, &svg));
    if (svg)
        fprintf(out, "<figure><figcaption>%s</figcaption>\n%s</figure>\n", caption, svg);
    else
        *curves = false;
    return OK;
}

/* One curve of one run. */
static void add_curve(Plot *plot, Series *series, const Results *results, size_t at, const Curve *curve) {
    if (curve->count < 2) return;
    series[plot->count++] = (Series){.x = curve->step,
                                     .y = curve->value,
                                     .count = curve->count,
                                     .color = run_color(results, &results->runs[at]),
                                     .width = 2.5,
                                     .gap = 6 * (double)at};
}

static Status put_losses(FILE *out, const Results *results, Series *series, bool *curves) {
    Plot plot = {.name = "loss", .x_label = "step", .y_label = "loss", .series = series};
    for (size_t i = 0; i < results->count; i++) add_curve(&plot, series, results, i, &results->runs[i].loss);
    TRY(put_plot(out, &plot, "Training loss", curves));
    plot.count = 0;
    plot.name = "validation";
    for (size_t i = 0; i < results->count; i++)
        add_curve(&plot, series, results, i, &results->runs[i].val_loss);
    return put_plot(out, &plot, "Validation loss", curves);
}

/* ---- against the batch ---- */

static double batch_of(const Run *run) {
    const json_t *batch = json_object_get(json_object_get(run->summary, "layout"), "batch");
    return json_is_number(batch) ? json_number_value(batch) : NAN;
}

/* Whether two runs differ in their batch alone. */
static bool same_but_batch(const Run *a, const Run *b) {
    static const char *const keys[] = {"dp",      "tp",        "pp",        "zero",
                                       "offload", "recompute", "precision", "device"};
    const json_t *one = json_object_get(a->summary, "layout"), *two = json_object_get(b->summary, "layout");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(one, keys[i]), json_object_get(two, keys[i]))) return false;
    return json_equal(json_object_get(a->summary, "params_total"),
                      json_object_get(b->summary, "params_total"));
}

/* The points of the runs that are like the first of them, by batch; 0 where that was done before. */
static size_t gather(const Results *results, size_t first, size_t figure, double *x, double *y) {
    size_t count = 0;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double batch = batch_of(run), value = run_figure(run, figure);
        if (!isfinite(batch) || !isfinite(value) || !same_but_batch(run, &results->runs[first])) continue;
        if (i < first) return 0;
        size_t at = count++;
        for (; at > 0 && x[at - 1] > batch; at--) {
            x[at] = x[at - 1];
            y[at] = y[at - 1];
        }
        x[at] = batch;
        y[at] = value;
    }
    return count > 1 && x[0] < x[count - 1] ? count : 0;
}

static Status put_by_batch(FILE *out, const Results *results, size_t figure, Series *series, bool *curves) {
    CLEANUP(mem_freep) double *points = NULL;
    size_t n = results->count;
    TRY(mem_new(2 * n * n, sizeof *points, &points));
    bool memory = figure == PEAK;
    Plot plot = {.name = memory ? "memory" : "throughput",
                 .x_label = "batch",
                 .y_label = memory ? "memory" : "tokens/s",
                 .series = series,
                 .bytes = memory,
                 .from_zero = true};
    for (size_t i = 0; i < n; i++) {
        double *x = points + 2 * n * i, *y = x + n;
        size_t count = gather(results, i, figure, x, y);
        if (count)
            series[plot.count++] = (Series){.x = x,
                                            .y = y,
                                            .count = count,
                                            .color = run_color(results, &results->runs[i]),
                                            .width = 2,
                                            .points = true};
    }
    return put_plot(out, &plot,
                    memory ? "Memory of a rank by batch, in the color of a layout's first run"
                           : "Throughput by batch, in the color of a layout's first run",
                    curves);
}

static Status put_figures(FILE *out, const Results *results, bool *curves) {
    CLEANUP(mem_freep) Series *series = NULL;
    TRY(mem_new(results->count + 1, sizeof *series, &series));
    TRY(put_losses(out, results, series, curves));
    TRY(put_by_batch(out, results, TOKENS, series, curves));
    return put_by_batch(out, results, PEAK, series, curves);
}

Status put_curves(FILE *out, const Results *results, bool *curves) {
    fputs("<section><h2>Curves</h2>\n<div class=\"legend\">", out);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!run->loss.count) continue;
        fprintf(out, "<span><span class=\"swatch\" style=\"background:%s\"></span>", run_color(results, run));
        put_html(out, run->name);
        fputs("</span>", out);
    }
    fputs("</div>\n<div class=\"plots\">\n", out);
    TRY(put_figures(out, results, curves));
    fputs("</div>\n", out);
    fprintf(out, "<p class=\"note\">%s</p></section>\n",
            *curves ? "Runs that learn the same lie over each other: one line in several colors."
                    : "Curves are drawn by gnuplot, which is not installed where this page was made.");
    return OK;
}
