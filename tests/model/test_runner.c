/* Tests a complete model in its runner, with dropout: results must not depend on recompute or on the division
 * into micro-batches, and separate documents in a sequence must not affect one another. Also tests memory use
 * and 16-bit logits, and the order of work on a device with concurrent streams. */
#include "model/rig.h"
#include "stores.h"
#include "train/runner.h"

enum { BATCH = 4, SEQ = 6 };

/* Returns sequences [first, first + count) of a fixed batch of four. */
static HostBatch *batch_of(const ModelConfig *config, int64_t first, int64_t count) {
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, count, SEQ));
    bool bert = !config_causal(config);
    batch->task = bert ? TASK_MLM : TASK_LM;
    batch->has_types = batch->padded = bert;
    for (int64_t b = 0; b < count; b++) {
        int64_t global = first + b;
        batch->lens[b] = (int32_t)(bert ? SEQ - global : SEQ); /* micro-batches have different token counts */
        batch->nsp[b] = (int32_t)(global % 2);
        for (int64_t t = 0; t < SEQ; t++) {
            int32_t token = (int32_t)rng_below(rng_key(2, "token", 0), (uint64_t)(global * SEQ + t), 17);
            batch->tokens[b * SEQ + t] = token;
            batch->types[b * SEQ + t] = t > 1;
            batch->labels[b * SEQ + t] = (token + 5) % 17;
            if (!bert || t % 2 || t >= batch->lens[b]) continue;
            batch->picks[batch->pick_count] = (int32_t)(b * SEQ + t);
            batch->pick_labels[batch->pick_count++] = (token + 3) % 17;
        }
    }
    batch->loss_count[LOSS_TOKEN] = bert ? batch->pick_count : count * SEQ;
    batch->loss_count[LOSS_NSP] = bert ? count : 0;
    return batch;
}

static bool say_yes(const Device *device) {
    (void)device;
    return true;
}

/* A device that executes at once what it records: the first replay has nothing left to do. In vain: the
 * end of a recording fails. */
static Status begin_recording(Stream *stream, bool *ret_begun) {
    (void)stream;
    *ret_begun = true;
    return OK;
}
static Status end_recording(Stream *stream, void **ret_recorded) {
    *ret_recorded = stream;
    return OK;
}
static Status fail_recording(Stream *stream, void **ret_recorded) {
    (void)stream, (void)ret_recorded;
    return FAILED("cannot be recorded");
}
static Status replay_nothing(Stream *stream, void *recorded) {
    assert_ptr_equal(stream, recorded);
    return OK;
}
static void free_nothing(void *recorded) {
    (void)recorded;
}

typedef enum { RECORDS_NOT, RECORDS, RECORDS_IN_VAIN } Records;

static void set_records(DeviceOps *ops, Records records) {
    if (records == RECORDS_NOT) return;
    ops->record_begin = begin_recording;
    ops->record_end = records == RECORDS ? end_recording : fail_recording;
    ops->replay = replay_nothing;
    ops->recorded_free = free_nothing;
}

typedef struct Outcome {
    double loss, grad_norm;             /* of the last step */
    double first_loss, first_grad_norm; /* of the first */
    float *weights;
    int64_t count;
    size_t activations, total, after_first;
} Outcome;

typedef struct Setup {
    const Family *family;
    const char *kernels;
    DType dtype, logits;
    Recompute recompute;
    int64_t micro_batch, mlp_rows;
    bool overlaps;   /* as on a device with concurrent streams */
    bool no_dropout; /* of rows */
    bool fp8;        /* with dtype bf16 */
    Records records;
    int threads; /* 0: one */
    bool wide;   /* units are large enough for threads */
    bool lags;   /* see runner_settle */
    bool syncs;  /* with outer steps */
    bool probes; /* runs five steps and measures micro_norm in the fourth */
} Setup;

