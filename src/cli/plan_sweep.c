/* weft plan --sweep: strong and weak scaling, as a table and as curves. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/plan.h"
#include "plan/draw.h"
#include "plan/sweep.h"
#include "report/plot.h"

/* ---- curves ---- */

enum { PANELS = 4, PANEL_WIDTH = 560, PANEL_HEIGHT = 300, HEAD = 40, TICS = 9 };

static const char *const text_color = "#616a78";

typedef struct Panel {
    const char *name, *title;
    double (*value)(const SweepPoint *point);
    AxisFormat format;
} Panel;

static double rate_of(const SweepPoint *point) {
    return point->goodput * point->plan.time.tokens_per_s;
}
static double efficiency_of(const SweepPoint *point) {
    return 100 * point->efficiency;
}
static double mfu_of(const SweepPoint *point) {
    return 100 * point->plan.time.mfu;
}
static double memory_of(const SweepPoint *point) {
    return (double)point->plan.bytes;
}

static const Panel panels[PANELS] = {
    {"rate", "tokens/s", rate_of, AXIS_POWERS},
    {"efficiency", "scaling efficiency", efficiency_of, AXIS_PERCENT},
    {"mfu", "model FLOP utilization", mfu_of, AXIS_PERCENT},
    {"memory", "memory per device", memory_of, AXIS_BYTES},
};

/* The curves of one panel, without points that do not fit. */
typedef struct Lines {
    double *x[SCALING_COUNT + 1], *y[SCALING_COUNT + 1];
    Series series[SCALING_COUNT + 1];
    size_t count;
} Lines;

static void lines_done(Lines *lines) {
    for (int i = 0; i <= SCALING_COUNT; i++) {
        free(lines->x[i]);
        free(lines->y[i]);
    }
}

static Status add_curve(Lines *lines, const Sweep *sweep, Scaling scaling, const Panel *panel) {
    size_t at = lines->count, points = 0;
    TRY(mem_new((size_t)sweep->count, sizeof(double), &lines->x[at]));
    TRY(mem_new((size_t)sweep->count, sizeof(double), &lines->y[at]));
    for (int i = 0; i < sweep->count; i++) {
        const SweepPoint *point = &sweep->point[scaling][i];
        if (!point->fits) continue;
        lines->x[at][points] = point->ranks;
        lines->y[at][points++] = panel->value(point);
    }
    lines->series[lines->count++] =
        (Series){.label = scaling == SCALING_WEAK ? "weak scaling" : "strong scaling",
                 .x = lines->x[at],
                 .y = lines->y[at],
                 .count = points,
                 .color = (int)scaling,
                 .width = 2,
                 .points = true};
    return OK;
}

/* Linear scaling from the first point. */
static Status add_ideal(Lines *lines) {
    const Series *real = &lines->series[lines->count - 1];
    size_t at = lines->count;
    TRY(mem_new(2, sizeof(double), &lines->x[at]));
    TRY(mem_new(2, sizeof(double), &lines->y[at]));
    for (size_t i = 0; real->count && i < 2; i++) {
        lines->x[at][i] = real->x[i ? real->count - 1 : 0];
        lines->y[at][i] = real->y[0] * lines->x[at][i] / real->x[0];
    }
    lines->series[lines->count++] = (Series){.label = "ideal",
                                             .x = lines->x[at],
                                             .y = lines->y[at],
                                             .count = real->count ? 2 : 0,
                                             .color = PLOT_GRAY,
                                             .width = 1,
                                             .gap = 6};
    return OK;
}

