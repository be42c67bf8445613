/* A run's checkpoints.
 *
 *   RUN/checkpoints/step-N       whole checkpoints, and only such
 *   RUN/checkpoints/step-N.tmp   one being written, or one being removed
 *   RUN/checkpoints/step-N.old   one being replaced by another of the same step
 *   RUN/latest                   a link to the newest
 *
 * A save writes and fsyncs step-N.tmp, renames it, moves `latest`, and only then removes old ones, each
 * renamed to .tmp first. So whatever instant a run is killed at, every step-N is whole; leftovers are
 * cleared by the next save. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_save.h"
#include "checkpoint/safetensors.h"

#define CHECKPOINTS "checkpoints"
#define LATEST      "latest"
#define PROGRESS    "weft.json"
#define OPTIMIZER   "optimizer.safetensors"

enum { PROGRESS_FORMAT = 1 };

typedef struct StepList {
    int64_t *step;
    size_t count, capacity;
} StepList;

static void step_list_done(StepList *list) {
    free(list->step);
}

static void dir_closep(DIR **dir) {
    if (*dir) closedir(*dir);
}

/* N of "step-N" with what follows it; false for other names. */
static bool parse_step(const char *name, int64_t *ret_step, const char **ret_rest) {
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return false;
    char *rest;
    errno = 0;
    long long step = strtoll(name + 5, &rest, 10);
    if (errno) return false;
    *ret_step = step;
    *ret_rest = rest;
    return true;
}

static Status step_path(const char *checkpoints, int64_t step, const char *suffix, char **ret_path) {
    return str_format(ret_path, "%s/step-%lld%s", checkpoints, (long long)step, suffix);
}

static Status move(const char *from, const char *to) {
    if (rename(from, to) != 0) return FAILED("%s: cannot be renamed to %s: %s", from, to, strerror(errno));
    return OK;
}

static Status is_whole(const char *dir, bool *ret_whole) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, PROGRESS));
    *ret_whole = path_exists(path);
    return OK;
}

/* ---- saving ---- */

static Status declare_moments(SafeWriter *writer, const Store *store, const char *kind) {
    for (int i = 0; i < store->model->count; i++) {
        const ParamList *list = &store->model->block[i].params;
        for (size_t j = 0; j < list->count; j++) {
            const ParamDesc *desc = &list->desc[j];
            if (desc->tied) continue;
            char name[PARAM_NAME + 16];
            snprintf(name, sizeof name, "%s.%s", kind, desc->name);
            TRY(safe_writer_declare(writer, name, DT_F32, desc->ndim, desc->dim));
        }
    }
    return OK;
}

static Status write_moments(SafeWriter *writer, const Store *store, Stream *stream) {
    for (int i = 0; i < store->model->count; i++) {
        const ParamList *list = &store->model->block[i].params;
        for (size_t j = 0; j < list->count; j++)
            if (!list->desc[j].tied) TRY(hf_write_values(writer, DT_F32, store->view[i][j], false, stream));
    }
    return OK;
}

static Status write_optimizer(const char *dir, const CheckpointState *state, Stream *stream) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, OPTIMIZER));
    CLEANUP(safe_writer_freep) SafeWriter *writer = NULL;
    TRY(safe_writer_new(&writer, path));
    TRY(declare_moments(writer, state->m, "exp_avg"));
    TRY(declare_moments(writer, state->v, "exp_avg_sq"));
    TRY(write_moments(writer, state->m, stream));
    TRY(write_moments(writer, state->v, stream));
    return safe_writer_commit(writer);
}

static Status write_progress(const char *dir, int64_t step, const json_t *progress) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, PROGRESS));
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:i, s:I, s:O?}", "format", PROGRESS_FORMAT, "step", (json_int_t)step,
                             "progress", progress);
    if (!json) return FAILED("%s: out of memory", path);
    return json_write_file(path, json);
}

/* Finishes what killed saves and removals began: half-written and half-removed ones go, and one that was
 * set aside comes back when nothing took its place. */
static Status clear_entry(const char *checkpoints, const char *name) {
    int64_t step;
    const char *rest;
    if (!parse_step(name, &step, &rest)) return OK;
    CLEANUP(mem_freep) char *path = NULL, *place = NULL;
    TRY(path_join(&path, checkpoints, name));
    TRY(step_path(checkpoints, step, "", &place));
    if (!strcmp(rest, ".tmp")) return dir_remove(path);
    if (strcmp(rest, ".old")) return OK;
    return path_exists(place) ? dir_remove(path) : move(path, place);
}

