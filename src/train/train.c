/* The training loop: settle the job, resume if asked, then step, evaluate and save until done.
 *
 * A step's data, dropout and learning rate are functions of the seed and the step's number alone, and a
 * checkpoint holds weights and moments bit for bit; so a run that was killed and resumed goes through
 * the same states as one that never stopped.
 */
#include "train/train.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/progress.h"
#include "optim/lr.h"
#include "train/job.h"
#include "train/rundir.h"
#include "train/tracer.h"

typedef struct Trainer {
    const TrainConfig *config;
    Job *job;
    Dataset *data, *val;
    LrSchedule lr;
    HostBatch **micro;
    int micro_count;
    RunDir *dir;
    Progress *progress;
    Tracer *tracer;   /* NULL: none */
    json_t *settings; /* what a resumed run must share with the run it goes on with */
    /* Progress of the run. */
    int64_t step, tokens;
    double loss_first, loss_last, val_loss; /* NAN: not known */
    EvalResult eval;                        /* the last one here; no examples: none yet */
    double seconds;                         /* in steps of this process... */
    double data_s;                          /* ...and, of these, in reading data */
    int64_t steps_here, tokens_here;
    double cpu_start, wall_start;
    uint64_t sent[COMM_KINDS]; /* in steps, without evaluation and checkpoints */
    /* How busy the GPU was, by its driver: the newest sample, and the mean of all. */
    double gpu_at, gpu_now, gpu_sum;
    int64_t gpu_samples;
} Trainer;

static void trainer_done(Trainer *t) {
    for (int i = 0; t->micro && i < t->micro_count; i++) host_batch_free(t->micro[i]);
    free(t->micro);
    dataset_free(t->data);
    dataset_free(t->val);
    rundir_free(t->dir);
    tracer_free(t->tracer);
    progress_free(t->progress);
    json_decref(t->settings);
    job_free(t->job);
}

/* ---- what a trace shows beside the runner's work ---- */

static const TraceName step_span = {
    .name = "step ", .category = "step", .number = {"step"}, .numbered = true};
static const TraceName data_span = {.name = "data", .category = "data"};
static const TraceName eval_span = {.name = "evaluate", .category = "evaluate"};
static const TraceName save_span = {.name = "checkpoint", .category = "checkpoint"};

/* A span up to now. */
static void show_span(const Trainer *t, const TraceName *name, int64_t start_ns) {
    trace_add(t->job->runner->trace, TRACE_COMPUTE, name, start_ns, trace_now(), t->step, 0);
}

/* From the second step on: the first also allocates. */
static Status start_tracer(Trainer *t) {
    const TrainConfig *c = t->config;
    CLEANUP(mem_freep) char *path = NULL;
    if (!c->trace) return OK;
    int64_t first = t->lr.steps - t->step > 1 ? 1 : 0;
    TRY(path_join(&path, c->out, "trace.json"));
    return tracer_new(&t->tracer, t->job->runner, path, first, c->trace_steps);
}

/* ---- before the first step ---- */

static Status check_config(const TrainConfig *c) {
    if (c->data_count == 0)
        return USAGE("no data: name files with --data, or --data self for weft's own source");
    if (c->batch < 1) return USAGE("--batch %lld: expected at least 1", (long long)c->batch);
    if (c->resume && !c->out) return USAGE("--resume needs --out: the run directory to go on with");
    if (c->trace && !c->out) return USAGE("--trace needs --out: the run directory for trace.json");
    return OK;
}

static bool is_first(const Trainer *t) {
    return !t->config->mesh || t->config->mesh->rank == 0;
}

/* Ranks wait here for all. */
static Status meet(const Trainer *t) {
    return t->config->mesh ? barrier(t->config->mesh->world) : OK;
}

/* Validation: files of its own, the shards beside the training shards, or the end of the data. */
static Status open_data(Trainer *t) {
    const TrainConfig *c = t->config;
    CLEANUP(shard_list_done) ShardList beside = {0};
    if (c->val_count == 0) TRY(job_val_shards(c->data, c->data_count, &beside));
    bool split = c->val_count == 0 && beside.count == 0 && c->val_fraction > 0;
    TRY(job_data(t->job, c->data, c->data_count, split ? 1 - c->val_fraction : 0, 0, c->mask_rate, c->seed,
                 &t->data));
    if (c->val_count) return job_data(t->job, c->val, c->val_count, 0, 0, c->mask_rate, c->seed, &t->val);
    if (beside.count)
        return job_data(t->job, (const char *const *)beside.path, (int)beside.count, 0, 0, c->mask_rate,
                        c->seed, &t->val);
    if (!split) return OK;
    Status status =
        job_data(t->job, c->data, c->data_count, 0, c->val_fraction, c->mask_rate, c->seed, &t->val);
    return status ? status_wrap(status, "the last part of the data, for validation (--val-fraction %g)",
                                c->val_fraction)
                  : OK;
}

