/* A run's checkpoints.
 *
 *   RUN/checkpoints/step-N       complete checkpoints only
 *   RUN/checkpoints/step-N.tmp   being written or removed
 *   RUN/checkpoints/step-N.old   being replaced by another checkpoint of the same step
 *   RUN/checkpoints/step-N.damaged   passed over when the run was resumed; never read again
 *   RUN/latest                   link to the newest
 *   RUN/best                     link to the one with the lowest validation loss, if any was validated
 *
 * A save writes and fsyncs step-N.tmp, renames it, updates the links, and only then removes old checkpoints,
 * each renamed to .tmp first. So every step-N is complete no matter when a run is killed; the next save
 * clears leftovers. Values that are not finite make it fail before anything is renamed.
 *
 * With several ranks, the first one creates, renames and removes; all write tensor data (snapshot.h), each
 * at its own offsets in the same files. After each phase the ranks
 * agree on its outcome, so a save that fails on one rank fails on all, before anything is renamed. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksums.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/gguf_read.h"

#define CHECKPOINTS "checkpoints"
#define LATEST      "latest"
#define BEST        "best"

typedef struct StepList {
    int64_t *step;
    size_t count, capacity;
} StepList;

static void step_list_done(StepList *list) {
    free(list->step);
}

/* Parses "step-N" and returns what follows N; false for other names. */
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
    if (rename(from, to) != 0) return FAILED("%s: cannot rename to %s: %s", from, to, strerror(errno));
    return OK;
}

static Status is_complete(const char *dir, bool *ret_whole) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    *ret_whole = path_exists(path);
    return OK;
}

/* ---- saving ---- */

/* Which tensors to list from a store. */
typedef struct StateList {
    const char *kind; /* NULL: the optimizer's state `state` */
    int state;
    int writer;       /* the worker or replica, if they have their own */
    const bool *unit; /* NULL: all units have them */
    int experts;      /* the number of writers that have experts; 0: all have */
} StateList;

static Status list_state(SaveList *list, int file, int at, const CheckpointState *saved, StateList what) {
    const Store *store = list->store[at];
    for (ModelParam param = {0}; model_param_next(store->model, &param);) {
        const ParamDesc *desc = param.desc;
        const char *kind = what.kind ? what.kind : optim_state_name(saved->optim, desc, what.state);
        if (desc->frozen || !kind || (what.unit && !what.unit[param.ref.unit])) continue;
        if (desc->expert && what.experts && what.writer >= what.experts) continue;
        char name[STATE_NAME];
        HfTensor tensor = checkpoint_state_tensor(desc);
        checkpoint_state_name(name, list->owner[at], what.writer, kind, desc);
        TRY(save_list_add(list, at, what.writer, file, name, param.ref, &tensor, DT_F32));
    }
    return OK;
}

int ckpt_stores(const CheckpointState *state, const Store **ret_store, SaveOwner *ret_owner) {
    const WorkerState *workers = &state->workers;
    int count = 0;
    ret_owner[count] = SAVE_SHARED;
    ret_store[count++] = state->params;
    for (int k = 0; k < optim_states(state->optim); k++) {
        ret_owner[count] = workers->count ? SAVE_WORKER : SAVE_SHARED;
        ret_store[count++] = state->state[k];
    }
    if (workers->count) {
        const Store *const more[] = {workers->params, workers->outer_grad, workers->outer_momentum};
        for (int k = 0; k < 3; k++) {
            ret_owner[count] = k < 2 ? SAVE_WORKER : SAVE_SHARED;
            ret_store[count++] = more[k];
        }
    }
    if (state->replicas.count) {
        ret_owner[count] = SAVE_REPLICA;
        ret_store[count++] = state->replicas.residual;
    }
    return count;
}

/* `at`: the first of the workers' stores. */
static Status list_workers(SaveList *list, int file, int at, const CheckpointState *state) {
    const WorkerState *workers = &state->workers;
    for (int w = 0; w < workers->count; w++) {
        TRY(list_state(list, file, at, state, (StateList){.kind = "param", .writer = w}));
        TRY(list_state(list, file, at + 1, state,
                       (StateList){.kind = "outer_grad", .writer = w, .unit = workers->pending}));
    }
    return list_state(list, file, at + 2, state, (StateList){.kind = "outer_momentum"});
}

