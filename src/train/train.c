/* The training loop: set up the job, resume if requested, then step, evaluate and save until done.
 *
 * A step's data, dropout and learning rate depend only on the seed and the step number, and a checkpoint
 * stores weights and optimizer state bit for bit. A run that was killed and resumed therefore passes through
 * the same states as one that was never interrupted.
 */
#include "train/trainer.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "model/head.h"
#include "train/history.h"
#include "train/replicas.h"
#include "train/run_summary.h"

static void trainer_done(Trainer *t) {
    pace_done(&t->pace);
    background_free(t->background);
    for (int i = 0; t->micro && i < t->micro_count; i++) host_batch_free(t->micro[i]);
    free(t->micro);
    dataset_free(t->data);
    dataset_free(t->val);
    rundir_free(t->dir);
    tracer_free(t->tracer);
    progress_free(t->progress);
    json_decref(t->settings);
    json_decref(t->noise);
    json_decref(t->earlier);
    free(t->exchanged);
    epochs_done(&t->epochs);
    record_done(&t->record);
    job_free(t->job);
}

/* ---- trace spans outside the runner ---- */

static const TraceName eval_span = {.name = "evaluate", .category = "evaluate"};

/* Starts at the second step, since the first also allocates workspaces. */
static Status start_tracer(Trainer *t) {
    const Settings *c = t->config;
    CLEANUP(mem_freep) char *path = NULL;
    if (!c->report.trace) return OK;
    int64_t first = t->lr.steps - t->step > 1 ? 1 : 0;
    TRY(path_join(&path, c->ckpt.out, "trace.json"));
    return tracer_new(&t->tracer, t->job->runner, path, first, c->report.trace_steps, t->progress);
}

/* ---- before the first step ---- */

static Status check_config(const Settings *c) {
    if (c->data.files_count == 0)
        return USAGE("no training data; pass files with {data}, or use {data} self for weft's own source");
    if (c->training.batch < 1) return USAGE("{batch} %lld: must be at least 1", (long long)c->training.batch);
    if (c->ckpt.resume && !c->ckpt.out)
        return USAGE("{resume} needs {out} with the run directory to continue");
    if (c->report.trace && !c->ckpt.out) return USAGE("{trace} needs {out}, where trace.json is written");
    if (c->validation.patience && !c->validation.every)
        return USAGE("{patience} counts validations during the run; pass {eval-every} N or epoch");
    GuardPolicy policy;
    TRY(guard_parse(c->fault.on_divergence, &policy));
    if (policy == ON_DIVERGENCE_ROLLBACK && !c->ckpt.out)
        return USAGE("{on-divergence} rollback needs {out}, where checkpoints are saved");
    return OK;
}

static Status wait_for_all(const Trainer *t) {
    return t->config->run.mesh ? barrier(t->config->run.mesh->world) : OK;
}

/* Validation data: the val files, else the validation token files in the data directories, else the last
 * val_fraction of the training data. */
static Status open_data(Trainer *t) {
    const Settings *c = t->config;
    CLEANUP(token_file_list_done) TokenFileList val_files = {0};
    if (c->data.val_count == 0) TRY(job_val_token_files(c->data.files, c->data.files_count, &val_files));
    bool split = c->data.val_count == 0 && val_files.count == 0 && c->data.val_fraction > 0;
    TRY(job_data(t->job, c->data.files, c->data.files_count, job_training_part(&c->data, split),
                 c->data.mask_rate, c->run.seed, &t->data));
    if (c->data.val_count)
        return job_data(t->job, c->data.val, c->data.val_count, (DataPart){0}, c->data.mask_rate, c->run.seed,
                        &t->val);
    if (val_files.count)
        return job_data(t->job, (const char *const *)val_files.path, (int)val_files.count, (DataPart){0},
                        c->data.mask_rate, c->run.seed, &t->val);
    if (!split) return OK;
    DataPart last = {.fraction = c->data.fraction, .last = c->data.val_fraction};
    Status status =
        job_data(t->job, c->data.files, c->data.files_count, last, c->data.mask_rate, c->run.seed, &t->val);
    return status ? status_wrap(status, "the validation split at the end of the data ({val-fraction} %g)",
                                c->data.val_fraction)
                  : OK;
}

