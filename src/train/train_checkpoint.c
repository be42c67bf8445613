/* The checkpoints of a training run: what they store besides tensors, saving, resuming, rolling back. */
#include <math.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/setting.h"
#include "checkpoint/checksums.h"
#include "checkpoint/ckpt_save.h"
#include "comm/mpi.h"
#include "comm/watchdog.h"
#include "device/host_memory.h"
#include "model/head.h"
#include "train/run_summary.h"
#include "train/trainer.h"

static const TraceName save_span = {.name = "checkpoint", .category = "checkpoint"};

void trainer_set_work(const Trainer *t, WorkState state) {
    if (t->config->fault.work) *t->config->fault.work = (sig_atomic_t)state;
}

void trainer_doing(const Trainer *t, const char *what) {
    if (t->config->run.mesh) group_doing(t->config->run.mesh->world, what, t->step);
}

bool trainer_is_first(const Trainer *t) {
    return !t->config->run.mesh || t->config->run.mesh->rank == 0;
}

double trainer_span(const Trainer *t, const TraceName *name, int64_t start_ns) {
    int64_t now = trace_now();
    trace_add(t->job->runner->trace, TRACE_COMPUTE, name, start_ns, now, t->step, 0);
    return 1e-9 * (double)(now - start_ns);
}

static Status describe_frozen(const TrainingSettings *training, json_t *settings) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    if (!training->freeze_count) return OK;
    for (int i = 0; i < training->freeze_count; i++)
        if (json_array_append_new(list, json_string(training->freeze[i]))) return FAILED("out of memory");
    return json_put(settings, "freeze", json_incref(list));
}

/* Scale and dropout of adapters; "params" has their number. */
static Status describe_adapters(const Trainer *t, json_t *settings) {
    const LoraConfig *lora = &t->job->model->config.lora;
    BlockCode base = t->config->run.base;
    if (!lora->rank) return OK;
    return json_put(settings, "lora",
                    json_sprintf("{lora} %d {lora-alpha} %g {lora-dropout} %g%s%s%s", lora->rank,
                                 (double)lora->alpha, (double)lora->dropout, lora->rslora ? " {rslora}" : "",
                                 base ? " {lora-base} " : "", base ? block_code_names[base] : ""));
}

/* Collects the settings that a resumed run may not change. The data comes last, because most of the others
 * change its samples, too. */
Status trainer_describe(Trainer *t) {
    const Settings *c = t->config;
    const ModelConfig *model = &t->job->model->config;
    const char *task = config_targets(model) ? problem_name(model->problem) : task_names[t->job->task];
    uint64_t fingerprint;
    char data[24];
    TRY(job_fingerprint(t->job, t->data, &fingerprint));
    snprintf(data, sizeof data, "%016llx", (unsigned long long)fingerprint);
    t->settings =
        json_pack("{s:I, s:I, s:I, s:s, s:b, s:I, s:f, s:s}", "seed", (json_int_t)c->run.seed, "batch",
                  (json_int_t)c->training.batch, "seq", (json_int_t)t->job->seq, "task", task, "shuffle",
                  !c->data.no_shuffle, "params", (json_int_t)model_params(t->job->model), "dropout",
                  (double)model->dropout_hidden, "data", data);
    if (!t->settings) return FAILED("out of memory");
    const SeqWarmup *growth = &t->job->seq_warmup;
    if (growth->steps)
        json_object_set_new(t->settings, "seq_warmup",
                            json_sprintf("{seq-warmup} %lld {seq-warmup-from} %lld", (long long)growth->steps,
                                         (long long)growth->from));
    TRY(describe_adapters(t, t->settings));
    return describe_frozen(&c->training, t->settings);
}

/* How workers synchronize, and the fragment that is being exchanged; NULL without workers. */
static json_t *describe_sync(const Runner *runner) {
    const OuterSpec *spec = &runner->spec.outer;
    int64_t due;
    int fragment = shards_outer_pending(runner->shards, &due);
    if (!spec->every) return NULL;
    return json_pack("{s:I, s:I, s:I, s:i, s:I}", "every", (json_int_t)spec->every, "fragments",
                     (json_int_t)spec->fragments, "overlap", (json_int_t)spec->overlap, "pending", fragment,
                     "due", (json_int_t)due);
}