/* Units in pieces have no residual, and neither has one that two stages share, or of experts that no other
 * replica has. */
static Status list_residuals(SaveList *list, int file, int at, const CheckpointState *state) {
    const Store *store = list->store[at];
    CLEANUP(mem_freep) bool *whole = NULL;
    TRY(mem_new((size_t)store->model->units, sizeof *whole, &whole));
    bool piped = state->mesh && state->mesh->extent[AXIS_PP] > 1;
    int same = state->replicas.count / state->replicas.experts; /* replicas with the same experts */
    for (int u = 0; u < store->model->units; u++) {
        const ParamList *params = &store->model->unit[u];
        const ParamDesc *desc = params->desc;
        if (!params->count) continue;
        whole[u] = store->unit[u].pieces < 2 && !(piped && desc->shared) && !(desc->expert && same < 2);
    }
    for (int r = 0; r < state->replicas.count; r++)
        TRY(list_state(list, file, at, state,
                       (StateList){.kind = "grad_residual", .writer = r, .unit = whole, .experts = same}));
    return OK;
}

static Status list_optimizer(SaveList *list, const char *dir, const CheckpointState *state) {
    CLEANUP(mem_freep) char *path = NULL;
    const Store *store[SAVE_STORES];
    SaveOwner owner[SAVE_STORES];
    int file = 0, count = ckpt_stores(state, store, owner), states = optim_states(state->optim);
    TRY(path_join(&path, dir, CHECKPOINT_OPTIMIZER));
    TRY(save_list_file(list, path, &file));
    for (int k = 1; k < count; k++) save_list_store(list, store[k], owner[k]);
    for (int w = 0; w < (state->workers.count ? state->workers.count : 1); w++)
        for (int k = 0; k < states; k++)
            TRY(list_state(list, file, 1 + k, state, (StateList){.state = k, .writer = w}));
    if (state->workers.count) TRY(list_workers(list, file, 1 + states, state));
    return state->replicas.count ? list_residuals(list, file, count - 1, state) : OK;
}

static Status write_progress(const char *dir, int64_t step, const CheckpointState *state, SaveList *list) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    CLEANUP(json_decrefp) json_t *checksums = NULL;
    TRY(checksums_json(list, &checksums));
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:i, s:I, s:s, s:O?, s:O}", "format", PROGRESS_FORMAT, "step",
                             (json_int_t)step, "optimizer", optim_kind(state->optim)->name, "progress",
                             state->progress, "checksums", checksums);
    if (!json) return FAILED("%s: out of memory", path);
    if (state->workers.count) json_object_set_new(json, "workers", json_integer(state->workers.count));
    if (state->replicas.count) {
        json_object_set_new(json, "replicas", json_integer(state->replicas.count));
        json_object_set_new(json, "replica_experts", json_integer(state->replicas.experts));
    }
    TRY(checksums_seal(json));
    return json_write_file(path, json);
}

/* Cleans up after interrupted saves and removals: deletes .tmp directories, and restores a .old one unless
 * its replacement exists. */
static Status recover_entry(const char *checkpoints, const char *name) {
    int64_t step;
    const char *rest;
    if (!parse_step(name, &step, &rest)) return OK;
    CLEANUP(mem_freep) char *path = NULL, *final = NULL;
    TRY(path_join(&path, checkpoints, name));
    TRY(step_path(checkpoints, step, "", &final));
    if (!strcmp(rest, ".tmp")) return dir_remove(path);
    if (strcmp(rest, ".old")) return OK;
    return path_exists(final) ? dir_remove(path) : move(path, final);
}

typedef Status (*EntryFunc)(const char *dir, const char *name);

static Status each_entry(const char *path, EntryFunc func) {
    CLEANUP(dir_closep) DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: cannot read the directory: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) TRY(func(path, entry->d_name));
    return OK;
}