static Status plan_steps(Trainer *t) {
    const TrainConfig *c = t->config;
    t->lr = (LrSchedule){.peak = c->lr, .floor = c->min_lr, .warmup = c->warmup, .steps = c->steps};
    TRY(lr_parse(c->schedule, &t->lr.kind));
    TRY(lr_parse_warmup(c->warmup_type, &t->lr.warmup_type));
    if (c->epochs > 0) {
        double steps = ceil(c->epochs * (double)dataset_count(t->data) / (double)c->batch);
        if (steps > 1e15) return USAGE("--epochs %g is more steps than can be counted", c->epochs);
        t->lr.steps = (int64_t)steps;
    }
    if (t->lr.steps < 1) return USAGE("there is nothing to do: --steps or --epochs must be above 0");
    if (t->lr.warmup < 0) t->lr.warmup = t->lr.steps / 20;
    if (t->lr.warmup > t->lr.steps)
        return USAGE("--warmup %lld is longer than the run of %lld steps", (long long)t->lr.warmup,
                     (long long)t->lr.steps);
    int64_t micro = t->job->plan.micro_batch;
    t->micro_count = t->job->plan.micros;
    TRY(mem_new((size_t)t->micro_count, sizeof *t->micro, &t->micro));
    for (int i = 0; i < t->micro_count; i++) TRY(host_batch_new(&t->micro[i], micro, t->job->seq));
    return OK;
}

/* What must be the same in a run and in what goes on with it. */
static Status describe_settings(Trainer *t) {
    const TrainConfig *c = t->config;
    uint64_t print;
    char data[24];
    TRY(job_fingerprint(t->job, t->data, &print));
    snprintf(data, sizeof data, "%016llx", (unsigned long long)print);
    t->settings =
        json_pack("{s:I, s:I, s:I, s:s, s:b, s:s, s:I, s:f}", "seed", (json_int_t)c->seed, "batch",
                  (json_int_t)c->batch, "seq", (json_int_t)t->job->seq, "task", task_name(t->job->task),
                  "shuffle", !c->no_shuffle, "data", data, "params", (json_int_t)model_params(t->job->model),
                  "dropout", (double)t->job->model->config.dropout_hidden);
    return t->settings ? OK : FAILED("out of memory");
}

static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static Status save_checkpoint(Trainer *t) {
    CLEANUP(json_decrefp)
    json_t *progress =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:f, s:I, s:O}", "step", (json_int_t)t->step, "tokens",
                  (json_int_t)t->tokens, "loss_first", number_or_null(t->loss_first), "loss_last",
                  number_or_null(t->loss_last), "val_loss", number_or_null(t->val_loss), "loss_scale",
                  t->job->runner->loss_scale.scale, "loss_scale_good",
                  (json_int_t)t->job->runner->loss_scale.good, "settings", t->settings);
    if (!progress) return FAILED("out of memory");
    int64_t start = trace_now();
    Runner *runner = t->job->runner;
    CheckpointState state = {.params = runner->params,
                             .m = runner->m,
                             .v = runner->v,
                             .progress = progress,
                             .assets_dir = t->job->model_dir,
                             .tokenizer_dir = t->job->tokenizer_dir,
                             .labels = &t->job->labels,
                             .mesh = t->config->mesh};
    TRY(ckpt_save(t->config->out, t->step, &state, runner->stream, (int)t->config->keep));
    show_span(t, &save_span, start);
    return OK;
}

static double number_member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static Status check_settings(const Trainer *t, const char *dir, const json_t *saved) {
    const char *key;
    json_t *value;
    json_object_foreach(t->settings, key, value) {
        const json_t *was = json_object_get(saved, key);
        if (was && json_equal(value, (json_t *)(uintptr_t)was)) continue;
        CLEANUP(mem_freep) char *now_text = json_dumps(value, JSON_ENCODE_ANY);
        CLEANUP(mem_freep) char *was_text = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL;
        return USAGE("%s: cannot be resumed: its %s is %s, this run's is %s", dir, key,
                     was_text ? was_text : "unknown", now_text ? now_text : "unknown");
    }
    return OK;
}

