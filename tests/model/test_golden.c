/* Tests against PyTorch and transformers in fp32: logits, losses, all gradients and optimizer steps, for
 * each golden case and kernel backend. Prints the largest differences. */
#include "model/golden.h"

#include "base/fs.h"
#include "optim/lr.h"
#include "train/runner_internal.h"

/* Tolerances. */
#define LOGIT_LIMIT    1e-4 /* absolute */
#define GRADIENT_LIMIT 1e-3 /* relative to the norm, for each parameter */
#define LOSS_LIMIT     1e-4 /* relative, over all steps */

typedef struct Spec {
    const char *name, *kernels;
    Recompute recompute;
    int threads;
} Spec;

static double worst(double so_far, double found) {
    return found > so_far || isnan(found) ? found : so_far;
}

static double max_difference(const float *a, const float *b, int64_t count) {
    double max_error = 0;
    for (int64_t i = 0; i < count; i++) max_error = worst(max_error, fabs((double)a[i] - (double)b[i]));
    return max_error;
}

static double norm(const float *a, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += (double)a[i] * a[i];
    return sqrt(total);
}

static double distance(const float *a, const float *b, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(total);
}

/* Mixtures leave padding out, whose logits mean nothing. */
static void skip_padding(const Golden *golden, const HostBatch *batch, float *found, const float *expected) {
    int64_t V = golden->model->config.vocab;
    for (int64_t b = 0; b < batch->B && golden->model->config.experts; b++) {
        int64_t from = (b * batch->T + batch->lens[b]) * V, end = (b + 1) * batch->T * V;
        for (int64_t i = from; i < end; i++) found[i] = expected[i];
    }
}

static double check_logits(Golden *golden, const HostBatch *batch) {
    double max_error = 0;
    for (HeadId head = 0; head < HEAD_COUNT; head++) {
        char name[32];
        int64_t count = 0;
        snprintf(name, sizeof name, "logits.%s", head_name(head));
        const float *expected = golden_array(golden, "", name, &count);
        assert_int_equal(expected != NULL, (golden->model->config.outputs_mask >> head & 1) != 0);
        if (!expected) continue;
        CLEANUP(mem_freep) float *found = NULL;
        assert_ok(mem_new((size_t)count, sizeof *found, &found));
        assert_ok(runner_logits(golden->runner, batch, head, found));
        skip_padding(golden, batch, found, expected);
        max_error = worst(max_error, max_difference(found, expected, count));
    }
    assert_true(max_error <= LOGIT_LIMIT);
    return max_error;
}

static double check_eval_loss(Golden *golden, const HostBatch *batch) {
    double sums[LOSS_COUNT] = {0};
    int64_t counts[LOSS_COUNT] = {0};
    HostBatch *const batches[] = {(HostBatch *)batch};
    assert_ok(runner_eval(golden->runner, batches, 1, sums, counts, NULL));
    double expected = golden_number(golden->facts, "loss");
    double relative = fabs(loss_objective(sums, counts) - expected) / expected;
    assert_true(relative <= LOSS_LIMIT);
    return relative;
}

/* Returns the relative difference of a parameter in two stores. Compares q, k and v separately, because
 * PyTorch may store them as separate parameters. A gradient that is zero up to rounding (the key bias does
 * not affect attention) is compared relative to the norm of all gradients, `total`. */
static double compare_slot(const ParamSlot *slot, const float *found, const float *expected, double total) {
    int parts = strstr(slot->desc.name, "qkv") ? 3 : 1;
    int64_t count = slot->count / parts;
    double max_error = 0;
    for (int i = 0; i < parts; i++) {
        double size = norm(expected + i * count, count),
               apart = distance(found + i * count, expected + i * count, count);
        max_error = worst(max_error, apart / (size > 1e-5 * total ? size : total));
    }
    return max_error;
}