/* The last tenth of the run decays, or decay_steps, which may not overlap the warm-up. */
static Status plan_decay(Trainer *t) {
    int64_t rest = t->lr.warmup < t->lr.steps ? t->lr.steps - t->lr.warmup : 0;
    int64_t decay = t->config->training.decay_steps;
    if (decay > rest)
        return USAGE("{decay-steps} %lld: only %lld step%s remain after the warm-up of %lld",
                     (long long)decay, (long long)rest, PLURAL(rest), (long long)t->lr.warmup);
    if (decay < 0) decay = t->lr.steps / 10 < rest ? t->lr.steps / 10 : rest;
    t->lr.decay = decay;
    return OK;
}

static Status plan_steps(Trainer *t) {
    const Settings *c = t->config;
    t->epochs.samples = dataset_count(t->data);
    t->epochs.batch = c->training.batch;
    t->lr = (LrSchedule){.peak = c->training.lr,
                         .floor = c->training.min_lr,
                         .warmup = c->training.warmup,
                         .steps = c->training.steps,
                         .from_zero = c->training.from_zero};
    TRY(lr_parse(c->training.schedule, &t->lr.kind));
    TRY(lr_parse_warmup(c->training.warmup_type, &t->lr.warmup_type));
    TRY(lr_parse_decay(c->training.decay_type, &t->lr.decay_type));
    if (c->training.epochs > 0) {
        double steps = ceil(c->training.epochs * (double)t->epochs.samples / (double)c->training.batch);
        if (steps > 1e15) return USAGE("{epochs} %g: too many steps", c->training.epochs);
        t->lr.steps = (int64_t)steps;
    }
    if (t->lr.steps < 1) return USAGE("nothing to do: {steps} or {epochs} must be greater than 0");
    if (t->lr.warmup < 0)
        t->lr.warmup = c->training.warmup_ratio > 0
                           ? (int64_t)ceil(c->training.warmup_ratio * (double)t->lr.steps)
                           : t->lr.steps / 20;
    if (t->lr.warmup > t->lr.steps && !c->training.warmup_file)
        return USAGE("{warmup} %lld is longer than the run (%lld step%s)", (long long)t->lr.warmup,
                     (long long)t->lr.steps, PLURAL(t->lr.steps));
    if (t->lr.warmup > t->lr.steps && !t->lr.from_zero) t->lr.warmup = t->lr.steps;
    if (t->lr.kind == LR_WSD) TRY(plan_decay(t));
    if (c->training.seq_warmup > t->lr.steps)
        return USAGE("{seq-warmup} %lld is longer than the run (%lld step%s)",
                     (long long)c->training.seq_warmup, (long long)t->lr.steps, PLURAL(t->lr.steps));
    if (c->validation.patience && !t->val)
        return USAGE("{patience} needs validation data; pass {val} FILE or {val-fraction} X");
    if (c->validation.sample_every) TRY(sample_check(t->job));
    int64_t micro = t->job->settings.run.micro_batch, targets = config_targets(&t->job->model->config);
    t->micro_count = t->job->settings.run.micros;
    TRY(mem_new((size_t)t->micro_count, sizeof *t->micro, &t->micro));
    for (int i = 0; i < t->micro_count; i++)
        TRY(host_batch_new_targets(&t->micro[i], micro, t->job->seq, targets));
    return OK;
}

/* Adds the loss and accuracy of each objective to the metrics and to the progress note. Regression and
 * multi-label classification have no accuracy here. */
static void add_parts(const EvalResult *result, json_t *line, char *note, size_t size) {
    for (int k = 0; k < LOSS_COUNT; k++) {
        char name[64];
        const char *part = loss_names[k];
        size_t used = strlen(note);
        if (!result->counts[k]) continue;
        snprintf(name, sizeof name, "val_%s", part);
        json_object_set_new(line, name, json_real(result->part[k]));
        if (isnan(result->accuracy[k])) continue;
        snprintf(name, sizeof name, "val_%s_accuracy", part);
        json_object_set_new(line, name, json_real(result->accuracy[k]));
        snprintf(note + used, size - used, "  %s accuracy %.1f%%", part, 100 * result->accuracy[k]);
    }
}