/* Loads the newest checkpoint of the run directory, if there is one and it is asked for. */
static Status resume(Trainer *t) {
    const TrainConfig *c = t->config;
    if (!c->out) return OK;
    CLEANUP(mem_freep) char *dir = NULL;
    if (path_is_dir(c->out)) TRY(ckpt_latest(c->out, &dir));
    if (!dir) return OK;
    if (!c->resume)
        return USAGE("%s holds a run already: go on with it by --resume, or choose another --out", c->out);
    CLEANUP(json_decrefp) json_t *progress = NULL;
    Runner *runner = t->job->runner;
    TRY(ckpt_load(dir, runner->params, runner->m, runner->v, runner->stream, &progress));
    TRY(runner_publish(runner));
    TRY(check_settings(t, dir, json_object_get(progress, "settings")));
    int64_t tokens = 0;
    TRY(json_get_int(progress, dir, "step", 1, INT64_MAX, &t->step));
    if (t->step == 0) return FAILED("%s: its progress does not say which step it is from", dir);
    TRY(json_get_int(progress, dir, "tokens", 0, INT64_MAX, &tokens));
    t->tokens = tokens;
    t->loss_first = number_member(progress, "loss_first");
    t->loss_last = number_member(progress, "loss_last");
    t->val_loss = number_member(progress, "val_loss");
    if (runner->spec.dtype == DT_F16) {
        TRY(json_get_double(progress, dir, "loss_scale", 1, 1e30, &runner->loss_scale.scale));
        TRY(json_get_int(progress, dir, "loss_scale_good", 0, INT64_MAX, &runner->loss_scale.good));
    }
    progress_line(t->progress, "going on from %s", dir);
    return is_first(t) ? ckpt_tidy(c->out, t->step, (int)c->keep) : OK;
}

/* Losses and accuracies one by one, for tasks that have several. */
static void add_parts(const EvalResult *result, json_t *line, char *note, size_t size) {
    for (int k = 0; k < LOSS_COUNT; k++) {
        char name[64];
        const char *part = loss_name((LossId)k);
        size_t used = strlen(note);
        if (!result->counts[k]) continue;
        snprintf(name, sizeof name, "val_%s", part);
        json_object_set_new(line, name, json_real(result->part[k]));
        snprintf(name, sizeof name, "val_%s_accuracy", part);
        json_object_set_new(line, name, json_real(result->accuracy[k]));
        snprintf(note + used, size - used, "  %s %.1f %% right", part, 100 * result->accuracy[k]);
    }
}

static Status evaluate(Trainer *t) {
    if (!t->val) return OK;
    EvalResult result;
    int64_t start = trace_now();
    TRY(job_evaluate(t->job, t->val, t->config->eval_batches * t->config->batch, &result));
    show_span(t, &eval_span, start);
    t->val_loss = result.loss;
    t->eval = result;
    json_t *line = json_pack("{s:I, s:f}", "step", (json_int_t)t->step, "val_loss", result.loss);
    if (!line) return FAILED("out of memory");
    char note[240] = "";
    if (t->job->task != TASK_LM) add_parts(&result, line, note, sizeof note);
    progress_line(t->progress, "step %lld  validation loss %.4f%s", (long long)t->step, result.loss, note);
    return rundir_metrics(t->dir, line);
}

static void show_step(Trainer *t, const StepResult *result, double lr, double step_s) {
    char note[160], rate[FORMAT_SIZE], memory[FORMAT_SIZE];
    snprintf(note, sizeof note, "loss %.4f  lr %.2e  norm %.2f  %s tok/s  %s", result->loss, lr,
             result->grad_norm, format_count(rate, (double)result->tokens / step_s),
             format_bytes(memory, (double)t->job->device->total.peak));
    progress_update(t->progress, t->step, note);
}

/* The driver renews its figure a few times a second. */
static void sample_gpu(Trainer *t) {
    const double pause_s = 0.2;
    double now = clock_wall();
    if (device_is_host(t->job->device) || now - t->gpu_at < pause_s) return;
    t->gpu_at = now;
    t->gpu_now = device_utilization(t->job->device);
    if (!isfinite(t->gpu_now)) return;
    t->gpu_sum += t->gpu_now;
    t->gpu_samples++;
}

