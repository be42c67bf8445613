/* Pruning a checkpoint: load, prune, save. */
#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "checkpoint/hf_files.h"
#include "compress/prune_rounds.h"
#include "train/job.h"

/* State of one pruning. */
typedef struct Work {
    const char *from; /* the checkpoint */
    ModelConfig config;
    Device *device;
    Stream *stream;
    Model *model, *smaller; /* smaller, fewer: after rows or heads were removed, else NULL */
    Store *params, *fewer;
} Work;

static void work_done(Work *work) {
    store_free(work->fewer);
    store_free(work->params);
    stream_free(work->stream);
    device_free(work->device);
    model_free(work->smaller);
    model_free(work->model);
}

/* NaN and Inf have no rank among the weights, and rows that contain them no score. */
static Status check_finite(const Store *params, const char *from) {
    const Model *model = params->model;
    for (int i = 0; i < model->count; i++)
        for (size_t j = 0; j < model->block[i].params.count; j++) {
            Tensor view = params->view[i][j];
            for (int64_t k = 0; k < tensor_count(view); k++)
                if (!isfinite(tensor_f32(view)[k]))
                    return FAILED("%s: %s contains a weight that is not finite", from,
                                  model->block[i].params.desc[j].name);
        }
    return OK;
}

static bool of_kind(const PruneSpec *spec, const char *kind) {
    return !strcmp(spec->kind, kind);
}

/* What cannot be removed from some models. */
static Status check_kind(const PruneSpec *spec, const char *from, const ModelConfig *config) {
    if (config->experts && (of_kind(spec, "rows") || of_kind(spec, "all-rows")))
        return USAGE("{kind} %s: %s is a mixture of experts, whose rows cannot be pruned; use {kind} weights "
                     "or heads",
                     spec->kind, from);
    if (config->qk_norm_whole && of_kind(spec, "heads"))
        return USAGE(
            "{kind} heads: %s normalizes q and k over all heads together, so none can be removed; use "
            "{kind} weights",
            from);
    return OK;
}

static Status load(Work *work, const PruneSpec *spec, const char *from) {
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(hf_config_read(from, &work->config));
    if (config_quantized(&work->config))
        return FAILED("%s is quantized to int%d; prune the original model instead", from,
                      packing_bits(work->config.packed_layers));
    TRY(check_kind(spec, from, &work->config));
    TRY(model_new(&work->model, &work->config));
    TRY(hf_weights_check(from, work->model, &report));
    TRY(load_report_check(&report, from, &work->config, false));
    TRY(device_new_cpu(&work->device, 0));
    TRY(stream_new(&work->stream, work->device));
    TRY(store_new(&work->params, work->model, work->device, MEM_PARAMS));
    TRY(checksums_verify(from, VERIFY_WEIGHTS, NULL, NULL));
    TRY(hf_weights_load(from, work->params, work->stream, NULL));
    return check_finite(work->params, from);
}

static Status save(const Work *work, const char *from, const char *out) {
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, from));
    DType dtype = hf_files_dtype(files);
    SaveOptions options = {.dtype = dtype == DT_F64 ? DT_F32 : dtype, .assets_dir = from};
    return hf_save(out, work->fewer ? work->fewer : work->params, work->stream, &options);
}

/* ---- gradients, by which weights may be ranked ---- */

enum { BATCHES = 4, BATCH = 4 };

typedef struct Batches {
    HostBatch *at[BATCHES];
} Batches;

static void batches_done(Batches *batches) {
    for (int i = 0; i < BATCHES; i++) host_batch_free(batches->at[i]);
}

/* Forward and backward over the first batches in the run's own order. */
static Status accumulate(const Job *job, const Settings *config, const Dataset *data) {
    CLEANUP(batches_done) Batches batches = {0};
    StepResult result;
    int64_t targets = config_targets(&job->model->config);
    for (int i = 0; i < BATCHES; i++) {
        TRY(host_batch_new_targets(&batches.at[i], BATCH, job->seq, targets));
        TRY(dataset_fill(data, (uint64_t)i * BATCH, !config->data.no_shuffle, batches.at[i]));
    }
    return runner_gradients(job->runner, batches.at, BATCHES, 1, &result);
}