int64_t train_eval_samples(const Settings *c) {
    int64_t samples;
    if (c->validation.samples) return c->validation.samples;
    return __builtin_mul_overflow(c->validation.batches, c->training.batch, &samples) ? 0 : samples;
}

/* Samples per validation, at most; 0: all. The first validation shows only that training starts from a
 * sensible loss, so it must not delay the first step by minutes. Its size depends on nothing that differs
 * between layouts. */
static int64_t eval_limit(const Trainer *t) {
    const Settings *c = t->config;
    int64_t usual = train_eval_samples(c);
    if (t->step || c->validation.first_flops <= 0 || c->validation.patience) return usual;
    double sample = job_forward_flops_per_token(t->job) * (double)t->job->seq;
    int64_t most = c->validation.first_flops > sample ? (int64_t)(c->validation.first_flops / sample) : 1;
    return usual && usual < most ? usual : most;
}

/* Appends F1, MCC and exact match to the note. */
static void note_scores(const Validation *val, char *note, size_t size) {
    size_t used = strlen(note);
    if (isfinite(val->f1)) snprintf(note + used, size - used, "  F1 %.1f%%", 100 * val->f1);
    used = strlen(note);
    if (isfinite(val->mcc)) snprintf(note + used, size - used, "  MCC %.3f", val->mcc);
    used = strlen(note);
    if (isfinite(val->exact)) snprintf(note + used, size - used, "  exact match %.1f%%", 100 * val->exact);
}

/* Runs `work` with the synchronized weights of workers. Afterwards the workers' own weights are back, even if
 * the work was abandoned. */
static Status with_outer(Trainer *t, Status (*work)(Trainer *t)) {
    Runner *runner = t->job->runner;
    if (!runner->outer) return work(t);
    TRY(trainer_copied(t));
    Status status = runner_use_outer(runner, true);
    if (!status) status = work(t);
    Status back = runner_use_outer(runner, false);
    if (!status) return back;
    status_free(back);
    return status;
}

static Status validate(Trainer *t) {
    const Settings *c = t->config;
    Validation *val = &t->val_state;
    EvalResult result;
    int64_t limit = eval_limit(t);
    TRY(job_evaluate(t->job, t->val, limit, &result));
    validation_take(val, t->step, &result, config_is_decoder(&t->job->model->config));
    t->eval = result;
    if (!epochs_end(&t->epochs, t->step) && t->step < t->lr.steps) return OK;
    return validation_score(val, t->job, t->val, c->data.val, c->data.val_count, limit);
}

/* At the end of an epoch, finish_epoch shows the result. */
static Status evaluate(Trainer *t) {
    Validation *val = &t->val_state;
    if (!t->val) return OK;
    trainer_doing(t, "validating");
    int64_t start = trace_now();
    bool epoch = epochs_end(&t->epochs, t->step);
    TRY(with_outer(t, validate));
    EvalResult result = t->eval;
    double seconds = trainer_span(t, &eval_span, start);
    record_phase(&t->record, PHASE_EVAL, seconds);
    json_t *line = json_pack("{s:I, s:I, s:f, s:I, s:f}", "step", (json_int_t)t->step, "epoch",
                             (json_int_t)epochs_at(&t->epochs, t->step), "val_loss", result.loss,
                             "val_samples", (json_int_t)result.examples, "eval_ms", 1e3 * seconds);
    if (!line) return FAILED("out of memory");
    t->val_note[0] = 0;
    bool decoder = config_is_decoder(&t->job->model->config);
    if (!decoder) add_parts(&result, line, t->val_note, sizeof t->val_note);
    if (decoder && isfinite(val->accuracy))
        snprintf(t->val_note, sizeof t->val_note, "  accuracy %.1f%%", 100 * val->accuracy);
    note_scores(val, t->val_note, sizeof t->val_note);
    validation_add_scores(val, line);
    if (!epoch)
        progress_line(t->progress, "step %lld  validation loss %.4f%s", (long long)t->step, result.loss,
                      t->val_note);
    return rundir_metrics(t->dir, line);
}

