/* Runs a few training steps of each model with and without timing every kernel call, with dropout and
 * without. The timed calls become points of the kernel curves; the difference from the plain steps is the gap
 * between kernels. */
#include "plan/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "train/job.h"
#include "train/peak.h"

/* Models whose kernels cover small to large sizes, of all kinds of layers because their kernels differ. The
 * most informative ones come first; if time runs out, the last ones are skipped. */
typedef struct SmallModel {
    const char *model;
    int64_t layers, hidden, heads, seq, vocab, batch;
} SmallModel;

static const SmallModel cpu_models[] = {
    {"gpt2", 2, 128, 4, 64, 1024, 4},       {"gpt2", 2, 768, 12, 256, 8192, 2},
    {"bert-base", 2, 256, 4, 128, 2048, 4}, {"llama-5m", 2, 256, 8, 128, 2048, 4},
    {"gpt2", 2, 64, 2, 64, 512, 2},         {"gpt2", 2, 384, 6, 256, 8192, 2},
    {"gpt2", 2, 256, 4, 128, 2048, 2},      {"bert-base", 2, 768, 12, 128, 8192, 4},
    {"gpt2", 2, 512, 8, 128, 4096, 4},      {"gpt2", 1, 1024, 16, 512, 4096, 1},
};
/* Wide models have small vocabularies because parameters are initialized on the host. */
static const SmallModel gpu_models[] = {
    {"gpt2", 2, 256, 4, 256, 4096, 4},
    {"gpt2", 2, 768, 12, 1024, 50257, 16},
    {"gpt2", 1, 2048, 32, 1024, 8192, 16},
    {"bert-base", 2, 768, 12, 384, 30522, 16},
    {"tinyllama-1.1b", 1, 2048, 32, 1024, 8192, 4},
    {"gpt2", 2, 1024, 16, 1024, 16384, 8},
    {"gpt2", 2, 512, 8, 512, 16384, 4},
    {"bert-base", 2, 1024, 16, 512, 30522, 32},
    {"gpt2", 1, 4096, 32, 1024, 8192, 8},
    {"gpt2", 2, 768, 12, 1024, 50257, 4},
    {"gpt2", 1, 1600, 25, 1024, 8192, 8},
};

enum { STEPS = 3, MAX_TIMED = 32, MIN_MODELS = 2 };

_Static_assert(2 * sizeof gpu_models / sizeof *gpu_models <= MAX_TIMED, "each with and without dropout");

/* A kernel call of a timed model. */
typedef struct Sample {
    int kernel, model;
    unsigned traits;
    double work, seconds;
} Sample;

/* Step time of a model, with or without dropout, without per-call timing, and the part of it that zeroes
 * memory. */
typedef struct ModelTime {
    double step_s, zeroing_s;
    int steps; /* number of steps whose calls are in the samples */
} ModelTime;

typedef struct Samples {
    Sample *sample;
    size_t count, capacity;
    ModelTime timed[MAX_TIMED];
    int models;
    double overhead_s;          /* that timing adds to a call; 0 on a CPU */
    double memory;              /* bytes/s */
    const KernelCurves *curves; /* define what a call's work is */
} Samples;

static void samples_done(Samples *samples) {
    free(samples->sample);
}

/* ---- time ---- */

typedef struct Budget {
    double start, seconds;
} Budget;

/* Seconds left in the budget: the minimum over the ranks, so that all ranks make the same decision. */
static Status time_left(const MeasureSpec *spec, const Budget *budget, double *ret_seconds) {
    double over = clock_wall() - budget->start - budget->seconds;
    TRY(host_reduce(spec->world, &over, 1, DT_F64, REDUCE_MAX));
    *ret_seconds = -over;
    return OK;
}

/* ---- training steps ---- */

static Status add_calls(Samples *samples, const OpLog *op_log) {
    ModelTime *timed = &samples->timed[samples->models];
    TRY(mem_grow(&samples->sample, &samples->capacity, samples->count + op_log->count, sizeof(Sample)));
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *record = &op_log->record[i];
        if (record->kind == OP_ZERO) timed->zeroing_s += record->bytes / samples->memory / timed->steps;
        if (record->kind != OP_KERNEL) continue;
        double work = kernel_curve_work(samples->curves, (KernelId)record->what, record->flops, record->bytes,
                                        record->size);
        if (work > 0 && record->seconds > 0)
            samples->sample[samples->count++] =
                (Sample){record->what, samples->models, record->traits, work, record->seconds};
    }
    return OK;
}

