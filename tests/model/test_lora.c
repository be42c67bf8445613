/* Adapters against PEFT in fp32: gradients before and after twenty steps, the losses and gradient norms of
 * these steps, the adapters that result and the merged weights. */
#include "model/golden.h"

#include <unistd.h>

#include "checkpoint/adapter.h"

/* Relative: losses and norms, tensors to their norm. */
#define STEP_LIMIT   1e-5
#define TENSOR_LIMIT 1e-5
#define MERGE_LIMIT  1e-6 /* absolute */

enum { STEPS = 20, CASE_STEPS = 10, MICROS = 2 };

typedef struct Tuning {
    char dir[GOLDEN_PATH];
    json_t *facts; /* lora.json */
    Golden golden;
} Tuning;

static void path_of(char path[GOLDEN_PATH], const Tuning *tuning, const char *name) {
    assert_true(snprintf(path, GOLDEN_PATH, "%s/%s", tuning->dir, name) < GOLDEN_PATH);
}

/* Gives the case's model the adapters of "start". */
static void adapt(Tuning *tuning) {
    char path[GOLDEN_PATH];
    const char *target[16];
    CLEANUP(json_decrefp) json_t *config = NULL;
    size_t i;
    json_t *name;
    path_of(path, tuning, "start/adapter_config.json");
    assert_ok(json_read_file(path, &config));
    const json_t *targets = json_object_get(config, "target_modules");
    json_array_foreach((json_t *)(uintptr_t)targets, i, name) target[i] = json_string_value(name);
    LoraConfig lora = {.rank = (int)json_int_at(config, "r"),
                       .alpha = (float)json_number_at(config, "lora_alpha"),
                       .rslora = json_is_true(json_object_get(config, "use_rslora"))};
    assert_ok(lora_adapt(tuning->golden.model, lora, target, (int)json_array_size(targets), NULL, 0));
}

static void load(const Tuning *tuning, const char *name, Store *store) {
    char path[GOLDEN_PATH];
    LoadReport report = {0};
    path_of(path, tuning, name);
    assert_ok(hf_weights_load(path, store, tuning->golden.runner->stream, &report));
    assert_int_equal(report.missing_count + report.unexpected_count, 0);
    load_report_done(&report);
}

static void tuning_init(Tuning *tuning, const char *name, const char *kernels, Recompute recompute) {
    char path[GOLDEN_PATH];
    Golden *golden = &tuning->golden;
    *tuning = (Tuning){0};
    assert_true(snprintf(tuning->dir, GOLDEN_PATH, WEFT_TEST_DIR "/golden/lora/%s", name) < GOLDEN_PATH);
    path_of(path, tuning, "lora.json");
    assert_ok(json_read_file(path, &tuning->facts));
    golden_open(golden, json_string_value(json_object_get(tuning->facts, "case")), 1);
    json_t *train = json_object_get(golden->facts, "train");
    json_object_set_new(train, "weight_decay", json_real(0));
    json_object_set_new(train, "clip", json_real(0));
    adapt(tuning);
    golden_start(golden, kernels, recompute, &(RunnerSpec){.micros = MICROS});
    load(tuning, "start", golden->runner->params);
    assert_ok(runner_publish(golden->runner));
}

static void tuning_done(Tuning *tuning) {
    golden_done(&tuning->golden);
    json_decref(tuning->facts);
}

/* What is trained, compared with a directory; returns the largest difference relative to a tensor's norm. */
static double compare(const Tuning *tuning, const Store *found, const char *name) {
    const Golden *golden = &tuning->golden;
    CLEANUP(store_freep) Store *expected = NULL;
    double most = 0;
    int compared = 0;
    assert_ok(store_new(&expected, golden->model, golden->device, MEM_SCRATCH));
    load(tuning, name, expected);
    for (ModelParam param = {0}; model_param_next(golden->model, &param);) {
        if (param.desc->frozen) continue;
        const ParamSlot *slot = &found->unit[param.ref.unit].slot[param.ref.slot];
        const float *a = (float *)found->flat[param.ref.unit].data + slot->offset,
                    *b = (float *)expected->flat[param.ref.unit].data + slot->offset;
        double norm = 0, apart = 0;
        for (int64_t i = 0; i < slot->count; i++) {
            norm += (double)b[i] * b[i];
            apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        }
        if (!(sqrt(apart) <= TENSOR_LIMIT * sqrt(norm)))
            fail_msg("%s %s: %s is %g of its norm off", tuning->dir, name, param.desc->name,
                     sqrt(apart / norm));
        most = fmax(most, sqrt(apart / norm));
        compared++;
    }
    assert_true(compared > 0);
    return most;
}

