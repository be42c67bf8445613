/* Plots for runs that differ in one parameter: throughput and memory by batch size, throughput per rank by
 * number of ranks, and efficiency by model size. What a study published is drawn in gray. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/page_plot.h"
#include "report/spread.h"
#include "report/study.h"

enum { MAX_TICS = 9, MAX_LABELS = 16 };
#define PUBLISHED_COLOR "var(--c7)"
#define BAR_COLOR       "var(--c0)"

/* Storage for the curves of the plot being made. */
typedef struct Sweep {
    Series *series;
    char (*labels)[LAYOUT_SIZE];
    double *points, *tics;
    size_t runs, tic_count;
} Sweep;

/* The points of a curve, by ascending x. */
typedef struct Points {
    double *x, *y, *spread;
    size_t count;
} Points;

static void sweep_done(Sweep *sweep) {
    free(sweep->series);
    free(sweep->labels);
    free(sweep->points);
    free(sweep->tics);
}

static Status sweep_init(Sweep *ret_sweep, size_t runs) {
    CLEANUP(sweep_done) Sweep sweep = {.runs = runs};
    TRY(mem_new(2 * runs + 1, sizeof *sweep.series, &sweep.series));
    TRY(mem_new(2 * runs + 1, sizeof *sweep.labels, &sweep.labels));
    TRY(mem_new(3 * (2 * runs + 1) * (runs + 1), sizeof *sweep.points, &sweep.points));
    TRY(mem_new(MAX_TICS + 2, sizeof *sweep.tics, &sweep.tics));
    *ret_sweep = sweep;
    sweep = (Sweep){0};
    return OK;
}

/* The storage of curve `at`, for up to one point more than there are runs. */
static Points points_of(const Sweep *sweep, size_t at) {
    size_t most = sweep->runs + 1;
    double *x = sweep->points + 3 * most * at;
    return (Points){.x = x, .y = x + most, .spread = x + 2 * most};
}

static void insert(Points *points, double x, double y, double spread) {
    size_t at = points->count++;
    for (; at > 0 && points->x[at - 1] > x; at--) {
        points->x[at] = points->x[at - 1];
        points->y[at] = points->y[at - 1];
        points->spread[at] = points->spread[at - 1];
    }
    points->x[at] = x;
    points->y[at] = y;
    points->spread[at] = spread;
}

static Series series_of(const Points *points, const char *label) {
    bool any = false;
    for (size_t i = 0; i < points->count; i++) any |= isfinite(points->spread[i]);
    return (Series){.label = label,
                    .x = points->x,
                    .y = points->y,
                    .spread = any ? points->spread : NULL,
                    .count = points->count,
                    .points = true};
}

/* Inserts a tic in ascending order, unless it exists. */
static void add_tic(Sweep *sweep, double value) {
    size_t at = 0;
    while (at < sweep->tic_count && sweep->tics[at] < value) at++;
    if (at < sweep->tic_count && sweep->tics[at] == value) return;
    for (size_t i = sweep->tic_count++; i > at; i--) sweep->tics[i] = sweep->tics[i - 1];
    sweep->tics[at] = value;
}

/* Puts tics at the x values of the points; if there are too many, gnuplot chooses. */
static void find_tics(Sweep *sweep, Plot *plot) {
    sweep->tic_count = 0;
    for (size_t i = 0; i < plot->count && sweep->tic_count <= MAX_TICS; i++)
        for (size_t k = 0; k < plot->series[i].count && sweep->tic_count <= MAX_TICS; k++)
            add_tic(sweep, plot->series[i].x[k]);
    if (sweep->tic_count > MAX_TICS) return;
    plot->x_tics = sweep->tics;
    plot->x_tic_count = sweep->tic_count;
}

/* ---- by batch size ---- */

/* Whether the run's value says little, because the run did not have its cores to itself. */
static bool is_disturbed(const Run *run, FigureId figure) {
    return figure_is_timed(figure) && run_contended(run);
}