/* Reports the epoch that ended with this step, with the latest validation in it. */
static Status finish_epoch(Trainer *t) {
    const Validation *val = &t->val_state;
    char note[480] = "", time[FORMAT_SIZE];
    double seconds = t->epochs.seconds;
    bool validated = val->step > t->step - t->epochs.steps && isfinite(val->loss);
    json_t *epoch = NULL;
    TRY(epochs_finish(&t->epochs, t->step, &epoch));
    if (validated) {
        json_object_set_new(epoch, "val_loss", json_real(val->loss));
        validation_add_scores(val, epoch);
        snprintf(note, sizeof note, "  validation loss %.4f%s", val->loss, t->val_note);
    }
    long long number = json_int_at(epoch, "epoch");
    if (seconds < 60)
        snprintf(time, sizeof time, "%.1f s", seconds);
    else
        format_duration(time, seconds);
    progress_line(t->progress, "epoch %lld of %lld  step %lld  time %s  mean loss %.4f%s", number,
                  (long long)epochs_at(&t->epochs, t->lr.steps), (long long)t->step, time,
                  json_number_or(epoch, "loss", NAN), note);
    json_t *line =
        json_pack("{s:I, s:I, s:O}", "step", (json_int_t)t->step, "epoch", number, "epoch_end", epoch);
    return line ? rundir_metrics(t->dir, line) : FAILED("out of memory");
}

/* Validates if that is due after this step and not done yet, then ends the epoch if it is complete. */
static Status after_step(Trainer *t) {
    const Settings *c = t->config;
    bool due = t->step == t->lr.steps || epochs_due(&t->epochs, c->validation.every, t->step);
    if (due && t->val_state.step < t->step) TRY(evaluate(t));
    return t->epochs.steps && epochs_end(&t->epochs, t->step) ? finish_epoch(t) : OK;
}

/* Continues the start of the validation data, or else of the training data. */
static Status show_sample(Trainer *t) {
    CLEANUP(mem_freep) char *prompt = NULL, *text = NULL;
    int64_t start = trace_now();
    bool stop;
    mesh_section_begin(t->job->runner->mesh, t->config->run.stop);
    TRY(sample_make(t->job, t->val ? t->val : t->data, t->step, &prompt, &text));
    TRY(mesh_section_end(t->job->runner->mesh, &stop));
    if (stop) return STOPPED("stopped by a signal");
    record_phase(&t->record, PHASE_EVAL, trainer_span(t, &eval_span, start));
    json_t *line = json_pack("{s:I, s:I, s:s, s:s}", "step", (json_int_t)t->step, "epoch",
                             (json_int_t)epochs_at(&t->epochs, t->step), "prompt", prompt, "sample", text);
    if (!line) return FAILED("out of memory");
    CLEANUP(mem_freep) char *quoted = json_serialize(json_object_get(line, "prompt"), JSON_ENCODE_ANY);
    CLEANUP(mem_freep) char *sample = json_serialize(json_object_get(line, "sample"), JSON_ENCODE_ANY);
    progress_line(t->progress, "step %lld  %s continues %s", (long long)t->step, quoted ? quoted : "",
                  sample ? sample : "");
    return rundir_metrics(t->dir, line);
}

/* Whether the validation loss has not improved for `patience` validations. */
static bool out_of_patience(const Trainer *t) {
    return t->config->validation.patience && t->val_state.since >= t->config->validation.patience;
}

static void explain_stop(const Trainer *t) {
    long long since = (long long)t->val_state.since;
    progress_line(
        t->progress,
        "stopped at step %lld of %lld: the validation loss has not improved in %lld validation%s; the "
        "lowest was %.4f",
        (long long)t->step, (long long)t->lr.steps, since, PLURAL(since), t->val_state.lowest);
}

/* A checkpoint is also due, with `patience`, when the validation loss has improved: it may be the best. */
static bool save_due(const Trainer *t) {
    const Settings *c = t->config;
    bool improved = c->validation.patience && t->val_state.step == t->step && !t->val_state.since;
    return t->step == t->lr.steps || improved || out_of_patience(t) ||
           epochs_due(&t->epochs, c->ckpt.save_every, t->step);
}

/* A run that was stopped saved a checkpoint without validating; the resumed run validates first. */
static Status catch_up(Trainer *t) {
    TRY(after_step(t));
    return validation_is_best(&t->val_state, t->step) && trainer_is_first(t) ? trainer_tidy(t) : OK;
}