/* What a checkpoint stores besides tensors. */
static Status describe_progress(Trainer *t, json_t **ret_progress) {
    CLEANUP(json_decrefp) json_t *epochs = NULL, *validation = NULL, *schedule = NULL, *guard = NULL;
    CLEANUP(json_decrefp) json_t *sync = describe_sync(t->job->runner);
    TRY(guard_save(&t->guard, &guard));
    TRY(epochs_save(&t->epochs, &epochs));
    TRY(validation_save(&t->val_state, &validation));
    TRY(lr_save(&t->lr, &schedule));
    json_t *progress = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:I, s:f, s:I, s:o, s:O, s:O, s:O, s:O, s:O}", "step", (json_int_t)t->step,
        "tokens", (json_int_t)t->tokens, "loss_first", json_finite(t->loss_first), "loss_last",
        json_finite(t->loss_last), "val_loss", json_finite(t->val_state.loss), "val_samples",
        (json_int_t)t->val_state.samples, "loss_scale", t->job->runner->loss_scale.scale, "loss_scale_good",
        (json_int_t)t->job->runner->loss_scale.good, "noise", record_noise(&t->record), "epochs", epochs,
        "validation", validation, "schedule", schedule, "guard", guard, "settings", t->settings);
    if (!progress) return FAILED("out of memory");
    if (sync) json_object_set(progress, "sync", sync);
    Status status = runner_fp8_save(t->job->runner, progress);
    if (!status) status = runner_balance_save(t->job->runner, progress);
    if (status) {
        json_decref(progress);
        return status;
    }
    *ret_progress = progress;
    return OK;
}

/* ---- saving ---- */

static CheckpointState state_of(const Trainer *t, const json_t *progress) {
    CheckpointState state = runner_checkpoint(t->job->runner);
    state.workers.pending = t->exchanged;
    state.disk = t->job->disk;
    state.progress = progress;
    state.assets_dir = t->job->model_dir;
    state.tokenizer_dir = t->job->tokenizer_dir;
    if (t->job->settings.data.text.chat_template && t->job->chat)
        state.chat_template = chat_template_text(t->job->chat);
    state.bytes = t->job->bytes;
    state.labels = &t->job->labels;
    state.best = t->val_state.best_step;
    return state;
}

/* Notes which units are being exchanged. */
static Status note_exchange(Trainer *t) {
    const Shards *shards = t->job->runner->shards;
    int64_t due;
    int fragment = shards_outer_pending(shards, &due);
    if (!t->job->runner->outer) return OK;
    if (!t->exchanged) TRY(mem_new((size_t)shards->count, sizeof *t->exchanged, &t->exchanged));
    for (int i = 0; i < shards->count; i++)
        t->exchanged[i] = fragment >= 0 && shard_outer_in(shards, i, fragment);
    return OK;
}

static Status save_once(Trainer *t, const json_t *progress, bool background) {
    CheckpointState state = state_of(t, progress);
    int keep = t->guard.over ? 0 : (int)t->config->ckpt.keep; /* a diverging run removes no checkpoints */
    return background ? background_begin(t->background, t->config->ckpt.out, t->step, &state, keep)
                      : ckpt_save(t->config->ckpt.out, t->step, &state, t->job->runner->stream, keep);
}

/* A second try helps against a network file system that was away for a moment. */
static void pause_before_retry(void) {
    const struct timespec pause = {.tv_sec = 1};
    nanosleep(&pause, NULL);
}

static Status save_twice(Trainer *t, const json_t *progress, bool background) {
    Status status = save_once(t, progress, background);
    if (!status || status_diverged(status)) return status;
    status_free(status);
    pause_before_retry();
    t->save_retried = true;
    return save_once(t, progress, background);
}

