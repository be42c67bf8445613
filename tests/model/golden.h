/* Loads a golden case (tests/golden/README.md): golden.json, its arrays, and its model in a runner. */
#ifndef WEFT_TESTS_MODEL_GOLDEN_H
#define WEFT_TESTS_MODEL_GOLDEN_H

#include <math.h>

#include "device.h"
#include "test.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/head.h"
#include "train/runner.h"

enum { GOLDEN_PATH = 512 };

/* The cases with training steps that layouts of several ranks repeat. */
#define GOLDEN_STEPS                                                                                         \
    "gpt2", "gpt2-untied-padded", "gpt2-documents", "gpt2-both-ways", "bert-pretrain",                       \
        "bert-pretrain-padded", "bert-mlm", "bert-nsp", "bert-span", "bert-classify", "bert-regression",     \
        "bert-regression-3", "bert-multilabel", "llama", "llama-3", "llama-bias", "mistral",                 \
        "mistral-documents", "qwen2", "qwen2-both-ways", "qwen3", "llama-dynamic", "qwen3-yarn", "mixtral",  \
        "mixtral-balance", "qwen2-moe", "qwen3-moe", "qwen3-moe-top-3", "qwen3-moe-balance"

typedef struct Golden {
    char dir[GOLDEN_PATH];
    json_t *facts;    /* golden.json */
    SafeFile *arrays; /* golden.safetensors */
    Device *device;
    Model *model;
    Runner *runner;
    int64_t B, T;
} Golden;

static inline double golden_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("golden.json: '%s' is missing or not a number", key);
    return json_number_value(value);
}

static inline void golden_path(char path[GOLDEN_PATH], const char *dir, const char *name) {
    assert_true(snprintf(path, GOLDEN_PATH, "%s/%s", dir, name) < GOLDEN_PATH);
}

/* Loads weights; fails if a parameter is missing from the file. */
static inline void golden_load_store(const char *dir, Store *store, Stream *stream) {
    LoadReport report = {0};
    assert_ok(hf_weights_load(dir, store, stream, &report));
    if (report.missing_count) fail_msg("%s: no tensor for parameter '%s'", dir, report.missing[0]);
    load_report_done(&report);
}

static inline RunnerSpec golden_spec(const Golden *golden, const char *kernels, Recompute recompute) {
    RunnerSpec spec = {.micro_batch = golden->B, .seq = golden->T, .recompute = recompute, .seed = 1};
    assert_ok(kernels_find(kernels, &spec.table));
    const json_t *train = json_object_get(golden->facts, "train");
    spec.train = train != NULL;
    /* Mixtures: without losses that balance the experts, or with the case's. */
    spec.balance = json_object_get(train, "aux_coef") ? BALANCE_AUX : BALANCE_NONE;
    spec.balance_coef = json_number_or(train, "aux_coef", 0);
    spec.z_coef = json_number_or(train, "z_coef", 0);
    if (train)
        spec.optim = (OptimSpec){.beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = golden_number(train, "eps"),
                                 .weight_decay = golden_number(train, "weight_decay"),
                                 .clip = golden_number(train, "clip")};
    return spec;
}

/* Loads a case without a runner. */
static inline void golden_open(Golden *golden, const char *name, int threads) {
    char path[GOLDEN_PATH];
    *golden = (Golden){0};
    assert_true(snprintf(golden->dir, GOLDEN_PATH, WEFT_TEST_DIR "/golden/cases/%s", name) < GOLDEN_PATH);
    golden_path(path, golden->dir, "golden.json");
    assert_ok(json_read_file(path, &golden->facts));
    golden_path(path, golden->dir, "golden.safetensors");
    assert_ok(safe_open(&golden->arrays, path));
    golden->B = (int64_t)golden_number(golden->facts, "B");
    golden->T = (int64_t)golden_number(golden->facts, "T");
    ModelConfig config;
    assert_ok(hf_config_read(golden->dir, &config));
    assert_ok(model_new(&golden->model, &config));
    test_device_new(&golden->device, threads);
}

/* A runner with the case's weights and the mesh, ZeRO stage, schedule and sequence parallelism of `layout`.
 */
static inline void golden_start(Golden *golden, const char *kernels, Recompute recompute,
                                const RunnerSpec *layout) {
    RunnerSpec spec = golden_spec(golden, kernels, recompute);
    spec.mesh = layout->mesh;
    spec.zero = layout->zero;
    spec.schedule = layout->schedule;
    spec.sequence = layout->sequence;
    spec.micros = layout->micros;
    assert_ok(runner_new(&golden->runner, golden->model, golden->device, &spec));
    golden_load_store(golden->dir, golden->runner->params, golden->runner->stream);
    assert_ok(runner_publish(golden->runner));
}

