/* The reference step (train/step_reference.h) and the runner on one rank compute the same, bit for bit, for
 * every family, head and optimizer. */
#include <math.h>
#include <stdlib.h>

#include "device.h"
#include "stores.h"

#include "train/step_reference.h"
#include "verify/trial.h"

enum { STEPS = 4, MICRO = 2, MICROS = TRIAL_BATCH / MICRO };

/* On a CPU, equal bits. */
static bool agree(double found, double expected, double limit) {
    return found == expected || (test_on_cuda() && fabs(found - expected) <= limit * fmax(fabs(expected), 1));
}

/* A trial's model, perhaps with targets instead of classes. */
typedef struct Rig {
    Device *device;
    Model *model;
    Runner *runner;
    Reference *reference;
} Rig;

static Rig rig_new(const TrialSpec *spec, ProblemType problem, const char *kernels) {
    Rig rig = {0};
    ModelConfig config;
    RunnerSpec run = trial_run_spec(spec, 1);
    trial_config(spec, &config);
    config.problem = problem;
    run.noise = false;
    test_device_new(&rig.device, 1);
    assert_ok(kernels_find(kernels, &run.table));
    assert_ok(model_new(&rig.model, &config));
    assert_ok(trial_freeze(rig.model, spec));
    assert_ok(runner_new(&rig.runner, rig.model, rig.device, &run));
    assert_ok(reference_new(&rig.reference, rig.model, rig.device, &run));
    assert_ok(store_init_params(rig.runner->params, rig.runner->stream, TRIAL_SEED));
    assert_ok(runner_publish(rig.runner));
    assert_ok(store_init_params(rig.reference->params, rig.reference->exec.stream, TRIAL_SEED));
    return rig;
}

static void rig_free(Rig *rig) {
    reference_free(rig->reference);
    runner_free(rig->runner);
    model_free(rig->model);
    test_device_free(rig->device);
}

static HostBatch *batch_new(const Rig *rig, int job, int step, int micro) {
    const ModelConfig *config = &rig->model->config;
    HostBatch *batch = NULL, *made = NULL;
    assert_ok(trial_batch(&batch, job, config->vocab, step, micro * MICRO, MICRO));
    int64_t targets = config_targets(config);
    if (!targets) return batch;
    assert_ok(host_batch_new_targets(&made, MICRO, TRIAL_SEQ, targets));
    made->task = batch->task;
    made->has_types = batch->has_types;
    made->padded = batch->padded;
    made->loss_count[LOSS_CLASSIFY] = MICRO * targets;
    for (int i = 0; i < MICRO * TRIAL_SEQ; i++) made->tokens[i] = batch->tokens[i];
    for (int i = 0; i < MICRO * TRIAL_SEQ; i++) made->types[i] = batch->types[i];
    for (int b = 0; b < MICRO; b++) made->lens[b] = batch->lens[b];
    for (int i = 0; i < MICRO * targets; i++) made->targets[i] = (float)((step + micro + i) % 2);
    host_batch_free(batch);
    return made;
}

static void expect_same_weights(const Rig *rig, const char *name) {
    const Store *found = rig->runner->params, *expected = rig->reference->params;
    assert_ok(runner_settle(rig->runner));
    for (int u = 0; u < rig->model->units; u++) {
        CLEANUP(mem_freep) float *a = unit_values(found, u), *b = unit_values(expected, u);
        assert_int_equal(found->count[u], expected->count[u]);
        for (int64_t i = 0; i < found->count[u]; i++)
            if (!agree((double)a[i], (double)b[i], 1e-4))
                fail_msg("%s: unit %d, element %lld is %.9g; the reference has %.9g", name, u, (long long)i,
                         (double)a[i], (double)b[i]);
    }
}

static void compare(const TrialSpec *spec, ProblemType problem, const char *kernels) {
    char name[TRIAL_TEXT];
    Rig rig = rig_new(spec, problem, kernels);
    HostBatch *micro[MICROS];
    trial_text(name, spec);
    for (int step = 0; step < STEPS; step++) {
        StepResult found, expected;
        for (int i = 0; i < MICROS; i++) micro[i] = batch_new(&rig, spec->job, step, i);
        assert_ok(runner_step(rig.runner, micro, MICROS,
                              &(StepSpec){.number = step + 1, .lr = trial_lr(spec)}, &found));
        assert_ok(reference_step(rig.reference, micro, MICROS, step + 1, trial_lr(spec), &expected));
        bool same =
            agree(found.loss, expected.loss, 1e-6) && agree(found.grad_norm, expected.grad_norm, 1e-5);
        for (int k = 0; k < LOSS_COUNT; k++) same &= agree(found.part[k], expected.part[k], 1e-6);
        if (!same || !(expected.grad_norm > 0) || found.tokens != expected.tokens)
            fail_msg("%s: step %d: loss %.17g, norm %.17g; the reference has %.17g, %.17g", name, step + 1,
                     found.loss, found.grad_norm, expected.loss, expected.grad_norm);
        double sums[LOSS_COUNT] = {0}, loss;
        int64_t counts[LOSS_COUNT] = {0};
        assert_ok(runner_eval(rig.runner, micro, MICROS, sums, counts, NULL));
        assert_ok(reference_eval(rig.reference, micro, MICROS, &loss));
        assert_true(agree(loss_objective(sums, counts), loss, 1e-6));
        for (int i = 0; i < MICROS; i++) host_batch_free(micro[i]);
    }
    expect_same_weights(&rig, name);
    rig_free(&rig);
}

static void test_families_and_heads(void **state) {
    TrialJob job;
    int jobs = 0;
    for (TrialSpec spec = {.micro_batch = MICRO}; trial_job(spec.job, &job); spec.job++, jobs++) {
        bool targets = job.outputs == OUTPUT_CLASSIFY;
        compare(&spec, PROBLEM_AUTO, test_kernels());
        if (targets) compare(&spec, PROBLEM_REGRESSION, test_kernels());
        if (targets) compare(&spec, PROBLEM_MULTI_LABEL, test_kernels());
        spec.untied = true;
        if (!targets) compare(&spec, PROBLEM_AUTO, test_kernels());
        spec.untied = false;
    }
    assert_true(jobs > 4);
}

static void test_optimizers(void **state) {
    for (TrialSpec spec = {.micro_batch = MICRO}; optim_row(spec.optimizer); spec.optimizer++)
        compare(&spec, PROBLEM_AUTO, test_kernels());
}

/* Blocks from below; parameters in between. */
static void test_frozen(void **state) {
    TrialJob job;
    for (TrialSpec spec = {.micro_batch = MICRO}; trial_job(spec.job, &job); spec.job++) {
        spec.optimizer = spec.job % 4;
        spec.freeze[0] = spec.job % 2 ? "embed" : "*";
        spec.freeze[1] = spec.job % 2 ? "layer.[0-2]" : "!layer.[24].attn.out";
        compare(&spec, PROBLEM_AUTO, test_kernels());
    }
}

/* With the kernels that define what each computes, it is a definition of the whole step. */
static void test_reference_kernels(void **state) {
    if (test_on_cuda()) skip();
    compare(&(TrialSpec){.micro_batch = MICRO}, PROBLEM_AUTO, "ref");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families_and_heads),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_reference_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
