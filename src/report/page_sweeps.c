/* Plots for runs that differ in one parameter: throughput and memory by batch size, throughput per rank by
 * number of ranks, and efficiency by model size. What a study published is drawn in gray. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "comm/axes.h"
#include "report/bars.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/spread.h"
#include "report/study.h"

enum { MOST_LABELED = 16 };
static const BarCategory sources[] = {{"these runs", 0}, {"published", COLOR_GRAY}};

/* ---- by batch size ---- */

/* Whether the run's value says little, because the run did not have its cores to itself. */
static bool is_disturbed(const Run *run, FigureId figure) {
    return figure_is_timed(figure) && run_contended(run);
}

/* The sequences that are processed at once, divided by the ranks that process them. */
static double rank_batch(const Run *run) {
    double ranks = 1;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (!axis_info(axis)->copies) ranks *= json_number_or(run->summary.layout, axis_info(axis)->name, 1);
    return json_number_or(run->summary.layout, "micro_batch", NAN) / ranks;
}

/* Whether runs that differ only in batch size all have as many micro-batches, each of them larger. */
static bool grows_by_rank(const Results *results) {
    bool any = false;
    results_foreach(results, a) {
        results_foreach(results, b) {
            if (!(run_batch(a) < run_batch(b)) || !same_except_batch(a, b)) continue;
            double micros = run_batch(a) / rank_batch(a);
            if (!(fabs(run_batch(b) / rank_batch(b) - micros) < 1e-9 * micros)) return false;
            any = true;
        }
    }
    return any;
}

static bool has_batch(const Run *run, FigureId figure) {
    return run->state == RUN_FINISHED && isfinite(run_batch(run)) && isfinite(run_figure(run, figure));
}

/* Adds all runs that differ from run `first` only in batch size to the last series: our values, without those
 * that were disturbed, or the published ones. None if `first` is not the first run of the curve or all batch
 * sizes are equal. */
static Status add_curve(Plot *plot, const Results *results, size_t first, FigureId figure, RunNumber batch,
                        bool published) {
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        const Series *series = &plot->series[plot->count - 1];
        double value = published ? run_source_figure(run, SOURCE_PUBLISHED, figure) : run_figure(run, figure);
        if (!has_batch(run, figure) || !isfinite(value) || !same_except_batch(run, &results->runs[first]) ||
            (!published && is_disturbed(run, figure)))
            continue;
        if (i < first || (i > first && !series->count)) break;
        TRY(plot_point(plot, batch(run), value, published ? NAN : run_spread(run, figure), NULL));
    }
    const Series *series = &plot->series[plot->count - 1];
    bool spans = series->count > 1 && series->points[0].x < series->points[series->count - 1].x;
    plot_require(plot, spans ? 2 : SIZE_MAX);
    return OK;
}

/* Whether other runs differ from this one only in batch size. */
static bool has_curve(const Results *results, const Run *run, FigureId figure) {
    results_foreach(results, other) {
        if (has_batch(other, figure) && same_except_batch(other, run) && run_batch(other) != run_batch(run))
            return true;
    }
    return false;
}

/* The runs of any curve that were disturbed. */
static Status add_disturbed(Plot *plot, const Results *results, FigureId figure, RunNumber batch) {
    TRY(plot_series(plot, (Series){.label = "contention", .color = COLOR_GRAY}));
    results_foreach(results, run) {
        if (has_batch(run, figure) && is_disturbed(run, figure) && has_curve(results, run, figure))
            TRY(plot_point(plot, batch(run), run_figure(run, figure), NAN, NULL));
    }
    plot_require(plot, 1);
    return OK;
}

/* Whether an earlier curve has the points of the last one: a study may report them once for several layouts.
 */
static bool is_repeated(const Plot *plot) {
    const Series *last = &plot->series[plot->count - 1];
    for (const Series *series = plot->series; series < last; series++) {
        bool same = series->color == last->color && series->count == last->count;
        for (size_t i = 0; i < last->count && same; i++)
            same = series->points[i].x == last->points[i].x && series->points[i].y == last->points[i].y;
        if (same) return true;
    }
    return false;
}