static bool has_batch(const Run *run, FigureId figure) {
    return run->state == RUN_FINISHED && isfinite(run_batch(run)) && isfinite(run_figure(run, figure));
}

/* Collects all runs that differ from run `first` only in batch size: our values, without those that were
 * disturbed, or the published ones. False if `first` is not the first run of the curve or all batch sizes are
 * equal. */
static bool collect(const Results *results, size_t first, FigureId figure, bool published, Points *points) {
    points->count = 0;
    if (published && !results_published(results)) return false;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        double value = published ? run_source_figure(run, SOURCE_PUBLISHED, figure) : run_figure(run, figure);
        if (!has_batch(run, figure) || !isfinite(value) || !same_except_batch(run, &results->runs[first]) ||
            (!published && is_disturbed(run, figure)))
            continue;
        if (i < first || (i > first && !points->count)) return false;
        insert(points, run_batch(run), value, published ? NAN : run_spread(run, figure));
    }
    return points->count > 1 && points->x[0] < points->x[points->count - 1];
}

/* Whether other runs differ from this one only in batch size. */
static bool has_curve(const Results *results, const Run *run, FigureId figure) {
    for (size_t i = 0; i < results->count; i++) {
        const Run *other = &results->runs[i];
        if (has_batch(other, figure) && same_except_batch(other, run) && run_batch(other) != run_batch(run))
            return true;
    }
    return false;
}

/* The runs of any curve that were disturbed. */
static void collect_disturbed(const Results *results, FigureId figure, Points *points) {
    points->count = 0;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (has_batch(run, figure) && is_disturbed(run, figure) && has_curve(results, run, figure))
            insert(points, run_batch(run), run_figure(run, figure), NAN);
    }
}

static Status put_by_batch(FILE *out, const Results *results, FigureId figure, Sweep *sweep, Figures *drawn) {
    size_t n = results->count, colors = 0;
    bool memory = figure == FIGURE_PEAK;
    Plot plot = {.name = memory ? "memory-batch" : "throughput-batch",
                 .x_label = "batch size",
                 .y_label = memory ? "peak memory per rank" : "tokens/s",
                 .series = sweep->series,
                 .y_format = memory ? AXIS_BYTES : AXIS_COUNTS,
                 .from_zero = true};
    for (size_t i = 0; i < 2 * n; i++) {
        Points points = points_of(sweep, i);
        bool published = i >= n;
        if (!collect(results, i % n, figure, published, &points)) continue;
        run_layout(&results->runs[i % n], sweep->labels[i]);
        if (published) snprintf(sweep->labels[i], LAYOUT_SIZE, "published");
        Series *series = &sweep->series[plot.count++];
        *series = series_of(&points, sweep->labels[i]);
        if (!published) series_style(series, colors++);
        if (published) series->color = PLOT_GRAY;
        series->width = published ? 1.5 : 2.5;
        series->gap = published ? 4 : 0;
    }
    Points disturbed = points_of(sweep, 2 * n);
    collect_disturbed(results, figure, &disturbed);
    if (plot.count && disturbed.count) {
        sweep->series[plot.count] = series_of(&disturbed, "CPU contention");
        sweep->series[plot.count++].color = PLOT_GRAY;
    }
    find_tics(sweep, &plot);
    return put_plot(out, &plot, memory ? "Peak memory" : "Throughput",
                    memory                            ? "highest of all ranks"
                    : results_spread(results, figure) ? "tokens/s; whiskers: 95% confidence interval"
                                                      : "tokens/s",
                    drawn);
}

/* Throughput or, if too many runs were disturbed, only memory. */
static bool has_batches(const Results *results, const Sweep *sweep) {
    for (size_t i = 0; i < results->count; i++) {
        Points points = points_of(sweep, 0);
        if (collect(results, i, FIGURE_TOKENS, false, &points) ||
            collect(results, i, FIGURE_PEAK, false, &points))
            return true;
    }
    return false;
}

