/* weft plan --search: the fastest layouts on a number of devices. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "cli/plan.h"
#include "model/family.h"
#include "plan/fit.h"
#include "plan/search_space.h"
#include "report/page_plan.h"

static unsigned fixed_by(const Invocation *call) {
    static const struct {
        const char *name;
        Fixed fixed;
    } options[] = {
        {"zero", FIXED_ZERO},        {"sequence-parallel", FIXED_SEQUENCE}, {"cp-mode", FIXED_CONTEXT},
        {"ep", FIXED_EXPERTS},       {"micro-batch", FIXED_MICRO_BATCH},    {"pp-schedule", FIXED_SCHEDULE},
        {"pp-chunks", FIXED_CHUNKS}, {"recompute", FIXED_RECOMPUTE}};
    unsigned fixed = 0;
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (invocation_given(call, options[i].name)) fixed |= options[i].fixed;
    return fixed;
}

static unsigned fixed_axes(const Invocation *call) {
    unsigned axes = 0;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (invocation_given(call, axis_info(axis)->name)) axes |= AXIS_SET(axis);
    return axes;
}

Status plan_search_spec(Invocation *call, const Cluster *cluster, SearchSpec *ret_spec) {
    PlanArgs *args = call->config;
    Settings *c = &args->train.config;
    Layout *layout = &args->train.layout;
    SearchSpec spec = {.ranks = (int)layout->ranks, .fixed = fixed_by(call), .axes = fixed_axes(call)};
    if (layout->shard) return USAGE("--shard is not supported by --search; remove it");
    if (c->run.outer.every) return USAGE("--sync-every is not supported by --search; remove it");
    if (!c->device.threads) c->device.threads = 1;
    if (!c->training.batch) c->training.batch = layout->ranks;
    spec.base.config = *c;
    spec.base.mesh = layout_mesh(layout);
    if (!invocation_given(call, "device")) spec.base.config.device.name = NULL;
    TRY(fit_settle(&spec.base, cluster));
    c->device.name = spec.base.config.device.name;
    c->device.precision = spec.base.config.device.precision;
    TRY(layout_check(call, &args->train));
    *ret_spec = spec;
    return OK;
}

/* The page shows the timeline and the memory of the fastest layout, which is planned again in full. */
static Status write_page(const PlanArgs *args, const Search *search, const SearchSpec *spec,
                         const Cluster *cluster) {
    CLEANUP(plan_done) Plan plan = {0};
    CLEANUP(plan_timeline_done) PlanTimeline timeline = {0};
    const Settings *c = &spec->base.config;
    PlannedLayout first = {
        .plan = &plan, .result = search->count ? search->best[0] : search->smallest, .timeline = &timeline};
    PlanFacts facts = {.model = &search->model,
                       .params = search->params_total,
                       .cluster = cluster,
                       .ranks = spec->ranks,
                       .batch = c->training.batch,
                       .seq = search->seq,
                       .precision = c->device.precision,
                       .price = cluster->price_per_hour};
    PlanSpec again = search_plan_spec(spec, &first.result.layout);
    again.timed = again.memory_only = true;
    TRY(plan_init(&plan, &again));
    TRY(plan_timeline(&plan, cluster, &timeline));
    return page_write_plan(&facts, search, &first, NULL, args->html);
}

Status plan_search(Invocation *call, json_t **ret_result) {
    PlanArgs *args = call->config;
    Cluster cluster;
    SearchSpec spec;
    CLEANUP(search_done) Search search = {0};
    CLEANUP(plan_progress_done) PlanProgress progress = {0};
    if (!args->cluster) return USAGE("--search requires --cluster NAME");
    if (!args->train.layout.ranks) return USAGE("--search requires --ranks N, the number of devices");
    TRY(plan_cluster(args, &cluster));
    TRY(plan_search_spec(call, &cluster, &spec));
    TRY(plan_progress_init(&progress, stderr));
    spec.base.progress = &progress;
    TRY(search_find(&search, &spec, &cluster));
    CLEANUP(json_decrefp) json_t *result = NULL;
    TRY(search_json(&search, &spec, &cluster, &result));
    TRY(plan_failure_add(call, json_array_get(json_object_get(result, "best"), 0), result));
    const json_t *best = json_object_get(result, "best");
    for (size_t i = 0; i < json_array_size(best); i++)
        plan_cost_add(&cluster, spec.ranks, 1, json_array_get(best, i));
    plan_needs_add(&cluster, result);
    if (args->html) TRY(write_page(args, &search, &spec, &cluster));
    plan_page_add(call, result);
    *ret_result = json_incref(result);
    return OK;
}

/* ---- for a person ---- */

