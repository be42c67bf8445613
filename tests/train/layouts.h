/* A small training job that runs in any layout. run() builds the model and the mesh, trains on synthetic
 * batches that depend only on the job, the step and the sequence's index, and returns the losses, gradient
 * norms and final weights. */
#ifndef WEFT_TESTS_TRAIN_LAYOUTS_H
#define WEFT_TESTS_TRAIN_LAYOUTS_H

#include <math.h>
#include <stddef.h>

#include "ranks.h"
#include "stores.h"

#include "train/runner.h"

enum { SEQ = 8, BATCH = 8, STEPS_LIMIT = 200, VOCAB = 61, LARGE_VOCAB = 1100 };

typedef enum { JOB_GPT2, JOB_BERT, JOB_SPAN, JOB_CLASSIFY, JOB_LLAMA, JOBS } JobKind;

static inline bool is_lm(JobKind kind) {
    return kind == JOB_GPT2 || kind == JOB_LLAMA;
}

static inline ModelConfig config_of(JobKind kind) {
    bool bert = !is_lm(kind);
    ModelConfig config;
    (kind == JOB_LLAMA ? &family_llama : bert ? &family_bert : &family_gpt2)->defaults(&config);
    /* Two key-value heads, which four tensor-parallel ranks share. */
    if (kind == JOB_LLAMA) config.kv_heads = 2;
    config.outputs_mask = is_lm(kind)        ? OUTPUT_LM
                          : kind == JOB_BERT ? OUTPUT_MLM | OUTPUT_NSP
                          : kind == JOB_SPAN ? OUTPUT_SPAN
                                             : OUTPUT_CLASSIFY;
    config.pooler = kind == JOB_BERT || kind == JOB_CLASSIFY;
    config.layers = 6;
    config.hidden = 16;
    config.heads = 4;
    config.inner = 24;
    config.vocab = VOCAB;
    config.positions = SEQ;
    config.labels = kind == JOB_CLASSIFY ? 3 : 2;
    config.norm_eps = 1e-5f;
    config.init_std = kind == JOB_LLAMA ? 0.2f : 0.1f; /* a gated MLP multiplies small numbers */
    config.dropout_embed = 0.1f;
    config.dropout_attn = 0.1f;
    config.dropout_hidden = 0.1f;
    config.dropout_classify = 0.1f;
    config.tied = true;
    config.pad_token = bert ? 0 : -1;
    config.bos_token = -1;
    config.eos_token = -1;
    return config;
}

static inline int32_t draw(const char *site, int64_t step, int64_t index, int64_t below) {
    return (int32_t)rng_below(rng_key(5, site, (uint64_t)step), (uint64_t)index, (uint64_t)below);
}

/* Puts several documents into each sequence of an lm batch. */
static inline void add_documents(HostBatch *batch, int64_t step, int64_t first) {
    enum { END = 1 };
    for (int64_t i = 0; i < batch->B * SEQ; i++)
        if (!draw("end", step, first * SEQ + i, 4)) batch->tokens[i] = END;
    host_batch_split(batch, END);
    batch->loss_count[LOSS_TOKEN] = 0;
    for (int64_t i = 0; i < batch->B * SEQ; i++) batch->loss_count[LOSS_TOKEN] += batch->labels[i] >= 0;
}

/* Sequences first .. first + count - 1 of a step's batch. BERT sequences vary in length; in every other step,
 * sequences of a language model have several documents. */