static Status put_batches(FILE *out, const Results *results, Sweep *sweep, Figures *drawn) {
    Points disturbed = points_of(sweep, 0);
    if (!has_batches(results, sweep)) return OK;
    collect_disturbed(results, FIGURE_TOKENS, &disturbed);
    char lead[160] = "Each line is a layout; each point is a run.";
    size_t used = strlen(lead);
    if (disturbed.count)
        snprintf(lead + used, sizeof lead - used,
                 " Gray points: %s took the cores, so the throughput is unreliable.",
                 results_takers(results, false));
    put_section(out, "By batch size", lead);
    fputs("<div class=\"plots\">\n", out);
    TRY(put_by_batch(out, results, FIGURE_TOKENS, sweep, drawn));
    TRY(put_by_batch(out, results, FIGURE_PEAK, sweep, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}

/* ---- by number of ranks ---- */

static const Run *base_of(const Results *results, const Run *run, double *ret_efficiency) {
    const Run *base = NULL;
    *ret_efficiency = scaling_efficiency(results, run, &base);
    return isfinite(*ret_efficiency) ? base : NULL;
}

/* The same efficiency by the published figures of both runs; NAN if they are not shown. */
static double published_efficiency(const Results *results, const Run *run, const Run *base) {
    double own = run_source_figure(run, SOURCE_PUBLISHED, FIGURE_SAMPLES) / run_ranks(run),
           other = run_source_figure(base, SOURCE_PUBLISHED, FIGURE_SAMPLES) / run_ranks(base);
    return results_published(results) ? own / other : NAN;
}

/* NAN: unknown, or the run is its own base. */
static double efficiency_spread(const Run *run, const Run *base, double efficiency) {
    double own = run_spread(run, FIGURE_TOKENS) / run_figure(run, FIGURE_TOKENS),
           other = run_spread(base, FIGURE_TOKENS) / run_figure(base, FIGURE_TOKENS);
    return run == base ? NAN : efficiency * hypot(own, other);
}

/* `longest`: the efficiency of a full bar; `spread`: NAN if unknown. */
static void put_share_bar(FILE *out, const char *class, double efficiency, double spread, double longest,
                          const char *color) {
    fprintf(out, "</span><div class=\"bar\"><i style=\"width:%.2f%%;background:%s\"%s></i>",
            100 * fmin(1, efficiency / longest), color, class);
    if (isfinite(spread))
        fprintf(out, "<span class=\"whisker\" style=\"left:%.2f%%;width:%.2f%%\"></span>",
                100 * fmax(efficiency - spread, 0) / longest,
                100 * (efficiency + spread - fmax(efficiency - spread, 0)) / longest);
    fprintf(out, "</div><span>%.1f%%", 100 * efficiency);
    if (isfinite(spread)) fprintf(out, "<small>±%.1f%%</small>", 100 * spread);
    fputs("</span></div>\n", out);
}

/* At least 1: caches can make more ranks faster than ideal. */
static double largest_share(const Results *results) {
    double largest = 1, efficiency;
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i], *base = base_of(results, run, &efficiency);
        if (!base) continue;
        double spread = efficiency_spread(run, base, efficiency);
        largest = fmax(largest, isfinite(spread) ? efficiency + spread : efficiency);
        largest = fmax(largest, published_efficiency(results, run, base));
    }
    return largest;
}

static void put_share(FILE *out, const Results *results, const Run *run, double longest) {
    double efficiency;
    const Run *base = base_of(results, run, &efficiency);
    if (!base) return;
    fputs("<div class=\"row\"><span>", out);
    put_html(out, run->name);
    put_share_bar(out, "", efficiency, efficiency_spread(run, base, efficiency), longest, BAR_COLOR);
    double published = published_efficiency(results, run, base);
    if (run == base || !isfinite(published)) return;
    fputs("<div class=\"row thin\"><span>published", out);
    put_share_bar(out, " title=\"published\"", published, NAN, longest, PUBLISHED_COLOR);
}