static void show_head(const json_t *result, FILE *out) {
    const json_t *model = json_object_get(result, "model"), *cluster = json_object_get(result, "cluster");
    char params[FORMAT_SIZE], memory[FORMAT_SIZE];
    fprintf(out, "%s, %.0f layer%s, hidden size %.0f, %.0f head%s: %s parameters\n",
            family_find(json_string_or(model, "family", ""))->title, json_number_at(model, "layers"),
            PLURAL(json_number_at(model, "layers")), json_number_at(model, "hidden"),
            json_number_at(model, "heads"), PLURAL(json_number_at(model, "heads")),
            format_count(params, json_number_at(result, "params_total")));
    fprintf(out, "%.0f x %s (%s), %s available on each\n", json_number_at(result, "ranks"),
            json_string_or(cluster, "device", ""), json_string_or(cluster, "name", ""),
            format_bytes(memory, json_number_at(result, "memory_available")));
    fprintf(out, "batch %.0f x %.0f tokens, %s\n\n", json_number_at(result, "batch"),
            json_number_at(result, "seq"), json_string_or(result, "precision", ""));
}

static const char *step_text(char text[FORMAT_SIZE], double ms) {
    snprintf(text, FORMAT_SIZE,
             ms < 1000  ? "%.3g ms"
             : ms < 1e5 ? "%.2f s"
                        : "%.0f s",
             ms < 1000 ? ms : ms / 1000);
    return text;
}

static void schedule_text(char text[32], const json_t *layout) {
    if (json_number_at(layout, "pp") < 2)
        snprintf(text, 32, "-");
    else if (json_number_at(layout, "pp_chunks") > 1)
        snprintf(text, 32, "interleaved %.0f", json_number_at(layout, "pp_chunks"));
    else
        snprintf(text, 32, "%s", json_string_or(layout, "pp_schedule", ""));
}

/* Ranks and mode of context parallelism, for heads+ring with the size of a group: "8 heads 4+ring". */
enum { CONTEXT_TEXT = 32 };
static const char *context_text(char text[CONTEXT_TEXT], const json_t *layout) {
    double cp = json_number_at(layout, "cp"), heads = json_number_at(layout, "cp_heads");
    const char *mode = json_string_or(layout, "cp_mode", "");
    if (cp < 2)
        snprintf(text, CONTEXT_TEXT, "-");
    else if (heads > 0)
        snprintf(text, CONTEXT_TEXT, "%.0f heads %.0f+ring", cp, heads);
    else
        snprintf(text, CONTEXT_TEXT, "%.0f %s", cp, mode);
    return text;
}

/* Columns that a search without long sequences or without experts does not have; 0: it is absent. */
typedef struct Widths {
    int cp, ep;
} Widths;

/* The columns of a layout, or their titles. */
static void show_optional(const json_t *layout, Widths widths, FILE *out) {
    char cp[CONTEXT_TEXT] = "cp", ep[16] = "ep";
    if (layout) context_text(cp, layout);
    if (layout) snprintf(ep, sizeof ep, "%.0f", fmax(json_number_at(layout, "ep"), 1));
    if (widths.cp) fprintf(out, " %-*s", widths.cp, cp);
    if (widths.ep) fprintf(out, " %*s", widths.ep, ep);
}

static Widths widths_of(const json_t *best) {
    enum { LEAST_CP = 9, EP = 3 };
    char text[CONTEXT_TEXT];
    Widths widths = {0};
    for (size_t i = 0; i < json_array_size(best); i++) {
        const json_t *layout = json_object_get(json_array_get(best, i), "layout");
        int length = (int)strlen(context_text(text, layout));
        if (json_number_at(layout, "ep") > 1) widths.ep = EP;
        if (json_number_at(layout, "cp") < 2) continue;
        if (widths.cp < LEAST_CP) widths.cp = LEAST_CP;
        if (widths.cp < length) widths.cp = length;
    }
    return widths;
}

static void show_row(const json_t *plan, int number, Widths widths, FILE *out) {
    const json_t *layout = json_object_get(plan, "layout");
    char memory[FORMAT_SIZE], step[FORMAT_SIZE], tokens[FORMAT_SIZE], schedule[32];
    schedule_text(schedule, layout);
    fprintf(out, "%3d %5.0f %3.0f %3.0f", number, json_number_at(layout, "dp"), json_number_at(layout, "tp"),
            json_number_at(layout, "pp"));
    show_optional(layout, widths, out);
    fprintf(out, " %4.0f %5.0f x %-5.0f %-15s %-9s %3s %9s %9s %8s %6.1f%% %6.1f%%\n",
            json_number_at(layout, "zero"), json_number_at(layout, "micros"),
            json_number_at(layout, "micro_batch"), schedule, json_string_or(layout, "recompute", ""),
            json_is_true(json_object_get(layout, "sequence_parallel")) ? "yes" : "-",
            format_bytes(memory, json_number_at(plan, "memory")),
            step_text(step, json_number_at(plan, "step_ms")),
            format_count(tokens, json_number_at(plan, "tokens_per_s")), 100 * json_number_at(plan, "mfu"),
            100 * json_number_at(plan, "bubble"));
}