static inline HostBatch *batch_of_vocab(JobKind kind, int64_t vocab, int64_t step, int64_t first,
                                        int64_t count) {
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, count, SEQ));
    batch->task = is_lm(kind)        ? TASK_LM
                  : kind == JOB_BERT ? TASK_MLM
                  : kind == JOB_SPAN ? TASK_SPAN
                                     : TASK_CLASSIFY;
    batch->has_types = batch->padded = !is_lm(kind);
    for (int64_t b = 0; b < count; b++) {
        int64_t global = first + b;
        int32_t length = is_lm(kind) ? SEQ : SEQ - draw("length", step, global, 4);
        batch->lens[b] = length;
        batch->nsp[b] = draw("next", step, global, 2);
        batch->classes[b] = draw("class", step, global, 3);
        batch->span[b] = draw("start", step, global, length);
        batch->span[count + b] = draw("end", step, global, length);
        for (int64_t t = 0; t < SEQ; t++) {
            int64_t i = b * SEQ + t;
            bool real = t < length;
            batch->tokens[i] = real ? 1 + draw("token", step, global * SEQ + t, vocab - 1) : 0;
            batch->types[i] = real && t > 3;
            batch->labels[i] = draw("label", step, global * SEQ + t, vocab);
            if (kind != JOB_BERT || !real || draw("pick", step, global * SEQ + t, 3)) continue;
            batch->picks[batch->pick_count] = (int32_t)i;
            batch->pick_labels[batch->pick_count++] = batch->labels[i];
        }
    }
    batch->loss_count[LOSS_TOKEN] = is_lm(kind) ? count * SEQ : kind == JOB_BERT ? batch->pick_count : 0;
    batch->loss_count[LOSS_NSP] = kind == JOB_BERT ? count : 0;
    batch->loss_count[LOSS_SPAN_START] = batch->loss_count[LOSS_SPAN_END] = kind == JOB_SPAN ? count : 0;
    batch->loss_count[LOSS_CLASSIFY] = kind == JOB_CLASSIFY ? count : 0;
    if (is_lm(kind) && step % 2) add_documents(batch, step, first);
    return batch;
}

static inline HostBatch *batch_of(JobKind kind, int64_t step, int64_t first, int64_t count) {
    return batch_of_vocab(kind, VOCAB, step, first, count);
}

typedef struct Layout {
    JobKind job;
    MeshSpec mesh;
    int zero, chunks, micro_batch;
    ScheduleKind schedule;
    Recompute recompute;
    bool sequence, keep;
    Offload offload;
    DType dtype;
    bool wide;       /* 2 layers, hidden size 64 and inner size 128: large enough for fp8 */
    bool wide_heads; /* hidden size 128: heads of width 32, for which CPUs have 16-bit kernels */
    bool words;      /* LARGE_VOCAB tokens, so that ZeRO-3 gathers vocabulary matrices in pieces; layers are
                      * so wide that the last piece of two tensor-parallel ranks ends with padding */
    bool untied;     /* the output matrix is not the embedding */
    bool fp8;
    Fp8Scaling fp8_scaling;
    bool fp8_head;
    FakeQuant fake_quant;
    double loss_scale;
    bool frozen;             /* learning rate 0, so that every step uses the initial weights */
    int optimizer;           /* row of the table of optimizers */
    const OptimGroup *group; /* one parameter group; NULL: none */
    GradType grad_type;
    OuterSpec outer; /* workers that synchronize from time to time */
    bool plain;      /* no dropout, no clipping */
    int perturb;     /* seed of a last-bit perturbation of the initial weights; 0 for none */
} Layout;

static inline OptimSpec layout_optim(const Layout *layout) {
    OptimSpec optim = optim_defaults(optim_row(layout->optimizer));
    optim.weight_decay = 0.01;
    if (layout->plain) optim.clip = 0;
    optim.group = layout->group;
    optim.groups = layout->group ? 1 : 0;
    return optim;
}

/* Lion's steps all have the same size, so it needs a lower rate. */
static inline double layout_lr(const Layout *layout) {
    if (layout->frozen) return 0;
    return strcmp(optim_row(layout->optimizer)->name, "lion") ? 2e-3 : 2e-4;
}

static inline const char *layout_text(const Layout *l) {
    static char text[256];
    static const char *const job_names[JOBS] = {"gpt2", "bert", "span", "classify", "llama"};
    static const char *const recompute[] = {"none", "selective", "block"};
    snprintf(text, sizeof text,
             "%s %s dp %d tp %d pp %d shard %d zero %d%s %s chunks %d recompute %s micro-batch %d%s %s",
             job_names[l->job], optim_row(l->optimizer)->name, l->mesh.dp, l->mesh.tp, l->mesh.pp,
             l->mesh.shard, l->zero, l->keep ? " keep" : "", schedule_name(l->schedule), l->chunks,
             recompute[l->recompute], l->micro_batch, l->sequence ? " sequence" : "",
             l->fp8 ? "fp8" : dtype_name(l->dtype));
    return text;
}

typedef struct Outcome {
    double loss[STEPS_LIMIT], norm[STEPS_LIMIT], eval;
    double micro_norm[STEPS_LIMIT];
    bool skipped[STEPS_LIMIT];
    Model *model;
    Device *device;
    Runner *runner;
    Mesh *mesh;
} Outcome;

