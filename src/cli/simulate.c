/* Converts the plan of a run (plan/plan.h) and its step time (plan/time.h) to the format of a run's summary.
 * All replicas and tensor-parallel ranks of a stage have the same figures. */
#include "cli/simulate.h"

#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/train_options.h"
#include "data/fetch.h"
#include "device/registry.h"
#include "plan/fit.h"
#include "plan/time.h"

enum { LISTED_RANKS = 64 }; /* above this, one entry per stage */

/* ---- the run ---- */

/* The last component of a path that `weft fetch` would download but has not; NULL for other paths. */
static const char *not_fetched(const char *path, const char *root) {
    size_t length = strlen(root);
    if (!path || strncmp(path, root, length) || path[length] != '/' || path_exists(path)) return NULL;
    return strrchr(path, '/') + 1;
}

/* The preset that matches a published checkpoint, or `model` itself. */
static const char *preset_of(const char *model, const char *name) {
    const char *best = model;
    size_t longest = 0;
    for (const char *const *preset = config_presets(); *preset; preset++) {
        size_t length = strlen(*preset);
        if (strncmp(name, *preset, length) || (name[length] && name[length] != '-')) continue;
        if (length > longest) best = *preset;
        if (length > longest) longest = length;
    }
    return best;
}

/* Replaces files that were not fetched by presets of the same sizes, which is all that a plan needs. */
static Status replace_missing(TrainConfig *config) {
    CLEANUP(mem_freep) char *root = NULL;
    TRY(fetch_root(&root));
    const char *model = not_fetched(config->model, root);
    if (model) config->model = preset_of(config->model, model);
    if (not_fetched(config->text.tokenizer, root)) config->text.tokenizer = NULL;
    return OK;
}

static Status spec_of(Invocation *train, const Cluster *cluster, PlanSpec *ret_spec) {
    TrainArgs args = *(const TrainArgs *)train->config;
    TRY(replace_missing(&args.config));
    TRY(layout_settle(train, &args.layout, 0));
    if (!args.config.threads) args.config.threads = device_host_threads(0) / args.layout.ranks;
    if (args.config.threads < 1) args.config.threads = 1;
    PlanSpec spec = {.config = args.config,
                     .mesh = {.dp = (int)args.layout.dp,
                              .tp = (int)args.layout.tp,
                              .pp = (int)args.layout.pp,
                              .shard = (int)args.layout.shard},
                     .memory_only = !cluster,
                     .timed = cluster != NULL};
    if (cluster && !invocation_given(train, "device")) spec.config.device = NULL;
    if (cluster) TRY(fit_settle(&spec, cluster));
    args.config.device = spec.config.device;
    TRY(layout_check(train, &args));
    *ret_spec = spec;
    return OK;
}

/* ---- this machine ---- */

static double memory_of_all(const Plan *plan) {
    double sum = 0;
    for (int stage = 0; stage < plan->stages; stage++) sum += (double)plan->stage[stage].memory.saving;
    return sum * plan->mesh.dp * plan->mesh.tp;
}

static bool fits_gpus(const Plan *plan, int ranks) {
    CudaInfo info;
    device_cuda_info(&info);
    if (info.devices < ranks) return false;
    return (double)plan->stage[plan->fullest].memory.saving < (double)info.device[0].memory;
}

Status simulate_needed(Invocation *train, bool *ret_needed) {
    PlanSpec spec;
    CLEANUP(plan_done) Plan plan = {0};
    TRY(spec_of(train, NULL, &spec));
    TRY(plan_init(&plan, &spec));
    int ranks = plan.mesh.dp * plan.mesh.tp * plan.mesh.pp;
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    bool gpu = spec.config.device && !strcmp(spec.config.device, "cuda");
    *ret_needed = gpu ? !fits_gpus(&plan, ranks) : memory_of_all(&plan) > memory;
    return OK;
}

/* ---- the summary ---- */

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Seconds over all steps, under the names used by runs. */
static json_t *phases_of(const json_t *plan, double steps) {
    const json_t *ms = json_object_get(plan, "phases_ms");
    bool tensor = number(json_object_get(plan, "layout"), "tp") > 1;
    double unit = 1e-3 * steps;
    return json_pack("{s:f, s:f, s:f, s:f}", "compute_s",
                     unit * (number(ms, "forward") + number(ms, "recompute") + number(ms, "backward")),
                     "optimizer_s", unit * number(ms, "optimizer"), tensor ? "wait_tensor_s" : "wait_data_s",
                     unit * number(ms, "communication"), "wait_pipeline_s", unit * number(ms, "bubble"));
}

