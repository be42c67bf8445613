/* Converts the plan of a run (plan/plan.h) and its step time (plan/time.h) to the format of a run's summary.
 * All replicas and tensor-parallel ranks of a stage have the same figures. */
#include "compare/predict.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "data/fetch.h"
#include "device/registry.h"
#include "kernels/kernels.h"
#include "plan/fit.h"
#include "plan/time.h"
#include "train/run_summary.h"

enum { LISTED_RANKS = 64 }; /* above this, one entry per stage */

/* ---- the run ---- */

/* The last component of a path that `weft fetch` would download but has not; NULL for other paths. */
static const char *not_fetched(const char *path, const char *root) {
    size_t length = strlen(root);
    if (!path || strncmp(path, root, length) || path[length] != '/' || path_exists(path)) return NULL;
    return strrchr(path, '/') + 1;
}

/* Whether a tokenizer is yet to be fetched, or to be made by another command: a path, not a name. */
static bool lacks_tokenizer(const char *tokenizer) {
    return tokenizer && strchr(tokenizer, '/') && !path_exists(tokenizer);
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
static Status replace_missing(Settings *config) {
    CLEANUP(mem_freep) char *root = NULL;
    TRY(fetch_root(&root));
    const char *model = not_fetched(config->model.name, root);
    if (model) config->model.name = preset_of(config->model.name, model);
    if (lacks_tokenizer(config->data.text.tokenizer)) config->data.text.tokenizer = NULL;
    return OK;
}

/* `any_device`: the cluster's, whatever the run's. */
static Status spec_of(const RunSpec *run, const Cluster *cluster, bool any_device, PlanSpec *ret_spec) {
    PlanSpec spec = {
        .config = run->config, .mesh = run->mesh, .memory_only = !cluster, .timed = cluster != NULL};
    Settings *config = &spec.config;
    Precision precision;
    TRY(replace_missing(config));
    if (!config->device.threads)
        config->device.threads = device_host_threads(0) / mesh_ranks(run->mesh, AXES_ALL);
    if (config->device.threads < 1) config->device.threads = 1;
    if (cluster && (any_device || !run->device_given)) config->device.name = NULL;
    if (cluster) TRY(fit_settle(&spec, cluster));
    TRY(kernels_check_device(config->device.name, config->device.kernels));
    TRY(kernels_precision(config->device.name, config->device.precision, &precision));
    *ret_spec = spec;
    return OK;
}

/* ---- this machine ---- */

static double memory_of_all(const Plan *plan) {
    double sum = 0;
    for (int stage = 0; stage < plan->stages; stage++) sum += (double)plan->stage[stage].memory.needed;
    return sum * (double)mesh_ranks(plan->mesh, AXES_ALL & ~AXIS_SET(AXIS_PP));
}

static bool fits_gpus(const Plan *plan, int ranks, bool share) {
    CudaInfo info;
    device_cuda_info(&info);
    if (info.devices < (share ? 1 : ranks)) return false;
    int sharing = (ranks + info.devices - 1) / info.devices;
    return (double)plan->stage[plan->fullest].memory.needed * sharing < (double)info.device[0].memory;
}

Status predict_needed(const RunSpec *run, bool share_gpus, bool *ret_needed) {
    PlanSpec spec;
    CLEANUP(plan_done) Plan plan = {0};
    TRY(spec_of(run, NULL, false, &spec));
    TRY(plan_init(&plan, &spec));
    int ranks = (int)mesh_ranks(plan.mesh, AXES_ALL);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    bool gpu = spec.config.device.name && !strcmp(spec.config.device.name, "cuda");
    *ret_needed = gpu ? !fits_gpus(&plan, ranks, share_gpus) : memory_of_all(&plan) > memory;
    return OK;
}

/* ---- checks ---- */

/* Whether a file of the run has yet to be fetched. */
static Status lacks_files(const Settings *config, bool simulated, bool *ret_lacks) {
    CLEANUP(mem_freep) char *root = NULL;
    TRY(fetch_root(&root));
    const char *tokenizer = config->data.text.tokenizer;
    bool lacks = not_fetched(config->model.name, root) || not_fetched(tokenizer, root);
    lacks |= simulated && lacks_tokenizer(tokenizer);
    for (int i = 0; i < config->data.files_count; i++)
        lacks |= not_fetched(config->data.files[i], root) != NULL;
    for (int i = 0; i < config->data.val_count; i++) lacks |= not_fetched(config->data.val[i], root) != NULL;
    *ret_lacks = lacks;
    return OK;
}

static Status check_device(const Settings *config) {
    CudaInfo info;
    if (!config->device.name || strcmp(config->device.name, "cuda")) return OK;
    device_cuda_info(&info);
    if (info.devices) return OK;
    return USAGE("{device} cuda: no GPU is available here; add {cluster} NAME to simulate the run, or use "
                 "{device} cpu");
}

/* Opens the data on a device that computes nothing. */
static Status check_data(const RunSpec *run, const PlanSpec *spec, FILE *log, bool quiet,
                         double *ret_samples) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    Settings config = spec->config;
    int64_t samples;
    TRY(device_new_dryrun(&device, 1));
    TRY(mesh_new_dryrun(&mesh, spec->mesh, 0, spec->per_node, true));
    config.model.name = run->config.model.name;
    config.data.text = run->config.data.text;
    config.device.on = device;
    config.run.mesh = mesh;
    config.report.trace = config.ckpt.resume = false; /* the comparison's own */
    config.report.log = log;
    /* Without a cache, the run prepares its text again, and says so then. */
    config.report.quiet = quiet || config.data.text.no_cache;
    TRY(train_check(&config, &samples));
    *ret_samples = (double)samples;
    return OK;
}