/* Whether two runs belong to the same curve: their strategy, the run that they are compared with, and their
 * batch size, in total or per rank. */
static bool same_curve(const Results *results, const Run *a, const Run *b) {
    char one[LAYOUT_SIZE], two[LAYOUT_SIZE];
    double efficiency;
    bool same_batch =
        run_batch(a) == run_batch(b) ||
        (run_ranks(a) != run_ranks(b) && run_batch(a) / run_ranks(a) == run_batch(b) / run_ranks(b));
    return (a == b || same_batch) && base_of(results, a, &efficiency) == base_of(results, b, &efficiency) &&
           !strcmp(run_strategy(a, one), run_strategy(b, two));
}

/* Collects the curve that starts with run `first`, by the number of ranks: the base, then all runs of the
 * strategy. False if an earlier run belongs to the same curve, or `first` is the base. */
static bool collect_ranks(const Results *results, size_t first, Points *points) {
    double efficiency;
    const Run *start = &results->runs[first], *base = base_of(results, start, &efficiency);
    if (!base || run_ranks(start) <= run_ranks(base)) return false;
    points->count = 0;
    insert(points, run_ranks(base), 100, NAN);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (run_ranks(run) <= run_ranks(base) || !base_of(results, run, &efficiency) ||
            !same_curve(results, run, start))
            continue;
        if (i < first) return false;
        insert(points, run_ranks(run), 100 * efficiency, 100 * efficiency_spread(run, base, efficiency));
    }
    return true;
}

/* The strategy, with the batch size if runs differ in it. */
static void label_strategy(const Results *results, const Run *run, char *buffer) {
    size_t used = strlen(run_strategy(run, buffer));
    if (results_differ(results, run_batch) && isfinite(run_batch(run)))
        snprintf(buffer + used, LAYOUT_SIZE - used, ", batch %.0f", run_batch(run));
}

/* One curve per strategy, from the run with the fewest ranks. */
static Status put_by_ranks(FILE *out, const Results *results, Sweep *sweep, Figures *drawn) {
    Plot plot = {.name = "scaling",
                 .x_label = "ranks",
                 .y_label = "throughput per rank",
                 .series = sweep->series,
                 .y_format = AXIS_PERCENT,
                 .from_zero = true,
                 .line = 100};
    for (size_t i = 0; i < results->count; i++) {
        Points points = points_of(sweep, i);
        if (!collect_ranks(results, i, &points)) continue;
        label_strategy(results, &results->runs[i], sweep->labels[i]);
        Series *series = &sweep->series[plot.count];
        *series = series_of(&points, sweep->labels[i]);
        series->width = 2;
        series_style(series, plot.count++);
    }
    find_tics(sweep, &plot);
    return put_plot(out, &plot, "Throughput per rank",
                    results_spread(results, FIGURE_TOKENS)
                        ? "relative to the run with the fewest ranks; whiskers: 95% confidence interval"
                        : "relative to the run with the fewest ranks",
                    drawn);
}

static Status put_scaling(FILE *out, const Results *results, Sweep *sweep, Figures *drawn) {
    bool any = false;
    double efficiency;
    for (size_t i = 0; i < results->count; i++) {
        const Run *base = base_of(results, &results->runs[i], &efficiency);
        any |= base && run_ranks(base) < run_ranks(&results->runs[i]);
    }
    if (!any) return OK;
    put_section(
        out, "Scaling efficiency",
        "Tokens/s per rank, relative to the run with the fewest ranks and the same global batch size or, "
        "failing that, the same batch size per rank.");
    fputs("<div class=\"plots\">\n<div>\n", out);
    double longest = largest_share(results);
    for (size_t i = 0; i < results->count; i++) put_share(out, results, &results->runs[i], longest);
    fputs("</div>\n", out);
    TRY(put_by_ranks(out, results, sweep, drawn));
    fputs("</div>\n", out);
    if (results_differ(results, run_threads))
        fputs("<p class=\"note\">Ranks on the same host share its cores, so runs with more ranks have fewer "
              "threads per rank.</p>\n",
              out);
    fputs("</section>\n", out);
    return OK;
}