/* Trains a few steps from the same initial weights and returns losses, final weights and memory use. */
static Outcome outcome_with(Setup setup) {
    const Family *family = setup.family;
    int64_t micro_batch = setup.micro_batch;
    ModelConfig config = rig_config(family, rig_heads(family) | (family->outputs & OUTPUT_NSP));
    if (setup.wide) config.hidden = 64, config.inner = 256, config.head_width = 0, config.vocab = 900;
    if (setup.no_dropout) config.dropout_hidden = 0;
    DeviceOps ops;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(runner_freep) Runner *runner = NULL;
    assert_ok(model_new(&model, &config));
    assert_ok(device_new_cpu(&device, setup.threads ? setup.threads : 1));
    ops = *device->ops;
    ops.overlaps = say_yes;
    if (setup.overlaps) set_records(&ops, setup.records);
    if (setup.overlaps) device->ops = &ops;
    RunnerSpec spec = {.micro_batch = micro_batch,
                       .seq = SEQ,
                       .train = true,
                       .recompute = setup.recompute,
                       .mlp_rows = setup.mlp_rows,
                       .dtype = setup.dtype,
                       .fp8 = setup.fp8,
                       .fp8_scaling = FP8_DELAYED,
                       .logits = setup.logits,
                       .noise = setup.probes,
                       .outer = {.every = setup.syncs, .lr = 0.7, .momentum = 0.9},
                       .micros = (int)(BATCH / micro_batch),
                       .optim = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1},
                       .seed = 9};
    assert_ok(kernels_find(setup.kernels, &spec.table));
    assert_ok(runner_new(&runner, model, device, &spec));
    rig_randomize(runner->params);
    assert_ok(runner_publish(runner));
    HostBatch *micro[BATCH];
    int count = (int)(BATCH / micro_batch);
    for (int i = 0; i < count; i++) micro[i] = batch_of(&config, i * micro_batch, micro_batch);
    Outcome outcome = {0};
    runner->lags = setup.lags;
    for (int step = 1; step <= (setup.probes ? 5 : 3); step++) {
        StepResult result;
        runner->probe = setup.probes && step == 4;
        assert_ok(runner_step(runner, micro, count, &(StepSpec){.number = step, .lr = 1e-3}, &result));
        assert_true(isnan(result.micro_norm) == !(runner->probe && count > 1));
        outcome.loss = result.loss, outcome.grad_norm = result.grad_norm;
        if (step > 1) continue;
        outcome.first_loss = result.loss, outcome.first_grad_norm = result.grad_norm;
        outcome.after_first = device->total.current;
    }
    assert_true((runner->overlap.chain != NULL) == setup.overlaps);
    bool alike = count == 1 || config_causal(&config); /* else they have different numbers of masked tokens */
    assert_true((runner->replay.recording != NULL) == (setup.overlaps && alike && setup.records == RECORDS));
    assert_true(runner->replay.refused == (setup.overlaps && alike && setup.records != RECORDS));
    for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    assert_ok(runner_settle(runner));
    outcome.activations = device->mem[MEM_ACTIVATIONS].peak;
    outcome.total = device->total.current;
    for (int i = 0; i < model->units; i++) outcome.count += runner->params->unit[i].numel;
    assert_ok(mem_new((size_t)outcome.count, sizeof(float), &outcome.weights));
    float *to = outcome.weights;
    for (int i = 0; i < model->units; i++) {
        if (!runner->params->flat[i].bytes) continue; /* all parameters of the block are in other units */
        CLEANUP(mem_freep) float *values = unit_values(runner->params, i);
        memcpy(to, values, (size_t)runner->params->count[i] * sizeof *values);
        to += runner->params->unit[i].numel;
    }
    return outcome;
}

static Outcome outcome_in(DType dtype, DType logits, const Family *family, const char *kernels,
                          Recompute recompute, int64_t micro_batch) {
    return outcome_with((Setup){.family = family,
                                .kernels = kernels,
                                .dtype = dtype,
                                .logits = logits,
                                .recompute = recompute,
                                .micro_batch = micro_batch});
}

static Outcome outcome_of(const Family *family, const char *kernels, Recompute recompute,
                          int64_t micro_batch) {
    return outcome_in(DT_F32, DT_F32, family, kernels, recompute, micro_batch);
}

static const char *const backends[] = {"ref", "cpu"};

/* Recompute changes memory use but not a single bit of the weights. */
static void test_recompute(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 2; k++) {
            Outcome by_mode[3];
            for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_BLOCK; mode++)
                by_mode[mode] = outcome_of(*family, backends[k], (Recompute)mode, BATCH);
            for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_BLOCK; mode++) {
                assert_true(by_mode[mode].loss == by_mode[0].loss);
                assert_memory_equal(by_mode[mode].weights, by_mode[0].weights,
                                    (size_t)by_mode[0].count * sizeof(float));
                assert_true(by_mode[mode].activations < by_mode[mode - 1].activations);
            }
            for (int mode = 0; mode < 3; mode++) free(by_mode[mode].weights);
        }
}

/* MLPs of blocks that are recomputed, in parts of 5 rows, the last of them smaller. Only sums of weight
 * gradients are rounded differently. Mixtures have no parts. */