/* While the loss is far above the first one, the checkpoints of better steps are kept and none is added.
 * Weights that became NaN or Inf in the last update are noticed as they are written. */
static Status save(Trainer *t) {
    bool last = t->step == t->lr.steps || out_of_patience(t);
    if (t->guard.over && !last && t->policy != ON_DIVERGENCE_WARN) {
        progress_line(t->progress,
                      "warning: step %lld: no checkpoint is saved, since the loss is above %.3g, three times "
                      "the first loss plus 1",
                      (long long)t->step, guard_limit(&t->guard));
        return OK;
    }
    rundir_restore(t->dir, t->step);
    return trainer_recover(t, trainer_save(t, last));
}

static Status run_until_stopped(Trainer *t) {
    const Settings *c = t->config;
    int64_t last = t->lr.steps;
    if (t->step > 0)
        TRY(catch_up(t));
    else if (c->validation.every)
        TRY(evaluate(t));
    while (t->step < last && !out_of_patience(t)) {
        bool stopping = false;
        TRY(trainer_step(t, &stopping));
        t->stopped = stopping;
        if (stopping) return OK;
        if (t->saved < t->step) TRY(trainer_recover(t, after_step(t)));
        if (t->saved == t->step) continue; /* rolled back */
        if (epochs_due(&t->epochs, c->validation.sample_every, t->step)) TRY(with_outer(t, show_sample));
        if (c->ckpt.out && save_due(t)) TRY(save(t));
    }
    if (t->step < last && out_of_patience(t)) explain_stop(t);
    return trainer_complete_save(t, false);
}

/* Saves what a stopped run has done. */
static Status save_stopped(Trainer *t) {
    const Settings *c = t->config;
    if (!t->record.steps && !t->step) return STOPPED("stopped before step 1; nothing was saved");
    if (!t->record.steps)
        return STOPPED_SAVED("stopped before step %lld; add {resume} to continue", (long long)t->step + 1);
    if (t->abandoned) {
        TRY(mesh_recover(t->job->runner->mesh));
        shards_outer_forget(t->job->runner->shards);
    }
    TRY(trainer_complete_save(t, true));
    if (!c->ckpt.out || t->saved == t->step) return OK;
    rundir_restore(t->dir, t->step);
    return trainer_save(t, true);
}

static Status run_steps(Trainer *t) {
    Status status = run_until_stopped(t);
    if (status && !status_stopped(status)) return status;
    t->stopped |= status != OK;
    t->abandoned = status != OK;
    status_free(status);
    if (t->stopped) TRY(save_stopped(t));
    TRY(shards_outer_wait(t->job->runner->shards));
    return tracer_finish(t->tracer);
}

static json_t *layout_json(const Trainer *t) {
    const RunnerSpec *spec = &t->job->runner->spec;
    const Mesh *mesh = t->job->runner->mesh;
    const Settings *c = t->config;
    json_t *layout = json_pack("{s:i}", "ranks", mesh->size);
    mesh_put(layout, mesh_spec(mesh));
    if (mesh->extent[AXIS_CP] > 1)
        json_object_set_new(layout, "cp_mode", json_string(context_mode_names[spec->cp_mode]));
    if (spec->cp_mode == CONTEXT_BOTH)
        json_object_set_new(layout, "cp_heads", json_integer(mesh->swap->size));
    json_t *rest = json_pack(
        "{s:i, s:s, s:s, s:i, s:b, s:I, s:I, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:s, s:s}", "zero",
        (int)spec->zero, "offload", offload_names[c->run.offload], "pp_schedule",
        schedule_name(spec->schedule), "pp_chunks", (int)spec->chunks, "sequence_parallel", spec->sequence,
        "batch", (json_int_t)c->training.batch, "micro_batch", (json_int_t)spec->micro_batch, "recompute",
        recompute_names[c->run.recompute], "precision",
        c->device.precision ? c->device.precision : dtype_name(spec->dtype), "device", c->device.name,
        "threads", t->job->device->threads, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "workers",
        runner_workers(t->job->runner), "sync_every", (json_int_t)spec->outer.every, "sync_fragments",
        (json_int_t)spec->outer.fragments, "sync_overlap", (json_int_t)spec->outer.overlap, "sync_dtype",
        grad_type_names[spec->outer.type], "grad_dtype", grad_type_names[spec->grad_type]);
    json_object_update(layout, rest);
    json_decref(rest);
    return layout;
}