/* The run's layout, with its model's size if sizes differ. */
static const char *curve_name(const Results *results, const Run *run, char *buffer) {
    char number[FORMAT_SIZE];
    run_layout(run, buffer);
    if (results_differ(results, run_params))
        text_append(buffer, LAYOUT_SIZE, ", %s", format_count(number, run_params(run)));
    return buffer;
}

static Status find_by_batch(const Results *results, FigureId figure, RunNumber batch, Plot *plot) {
    size_t colors = 0;
    for (size_t i = 0; i < 2 * results->count; i++) {
        const size_t run = i % results->count, before = plot->count;
        bool published = i >= results->count;
        char label[LAYOUT_SIZE];
        Series look = {.label = published ? "published" : curve_name(results, &results->runs[run], label),
                       .width = published ? 1.5 : 2.5,
                       .gap = published ? 4 : 0,
                       .dots = true};
        series_style(&look, colors);
        if (published) look.color = COLOR_GRAY;
        if (published && !results_published(results)) break;
        TRY(plot_series(plot, look));
        TRY(add_curve(plot, results, run, figure, batch, published));
        if (!published)
            colors += plot->count > before;
        else if (plot->count > before && is_repeated(plot))
            plot_require(plot, SIZE_MAX);
    }
    return plot->count ? add_disturbed(plot, results, figure, batch) : OK;
}

static Plot batch_plot(FigureId figure, const char *x_label) {
    bool memory = figure == FIGURE_PEAK;
    return (Plot){.name = memory ? "memory-batch" : "throughput-batch",
                  .x_label = x_label,
                  .y_label = memory ? "peak memory per rank" : "tokens/s",
                  .y_format = memory ? AXIS_BYTES : AXIS_COUNTS,
                  .from_zero = true,
                  .sorted = true,
                  .at_points = true};
}

/* Peak memory as fixed + each x rank_batch: least squares over the runs that differ only in batch size. */
typedef struct MemoryFit {
    double fixed, each, worst; /* worst: largest relative error */
    size_t count;              /* 0: no fit, or an earlier run has it */
} MemoryFit;

static bool is_fitted(const Run *run, const Run *first) {
    return has_batch(run, FIGURE_PEAK) && rank_batch(run) > 0 && same_except_batch(run, first);
}

static MemoryFit fit_memory(const Results *results, const Run *first) {
    MemoryFit fit = {0};
    double x = 0, y = 0, xx = 0, xy = 0, n = 0;
    results_foreach(results, run) {
        if (!is_fitted(run, first)) continue;
        if (run < first) return fit;
        double each = rank_batch(run), peak = run_figure(run, FIGURE_PEAK);
        x += each;
        y += peak;
        xx += each * each;
        xy += each * peak;
        n++;
    }
    if (n < 3 || !(n * xx - x * x > 0)) return fit;
    fit.each = (n * xy - x * y) / (n * xx - x * x);
    fit.fixed = (y - fit.each * x) / n;
    fit.count = (size_t)n;
    results_foreach(results, run) {
        double peak = run_figure(run, FIGURE_PEAK);
        if (is_fitted(run, first))
            fit.worst = fmax(fit.worst, fabs(fit.fixed + fit.each * rank_batch(run) - peak) / peak);
    }
    return fit;
}

static void put_memory_fits(Page *page, const Results *results, const char *unit) {
    results_foreach(results, run) {
        char label[LAYOUT_SIZE], fixed[FORMAT_SIZE], each[FORMAT_SIZE], text[256];
        MemoryFit fit = fit_memory(results, run);
        if (!fit.count || fit.fixed < 0 || fit.each < 0) continue;
        snprintf(
            text, sizeof text,
            "peak memory per rank is %s + %s per sequence of the batch per %s, within %.1f%% in %zu runs.",
            format_bytes(fixed, fit.fixed), format_bytes(each, fit.each), unit, 100 * fit.worst, fit.count);
        put_note(page, curve_name(results, run, label), text);
    }
}