static void test_mlp_parts(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 2; k++) {
            Setup setup = {.family = *family, .kernels = backends[k], .dtype = DT_F32, .logits = DT_F32};
            setup.recompute = RECOMPUTE_BLOCK, setup.micro_batch = BATCH;
            Outcome whole = outcome_with(setup);
            setup.mlp_rows = 5;
            assert_true(BATCH * SEQ % setup.mlp_rows);
            Outcome parts = outcome_with(setup);
            assert_true(fabs(parts.first_loss - whole.first_loss) <= 1e-6 * whole.first_loss);
            assert_true(fabs(parts.loss - whole.loss) <= 1e-6 * whole.loss);
            assert_true(fabs(parts.grad_norm - whole.grad_norm) <= 1e-5 * whole.grad_norm);
            ModelConfig config;
            (*family)->defaults(&config);
            assert_true(config.experts || parts.activations < whole.activations);
            free(whole.weights);
            free(parts.weights);
        }
}

/* Loss and gradient norm do not depend on the micro-batch size: losses are summed over the whole batch and
 * divided once, and dropout masks are the same. */
static void test_micro_batches(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 2; k++) {
            Outcome whole = outcome_of(*family, backends[k], RECOMPUTE_NONE, BATCH);
            for (int64_t size = 1; size < BATCH; size *= 2) {
                Outcome split = outcome_of(*family, backends[k], RECOMPUTE_NONE, size);
                assert_true(fabs(split.loss - whole.loss) <= 1e-5 * whole.loss);
                assert_true(fabs(split.grad_norm - whole.grad_norm) <= 1e-5 * whole.grad_norm);
                assert_true(split.activations < whole.activations);
                free(split.weights);
            }
            free(whole.weights);
        }
}

/* Concurrent streams must not change a bit, and allocate no memory after the first step. */
static void compare_overlapped(Setup setup) {
    Outcome one = outcome_with(setup);
    setup.overlaps = true;
    Outcome two = outcome_with(setup);
    assert_int_equal(two.total, two.after_first);
    assert_true(two.loss == one.loss && two.grad_norm == one.grad_norm);
    assert_memory_equal(two.weights, one.weights, (size_t)one.count * sizeof(float));
    free(one.weights);
    free(two.weights);
}

/* With concurrent streams, weight gradients follow backward and units are updated in a different order, with
 * the same bits. */
static void test_overlap(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 4; k++) {
            Setup setup = {
                .family = *family, .kernels = "cpu", .micro_batch = BATCH >> k % 2, .no_dropout = k > 1};
            compare_overlapped(setup);
        }
}

/* Neither the number of threads nor an update that continues beside the next step changes a bit. */
static void test_lag(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 4; k++) {
            Setup setup = {.family = *family,
                           .kernels = "cpu",
                           .dtype = k > 1 ? DT_BF16 : DT_F32,
                           .micro_batch = BATCH >> k % 2,
                           .wide = true,
                           .syncs = k % 2};
            Outcome one = outcome_with(setup);
            setup.threads = 5;
            setup.lags = true;
            Outcome two = outcome_with(setup);
            assert_true(two.loss == one.loss && two.grad_norm == one.grad_norm);
            assert_memory_equal(two.weights, one.weights, (size_t)one.count * sizeof(float));
            free(one.weights);
            free(two.weights);
        }
}

/* The third step is recorded, with dropout, in fp8, with several micro-batches and with recompute. A step
 * that cannot be recorded runs normally, with the same bits. */
static void test_recorded(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 16; k++) {
            bool fp8 = k / 4 % 2;
            Setup setup = {.family = *family,
                           .kernels = "cpu",
                           .dtype = fp8 ? DT_BF16 : DT_F32,
                           .fp8 = fp8,
                           .recompute = k > 7 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE,
                           .micro_batch = BATCH >> k % 2,
                           .records = k / 2 % 2 ? RECORDS : RECORDS_IN_VAIN};
            compare_overlapped(setup);
        }
}

/* A replayed step does not report what the step before it measured. */
static void test_replayed_after_probe(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        Outcome outcome = outcome_with((Setup){.family = *family,
                                               .kernels = "cpu",
                                               .micro_batch = BATCH / 2,
                                               .overlaps = true,
                                               .records = RECORDS,
                                               .probes = true});
        free(outcome.weights);
    }
}

/* No memory is allocated after the first step. */
static void test_steps_allocate_no_memory(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 2; k++) {
            Outcome outcome = outcome_of(*family, backends[k], RECOMPUTE_NONE, 2);
            assert_int_equal(outcome.total, outcome.after_first);
            free(outcome.weights);
        }
}