/* Returns the largest relative difference between two stores, and the name of its parameter. */
static double compare_stores(const Store *found, const Store *expected, double total, char *ret_name) {
    double max_error = -1;
    for (int i = 0; i < found->model->units; i++)
        for (size_t j = 0; j < found->unit[i].count; j++) {
            const ParamSlot *slot = &found->unit[i].slot[j];
            double apart = compare_slot(slot, (float *)found->flat[i].data + slot->offset,
                                        (float *)expected->flat[i].data + slot->offset, total);
            if (apart > max_error || isnan(apart)) snprintf(ret_name, PARAM_NAME, "%s", slot->desc.name);
            max_error = worst(max_error, apart);
        }
    return max_error;
}

static Store *load_store(Golden *golden, const char *folder) {
    char path[GOLDEN_PATH];
    golden_path(path, golden->dir, folder);
    if (!path_is_dir(path)) return NULL;
    Store *store = NULL;
    assert_ok(store_new(&store, golden->model, golden->device, MEM_SCRATCH));
    assert_ok(store_zero(store, golden->runner->stream));
    golden_load_store(path, store, golden->runner->stream);
    return store;
}

static double check_gradients(Golden *golden, HostBatch *batch, char *ret_name) {
    CLEANUP(store_freep) Store *expected = load_store(golden, "grads");
    StepResult result;
    RunnerSpec *spec = &golden->runner->spec, kept = *spec;
    assert_non_null(expected);
    spec->balance = BALANCE_NONE; /* these are the gradients of the loss alone */
    spec->z_coef = 0;
    assert_ok(runner_gradients(golden->runner, &batch, 1, 1, &result));
    *spec = kept;
    assert_true(fabs(result.loss - golden_number(golden->facts, "loss")) <= LOSS_LIMIT * result.loss);
    double max_error = compare_stores(golden->runner->grads, expected, result.grad_norm, ret_name);
    if (!(max_error <= GRADIENT_LIMIT)) fail_msg("gradient of %s: relative error %g", ret_name, max_error);
    return max_error;
}

/* A mixture: how many tokens each expert had in a step, exactly, and the losses that balance them. */
static void check_experts(const Golden *golden, size_t step, const StepResult *result) {
    const json_t *train = json_object_get(golden->facts, "train");
    const json_t *counts = json_array_get(json_object_get(train, "expert_counts"), step);
    const ModelConfig *c = &golden->model->config;
    size_t sparse = 0;
    assert_int_equal(counts != NULL, c->experts > 0);
    if (!counts) return;
    for (int64_t layer = 0; layer < c->layers; layer++) {
        if (!config_sparse(c, layer)) continue;
        const json_t *expected = json_array_get(counts, sparse++);
        assert_int_equal(json_array_size(expected), c->experts);
        for (int64_t e = 0; e < c->experts; e++)
            assert_int_equal(golden->runner->balance.now[layer * c->experts + e],
                             json_integer_value(json_array_get(expected, (size_t)e)));
    }
    assert_int_equal(json_array_size(counts), sparse);
    const json_t *aux = json_object_get(train, "aux"), *z = json_object_get(train, "z");
    if (!aux) return;
    assert_true(fabs(result->experts.balance / json_number_value(json_array_get(aux, step)) - 1) < 1e-5);
    assert_true(fabs(result->experts.z / json_number_value(json_array_get(z, step)) - 1) < 1e-4);
}