/* A job whose steps are timed. */
typedef struct TimedJob {
    Job *job;
    HostBatch *batch;
    Buffer busy; /* see keep_busy */
    int64_t step;
} TimedJob;

static Status one_step(TimedJob *timed) {
    StepResult result;
    return runner_step(timed->job->runner, &timed->batch, 1, &(StepSpec){.number = ++timed->step, .lr = 1e-4},
                       &result);
}

/* Gives a GPU a few milliseconds of other work, in which the host launches the kernels of a step: the times
 * of small ones would include their launch otherwise. */
static Status keep_busy(const TimedJob *timed) {
    enum { FILLS = 40 };
    Stream *stream = timed->job->runner->stream;
    for (int i = 0; timed->busy.data && i < FILLS; i++)
        TRY(timed->job->device->ops->zero(stream, timed->busy.data, timed->busy.bytes));
    return OK;
}

/* What timing adds to a call: the time between two marks with nothing between them. */
static Status time_marks(const TimedJob *timed, double *ret_seconds) {
    enum { REPEATS = 16, FIRST = STREAM_MARKS - 2, SECOND };
    Stream *stream = timed->job->runner->stream;
    double least = INFINITY, seconds;
    for (int i = 0; i < REPEATS; i++) {
        TRY(keep_busy(timed));
        TRY(stream_mark(stream, FIRST));
        TRY(stream_mark(stream, SECOND));
        TRY(stream_elapsed(stream, FIRST, SECOND, &seconds));
        least = fmin(least, seconds);
    }
    *ret_seconds = least;
    return OK;
}

static Status time_calls(TimedJob *timed, int steps) {
    Exec *exec = &timed->job->runner->exec;
    for (int i = 0; i < steps; i++) {
        TRY(keep_busy(timed));
        TRY(one_step(timed));
    }
    return profile_finish(exec);
}

/* Runs up to STEPS plain steps, fewer if time is short, then the same number with every kernel call timed. */
static Status time_steps(const MeasureSpec *spec, TimedJob *job, double seconds, Samples *samples) {
    CLEANUP(op_log_done) OpLog op_log = {0};
    CLEANUP(mem_freep) Profile *profile = NULL;
    ModelTime *timed = &samples->timed[samples->models];
    Exec *exec = &job->job->runner->exec;
    timed->step_s = INFINITY;
    double left = 0, start = clock_wall();
    Budget budget = {start, seconds};
    TRY(mem_new(1, sizeof *profile, &profile));
    profile->ahead = true;
    TRY(one_step(job));
    double first = clock_wall() - start;
    TRY(time_left(spec, &budget, &left));
    TRY(host_reduce(spec->world, &first, 1, DT_F64, REDUCE_MAX));
    timed->steps = left > 2 * STEPS * first ? STEPS : left > 4 * first ? 2 : 1;
    for (int i = 0; i < timed->steps; i++) {
        start = clock_wall();
        TRY(one_step(job));
        timed->step_s = fmin(timed->step_s, clock_wall() - start);
    }
    exec->profile = profile;
    job->job->device->op_log = &op_log;
    Status status = time_calls(job, timed->steps);
    exec->profile = NULL;
    job->job->device->op_log = NULL;
    TRY(status);
    TRY(add_calls(samples, &op_log));
    samples->models++;
    return OK;
}

static Status new_job(Job **ret_job, const MeasureSpec *spec, Device *device, const SmallModel *model,
                      const char *precision) {
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    Settings settings = {
        .model = {.name = model->model,
                  .task = "auto",
                  .layers = model->layers,
                  .hidden = model->hidden,
                  .heads = model->heads,
                  .seq = model->seq,
                  .vocab = model->vocab,
                  .dropout = -1},
        .data = {.format = "u32"},
        .training = {.batch = model->batch},
        .run = {.micro_batch = model->batch, .seed = 1},
        .device = {.name = spec->device, .on = device, .precision = precision, .threads = spec->threads},
        .report = {.quiet = true}};
    TRY(job_default_optim(&settings));
    TRY(job_new(&job, &settings, JOB_TRAIN));
    TRY(job_start(job, &report));
    return MOVE(ret_job, job);
}

static bool has_dropout(const ModelConfig *config) {
    return config->dropout_embed > 0 || config->dropout_attn > 0 || config->dropout_hidden > 0;
}