/* All ranks fail alike, so all count alike. If the ranks have lost each other, that is the error. */
static Status tolerate(Trainer *t, Status status, bool last) {
    if (!status || status_diverged(status)) return status;
    Status lost = t->config->run.mesh ? barrier(t->config->run.mesh->world) : OK;
    if (lost) {
        status_free(status);
        return lost;
    }
    if (last || ++t->failed_saves > t->config->ckpt.save_failures) return status;
    progress_line(t->progress,
                  "warning: %s\ntraining continues; the next checkpoint is due as usual (failed saves in a "
                  "row: %lld, tolerated: %lld)",
                  status_message(status), (long long)t->failed_saves,
                  (long long)t->config->ckpt.save_failures);
    status_free(status);
    return OK;
}

static void note_saved(Trainer *t, int64_t step) {
    t->failed_saves = 0;
    t->saved = step;
    if (step == t->step) trainer_set_work(t, WORK_SAVED);
}

/* The checkpoint of `step` could not be saved, so it is not the best one. */
static void forget_best(Trainer *t, int64_t step) {
    if (t->val_state.best_step != step) return;
    t->val_state.best = t->before_save.best;
    t->val_state.best_step = t->before_save.best_step;
}

Status trainer_save(Trainer *t, bool last) {
    CLEANUP(json_decrefp) json_t *progress = NULL;
    TRY(trainer_complete_save(t, last));
    TRY(runner_settle(t->job->runner));
    bool background = t->background && !last;
    t->before_save = t->val_state;
    t->save_retried = false;
    trainer_doing(t, "saving a checkpoint");
    validation_is_best(&t->val_state, t->step);
    TRY(describe_progress(t, &progress));
    TRY(note_exchange(t));
    int64_t start = trace_now();
    CLEANUP(progress_freep) Progress *phase = NULL;
    TRY(progress_new_phase(&phase, t->config->report.log, "saving checkpoint", 0, t->config->report.quiet));
    Status status = save_twice(t, progress, background);
    record_phase(&t->record, PHASE_CHECKPOINT, trainer_span(t, &save_span, start));
    if (status) {
        forget_best(t, t->step);
        return tolerate(t, status, last);
    }
    if (!background) note_saved(t, t->step);
    return OK;
}

/* ---- saving in the background ---- */

Status trainer_copied(Trainer *t) {
    if (!t->background || !background_pending(t->background)) return OK;
    double start = clock_wall();
    Status status = background_copied(t->background);
    record_copy(&t->record, clock_wall() - start);
    return status;
}

/* What became of a pending save; `status` is that of background_advance or background_wait. Fails like
 * trainer_save. */
static Status conclude(Trainer *t, int64_t step, Status status, bool last) {
    if (status && !status_diverged(status) && !t->save_retried) {
        status_free(status);
        pause_before_retry();
        t->save_retried = true;
        rundir_restore(t->dir, t->step);
        status = background_retry(t->background);
        if (!status && last) status = background_wait(t->background);
    }
    if (background_pending(t->background)) return OK;
    if (!status) {
        note_saved(t, step);
        return OK;
    }
    forget_best(t, step);
    return tolerate(t, status, false);
}

Status trainer_continue_save(Trainer *t, bool busy) {
    int64_t step = t->background ? background_pending(t->background) : 0, start = trace_now();
    if (!step || busy) return OK;
    Status status = conclude(t, step, background_advance(t->background), false);
    record_phase(&t->record, PHASE_CHECKPOINT, trainer_span(t, &save_span, start));
    return status;
}

Status trainer_complete_save(Trainer *t, bool last) {
    int64_t step = t->background ? background_pending(t->background) : 0, start = trace_now();
    if (!step) return OK;
    trainer_doing(t, "saving a checkpoint");
    CLEANUP(progress_freep) Progress *phase = NULL;
    TRY(progress_new_phase(&phase, t->config->report.log, "saving checkpoint", 0, t->config->report.quiet));
    Status status = conclude(t, step, background_wait(t->background), true);
    record_phase(&t->record, PHASE_CHECKPOINT, trainer_span(t, &save_span, start));
    if (!last) return status;
    if (status) progress_line(t->progress, "warning: %s", status_message(status));
    status_free(status);
    return OK;
}

/* Whether a checkpoint may be due before the last step. */
static bool saves_early(const Trainer *t) {
    int64_t every = t->config->ckpt.save_every;
    return t->config->validation.patience || every < 0 || (every && every < t->lr.steps);
}