static Status log_step(Trainer *t, const StepResult *result, double lr, double step_s, double device_s) {
    const TrainConfig *c = t->config;
    show_step(t, result, lr, step_s);
    sample_gpu(t);
    if (t->step % c->log_every && t->step != t->lr.steps) return OK;
    json_t *line = json_pack("{s:I, s:f, s:f, s:o, s:I, s:f, s:f, s:f}", "step", (json_int_t)t->step, "loss",
                             result->loss, "lr", lr, "grad_norm", number_or_null(result->grad_norm), "tokens",
                             (json_int_t)t->tokens, "samples_per_s", (double)c->batch / step_s,
                             "tokens_per_s", (double)result->tokens / step_s, "step_ms", 1e3 * step_s);
    if (!line) return FAILED("out of memory");
    if (t->job->plan.dtype == DT_F16)
        json_object_set_new(line, "loss_scale", json_real(t->job->runner->loss_scale.scale));
    if (result->skipped) json_object_set_new(line, "skipped", json_true());
    if (!device_is_host(t->job->device)) {
        json_object_set_new(line, "utilization", json_real(fmin(device_s / step_s, 1)));
        json_object_set_new(line, "gpu_utilization", number_or_null(t->gpu_now));
    }
    for (int k = 0; k < LOSS_COUNT; k++)
        if (result->part[k] > 0 && t->job->task != TASK_LM)
            json_object_set_new(line, loss_name((LossId)k), json_real(result->part[k]));
    return rundir_metrics(t->dir, line);
}

/* This replica's micro-batches of the next step. */
static Status load_data(Trainer *t) {
    const TrainConfig *c = t->config;
    int64_t start = trace_now(), replica = c->mesh ? c->mesh->at[AXIS_DP] : 0;
    for (int i = 0; i < t->micro_count; i++) {
        int64_t first = (replica * t->micro_count + i) * t->micro[i]->B;
        uint64_t position = (uint64_t)(t->step * c->batch + first);
        TRY(dataset_fill(t->data, position, !c->no_shuffle, t->micro[i]));
    }
    t->data_s += 1e-9 * (double)(trace_now() - start);
    show_span(t, &data_span, start);
    return OK;
}

static Status one_step(Trainer *t) {
    TRY(tracer_next(t->tracer, t->steps_here));
    int64_t start = trace_now(), step = t->step + 1;
    TRY(load_data(t));
    StepResult result;
    double lr = lr_at(&t->lr, step), device_s = t->job->runner->times.device_s;
    uint64_t before[COMM_KINDS], after[COMM_KINDS];
    mesh_sent(t->job->runner->mesh, before);
    TRY(runner_step(t->job->runner, t->micro, t->micro_count, step, lr, &result));
    mesh_sent(t->job->runner->mesh, after);
    for (int k = 0; k < COMM_KINDS; k++) t->sent[k] += after[k] - before[k];
    double seconds = 1e-9 * (double)(trace_now() - start);
    t->step = step;
    show_span(t, &step_span, start);
    t->tokens += result.tokens;
    t->seconds += seconds;
    t->steps_here++;
    t->tokens_here += result.tokens;
    if (step == 1) t->loss_first = result.loss;
    t->loss_last = result.loss;
    return log_step(t, &result, lr, seconds, t->job->runner->times.device_s - device_s);
}

/* Signals reach ranks at different moments, and all must stop after the same step. */
static Status stop_agreed(const Trainer *t, bool *ret_stop) {
    int64_t stop = t->config->stop && *t->config->stop;
    if (t->config->mesh) TRY(host_reduce(t->config->mesh->world, &stop, 1, DT_I64, REDUCE_MAX));
    *ret_stop = stop != 0;
    return OK;
}

static Status run_steps(Trainer *t) {
    const TrainConfig *c = t->config;
    int64_t last = t->lr.steps;
    if (t->step == 0 && c->eval_every) TRY(evaluate(t));
    while (t->step < last) {
        TRY(one_step(t));
        bool stopping = false, end = t->step == last;
        TRY(stop_agreed(t, &stopping));
        if (!stopping && (end || (c->eval_every && t->step % c->eval_every == 0))) TRY(evaluate(t));
        if (c->out && (end || stopping || (c->save_every && t->step % c->save_every == 0)))
            TRY(save_checkpoint(t));
        if (stopping) break;
    }
    return tracer_finish(t->tracer);
}

/* What each rank tells of itself. */
typedef struct RankReport {
    int64_t peak[MEM_TAGS + 1], host_peak;
    uint64_t sent[COMM_KINDS];
    double cpu_s, data_s, gpu; /* gpu: NAN where nothing says how busy it was */
    RunnerTimes times;
} RankReport;