/* Measures a model with its dropout, if it has any, and without. Blocks read the rates in every pass. */
static Status measure_model(const MeasureSpec *spec, Device *device, const SmallModel *model,
                            const char *precision, double seconds, Samples *samples) {
    const size_t busy_bytes = (size_t)256 << 20;
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    CLEANUP(dev_free) Buffer busy = {0};
    TRY(new_job(&job, spec, device, model, precision));
    TRY(host_batch_new_targets(&batch, model->batch, job->seq, config_targets(&job->model->config)));
    job_fill_synthetic(job, batch);
    if (!device_is_host(device)) TRY(dev_alloc(device, MEM_SCRATCH, busy_bytes, &busy));
    ModelConfig *config = &job->model->config;
    TimedJob timed = {.job = job, .batch = batch, .busy = busy};
    TRY(barrier(spec->world));
    if (busy.data) TRY(time_marks(&timed, &samples->overhead_s));
    if (has_dropout(config)) TRY(time_steps(spec, &timed, seconds /= 2, samples));
    config->dropout_embed = config->dropout_attn = config->dropout_hidden = config->dropout_classify = 0;
    return time_steps(spec, &timed, seconds, samples);
}

/* ---- curves ---- */

static int by_work(const void *a, const void *b) {
    const Sample *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    if (x->traits != y->traits) return x->traits < y->traits ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const Sample *)a)->seconds, y = ((const Sample *)b)->seconds;
    return (x > y) - (x < y);
}

static bool same_point(const Sample *a, const Sample *b) {
    const double same = 1.03;
    return a->kernel == b->kernel && a->traits == b->traits && b->work <= same * a->work;
}

/* Calls of a kernel with almost the same work become one point, the 25th percentile of their times, because
 * some calls were interrupted. `overhead` is subtracted from every time. */
static Status make_curves(Samples *samples, double overhead, KernelCurves *curves) {
    Sample *all = samples->sample;
    qsort(all, samples->count, sizeof *all, by_work);
    for (size_t from = 0, to; from < samples->count; from = to) {
        for (to = from + 1; to < samples->count && same_point(&all[from], &all[to]);) to++;
        double work = sqrt(all[from].work * all[to - 1].work);
        KernelCurve *curve = kernel_curves_add(curves, all[from].kernel, all[from].traits);
        if (!curve) return FAILED("internal: more than %d kernels were measured", CURVES);
        qsort(all + from, to - from, sizeof *all, by_seconds);
        double seconds = all[from + (to - from) / 4].seconds;
        kernel_curve_add(curve, work, fmax(seconds - overhead, seconds / 10));
    }
    return OK;
}

static Rate rate_named(const char *precision) {
    Rate rate = 0;
    while (rate < RATE_COUNT && strcmp(rate_name(rate), precision)) rate++;
    return rate;
}

/* Kernel calls of a step and their time by the curves. */
typedef struct StepCalls {
    double calls, seconds;
} StepCalls;

static void count_calls(const Samples *samples, const KernelCurves *curves, StepCalls ret_step[MAX_TIMED]) {
    memset(ret_step, 0, MAX_TIMED * sizeof *ret_step);
    for (size_t i = 0; i < samples->count; i++) {
        const Sample *sample = &samples->sample[i];
        double steps = samples->timed[sample->model].steps;
        const KernelCurve *curve = kernel_curves_find(curves, sample->kernel, sample->traits);
        ret_step[sample->model].calls += 1 / steps;
        ret_step[sample->model].seconds += kernel_curve_seconds(curve, sample->work) / steps;
    }
}

/* Whether a GPU waits for the host to launch kernels in the steps of this model. */
static bool is_launch_bound(const ModelTime *timed, const StepCalls *step) {
    return step->seconds + timed->zeroing_s < 0.7 * timed->step_s;
}

/* Weighted sums over the models: of calls (c), of steps (s), and of the time that the curves do not explain
 * (t). Errors are relative to the step time, so small models weigh most. */
typedef struct Moments {
    double cc, cs, ss, ct, st;
} Moments;

static Moments sum_models(const Samples *samples, const KernelCurves *curves, bool gpu) {
    StepCalls step[MAX_TIMED];
    Moments sum = {0};
    count_calls(samples, curves, step);
    for (int m = 0; m < samples->models; m++) {
        const ModelTime *timed = &samples->timed[m];
        double calls = step[m].calls / timed->step_s, one = 1 / timed->step_s;
        double rest = 1 - (step[m].seconds + timed->zeroing_s) / timed->step_s;
        if (gpu && is_launch_bound(timed, &step[m])) continue;
        sum.cc += calls * calls;
        sum.cs += calls * one;
        sum.ss += one * one;
        sum.ct += calls * rest;
        sum.st += one * rest;
    }
    return sum;
}

