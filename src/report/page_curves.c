/* Loss curves: against tokens, where runs with the same training coincide and share a curve, against time,
 * where they differ, and the difference of each run from the first. */
#include <math.h>

#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/spread.h"

#define COINCIDENT     1e-3 /* largest relative difference of curves that are drawn as one */
#define MIN_DIFFERENCE 1e-9 /* lower bound for the logarithmic axis; smaller differences are rounding */

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
    TRY(text_shorten(name, 15, &shortened));
    return str_format(ret_label, "%s and %zu more", shortened, like - 1);
}

/* ---- what a loss is drawn against ---- */

typedef enum { BY_TOKENS, BY_TIME } Abscissa;

/* Tokens or seconds at a step; NAN: unknown. */
static double x_at(const Run *run, Abscissa by, double step) {
    return step == 0 ? 0 : curve_at(by == BY_TOKENS ? &run->tokens : &run->elapsed, step);
}

/* `at`: index of the run, which also decides its color and dash pattern in all plots. */
static Status add_curve(Plot *plot, size_t at, const char *label, const Run *run, const Curve *curve,
                        Abscissa by) {
    Series look = {.label = label, .width = 2};
    series_style(&look, at);
    TRY(plot_series(plot, look));
    for (size_t i = 0; i < curve->count; i++) {
        double x = x_at(run, by, curve->step[i]);
        if (isfinite(x)) TRY(plot_point(plot, x, curve->value[i], NAN, NULL));
    }
    plot_require(plot, 2);
    return OK;
}

/* The losses that a study published, as points. */
static Status add_published(Plot *plot, const Results *results, bool validation) {
    const json_t *entry;
    size_t i;
    TRY(plot_series(plot, (Series){.label = "published", .color = COLOR_GRAY, .dots = true}));
    results_foreach(results, run) {
        json_array_foreach(json_object_get(run->published, "by_step"), i, entry) {
            double x = x_at(run, BY_TOKENS, json_number_at(entry, "step")), loss;
            if (has_loss(run) && isfinite(x) &&
                json_has_number(entry, validation ? "val_loss" : "loss", &loss))
                TRY(plot_point(plot, x, loss, NAN, run->name));
        }
    }
    plot_require(plot, 1);
    return OK;
}

static Status put_by_tokens(Page *page, const Results *results, bool validation) {
    CLEANUP(plot_done)
    Plot plot = {.name = validation ? "validation-loss" : "loss-tokens",
                 .x_label = "tokens",
                 .y_label = validation ? "validation loss" : "training loss",
                 .x_format = AXIS_COUNTS};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        CLEANUP(mem_freep) char *label = NULL;
        if (!has_loss(run) || first_like(results, i) != i) continue;
        TRY(label_of(results, i, &label));
        TRY(add_curve(&plot, i, label, run, validation ? &run->val_loss : &run->loss, BY_TOKENS));
    }
    if (results_published(results)) TRY(add_published(&plot, results, validation));
    return put_plot(page, &plot, validation ? "Validation loss" : "Training loss", "by tokens");
}

static Status put_by_time(Page *page, const Results *results) {
    CLEANUP(plot_done)
    Plot plot = {.name = "loss-time", .x_label = "seconds since the start", .y_label = "training loss"};
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i], *shown = run_shown(run); /* not a repeat that was disturbed */
        CLEANUP(mem_freep) char *label = NULL;
        if (!has_loss(shown)) continue;
        TRY(str_format(&label, "%s%s", run->name, run_contended(run) ? " (contention)" : ""));
        TRY(add_curve(&plot, i, label, shown, &shown->loss, BY_TIME));
    }
    return put_plot(page, &plot, "Training loss", "by time");
}

static Status put_differences(Page *page, const Results *results) {
    CLEANUP(plot_done)
    Plot plot = {.name = "loss-difference",
                 .x_label = "step",
                 .y_label = "relative difference",
                 .y_format = AXIS_POWERS};
    const Run *first = NULL;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!has_loss(run)) continue;
        if (!first) first = run;
        if (run == first || !same_training(run, first)) continue;
        Series look = {.label = run->name, .width = 1.3};
        series_style(&look, i);
        TRY(plot_series(&plot, look));
        for (size_t k = 0; k < run->loss.count; k++) {
            double other = curve_at(&first->loss, run->loss.step[k]),
                   difference = fabs(run->loss.value[k] - other) / fabs(other);
            if (isfinite(difference))
                TRY(plot_point(&plot, run->loss.step[k], fmax(difference, MIN_DIFFERENCE), NAN, NULL));
        }
        plot_require(&plot, 2);
    }
    return put_plot(page, &plot, "Loss difference from the first run", "relative; at least 1e-9");
}

Status put_losses(Page *page, const Results *results) {
    bool any = false, shared = false;
    for (size_t i = 0; i < results->count; i++) {
        any |= has_loss(&results->runs[i]);
        shared |= first_like(results, i) != i;
    }
    if (!any) return OK;
    page_section(page, "Loss",
                 shared ? "Runs whose losses agree within 0.1% at every step share a curve." : NULL);
    page_group(page, "plots");
    TRY(put_by_tokens(page, results, false));
    TRY(put_by_time(page, results));
    TRY(put_by_tokens(page, results, true));
    return put_differences(page, results);
}