/* Throughput or, if too many runs were disturbed, only memory. */
static Status put_batches(Page *page, const Results *results) {
    const char *device = results_share(results, "device"), *unit = "rank";
    bool by_rank = grows_by_rank(results);
    char label[32], lead[256];
    bool sizes = results_differ(results, run_params);
    snprintf(lead, sizeof lead, "Each line is a layout%s; each point is a run.",
             sizes ? " of one model size" : "");
    if (device && !strcmp(device, "cuda")) unit = "GPU";
    snprintf(label, sizeof label, by_rank ? "batch per %s" : "batch size", unit);
    CLEANUP(plot_done) Plot speed = batch_plot(FIGURE_TOKENS, label);
    CLEANUP(plot_done) Plot memory = batch_plot(FIGURE_PEAK, label);
    TRY(find_by_batch(results, FIGURE_TOKENS, by_rank ? rank_batch : run_batch, &speed));
    TRY(find_by_batch(results, FIGURE_PEAK, by_rank ? rank_batch : run_batch, &memory));
    if (!speed.count && !memory.count) return OK;
    if (by_rank)
        text_append(lead, sizeof lead,
                    " The batch per %s is the sequences that are processed at once, divided by the %ss.",
                    unit, unit);
    bool gray = false;
    results_foreach(results, run) gray |= is_disturbed(run, FIGURE_TOKENS) && has_batch(run, FIGURE_TOKENS) &&
                                          has_curve(results, run, FIGURE_TOKENS);
    Taken taken = results_taken(results, false);
    if (gray && speed.count)
        text_append(lead, sizeof lead, " Gray points: %s took the %s, so the throughput is unreliable.",
                    taken.takers, taken.what);
    page_section(page, "By batch size", lead);
    page_group(page, "plots");
    TRY(put_plot(page, &speed, "Throughput", rate_detail(results)));
    TRY(put_plot(page, &memory, "Peak memory", "highest of all ranks"));
    page_group_end(page);
    put_memory_fits(page, results, unit);
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

static Status add_share(BarChart *chart, const char *name, double efficiency, double spread, bool published) {
    char value[FORMAT_SIZE], detail[FORMAT_SIZE];
    snprintf(value, sizeof value, "%.1f%%", 100 * efficiency);
    snprintf(detail, sizeof detail, "±%.1f%%", 100 * spread);
    TRY(bars_row(chart, (BarRow){.name = name,
                                 .value = value,
                                 .value_detail = isfinite(spread) ? detail : NULL,
                                 .spread = spread,
                                 .thin = published}));
    return bars_add(chart, published, efficiency, published ? "published" : NULL, NULL);
}

/* The longest bar is at least 100%; caches can make more ranks faster than ideal. */
static Status find_shares(const Results *results, BarChart *chart) {
    for (size_t i = 0; i < results->count; i++) {
        double efficiency;
        const Run *run = &results->runs[i], *base = base_of(results, run, &efficiency);
        if (!base) continue;
        double published = published_efficiency(results, run, base);
        TRY(add_share(chart, run->name, efficiency, efficiency_spread(run, base, efficiency), false));
        if (run != base && isfinite(published)) TRY(add_share(chart, "published", published, NAN, true));
    }
    return OK;
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

/* Adds the curve that starts with run `first` to the last series, by the number of ranks: the base, then all
 * runs of the strategy. None if an earlier run belongs to the same curve, or `first` is the base. */
static Status add_ranks(Plot *plot, const Results *results, size_t first) {
    double efficiency;
    const Run *start = &results->runs[first], *base = base_of(results, start, &efficiency);
    bool earlier = !base || run_ranks(start) <= run_ranks(base);
    for (size_t i = 0; i < results->count && !earlier; i++) {
        const Run *run = &results->runs[i];
        if (run_ranks(run) <= run_ranks(base) || !base_of(results, run, &efficiency) ||
            !same_curve(results, run, start))
            continue;
        earlier = i < first;
        if (i == first) TRY(plot_point(plot, run_ranks(base), 100, NAN, NULL));
        TRY(plot_point(plot, run_ranks(run), 100 * efficiency, 100 * efficiency_spread(run, base, efficiency),
                       NULL));
    }
    plot_require(plot, earlier ? SIZE_MAX : 1);
    return OK;
}

/* The strategy, with the batch size if runs differ in it. */
static void label_strategy(const Results *results, const Run *run, char *buffer) {
    run_strategy(run, buffer);
    if (results_differ(results, run_batch) && isfinite(run_batch(run)))
        text_append(buffer, LAYOUT_SIZE, ", batch %.0f", run_batch(run));
}

/* One curve per strategy, from the run with the fewest ranks. */
static Status put_by_ranks(Page *page, const Results *results) {
    CLEANUP(plot_done)
    Plot plot = {.name = "scaling",
                 .x_label = "ranks",
                 .y_label = "throughput per rank",
                 .y_format = AXIS_PERCENT,
                 .from_zero = true,
                 .sorted = true,
                 .at_points = true,
                 .line = 100};
    for (size_t i = 0; i < results->count; i++) {
        char label[LAYOUT_SIZE];
        label_strategy(results, &results->runs[i], label);
        Series look = {.label = label, .width = 2, .dots = true};
        series_style(&look, plot.count);
        TRY(plot_series(&plot, look));
        TRY(add_ranks(&plot, results, i));
    }
    return put_plot(page, &plot, "Throughput per rank",
                    results_spread(results, FIGURE_TOKENS)
                        ? "relative to the run with the fewest ranks; whiskers: 95% confidence interval"
                        : "relative to the run with the fewest ranks");
}

static Status put_scaling(Page *page, const Results *results) {
    CLEANUP(bars_done) BarChart shares = {.categories = sources, .least = 1};
    bool any = false;
    double efficiency;
    for (size_t i = 0; i < results->count; i++) {
        const Run *base = base_of(results, &results->runs[i], &efficiency);
        any |= base && run_ranks(base) < run_ranks(&results->runs[i]);
    }
    if (!any) return OK;
    TRY(find_shares(results, &shares));
    page_section(
        page, "Scaling efficiency",
        "Tokens/s per rank, relative to the run with the fewest ranks and the same global batch size or, "
        "failing that, the same batch size per rank.");
    page_group(page, "plots");
    page_put(page, "<div>\n");
    TRY(put_bars(page, &shares));
    page_put(page, "</div>\n");
    TRY(put_by_ranks(page, results));
    page_group_end(page);
    if (results_differ(results, run_threads))
        put_note(
            page, NULL,
            "Ranks on the same host share its cores, so runs with more ranks have fewer threads per rank.");
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

static Status put_by_size(Page *page, const Results *results, bool mfu) {
    CLEANUP(plot_done)
    Plot plot = {.kind = PLOT_POINTS,
                 .name = mfu ? "mfu-size" : "work-size",
                 .x_label = "parameters",
                 .y_label = mfu ? "MFU" : "parameters x samples/s per rank",
                 .x_format = AXIS_COUNTS,
                 .y_format = mfu ? AXIS_PERCENT : AXIS_COUNTS,
                 .x_log = true,
                 .from_zero = true,
                 .at_points = true};
    bool labeled = results->count <= MOST_LABELED;
    for (size_t i = 0; i < results->count * 2; i++) {
        const Run *run = &results->runs[i % results->count];
        bool published = i < results->count; /* below ours */
        double y = published ? (mfu ? NAN : published_work(results, run))
                   : mfu     ? 100 * run_figure(run, FIGURE_MFU)
                             : work_of(run);
        if (!has_work(run) || !isfinite(y)) continue;
        TRY(plot_series(&plot, (Series){.label = published || !labeled ? NULL : run->name,
                                        .color = sources[published].color}));
        TRY(plot_point(&plot, run_params(run), y, NAN, NULL));
    }
    return put_plot(page, &plot, mfu ? "MFU" : "Parameters × samples/s",
                    mfu ? "model FLOPs utilization" : "per rank");
}

static Status put_sizes(Page *page, const Results *results) {
    size_t known = 0;
    for (size_t i = 0; i < results->count; i++) known += has_work(&results->runs[i]);
    if (known < 2 || !results_differ(results, run_params)) return OK;
    page_section(
        page, "By model size",
        "Each point is a run. A flat line means that larger models train as efficiently as small ones.");
    if (figure_is_published(results, FIGURE_SAMPLES)) {
        page_put(page, "<div class=\"legend\">");
        for (size_t i = 0; i < 2; i++) put_key(page, sources[i].color, sources[i].name);
        page_put(page, "</div>\n");
    }
    page_group(page, "plots");
    TRY(put_by_size(page, results, false));
    return put_by_size(page, results, true);
}

Status put_sweeps(Page *page, const Results *results) {
    TRY(put_batches(page, results));
    TRY(put_scaling(page, results));
    return put_sizes(page, results);
}
