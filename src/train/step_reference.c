/* Shapes: B sequences of T tokens in a micro-batch, C hidden size. */
#include "train/step_reference.h"

#include <math.h>

#include "base/memory.h"
#include "model/head.h"
#include "model/rope.h"
#include "train/runner_internal.h"

/* ---- the step ---- */

static Pass pass_of(Reference *r, const HostBatch *batch, int64_t step, bool train) {
    return (Pass){.exec = &r->exec,
                  .tp = r->alone,
                  .shape = {.B = batch->B, .T = batch->T, .tp = 1, .train = train},
                  .seed = r->seed,
                  .step = (uint64_t)step,
                  .scratch = r->scratch,
                  .rope = r->rope_table,
                  .loss = tensor_1d(r->sums.data, DT_F64, LOSS_COUNT)};
}

/* Gives the pass a block's parameters, their gradients, and the memory that its backward reads. */
static void enter(const Reference *r, Pass *pass, int block) {
    pass->param = r->params->view[block];
    pass->grad = pass->shape.train ? r->grads->view[block] : NULL;
    pass->saved = r->saved[block];
}

static Tensor rows_of(const Reference *r, const Pass *pass, Buffer buffer) {
    return tensor_3d(buffer.data, DT_F32, pass->shape.B, pass->shape.T, r->model->config.hidden);
}

/* Each block computes y (B,T,C) from x (B,T,C), the output of the block before. The first, the embedding,
 * reads tokens instead. The last, the output head, adds to the sums of losses; in training, it also computes
 * its gradients right away. */
static Status forward(const Reference *r, Pass *pass) {
    Tensor x = TENSOR_NONE;
    for (int i = 0; i < r->model->count; i++) {
        const Block *block = &r->model->block[i];
        bool last = i + 1 == r->model->count;
        Tensor y = last ? TENSOR_NONE : rows_of(r, pass, r->output[i]);
        enter(r, pass, i);
        TRY(block->ops->forward(block, pass, y, x));
        x = y;
    }
    return OK;
}

/* From the last block to the first: each turns the gradient of its output into that of its input, (B,T,C),
 * and adds to those of its parameters. */
static Status backward(const Reference *r, Pass *pass) {
    Tensor gradient = rows_of(r, pass, r->gradient);
    for (int i = r->model->count - 1; i >= 0; i--) {
        const Block *block = &r->model->block[i];
        Tensor x = i > 0 ? rows_of(r, pass, r->output[i - 1]) : TENSOR_NONE;
        enter(r, pass, i);
        TRY(block->ops->backward(block, pass, gradient, gradient, x));
    }
    return OK;
}

/* The terms of each loss in all micro-batches. */
static void count_terms(const Reference *r, HostBatch *const *micros, int count, int64_t terms[LOSS_COUNT]) {
    unsigned losses = heads_traits(r->model->config.outputs_mask).losses;
    for (int k = 0; k < LOSS_COUNT; k++) terms[k] = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < LOSS_COUNT; k++)
            if (losses & 1u << k) terms[k] += micros[i]->loss_count[k];
}

static Status read_sums(const Reference *r, double sums[LOSS_COUNT]) {
    TRY(stream_copy(r->exec.stream, sums, r->sums.data, LOSS_COUNT * sizeof *sums, COPY_TO_HOST));
    return stream_sync(r->exec.stream);
}

/* The losses of mixtures are means over tokens and layers. */
static void begin_balance(Reference *r, int64_t tokens) {
    double all = (double)tokens * (double)config_sparse_layers(&r->model->config);
    r->balance.loss = (float)(r->balance_coef / all);
    r->balance.z = (float)(r->z_coef / all);
}

/* The load of each expert in the next step, from its tokens in this one; 0: there was none. */
static Status next_load(Reference *r, int64_t tokens) {
    const ModelConfig *c = &r->model->config;
    size_t slots = r->load.bytes / sizeof(float);
    if (!slots) return OK;
    CLEANUP(mem_freep) int64_t *counts = NULL;
    CLEANUP(mem_freep) float *load = NULL;
    TRY(mem_new(slots, sizeof *counts, &counts));
    TRY(mem_new(slots, sizeof *load, &load));
    TRY(stream_copy(r->exec.stream, counts, r->counts.data, slots * sizeof *counts, COPY_TO_HOST));
    TRY(stream_sync(r->exec.stream));
    for (size_t i = 0; i < slots; i++)
        load[i] = tokens ? (float)((double)c->experts * (double)counts[i] / (double)tokens) : (float)c->top_k;
    TRY(stream_copy(r->exec.stream, r->load.data, load, r->load.bytes, COPY_TO_DEVICE));
    return stream_sync(r->exec.stream);
}

/* The gradients of the objective, which is the weighted sum of all mean losses. Each micro-batch adds its
 * part, so the terms of all of them are counted first. */
