/* Loads a run's checkpoint into the stores of any layout. */
#include "base/fs.h"
#include "checkpoint/checksums.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/slices.h"

HfTensor checkpoint_state_tensor(const ParamDesc *desc) {
    HfTensor tensor = {.part = -1, .ndim = desc->ndim};
    for (int i = 0; i < desc->ndim; i++) tensor.dim[i] = desc->dim[i];
    return tensor;
}

const char *checkpoint_state_name(char name[STATE_NAME], SaveOwner owner, int writer, const char *kind,
                                  const ParamDesc *desc) {
    static const char *const owners[] = {[SAVE_WORKER] = "worker", [SAVE_REPLICA] = "replica"};
    if (owner == SAVE_SHARED)
        snprintf(name, STATE_NAME, "%s.%s", kind, desc->name);
    else
        snprintf(name, STATE_NAME, "%s-%d.%s.%s", owners[owner], writer, kind, desc->name);
    return name;
}

/* What to load into a store. */
typedef struct StateLoad {
    const char *kind; /* NULL: the optimizer's state `state` */
    int state;
    SaveOwner owner;
    int writer, writers; /* the worker or replica whose tensors to load, and their number in the file */
    int experts;         /* adjacent writers that have one tensor of experts; 0: 1 */
    bool lacks_experts;  /* the file has no tensors of experts for these writers */
    bool may_lack;
} StateLoad;

/* Where the tensors are, and how they are received. */
typedef struct StateSource {
    const SafeFile *file;
    const RootDisk *disk;
    const OptimSpec *optim;
    Stream *stream;
} StateSource;

/* With a disk that only rank 0 has, this is collective; a rank that does not want the tensor has no store. */
static Status load_state(const StateSource *from, const char *name, bool may_lack, const ParamDesc *desc,
                         ParamRef ref, Store *store, const Store *any) {
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    const SafeTensor *tensor = safe_find(from->file, name);
    if (!tensor && may_lack) return OK;
    if (!tensor) return FAILED("%s: tensor '%s' is missing", safe_path(from->file), name);
    bool same = tensor->dtype == DT_F32 && tensor->ndim == desc->ndim;
    for (int i = 0; same && i < desc->ndim; i++) same = tensor->dim[i] == desc->dim[i];
    if (!same)
        return FAILED("%s: tensor '%s' is %s of shape %s, but the model expects F32 of shape %s",
                      safe_path(from->file), name, tensor->type,
                      safe_shape_text(found, tensor->ndim, tensor->dim),
                      safe_shape_text(expected, desc->ndim, desc->dim));
    HfTensor complete = checkpoint_state_tensor(desc);
    if (store) return store_read_slot(store, ref, &complete, &tensor, 1, from->disk, from->stream);
    return slice_receive(NULL, &any->unit[ref.unit].slot[ref.slot], 0, 0, &complete, &tensor, 1, from->disk);
}

/* The tensors of all writers, since rank 0 sends them to all ranks in order; without it, those of one. */
static Status load_param(const StateSource *from, const StateLoad *what, const char *kind,
                         const ParamDesc *desc, ParamRef ref, Store *store) {
    int writers = what->owner == SAVE_SHARED ? 1 : what->writers, writer = what->writer;
    if (desc->expert && what->lacks_experts) return OK;
    if (desc->expert && what->experts) writers /= what->experts, writer /= what->experts;
    for (int w = 0; w < writers; w++) {
        char name[STATE_NAME];
        bool wanted = what->owner == SAVE_SHARED || w == writer;
        if (!wanted && !from->disk) continue;
        checkpoint_state_name(name, what->owner, w, kind, desc);
        TRY(load_state(from, name, what->may_lack, desc, ref, wanted ? store : NULL, store));
    }
    return OK;
}

static Status load_states(const StateSource *from, StateLoad what, Store *store) {
    for (ModelParam param = {0}; model_param_next(store->model, &param);) {
        const char *kind = what.kind ? what.kind : optim_state_name(from->optim, param.desc, what.state);
        if (!param.desc->frozen && kind) TRY(load_param(from, &what, kind, param.desc, param.ref, store));
    }
    return OK;
}

