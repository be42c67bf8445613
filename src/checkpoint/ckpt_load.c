/* Loads a run's checkpoint into the stores of any layout. */
#include "base/fs.h"
#include "checkpoint/checksums.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/hf_load.h"

HfTensor checkpoint_state_tensor(const ParamDesc *desc) {
    HfTensor tensor = {.part = -1, .ndim = desc->ndim};
    for (int i = 0; i < desc->ndim; i++) tensor.dim[i] = desc->dim[i];
    return tensor;
}

static Status load_state(const SafeFile *file, const char *kind, const ParamDesc *desc, ParamRef ref,
                         const RootDisk *disk, Store *store, Stream *stream) {
    char name[STATE_NAME], found[SHAPE_TEXT], expected[SHAPE_TEXT];
    snprintf(name, sizeof name, "%s.%s", kind, desc->name);
    const SafeTensor *tensor = safe_find(file, name);
    if (!tensor) return FAILED("%s: tensor '%s' is missing", safe_path(file), name);
    bool same = tensor->dtype == DT_F32 && tensor->ndim == desc->ndim;
    for (int i = 0; same && i < desc->ndim; i++) same = tensor->dim[i] == desc->dim[i];
    if (!same)
        return FAILED("%s: tensor '%s' is %s of shape %s, but the model expects F32 of shape %s",
                      safe_path(file), name, tensor->type, safe_shape_text(found, tensor->ndim, tensor->dim),
                      safe_shape_text(expected, desc->ndim, desc->dim));
    HfTensor complete = checkpoint_state_tensor(desc);
    return store_read_slot(store, ref, &complete, &tensor, 1, disk, stream);
}

static Status load_states(const SafeFile *file, const OptimSpec *optim, int state, const RootDisk *disk,
                          Store *store, Stream *stream) {
    for (int i = 0; i < store->model->count; i++) {
        const Block *block = &store->model->block[i];
        for (size_t j = 0; j < block->params.count; j++) {
            const ParamDesc *desc = &block->params.desc[j];
            const char *kind = optim_state_name(optim, desc, state);
            if (!desc->tied && kind) TRY(load_state(file, kind, desc, block->ref[j], disk, store, stream));
        }
    }
    return OK;
}

static Status load_optimizer(const char *dir, const RootDisk *disk, Store *const *state,
                             const OptimSpec *optim, Stream *stream) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_OPTIMIZER));
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(safe_open(&file, path));
    for (int k = 0; k < optim_states(optim); k++) TRY(load_states(file, optim, k, disk, state[k], stream));
    return OK;
}

/* A checkpoint that does not name its optimizer is AdamW's, which was once the only one. */
static Status check_optimizer(const char *path, const json_t *json, const OptimSpec *optim) {
    const json_t *value = json_object_get(json, "optimizer");
    const char *was = value ? json_string_value(value) : optim_row(0)->name, *now = optim_kind(optim)->name;
    if (!was) return FAILED("%s: 'optimizer' must be a string", path);
    if (!strcmp(was, now)) return OK;
    return USAGE("%s: cannot resume this checkpoint: its optimizer is %s, but this run's is %s", path, was,
                 now);
}

static Status read_progress(const char *dir, const OptimSpec *optim, json_t **ret_progress) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    int64_t format = 0;
    TRY(json_get_int(json, path, "format", 0, INT64_MAX, &format));
    if (format != PROGRESS_FORMAT)
        return FAILED("%s: 'format' is %lld, but this version of weft reads %d", path, (long long)format,
                      PROGRESS_FORMAT);
    TRY(check_optimizer(path, json, optim));
    json_t *progress = json_object_get(json, "progress");
    if (!json_is_object(progress)) return FAILED("%s: 'progress' is missing", path);
    *ret_progress = json_incref(progress);
    return OK;
}

Status ckpt_load(const char *dir, const RootDisk *disk, Store *params, Store *const *state,
                 const OptimSpec *optim, Stream *stream, json_t **ret_progress) {
    CLEANUP(json_decrefp) json_t *progress = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(read_progress(dir, optim, &progress));
    TRY(hf_weights_receive(dir, disk, params, stream, &report));
    TRY(load_report_check(&report, dir, &params->model->config, false));
    if (report.unexpected_count)
        return FAILED("%s: unexpected tensor '%s', which the model does not have", dir, report.unexpected[0]);
    TRY(load_optimizer(dir, disk, state, optim, stream));
    if (ret_progress) {
        *ret_progress = progress;
        progress = NULL;
    }
    return OK;
}
