#include "verify/trial.h"

#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "checkpoint/adapter.h"
#include "data/task.h"
#include "model/head.h"

/* ---- jobs ---- */

bool trial_job(int number, TrialJob *ret_job) {
    for (const Family *const *family = families(); *family; family++) {
        const char *name = (*family)->type;
        for (Task task = 0; task < TASK_COUNT; task++) {
            unsigned heads = task_heads(task) & (*family)->outputs;
            if (!heads) continue;
            *ret_job = (TrialJob){*family, task, heads, name ? name : task_names[task]};
            if (number-- == 0) return true;
            name = NULL;
        }
    }
    return false;
}

const char *trial_text(char text[TRIAL_TEXT], const TrialSpec *spec) {
    char mesh[MESH_TEXT];
    TrialJob job = {.name = "?"};
    size_t used = 0;
    trial_job(spec->job, &job);
#define ADD(...) used += (size_t)snprintf(text + used, used < TRIAL_TEXT ? TRIAL_TEXT - used : 0, __VA_ARGS__)
    ADD("%s", job.name);
    if (spec->optimizer) ADD(" %s", optim_row(spec->optimizer)->name);
    ADD(" %s %s", spec->fp8 ? "fp8" : dtype_name(spec->dtype), mesh_join(spec->mesh, AXES_ALL, " ", mesh));
    if (spec->zero) ADD(" zero %d", spec->zero);
    if (spec->mesh.shard) ADD(" shard %d", spec->mesh.shard);
    if (spec->keep) ADD(" keep");
    if (spec->mesh.pp > 1) ADD(" %s", schedule_name(spec->schedule));
    if (spec->recompute) ADD(" recompute %s", recompute_names[spec->recompute]);
    if (spec->cp_mode) ADD(" cp-mode %s", context_mode_names[spec->cp_mode]);
    if (spec->mesh.heads) ADD(" cp-heads %d", spec->mesh.heads);
    if (spec->mesh.ep > 1) ADD(" ep %d", spec->mesh.ep);
    if (spec->sequence) ADD(" sequence");
    if (spec->offload) ADD(" offload %s", offload_names[spec->offload]);
    for (int i = 0; i < TRIAL_PATTERNS && spec->freeze[i]; i++) ADD(" freeze %s", spec->freeze[i]);
    if (spec->lora) ADD(" lora %d %s", spec->lora, spec->lora_target ? spec->lora_target : "");
    if (spec->base) ADD(" base %s", block_code_names[spec->base]);
    ADD(" micro-batch %d", spec->micro_batch);
#undef ADD
    return text;
}

void trial_config(const TrialSpec *spec, ModelConfig *ret_config) {
    TrialJob job = {0};
    ModelConfig config;
    trial_job(spec->job, &job);
    job.family->defaults(&config);
    HeadTraits heads = heads_traits(job.outputs);
    config.outputs_mask = job.outputs;
    config.pooler = heads.pooled;
    config.layers = spec->wide ? 2 : 6;
    config.hidden = spec->wide_heads ? 128 : spec->wide ? 64 : 16;
    config.heads = 4;
    /* Two key-value heads, which four tensor-parallel ranks share. */
    config.kv_heads = config.position == POSITION_ROPE && !config.qk_norm_whole ? 2 : 0;
    config.head_width = 0;
    config.inner = spec->words || spec->wide ? 128 : 24;
    if (config.experts) {
        config.experts = spec->experts ? spec->experts : TRIAL_EXPERTS;
        config.top_k = spec->top_k ? spec->top_k : config.experts;
        config.expert_inner = config.inner;
        if (config.shared_inner) config.shared_inner = config.inner;
        config.balance_coef = 0.1f;
        if (config.sparse_step) config.dense_layer[config.dense_layers++] = 1;
    }
    config.vocab = spec->words ? TRIAL_LARGE_VOCAB : TRIAL_VOCAB;
    config.positions = TRIAL_SEQ;
    if (config.window) config.window = TRIAL_SEQ / 2;
    config.labels = heads.labeled ? TRIAL_LABELS : 2;
    config.norm_eps = 1e-5f;
    config.init_std = config.gated ? 0.2f : 0.1f; /* a gated MLP multiplies small numbers */
    float dropout = spec->plain ? 0 : 0.1f;
    config.dropout_embed = config.dropout_attn = config.dropout_hidden = config.dropout_classify = dropout;
    config.tied = !spec->untied;
    config.pad_token = config_causal(&config) ? -1 : 0;
    config.bos_token = config.eos_token = -1;
    *ret_config = config;
}