/* Whether all ranks have memory for their snapshots, with a sixteenth to spare. The memory of CPU ranks, used
 * or not, is known together with the limit; that of GPU ranks is gone from what is now available. */
static Status has_room(const Runner *runner, size_t bytes, bool *ret_fits) {
    const Device *device = runner->device;
    Mesh *mesh = runner->mesh;
    CLEANUP(group_freep) Group *host = NULL;
    bool cpu = device_is_host(device);
    size_t limit = cpu ? device->host_limit : host_memory("").host, own = device->limit;
    int64_t used[] = {(int64_t)bytes, (int64_t)limit ? -(int64_t)(limit - limit / 16) : INT64_MIN};
    if (cpu) used[0] += (int64_t)(device->total.current + device->host.current);
    int64_t lacks = cpu && own && used[0] > (int64_t)(own - own / 16);
    TRY(mpi_node_group(mesh->world, &host));
    TRY(host_reduce(host, &used[0], 1, DT_I64, REDUCE_SUM));
    TRY(host_reduce(host, &used[1], 1, DT_I64, REDUCE_MAX));
    lacks |= used[1] != INT64_MIN && used[0] > -used[1];
    TRY(host_reduce(mesh->world, &lacks, 1, DT_I64, REDUCE_MAX));
    *ret_fits = !lacks;
    return OK;
}

Status trainer_prepare_saves(Trainer *t) {
    const Settings *c = t->config;
    Mesh *mesh = c->run.mesh;
    Runner *runner = t->job->runner;
    const Store *store[SAVE_STORES];
    SaveOwner owner[SAVE_STORES];
    if (!c->ckpt.out || c->ckpt.no_async_save || !saves_early(t)) return OK;
    CheckpointState state = state_of(t, NULL);
    int stores = ckpt_stores(&state, store, owner);
    CLEANUP(snapshot_done) Snapshot snapshot = {0};
    TRY(snapshot_init(&snapshot, store, owner, stores, mesh));
    bool fits = false;
    char text[FORMAT_SIZE];
    TRY(has_room(runner, snapshot_bytes(&snapshot), &fits));
    CLEANUP(status_freep)
    Status status = save_agree(mesh, fits ? snapshot_alloc(&snapshot, runner->device) : OK);
    if (fits && !status) return background_new(&t->background, &snapshot, runner->stream, mesh, t->job->disk);
    progress_line(t->progress,
                  "not enough memory for a copy of the weights and optimizer state (%s per rank); training "
                  "waits while a checkpoint is saved",
                  format_bytes(text, (double)snapshot_bytes(&snapshot)));
    return OK;
}

/* Weights and the optimizer's state; tied parameters are saved once. Workers have their own parameters and
 * state, and there is an outer momentum. */
static double checkpoint_bytes(const Trainer *t) {
    const CheckpointState state = state_of(t, NULL);
    int workers = state.workers.count;
    double bytes = 0;
    for (ModelParam param = {0}; model_param_next(t->job->model, &param);) {
        int copies = 1;
        for (int k = 0; k < optim_states(state.optim); k++)
            copies += optim_state_name(state.optim, param.desc, k) != NULL;
        if (workers) copies = workers * copies + 2;
        if (state.replicas.count)
            copies += state.replicas.count / (param.desc->expert ? state.replicas.experts : 1);
        if (param.desc->frozen) copies = t->job->model->config.lora.rank ? 0 : 1;
        bytes += (double)sizeof(float) * copies * (double)param_count(param.desc);
    }
    return bytes;
}

static Status check_space(const Trainer *t) {
    struct statvfs disk;
    char free_text[FORMAT_SIZE], need_text[FORMAT_SIZE];
    const char *out = t->config->ckpt.out;
    if (statvfs(out, &disk) != 0 || !disk.f_blocks) return OK; /* unknown */
    double need = checkpoint_bytes(t), space = (double)disk.f_bavail * (double)disk.f_frsize;
    format_bytes(free_text, space);
    format_bytes(need_text, need);
    if (space < need && !t->step)
        return REFUSED("%s: the disk has %s free, but a checkpoint takes %s; free some space or choose "
                       "another {out}",
                       out, free_text, need_text);
    if (space < (t->step ? need : 2 * need))
        progress_line(t->progress,
                      "warning: %s: the disk has %s free, and a checkpoint takes %s; a new one is complete "
                      "before an old one is removed, so saving may fail",
                      out, free_text, need_text);
    return OK;
}