Status predict_check(const RunSpec *run, const char *cluster, FILE *log, bool quiet, bool *ret_lacks,
                     double *ret_samples) {
    PlanSpec spec;
    Cluster machine;
    CLEANUP(plan_done) Plan plan = {0};
    *ret_samples = 0;
    if (cluster) TRY(cluster_find(cluster, &machine));
    TRY(spec_of(run, cluster ? &machine : NULL, false, &spec));
    if (!cluster) TRY(check_device(&spec.config));
    PlanSpec quick = spec;
    quick.sketch = true;
    TRY(plan_init(&plan, &quick));
    TRY(lacks_files(&run->config, cluster != NULL, ret_lacks));
    return *ret_lacks ? OK : check_data(run, &spec, log, quiet, ret_samples);
}

/* ---- the summary ---- */

/* Seconds over all steps, under the names used by runs. */
static json_t *phases_of(const json_t *plan, double steps) {
    const json_t *ms = json_object_get(plan, "phases_ms");
    bool tensor = json_number_at(json_object_get(plan, "layout"), "tp") > 1;
    double unit = 1e-3 * steps;
    return json_pack("{s:f, s:f, s:f, s:f}", "compute_s",
                     unit * (json_number_at(ms, "forward") + json_number_at(ms, "recompute") +
                             json_number_at(ms, "backward")),
                     "optimizer_s", unit * json_number_at(ms, "optimizer"),
                     tensor ? "wait_tensor_s" : "wait_data_s", unit * json_number_at(ms, "communication"),
                     "wait_pipeline_s", unit * json_number_at(ms, "bubble"));
}

/* Relative to forward and backward, as in runs, not to the step. */
static double bubble_of(const json_t *plan) {
    const json_t *ms = json_object_get(plan, "phases_ms");
    bool tensor = json_number_at(json_object_get(plan, "layout"), "tp") > 1;
    double bubble = json_number_at(ms, "bubble"),
           others = json_number_at(ms, "forward") + json_number_at(ms, "recompute") +
                    json_number_at(ms, "backward") + (tensor ? json_number_at(ms, "communication") : 0);
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

/* Of another program only the total is modeled. */
static json_t *memory_of(const json_t *stage, bool program) {
    if (program) return json_pack("{s:O}", "total", json_object_get(stage, "memory_saving"));
    return json_clone_deep(json_object_get(stage, "memory"));
}

/* Replicas and tensor-parallel ranks of a stage are consecutive. */
static json_t *ranks_of(const json_t *plan, double steps, bool program) {
    const json_t *stages = json_object_get(plan, "stages"), *layout = json_object_get(plan, "layout");
    size_t stage_count = json_array_size(stages), ranks = (size_t)json_number_at(layout, "ranks");
    size_t each = stage_count ? ranks / stage_count : 0;
    size_t stands_for = ranks > LISTED_RANKS ? each : 1;
    if (ranks > LISTED_RANKS) each = 1;
    json_t *list = json_array();
    for (size_t i = 0; i < stage_count * each; i++) {
        const json_t *stage = json_array_get(stages, i / each);
        json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:o, s:o}", "rank", (int)i, "stands_for",
                                              (int)stands_for, "peak_bytes", memory_of(stage, program),
                                              "comm_bytes", sent_of(stage, steps), "phases",
                                              phases_of(plan, steps)));
    }
    return list;
}

/* The number of steps; 0 if it depends on data that is not there. */
static double steps_of(const Settings *config, double samples) {
    if (config->training.epochs > 0)
        return ceil(config->training.epochs * samples / (double)config->training.batch);
    return (double)config->training.steps;
}