static double relative(double found, double expected) {
    return fabs(found - expected) / fabs(expected);
}

static double check_gradients(const Tuning *tuning, const char *name, const char *loss) {
    StepResult result;
    HostBatch *batch = golden_batch(&tuning->golden, "");
    assert_ok(runner_gradients(tuning->golden.runner, &batch, 1, 1, &result));
    host_batch_free(batch);
    assert_true(relative(result.loss, golden_number(tuning->facts, loss)) <= STEP_LIMIT);
    return compare(tuning, tuning->golden.runner->grads, name);
}

static void check_steps(const Tuning *tuning) {
    const json_t *losses = json_object_get(tuning->facts, "losses"),
                 *norms = json_object_get(tuning->facts, "norms");
    double lr = golden_number(tuning->facts, "lr");
    for (int step = 0; step < STEPS; step++) {
        HostBatch *micro[MICROS];
        StepResult result;
        for (int k = 0; k < MICROS; k++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "step.%d.%d.", step % CASE_STEPS + 1, k);
            micro[k] = golden_batch(&tuning->golden, prefix);
        }
        assert_ok(runner_step(tuning->golden.runner, micro, MICROS, &(StepSpec){.number = step + 1, .lr = lr},
                              &result));
        double loss = json_number_value(json_array_get(losses, (size_t)step)),
               norm = json_number_value(json_array_get(norms, (size_t)step));
        if (!(relative(result.loss, loss) <= STEP_LIMIT) || !(relative(result.grad_norm, norm) <= STEP_LIMIT))
            fail_msg("%s: step %d: loss %.9g and norm %.9g; PEFT has %.9g and %.9g", tuning->dir, step + 1,
                     result.loss, result.grad_norm, loss, norm);
        for (int k = 0; k < MICROS; k++) host_batch_free(micro[k]);
    }
}

/* Merging PEFT's adapter into the case's weights gives what PEFT merges. */
static void check_merged(const Tuning *tuning) {
    char path[GOLDEN_PATH];
    const Golden *golden = &tuning->golden;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(store_freep) Store *found = NULL, *expected = NULL;
    path_of(path, tuning, "merged");
    if (access(path, F_OK)) return;
    ModelConfig config = golden->model->config;
    config.lora = (LoraConfig){0};
    assert_ok(model_new(&model, &config));
    assert_ok(store_new(&found, model, golden->device, MEM_SCRATCH));
    assert_ok(store_new(&expected, model, golden->device, MEM_SCRATCH));
    golden_load_store(golden->dir, found, golden->runner->stream);
    golden_load_store(path, expected, golden->runner->stream);
    path_of(path, tuning, "final");
    const char *const dirs[] = {path};
    assert_ok(adapters_merge(dirs, 1, found, NULL, golden->runner->stream));
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        const ParamSlot *slot = &found->unit[param.ref.unit].slot[param.ref.slot];
        const float *a = (float *)found->flat[param.ref.unit].data + slot->offset,
                    *b = (float *)expected->flat[param.ref.unit].data + slot->offset;
        for (int64_t k = 0; k < param_count(param.desc); k++)
            if (!(fabsf(a[k] - b[k]) <= MERGE_LIMIT))
                fail_msg("%s: %s: %.9g, not %.9g", path, param.desc->name, (double)a[k], (double)b[k]);
    }
}

static void test_peft(void **state) {
    (void)state;
    static const char *const cases[] = {"gpt2", "llama", "llama-q-v", "qwen3", "mixtral", "bert-classify"};
    static const char *const backends[] = {"ref", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 2; k++) {
            Tuning tuning;
            const char *kernels = backends[k] ? backends[k] : test_kernels();
            tuning_init(&tuning, cases[i], kernels, (Recompute)((i + (size_t)k) % 3));
            double first = check_gradients(&tuning, "grads", "loss");
            check_steps(&tuning);
            double last = check_gradients(&tuning, "final-grads", "final_loss");
            double result = compare(&tuning, tuning.golden.runner->params, "final");
            print_message("%-14s %-4s gradients %.1e, after %d steps %.1e; adapters %.1e\n", cases[i],
                          kernels, first, STEPS, last, result);
            check_merged(&tuning);
            tuning_done(&tuning);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peft)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