/* The time between kernels, per call: a least-squares fit to the part of the models' step times that the
 * curves do not explain. On a GPU, a step also takes a fixed time, in which the host waits for its results.
 */
static double fit_gap(const Samples *samples, const KernelCurves *curves, bool gpu) {
    Moments sum = sum_models(samples, curves, gpu);
    double together = sum.cc * sum.ss - sum.cs * sum.cs;
    if (gpu && together > 1e-6 * sum.cc * sum.ss) return (sum.ct * sum.ss - sum.st * sum.cs) / together;
    return sum.cc > 0 ? sum.ct / sum.cc : 0;
}

/* Measures the models in order until time runs out. */
static Status run_models(const MeasureSpec *spec, Device *device, const char *precision, const Budget *budget,
                         Samples *samples) {
    bool gpu = !device_is_host(device);
    const SmallModel *list = gpu ? gpu_models : cpu_models;
    int count = gpu ? (int)(sizeof gpu_models / sizeof *list) : (int)(sizeof cpu_models / sizeof *list);
    double left = 0;
    for (int i = 0; i < count; i++) {
        TRY(time_left(spec, budget, &left));
        if (left < 0 && i >= MIN_MODELS) {
            if (spec->log)
                fprintf(spec->log, "%s: time limit reached, skipping the last %d of %d models\n", precision,
                        count - i, count);
            break;
        }
        if (spec->log)
            fprintf(spec->log, "%s: model %d of %d (%s, hidden size %lld), %.0f s elapsed\n", precision,
                    i + 1, count, list[i].model, (long long)list[i].hidden, clock_wall() - spec->start);
        TRY(measure_model(spec, device, &list[i], precision, left / (count - i), samples));
    }
    return OK;
}

static Status measure_peak(const MeasureSpec *spec, Device *device, const char *precision, double *ret_peak) {
    CLEANUP(job_freep) Job *job = NULL;
    const SmallModel *model = device_is_host(device) ? &cpu_models[0] : &gpu_models[0];
    TRY(new_job(&job, spec, device, model, precision));
    TRY(barrier(spec->world));
    return peak_measure(job, 0.5, ret_peak);
}

/* On a GPU, kernels of a step follow each other more closely than timed ones: their times are less by what
 * timing adds, and the gap is at most MAX_GAP. */
#define MAX_GAP 1e-6

static Status measure_precision(const MeasureSpec *spec, Device *device, const char *precision, double memory,
                                double seconds, double *ret_gap, MeasuredModels *models) {
    bool gpu = !device_is_host(device);
    Budget budget = {clock_wall(), seconds};
    Rate rate = rate_named(precision);
    KernelCurves *curves = &models->kernels[rate];
    CLEANUP(samples_done) Samples samples = {.memory = memory, .curves = curves};
    TRY(measure_peak(spec, device, precision, &models->peak[rate]));
    if (!gpu) curves->balance = models->peak[rate] / memory;
    TRY(run_models(spec, device, precision, &budget, &samples));
    TRY(make_curves(&samples, samples.overhead_s, curves));
    *ret_gap = fmax(fit_gap(&samples, curves, gpu), 0);
    if (gpu) *ret_gap = fmin(*ret_gap, MAX_GAP);
    return OK;
}

Status measure_models(const MeasureSpec *spec, Device *device, double memory, MeasuredModels *models) {
    static const char *const of_cpu[] = {"fp32", "bf16", NULL}, *const of_gpu[] = {"bf16", "fp16", "fp8",
                                                                                   "tf32", "fp32", NULL};
    const char *const only[] = {spec->precision, NULL};
    bool gpu = !device_is_host(device);
    const char *const *list = spec->precision ? only : gpu ? of_gpu : of_cpu;
    double gap = INFINITY, own, left = spec->start + spec->seconds - clock_wall();
    int count = 0;
    while (list[count]) count++;
    for (int i = 0; i < count; i++) {
        TRY(measure_precision(spec, device, list[i], memory, left / count, &own, models));
        gap = fmin(gap, own);
    }
    models->kernel_s = gap;
    models->launch_s = gpu ? 4e-6 : 0;
    return OK;
}