static Status report_ranks(const Trainer *t, double cpu_s, RankReport **ret_reports, int *ret_count) {
    const Device *device = t->job->device;
    const Mesh *mesh = t->job->runner->mesh;
    RankReport own = {.cpu_s = cpu_s,
                      .data_s = t->data_s,
                      .gpu = t->gpu_samples ? t->gpu_sum / (double)t->gpu_samples : NAN,
                      .times = t->job->runner->times};
    for (int tag = 0; tag < MEM_TAGS; tag++) own.peak[tag] = (int64_t)device->mem[tag].peak;
    own.peak[MEM_TAGS] = (int64_t)device->total.peak;
    own.host_peak = (int64_t)device->host.peak;
    memcpy(own.sent, t->sent, sizeof own.sent);
    RankReport *all = NULL;
    TRY(mem_new((size_t)mesh->size, sizeof *all, &all));
    Status status = host_gather(mesh->world, all, &own, sizeof own);
    if (status) {
        free(all);
        return status;
    }
    *ret_reports = all;
    *ret_count = mesh->size;
    return OK;
}

/* Where the time of the steps went. */
static json_t *phases_json(const RankReport *report) {
    const RunnerTimes *times = &report->times;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "compute_s", times->compute_s, "optimizer_s",
                     times->update_s, "data_s", report->data_s, "wait_data_s", times->waited_s[AXIS_DP],
                     "wait_tensor_s", times->waited_s[AXIS_TP], "wait_pipeline_s", times->waited_s[AXIS_PP]);
}

static json_t *rank_json(const RankReport *report, int rank) {
    json_t *memory = json_object(), *sent = json_object();
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        json_object_set_new(memory, mem_tag_name(tag), json_integer((json_int_t)report->peak[tag]));
    json_object_set_new(memory, "total", json_integer((json_int_t)report->peak[MEM_TAGS]));
    json_object_set_new(memory, "host", json_integer((json_int_t)report->host_peak));
    uint64_t total = 0;
    for (CommKind kind = 0; kind < COMM_KINDS; kind++) {
        total += report->sent[kind];
        json_object_set_new(sent, comm_kind_name(kind), json_integer((json_int_t)report->sent[kind]));
    }
    json_object_set_new(sent, "total", json_integer((json_int_t)total));
    return json_pack("{s:i, s:o, s:o, s:o}", "rank", rank, "peak_bytes", memory, "comm_bytes", sent, "phases",
                     phases_json(report));
}

static json_t *layout_json(const Trainer *t) {
    const RunnerSpec *spec = &t->job->runner->spec;
    const Mesh *mesh = t->job->runner->mesh;
    const TrainConfig *c = t->config;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:b, s:I, s:I, s:s, s:s, s:s, s:i}", "ranks",
                     mesh->size, "dp", mesh->extent[AXIS_DP], "tp", mesh->extent[AXIS_TP], "pp",
                     mesh->extent[AXIS_PP], "zero", spec->zero, "offload", c->offload ? c->offload : "none",
                     "pp_schedule", schedule_name(spec->schedule), "pp_chunks", spec->chunks,
                     "sequence_parallel", spec->sequence, "batch", (json_int_t)c->batch, "micro_batch",
                     (json_int_t)spec->micro_batch, "recompute", c->recompute, "precision",
                     c->precision ? c->precision : dtype_name(spec->dtype), "device", c->device, "threads",
                     t->job->device->threads);
}