/* Each step has two micro-batches with different loss counts. */
static double check_steps(Golden *golden) {
    const json_t *train = json_object_get(golden->facts, "train");
    const json_t *losses = json_object_get(train, "losses"), *norms = json_object_get(train, "grad_norms");
    const json_t *rates = json_object_get(train, "lr");
    int64_t steps = (int64_t)golden_number(train, "steps");
    LrSchedule schedule = {.kind = LR_LINEAR,
                           .peak = golden_number(train, "peak_lr"),
                           .warmup = (int64_t)golden_number(train, "warmup"),
                           .steps = steps};
    double max_error = 0;
    for (int64_t step = 1; step <= steps; step++) {
        HostBatch *micros[2];
        for (int k = 0; k < 2; k++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "step.%d.%d.", (int)step, k);
            micros[k] = golden_batch(golden, prefix);
        }
        size_t at = (size_t)step - 1;
        double lr = lr_at(&schedule, step), expected = json_number_value(json_array_get(losses, at));
        assert_true(fabs(lr - json_number_value(json_array_get(rates, at))) < 1e-12);
        StepResult result;
        assert_ok(runner_step(golden->runner, micros, 2, &(StepSpec){.number = step, .lr = lr}, &result));
        double relative = fabs(result.loss - expected) / expected;
        double grad_norm = json_number_value(json_array_get(norms, at));
        if (!(relative <= LOSS_LIMIT))
            fail_msg("step %d: loss %.9g; expected %.9g", (int)step, result.loss, expected);
        if (!(fabs(result.grad_norm - grad_norm) <= 1e-3 * grad_norm))
            fail_msg("step %d: gradient norm %.9g; expected %.9g", (int)step, result.grad_norm, grad_norm);
        max_error = worst(max_error, relative);
        check_experts(golden, at, &result);
        for (int k = 0; k < 2; k++) host_batch_free(micros[k]);
    }
    return max_error;
}

/* Compares the weights after the last step, if the case includes them. Such cases use strong weight decay,
 * which exposes parameters that are decayed but should not be. qkv biases are excluded: the gradient of the
 * key bias is only rounding error, which Adam scales up to full steps. */
static double check_final(Golden *golden, char *ret_name) {
    CLEANUP(store_freep) Store *expected = load_store(golden, "final");
    ret_name[0] = 0;
    if (!expected) return 0;
    const Store *params = golden->runner->params;
    assert_ok(stream_sync(golden->runner->stream));
    for (int i = 0; i < params->model->units; i++)
        for (size_t j = 0; j < params->unit[i].count; j++) {
            const ParamSlot *slot = &params->unit[i].slot[j];
            if (strstr(slot->desc.name, "qkv.bias"))
                memcpy((float *)expected->flat[i].data + slot->offset,
                       (float *)params->flat[i].data + slot->offset, (size_t)slot->count * sizeof(float));
        }
    double max_error = compare_stores(params, expected, 1, ret_name);
    if (!(max_error <= 1e-4)) fail_msg("%s after the last step: relative error %g", ret_name, max_error);
    return max_error;
}

static void test_case(void **state) {
    const Spec *spec = *state;
    Golden golden;
    golden_init(&golden, spec->name, spec->kernels, spec->recompute, spec->threads);
    HostBatch *batch = golden_batch(&golden, "");
    char gradient_name[PARAM_NAME], final_name[PARAM_NAME];
    double logits = check_logits(&golden, batch), loss = check_eval_loss(&golden, batch);
    double gradient = check_gradients(&golden, batch, gradient_name);
    double steps = check_steps(&golden), final = check_final(&golden, final_name);
    print_message("%-20s %s: logits %.1e  loss %.1e  gradients %.1e (%s)  steps %.1e", spec->name,
                  spec->kernels, logits, loss, gradient, gradient_name, steps);
    if (final_name[0]) print_message("  final weights %.1e (%s)", final, final_name);
    print_message("\n");
    host_batch_free(batch);
    golden_done(&golden);
}