/* The training data, as 'weft train' splits it. */
static Status open_data(Job *job, const Settings *c, Dataset **ret_data) {
    CLEANUP(token_file_list_done) TokenFileList val_files = {0};
    if (c->data.val_count == 0) TRY(job_val_token_files(c->data.files, c->data.files_count, &val_files));
    bool split = c->data.val_count == 0 && val_files.count == 0;
    return job_data(job, c->data.files, c->data.files_count, job_training_part(&c->data, split),
                    c->data.mask_rate, c->run.seed, ret_data);
}

/* The mean gradient of a checkpoint's loss over a few batches of config->data, without dropout, computed in
 * fp32 on the CPU so that the choice does not depend on device or layout. `dir`: the checkpoint.
 * (*ret_job)->runner->grads holds it. */
static Status gradients_new(const char *dir, const Settings *config, Job **ret_job) {
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    Settings spec = *config;
    spec.model.name = dir;
    spec.device = (DeviceSettings){.name = "cpu", .precision = "fp32", .threads = config->device.threads};
    spec.run.fake_quant = FAKE_QUANT_NONE;
    spec.model.dropout = 0;
    spec.run.mesh = NULL;
    spec.run.zero = spec.run.chunks = 0;
    spec.run.offload = OFFLOAD_NONE;
    spec.run.schedule = SCHEDULE_1F1B;
    spec.run.sequence = spec.run.keep_params = false;
    spec.run.micro_batch = BATCH;
    spec.training.batch = BATCH * BATCHES;
    TRY(job_new(&job, &spec, JOB_TRAIN));
    TRY(open_data(job, config, &data));
    TRY(job_start(job, &report));
    TRY(load_report_check(&report, dir, &job->model->config, true));
    TRY(accumulate(job, config, data));
    return MOVE(ret_job, job);
}

/* ---- pruning ---- */

bool prune_leaves_zeros(const PruneSpec *spec) {
    return of_kind(spec, "weights") || of_kind(spec, "all-rows");
}

static int64_t inner_kept(const PruneSpec *spec, int64_t inner, double amount) {
    if (of_kind(spec, "heads")) return inner;
    return prune_rows_kept(inner, amount, spec->row_multiple);
}

/* Heads that share a key-value head are kept or pruned together. */
static int64_t heads_kept(const PruneSpec *spec, const PruneState *dense, double amount) {
    if (of_kind(spec, "rows")) return dense->heads;
    int64_t kept = prune_heads_kept(dense->heads, amount, dense->group * spec->tp);
    return kept < dense->heads ? kept : dense->heads;
}

static PruneScore score_of(const PruneSpec *spec) {
    if (!spec->score) return prune_leaves_zeros(spec) ? PRUNE_L2 : PRUNE_PRODUCT;
    return !strcmp(spec->score, "l2")        ? PRUNE_L2
           : !strcmp(spec->score, "product") ? PRUNE_PRODUCT
                                             : PRUNE_GRADIENT;
}

static Status prune_loaded(Work *work, const PruneSpec *spec, double amount, const PruneState *dense) {
    CLEANUP(job_freep) Job *job = NULL;
    PruneRank rank = {.score = score_of(spec)};
    if (rank.score == PRUNE_GRADIENT) {
        TRY(gradients_new(work->from, &spec->train, &job));
        rank.grads = job->runner->grads;
    }
    if (of_kind(spec, "weights")) return prune_weights(work->params, amount, spec->per_matrix, rank.grads);
    if (of_kind(spec, "all-rows")) TRY(prune_zero_outputs(work->params, amount, rank));
    return prune_shrink(work->params, inner_kept(spec, dense->inner, amount), heads_kept(spec, dense, amount),
                        rank, work->device, &work->smaller, &work->fewer);
}

static Status look(const Store *params, PruneState *ret_state) {
    const ModelConfig *c = &params->model->config;
    PruneState state = {.inner = c->inner,
                        .heads = c->heads,
                        .group = c->heads / config_kv_heads(c),
                        .params = model_params(params->model)};
    TRY(prune_count(params, &state.count));
    state.zero_rows = prune_zero_rows(params);
    int64_t up = c->gated ? 2 * c->inner : c->inner;
    int64_t rows = config_attention(c) + 2 * config_kv_width(c) + up + 2 * c->hidden;
    state.rows = c->layers * rows - state.zero_rows;
    *ret_state = state;
    return OK;
}