/* ---- by model size ---- */

static double work_of(const Run *run) {
    return run_params(run) * run_figure(run, FIGURE_SAMPLES) / run_ranks(run);
}

/* NAN if nothing published is shown. */
static double published_work(const Results *results, const Run *run) {
    if (!results_published(results)) return NAN;
    return run_params(run) * run_source_figure(run, SOURCE_PUBLISHED, FIGURE_SAMPLES) / run_ranks(run);
}

static bool has_work(const Run *run) {
    return run->state == RUN_FINISHED && isfinite(work_of(run));
}

/* Drops tics that are too close together for their labels. */
static void find_size_tics(Sweep *sweep, Plot *plot) {
    find_tics(sweep, plot);
    size_t kept = 0;
    for (size_t i = 0; i < plot->x_tic_count; i++)
        if (!kept || sweep->tics[i] > 1.4 * sweep->tics[kept - 1]) sweep->tics[kept++] = sweep->tics[i];
    plot->x_tic_count = kept;
}

static Status put_by_size(FILE *out, const Results *results, bool mfu, Sweep *sweep, Figures *drawn) {
    Plot plot = {.kind = PLOT_POINTS,
                 .name = mfu ? "mfu-size" : "work-size",
                 .x_label = "parameters",
                 .y_label = mfu ? "MFU" : "parameters x samples/s per rank",
                 .series = sweep->series,
                 .x_format = AXIS_COUNTS,
                 .y_format = mfu ? AXIS_PERCENT : AXIS_COUNTS,
                 .x_log = true,
                 .from_zero = true};
    bool labeled = results->count <= MAX_LABELS;
    for (size_t i = 0; i < results->count * 2; i++) {
        const Run *run = &results->runs[i % results->count];
        bool published = i < results->count; /* below ours */
        double *x = sweep->points + 2 * i, *y = x + 1;
        *x = run_params(run);
        *y = published ? (mfu ? NAN : published_work(results, run))
             : mfu     ? 100 * run_figure(run, FIGURE_MFU)
                       : work_of(run);
        if (has_work(run) && isfinite(*y))
            sweep->series[plot.count++] = (Series){.label = published || !labeled ? NULL : run->name,
                                                   .x = x,
                                                   .y = y,
                                                   .count = 1,
                                                   .color = published ? PLOT_GRAY : 0,
                                                   .points = true};
    }
    find_size_tics(sweep, &plot);
    return put_plot(out, &plot, mfu ? "MFU" : "Parameters × samples/s",
                    mfu ? "model FLOPs utilization" : "per rank", drawn);
}

static Status put_sizes(FILE *out, const Results *results, Sweep *sweep, Figures *drawn) {
    size_t known = 0;
    for (size_t i = 0; i < results->count; i++) known += has_work(&results->runs[i]);
    if (known < 2 || !results_differ(results, run_params)) return OK;
    put_section(
        out, "By model size",
        "Each point is a run. A flat line means that larger models train as efficiently as small ones.");
    if (figure_is_published(results, FIGURE_SAMPLES)) {
        fputs("<div class=\"legend\">", out);
        put_key(out, BAR_COLOR, "these runs");
        put_key(out, PUBLISHED_COLOR, "published");
        fputs("</div>\n", out);
    }
    fputs("<div class=\"plots\">\n", out);
    TRY(put_by_size(out, results, false, sweep, drawn));
    TRY(put_by_size(out, results, true, sweep, drawn));
    fputs("</div>\n</section>\n", out);
    return OK;
}

Status put_sweeps(FILE *out, const Results *results, Figures *drawn) {
    CLEANUP(sweep_done) Sweep sweep = {0};
    TRY(sweep_init(&sweep, results->count));
    TRY(put_batches(out, results, &sweep, drawn));
    TRY(put_scaling(out, results, &sweep, drawn));
    return put_sizes(out, results, &sweep, drawn);
}
