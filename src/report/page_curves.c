/* Loss curves: against tokens, where runs with the same training coincide and share a curve, against time,
 * where they differ, and the difference of each run from the first. */
#include <math.h>

#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/page_plot.h"
#include "report/plot_layout.h"
#include "report/spread.h"

#define COINCIDENT     1e-3 /* largest relative difference of curves that are drawn as one */
#define MIN_DIFFERENCE 1e-9 /* lower bound for the logarithmic axis; smaller differences are rounding */

/* Storage for the curves of one plot: for each run, x and y of as many points as its curve has. */
typedef struct Curves {
    Series *series;
    double **values;
    char **labels;
    size_t runs;
} Curves;

static void curves_done(Curves *curves) {
    for (size_t i = 0; curves->values && i < curves->runs; i++) free(curves->values[i]);
    for (size_t i = 0; curves->labels && i < curves->runs; i++) free(curves->labels[i]);
    free(curves->values);
    free(curves->labels);
    free(curves->series);
}

static Status curves_init(Curves *ret_curves, size_t runs) {
    CLEANUP(curves_done) Curves curves = {.runs = runs};
    TRY(mem_new(runs, sizeof *curves.series, &curves.series));
    TRY(mem_new(runs, sizeof *curves.values, &curves.values));
    TRY(mem_new(runs, sizeof *curves.labels, &curves.labels));
    *ret_curves = curves;
    curves = (Curves){0};
    return OK;
}

static bool has_loss(const Run *run) {
    return run->loss.count > 1;
}

/* ---- which curves coincide ---- */

static bool coincide(const Run *a, const Run *b) {
    return has_loss(a) && has_loss(b) && same_training(a, b) &&
           curve_difference(&a->loss, &b->loss) <= COINCIDENT;
}

/* The first run whose curve the run shares; the run itself if there is none before it. */
static size_t first_like(const Results *results, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (coincide(&results->runs[i], &results->runs[at])) return i;
    return at;
}

/* "DDP", "DDP, ZeRO-3", "all 5 runs". */
static Status label_of(const Results *results, size_t at, char **ret_label) {
    size_t known = 0, like = 0, other = at;
    for (size_t i = 0; i < results->count; i++) {
        if (!has_loss(&results->runs[i])) continue;
        known++;
        if (first_like(results, i) != at) continue;
        like++;
        if (i != at && other == at) other = i;
    }
    const char *name = results->runs[at].name;
    if (like == 1) return str_dup(name, ret_label);
    if (like == known) return str_format(ret_label, "all %zu runs", like);
    if (like == 2) return str_format(ret_label, "%s, %s", name, results->runs[other].name);
    CLEANUP(mem_freep) char *shortened = NULL;
    TRY(plot_shorten(name, 16, &shortened));
    return str_format(ret_label, "%s and %zu more", shortened, like - 1);
}

/* ---- what a loss is drawn against ---- */

typedef enum { BY_TOKENS, BY_TIME } Abscissa;

/* Tokens or seconds at a step; NAN: unknown. */
static double x_at(const Run *run, Abscissa by, double step) {
    return step == 0 ? 0 : curve_at(by == BY_TOKENS ? &run->tokens : &run->elapsed, step);
}

/* `at`: index of the run, which also decides its color and dash pattern in all plots. */
static Status add_curve(Plot *plot, Curves *curves, size_t at, const Run *run, const Curve *curve,
                        Abscissa by) {
    size_t count = 0;
    if (curve->count < 2) return OK;
    free(curves->values[at]);
    curves->values[at] = NULL;
    TRY(mem_new(2 * curve->count, sizeof **curves->values, &curves->values[at]));
    double *x = curves->values[at], *y = x + curve->count;
    for (size_t i = 0; i < curve->count; i++) {
        double own = x_at(run, by, curve->step[i]);
        if (!isfinite(own)) continue;
        x[count] = own;
        y[count++] = curve->value[i];
    }
    if (count < 2) return OK;
    Series *series = &curves->series[plot->count++];
    *series = (Series){.label = curves->labels[at], .x = x, .y = y, .count = count, .width = 2};
    series_style(series, at);
    return OK;
}

static Status put_by_tokens(FILE *out, const Results *results, Curves *curves, bool validation,
                            Figures *drawn) {
    Plot plot = {.name = validation ? "validation-loss" : "loss-tokens",
                 .x_label = "tokens",
                 .y_label = validation ? "validation loss" : "training loss",
                 .series = curves->series,
                 .x_format = AXIS_COUNTS};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!has_loss(run) || first_like(results, i) != i) continue;
        free(curves->labels[i]);
        curves->labels[i] = NULL;
        TRY(label_of(results, i, &curves->labels[i]));
        TRY(add_curve(&plot, curves, i, run, validation ? &run->val_loss : &run->loss, BY_TOKENS));
    }
    return put_plot(out, &plot, validation ? "Validation loss" : "Training loss", "by tokens", drawn);
}

static Status put_by_time(FILE *out, const Results *results, Curves *curves, Figures *drawn) {
    Plot plot = {.name = "loss-time",
                 .x_label = "seconds since the start",
                 .y_label = "training loss",
                 .series = curves->series};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i], *shown = run_shown(run); /* not a repeat that was disturbed */
        if (!has_loss(shown)) continue;
        free(curves->labels[i]);
        curves->labels[i] = NULL;
        TRY(str_format(&curves->labels[i], "%s%s", run->name, run_contended(run) ? " (contention)" : ""));
        TRY(add_curve(&plot, curves, i, shown, &shown->loss, BY_TIME));
    }
    return put_plot(out, &plot, "Training loss", "by time", drawn);
}

/* ---- difference from the first run ---- */

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

static Status put_differences(FILE *out, const Results *results, Curves *curves, Figures *drawn) {
    Plot plot = {.name = "loss-difference",
                 .x_label = "step",
                 .y_label = "relative difference",
                 .series = curves->series,
                 .y_format = AXIS_POWERS};
    const Run *first = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        size_t count = 0;
        if (!has_loss(run)) continue;
        if (!first) {
            first = run;
            continue;
        }
        if (!same_training(run, first)) continue;
        free(curves->values[i]);
        curves->values[i] = NULL;
        TRY(find_differences(first, run, &curves->values[i], &count));
        if (count < 2) continue;
        Series *series = &curves->series[plot.count++];
        *series = (Series){.label = run->name,
                           .x = curves->values[i],
                           .y = curves->values[i] + run->loss.count,
                           .count = count,
                           .width = 1.3};
        series_style(series, i);
    }
    return put_plot(out, &plot, "Loss difference from the first run", "relative; at least 1e-9", drawn);
}

Status put_losses(FILE *out, const Results *results, Figures *drawn) {
    CLEANUP(curves_done) Curves curves = {0};
    bool any = false, shared = false;
    for (size_t i = 0; i < results->count; i++) {
        any |= has_loss(&results->runs[i]);
        shared |= first_like(results, i) != i;
    }
    if (!any) return OK;
    TRY(curves_init(&curves, results->count));
    put_section(out, "Loss",
                shared ? "Runs whose losses agree within 0.1% at every step share a curve." : NULL);
    fputs("<div class=\"plots\">\n", out);
    TRY(put_by_tokens(out, results, &curves, false, drawn));
    TRY(put_by_time(out, results, &curves, drawn));
    TRY(put_by_tokens(out, results, &curves, true, drawn));
    TRY(put_differences(out, results, &curves, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}