Status prune_model(const PruneSpec *spec, const char *from, double amount, const PruneState *dense,
                   const char *out, PruneState *ret_state) {
    CLEANUP(work_done) Work work = {.from = from};
    TRY(load(&work, spec, from));
    if (out) TRY(prune_loaded(&work, spec, amount, dense));
    PruneState state;
    TRY(look(work.fewer ? work.fewer : work.params, &state));
    if (out) TRY(save(&work, from, out));
    *ret_state = state;
    return OK;
}

Status prune_check_amount(const PruneSpec *spec, const PruneState *dense) {
    if (of_kind(spec, "rows") && inner_kept(spec, dense->inner, spec->amount) == dense->inner)
        return USAGE("{amount} %g: would keep all %lld rows per layer, rounded to a multiple of %lld; use a "
                     "larger amount or a smaller {row-multiple}",
                     spec->amount, (long long)dense->inner, (long long)spec->row_multiple);
    if (!of_kind(spec, "heads") || heads_kept(spec, dense, spec->amount) < dense->heads) return OK;
    int64_t multiple = dense->group * spec->tp;
    char groups[64] = "";
    if (dense->group > 1)
        snprintf(groups, sizeof groups, ", %lld heads per key-value head", (long long)dense->group);
    if (multiple >= dense->heads)
        return USAGE(
            "no heads can be pruned: a layer keeps a multiple of %lld heads ({tp} %lld%s), and it has %lld",
            (long long)multiple, (long long)spec->tp, groups, (long long)dense->heads);
    return USAGE("{amount} %g: would keep all %lld heads per layer, rounded to a multiple of %lld ({tp} "
                 "%lld%s); use a larger amount",
                 spec->amount, (long long)dense->heads, (long long)multiple, (long long)spec->tp, groups);
}

double prune_sparsity(const PruneSpec *spec, const PruneState *state, const PruneState *dense) {
    if (of_kind(spec, "heads")) return 1 - (double)state->heads / (double)dense->heads;
    if (of_kind(spec, "rows")) return 1 - (double)state->inner / (double)dense->inner;
    if (of_kind(spec, "all-rows")) return 1 - (double)state->rows / (double)(dense->rows + dense->zero_rows);
    return (double)state->count.zeros / (double)state->count.total;
}

Status prune_once(const PruneSpec *spec, json_t **ret_result) {
    CLEANUP(model_dir_done) ModelDir source = {0};
    CLEANUP(mem_freep) char *path = NULL;
    const char *out = spec->train.ckpt.out;
    PruneState dense, state;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(hf_save_check(out));
    TRY(progress_new_phase(&progress, spec->train.report.log, "pruning", 0, spec->train.report.quiet));
    TRY(model_dir_open(&source, spec->train.model.name));
    const char *from = source.path;
    TRY(prune_model(spec, from, 0, NULL, NULL, &dense));
    TRY(prune_check_amount(spec, &dense));
    TRY(prune_model(spec, from, spec->amount, &dense, out, &state));
    CLEANUP(json_decrefp)
    json_t *result = json_pack("{s:{s:s, s:s, s:s?, s:f, s:s}, s:[{s:f, s:I, s:I, s:I, s:I}]}", "settings",
                               "model", from, "kind", spec->kind, "score", spec->score, "amount",
                               spec->amount, "scope", spec->per_matrix ? "per-matrix" : "global", "rounds",
                               "sparsity", prune_sparsity(spec, &state, &dense), "params_total",
                               (json_int_t)state.params, "inner", (json_int_t)state.inner, "heads",
                               (json_int_t)state.heads, "zero_rows", (json_int_t)state.zero_rows);
    if (!result) return FAILED("out of memory while writing the result");
    TRY(path_join(&path, out, "pruning.json"));
    TRY(json_write_file(path, result));
    *ret_result = json_incref(result);
    return OK;
}