static Status gradients(Reference *r, HostBatch *const *micros, int count, int64_t step, StepResult *result) {
    int64_t terms[LOSS_COUNT];
    double sums[LOSS_COUNT];
    Micro micro;
    count_terms(r, micros, count, terms);
    TRY(store_zero(r->grads, r->exec.stream));
    TRY(stream_zero(r->exec.stream, r->sums.data, r->sums.bytes));
    TRY(stream_zero(r->exec.stream, r->counts.data, r->counts.bytes));
    for (int i = 0; i < count; i++)
        for (int64_t b = 0; b < micros[i]->B; b++) result->tokens += micros[i]->lens[b];
    begin_balance(r, result->tokens);
    for (int i = 0; i < count; i++) {
        Pass pass = pass_of(r, micros[i], step, true);
        pass.balance = r->balance;
        for (int k = 0; k < LOSS_COUNT; k++)
            if (terms[k]) pass.loss_grad[k] = (float)(loss_weight[k] / (double)terms[k]);
        *micros[i]->step = step;
        TRY(host_batch_upload(micros[i], r->exec.stream, r->ids, i * r->micro_batch, &micro));
        pass.micro = &micro;
        TRY(forward(r, &pass));
        TRY(backward(r, &pass));
    }
    TRY(read_sums(r, sums));
    TRY(next_load(r, result->tokens));
    result->loss = loss_objective(sums, terms);
    for (int k = 0; k < LOSS_COUNT; k++) result->part[k] = terms[k] ? sums[k] / (double)terms[k] : 0;
    return OK;
}

/* The norm of all gradients but those of frozen parameters; padding is zero. A sum for each unit, so that the
 * bits are the runner's. */
static Status gradient_norm(Reference *r, double *ret_norm) {
    double total = 0;
    for (int u = 0; u < r->model->units; u++) {
        if (r->grads->unit[u].frozen) continue;
        double squares[LOSS_COUNT];
        Tensor sum = tensor_1d(r->sums.data, DT_F64, 1);
        Tensor unit = tensor_1d(r->grads->flat[u].data, DT_F32, r->grads->count[u]);
        TRY(stream_zero(r->exec.stream, r->sums.data, r->sums.bytes));
        TRY(sum_squares(&r->exec, sum, unit));
        TRY(read_sums(r, squares));
        total += squares[0];
    }
    *ret_norm = sqrt(total);
    return OK;
}

/* Optimizers such as Muon turn a gradient into another matrix first. A parameter may be several matrices. */
static Status transform(Reference *r, const ParamSlot *slot, const OptimStep *step, const OptimPart *part) {
    const Optimizer *kind = optim_kind(&r->optim);
    CLEANUP(dev_free) Buffer work = {0};
    int last = slot->desc.ndim - 1;
    int64_t rows = slot->dim[last - 1], cols = slot->dim[last];
    TRY(dev_alloc(r->device, MEM_SCRATCH, kind->work_bytes(rows, cols, DT_F32), &work));
    TRY(kind->begin(&r->exec, &r->optim, step, part));
    for (int64_t at = 0; at < slot->count; at += rows * cols) {
        OptimMatrix matrix = {.data = (float *)part->grad.data + at, .rows = rows, .cols = cols};
        TRY(kind->transform(&r->exec, &r->optim, matrix, (OptimWork){work.data, DT_F32}));
    }
    TRY(kind->finish(&r->exec, &r->optim, step, part));
    return stream_sync(r->exec.stream); /* before the memory is freed */
}

/* Updates each parameter that is not frozen, and the optimizer's state for it. */
static Status update(Reference *r, const OptimStep *step) {
    for (int u = 0; u < r->model->units; u++)
        for (size_t i = 0; !r->params->unit[u].frozen && i < r->params->unit[u].count; i++) {
            const ParamSlot *slot = &r->params->unit[u].slot[i];
            ParamRule rule = optim_rule(&r->optim, &slot->desc);
            OptimPart part = {.rule = &rule};
            Tensor *const values[] = {&part.param, &part.grad, &part.state[0], &part.state[1]};
            const Store *const stores[] = {r->params, r->grads, r->state[0], r->state[1]};
            for (int k = 0; k < 2 || (k < 2 + OPTIM_STATES && optim_has_state(&r->optim, &rule, k - 2)); k++)
                *values[k] = tensor_1d((float *)stores[k]->flat[u].data + slot->offset, DT_F32, slot->count);
            TRY(rule.whole ? transform(r, slot, step, &part)
                           : optim_kind(&r->optim)->step(&r->exec, &r->optim, step, &part, 1));
        }
    return OK;
}

Status reference_step(Reference *r, HostBatch *const *micros, int count, int64_t step, double lr,
                      StepResult *ret_result) {
    StepResult result = {.micro_norm = NAN};
    TRY(gradients(r, micros, count, step, &result));
    TRY(gradient_norm(r, &result.grad_norm));
    result.clip_norm = result.grad_norm;
    double clip = optim_clip_scale(&r->optim, result.grad_norm);
    TRY(update(r, &(OptimStep){.number = step, .lr = lr, .grad_scale = clip}));
    *ret_result = result;
    return stream_sync(r->exec.stream);
}