/* Stages differ in size, and only this rank's is known. */
static Status add_sizes(const Job *job, RunSummary *summary) {
    const Runner *runner = job->runner;
    MeshSpec mesh = mesh_spec(runner->mesh);
    int64_t stored;
    TRY(model_params_stored(job->model, mesh.tp, &stored));
    summary->params_stored = (double)stored;
    if (mesh.pp == 1) summary->params_per_rank = (double)shards_params(runner->shards);
    return OK;
}

static Status write_summary(Trainer *t, json_t **ret_summary) {
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    CLEANUP(json_decrefp) json_t *json = NULL;
    char note[sizeof t->val_note] = "";
    summary.steps = (double)t->step;
    summary.epoch = (double)epochs_at(&t->epochs, t->step);
    summary.task = t->job->squad ? "squad" : task_names[t->job->task];
    summary.loss_first = t->loss_first;
    summary.loss_last = t->loss_last;
    summary.params_total = (double)model_params(t->job->model);
    int64_t adapters = model_adapters(t->job->model);
    if (adapters) summary.params_adapters = (double)adapters;
    TRY(add_sizes(t->job, &summary));
    summary.layout = layout_json(t);
    summary.machine = machine_json(t->job);
    summary.interrupted = t->stopped;
    summary.stopped_early = t->step < t->lr.steps && out_of_patience(t);
    summary.epochs = json_incref(t->epochs.done);
    validation_summary(&t->val_state, &summary);
    TRY(record_summary(&t->record, &summary));
    TRY(run_summary_json(&summary, &json));
    TRY(history_join(json, t->earlier));
    if (t->eval.examples && !config_is_decoder(&t->job->model->config))
        add_parts(&t->eval, json, note, sizeof note);
    TRY(rundir_summary(t->dir, json));
    *ret_summary = json_incref(json);
    return OK;
}

/* Explains a first validation that is smaller than the others, and steps that take minutes on a few cores. */
static void announce_costs(Trainer *t) {
    const double slow = 3e12;
    const Settings *c = t->config;
    double step = job_flops_per_token(t->job) * (double)t->job->seq * (double)c->training.batch;
    if (c->validation.first_flops > 0 && step > slow)
        progress_line(
            t->progress,
            "each step takes %.3g TFLOP, minutes on a few cores; a smaller {seq} or {batch} is faster",
            step / 1e12);
    if (!t->val || !c->validation.every || t->step) return;
    int64_t all = dataset_count(t->val), usual = train_eval_samples(c), first = eval_limit(t);
    if (!usual || usual > all) usual = all;
    if (first && first < usual)
        progress_line(t->progress,
                      "first validation: %lld sample%s instead of %lld, to start training sooner; "
                      "{eval-batches} N overrides",
                      (long long)first, PLURAL(first), (long long)usual);
}

/* A resumed run that is stopped before it has loaded its checkpoint loses nothing. */
static void note_checkpoint(Trainer *t) {
    const CheckpointSettings *c = &t->config->ckpt;
    CLEANUP(mem_freep) char *dir = NULL;
    if (!c->out || !c->resume || !path_is_dir(c->out)) return;
    CLEANUP(status_freep) Status unreadable = ckpt_latest(c->out, &dir);
    if (dir) trainer_set_work(t, WORK_SAVED);
    t->resumable = dir != NULL;
}