Status trainer_check_space(const Trainer *t) {
    if (!t->config->ckpt.out) return OK;
    return save_agree(t->config->run.mesh, trainer_is_first(t) ? check_space(t) : OK);
}

/* ---- resuming ---- */

/* Refuses a run that differs from the saved one, before its tensors are found not to fit. */
static Status check_run(const Trainer *t, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *state = NULL;
    ModelConfig was;
    TRY(hf_config_read(dir, &was));
    TRY(resume_check_model(t->config, &t->job->model->config, &was));
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    TRY(json_read_file(path, &state));
    const json_t *progress = json_object_get(state, "progress");
    return resume_check_settings(t->config->ckpt.out, dir, t->settings,
                                 json_object_get(progress, "settings"));
}

/* Refuses a run shorter than what is done already, and says how a new schedule changes the learning rate. */
static Status compare_schedule(const Trainer *t, const char *dir, const json_t *progress) {
    CLEANUP(mem_freep) char *text = NULL;
    char given[64];
    if (t->config->training.epochs > 0)
        setting_print(given, sizeof given, "{epochs} %g (%lld steps)", t->config->training.epochs,
                      (long long)t->lr.steps);
    else
        setting_print(given, sizeof given, "{steps} %lld", (long long)t->lr.steps);
    if (t->step > t->lr.steps)
        return USAGE("%s: the run in %s has already done %lld steps; pass a larger number to continue it",
                     given, t->config->ckpt.out, (long long)t->step);
    if (t->step == t->lr.steps)
        progress_line(t->progress, "%s is complete after %lld step%s; to train longer, pass a larger {%s}",
                      t->config->ckpt.out, (long long)t->step, PLURAL(t->step),
                      t->config->training.epochs > 0 ? "epochs" : "steps");
    else
        progress_line(t->progress, "resuming from %s", dir);
    TRY(lr_change_text(&t->lr, json_object_get(progress, "schedule"), t->step, &text));
    if (text) progress_line(t->progress, "%s", text);
    return OK;
}

/* Continues the exchange that was under way. Its fragment and the step after which its result is applied are
 * those of the saved settings. */
static Status resume_exchange(const Trainer *t, const char *dir, const json_t *sync) {
    const OuterSpec *spec = &t->job->runner->spec.outer;
    int64_t every = 0, fragments = 1, overlap = 0, fragment = -1, due = 0;
    TRY(json_get_int(sync, dir, "every", 1, INT64_MAX, &every));
    TRY(json_get_int(sync, dir, "fragments", 1, INT64_MAX, &fragments));
    TRY(json_get_int(sync, dir, "overlap", 0, INT64_MAX, &overlap));
    TRY(json_get_int(sync, dir, "pending", -1, fragments - 1, &fragment));
    TRY(json_get_int(sync, dir, "due", 0, INT64_MAX, &due));
    if (fragment < 0) return OK;
    if (every != spec->every || fragments != spec->fragments || overlap != spec->overlap)
        return USAGE("%s: saved while workers were exchanging weights; resume it with {sync-every} %lld "
                     "{sync-fragments} %lld {sync-overlap} %lld",
                     dir, (long long)every, (long long)fragments, (long long)overlap);
    shards_outer_restart(t->job->runner->shards, (int)fragment, due);
    return OK;
}

static void note_workers(const Trainer *t, int64_t saved, int64_t now) {
    if (now == saved || (!saved && !now)) return;
    if (!saved)
        progress_line(t->progress, "the checkpoint has no workers; all %lld start from its state",
                      (long long)now);
    else if (!now)
        progress_line(t->progress,
                      "the checkpoint has %lld workers; the run continues from the weights of their last "
                      "synchronization, with the optimizer state of the first",
                      (long long)saved);
    else
        progress_line(
            t->progress,
            "the checkpoint has %lld workers, and this run has %lld: worker n continues as worker n "
            "mod %lld of the checkpoint",
            (long long)saved, (long long)now, (long long)saved);
}

