/* Runs a few training steps of each model with and without timing every kernel call. The timed calls become
 * points of the kernel curves; the difference from the plain steps is the gap between kernels. */
#include "plan/measure_models.h"

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

enum { STEPS = 3, MODELS = 16, MIN_MODELS = 2 };

/* A timed kernel call in one of the models. */
typedef struct Sample {
    int kernel, model;
    double work, seconds;
} Sample;

/* Step time of a model without per-call timing, and the part of it that zeroes gradients. */
typedef struct ModelTime {
    double step_s, zeroing_s;
    int steps; /* number of steps whose calls are in the samples */
} ModelTime;

typedef struct Samples {
    Sample *sample;
    size_t count, capacity;
    ModelTime timed[MODELS];
    int models;
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
    TRY(mem_grow(&samples->sample, &samples->capacity, samples->count + op_log->count, sizeof(Sample)));
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *record = &op_log->record[i];
        if (record->kind != OP_KERNEL) continue;
        double work = kernel_curve_work((KernelId)record->what, record->flops, record->bytes, record->size);
        if (work > 0 && record->seconds > 0)
            samples->sample[samples->count++] =
                (Sample){record->what, samples->models, work, record->seconds};
    }
    return OK;
}

/* Runs up to STEPS plain steps, fewer if time is short, then the same number with every kernel call timed. */
static Status time_steps(const MeasureSpec *spec, Job *job, HostBatch *batch, double seconds,
                         Samples *samples, ModelTime *timed) {
    CLEANUP(op_log_done) OpLog op_log = {0};
    Profile profile = {0};
    StepResult result;
    int64_t number = 0;
    timed->step_s = INFINITY;
    double left = 0, start = clock_wall();
    Budget budget = {start, seconds};
    TRY(runner_step(job->runner, &batch, 1, ++number, 1e-4, &result));
    double first = clock_wall() - start;
    TRY(time_left(spec, &budget, &left));
    TRY(host_reduce(spec->world, &first, 1, DT_F64, REDUCE_MAX));
    timed->steps = left > 2 * STEPS * first ? STEPS : left > 4 * first ? 2 : 1;
    for (int i = 0; i < timed->steps; i++) {
        start = clock_wall();
        TRY(runner_step(job->runner, &batch, 1, ++number, 1e-4, &result));
        timed->step_s = fmin(timed->step_s, clock_wall() - start);
    }
    job->runner->exec.profile = &profile;
    job->device->op_log = &op_log;
    Status status = OK;
    for (int i = 0; i < timed->steps && !status; i++)
        status = runner_step(job->runner, &batch, 1, ++number, 1e-4, &result);
    job->runner->exec.profile = NULL;
    job->device->op_log = NULL;
    TRY(status);
    return add_calls(samples, &op_log);
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
    *ret_job = job;
    job = NULL;
    return OK;
}

static Status measure_model(const MeasureSpec *spec, Device *device, const SmallModel *model,
                            const char *precision, double memory, double seconds, Samples *samples) {
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    ModelTime *timed = &samples->timed[samples->models];
    TRY(new_job(&job, spec, device, model, precision));
    TRY(host_batch_new_targets(&batch, model->batch, job->seq, config_targets(&job->model->config)));
    job_fill_synthetic(job, batch);
    TRY(barrier(spec->world));
    TRY(time_steps(spec, job, batch, seconds, samples, timed));
    timed->zeroing_s =
        4 * (double)model_params(job->model) / memory; /* gradients are zeroed at the start of a step */
    samples->models++;
    return OK;
}

/* ---- curves ---- */

static int by_work(const void *a, const void *b) {
    const Sample *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const Sample *)a)->seconds, y = ((const Sample *)b)->seconds;
    return (x > y) - (x < y);
}

/* Calls of a kernel with almost the same work become one point, the 25th percentile of their times, because
 * some calls were interrupted. `overhead` is subtracted from every time. */
static void make_curves(Samples *samples, double overhead, KernelCurves *curves) {
    const double same = 1.03;
    Sample *all = samples->sample;
    qsort(all, samples->count, sizeof *all, by_work);
    for (size_t from = 0, to; from < samples->count; from = to) {
        for (to = from + 1; to < samples->count; to++)
            if (all[to].kernel != all[from].kernel || all[to].work > same * all[from].work) break;
        double work = sqrt(all[from].work * all[to - 1].work);
        int kernel = all[from].kernel;
        qsort(all + from, to - from, sizeof *all, by_seconds);
        double seconds = all[from + (to - from) / 4].seconds;
        kernel_curve_add(&curves->kernel[kernel], work, fmax(seconds - overhead, seconds / 10));
    }
}

/* The overhead of timing a GPU kernel, for which the host synchronizes: about the shortest time of any call.
 */
static double sync_seconds(const Samples *samples, bool gpu) {
    double least = INFINITY;
    for (size_t i = 0; gpu && i < samples->count; i++) least = fmin(least, samples->sample[i].seconds);
    return gpu && samples->count ? 0.9 * least : 0;
}

static Rate rate_named(const char *precision) {
    Rate rate = 0;
    while (rate < RATE_COUNT && strcmp(rate_name(rate), precision)) rate++;
    return rate;
}

/* The time between kernels, per call: a least-squares fit to the part of the models' step times that the
 * curves do not explain. Errors are relative to the step time, so small models weigh most. */
static double fit_gap(const Samples *samples, const KernelCurves *curves) {
    double calls[MODELS] = {0}, kernels[MODELS] = {0}, above = 0, below = 0;
    for (size_t i = 0; i < samples->count; i++) {
        const Sample *sample = &samples->sample[i];
        calls[sample->model]++;
        kernels[sample->model] += kernel_curve_seconds(&curves->kernel[sample->kernel], sample->work);
    }
    for (int m = 0; m < samples->models; m++) {
        const ModelTime *timed = &samples->timed[m];
        double each = calls[m] / timed->steps / timed->step_s;
        above += each * (1 - (kernels[m] / timed->steps + timed->zeroing_s) / timed->step_s);
        below += each * each;
    }
    return below > 0 ? fmax(above / below, 0) : 0;
}

/* Measures the models in order until time runs out. */
static Status run_models(const MeasureSpec *spec, Device *device, const char *precision, double memory,
                         const Budget *budget, Samples *samples) {
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
        TRY(measure_model(spec, device, &list[i], precision, memory, left / (count - i), samples));
    }
    return OK;
}

static Status measure_precision(const MeasureSpec *spec, Device *device, const char *precision, double memory,
                                double seconds, double *ret_gap, MeasuredModels *models) {
    bool gpu = !device_is_host(device);
    CLEANUP(samples_done) Samples samples = {0};
    Budget budget = {clock_wall(), seconds};
    Rate rate = rate_named(precision);
    TRY(run_models(spec, device, precision, memory, &budget, &samples));
    make_curves(&samples, sync_seconds(&samples, gpu), &models->kernels[rate]);
    *ret_gap = fit_gap(&samples, &models->kernels[rate]);
    CLEANUP(job_freep) Job *job = NULL;
    TRY(new_job(&job, spec, device, gpu ? &gpu_models[0] : &cpu_models[0], precision));
    TRY(barrier(spec->world));
    return peak_measure(job, 0.5, &models->peak[rate]);
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
    /* A GPU runs asynchronously: except for tiny models, the host is ahead, and most of the gap is hidden. */
    models->kernel_s = gpu ? fmin(gap, 2e-6) : gap;
    models->launch_s = gpu ? 3e-6 : 0;
    return OK;
}
