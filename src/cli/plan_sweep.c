/* weft plan --sweep: strong and weak scaling, as a table and as curves. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/plan.h"
#include "plan/draw.h"
#include "report/page_plan.h"

/* ---- curves ---- */

enum { PANEL_WIDTH = 560, PANEL_HEIGHT = 300, HEAD = 40 };

static const char *const text_color = "#616a78";

static Status put_curves(FILE *out, const Sweep *sweep, const char *title) {
    int width = 2 * PANEL_WIDTH + 16, height = HEAD + 2 * (PANEL_HEIGHT + 16);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" fill=\"%s\">\n<text x=\"12\" y=\"22\" font-size=\"16\">",
            width, height, width, height, text_color);
    draw_escaped(title, out);
    fputs("</text>\n", out);
    for (int i = 0; i < SWEEP_PANELS; i++) {
        CLEANUP(plot_done) Plot plot = {0};
        CLEANUP(mem_freep) char *svg = NULL;
        TRY(sweep_plot(sweep, i, &plot));
        TRY(plot_svg(&plot, &svg));
        fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"%s", i % 2 * (PANEL_WIDTH + 16),
                HEAD + i / 2 * (PANEL_HEIGHT + 16), PANEL_WIDTH, PANEL_HEIGHT, svg);
    }
    fputs("</svg>\n", out);
    return OK;
}

static Status draw_curves(const Sweep *sweep, const char *title, const char *path) {
    CLEANUP(text_done) Text text = {0};
    CLEANUP(mem_freep) char *svg = NULL;
    size_t size;
    TRY(text_open(&text));
    TRY(put_curves(text.out, sweep, title));
    TRY(text_take(&text, &svg, &size));
    return file_replace(path, svg, size);
}

/* ---- the command ---- */

static Status describe(Invocation *call, const Sweep *sweep, const SearchSpec *spec, const Cluster *cluster,
                       json_t **ret_result) {
    const char *path = call->operand_count ? call->operands[0] : NULL;
    const Settings *c = &spec->base.config;
    CLEANUP(json_decrefp) json_t *result = NULL;
    CLEANUP(mem_freep) char *title = NULL;
    TRY(sweep_json(sweep, &result));
    char params[FORMAT_SIZE];
    TRY(str_format(&title, "%s, %s parameters, %s, on %s", sweep->model.family->title,
                   format_count(params, (double)sweep->params_total), c->device.precision, cluster->name));
    if (path) TRY(draw_curves(sweep, title, path));
    json_object_set_new(result, "cluster",
                        json_pack("{s:s, s:s}", "name", cluster->name, "device", cluster->device));
    json_object_set_new(result, "precision", json_string(c->device.precision));
    for (Scaling s = 0; s < SCALING_COUNT; s++)
        for (int i = 0; i < sweep->count; i++) {
            const SweepPoint *point = &sweep->point[s][i];
            json_t *json = json_array_get(json_object_get(result, scaling_name(s)), (size_t)i);
            if (point->fits) plan_cost_add(cluster, point->ranks, point->goodput, json);
        }
    plan_needs_add(cluster, result);
    plan_page_add(call, result);
    if (path) json_object_set_new(result, "svg", json_string(path));
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

static Status write_page(const PlanArgs *args, const Sweep *sweep, const SearchSpec *spec,
                         const Cluster *cluster) {
    const Settings *c = &spec->base.config;
    PlanFacts facts = {.model = &sweep->model,
                       .params = sweep->params_total,
                       .cluster = cluster,
                       .batch = c->training.batch,
                       .seq = sweep->seq,
                       .precision = c->device.precision,
                       .price = cluster->price_per_hour};
    return page_write_sweep(&facts, sweep, args->html);
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
    TRY(plan_cluster(args, &cluster));
    args->train.layout.ranks = ranks[0];
    TRY(plan_search_spec(call, &cluster, &spec));
    TRY(plan_progress_init(&progress, stderr));
    spec.base.progress = &progress;
    TRY(sweep_find(&sweep, &spec, &cluster, ranks, count));
    TRY(add_failures(call, &sweep));
    if (args->html) TRY(write_page(args, &sweep, &spec, &cluster));
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
    if (json_object_get(point, "cost_per_hour"))
        fprintf(out, " %10.3g", json_number_at(point, "cost_per_million_tokens"));
    fprintf(out, "  %s\n", json_string_at(point, "options"));
}

static bool has_costs(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_array_get(list, i), "cost_per_hour")) return true;
    return false;
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
        fprintf(out, "%7s %8s %9s %9s %10s %7s %9s%s%s  %s\n", "devices", "batch", "step s", "tokens/s",
                "efficiency", "MFU", "memory", failures ? "  goodput" : "",
                has_costs(list) ? "  cost/Mtok" : "", "fastest layout");
        for (size_t i = 0; i < json_array_size(list); i++) show_point(json_array_get(list, i), failures, out);
    }
    plan_needs_show(result, out);
    plan_page_show(result, out);
    if (json_is_string(svg)) fprintf(out, "\nwrote %s\n", json_string_value(svg));
}