/* 16-bit logits change the loss only by their rounding error. Later steps have other weights. */
static void test_logits(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; k < 2; k++) {
            Outcome wide = outcome_in(DT_BF16, DT_F32, *family, backends[k], RECOMPUTE_NONE, BATCH);
            Outcome narrow = outcome_in(DT_BF16, DT_BF16, *family, backends[k], RECOMPUTE_NONE, BATCH);
            assert_true(narrow.loss != wide.loss);
            assert_true(fabs(narrow.first_loss - wide.first_loss) <= 0x1p-10 * wide.first_loss);
            assert_true(fabs(narrow.first_grad_norm - wide.first_grad_norm) <= 0x1p-7 * wide.first_grad_norm);
            free(wide.weights);
            free(narrow.weights);
        }
}

/* Four documents of a stream in one sequence, or one document per sequence, padded. Each ends with END; one
 * has no other token. */
enum { END = 16, PACKED = 9, DOCUMENTS = 4 };
static const int32_t stream_tokens[PACKED] = {3, 7, END, 5, 1, 2, END, END, 4};
static const int32_t document_at[DOCUMENTS + 1] = {0, 3, 7, 8, PACKED};

static HostBatch *documents_of(bool packed) {
    HostBatch *batch = NULL;
    int64_t count = packed ? 1 : DOCUMENTS;
    assert_ok(host_batch_new(&batch, count, PACKED));
    batch->task = TASK_LM;
    batch->padded = !packed;
    for (int64_t b = 0; b < count; b++) {
        int32_t from = packed ? 0 : document_at[b], length = packed ? PACKED : document_at[b + 1] - from;
        batch->lens[b] = length;
        for (int64_t t = 0; t < PACKED; t++) {
            int32_t at = from + (int32_t)t, token = t < length ? stream_tokens[at] : 0;
            bool counted = t < length && token != END;
            batch->tokens[b * PACKED + t] = token;
            batch->labels[b * PACKED + t] = packed || counted ? (at + 1) % PACKED + 2 : -100;
            batch->loss_count[LOSS_TOKEN] += counted;
        }
    }
    if (packed) host_batch_split(batch, END);
    return batch;
}

static double documents_gradients(Runner *runner, bool packed, float *values) {
    HostBatch *batch = documents_of(packed);
    StepResult result;
    assert_ok(runner_gradients(runner, &batch, 1, 1, &result));
    for (int i = 0; i < runner->model->units; i++) {
        if (!runner->grads->unit[i].numel) continue;
        memcpy(values, runner->grads->flat[i].data, (size_t)runner->grads->unit[i].numel * sizeof *values);
        values += runner->grads->unit[i].numel;
    }
    host_batch_free(batch);
    return result.loss;
}

/* Documents in one sequence give the losses and gradients of the documents by themselves. */
static void test_documents(void **state) {
    for (const Family *const *family = families(); *family; family++)
        for (int k = 0; (*family)->outputs & OUTPUT_LM && k < 2; k++) {
            ModelConfig config = rig_config(*family, OUTPUT_LM);
            config.dropout_embed = config.dropout_attn = config.dropout_hidden = 0;
            CLEANUP(model_freep) Model *model = NULL;
            CLEANUP(device_freep) Device *device = NULL;
            CLEANUP(runner_freep) Runner *runner = NULL;
            CLEANUP(mem_freep) float *packed = NULL, *single = NULL;
            assert_ok(model_new(&model, &config));
            assert_ok(device_new_cpu(&device, 1));
            RunnerSpec spec = {.micro_batch = DOCUMENTS, .seq = PACKED, .train = true, .seed = 9};
            assert_ok(kernels_find(backends[k], &spec.table));
            assert_ok(runner_new(&runner, model, device, &spec));
            rig_randomize(runner->params);
            int64_t count = 0, largest = 0;
            for (int i = 0; i < model->units; i++) count += runner->grads->unit[i].numel;
            assert_ok(mem_new((size_t)count, sizeof(float), &packed));
            assert_ok(mem_new((size_t)count, sizeof(float), &single));
            double loss = documents_gradients(runner, true, packed);
            assert_true(fabs(loss - documents_gradients(runner, false, single)) <= 1e-6 * loss);
            for (int64_t i = 0; i < count; i++)
                if (fabsf(single[i]) > fabsf(single[largest])) largest = i;
            /* GEMMs of few and of many rows add in different orders. */
            for (int64_t i = 0; i < count; i++)
                assert_true(fabsf(packed[i] - single[i]) <= 2e-6f * fabsf(single[largest]));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_mlp_parts),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_lag),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_replayed_after_probe),
        cmocka_unit_test(test_steps_allocate_no_memory),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