static Status prepare(Trainer *t) {
    const Settings *c = t->config;
    TRY(check_config(c));
    note_checkpoint(t);
    TRY(guard_parse(c->fault.on_divergence, &t->policy));
    guard_init(&t->guard);
    TRY(progress_new(&t->progress, c->report.log, "train", c->training.steps, 5, c->report.quiet));
    CLEANUP(load_report_done) LoadReport report = {0};
    TRY(job_new(&t->job, c, JOB_TRAIN));
    const char *out = trainer_is_first(t) ? c->ckpt.out : NULL;
    if (c->data.text.no_cache) TRY(rundir_open(&t->dir, out)); /* tokenized text goes there */
    /* Rank 0 tokenizes text first; the other ranks then find it done. */
    trainer_doing(t, "preparing data");
    if (!trainer_is_first(t)) TRY(wait_for_all(t));
    TRY(open_data(t));
    if (trainer_is_first(t)) TRY(wait_for_all(t));
    TRY(plan_steps(t));
    progress_total(t->progress, t->lr.steps);
    progress_unit(t->progress, "step");
    if (!t->dir) TRY(rundir_open(&t->dir, out));
    TRY(wait_for_all(t));
    if (c->run.mesh && !t->job->disk) TRY(rundir_check_shared(c->ckpt.out, c->run.mesh->world));
    if (t->job->settings.run.outer.warmup < 0) t->job->settings.run.outer.warmup = t->lr.warmup;
    trainer_doing(t, "loading the model");
    TRY(job_start(t->job, &report));
    if (t->job->model_dir) TRY(load_report_check(&report, t->job->model_dir, &t->job->model->config, true));
    TRY(shards_outer_reset(t->job->runner->shards));
    TRY(trainer_describe(t));
    trainer_announce(t, &report);
    TRY(trainer_resume(t));
    return replicas_check(t->job->runner);
}

/* A resumed run that was complete stays as it is: *ret_summary is its summary, on ranks other than 0 an empty
 * object. NULL: there is something left to do, be it only to write the summary. */
static Status find_summary(const Trainer *t, json_t **ret_summary) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *summary = NULL;
    const Mesh *mesh = t->config->run.mesh;
    if (!t->step || (t->step < t->lr.steps && !out_of_patience(t))) return OK;
    if (trainer_is_first(t)) {
        TRY(path_join(&path, t->config->ckpt.out, RUN_SUMMARY_FILE));
        CLEANUP(status_freep) Status unread = json_read_file(path, &summary);
    }
    bool complete =
        json_int_at(summary, "steps") == t->step && json_is_false(json_object_get(summary, "interrupted"));
    if (mesh && mesh->size > 1) TRY(host_broadcast(mesh->world, &complete, sizeof complete, 0));
    if (!complete) return OK;
    if (t->step < t->lr.steps) explain_stop(t);
    *ret_summary = summary ? json_incref(summary) : json_object();
    return *ret_summary ? OK : FAILED("out of memory");
}

static Status begin(Trainer *t, const json_t *config_json) {
    const Settings *c = t->config;
    TRY(trainer_check_space(t));
    TRY(trainer_prepare_saves(t));
    announce_costs(t);
    t->job->runner->lags = true;
    TRY(record_ready(&t->record, t->job, c->training.batch,
                     c->device.precision ? c->device.precision : dtype_name(t->job->settings.run.dtype),
                     t->noise));
    TRY(start_tracer(t));
    if (t->step > 0 && trainer_is_first(t)) TRY(history_read(c->ckpt.out, t->step, &t->earlier));
    return rundir_begin(t->dir, config_json, t->step, t->progress);
}

static Status run_all(Trainer *t, const json_t *config_json, json_t **ret_summary) {
    TRY(prepare(t));
    TRY(find_summary(t, ret_summary));
    if (*ret_summary) return OK;
    TRY(begin(t, config_json));
    TRY(run_steps(t));
    progress_end(t->progress);
    return write_summary(t, ret_summary);
}

Status train_check(const Settings *config, int64_t *ret_samples) {
    CLEANUP(trainer_done) Trainer t = {.config = config};
    TRY(check_config(config));
    TRY(job_new(&t.job, config, JOB_TRAIN));
    TRY(open_data(&t));
    TRY(plan_steps(&t));
    *ret_samples = dataset_count(t.data);
    return OK;
}

Status train_run(const Settings *config, const json_t *config_json, json_t **ret_summary) {
    CLEANUP(trainer_done)
    Trainer t = {.config = config, .loss_first = NAN, .loss_last = NAN};
    validation_init(&t.val_state);
    record_begin(&t.record);
    Status status = run_all(&t, config_json, ret_summary);
    bool writes = trainer_is_first(&t) || !config->ckpt.files;
    if (status && writes) status_free(tracer_rescue(t.tracer));
    if (status_kind(status) != STATUS_STOPPED || !t.resumable || t.step) return status;
    status_free(status);
    return STOPPED_SAVED("stopped before the checkpoint was loaded; add {resume} to continue");
}