/* The encoder without output heads: hidden states of all positions, and the pooled first position. */
/* Forward through the last layer, without dropout: its output (B,T,C), valid until the next call. */
static Tensor hidden_of(Runner *runner, HostBatch *batch) {
    Round round = {.micros = &batch, .count = 1};
    Chunk *chunk = &runner->chunk[0];
    MicroBuffers *buffer_set;
    assert_ok(micro_buffers_open(runner, 0, 0, &buffer_set));
    buffer_set->used = false;
    assert_ok(host_batch_upload(batch, runner->stream, buffer_set->ids, 0, &buffer_set->data));
    assert_ok(runner_forward(runner, &round, chunk, buffer_set, chunk->count - 1));
    return runner_output(runner, chunk, buffer_set, runner_shape(runner, batch->B, batch->T, false),
                         chunk->count - 2);
}

static void test_bare(void **state) {
    const Spec *spec = *state;
    Golden golden;
    golden_init(&golden, spec->name, spec->kernels, spec->recompute, spec->threads);
    assert_true(golden.model->config.pooler);
    HostBatch *batch = golden_batch(&golden, "");
    int64_t C = golden.model->config.hidden, count = 0, pooled_count = 0;
    Tensor hidden, weight, bias;
    const ParamDesc *desc;
    hidden = hidden_of(golden.runner, batch);
    assert_ok(stream_sync(golden.runner->stream));
    const float *expected = golden_array(&golden, "", "hidden", &count);
    assert_int_equal(tensor_count(hidden), count);
    double apart = max_difference(tensor_f32(hidden), expected, count), pooled_apart = 0;
    assert_true(store_find(golden.runner->params, "head.pooler.weight", &desc, &weight));
    assert_true(store_find(golden.runner->params, "head.pooler.bias", &desc, &bias));
    const float *pooled = golden_array(&golden, "", "pooled", &pooled_count);
    CLEANUP(dev_free) Buffer row = {0};
    assert_ok(dev_alloc(golden.device, MEM_SCRATCH, (size_t)C * sizeof(float), &row));
    for (int64_t b = 0; b < golden.B; b++) {
        Tensor first = tensor_2d(tensor_f32(hidden) + b * golden.T * C, DT_F32, 1, C);
        assert_ok(linear_forward(&golden.runner->exec, tensor_2d(row.data, DT_F32, 1, C), TENSOR_NONE, first,
                                 weight, bias, ACT_TANH));
        assert_ok(stream_sync(golden.runner->stream));
        pooled_apart = worst(pooled_apart, max_difference(row.data, pooled + b * C, C));
    }
    print_message("%-20s %s: hidden %.1e  pooled %.1e\n", spec->name, spec->kernels, apart, pooled_apart);
    assert_true(apart <= LOGIT_LIMIT && pooled_apart <= LOGIT_LIMIT);
    host_batch_free(batch);
    dev_free(&row);
    golden_done(&golden);
}

static ModelConfig tiny_config(const json_t *from) {
    ModelConfig config;
    assert_ok(config_preset("gpt2", &config));
    config.layers = (int64_t)golden_number(from, "n_layer");
    config.heads = (int64_t)golden_number(from, "n_head");
    config.hidden = (int64_t)golden_number(from, "n_embd");
    config.inner = (int64_t)golden_number(from, "n_inner");
    config.positions = (int64_t)golden_number(from, "n_ctx");
    config.vocab = (int64_t)golden_number(from, "vocab_size");
    config.norm_eps = (float)golden_number(from, "layer_norm_epsilon");
    config.bos_token = config.eos_token = -1;
    return config;
}

static double tiny_case(const Model *model, Device *device, const char *kernels, const char *dir,
                        const json_t *one) {
    const json_t *ids = json_object_get(one, "input_ids"), *logits = json_object_get(one, "logits");
    int64_t T = (int64_t)json_array_size(ids), count = (int64_t)json_array_size(logits);
    RunnerSpec spec = {.micro_batch = 1, .seq = T};
    assert_ok(kernels_find(kernels, &spec.table));
    CLEANUP(runner_freep) Runner *runner = NULL;
    assert_ok(runner_new(&runner, model, device, &spec));
    golden_load_store(dir, runner->params, runner->stream);
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, 1, T));
    batch->lens[0] = (int32_t)T;
    for (int64_t t = 0; t < T; t++) {
        batch->tokens[t] = (int32_t)json_integer_value(json_array_get(ids, (size_t)t));
        batch->labels[t] = -100;
    }
    assert_int_equal(count, T * model->config.vocab);
    CLEANUP(mem_freep) float *found = NULL;
    assert_ok(mem_new((size_t)count, sizeof *found, &found));
    assert_ok(runner_logits(runner, batch, HEAD_LM, found));
    double max_error = 0;
    for (int64_t i = 0; i < count; i++)
        max_error =
            worst(max_error, fabs(json_number_value(json_array_get(logits, (size_t)i)) - (double)found[i]));
    return max_error;
}