static void show_best(const json_t *result, FILE *out) {
    const json_t *best = json_object_get(result, "best");
    Widths widths = widths_of(best);
    fprintf(out, "%3s %5s %3s %3s", "", "dp", "tp", "pp");
    show_optional(NULL, widths, out);
    fprintf(out, " %4s %13s %-15s %-9s %3s %9s %9s %8s %7s %7s\n", "zero", "micro-batches", "schedule",
            "recompute", "sp", "memory", "step", "tokens/s", "MFU", "bubble");
    for (size_t i = 0; i < json_array_size(best); i++)
        show_row(json_array_get(best, i), (int)i + 1, widths, out);
}

/* The phases of the fastest layout's step. */
static void show_first(const json_t *first, FILE *out) {
    const json_t *phases = json_object_get(first, "phases_ms");
    double step = json_number_at(first, "step_ms");
    fprintf(out, "\nFastest: %s\n", json_string_or(first, "options", ""));
    fprintf(out, "Step time: %.1f%% forward and backward",
            100 * (json_number_at(phases, "forward") + json_number_at(phases, "backward")) / step);
    static const struct {
        const char *key, *text;
    } rest[] = {{"recompute", "recompute"},
                {"communication", "communication"},
                {"bubble", "bubble"},
                {"optimizer", "optimizer"}};
    for (size_t i = 0; i < COUNT_OF(rest); i++)
        if (json_number_at(phases, rest[i].key) > 0.0005 * step)
            fprintf(out, ", %.1f%% %s", 100 * json_number_at(phases, rest[i].key) / step, rest[i].text);
    fprintf(out, ".\n");
    plan_cost_show(first, out);
}

static void show_other(const json_t *other, FILE *out) {
    char memory[FORMAT_SIZE], step[FORMAT_SIZE];
    const char *reason = json_string_or(other, "reason", "");
    fprintf(out, "  %s\n    %s\n    ", json_string_or(other, "what", ""),
            json_string_or(other, "options", ""));
    step_text(step, json_number_at(other, "step_ms"));
    if (json_is_true(json_object_get(other, "fits")))
        fprintf(out, "%s, %s: %s\n", step, format_bytes(memory, json_number_at(other, "memory")), reason);
    else
        fprintf(out, "%s; step time would be %s\n", reason, step);
}

static void show_counts(const json_t *result, FILE *out) {
    const json_t *layouts = json_object_get(result, "layouts");
    SearchGrids grids = {.all = (int)json_number_at(layouts, "grids"),
                         .by_heads = (int)json_number_at(layouts, "grids_without_heads"),
                         .by_layers = (int)json_number_at(layouts, "grids_without_layers"),
                         .by_batch = (int)json_number_at(layouts, "grids_without_batch"),
                         .by_context = (int)json_number_at(layouts, "grids_without_context"),
                         .context = json_is_true(json_object_get(layouts, "context"))};
    fprintf(out, "\n%.0f valid layouts, %.0f estimated to fit; the %.0f most promising were planned in full.",
            json_number_at(layouts, "legal"), json_number_at(layouts, "fit_by_estimate"),
            json_number_at(layouts, "planned"));
    put_invalid_grids(out, &grids);
    fputc('\n', out);
}

static void show_none(const json_t *result, FILE *out) {
    const json_t *smallest = json_object_get(result, "smallest");
    char memory[FORMAT_SIZE];
    if (json_is_true(json_object_get(result, "all_tried")))
        fprintf(out, "No layout fits.");
    else
        fprintf(out, "None of the %lld planned layouts fits.",
                (long long)json_number_at(json_object_get(result, "layouts"), "planned"));
    fprintf(out, " The smallest, %s, needs %s per rank. Use more devices, --offload, or a smaller --batch.\n",
            json_string_or(smallest, "options", ""),
            format_bytes(memory, json_number_at(smallest, "memory")));
}

void plan_search_show(const json_t *result, FILE *out) {
    const json_t *first = json_array_get(json_object_get(result, "best"), 0);
    const json_t *others = json_object_get(result, "others");
    show_head(result, out);
    if (first) {
        show_best(result, out);
        show_first(first, out);
        if (json_array_size(others)) fprintf(out, "\nAlternatives:\n");
        for (size_t i = 0; i < json_array_size(others); i++) show_other(json_array_get(others, i), out);
    } else {
        show_none(result, out);
    }
    show_counts(result, out);
    plan_failure_show(result, out);
    plan_needs_show(result, out);
    plan_page_show(result, out);
}
