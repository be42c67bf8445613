/* One step of the training loop: data, gradients, a judgment of them, the update and its record. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "comm/watchdog.h"
#include "model/head.h"
#include "train/trainer.h"

static const TraceName step_span = {
    .name = "step ", .category = "step", .number = {"step"}, .numbered = true};
static const TraceName data_span = {.name = "data", .category = "data"};

static void show_step(Trainer *t, const StepResult *result, double lr, double step_s) {
    char note[160], rate[FORMAT_SIZE], memory[FORMAT_SIZE];
    snprintf(note, sizeof note, "loss %.4f  lr %.2e  grad norm %.2f  %s tokens/s  %s", result->loss, lr,
             result->grad_norm, format_count(rate, (double)result->tokens / step_s),
             format_bytes(memory, (double)t->job->device->total.peak));
    progress_update(t->progress, t->step, note);
}

static Status log_step(Trainer *t, const StepResult *result, double lr) {
    CLEANUP(json_decrefp)
    json_t *line =
        json_pack("{s:I, s:I, s:o, s:f, s:o, s:I}", "step", (json_int_t)t->step, "epoch",
                  (json_int_t)epochs_at(&t->epochs, t->step), "loss", json_finite(result->loss), "lr", lr,
                  "grad_norm", json_finite(result->grad_norm), "tokens", (json_int_t)t->tokens);
    if (!line) return FAILED("out of memory");
    TRY(record_line(&t->record, result, line));
    if (t->job->settings.run.dtype == DT_F16)
        json_object_set_new(line, "loss_scale", json_real(t->job->runner->loss_scale.scale));
    if (t->job->seq_warmup.steps)
        json_object_set_new(line, "seq_length",
                            json_integer((json_int_t)seq_warmup_length(&t->job->seq_warmup, t->step)));
    if (result->skipped) json_object_set_new(line, "skipped", json_true());
    if (result->experts.on)
        json_object_set_new(
            line, "experts",
            json_pack("{s:o, s:o, s:o, s:o, s:I}", "balance_loss", json_finite(result->experts.balance),
                      "z_loss", json_finite(result->experts.z), "entropy",
                      json_finite(result->experts.entropy), "peak_load", json_finite(result->experts.peak),
                      "idle", (json_int_t)result->experts.idle));
    for (int k = 0; k < LOSS_COUNT; k++)
        if (result->part[k] > 0 && isfinite(result->part[k]) && !config_is_decoder(&t->job->model->config))
            json_object_set_new(line, loss_names[k], json_real(result->part[k]));
    return rundir_metrics(t->dir, json_incref(line));
}

/* Fills this replica's micro-batches for the next step. */
static Status load_data(Trainer *t) {
    const Settings *c = t->config;
    int64_t start = trace_now(), replica = c->run.mesh ? c->run.mesh->at[AXIS_DP] : 0;
    for (int i = 0; i < t->micro_count; i++) {
        int64_t first = (replica * t->micro_count + i) * t->micro[i]->B;
        uint64_t position = (uint64_t)((t->step + t->guard.batches) * c->training.batch + first);
        TRY(dataset_fill(t->data, position, !c->data.no_shuffle, t->micro[i]));
        host_batch_divide(t->micro[i], seq_warmup_length(&t->job->seq_warmup, t->step + 1));
    }
    record_phase(&t->record, PHASE_DATA, trainer_span(t, &data_span, start));
    return OK;
}

/* Without a timeout, the limit follows the slowest step. */
static void limit_waits(const Trainer *t, double step_s) {
    Watchdog *watch = t->config->run.mesh ? group_watchdog(t->config->run.mesh->world) : NULL;
    if (watch && t->config->fault.timeout < 0 && 10 * step_s > watch->limit_s) watch->limit_s = 10 * step_s;
}

/* Workers that synchronize rarely wait for the slowest of them: learns how long a round, from one exchange to
 * the next, takes. The first includes one-time work. */