static Status put_panel(FILE *out, const Sweep *sweep, int at, bool *ret_drawn) {
    const Panel *panel = &panels[at];
    CLEANUP(lines_done) Lines lines = {0};
    CLEANUP(plot_done) PlotResult drawn = {0};
    double tics[TICS];
    int stride = (sweep->count + TICS - 1) / TICS, tic_count = 0;
    for (int i = 0; i < sweep->count; i += stride)
        tics[tic_count++] = (1 - 1e-9) * sweep->point[0][i].ranks; /* within the axis */
    for (Scaling s = 0; s < SCALING_COUNT; s++) TRY(add_curve(&lines, sweep, s, panel));
    if (panel->format == AXIS_POWERS) TRY(add_ideal(&lines));
    Plot plot = {.name = panel->name,
                 .x_label = "devices",
                 .y_label = panel->title,
                 .series = lines.series,
                 .count = lines.count,
                 .x_format = AXIS_WHOLE,
                 .y_format = panel->format,
                 .x_log = true,
                 .from_zero = panel->format != AXIS_POWERS,
                 .x_tics = tics,
                 .x_tic_count = (size_t)tic_count};
    TRY(plot_draw(&plot, NULL, &drawn));
    *ret_drawn = drawn.plain != NULL;
    if (!drawn.plain) return OK;
    int x = at % 2 * (PANEL_WIDTH + 16), y = HEAD + at / 2 * (PANEL_HEIGHT + 16);
    fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"%s\n", x, y, PANEL_WIDTH, PANEL_HEIGHT,
            drawn.plain + strlen("<svg"));
    return OK;
}

static Status put_curves(FILE *out, const Sweep *sweep, const char *title, bool *drawn) {
    int width = 2 * PANEL_WIDTH + 16, height = HEAD + 2 * (PANEL_HEIGHT + 16);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"13\" fill=\"%s\">\n"
            "<text x=\"12\" y=\"22\" font-size=\"16\">",
            width, height, width, height, text_color);
    draw_escaped(title, out);
    fputs("</text>\n", out);
    for (int i = 0; i < PANELS && *drawn; i++) TRY(put_panel(out, sweep, i, drawn));
    fputs("</svg>\n", out);
    return OK;
}

/* *ret_drawn is false if gnuplot is not installed. */
static Status draw_curves(const Sweep *sweep, const char *title, const char *path, bool *ret_drawn) {
    char *text = NULL;
    size_t size = 0;
    *ret_drawn = true;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while drawing the curves");
    Status status = put_curves(out, sweep, title, ret_drawn);
    bool bad = fclose(out) != 0;
    if (!status && bad) status = FAILED("out of memory while drawing the curves");
    if (!status && *ret_drawn) status = file_replace(path, text, size);
    free(text);
    return status;
}

/* ---- the command ---- */

static Status describe(Invocation *call, const Sweep *sweep, const SearchSpec *spec, const Cluster *cluster,
                       json_t **ret_result) {
    const char *path = call->operand_count ? call->operands[0] : NULL;
    const Settings *c = &spec->base.config;
    CLEANUP(json_decrefp) json_t *result = NULL;
    CLEANUP(mem_freep) char *title = NULL;
    bool drawn = false;
    TRY(sweep_json(sweep, &result));
    char params[FORMAT_SIZE];
    TRY(str_format(&title, "%s, %s parameters, %s, on %s", sweep->model.family->title,
                   format_count(params, (double)sweep->params_total), c->device.precision, cluster->name));
    if (path) TRY(draw_curves(sweep, title, path, &drawn));
    json_object_set_new(result, "cluster",
                        json_pack("{s:s, s:s}", "name", cluster->name, "device", cluster->device));
    json_object_set_new(result, "precision", json_string(c->device.precision));
    if (path && drawn) json_object_set_new(result, "svg", json_string(path));
    if (path && !drawn) json_object_set_new(result, "svg", json_null());
    *ret_result = json_incref(result);
    return OK;
}