/* Relative to forward and backward, as in runs, not to the step. */
static double bubble_of(const json_t *plan) {
    const json_t *ms = json_object_get(plan, "phases_ms");
    bool tensor = number(json_object_get(plan, "layout"), "tp") > 1;
    double bubble = number(ms, "bubble"), others = number(ms, "forward") + number(ms, "recompute") +
                                                   number(ms, "backward") +
                                                   (tensor ? number(ms, "communication") : 0);
    return others > 0 ? bubble / (bubble + others) : 0;
}

static json_t *sent_of(const json_t *stage, double steps) {
    json_t *sent = json_object();
    const char *kind;
    json_t *bytes;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(stage, "comm_bytes"), kind, bytes)
        json_object_set_new(sent, kind, json_real(steps * json_number_value(bytes)));
    return sent;
}

/* Replicas and tensor-parallel ranks of a stage are consecutive. */
static json_t *ranks_of(const json_t *plan, double steps) {
    const json_t *stages = json_object_get(plan, "stages"), *layout = json_object_get(plan, "layout");
    size_t stage_count = json_array_size(stages), ranks = (size_t)number(layout, "ranks");
    size_t each = stage_count ? ranks / stage_count : 0;
    size_t stands_for = ranks > LISTED_RANKS ? each : 1;
    if (ranks > LISTED_RANKS) each = 1;
    json_t *list = json_array();
    for (size_t i = 0; i < stage_count * each; i++) {
        const json_t *stage = json_array_get(stages, i / each);
        json_t *memory = json_deep_copy(json_object_get(stage, "memory"));
        json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:o, s:o}", "rank", (int)i, "stands_for",
                                              (int)stands_for, "peak_bytes", memory, "comm_bytes",
                                              sent_of(stage, steps), "phases", phases_of(plan, steps)));
    }
    return list;
}

static Status summary_of(json_t *plan, const Cluster *cluster, const PlanSpec *spec, json_t **ret_summary) {
    double steps = spec->config.epochs > 0 ? 0 : (double)spec->config.steps,
           step_s = 1e-3 * number(plan, "step_ms");
    json_t *summary =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:O, s:O, s:O, s:b, s:o}", "predicted", cluster->name,
                  "step_ms", number(plan, "step_ms"), "samples_per_s", number(plan, "samples_per_s"),
                  "tokens_per_s", number(plan, "tokens_per_s"), "mfu", number(plan, "mfu"), "bubble",
                  bubble_of(plan), "params_total", json_object_get(plan, "params_total"), "params_stored",
                  json_object_get(plan, "params_stored"), "layout", json_object_get(plan, "layout"),
                  "interrupted", false, "ranks", ranks_of(plan, steps > 0 ? steps : 1));
    if (!summary) return FAILED("out of memory");
    if (steps > 0) {
        json_object_set_new(summary, "steps", json_integer(spec->config.steps));
        json_object_set_new(summary, "runtime_s", json_real(steps * step_s));
    }
    *ret_summary = summary;
    return OK;
}

static Status check_fit(const Fit *fit, const Plan *plan) {
    char needed[FORMAT_SIZE], free_bytes[FORMAT_SIZE];
    if (fit->fits) return OK;
    return FAILED("out of memory, as predicted: needs %s per rank, %s available%s%s%s",
                  format_bytes(needed, (double)plan->stage[plan->fullest].memory.saving),
                  format_bytes(free_bytes, fit->available), fit->changes ? " (" : "",
                  fit->changes ? fit->change[0].options : "", fit->changes ? " would fit)" : "");
}

static Status write_trace(const Plan *plan, const Cluster *cluster, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(dir_make(dir));
    TRY(path_join(&path, dir, "trace.json"));
    return plan_trace(plan, cluster, path);
}

Status simulate_run(Invocation *train, const char *name, const char *dir, json_t **ret_summary) {
    PlanSpec spec;
    Cluster cluster;
    Fit fit;
    StepEstimate time;
    CLEANUP(plan_done) Plan plan = {0};
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(cluster_find(name, &cluster));
    TRY(spec_of(train, &cluster, &spec));
    TRY(plan_init(&plan, &spec));
    TRY(fit_find(&fit, &plan, &spec, &cluster));
    TRY(check_fit(&fit, &plan));
    TRY(plan_time(&plan, &cluster, &time));
    TRY(write_trace(&plan, &cluster, dir));
    TRY(plan_json(&plan, &spec, &json));
    TRY(time_json(&time, json));
    return summary_of(json, &cluster, &spec, ret_summary);
}