static void note_round(Trainer *t, double step_s) {
    const double keep = 0.8, least_s = 2;
    int64_t every = t->job->runner->spec.outer.every;
    double usual = t->usual_s;
    if (every < 1) return;
    t->round_s += step_s;
    if (t->step % every) return;
    if (t->rounds++ > 0) {
        double capped = usual > 0 ? keep * usual + (1 - keep) * fmin(t->round_s, 2 * usual) : t->round_s;
        t->usual_s = fmax(least_s, capped);
    }
    t->round_s = 0;
}

/* Compares the workers' own times of a round once their figures have been exchanged, and reports a worker for
 * which the others keep waiting. */
static Status compare_workers(Trainer *t) {
    const Runner *runner = t->job->runner;
    const Mesh *mesh = runner->mesh;
    int shard = mesh->shard->size, workers = runner_workers(runner);
    double factor = 0;
    if (workers < 2 || runner->spec.outer.every < 1) return OK;
    if (!t->pace.workers) TRY(pace_init(&t->pace, workers));
    for (int r = 0; r < mesh->size; r++)
        pace_add(&t->pace, mesh_number(mesh, AXES_COPIES, r) / shard,
                 t->record.ranks[r].work_s * workers / mesh->size);
    int64_t round = t->step / runner->spec.outer.every;
    if (round == t->compared) return OK;
    t->compared = round;
    int worker = pace_round(&t->pace, &factor), first = 0;
    if (worker < 0) return OK;
    while (mesh_number(mesh, AXES_COPIES, first) != worker * shard) first++;
    char host[HOST_SIZE];
    group_host(mesh->world, first, host);
    if (t->pace.slow[worker])
        progress_line(t->progress,
                      "warning: step %lld: the others wait for worker %d (rank %d on %s), which takes %.1f "
                      "times as long for its own steps",
                      (long long)t->step, worker, first, host, factor);
    else
        progress_line(t->progress, "step %lld: worker %d (rank %d on %s) no longer keeps the others waiting",
                      (long long)t->step, worker, first, host);
    return OK;
}

/* While a step is computed, the watchdog warns of a wait that is long for a round. */
static void expect_waits(const Trainer *t, double usual_s) {
    Watchdog *watch = t->config->run.mesh ? group_watchdog(t->config->run.mesh->world) : NULL;
    if (watch) watch->usual_s = usual_s;
}

/* A step between its gradients and its update. */
typedef struct Judged {
    Trainer *trainer;
    StepAction action;                           /* STEP_DROP: the run is rolled back */
    bool saving;                                 /* some rank was still writing a checkpoint */
    char text[GUARD_TEXT + NONFINITE_TEXT + 80]; /* what is wrong with the step */
} Judged;

/* A row of spikes is reported once. */
static void warn_of_spike(Trainer *t, int64_t step, const char *text) {
    if (step != t->spike_step + 1)
        progress_line(t->progress, "warning: step %lld: %s", (long long)step, text);
    t->spike_step = step;
}

/* A step that is not fine and that on_divergence does not merely warn about. The first tensor that is not
 * finite is appended to the text. */
static Status act_on(Judged *judged, StepVerdict verdict, int64_t step) {
    Trainer *t = judged->trainer;
    char *text = judged->text, where[NONFINITE_TEXT] = "";
    bool in_weights = false;
    if (verdict == STEP_NONFINITE) TRY(nonfinite_find(t->job->runner, where, &in_weights));
    size_t used = strlen(text), size = sizeof judged->text;
    if (*where) snprintf(text + used, size - used, ": %s", where);
    judged->action = STEP_DROP;
    if (t->policy == ON_DIVERGENCE_ROLLBACK) return OK;
    bool skips = t->policy == ON_DIVERGENCE_SKIP && verdict != STEP_DIVERGED && !in_weights;
    if (!skips) return trainer_diverged(t, step, text);
    if (t->guard.skips >= GUARD_SKIPS) {
        used = strlen(text);
        snprintf(text + used, size - used, "; %d updates in a row were skipped already", GUARD_SKIPS);
        return trainer_diverged(t, step, text);
    }
    t->guard.skips++;
    judged->action = STEP_SKIP;
    progress_line(t->progress, "warning: step %lld: %s; its update is skipped", (long long)step, text);
    return OK;
}