static inline void golden_init_layout(Golden *golden, const char *name, const char *kernels,
                                      Recompute recompute, int threads, const RunnerSpec *layout) {
    golden_open(golden, name, threads);
    golden_start(golden, kernels, recompute, layout);
}

static inline void golden_init(Golden *golden, const char *name, const char *kernels, Recompute recompute,
                               int threads) {
    golden_init_layout(golden, name, kernels, recompute, threads, &(RunnerSpec){0});
}

static inline void golden_done(Golden *golden) {
    runner_free(golden->runner);
    model_free(golden->model);
    test_device_free(golden->device);
    safe_free(golden->arrays);
    json_decref(golden->facts);
}

/* Returns an array by name, or NULL if the case does not have it. */
static inline const void *golden_array(const Golden *golden, const char *prefix, const char *name,
                                       int64_t *ret_count) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const SafeTensor *tensor = safe_find(golden->arrays, full);
    if (!tensor) return NULL;
    *ret_count = (int64_t)(tensor->bytes / 4); /* all arrays are int32 or fp32 */
    return tensor->data;
}

/* Copies an int32 array of a known length. Returns false if the case does not have it. */
static inline bool golden_copy(const Golden *golden, const char *prefix, const char *name, int32_t *to,
                               int64_t expected) {
    int64_t count;
    const void *data = golden_array(golden, prefix, name, &count);
    if (!data) return false;
    assert_int_equal(count, expected);
    memcpy(to, data, (size_t)count * sizeof *to);
    return true;
}

static inline int64_t count_in_range(const int32_t *values, int64_t count, int32_t low, int32_t high) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) found += values[i] >= low && values[i] < high;
    return found;
}

/* Returns the evaluation batch (prefix "") or a micro-batch of a training step ("step.3.1."). */
static inline HostBatch *golden_batch(const Golden *golden, const char *prefix) {
    int64_t B = golden->B, T = golden->T, count;
    HostBatch *batch = NULL;
    int64_t outputs = config_targets(&golden->model->config);
    assert_ok(host_batch_new_targets(&batch, B, T, outputs));
    assert_true(golden_copy(golden, prefix, "tokens", batch->tokens, B * T));
    batch->has_types = golden_copy(golden, prefix, "types", batch->types, B * T);
    for (int64_t b = 0; b < B; b++) batch->lens[b] = (int32_t)T;
    batch->padded = golden_copy(golden, prefix, "lens", batch->lens, B);
    batch->task = TASK_MLM;
    if (golden_copy(golden, prefix, "labels", batch->labels, B * T)) {
        batch->task = TASK_LM;
        batch->loss_count[LOSS_TOKEN] = count_in_range(batch->labels, B * T, 0, INT32_MAX);
    }
    const int32_t *starts = golden_array(golden, prefix, "starts", &count);
    if (starts) { /* as weft finds them from the tokens; the labels of the end tokens are already ignored */
        host_batch_split(batch, (int32_t)golden->model->config.eos_token);
        assert_int_equal(count, B * T);
        assert_memory_equal(batch->starts, starts, (size_t)count * sizeof *starts);
        assert_int_equal(count_in_range(batch->labels, B * T, 0, INT32_MAX), batch->loss_count[LOSS_TOKEN]);
    }
    const int32_t *picks = golden_array(golden, prefix, "picks", &count);
    if (picks) {
        batch->pick_count = batch->loss_count[LOSS_TOKEN] = count;
        memcpy(batch->picks, picks, (size_t)count * sizeof *picks);
        assert_true(golden_copy(golden, prefix, "pick_labels", batch->pick_labels, count));
    }
    if (golden_copy(golden, prefix, "nsp", batch->nsp, B)) batch->loss_count[LOSS_NSP] = B;
    if (golden_copy(golden, prefix, "span", batch->span, 2 * B)) {
        batch->task = TASK_SPAN;
        batch->loss_count[LOSS_SPAN_START] = count_in_range(batch->span, B, 0, (int32_t)T);
        batch->loss_count[LOSS_SPAN_END] = count_in_range(batch->span + B, B, 0, (int32_t)T);
    }
    if (golden_copy(golden, prefix, "classes", batch->classes, B)) {
        batch->task = TASK_CLASSIFY;
        batch->loss_count[LOSS_CLASSIFY] = B;
    }
    const float *targets = golden_array(golden, prefix, "targets", &count);
    assert_int_equal(targets ? count : 0, B * outputs);
    if (targets) {
        batch->task = TASK_CLASSIFY;
        batch->loss_count[LOSS_CLASSIFY] = count;
        memcpy(batch->targets, targets, (size_t)count * sizeof *targets);
    }
    return batch;
}

#endif