typedef Status (*EntryFunc)(const char *dir, const char *name);

static Status each_entry(const char *path, EntryFunc func) {
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: the directory cannot be read: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) TRY(func(path, entry->d_name));
    return OK;
}

static Status clear_link(const char *run_dir, const char *name) {
    if (strncmp(name, LATEST ".tmp.", strlen(LATEST ".tmp."))) return OK;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, run_dir, name));
    return dir_remove(path);
}

static Status write_all(const char *dir, int64_t step, const CheckpointState *state, Stream *stream) {
    SaveOptions options = {
        .dtype = DT_F32, .assets_dir = state->assets_dir, .tokenizer_dir = state->tokenizer_dir};
    TRY(dir_make(dir));
    TRY(hf_write(dir, state->params, stream, &options));
    TRY(write_optimizer(dir, state, stream));
    TRY(write_progress(dir, step, state->progress));
    return dir_sync(dir);
}

/* Puts the written directory in its place; an older one of the same step is set aside until then. */
static Status put_in_place(const char *checkpoints, int64_t step, const char *written) {
    CLEANUP(mem_freep) char *place = NULL, *aside = NULL;
    TRY(step_path(checkpoints, step, "", &place));
    TRY(step_path(checkpoints, step, ".old", &aside));
    bool replaces = path_exists(place);
    if (replaces) TRY(move(place, aside));
    TRY(move(written, place));
    TRY(dir_sync(checkpoints));
    return replaces ? dir_remove(aside) : OK;
}

static Status list_steps(const char *checkpoints, StepList *list) {
    CLEANUP(dir_closep) DIR *dir = opendir(checkpoints);
    if (!dir) return OK;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int64_t step;
        const char *rest;
        if (!parse_step(entry->d_name, &step, &rest) || *rest) continue;
        TRY(mem_grow(&list->step, &list->capacity, list->count + 1, sizeof *list->step));
        list->step[list->count++] = step;
    }
    return OK;
}

/* Removes all but the one just saved and the `keep - 1` of the highest steps beside it. */
static Status prune(const char *checkpoints, int64_t saved, int keep) {
    CLEANUP(step_list_done) StepList list = {0};
    TRY(list_steps(checkpoints, &list));
    for (size_t i = 0; i < list.count; i++) {
        if (list.step[i] == saved) continue;
        int newer = 1;
        for (size_t j = 0; j < list.count; j++) newer += list.step[j] != saved && list.step[j] > list.step[i];
        if (newer < keep) continue;
        CLEANUP(mem_freep) char *path = NULL, *leaving = NULL;
        TRY(step_path(checkpoints, list.step[i], "", &path));
        TRY(step_path(checkpoints, list.step[i], ".tmp", &leaving));
        TRY(move(path, leaving));
        TRY(dir_remove(leaving));
    }
    return OK;
}

Status ckpt_save(const char *run_dir, int64_t step, const CheckpointState *state, Stream *stream, int keep) {
    CLEANUP(mem_freep) char *checkpoints = NULL, *temporary = NULL, *link = NULL, *target = NULL;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    TRY(path_join(&link, run_dir, LATEST));
    TRY(step_path(checkpoints, step, ".tmp", &temporary));
    TRY(str_format(&target, "%s/step-%lld", CHECKPOINTS, (long long)step));
    TRY(dir_make(checkpoints));
    TRY(dir_sync(run_dir));
    TRY(each_entry(checkpoints, clear_entry));
    TRY(each_entry(run_dir, clear_link));

    Status status = write_all(temporary, step, state, stream);
    if (!status) status = put_in_place(checkpoints, step, temporary);
    if (status) {
        Status cleared = each_entry(checkpoints, clear_entry);
        status_free(cleared);
        return status_wrap(status, "the checkpoint of step %lld is not saved", (long long)step);
    }
    TRY(link_replace(link, target));
    return keep > 0 ? prune(checkpoints, step, keep) : OK;
}

/* ---- finding ---- */

/* Where `latest` points, when that is a whole checkpoint. */
static Status follow_link(const char *run_dir, char **ret_dir) {
    CLEANUP(mem_freep) char *link = NULL, *dir = NULL;
    TRY(path_join(&link, run_dir, LATEST));
    char target[PATH_MAX];
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return OK;
    target[length] = 0;
    TRY(target[0] == '/' ? str_dup(target, &dir) : path_join(&dir, run_dir, target));
    bool whole = false;
    TRY(is_whole(dir, &whole));
    if (!whole) return OK;
    *ret_dir = dir;
    dir = NULL;
    return OK;
}