static Status remove_stale_link(const char *run_dir, const char *name) {
    if (strncmp(name, LATEST ".tmp.", strlen(LATEST ".tmp.")) &&
        strncmp(name, BEST ".tmp.", strlen(BEST ".tmp.")))
        return OK;
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, run_dir, name));
    return dir_remove(path);
}

void ckpt_save_free(CkptSave *save) {
    if (!save) return;
    hf_manifest_done(&save->manifest);
    save_list_done(&save->list);
    free(save->run_dir);
    free(save->checkpoints);
    free(save->temporary);
    free(save->link);
    free(save->target);
    free(save);
}

static Status save_init(CkptSave *save, const char *run_dir) {
    const CheckpointState *state = save->state;
    save->first = !state->mesh || state->mesh->rank == 0;
    save->options = (SaveOptions){.dtype = DT_F32,
                                  .assets_dir = state->assets_dir,
                                  .tokenizer_dir = state->tokenizer_dir,
                                  .chat_template = state->chat_template,
                                  .bytes = state->bytes,
                                  .labels = state->labels,
                                  .adapter = state->params->model->config.lora.rank > 0};
    save->list.finite = true;
    TRY(str_dup(run_dir, &save->run_dir));
    TRY(path_join(&save->checkpoints, run_dir, CHECKPOINTS));
    TRY(path_join(&save->link, run_dir, LATEST));
    TRY(step_path(save->checkpoints, save->step, ".tmp", &save->temporary));
    TRY(str_format(&save->target, "%s/step-%lld", CHECKPOINTS, (long long)save->step));
    TRY(hf_manifest_init(&save->manifest, state->params->model, &save->options));
    TRY(hf_manifest_list(&save->manifest, save->temporary, state->params, DT_F32, &save->list));
    return list_optimizer(&save->list, save->temporary, state);
}

static Status make_dirs(const CkptSave *save) {
    if (!path_is_dir(save->checkpoints)) {
        TRY(dir_make(save->checkpoints));
        TRY(dir_sync(save->run_dir));
    }
    TRY(each_entry(save->checkpoints, recover_entry));
    return each_entry(save->run_dir, remove_stale_link);
}

static Status create_files(CkptSave *save) {
    TRY(make_dirs(save));
    TRY(dir_make(save->temporary));
    return save_list_create(&save->list);
}

/* Renames the written directory to its final name; an older checkpoint of the same step is set aside
 * meanwhile. */
