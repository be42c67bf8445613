#include "plan/measure_models.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "train/job.h"
#include "train/peak.h"

/* Models whose kernels have sizes from small to large; GPT-2's and BERT's differ. */
typedef struct SmallModel {
    const char *model;
    int64_t layers, hidden, heads, seq, vocab, batch;
} SmallModel;

static const SmallModel cpu_models[] = {
    {"gpt2", 2, 64, 2, 64, 512, 2},      {"gpt2", 2, 128, 4, 64, 1024, 4},
    {"gpt2", 2, 256, 4, 128, 2048, 2},   {"bert-base", 2, 256, 4, 128, 2048, 4},
    {"gpt2", 2, 384, 6, 256, 8192, 2},   {"gpt2", 2, 512, 8, 128, 4096, 4},
    {"gpt2", 2, 768, 12, 256, 8192, 2},  {"bert-base", 2, 768, 12, 128, 8192, 4},
    {"gpt2", 1, 1024, 16, 512, 4096, 1},
};
static const SmallModel gpu_models[] = {
    {"gpt2", 2, 256, 4, 256, 4096, 4},          {"gpt2", 2, 512, 8, 512, 16384, 4},
    {"gpt2", 2, 768, 12, 1024, 50257, 4},       {"gpt2", 2, 768, 12, 1024, 50257, 16},
    {"bert-base", 2, 768, 12, 384, 30522, 16},  {"gpt2", 2, 1024, 16, 1024, 50257, 8},
    {"bert-base", 2, 1024, 16, 512, 30522, 32}, {"gpt2", 2, 1600, 25, 1024, 50257, 8},
    {"gpt2", 2, 2048, 32, 1024, 50257, 16},     {"gpt2", 1, 4096, 32, 1024, 50257, 8},
};

enum { STEPS = 3, MODELS = 16 };

/* One call of a kernel. */
typedef struct Sample {
    int kernel;
    double work, seconds;
} Sample;

typedef struct Samples {
    Sample *sample;
    size_t count, capacity;
    double gap[MODELS * RATE_COUNT]; /* time that is no kernel's, for each call; of each model */
    int gaps;
} Samples;

static void samples_done(Samples *samples) {
    free(samples->sample);
}

/* ---- running ---- */

static Status add_calls(Samples *samples, const Ledger *ledger) {
    TRY(mem_grow(&samples->sample, &samples->capacity, samples->count + ledger->count, sizeof(Sample)));
    for (size_t i = 0; i < ledger->count; i++) {
        const Note *note = &ledger->note[i];
        if (note->kind != NOTE_KERNEL) continue;
        double work = kernel_curve_work((KernelId)note->what, note->flops, note->bytes);
        if (work > 0 && note->seconds > 0)
            samples->sample[samples->count++] = (Sample){note->what, work, note->seconds};
    }
    return OK;
}

typedef struct Timed {
    double step_s, kernels_s; /* of a step */
    double calls;
} Timed;

/* Steps alone, then as many with every call timed. */
static Status time_steps(Job *job, HostBatch *batch, Samples *samples, Timed *ret_timed) {
    CLEANUP(ledger_done) Ledger ledger = {0};
    Profile profile = {0};
    StepResult result;
    Timed timed = {.step_s = INFINITY};
    int64_t number = 0;
    TRY(runner_step(job->runner, &batch, 1, ++number, 1e-4, &result));
    for (int i = 0; i < STEPS; i++) {
        double start = clock_wall();
        TRY(runner_step(job->runner, &batch, 1, ++number, 1e-4, &result));
        timed.step_s = fmin(timed.step_s, clock_wall() - start);
    }
    job->runner->exec.profile = &profile;
    job->device->ledger = &ledger;
    Status status = OK;
    for (int i = 0; i < STEPS && !status; i++)
        status = runner_step(job->runner, &batch, 1, ++number, 1e-4, &result);
    job->runner->exec.profile = NULL;
    job->device->ledger = NULL;
    TRY(status);
    TRY(add_calls(samples, &ledger));
    for (int k = 0; k < KERNEL_COUNT; k++) {
        timed.kernels_s += profile.kernel[k].seconds / STEPS;
        timed.calls += (double)profile.kernel[k].calls / STEPS;
    }
    *ret_timed = timed;
    return OK;
}