/* The highest step, also one that was set aside by a save that did not finish. */
static Status scan_steps(const char *run_dir, char **ret_dir) {
    CLEANUP(mem_freep) char *checkpoints = NULL, *best = NULL;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    CLEANUP(dir_closep) DIR *dir = opendir(checkpoints);
    int64_t best_step = -1, step;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *rest;
        if (!parse_step(entry->d_name, &step, &rest) || (*rest && strcmp(rest, ".old"))) continue;
        if (step < best_step || (step == best_step && *rest)) continue;
        CLEANUP(mem_freep) char *path = NULL;
        bool whole = false;
        TRY(path_join(&path, checkpoints, entry->d_name));
        TRY(is_whole(path, &whole));
        if (!whole) continue;
        free(best);
        best = path;
        path = NULL;
        best_step = step;
    }
    *ret_dir = best;
    best = NULL;
    return OK;
}

Status ckpt_latest(const char *run_dir, char **ret_dir) {
    char *dir = NULL;
    TRY(follow_link(run_dir, &dir));
    if (!dir) TRY(scan_steps(run_dir, &dir));
    *ret_dir = dir;
    return OK;
}

Status ckpt_model_dir(const char *path, char **ret_dir) {
    char *dir = NULL;
    TRY(ckpt_latest(path, &dir));
    if (!dir) TRY(str_dup(path, &dir));
    *ret_dir = dir;
    return OK;
}

/* ---- loading ---- */

static Status load_moment(const SafeFile *file, const char *kind, const ParamDesc *desc, Tensor view,
                          Stream *stream) {
    char name[PARAM_NAME + 16], found[SHAPE_TEXT], expected[SHAPE_TEXT];
    snprintf(name, sizeof name, "%s.%s", kind, desc->name);
    const SafeTensor *tensor = safe_find(file, name);
    if (!tensor) return FAILED("%s: holds no tensor '%s'", safe_path(file), name);
    bool same = tensor->dtype == DT_F32 && tensor->ndim == desc->ndim;
    for (int i = 0; same && i < desc->ndim; i++) same = tensor->dim[i] == desc->dim[i];
    if (!same)
        return FAILED("%s: tensor '%s' is %s of shape %s, the model expects F32 of shape %s", safe_path(file),
                      name, tensor->type, safe_shape_text(found, tensor->ndim, tensor->dim),
                      safe_shape_text(expected, desc->ndim, desc->dim));
    return stream_copy(stream, view.data, tensor->data, tensor->bytes, COPY_TO_DEVICE);
}

static Status load_moments(const SafeFile *file, const char *kind, Store *store, Stream *stream) {
    for (int i = 0; i < store->model->count; i++) {
        const ParamList *list = &store->model->block[i].params;
        for (size_t j = 0; j < list->count; j++)
            if (!list->desc[j].tied) TRY(load_moment(file, kind, &list->desc[j], store->view[i][j], stream));
    }
    return OK;
}

static Status load_optimizer(const char *dir, Store *m, Store *v, Stream *stream) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, OPTIMIZER));
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(safe_open(&file, path));
    TRY(load_moments(file, "exp_avg", m, stream));
    TRY(load_moments(file, "exp_avg_sq", v, stream));
    return stream_sync(stream);
}

static Status read_progress(const char *dir, json_t **ret_progress) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, PROGRESS));
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(path, &json));
    int64_t format = 0;
    TRY(json_get_int(json, path, "format", 0, INT64_MAX, &format));
    if (format != PROGRESS_FORMAT)
        return FAILED("%s: 'format' is %lld, this version reads %d", path, (long long)format,
                      PROGRESS_FORMAT);
    json_t *progress = json_object_get(json, "progress");
    if (!json_is_object(progress)) return FAILED("%s: has no 'progress'", path);
    *ret_progress = json_incref(progress);
    return OK;
}

Status ckpt_load(const char *dir, Store *params, Store *m, Store *v, Stream *stream, json_t **ret_progress) {
    CLEANUP(json_decrefp) json_t *progress = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(read_progress(dir, &progress));
    TRY(hf_weights_load(dir, params, stream, &report));
    TRY(load_report_check(&report, dir, &params->model->config, false));
    if (report.unknown_count)
        return FAILED("%s: holds tensor '%s', which the model has no place for", dir, report.unknown[0]);
    TRY(load_optimizer(dir, m, v, stream));
    if (ret_progress) {
        *ret_progress = progress;
        progress = NULL;
    }
    return OK;
}