static Status publish(const char *checkpoints, int64_t step, const char *written) {
    CLEANUP(mem_freep) char *final = NULL, *aside = NULL;
    TRY(step_path(checkpoints, step, "", &final));
    TRY(step_path(checkpoints, step, ".old", &aside));
    bool replaces = path_exists(final);
    if (replaces) TRY(move(final, aside));
    TRY(move(written, final));
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

/* Points RUN/best to a checkpoint, if it exists. */
static Status link_best(const char *run_dir, const char *checkpoints, int64_t best) {
    CLEANUP(mem_freep) char *path = NULL, *link = NULL, *target = NULL;
    if (best < 1) return OK;
    TRY(step_path(checkpoints, best, "", &path));
    if (!path_is_dir(path)) return OK;
    TRY(path_join(&link, run_dir, BEST));
    TRY(step_path(CHECKPOINTS, best, "", &target));
    return link_replace(link, target);
}

static Status lock_checkpoint(const char *dir, const char *mode, int kind, FILE **ret_lock);

/* Removes a checkpoint, unless a process reads it. The lock is released before files are deleted, since NFS
 * keeps an open file under another name in the directory. */
static Status remove_step(const char *checkpoints, int64_t step) {
    CLEANUP(mem_freep) char *path = NULL, *removed = NULL;
    TRY(step_path(checkpoints, step, "", &path));
    TRY(step_path(checkpoints, step, ".tmp", &removed));
    FILE *lock = NULL;
    TRY(lock_checkpoint(path, "r+", LOCK_EX | LOCK_NB, &lock));
    bool complete = false;
    TRY(is_complete(path, &complete));
    if (complete && !lock) return OK;
    Status status = move(path, removed);
    if (lock) fclose(lock);
    return status ? status : dir_remove(removed);
}

/* Removes all but the checkpoint just saved, the best, and the `keep - 1` newest before it. Those of later
 * steps are left over from before the run went back to an earlier checkpoint. What cannot be removed now, a
 * later save removes. */
static Status prune(const char *checkpoints, int64_t saved, int64_t best, int keep) {
    CLEANUP(step_list_done) StepList list = {0};
    TRY(list_steps(checkpoints, &list));
    for (size_t i = 0; i < list.count; i++) {
        if (list.step[i] == saved || list.step[i] == best) continue;
        int newer = 1;
        for (size_t j = 0; j < list.count; j++) newer += list.step[j] < saved && list.step[j] > list.step[i];
        if (list.step[i] < saved && newer < keep) continue;
        status_free(remove_step(checkpoints, list.step[i]));
    }
    return OK;
}

Status ckpt_save_new(CkptSave **ret_save, const char *run_dir, int64_t step, const CheckpointState *state,
                     int keep) {
    CLEANUP(ckpt_save_freep) CkptSave *save = NULL;
    TRY(mem_new(1, sizeof *save, &save));
    save->state = state;
    save->step = step;
    save->keep = keep;
    Status status = save_init(save, run_dir);
    if (!status && save->first) status = create_files(save);
    status = save_agree(state->mesh, status);
    if (status) return ckpt_save_failed(save, status);
    return MOVE(ret_save, save);
}

Status ckpt_save_publish(CkptSave *save) {
    const CheckpointState *state = save->state;
    if (!save->first) return OK;
    TRY(hf_write_rest(save->temporary, &save->manifest, &state->params->model->config, &save->options));
    TRY(write_progress(save->temporary, save->step, state, &save->list));
    TRY(dir_sync(save->temporary));
    TRY(publish(save->checkpoints, save->step, save->temporary));
    save->published = true;
    TRY(link_replace(save->link, save->target));
    TRY(link_best(save->run_dir, save->checkpoints, state->best));
    return save->keep > 0 ? prune(save->checkpoints, save->step, state->best, save->keep) : OK;
}

Status ckpt_save_failed(const CkptSave *save, Status status) {
    if (save->first && !save->published && save->checkpoints)
        status_free(each_entry(save->checkpoints, recover_entry));
    return status_wrap(status, "cannot save the checkpoint of step %lld", (long long)save->step);
}

Status ckpt_save(const char *run_dir, int64_t step, const CheckpointState *state, Stream *stream, int keep) {
    CLEANUP(ckpt_save_freep) CkptSave *save = NULL;
    TRY(ckpt_save_new(&save, run_dir, step, state, keep));
    Status status = save_list_write(&save->list, state->disk, state->mesh, stream);
    if (!status) status = save_agree(state->mesh, ckpt_save_publish(save));
    return status ? ckpt_save_failed(save, status) : OK;
}

Status ckpt_tidy(const char *run_dir, int64_t step, int64_t best, int keep) {
    CLEANUP(mem_freep) char *checkpoints = NULL;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    TRY(each_entry(checkpoints, recover_entry));
    TRY(each_entry(run_dir, remove_stale_link));
    TRY(link_best(run_dir, checkpoints, best));
    return keep > 0 ? prune(checkpoints, step, best, keep) : OK;
}

/* ---- finding ---- */

/* The target of `latest`; NULL if there is no link. */
static Status follow_link(const char *run_dir, char **ret_dir) {
    CLEANUP(mem_freep) char *link = NULL, *dir = NULL;
    TRY(path_join(&link, run_dir, LATEST));
    char target[PATH_MAX];
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return OK;
    target[length] = 0;
    TRY(target[0] == '/' ? str_dup(target, &dir) : path_join(&dir, run_dir, target));
    return MOVE(ret_dir, dir);
}

/* The complete checkpoint with the highest step, including one set aside by an interrupted save. */
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
        bool complete = false;
        TRY(path_join(&path, checkpoints, entry->d_name));
        TRY(is_complete(path, &complete));
        if (!complete) continue;
        free(best);
        best = path;
        path = NULL;
        best_step = step;
    }
    return MOVE(ret_dir, best);
}