static inline void outcome_done(Outcome *outcome) {
    runner_free(outcome->runner);
    mesh_free(outcome->mesh);
    test_device_free(outcome->device);
    model_free(outcome->model);
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

/* The micro-batches of one replica's part of a step's batch; the caller frees them. */
static inline void fill_micros(const Outcome *outcome, const Layout *layout, int step, int replica, int count,
                               HostBatch **micro) {
    for (int i = 0; i < count; i++)
        micro[i] = batch_of_vocab(layout->job, outcome->model->config.vocab, step,
                                  ((int64_t)replica * count + i) * layout->micro_batch, layout->micro_batch);
}

/* A run before its first step, of `count` micro-batches per step. */
static inline Outcome run_new(Group *world, const Layout *layout, int count) {
    Outcome outcome = {0};
    ModelConfig config = config_of(layout->job);
    if (layout->plain)
        config.dropout_embed = config.dropout_attn = config.dropout_hidden = config.dropout_classify = 0;
    if (layout->words) config.vocab = LARGE_VOCAB, config.inner = 128;
    config.tied = !layout->untied;
    if (layout->wide) config.layers = 2, config.hidden = 64, config.inner = 128;
    if (layout->wide_heads) config.hidden = 128;
    assert_ok(model_new(&outcome.model, &config));
    test_device_new(&outcome.device, 1);
    if (world) assert_ok(mesh_new(&outcome.mesh, world, layout->mesh));
    RunnerSpec spec = {.micro_batch = layout->micro_batch,
                       .seq = SEQ,
                       .train = true,
                       .recompute = layout->recompute,
                       .optim = layout_optim(layout),
                       .seed = 9,
                       .mesh = outcome.mesh,
                       .zero = layout->zero,
                       .keep_params = layout->keep,
                       .offload = layout->offload,
                       .sequence = layout->sequence,
                       .dtype = layout->dtype,
                       .fp8 = layout->fp8,
                       .fp8_scaling = layout->fp8_scaling,
                       .fp8_head = layout->fp8_head,
                       .logits = layout->fp8_head ? layout->dtype : DT_F32,
                       .fake_quant = layout->fake_quant,
                       .loss_scale = layout->loss_scale,
                       .schedule = layout->schedule,
                       .chunks = layout->chunks,
                       .grad_type = layout->grad_type,
                       .outer = layout->outer,
                       .micros = count,
                       .noise = true};
    assert_ok(kernels_find(test_kernels(), &spec.table));
    assert_ok(runner_new(&outcome.runner, outcome.model, outcome.device, &spec));
    assert_ok(store_init_params(outcome.runner->params, outcome.runner->stream, 3));
    assert_ok(stream_sync(outcome.runner->stream));
    if (layout->perturb) perturb_params(outcome.runner->params, layout->perturb);
    assert_ok(runner_publish(outcome.runner));
    assert_ok(shards_outer_reset(outcome.runner->shards));
    outcome.runner->probe = true;
    return outcome;
}

static inline Outcome run(Group *world, const Layout *layout, int steps) {
    int count = BATCH / (world ? layout->mesh.dp : 1) / layout->micro_batch;
    Outcome outcome = run_new(world, layout, count);
    int replica = world ? outcome.mesh->at[AXIS_DP] : 0;
    HostBatch *micro[BATCH];
    for (int step = 0; step < steps; step++) {
        fill_micros(&outcome, layout, step, replica, count, micro);
        StepResult result;
        poison_gradients(outcome.runner);
        assert_ok(runner_step(outcome.runner, micro, count, step + 1, layout_lr(layout), &result));
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
    assert_ok(host_broadcast(world, outcome, offsetof(Outcome, model), root));
    for (int i = 0; i < params->model->units; i++) {
        CLEANUP(mem_freep) float *values = unit_values(params, i);
        assert_ok(host_broadcast(world, values, (size_t)params->count[i] * sizeof *values, root));
        unit_set_values(params, i, values);
    }
    if (world->rank != root) assert_ok(runner_publish(outcome->runner));
}

/* Runs on one rank each. All ranks need the results, but only one trains each of them: on eight ranks, the
 * same run on every rank would take longer than the layouts that are compared with it. */
static inline void run_alone(Group *world, const Layout *layouts, int count, int steps,
                             Outcome *ret_outcomes) {
    for (int i = 0; i < count; i++)
        ret_outcomes[i] = run(NULL, &layouts[i], i % world->size == world->rank ? steps : 0);
    for (int i = 0; i < count; i++) outcome_share(world, &ret_outcomes[i], i % world->size);
}

#endif