static Status summarise(Trainer *t, json_t **ret_summary) {
    double wall = clock_wall() - t->wall_start;
    double cpu = clock_cpu() - t->cpu_start;
    CLEANUP(mem_freep) RankReport *report = NULL;
    int count = 0;
    TRY(report_ranks(t, cpu, &report, &count)); /* before the peak's measurement adds to it */
    json_t *ranks = json_array();
    double peak;
    TRY(job_peak_flops(t->job, &peak));
    peak *= count;
    double bubble = cpu = 0, device_s = 0, gpu = 0;
    for (int i = 0; i < count; i++) {
        cpu += report[i].cpu_s;
        device_s += report[i].times.device_s / count;
        gpu += report[i].gpu / count;
        bubble += runner_bubble(&report[i].times) / count;
        json_array_append_new(ranks, rank_json(&report[i], i));
    }
    double seconds = t->seconds > 0 ? t->seconds : NAN;
    double tokens_per_s = (double)t->tokens_here / seconds;
    /* Of the CPU: the part of all threads' time that was spent computing; of a GPU: the part of the steps'
     * time during which there was work on it. */
    double busy = device_is_host(t->job->device) ? cpu / (wall * t->job->device->threads * count)
                                                 : fmin(device_s / seconds, 1);
    json_t *summary =
        json_pack("{s:I, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:o, s:b, s:o}", "steps",
                  (json_int_t)t->step, "loss_first", number_or_null(t->loss_first), "loss_last",
                  number_or_null(t->loss_last), "val_loss", number_or_null(t->val_loss), "runtime_s", wall,
                  "tokens_per_s", number_or_null(tokens_per_s), "samples_per_s",
                  number_or_null((double)(t->steps_here * t->config->batch) / seconds), "utilization",
                  number_or_null(busy), "gpu_utilization", number_or_null(gpu), "mfu",
                  number_or_null(tokens_per_s * job_flops_per_token(t->job) / peak), "bubble", bubble,
                  "params_total", (json_int_t)model_params(t->job->model), "layout", layout_json(t),
                  "interrupted", t->step < t->lr.steps, "ranks", ranks);
    if (!summary) return FAILED("out of memory");
    char note[240] = "";
    if (t->eval.examples && t->job->task != TASK_LM) add_parts(&t->eval, summary, note, sizeof note);
    *ret_summary = summary;
    return rundir_summary(t->dir, summary);
}

static void announce(Trainer *t, const LoadReport *report) {
    const ModelConfig *c = &t->job->model->config;
    progress_line(t->progress,
                  "%s: %lld layers, width %lld, %lld heads, vocabulary %lld, %.2f M parameters; %s",
                  t->config->model, (long long)c->layers, (long long)c->hidden, (long long)c->heads,
                  (long long)c->vocab, (double)model_params(t->job->model) / 1e6, task_name(t->job->task));
    progress_line(t->progress, "data: %lld tokens, %lld examples of %lld an epoch; %lld steps of %lld",
                  (long long)dataset_tokens(t->data), (long long)dataset_count(t->data),
                  (long long)t->job->seq, (long long)t->lr.steps, (long long)t->config->batch);
    char text[TOKENIZER_ID_TEXT];
    if (t->job->tokens_known)
        progress_line(
            t->progress, "tokenizer: %s (%s)%s", t->job->tokenizer_name,
            tokenizer_id_text(&t->job->tokens, text),
            t->job->tokenizer || t->job->bytes ? "" : "; with --tokenizer checkpoints would carry its files");
    job_report(t->job, report, t->progress);
    if (!t->config->out)
        progress_line(t->progress, "no --out directory: the trained weights will not be kept");
}

static Status prepare(Trainer *t, const json_t *config_json) {
    const TrainConfig *c = t->config;
    TRY(check_config(c));
    TRY(progress_new(&t->progress, c->log, "train", c->steps, 5, c->quiet));
    CLEANUP(load_report_done) LoadReport report = {0};
    JobSpec spec = job_spec_of(c);
    TRY(job_new(&t->job, &spec));
    const char *out = is_first(t) ? c->out : NULL;
    if (c->text.no_cache) TRY(rundir_open(&t->dir, out)); /* prepared text goes there */
    /* The first rank prepares what needs it; the others then find it done. */
    if (!is_first(t)) TRY(meet(t));
    TRY(open_data(t));
    if (is_first(t)) TRY(meet(t));
    TRY(plan_steps(t));
    progress_total(t->progress, t->lr.steps);
    if (!t->dir) TRY(rundir_open(&t->dir, out));
    TRY(meet(t));
    TRY(job_start(t->job, &report));
    if (t->job->model_dir) TRY(load_report_check(&report, t->job->model_dir, &t->job->model->config, true));
    TRY(describe_settings(t));
    announce(t, &report);
    TRY(resume(t));
    TRY(start_tracer(t));
    return rundir_begin(t->dir, config_json, t->step);
}

static Status run_all(Trainer *t, const json_t *config_json, json_t **ret_summary) {
    TRY(prepare(t, config_json));
    TRY(run_steps(t));
    progress_end(t->progress);
    return summarise(t, ret_summary);
}

Status train_run(const TrainConfig *config, const json_t *config_json, json_t **ret_summary) {
    CLEANUP(trainer_done)
    Trainer t = {.config = config, .loss_first = NAN, .loss_last = NAN, .val_loss = NAN, .gpu_now = NAN};
    t.wall_start = clock_wall();
    t.cpu_start = clock_cpu();
    return run_all(&t, config_json, ret_summary);
}