Status ckpt_latest(const char *run_dir, char **ret_dir) {
    CLEANUP(mem_freep) char *dir = NULL;
    bool complete = false;
    TRY(follow_link(run_dir, &dir));
    if (dir) TRY(is_complete(dir, &complete));
    if (!complete) mem_freep(&dir);
    if (!complete) TRY(scan_steps(run_dir, &dir));
    return MOVE(ret_dir, dir);
}

/* ---- resuming ---- */

static int descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static Status drop_empty(const char *checkpoints, StepList *list) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        TRY(step_path(checkpoints, list->step[i], "", &path));
        if (!dir_is_empty(path)) list->step[count++] = list->step[i];
    }
    list->count = count;
    return OK;
}

Status ckpt_any(const char *run_dir, bool *ret_any) {
    CLEANUP(step_list_done) StepList list = {0};
    CLEANUP(mem_freep) char *checkpoints = NULL, *latest = NULL;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    TRY(ckpt_latest(run_dir, &latest)); /* perhaps one set aside by an interrupted save */
    TRY(list_steps(checkpoints, &list));
    TRY(drop_empty(checkpoints, &list));
    *ret_any = latest || list.count;
    return OK;
}

/* On the first rank: the steps to try in order: `latest`, earlier ones, and then later ones, from which the
 * run may have gone back. Without `latest`, from the newest on. */
static Status list_candidates(const char *run_dir, int64_t from, StepList *list) {
    CLEANUP(mem_freep) char *checkpoints = NULL, *latest = NULL;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    if (path_is_dir(checkpoints)) TRY(each_entry(checkpoints, recover_entry));
    TRY(list_steps(checkpoints, list));
    TRY(drop_empty(checkpoints, list));
    if (list->count) qsort(list->step, list->count, sizeof *list->step, descending);
    int64_t first = from;
    const char *rest;
    if (!from) TRY(follow_link(run_dir, &latest));
    if (latest && !parse_step(strrchr(latest, '/') + 1, &first, &rest)) first = 0;
    size_t at = 0;
    while (at < list->count && list->step[at] != first) at++;
    if (from && at == list->count) {
        char steps[200] = "";
        for (size_t i = list->count, used = 0; i-- > 0 && used + 24 < sizeof steps;)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%lld", used ? ", " : "",
                                     (long long)list->step[i]);
        return USAGE("%s has no checkpoint of step %lld; available: %s", run_dir, (long long)from,
                     *steps ? steps : "none");
    }
    for (size_t i = 0; i < at && at < list->count; i++) { /* the later ones go to the end */
        int64_t later = list->step[0];
        memmove(list->step, list->step + 1, (list->count - 1) * sizeof *list->step);
        list->step[list->count - 1] = later;
    }
    if (from) list->count = 1;
    return OK;
}

static Status set_aside(const char *checkpoints, int64_t step) {
    CLEANUP(mem_freep) char *from = NULL, *to = NULL;
    TRY(step_path(checkpoints, step, "", &from));
    TRY(step_path(checkpoints, step, ".damaged", &to));
    if (path_exists(to)) TRY(dir_remove(to));
    return move(from, to);
}

/* Appends a sentence on a checkpoint that was passed over. */
static Status note_damage(char **note, const Status status) {
    CLEANUP(mem_freep) char *before = *note;
    *note = NULL;
    return str_format(note, "%s%s%s", before ? before : "", before ? "\n" : "", status_message(status));
}

/* It has no checksum: users may edit it. */
static Status verify_config(const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *config = NULL;
    TRY(path_join(&path, dir, "config.json"));
    return path_exists(path) ? json_read_file(path, &config) : DAMAGED("%s is missing", path);
}

static Status verify_step(const char *dir, const RootDisk *disk, Mesh *mesh) {
    bool first = !mesh || mesh->rank == 0, complete = true;
    Status found = first ? is_complete(dir, &complete) : OK;
    if (!found && !complete) found = DAMAGED("%s has no %s", dir, CHECKPOINT_STATE);
    if (!found && first) found = verify_config(dir);
    TRY(save_agree(mesh, found));
    return checksums_verify_at(dir, disk, VERIFY_ALL, mesh);
}