static Status add_failures(const Invocation *call, Sweep *sweep) {
    for (Scaling s = 0; s < SCALING_COUNT; s++)
        for (int i = 0; i < sweep->count; i++) {
            SweepPoint *point = &sweep->point[s][i];
            FailureSpec spec;
            Failure failure;
            TRY(plan_failure_spec(call, point->ranks, sweep->params_total, &spec));
            if (!point->fits || !(spec.devices > 0)) continue;
            TRY(failure_find(&failure, &spec));
            point->goodput = failure.shares.goodput;
        }
    return OK;
}

Status plan_sweep(Invocation *call, json_t **ret_result) {
    PlanArgs *args = call->config;
    CLEANUP(mem_freep) int *ranks = NULL;
    CLEANUP(sweep_done) Sweep sweep = {0};
    Cluster cluster;
    SearchSpec spec;
    CLEANUP(plan_progress_done) PlanProgress progress = {0};
    int count = 0;
    char label[LABEL_SIZE];
    if (!args->cluster) return USAGE("--sweep requires --cluster NAME");
    if (args->search || args->train.layout.ranks || args->train.layout.dp)
        return USAGE("%s cannot be combined with --sweep, which searches at each device count",
                     invocation_label(call,
                                      args->search               ? "search"
                                      : args->train.layout.ranks ? "ranks"
                                                                 : "dp",
                                      label));
    TRY(sweep_parse(args->sweep, &ranks, &count));
    TRY(cluster_find(args->cluster, &cluster));
    args->train.layout.ranks = ranks[0];
    TRY(plan_search_spec(call, &cluster, &spec));
    TRY(plan_progress_init(&progress, stderr));
    spec.base.progress = &progress;
    TRY(sweep_find(&sweep, &spec, &cluster, ranks, count));
    TRY(add_failures(call, &sweep));
    return describe(call, &sweep, &spec, &cluster, ret_result);
}

/* ---- for a person ---- */

static void show_point(const json_t *point, bool failures, FILE *out) {
    char tokens[FORMAT_SIZE], memory[FORMAT_SIZE];
    fprintf(out, "%7.0f %8.0f ", json_number_at(point, "ranks"), json_number_at(point, "batch"));
    if (!json_is_true(json_object_get(point, "fits"))) {
        fprintf(out, "  %s\n", json_string_at(point, "why"));
        return;
    }
    fprintf(out, "%9.3f %9s %9.1f%% %6.1f%% %9s", json_number_at(point, "step_ms") / 1000,
            format_count(tokens, json_number_at(point, "tokens_per_s")),
            100 * json_number_at(point, "efficiency"), 100 * json_number_at(point, "mfu"),
            format_bytes(memory, json_number_at(point, "memory")));
    if (failures) fprintf(out, " %7.1f%%", 100 * json_number_at(point, "goodput"));
    fprintf(out, "  %s\n", json_string_at(point, "options"));
}

static bool has_failures(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *goodput = json_object_get(json_array_get(list, i), "goodput");
        if (goodput && json_number_value(goodput) < 1) return true;
    }
    return false;
}

void plan_sweep_show(const json_t *result, FILE *out) {
    const json_t *svg = json_object_get(result, "svg");
    for (Scaling s = 0; s < SCALING_COUNT; s++) {
        const json_t *list = json_object_get(result, scaling_name(s));
        bool failures = has_failures(list);
        fprintf(out, "%s%s scaling: %s\n", s ? "\n" : "", scaling_name(s),
                s == SCALING_WEAK ? "batch grows with the devices" : "constant batch");
        fprintf(out, "%7s %8s %9s %9s %10s %7s %9s%s  %s\n", "devices", "batch", "step s", "tokens/s",
                "efficiency", "MFU", "memory", failures ? "  goodput" : "", "fastest layout");
        for (size_t i = 0; i < json_array_size(list); i++) show_point(json_array_get(list, i), failures, out);
    }
    if (json_is_string(svg)) fprintf(out, "\nwrote %s\n", json_string_value(svg));
    if (json_is_null(svg)) fprintf(out, "\nno curves: gnuplot is not installed\n");
}