/* `saved`: the checkpoint's number of workers, not 0. */
static Status load_workers(const StateSource *from, const WorkerState *workers, int saved) {
    StateLoad own = {
        .kind = "param", .owner = SAVE_WORKER, .writer = workers->index % saved, .writers = saved};
    StateLoad sent = own;
    sent.kind = "outer_grad";
    sent.may_lack = true;
    TRY(load_states(from, own, workers->params));
    TRY(load_states(from, sent, workers->outer_grad));
    return load_states(from, (StateLoad){.kind = "outer_momentum"}, workers->outer_momentum);
}

static Status load_optimizer(const char *dir, const CheckpointState *into, SavedCounts saved,
                             Stream *stream) {
    const WorkerState *workers = &into->workers;
    const ReplicaState *replicas = &into->replicas;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_OPTIMIZER));
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(safe_open(&file, path));
    StateSource from = {file, into->disk, into->optim, stream};
    StateLoad what = {.owner = saved.workers ? SAVE_WORKER : SAVE_SHARED, .writers = (int)saved.workers};
    if (saved.workers) what.writer = (int)(workers->index % saved.workers);
    for (what.state = 0; what.state < optim_states(into->optim); what.state++)
        TRY(load_states(&from, what, into->state[what.state]));
    if (workers->count && saved.workers) TRY(load_workers(&from, workers, (int)saved.workers));
    if (workers->count && !saved.workers)
        TRY(hf_weights_receive(dir, into->disk, workers->params, stream, NULL));
    if (!replicas->count || replicas->count != saved.replicas) return OK;
    /* Which units are in pieces depends on the layout. */
    StateLoad left = {.kind = "grad_residual",
                      .owner = SAVE_REPLICA,
                      .writer = replicas->index,
                      .writers = replicas->count,
                      .experts = replicas->experts,
                      .lacks_experts = replicas->experts != saved.experts,
                      .may_lack = true};
    return load_states(&from, left, replicas->residual);
}

/* A checkpoint that does not name its optimizer is AdamW's, which was once the only one. */
static Status check_optimizer(const char *path, const json_t *json, const OptimSpec *optim) {
    const json_t *value = json_object_get(json, "optimizer");
    const char *was = value ? json_string_value(value) : optim_row(0)->name, *now = optim_kind(optim)->name;
    if (!was) return FAILED("%s: 'optimizer' must be a string", path);
    if (!strcmp(was, now)) return OK;
    return USAGE("%s: cannot resume this checkpoint: its optimizer is %s, but this run's is %s; use "
                 "{optimizer} %s, or start a new run from its weights with {model} and another {out}",
                 path, was, now, was);
}

static Status read_progress(const char *dir, const OptimSpec *optim, SavedCounts *ret_counts,
                            json_t **ret_progress) {
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
    TRY(json_get_int(json, path, "workers", 0, 1 << 20, &ret_counts->workers));
    TRY(json_get_int(json, path, "replicas", 0, 1 << 20, &ret_counts->replicas));
    ret_counts->experts = 1;
    TRY(json_get_int(json, path, "replica_experts", 1, 1 << 20, &ret_counts->experts));
    json_t *progress = json_object_get(json, "progress");
    if (!json_is_object(progress)) return FAILED("%s: 'progress' is missing", path);
    *ret_progress = json_incref(progress);
    return OK;
}

Status ckpt_load(const char *dir, const CheckpointState *into, Stream *stream, SavedCounts *ret_counts,
                 json_t **ret_progress) {
    CLEANUP(json_decrefp) json_t *progress = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    SavedCounts saved = {0};
    TRY(read_progress(dir, into->optim, &saved, &progress));
    TRY(hf_weights_receive(dir, into->disk, into->params, stream, &report));
    TRY(load_report_check(&report, dir, &into->params->model->config, false));
    if (report.unexpected_count)
        return FAILED("%s: unexpected tensor '%s', which the model does not have", dir, report.unexpected[0]);
    TRY(load_optimizer(dir, into, saved, stream));
    if (ret_counts) *ret_counts = saved;
    return ret_progress ? MOVE(ret_progress, progress) : OK;
}