static Status judge(Judged *judged, const StepResult *result) {
    Trainer *t = judged->trainer;
    int64_t step = t->step + 1;
    judged->action = STEP_APPLY;
    if (runner_overflowed(t->job->runner, result)) return OK;
    bool lenient = t->policy == ON_DIVERGENCE_STOP || t->policy == ON_DIVERGENCE_WARN;
    StepVerdict verdict =
        guard_judge(&t->guard, result->loss, result->grad_norm, step == t->lr.steps, judged->text);
    t->guard.spikes += verdict == STEP_SPIKE;
    if (verdict == STEP_NONFINITE || (verdict == STEP_SPIKE && !lenient) ||
        (verdict == STEP_DIVERGED && t->policy != ON_DIVERGENCE_WARN))
        return act_on(judged, verdict, step);
    if (verdict != STEP_FINE) warn_of_spike(t, step, judged->text);
    guard_add(&t->guard, result->loss, result->grad_norm);
    return OK;
}

/* The vote that ends the section also tells whether a checkpoint is still being written. */
static Status judge_step(void *context, StepResult *result, StepAction *ret_action) {
    Judged *judged = context;
    Trainer *t = judged->trainer;
    int64_t saving = t->background && background_busy(t->background);
    TRY(mesh_section_vote(t->job->runner->mesh, &result->stop, &saving));
    judged->saving = saving;
    TRY(judge(judged, result));
    if (judged->action != STEP_DROP) TRY(trainer_copied(t));
    *ret_action = judged->action;
    return OK;
}

Status trainer_recover(Trainer *t, Status status) {
    if (!status_diverged(status)) return status;
    CLEANUP(status_freep) Status found = status;
    return t->policy == ON_DIVERGENCE_ROLLBACK ? trainer_roll_back(t, t->step, status_message(found))
                                               : trainer_diverged(t, t->step, status_message(found));
}

Status trainer_step(Trainer *t, bool *ret_stop) {
    const Settings *c = t->config;
    TRY(tracer_next(t->tracer, t->record.steps));
    int64_t start = trace_now(), step = t->step + 1;
    if (c->run.mesh) group_doing(c->run.mesh->world, "computing", step);
    record_step_begin(&t->record, step);
    TRY(load_data(t));
    StepResult result;
    Judged judged = {.trainer = t};
    StepSpec spec = {.number = step,
                     .lr = lr_at(&t->lr, step),
                     .sync = step == t->lr.steps ? SYNC_ALL : SYNC_DUE,
                     .judge = judge_step,
                     .context = &judged};
    expect_waits(t, t->usual_s);
    progress_busy(t->progress, true);
    if (t->job->runner->residual) TRY(trainer_copied(t)); /* gradients change it */
    TRY(runner_step(t->job->runner, t->micro, t->micro_count, &spec, &result));
    progress_busy(t->progress, false);
    expect_waits(t, 0);
    *ret_stop = result.stop;
    if (judged.action == STEP_DROP) return trainer_roll_back(t, step, judged.text);
    record_step_end(&t->record, &result);
    t->step = step;
    if (c->ckpt.out) trainer_set_work(t, WORK_UNSAVED);
    trainer_span(t, &step_span, start);
    t->tokens += result.tokens;
    if (step == 1) t->loss_first = result.loss;
    if (isfinite(result.loss)) {
        t->loss_last = result.loss;
        epochs_add(&t->epochs, result.loss, t->record.step.step_s);
    }
    limit_waits(t, t->record.step.step_s);
    note_round(t, t->record.step.step_s);
    show_step(t, &result, spec.lr, t->record.step.step_s);
    bool log_due = step % c->report.log_every == 0 || step == t->lr.steps;
    if (log_due) {
        TRY(record_gather(&t->record));
        TRY(compare_workers(t));
        TRY(log_step(t, &result, spec.lr));
    }
    return trainer_recover(t, trainer_continue_save(t, judged.saving));
}