static Status summary_of(const json_t *plan, const Cluster *cluster, const PlanSpec *spec, double samples,
                         json_t **ret_summary) {
    double steps = steps_of(&spec->config, samples), step_s = 1e-3 * json_number_at(plan, "step_ms");
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    summary.predicted = cluster->name;
    if (cluster->software.present) summary.program = cluster->software.title;
    summary.priced_units = cluster_units(cluster, json_number_at(json_object_get(plan, "layout"), "ranks"));
    if (cluster->price_per_hour > 0) summary.price_per_hour = cluster->price_per_hour;
    if (cluster->power_watts > 0) summary.power_watts = cluster->power_watts;
    summary.step_ms = json_number_at(plan, "step_ms");
    summary.samples_per_s = json_number_at(plan, "samples_per_s");
    summary.tokens_per_s = json_number_at(plan, "tokens_per_s");
    summary.mfu = json_number_at(plan, "mfu");
    summary.bubble = bubble_of(plan);
    summary.utilization = json_number_at(plan, "utilization");
    summary.params_total = json_number_at(plan, "params_total");
    summary.params_adapters = json_number_or(plan, "params_adapters", NAN);
    summary.params_stored = json_number_at(plan, "params_stored");
    summary.params_per_rank = json_number_at(plan, "params_per_rank");
    summary.layout = json_incref(json_object_get(plan, "layout"));
    summary.ranks = ranks_of(plan, steps > 0 ? steps : 1, cluster->software.present);
    if (steps > 0) {
        summary.steps = steps;
        summary.runtime_s = steps * step_s;
    }
    /* unknown if one of them is */
    summary.energy_j = summary.power_watts * summary.priced_units * summary.runtime_s;
    summary.tokens_per_j = summary.tokens_per_s / (summary.power_watts * summary.priced_units);
    if (samples > 0) summary.epoch_s = samples / (double)spec->config.training.batch * step_s;
    return run_summary_json(&summary, ret_summary);
}

static Status check_fit(const Fit *fit, const Plan *plan, const Cluster *cluster) {
    char needed[FORMAT_SIZE], free_bytes[FORMAT_SIZE];
    const Software *program = &cluster->software;
    if (fit->fits) return OK;
    return FAILED("out of memory, as predicted: %s%s %s per rank, %s available%s%s%s",
                  program->present ? program->title : "", program->present ? " needs" : "needs",
                  format_bytes(needed, (double)plan->stage[plan->fullest].memory.needed),
                  format_bytes(free_bytes, fit->available), fit->changes ? " (" : "",
                  fit->changes ? fit->change[0].options : "", fit->changes ? " would fit)" : "");
}

static Status write_trace(const Plan *plan, const Cluster *cluster, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(dir_make(dir));
    TRY(path_join(&path, dir, "trace.json"));
    return plan_trace(plan, cluster, path);
}

static Status predict(const RunSpec *run, const Prediction *prediction, const Cluster *cluster,
                      const char *dir, json_t **ret_summary) {
    PlanSpec spec;
    Fit fit;
    StepEstimate time;
    CLEANUP(plan_done) Plan plan = {0};
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(spec_of(run, cluster, prediction->any_device, &spec));
    TRY(plan_init(&plan, &spec));
    TRY(fit_find(&fit, &plan, &spec, cluster));
    TRY(check_fit(&fit, &plan, cluster));
    TRY(plan_time(&plan, cluster, &time));
    if (dir) TRY(write_trace(&plan, cluster, dir));
    TRY(plan_json(&plan, &spec, &json));
    TRY(time_json(&time, json));
    return summary_of(json, cluster, &spec, prediction->samples, ret_summary);
}

/* Adds the prediction for weft to that for another program. If weft does not fit, nothing is added. */
static Status add_weft(const RunSpec *run, const Prediction *prediction, Cluster cluster, json_t *summary) {
    CLEANUP(json_decrefp) json_t *weft = NULL;
    cluster.software.present = false;
    CLEANUP(status_freep) Status misfit = predict(run, prediction, &cluster, NULL, &weft);
    if (misfit) return OK;
    return json_object_set(summary, "weft", weft) ? FAILED("out of memory") : OK;
}

Status predict_run(const RunSpec *run, const Prediction *prediction, const char *dir, json_t **ret_summary) {
    Cluster cluster;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    TRY(cluster_find(prediction->cluster, &cluster));
    if (prediction->weft) cluster.software.present = false;
    TRY(predict(run, prediction, &cluster, dir, &summary));
    if (prediction->both && cluster.software.present) TRY(add_weft(run, prediction, cluster, summary));
    *ret_summary = json_incref(summary);
    return OK;
}