/* Lion's steps all have the same size, so it needs a lower rate. */
double trial_lr(const TrialSpec *spec) {
    if (spec->frozen) return 0;
    return strcmp(optim_row(spec->optimizer)->name, "lion") ? 2e-3 : 2e-4;
}

/* ---- batches ---- */

static int32_t draw(const char *site, int64_t step, int64_t index, int64_t below) {
    return (int32_t)rng_below(rng_key(5, site, (uint64_t)step), (uint64_t)index, (uint64_t)below);
}

/* Puts several documents into each sequence of an lm batch. */
static void add_documents(HostBatch *batch, int64_t step, int64_t first) {
    enum { END = 1 };
    for (int64_t i = 0; i < batch->B * TRIAL_SEQ; i++)
        if (!draw("end", step, first * TRIAL_SEQ + i, 4)) batch->tokens[i] = END;
    host_batch_split(batch, END);
}

static void fill_sequence(HostBatch *batch, const ModelConfig *config, int64_t vocab, int64_t step, int64_t b,
                          int64_t global) {
    int64_t labels = config_labeled(config) ? config->labels : vocab;
    bool picks = task_data(batch->task)->picks;
    int32_t length = config_causal(config) ? TRIAL_SEQ : TRIAL_SEQ - draw("length", step, global, 4);
    batch->lens[b] = length;
    batch->nsp[b] = draw("next", step, global, 2);
    batch->classes[b] = draw("class", step, global, TRIAL_LABELS);
    batch->span[b] = draw("start", step, global, length);
    batch->span[batch->B + b] = draw("end", step, global, length);
    for (int64_t i = 0; i < batch->outputs; i++)
        batch->targets[b * batch->outputs + i] = (float)draw("target", step, global * batch->outputs + i, 2);
    for (int64_t t = 0; t < TRIAL_SEQ; t++) {
        int64_t i = b * TRIAL_SEQ + t, at = global * TRIAL_SEQ + t;
        bool real = t < length;
        batch->tokens[i] = real ? 1 + draw("token", step, at, vocab - 1) : 0;
        batch->types[i] = real && t > 3;
        batch->labels[i] = draw("label", step, at, labels);
        if (!real || (picks && draw("pick", step, at, 3))) batch->labels[i] = LABEL_IGNORED;
    }
}

Status trial_batch(HostBatch **ret_batch, int job, int64_t vocab, int64_t step, int64_t first,
                   int64_t count) {
    HostBatch *batch = NULL;
    TrialJob kind = {0};
    ModelConfig config;
    trial_job(job, &kind);
    trial_config(&(TrialSpec){.job = job}, &config);
    TRY(host_batch_new_targets(&batch, count, TRIAL_SEQ, config_targets(&config)));
    batch->task = kind.task;
    batch->next_sentence = true;
    batch->has_types = batch->padded = !config_causal(&config);
    for (int64_t b = 0; b < count; b++) fill_sequence(batch, &config, vocab, step, b, first + b);
    if (config_causal(&config) && step % 2) add_documents(batch, step, first);
    host_batch_count(batch);
    *ret_batch = batch;
    return OK;
}

/* ---- runs ---- */

static OptimSpec optim_of(const TrialSpec *spec) {
    OptimSpec optim = optim_defaults(optim_row(spec->optimizer));
    optim.weight_decay = 0.01;
    if (spec->plain) optim.clip = 0;
    optim.group = spec->group;
    optim.groups = spec->group ? 1 : 0;
    return optim;
}

