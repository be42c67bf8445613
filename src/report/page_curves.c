/* Loss curves of all runs in one plot, and the difference of each from the first. The first curve is solid
 * and later ones have increasingly long gaps, so that curves that coincide all remain visible. */
#include <math.h>

#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/page_plot.h"

static bool has_loss(const Run *run) {
    return run->loss.count > 1;
}

Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *detail, bool *curves) {
    CLEANUP(mem_freep) char *svg = NULL;
    if (!plot->count) return OK;
    TRY(plot_svg(plot, &svg));
    if (svg)
        fprintf(out, "<figure><figcaption>%s<small>%s</small></figcaption>\n%s</figure>\n", caption, detail,
                svg);
    else
        *curves = false;
    return OK;
}

static void add_curve(Plot *plot, Series *series, const Results *results, size_t at, const Curve *curve) {
    if (curve->count < 2) return;
    series[plot->count++] = (Series){.x = curve->step,
                                     .y = curve->value,
                                     .count = curve->count,
                                     .color = run_color(results, &results->runs[at]),
                                     .width = 2.5,
                                     .gap = 6 * (double)at};
}

/* ---- difference from the first run ---- */

/* Lower bound for the logarithmic axis; smaller differences are rounding. */
#define MIN_DIFFERENCE 1e-9

/* *ret_values has space for the run's steps followed by the differences; the first *ret_count of each are
 * set. */
static Status find_differences(const Run *first, const Run *run, double **ret_values, size_t *ret_count) {
    CLEANUP(mem_freep) double *values = NULL;
    size_t count = 0, steps = run->loss.count;
    TRY(mem_new(2 * steps, sizeof *values, &values));
    for (size_t i = 0; i < steps; i++) {
        double own = run->loss.value[i], other = curve_at(&first->loss, run->loss.step[i]);
        double difference = fabs(own - other) / fabs(other);
        if (!isfinite(difference)) continue;
        values[count] = run->loss.step[i];
        values[steps + count++] = fmax(difference, MIN_DIFFERENCE);
    }
    *ret_values = values;
    *ret_count = count;
    values = NULL;
    return OK;
}

static Status put_differences(FILE *out, const Results *results, Series *series, double **values,
                              bool *curves) {
    Plot plot = {.name = "difference", .x_label = "step", .series = series, .y_format = AXIS_POWERS};
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
        TRY(find_differences(first, run, &values[i], &count));
        if (count < 2) continue;
        series[plot.count++] = (Series){.x = values[i],
                                        .y = values[i] + run->loss.count,
                                        .count = count,
                                        .color = run_color(results, run),
                                        .width = 1.8};
    }
    return put_plot(out, &plot, "Loss difference from the first run", "relative", curves);
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
    return put_differences(out, results, series, values, curves);
}

Status put_losses(FILE *out, const Results *results, bool *curves) {
    CLEANUP(mem_freep) Series *series = NULL;
    double **values = NULL;
    bool any = false;
    for (size_t i = 0; i < results->count; i++) any |= has_loss(&results->runs[i]);
    if (!any) return OK;
    put_section(out, "Loss",
                results->count > 1
                    ? "Identical curves overlap and appear as one line with dashes in several colors."
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
