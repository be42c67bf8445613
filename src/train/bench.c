/* weft bench: step times, then step times by kernel, on synthetic tokens from the counter-based generator.
 * All steps reuse the same batch; the first step is a warm-up and is not timed. */

#include "base/clock.h"
#include "base/progress.h"
#include "data/task.h"
#include "train/job.h"
#include "train/peak.h"
#include "train/tracer.h"

enum { MASK_EVERY = 7 /* about 15% of positions, as in MLM */ };

void job_fill_synthetic(const Job *job, HostBatch *batch) {
    const ModelConfig *c = &job->model->config;
    RngKey key = rng_key(1, "bench", 0);
    int64_t B = batch->B, T = batch->T, labels = config_labeled(c) ? c->labels : c->vocab;
    bool picks = task_data(job->task)->picks;
    batch->task = job->task;
    batch->next_sentence = job->next_sentence;
    batch->has_types = c->types > 0;
    for (int64_t i = 0; i < B * T; i++) {
        batch->tokens[i] = (int32_t)rng_below(key, (uint64_t)i, (uint64_t)c->vocab);
        batch->types[i] = i % T > T / 2 && c->types > 1;
        batch->labels[i] = (int32_t)rng_below(key, (uint64_t)(B * T + i), (uint64_t)labels);
        if (picks && i % MASK_EVERY) batch->labels[i] = LABEL_IGNORED;
    }
    for (int64_t b = 0; b < B; b++) {
        batch->lens[b] = (int32_t)T;
        batch->nsp[b] = (int32_t)(b % 2);
        batch->classes[b] = (int32_t)(b % c->labels);
        batch->span[b] = (int32_t)(b % T);
        batch->span[B + b] = (int32_t)(T - 1);
    }
    for (int64_t i = 0; i < B * batch->outputs; i++) batch->targets[i] = (float)(i % 2);
    if (job->settings.data.text.no_cross_document) host_batch_split(batch, (int32_t)job->end_token);
    host_batch_count(batch);
}

static json_t *kernels_json(const Profile *profile, int64_t steps) {
    json_t *list = json_array();
    for (int k = 0; k < KERNEL_COUNT; k++) {
        const KernelStat *stat = &profile->kernel[k];
        if (!stat->calls) continue;
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", kernel_name((KernelId)k),
                                              "calls", (double)stat->calls / (double)steps, "ms",
                                              1e3 * stat->seconds / (double)steps, "gflops",
                                              1e-9 * stat->flops / stat->seconds, "gbytes_per_s",
                                              1e-9 * stat->bytes / stat->seconds));
    }
    return list;
}

typedef struct Timing {
    double best, total, cpu;
    json_t *each; /* milliseconds per step; NULL: not collected */
} Timing;

/* Runs `steps` steps numbered from *number + 1 and times them; best and total are in seconds. On a CPU, each
 * includes the update of the step before. */
static Status time_steps(Job *job, HostBatch *const *micro, int count, int64_t steps, int64_t *number,
                         Timing *timing) {
    timing->best = 1e300;
    timing->total = 0;
    double cpu = clock_cpu();
    job->runner->lags = true;
    for (int64_t i = 0; i < steps; i++) {
        StepResult result;
        double start = clock_wall();
        TRY(runner_step(job->runner, micro, count, &(StepSpec){.number = ++*number, .lr = 1e-4}, &result));
        double seconds = clock_wall() - start;
        timing->total += seconds;
        if (seconds < timing->best) timing->best = seconds;
        if (timing->each && json_array_append_new(timing->each, json_real(1e3 * seconds)))
            return FAILED("out of memory");
    }
    timing->cpu = clock_cpu() - cpu;
    return OK;
}

/* Per rank, in seconds over all steps. */
typedef struct RankTimes {
    double cpu;
    RunnerTimes runner;
} RankTimes;

static json_t *waited_json(const Mesh *mesh, const RunnerTimes *times, double scale) {
    json_t *waited = json_object();
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (mesh_shows(mesh_spec(mesh), axis))
            json_object_set_new(waited, axis_info(axis)->name, json_real(scale * times->waited_s[axis]));
    return waited;
}

static Status ranks_json(const Mesh *mesh, RankTimes own, int64_t steps, json_t **ret_list) {
    Group *world = mesh->world;
    CLEANUP(mem_freep) RankTimes *all = NULL;
    TRY(mem_new((size_t)world->size, sizeof *all, &all));
    TRY(host_gather(world, all, &own, sizeof own));
    CLEANUP(json_decrefp) json_t *list = json_array();
    double scale = 1e3 / (double)steps;
    for (int r = 0; r < world->size; r++) {
        const RunnerTimes *t = &all[r].runner;
        json_t *rank = json_pack("{s:f, s:f, s:f, s:f, s:o}", "cpu_ms", scale * all[r].cpu, "schedule_ms",
                                 scale * t->schedule_s, "compute_ms", scale * t->compute_s, "update_ms",
                                 scale * t->update_s, "waited_ms", waited_json(mesh, t, scale));
        if (json_array_append_new(list, rank) != 0) return FAILED("out of memory");
    }
    *ret_list = json_incref(list);
    return OK;
}