static void note_residuals(const Trainer *t, SavedCounts saved, const ReplicaState *now) {
    if (saved.replicas && saved.replicas != now->count)
        progress_line(
            t->progress,
            "the checkpoint's rounding errors of {grad-dtype} int8 belong to %lld replicas and are dropped",
            (long long)saved.replicas);
    else if (saved.replicas && saved.experts != now->experts)
        progress_line(t->progress,
                      "the checkpoint's rounding errors of {grad-dtype} int8 of the experts belong to {ep} "
                      "%lld and are dropped",
                      (long long)saved.experts);
}

/* Restores the run's state from a checkpoint. */
static Status load(Trainer *t, const char *dir, json_t **ret_progress) {
    CLEANUP(json_decrefp) json_t *progress = NULL;
    CLEANUP(mirror_done) Mirror mirror = {0};
    Runner *runner = t->job->runner;
    RootDisk *disk = t->job->disk;
    SavedCounts saved;
    CheckpointState state = state_of(t, NULL);
    if (disk) TRY(mirror_init(&mirror, disk, dir));
    if (disk && !mirror.path) return FAILED("%s: no such directory", dir);
    TRY(check_run(t, disk ? mirror.path : dir));
    TRY(runner_settle(runner));
    TRY(shards_outer_reset(runner->shards));
    if (runner->residual) TRY(store_zero(runner->residual, runner->stream));
    TRY(ckpt_load(disk ? mirror.path : dir, &state, runner->stream, &saved, &progress));
    TRY(runner_publish(runner));
    note_workers(t, saved.workers, state.workers.count);
    note_residuals(t, saved, &state.replicas);
    TRY(resume_exchange(t, dir, json_object_get(progress, "sync")));
    int64_t tokens = 0;
    TRY(json_get_int(progress, dir, "step", 1, INT64_MAX, &t->step));
    if (t->step == 0) return FAILED("%s: the saved progress does not record its step", dir);
    t->saved = t->step;
    trainer_set_work(t, WORK_SAVED);
    TRY(json_get_int(progress, dir, "tokens", 0, INT64_MAX, &tokens));
    t->tokens = tokens;
    t->loss_first = json_number_or(progress, "loss_first", NAN);
    t->loss_last = json_number_or(progress, "loss_last", NAN);
    epochs_restore(&t->epochs, json_object_get(progress, "epochs"));
    validation_restore(&t->val_state, json_object_get(progress, "validation"), t->step);
    t->val_state.loss = json_number_or(progress, "val_loss", NAN);
    TRY(json_get_int(progress, dir, "val_samples", 0, INT64_MAX, &t->val_state.samples));
    guard_restore(&t->guard, json_object_get(progress, "guard"));
    TRY(runner_fp8_load(runner, dir, progress));
    TRY(runner_balance_load(runner, dir, progress));
    if (runner->spec.dtype == DT_F16) {
        TRY(json_get_double(progress, dir, "loss_scale", 1, 1e30, &runner->loss_scale.scale));
        TRY(json_get_int(progress, dir, "loss_scale_good", 0, INT64_MAX, &runner->loss_scale.good));
    }
    return MOVE(ret_progress, progress);
}

/* Later checkpoints than that of `resume_from` stay until the next one is saved. */
Status trainer_tidy(const Trainer *t) {
    const CheckpointSettings *c = &t->config->ckpt;
    return ckpt_tidy(c->out, t->step, t->val_state.best_step, c->resume_from ? 0 : (int)c->keep);
}

