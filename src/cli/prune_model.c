/* Pruning a checkpoint: load, prune, save. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"
#include "cli/prune.h"

/* State of one pruning. */
typedef struct Work {
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

static Status load(Work *work, const char *from) {
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(hf_config_read(from, &work->config));
    if (work->config.int8)
        return FAILED("%s is quantized to int%d; prune the original model instead", from,
                      work->config.int4 ? 4 : 8);
    TRY(model_new(&work->model, &work->config));
    TRY(hf_weights_check(from, work->model, &report));
    TRY(load_report_check(&report, from, &work->config, false));
    TRY(device_new_cpu(&work->device, 0));
    TRY(stream_new(&work->stream, work->device));
    TRY(store_new(&work->params, work->model, work->device, MEM_PARAMS));
    return hf_weights_load(from, work->params, work->stream, NULL);
}

static Status save(const Work *work, const char *from, const char *out) {
    CLEANUP(hf_files_freep) HfFiles *files = NULL;
    TRY(hf_files_open(&files, from));
    DType dtype = hf_files_dtype(files);
    SaveOptions options = {.dtype = dtype == DT_F64 ? DT_F32 : dtype, .assets_dir = from};
    return hf_save(out, work->fewer ? work->fewer : work->params, work->stream, &options);
}

static bool of_kind(const PruneArgs *args, const char *kind) {
    return !strcmp(args->kind, kind);
}

/* How many of `before` rows or heads to keep. */
static int64_t kept_of(const PruneArgs *args, int64_t before, double amount) {
    if (of_kind(args, "heads")) return prune_heads_kept(before, amount, args->train.layout.tp);
    return prune_rows_kept(before, amount, args->row_multiple);
}

static Status prune_loaded(Work *work, const PruneArgs *args, double amount, int64_t rows) {
    if (of_kind(args, "weights")) return prune_weights(work->params, amount, args->per_matrix);
    int64_t kept = kept_of(args, rows, amount);
    if (of_kind(args, "rows"))
        return prune_rows(work->params, kept, work->device, &work->smaller, &work->fewer);
    return prune_heads(work->params, kept, work->device, &work->smaller, &work->fewer);
}

Status prune_model(const PruneArgs *args, const char *from, double amount, int64_t rows, const char *out,
                   PruneState *ret_state) {
    CLEANUP(work_done) Work work = {0};
    TRY(load(&work, from));
    if (out) TRY(prune_loaded(&work, args, amount, rows));
    const Store *now = work.fewer ? work.fewer : work.params;
    const ModelConfig *config = &now->model->config;
    PruneState state = {.inner = config->inner, .heads = config->heads, .params = model_params(now->model)};
    TRY(prune_count(now, &state.count));
    if (out) TRY(save(&work, from, out));
    *ret_state = state;
    return OK;
}

Status prune_model_rows(const PruneArgs *args, const char *from, int64_t *ret_rows) {
    ModelConfig config;
    TRY(hf_config_read(from, &config));
    bool heads = of_kind(args, "heads");
    int64_t rows = heads ? config.heads : config.inner, kept = kept_of(args, rows, args->amount);
    if (of_kind(args, "rows") && kept == rows)
        return USAGE("--amount %g: would keep all %lld rows per layer, rounded to a multiple of %lld; use a "
                     "larger amount or a smaller --row-multiple",
                     args->amount, (long long)rows, (long long)args->row_multiple);
    if (heads && kept >= rows)
        return USAGE("--amount %g: would keep all %lld heads per layer, rounded to a multiple of --tp "
                     "%lld; use a larger amount",
                     args->amount, (long long)rows, (long long)args->train.layout.tp);
    *ret_rows = rows;
    return OK;
}

double prune_sparsity(const PruneArgs *args, const PruneState *state, int64_t rows) {
    if (of_kind(args, "heads")) return 1 - (double)state->heads / (double)rows;
    if (of_kind(args, "rows")) return 1 - (double)state->inner / (double)rows;
    return (double)state->count.zeros / (double)state->count.total;
}