/* Adds times by kernel, the measured peak of the hardware, and MFU. */
static Status add_kernels(json_t *result, Job *job, const Timing *measured, const Profile *profile,
                          int64_t steps) {
    double peak;
    TRY(peak_measure(job, 0.5, &peak));
    peak *= 1e-9 * job->runner->mesh->size;
    double rate = json_number_at(result, "gflops");
    CLEANUP(json_decrefp)
    json_t *more =
        json_pack("{s:f, s:f, s:f, s:o}", "step_ms_measured", 1e3 * measured->total / (double)steps,
                  "peak_gflops", peak, "mfu", rate / peak, "kernels", kernels_json(profile, steps));
    if (!more || json_object_update(result, more) != 0) return FAILED("out of memory");
    return OK;
}

/* Mean bubble fraction over all ranks. */
static Status measured_bubble(const Runner *runner, double *ret_bubble) {
    double bubble = runner_bubble(&runner->times) / runner->mesh->size;
    TRY(host_reduce(runner->mesh->world, &bubble, 1, DT_F64, REDUCE_SUM));
    *ret_bubble = bubble;
    return OK;
}

/* Traces extra steps, so that tracing does not affect the timed ones. */
static Status trace_steps(const Settings *c, Job *job, HostBatch *const *micro, int count, int64_t *number) {
    CLEANUP(tracer_freep) Tracer *tracer = NULL;
    Timing timing = {0};
    if (!c->report.trace_file) return OK;
    TRY(tracer_new(&tracer, job->runner, c->report.trace_file, 0, c->report.trace_steps, NULL));
    TRY(tracer_next(tracer, 0));
    TRY(time_steps(job, micro, count, c->report.trace_steps, number, &timing));
    return tracer_finish(tracer);
}

static Status bench_job(const Settings *c, Job *job, HostBatch *const *micro, int count,
                        json_t **ret_result) {
    int64_t number = 0, steps = c->training.steps < 1 ? 1 : c->training.steps;
    CLEANUP(json_decrefp) json_t *each = json_array();
    Timing warm = {0}, plain = {.each = each}, measured = {0};
    Profile profile = {0};
    TRY(time_steps(job, micro, count, 1, &number, &warm));
    job->runner->times = (RunnerTimes){0};
    TRY(time_steps(job, micro, count, steps, &number, &plain));
    double bubble = 0;
    CLEANUP(json_decrefp) json_t *ranks = NULL;
    TRY(measured_bubble(job->runner, &bubble));
    TRY(ranks_json(job->runner->mesh, (RankTimes){plain.cpu, job->runner->times}, steps, &ranks));
    TRY(runner_settle(job->runner));
    if (!c->report.steps_only) {
        job->runner->exec.profile = &profile;
        TRY(time_steps(job, micro, count, steps, &number, &measured));
        double start = clock_wall(); /* the update of the last step, whose kernels count too */
        TRY(runner_settle(job->runner));
        measured.total += clock_wall() - start;
        job->runner->exec.profile = NULL;
    }
    TRY(trace_steps(c, job, micro, count, &number));
    double mean = plain.total / (double)steps, tokens = (double)(c->training.batch * job->seq);
    CLEANUP(json_decrefp)
    json_t *result = json_pack(
        "{s:s, s:I, s:I, s:I, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:O, s:f, s:f, s:f, s:I, s:O}",
        "model", c->model.name, "params_total", (json_int_t)model_params(job->model), "batch",
        (json_int_t)c->training.batch, "seq", (json_int_t)job->seq, "threads", job->device->threads, "device",
        c->device.name, "precision", job->settings.run.fp8 ? "fp8" : dtype_name(job->settings.run.dtype),
        "kernels_from", job->runner->exec.table->name, "isa", kernels_cpu_isa(), "blas", kernels_cpu_blas(),
        "bf16", kernels_cpu_bf16(), "step_ms", 1e3 * mean, "step_ms_best", 1e3 * plain.best, "steps_ms", each,
        "tokens_per_s", tokens / mean, "gflops", 1e-9 * tokens * job_flops_per_token(job) / mean, "bubble",
        bubble, "peak_bytes", (json_int_t)job->device->total.peak, "ranks", ranks);
    if (!result) return FAILED("out of memory");
    if (!c->report.steps_only) TRY(add_kernels(result, job, &measured, &profile, steps));
    return MOVE(ret_result, result);
}

Status bench_run(const Settings *c, json_t **ret_result) {
    Settings spec = *c;
    spec.data.format = "u32"; /* keep the preset's vocabulary instead of the byte vocabulary */
    TRY(job_default_optim(&spec));
    CLEANUP(load_report_done) LoadReport report = {0};
    CLEANUP(job_freep) Job *job = NULL;
    TRY(job_new(&job, &spec, JOB_TRAIN));
    TRY(job_start(job, &report));
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, c->report.log, "measuring", 0, c->report.quiet));
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    TRY(host_batch_new_targets(&batch, job->settings.run.micro_batch, job->seq,
                               config_targets(&job->model->config)));
    job_fill_synthetic(job, batch);
    int count = job->settings.run.micros;
    CLEANUP(mem_freep) HostBatch **micro = NULL;
    TRY(mem_new((size_t)count, sizeof *micro, &micro));
    for (int i = 0; i < count; i++) micro[i] = batch;
    return bench_job(c, job, micro, count, ret_result);
}
