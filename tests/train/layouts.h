/* Trials (verify/trial.h) in any layout, as tests run them: run() trains on synthetic batches and returns the
 * losses, gradient norms and final weights. */
#ifndef WEFT_TESTS_TRAIN_LAYOUTS_H
#define WEFT_TESTS_TRAIN_LAYOUTS_H

#include <math.h>
#include <stddef.h>

#include "ranks.h"
#include "stores.h"

#include "verify/trial.h"

enum {
    SEQ = TRIAL_SEQ,
    BATCH = TRIAL_BATCH,
    VOCAB = TRIAL_VOCAB,
    LARGE_VOCAB = TRIAL_LARGE_VOCAB,
    STEPS_LIMIT = TRIAL_STEPS
};

/* The first jobs of trial_job. */
typedef enum { JOB_GPT2, JOB_BERT, JOB_SPAN, JOB_CLASSIFY, JOB_LLAMA, JOBS } JobKind;

typedef TrialSpec Layout;

static inline bool is_lm(JobKind kind) {
    return kind == JOB_GPT2 || kind == JOB_LLAMA;
}

/* The job of a family's first task. */
static inline JobKind job_of(const Family *family) {
    TrialJob job;
    int number = 0;
    while (trial_job(number, &job) && job.family != family) number++;
    assert_true(trial_job(number, &job));
    return (JobKind)number;
}

static inline HostBatch *batch_of_vocab(int job, int64_t vocab, int64_t step, int64_t first, int64_t count) {
    HostBatch *batch = NULL;
    assert_ok(trial_batch(&batch, job, vocab, step, first, count));
    return batch;
}

/* The lowest ZeRO stage with the same bits. NCCL adds in one order when it reduces, in another when it also
 * scatters. */
static inline int same_bits(const Group *world, int zero) {
    return zero && world->size > 2 && !strcmp(world->ops->name, "nccl") ? 1 : 0;
}

static inline const char *layout_text(const Layout *layout) {
    static char text[TRIAL_TEXT];
    return trial_text(text, layout);
}

typedef struct Outcome {
    double loss[STEPS_LIMIT], norm[STEPS_LIMIT], eval;
    double micro_norm[STEPS_LIMIT];
    bool skipped[STEPS_LIMIT];
    Trial trial;
    Model *model;   /* the trial's */
    Runner *runner; /* likewise */
    Device *device;
    Mesh *mesh;
} Outcome;

static inline void outcome_done(Outcome *outcome) {
    trial_done(&outcome->trial);
    mesh_free(outcome->mesh);
    test_device_free(outcome->device);
}

/* Changes about half of the weights by one unit in the last place, up or down. */
static inline void perturb_params(Store *params, int perturb) {
    RngKey key = rng_key((uint64_t)perturb, "nudge", 0);
    for (int i = 0; i < params->model->units; i++) {
        CLEANUP(mem_freep) float *value = unit_values(params, i);
        for (int64_t k = 0; k < params->count[i]; k++) {
            uint64_t drawn = rng_below(key, (uint64_t)(i << 20) + (uint64_t)k, 4);
            if (drawn < 2) value[k] *= drawn ? 1 + 0x1p-23f : 1 - 0x1p-23f;
        }
        unit_set_values(params, i, value);
    }
}

/* A step must clear or overwrite all gradients of the step before. */
static inline void poison_gradients(Runner *runner) {
    const Shards *shards = runner->shards;
    for (int i = -1; i < shards->count; i++) {
        const Buffer *grads = i < 0 ? &shards->grads.all : &shards->unit[i].grad;
        int64_t count = (int64_t)(grads->bytes / sizeof(float));
        if (grads->data) assert_ok(fill(&runner->exec, tensor_1d(grads->data, DT_F32, count), NAN));
    }
}

/* A run before its first step. Without a world it has one rank. */
static inline Outcome run_new(Group *world, const Layout *layout) {
    Outcome outcome = {0};
    const KernelTable *table;
    test_device_new(&outcome.device, 1);
    if (world) assert_ok(mesh_new(&outcome.mesh, world, layout->mesh));
    assert_ok(kernels_find(test_kernels(), &table));
    assert_ok(trial_new(&outcome.trial, layout, table, outcome.device, outcome.mesh));
    outcome.model = outcome.trial.model;
    outcome.runner = outcome.trial.runner;
    if (layout->perturb) {
        perturb_params(outcome.runner->params, layout->perturb);
        assert_ok(runner_publish(outcome.runner));
        assert_ok(shards_outer_reset(outcome.runner->shards));
    }
    return outcome;
}

static inline Outcome run(Group *world, const Layout *layout, int steps) {
    Outcome outcome = run_new(world, layout);
    int count = outcome.runner->spec.micros, replica = outcome.runner->mesh->at[AXIS_DP];
    HostBatch *micro[BATCH];
    for (int step = 0; step < steps; step++) {
        assert_ok(trial_micros(&outcome.trial, replica, step, micro));
        StepResult result;
        poison_gradients(outcome.runner);
        assert_ok(runner_step(outcome.runner, micro, count,
                              &(StepSpec){.number = step + 1, .lr = trial_lr(layout)}, &result));
        outcome.loss[step] = result.loss;
        outcome.norm[step] = result.grad_norm;
        outcome.micro_norm[step] = result.micro_norm;
        outcome.skipped[step] = result.skipped;
        if (step + 1 == steps) {
            double sums[LOSS_COUNT] = {0};
            int64_t counts[LOSS_COUNT] = {0};
            assert_ok(runner_eval(outcome.runner, micro, count, sums, counts, NULL));
            outcome.eval = loss_objective(sums, counts);
        }
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    assert_ok(stream_sync(outcome.runner->stream)); /* the caller reads the weights */
    return outcome;
}

/* Gives all ranks the losses, norms and weights of a run that `root` has trained on its own. */
static inline void outcome_share(Group *world, Outcome *outcome, int root) {
    Store *params = outcome->runner->params;
    assert_ok(host_broadcast(world, outcome, offsetof(Outcome, trial), root));
    for (int i = 0; i < params->model->units; i++) {
        CLEANUP(mem_freep) float *values = unit_values(params, i);
        assert_ok(host_broadcast(world, values, (size_t)params->count[i] * sizeof *values, root));
        unit_set_values(params, i, values);
    }
    if (world->rank != root) assert_ok(runner_publish(outcome->runner));
}

/* Runs on one rank each, by run or by another function. All ranks need the results, but only one trains each
 * of them: on eight ranks, the same run on every rank would take longer than the layouts that are compared
 * with it. */
static inline void run_each(Group *world, const Layout *layouts, int count, int steps,
                            Outcome (*run_one)(Group *world, const Layout *layout, int steps),
                            Outcome *ret_outcomes) {
    for (int i = 0; i < count; i++)
        ret_outcomes[i] = run_one(NULL, &layouts[i], i % world->size == world->rank ? steps : 0);
    for (int i = 0; i < count; i++) outcome_share(world, &ret_outcomes[i], i % world->size);
}

static inline void run_alone(Group *world, const Layout *layouts, int count, int steps,
                             Outcome *ret_outcomes) {
    run_each(world, layouts, count, steps, run, ret_outcomes);
}

#endif