/* A run that starts in a directory deletes what it finds of an earlier one. */
static Status check_new(const Trainer *t) {
    const char *out = t->config->ckpt.out;
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    bool any = false;
    if (!path_is_dir(out) || !(trainer_is_first(t) || !t->job->disk)) return OK;
    TRY(ckpt_any(out, &any));
    if (any)
        return USAGE("%s already contains a run; add {resume} to continue it, or choose another {out}", out);
    TRY(path_join(&path, out, RUN_SUMMARY_FILE));
    if (!path_exists(path)) return OK;
    CLEANUP(status_freep) Status unreadable = json_read_file(path, &summary);
    bool predicted = json_object_get(summary, "predicted") != NULL;
    bool begun = unreadable || json_number_or(summary, "steps", 0) > 0;
    if (predicted || !begun) return OK;
    return USAGE("%s contains the results of a run whose checkpoints were deleted, so it cannot continue; "
                 "delete it, or choose another {out}",
                 out);
}

Status trainer_resume(Trainer *t) {
    const Settings *c = t->config;
    if (!c->ckpt.out) return OK;
    CLEANUP(mem_freep) char *dir = NULL, *damaged = NULL;
    if (c->ckpt.resume) {
        TRY(ckpt_resume_dir(c->ckpt.out, c->ckpt.resume_from, t->job->disk, c->run.mesh, &dir, &damaged));
        if (damaged)
            progress_line(t->progress, "warning: %s\nresuming from the newest intact checkpoint instead",
                          damaged);
    }
    if (!dir && c->ckpt.resume)
        progress_line(t->progress, "no checkpoint in %s yet; starting at step 1", c->ckpt.out);
    if (!dir) return check_new(t);
    CLEANUP(json_decrefp) json_t *progress = NULL;
    TRY(load(t, dir, &progress));
    t->noise = json_incref(json_object_get(progress, "noise"));
    TRY(compare_schedule(t, dir, progress));
    return trainer_is_first(t) ? trainer_tidy(t) : OK;
}

/* ---- divergence ---- */

Status trainer_diverged(Trainer *t, int64_t step, const char *text) {
    char kept[80] = "";
    TRY(trainer_complete_save(t, true));
    json_t *line = json_pack("{s:I, s:s}", "step", (json_int_t)step, "diverged", text);
    if (!line) return FAILED("out of memory");
    TRY(rundir_metrics(t->dir, line)); /* so that a report can tell it from a run that was killed */
    if (t->saved)
        snprintf(kept, sizeof kept, "; the newest checkpoint is that of step %lld", (long long)t->saved);
    return DIVERGED("step %lld: %s; try a lower {lr}, a longer {warmup}, or {clip}%s", (long long)step, text,
                    kept);
}

Status trainer_roll_back(Trainer *t, int64_t step, const char *text) {
    const Settings *c = t->config;
    CLEANUP(mem_freep) char *dir = NULL, *damaged = NULL, *why = NULL;
    CLEANUP(json_decrefp) json_t *progress = NULL;
    TRY(trainer_complete_save(t, true));
    Guard before = t->guard;
    if (!t->saved || before.rollbacks >= c->fault.rollbacks) {
        char setting[32];
        setting_print(setting, sizeof setting, "{rollbacks}");
        TRY(t->saved
                ? str_format(&why, "%s; the run has been rolled back as often as %s allows", text, setting)
                : str_format(&why, "%s; there is no checkpoint to roll back to", text));
        return trainer_diverged(t, step, why);
    }
    TRY(ckpt_resume_dir(c->ckpt.out, t->saved, t->job->disk, c->run.mesh, &dir, &damaged));
    TRY(load(t, dir, &progress));
    record_restore_noise(&t->record, json_object_get(progress, "noise"));
    t->guard.spikes = before.spikes;
    t->guard.rollbacks = before.rollbacks + 1;
    t->guard.batches = before.batches + step - t->step;
    long long left_out = (long long)(step - t->step);
    progress_line(t->progress,
                  "warning: step %lld: %s\nrolling back to step %lld (rollback %lld of at most %lld); the "
                  "next %lld batch%s left out",
                  (long long)step, text, (long long)t->step, (long long)t->guard.rollbacks,
                  (long long)c->fault.rollbacks, left_out, left_out == 1 ? " is" : "es are");
    json_t *line = json_pack("{s:I, s:{s:I, s:s}}", "step", (json_int_t)t->step, "rollback", "from",
                             (json_int_t)step, "reason", text);
    if (!line) return FAILED("out of memory");
    rundir_rewind(t->dir, t->step);
    return rundir_metrics(t->dir, line);
}
