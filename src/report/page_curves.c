/* Loss curves of all runs laid over each other, and how far each lies from the first. The first is a whole
 * line and later ones have ever longer gaps, so that those that coincide are all seen. */
#include <math.h>

#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/page_plot.h"

static bool has_loss(const Run *run) {
    return run->loss.count > 1;
}

Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *more, bool *curves) {
    CLEANUP(mem_freep) char *svg = NULL;
    if (!plot->count) return OK;
    TRY(plot_svg(plot, &svg));
    if (svg)
        fprintf(out, "<figure><figcaption>%s<small>%s</small></figcaption>\n%s</figure>\n", caption, more,
                svg);
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

/* ---- apart from the first ---- */

/* Below this nothing can be told from rounding, and a logarithm needs some number. */
#define LEAST_APART 1e-9

static Status apart_from(const Run *first, const Run *run, double **ret_values, size_t *ret_count) {
    CLEANUP(mem_freep) double *values = NULL; /* steps, then distances */
    size_t count = 0, most = run->loss.count;
    TRY(mem_new(2 * most, sizeof *values, &values));
    for (size_t i = 0; i < most; i++) {
        double own = run->loss.value[i], other = curve_at(&first->loss, run->loss.step[i]);
        double apart = fabs(own - other) / fabs(other);
        if (!isfinite(apart)) continue;
        values[count] = run->loss.step[i];
        values[most + count++] = fmax(apart, LEAST_APART);
    }
    *ret_values = values;
    *ret_count = count;
    values = NULL;
    return OK;
}

static Status put_apart(FILE *out, const Results *results, Series *series, double **values, bool *curves) {
    Plot plot = {.name = "apart", .x_label = "step", .series = series, .y_format = AXIS_POWERS};
    const Run *first = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!has_loss(run)) continue;
        if (!first) {
            first = run;
            continue;
        }
        size_t count = 0;
        if (!same_training(run, first)) continue;
        TRY(apart_from(first, run, &values[i], &count));
        if (count < 2) continue;
        series[plot.count++] = (Series){.x = values[i],
                                        .y = values[i] + run->loss.count,
                                        .count = count,
                                        .color = run_color(results, run),
                                        .width = 1.8};
    }
    return put_plot(out, &plot, "Apart from the first run", "training loss, relative", curves);
}

static Status put_all(FILE *out, const Results *results, Series *series, double **values, bool *curves) {
    Plot plot = {.name = "loss", .x_label = "step", .series = series};
    for (size_t i = 0; i < results->count; i++) add_curve(&plot, series, results, i, &results->runs[i].loss);
    TRY(put_plot(out, &plot, "Training loss", "", curves));
    plot.count = 0;
    plot.name = "validation";
    for (size_t i = 0; i < results->count; i++)
        add_curve(&plot, series, results, i, &results->runs[i].val_loss);
    TRY(put_plot(out, &plot, "Validation loss", "", curves));
    return put_apart(out, results, series, values, curves);
}

Status put_losses(FILE *out, const Results *results, bool *curves) {
    CLEANUP(mem_freep) Series *series = NULL;
    double **values = NULL;
    bool any = false;
    for (size_t i = 0; i < results->count; i++) any |= has_loss(&results->runs[i]);
    if (!any) return OK;
    put_section(out, "Learning",
                results->count > 1
                    ? "Runs that learn the same lie over each other: one line in several colors."
                    : NULL);
    put_runs_key(out, results, has_loss);
    fputs("<div class=\"plots\">\n", out);
    TRY(mem_new(results->count, sizeof *series, &series));
    TRY(mem_new(results->count, sizeof *values, &values));
    Status status = put_all(out, results, series, values, curves);
    for (size_t i = 0; i < results->count; i++) free(values[i]);
    free(values);
    fputs("</div>\n</section>\n", out);
    return status;
}