static Status new_job(Job **ret_job, const MeasureSpec *spec, Device *device, const SmallModel *model,
                      const char *precision) {
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(load_report_done) LoadReport report = {0};
    JobSpec of_job = {.model = model->model,
                      .task = "auto",
                      .format = "u32",
                      .device = spec->device,
                      .recompute = "none",
                      .layers = model->layers,
                      .hidden = model->hidden,
                      .heads = model->heads,
                      .inner = 0,
                      .seq = model->seq,
                      .vocab = model->vocab,
                      .threads = spec->threads,
                      .micro_batch = model->batch,
                      .batch = model->batch,
                      .dropout = -1,
                      .train = true,
                      .quiet = true,
                      .on = device,
                      .precision = precision,
                      .seed = 1,
                      .optim = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1}};
    TRY(job_new(&job, &of_job));
    TRY(job_start(job, &report));
    *ret_job = job;
    job = NULL;
    return OK;
}

static Status measure_model(const MeasureSpec *spec, Device *device, const SmallModel *model,
                            const char *precision, double memory, Samples *samples) {
    CLEANUP(job_freep) Job *job = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    Timed timed = {0};
    TRY(new_job(&job, spec, device, model, precision));
    TRY(host_batch_new(&batch, model->batch, job->seq));
    job_make_up(job, batch);
    TRY(barrier(spec->world));
    TRY(time_steps(job, batch, samples, &timed));
    double zeroed = 4 * (double)model_params(job->model) / memory; /* gradients, at a step's beginning */
    if (timed.calls > 0)
        samples->gap[samples->gaps++] = (timed.step_s - timed.kernels_s - zeroed) / timed.calls;
    return OK;
}

/* ---- making curves ---- */

static int by_work(const void *a, const void *b) {
    const Sample *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    return (x->work > y->work) - (x->work < y->work);
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const Sample *)a)->seconds, y = ((const Sample *)b)->seconds;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls of the same kernel and almost the same work become a point: a quarter of them took less, since some
 * were interrupted. `overhead` is in every time. */
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

/* A GPU's kernels are timed with the host waiting for them; the shortest is about that waiting alone. */
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

static Status measure_precision(const MeasureSpec *spec, Device *device, const char *precision, double memory,
                                Samples *gaps, MeasuredModels *models) {
    bool gpu = !device_is_host(device);
    const SmallModel *list = gpu ? gpu_models : cpu_models;
    size_t count = gpu ? sizeof gpu_models / sizeof *list : sizeof cpu_models / sizeof *list;
    CLEANUP(samples_done) Samples samples = {0};
    Rate rate = rate_named(precision);
    if (spec->log) fprintf(spec->log, "measuring %s\n", precision);
    for (size_t i = 0; i < count; i++)
        TRY(measure_model(spec, device, &list[i], precision, memory, &samples));
    for (int i = 0; i < samples.gaps; i++) gaps->gap[gaps->gaps++] = samples.gap[i];
    make_curves(&samples, sync_seconds(&samples, gpu), &models->kernels[rate]);
    CLEANUP(job_freep) Job *job = NULL;
    TRY(new_job(&job, spec, device, &list[0], precision));
    TRY(barrier(spec->world));
    return peak_measure(job, 0.5, &models->peak[rate]);
}

Status measure_models(const MeasureSpec *spec, Device *device, double memory, MeasuredModels *models) {
    static const char *const of_cpu[] = {"fp32", "bf16", NULL}, *const of_gpu[] = {"bf16", "fp16", "fp8",
                                                                                   "tf32", "fp32", NULL};
    const char *const only[] = {spec->precision, NULL};
    bool gpu = !device_is_host(device);
    Samples gaps = {0};
    for (const char *const *at = spec->precision ? only : gpu ? of_gpu : of_cpu; *at; at++)
        TRY(measure_precision(spec, device, *at, memory, &gaps, models));
    qsort(gaps.gap, (size_t)gaps.gaps, sizeof *gaps.gap, by_value);
    double gap = gaps.gaps ? fmax(gaps.gap[gaps.gaps / 2], 0) : 0;
    /* A GPU works beside its host, which is ahead of it in all but tiny models. */
    models->kernel_s = gpu ? fmin(gap, 2e-6) : gap;
    models->launch_s = gpu ? 3e-6 : 0;
    return OK;
}