Status reference_eval(Reference *r, HostBatch *const *micros, int count, double *ret_loss) {
    int64_t terms[LOSS_COUNT];
    double sums[LOSS_COUNT];
    Micro micro;
    count_terms(r, micros, count, terms);
    TRY(stream_zero(r->exec.stream, r->sums.data, r->sums.bytes));
    for (int i = 0; i < count; i++) {
        Pass pass = pass_of(r, micros[i], 0, false);
        TRY(host_batch_upload(micros[i], r->exec.stream, r->ids, i * r->micro_batch, &micro));
        pass.micro = &micro;
        TRY(forward(r, &pass));
    }
    TRY(read_sums(r, sums));
    *ret_loss = loss_objective(sums, terms);
    return OK;
}

/* ---- memory ---- */

static Status alloc_values(Reference *r) {
    TRY(store_new(&r->params, r->model, r->device, MEM_PARAMS));
    TRY(store_new(&r->grads, r->model, r->device, MEM_GRADS));
    for (int k = 0; k < optim_states(&r->optim); k++) {
        TRY(store_new(&r->state[k], r->model, r->device, MEM_OPTIMIZER));
        TRY(store_zero(r->state[k], r->exec.stream));
    }
    return OK;
}

static Status alloc_activations(Reference *r) {
    const ModelConfig *config = &r->model->config;
    const Shape shape = {.B = r->micro_batch, .T = r->seq, .tp = 1, .train = true};
    size_t rows = (size_t)(r->micro_batch * r->seq * config->hidden) * sizeof(float), scratch = 0;
    TRY(mem_new((size_t)r->model->count, sizeof *r->output, &r->output));
    TRY(mem_new((size_t)r->model->count, sizeof *r->saved, &r->saved));
    for (int i = 0; i < r->model->count; i++) {
        const Block *block = &r->model->block[i];
        size_t saved, needs;
        block->ops->measure(block, shape, &saved, &needs);
        if (needs > scratch) scratch = needs;
        TRY(dev_alloc(r->device, MEM_ACTIVATIONS, saved, &r->saved[i]));
        TRY(dev_alloc(r->device, MEM_ACTIVATIONS, rows, &r->output[i]));
    }
    TRY(dev_alloc(r->device, MEM_ACTIVATIONS, rows, &r->gradient));
    TRY(dev_alloc(r->device, MEM_ACTIVATIONS,
                  host_batch_bytes(r->micro_batch, r->seq, r->seq, config_targets(config)), &r->ids));
    TRY(dev_alloc(r->device, MEM_SCRATCH, scratch, &r->scratch));
    TRY(dev_alloc(r->device, MEM_SCRATCH, LOSS_COUNT * sizeof(double), &r->sums));
    return rope_table_new(config, r->seq, r->device, r->exec.stream, &r->rope, &r->rope_table);
}

static Status alloc_balance(Reference *r, const RunnerSpec *spec) {
    const ModelConfig *c = &r->model->config;
    size_t layers = (size_t)c->layers, slots = layers * (size_t)c->experts;
    r->z_coef = spec->z_coef;
    if (spec->balance == BALANCE_AUX)
        r->balance_coef = spec->balance_coef ? spec->balance_coef : (double)c->balance_coef;
    if (!slots) return OK;
    TRY(dev_alloc(r->device, MEM_OPTIMIZER, slots * sizeof(float), &r->load));
    TRY(dev_alloc(r->device, MEM_OPTIMIZER, (slots + layers * ROUTE_TOTALS) * sizeof(int64_t), &r->counts));
    r->balance.load = tensor_2d(r->load.data, DT_F32, c->layers, c->experts);
    r->balance.counts = tensor_2d(r->counts.data, DT_I64, c->layers, c->experts);
    r->balance.totals = tensor_2d((int64_t *)r->counts.data + slots, DT_F64, c->layers, ROUTE_TOTALS);
    return next_load(r, 0);
}

Status reference_new(Reference **ret_reference, const Model *model, Device *device, const RunnerSpec *spec) {
    CLEANUP(reference_freep) Reference *r = NULL;
    TRY(mem_new(1, sizeof *r, &r));
    r->model = model;
    r->device = device;
    r->optim = spec->optim;
    r->micro_batch = spec->micro_batch;
    r->seq = spec->seq;
    r->seed = spec->seed;
    r->exec.table = spec->table;
    TRY(stream_new(&r->exec.stream, device));
    TRY(group_new_self(&r->alone));
    TRY(alloc_values(r));
    TRY(alloc_activations(r));
    TRY(alloc_balance(r, spec));
    return MOVE(ret_reference, r);
}

void reference_free(Reference *r) {
    if (!r) return;
    if (r->exec.stream) status_free(stream_sync(r->exec.stream));
    store_free(r->params);
    store_free(r->grads);
    for (int k = 0; k < OPTIM_STATES; k++) store_free(r->state[k]);
    for (int i = 0; r->output && r->saved && i < r->model->count; i++) {
        dev_free(&r->output[i]);
        dev_free(&r->saved[i]);
    }
    Buffer *const buffers[] = {&r->gradient, &r->ids, &r->scratch, &r->rope, &r->sums, &r->load, &r->counts};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) dev_free(buffers[i]);
    free(r->output);
    free(r->saved);
    group_free(r->alone);
    stream_free(r->exec.stream);
    free(r);
}