static Status set_all_aside(const char *checkpoints, const StepList *list, size_t count) {
    for (size_t i = 0; i < count; i++) TRY(set_aside(checkpoints, list->step[i]));
    return OK;
}

Status ckpt_resume_dir(const char *run_dir, int64_t from, const RootDisk *disk, Mesh *mesh, char **ret_dir,
                       char **ret_damaged) {
    CLEANUP(step_list_done) StepList list = {0};
    CLEANUP(mem_freep) char *checkpoints = NULL, *dir = NULL, *damaged = NULL;
    bool first = !mesh || mesh->rank == 0, several = mesh && mesh->size > 1;
    TRY(path_join(&checkpoints, run_dir, CHECKPOINTS));
    TRY(save_agree(mesh, first ? list_candidates(run_dir, from, &list) : OK));
    int64_t step = 0;
    size_t at = 0;
    for (;; at++) {
        step = at < list.count ? list.step[at] : 0;
        if (several) TRY(host_broadcast(mesh->world, &step, sizeof step, 0));
        if (!step) break;
        TRY(step_path(checkpoints, step, "", &dir));
        Status status = verify_step(dir, disk, mesh);
        if (!status) break;
        if (from || !status_damaged(status)) return status;
        Status noted = note_damage(&damaged, status);
        status_free(status);
        TRY(noted);
        mem_freep(&dir);
    }
    if (!step && damaged) return FAILED("%s: no checkpoint is intact: %s", run_dir, damaged);
    TRY(save_agree(mesh, first ? set_all_aside(checkpoints, &list, at) : OK));
    *ret_dir = dir;
    *ret_damaged = damaged;
    dir = damaged = NULL;
    return OK;
}

/* ---- locks ---- */

static bool same_file(FILE *file, const char *path) {
    struct stat open, named;
    return fstat(fileno(file), &open) == 0 && stat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

/* Locks a checkpoint by its weft.json. *ret_lock is NULL if it has none or was removed at this moment. Where
 * the file system has no locks, the open file counts as one. */
static Status lock_checkpoint(const char *dir, const char *mode, int kind, FILE **ret_lock) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    FILE *file = fopen(path, mode);
    if (!file) return OK;
    if ((flock(fileno(file), kind) == 0 || errno != EWOULDBLOCK) && same_file(file, path)) {
        *ret_lock = file;
        return OK;
    }
    fclose(file);
    return OK;
}

void model_dir_done(ModelDir *dir) {
    if (dir->temporary) status_free(dir_remove(dir->path));
    free(dir->path);
    if (dir->lock) fclose(dir->lock);
    *dir = (ModelDir){0};
}

static Status try_open(ModelDir *dir, const char *path, bool *ret_gone) {
    struct stat st;
    bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    TRY(ckpt_latest(path, &dir->path));
    *ret_gone = dir->path != NULL;
    if (!dir->path && link) dir->path = realpath(path, NULL); /* such as RUN/best */
    if (!dir->path) TRY(str_dup(path, &dir->path));
    TRY(lock_checkpoint(dir->path, "r", LOCK_SH, &dir->lock));
    *ret_gone = !dir->lock && (*ret_gone || (link && !path_is_dir(dir->path)));
    return OK;
}

bool model_path_is_file(const char *path) {
    return gguf_is_path(path) && path_exists(path) && !path_is_dir(path);
}

Status model_dir_open(ModelDir *ret_dir, const char *path) {
    enum { TRIES = 1000 };
    CLEANUP(model_dir_done) ModelDir dir = {0};
    bool gone = true;
    if (model_path_is_file(path)) {
        TRY(gguf_unpack(path, &dir.path));
        dir.temporary = true;
        return MOVE(ret_dir, dir);
    }
    for (int i = 0; gone && i < TRIES; i++) { /* the run may remove a checkpoint before it is locked */
        model_dir_done(&dir);
        TRY(try_open(&dir, path, &gone));
    }
    return MOVE(ret_dir, dir);
}