/* A tiny GPT-2 against logits from ONNX Runtime. Skipped if the files, which are not in the repository, are
 * absent. */
static void test_tiny_gpt2(void **state) {
    const Spec *spec = *state;
    const char *dir = WEFT_SOURCE_DIR "/../shared/data/reference/tiny-gpt2";
    char path[GOLDEN_PATH];
    golden_path(path, dir, "expected_logits.json");
    if (!path_exists(path)) skip();
    CLEANUP(json_decrefp) json_t *facts = NULL;
    assert_ok(json_read_file(path, &facts));
    ModelConfig config = tiny_config(json_object_get(facts, "config"));
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(test_device_freep) Device *device = NULL;
    assert_ok(model_new(&model, &config));
    test_device_new(&device, spec->threads);
    const json_t *cases = json_object_get(facts, "cases");
    double max_error = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        max_error = worst(max_error, tiny_case(model, device, spec->kernels, dir, json_array_get(cases, i)));
    print_message("%-20s %s: logits %.1e\n", "tiny-gpt2", spec->kernels, max_error);
    assert_true(json_array_size(cases) > 0);
    assert_true(max_error <= LOGIT_LIMIT);
}

int main(void) {
    static const char *const names[] = {
        GOLDEN_STEPS,       "gpt2-layer-scale", "gpt2-unscaled-relu", "llama-yarn",   "llama-longrope",
        "mistral-longrope", "qwen2-linear",     "qwen2-dynamic",      "qwen3-llama3", "olmoe",
        "olmoe-bias",       "bert-bare",        "tiny-gpt2"};
    const char *const backends[] = {test_on_cuda() ? "cuda" : "ref", test_kernels()};
    enum { NAMES = sizeof names / sizeof *names, EXTRA = 4, COUNT = 2 * NAMES + EXTRA };
    Spec spec[COUNT];
    struct CMUnitTest tests[COUNT];
    for (int i = 0; i < 2 * NAMES; i++)
        spec[i] = (Spec){.name = names[i % NAMES], .kernels = backends[i / NAMES], .threads = 1};
    /* Also with several threads and with recompute. */
    spec[2 * NAMES] = (Spec){"gpt2", test_kernels(), RECOMPUTE_BLOCK, 2};
    spec[2 * NAMES + 1] = (Spec){"bert-pretrain-padded", test_kernels(), RECOMPUTE_SELECTIVE, 1};
    spec[2 * NAMES + 2] = (Spec){"llama-3", test_kernels(), RECOMPUTE_SELECTIVE, 2};
    spec[2 * NAMES + 3] = (Spec){"qwen2-moe", test_kernels(), RECOMPUTE_BLOCK, 2};
    for (int i = 0; i < COUNT; i++) {
        CMUnitTestFunction function = test_case;
        if (!strcmp(spec[i].name, "bert-bare")) function = test_bare;
        if (!strcmp(spec[i].name, "tiny-gpt2")) function = test_tiny_gpt2;
        tests[i] =
            (struct CMUnitTest){.name = spec[i].name, .test_func = function, .initial_state = &spec[i]};
    }
    return _cmocka_run_group_tests("golden", tests, COUNT, NULL, NULL);
}