RunnerSpec trial_run_spec(const TrialSpec *spec, int dp) {
    int batch = spec->batch ? spec->batch : TRIAL_BATCH;
    return (RunnerSpec){.micro_batch = spec->micro_batch,
                        .seq = TRIAL_SEQ,
                        .train = true,
                        .recompute = spec->recompute,
                        .mlp_rows = spec->mlp_rows,
                        .optim = optim_of(spec),
                        .seed = 9,
                        .zero = spec->zero,
                        .keep_params = spec->keep,
                        .base = spec->base,
                        .offload = spec->offload,
                        .cp_mode = spec->cp_mode ? spec->cp_mode : CONTEXT_HEADS,
                        .sequence = spec->sequence,
                        .dtype = spec->dtype,
                        .fp8 = spec->fp8,
                        .fp8_scaling = spec->fp8_scaling,
                        .fp8_head = spec->fp8_head,
                        .logits = spec->fp8_head ? spec->dtype : DT_F32,
                        .fake_quant = spec->fake_quant,
                        .loss_scale = spec->loss_scale,
                        .z_coef = 0.01,
                        .schedule = spec->schedule,
                        .chunks = spec->chunks,
                        .grad_type = spec->grad_type,
                        .outer = spec->outer,
                        .micros = batch / dp / spec->micro_batch,
                        .noise = true};
}

Status trial_freeze(Model *model, const TrialSpec *spec) {
    int patterns = 0;
    while (patterns < TRIAL_PATTERNS && spec->freeze[patterns]) patterns++;
    if (!spec->lora) return model_freeze(model, spec->freeze, patterns);
    LoraConfig lora = {.rank = spec->lora, .alpha = 2 * (float)spec->lora, .dropout = spec->plain ? 0 : 0.1f};
    return lora_adapt(model, lora, &spec->lora_target, spec->lora_target != NULL, spec->freeze, patterns);
}

Status trial_new(Trial *ret_trial, const TrialSpec *spec, const KernelTable *table, Device *device,
                 Mesh *mesh) {
    CLEANUP(trial_done) Trial trial = {.spec = *spec};
    ModelConfig config;
    trial_config(spec, &config);
    TRY(model_new(&trial.model, &config));
    TRY(trial_freeze(trial.model, spec));
    RunnerSpec run = trial_run_spec(spec, mesh ? mesh->extent[AXIS_DP] : 1);
    run.table = table;
    run.mesh = mesh;
    TRY(runner_new(&trial.runner, trial.model, device, &run));
    TRY(store_init_params(trial.runner->params, trial.runner->stream, TRIAL_SEED));
    TRY(stream_sync(trial.runner->stream));
    TRY(runner_publish(trial.runner));
    TRY(shards_outer_reset(trial.runner->shards));
    trial.runner->probe = true;
    return MOVE(ret_trial, trial);
}

void trial_done(Trial *trial) {
    runner_free(trial->runner);
    model_free(trial->model);
    *trial = (Trial){0};
}

Status trial_micros(const Trial *trial, int replica, int step, HostBatch **ret_micros) {
    int count = trial->runner->spec.micros;
    int64_t size = trial->spec.micro_batch, first = (int64_t)replica * count * size;
    for (int i = 0; i < count; i++) ret_micros[i] = NULL;
    for (int i = 0; i < count; i++)
        TRY(trial_batch(&ret_micros[i], trial->spec.job, trial->model->config.vocab, step, first + i * size,
                        size));
    return OK;
}

typedef struct Looking {
    const Trial *trial;
    int step;
    TrialLook *look;
    void *context;
} Looking;

/* What is not finite is for the one who looks to report. */
static Status judge(void *context, StepResult *result, StepAction *ret_action) {
    const Looking *looking = context;
    TRY(mesh_section_end(looking->trial->runner->mesh, &result->stop));
    *ret_action = STEP_APPLY;
    return looking->look ? looking->look(looking->context, looking->trial, looking->step, result) : OK;
}

Status trial_step(Trial *trial, int step, TrialLook *look, void *context, StepResult *ret_result) {
    Runner *runner = trial->runner;
    Looking looking = {trial, step, look, context};
    StepSpec spec = {.number = step + 1, .lr = trial_lr(&trial->spec), .judge = judge, .context = &looking};
    int count = runner->spec.micros;
    CLEANUP(mem_freep) HostBatch **micros = NULL;
    StepResult result;
    TRY(mem_new((size_t)count, sizeof *micros, &micros));
    Status status = trial_micros(trial, runner->mesh->at[AXIS_DP], step, micros);
    if (!status) status = runner_step(runner, micros, count, &spec, &result);
    for (int i = 0; i < count; i++) host_batch_free(micros[i]);
    TRY(status);
    *ret_result = result;
    return stream_sync(runner->stream);
}
