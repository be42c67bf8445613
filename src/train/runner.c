/* A step, on one rank: count what the loss divides by, carry out the schedule (forward over the blocks,
 * backward over them in reverse), add up the gradients' norm, update. Memory is laid out once, from the
 * blocks' own measures; only the kernels' workspace still grows, during the first step.
 */
#include "train/runner.h"

#include <math.h>
#include <string.h>

static const double loss_weight[LOSS_COUNT] = {
    [LOSS_TOKEN] = 1, [LOSS_NSP] = 1, [LOSS_SPAN_START] = 0.5, [LOSS_SPAN_END] = 0.5, [LOSS_CLASSIFY] = 1};

double loss_objective(const double sums[LOSS_COUNT], const int64_t counts[LOSS_COUNT]) {
    double loss = 0;
    for (int i = 0; i < LOSS_COUNT; i++)
        if (counts[i]) loss += loss_weight[i] * sums[i] / (double)counts[i];
    return loss;
}

/* Whether a model has the head that a loss is for. */
static bool has_loss(const ModelConfig *config, int loss) {
    static const unsigned heads[LOSS_COUNT] = {[LOSS_TOKEN] = HEAD_LM | HEAD_MLM,
                                               [LOSS_NSP] = HEAD_NSP,
                                               [LOSS_SPAN_START] = HEAD_SPAN,
                                               [LOSS_SPAN_END] = HEAD_SPAN,
                                               [LOSS_CLASSIFY] = HEAD_CLASSIFY};
    return (config->heads_mask & heads[loss]) != 0;
}

static Shape shape_of(const Runner *runner, int64_t B, int64_t T, bool train) {
    return (Shape){.B = B,
                   .T = T,
                   .tp = runner->mesh->extent[AXIS_TP],
                   .train = train,
                   .recompute = runner->spec.recompute};
}

static bool shares_saved(const Runner *runner, int at) {
    return runner->spec.recompute == RECOMPUTE_BLOCK && runner->model->block[at].ops == &block_ops_layer;
}

static Status alloc_activations(Runner *runner) {
    const Model *model = runner->model;
    Device *device = runner->device;
    const RunnerSpec *spec = &runner->spec;
    Shape shape = shape_of(runner, spec->micro_batch, spec->seq, spec->train);
    size_t width = (size_t)(shape.B * shape.T * model->config.hidden) * sizeof(float);
    size_t scratch = 0, shared = 0;
    for (int i = 0; i < model->count; i++) {
        const Block *block = &model->block[i];
        size_t saved_bytes, scratch_bytes;
        block->ops->measure(block, shape, &saved_bytes, &scratch_bytes);
        if (scratch_bytes > scratch) scratch = scratch_bytes;
        bool share = !spec->train || shares_saved(runner, i);
        if (share && saved_bytes > shared) shared = saved_bytes;
        if (!share) TRY(dev_alloc(device, MEM_ACTIVATIONS, saved_bytes, &runner->saved[i]));
        /* Without backward two outputs suffice: a block's and the next one's. */
        if (i + 1 < model->count && (spec->train || i < 2))
            TRY(dev_alloc(device, MEM_ACTIVATIONS, width, &runner->between[i]));
    }
    TRY(dev_alloc(device, MEM_ACTIVATIONS, shared, &runner->shared));
    TRY(dev_alloc(device, MEM_SCRATCH, scratch, &runner->scratch));
    TRY(dev_alloc(device, MEM_ACTIVATIONS, spec->train ? width : 0, &runner->gradient));
    TRY(dev_alloc(device, MEM_ACTIVATIONS, host_batch_bytes(shape.B, shape.T), &runner->inputs));
    return dev_alloc(device, MEM_ACTIVATIONS, LOSS_COUNT * sizeof(double), &runner->loss);
}

static Status alloc_stores(Runner *runner) {
    Device *device = runner->device;
    TRY(store_new(&runner->params, runner->model, device, MEM_PARAMS));
    if (!runner->spec.train) return OK;
    TRY(store_new(&runner->grads, runner->model, device, MEM_GRADS));
    TRY(store_new(&runner->m, runner->model, device, MEM_OPTIMIZER));
    TRY(store_new(&runner->v, runner->model, device, MEM_OPTIMIZER));
    return dev_alloc(device, MEM_OPTIMIZER, sizeof(double), &runner->norm);
}

/* Only once all of it has been granted is memory touched. */
static Status zero_stores(Runner *runner) {
    Store *const stores[] = {runner->params, runner->grads, runner->m, runner->v};
    for (int i = 0; i < 4; i++)
        if (stores[i]) TRY(store_zero(stores[i], runner->stream));
    return OK;
}

Status runner_new(Runner **ret_runner, const Model *model, Device *device, const RunnerSpec *spec) {
    CLEANUP(runner_freep) Runner *runner = NULL;
    TRY(mem_new(1, sizeof *runner, &runner));
    runner->spec = *spec;
    runner->model = model;
    runner->device = device;
    TRY(mesh_new_self(&runner->mesh));
    TRY(stream_new(&runner->stream, device));
    runner->exec = (Exec){.stream = runner->stream, .table = spec->table};
    TRY(mem_new((size_t)model->count, sizeof(Buffer), &runner->between));
    TRY(mem_new((size_t)model->count, sizeof(Buffer), &runner->saved));
    TRY(alloc_stores(runner));
    TRY(alloc_activations(runner));
    TRY(zero_stores(runner));
    *ret_runner = runner;
    runner = NULL;
    return OK;
}

void runner_free(Runner *runner) {
    if (!runner) return;
    for (int i = 0; i < runner->model->count; i++) {
        if (runner->between) dev_free(&runner->between[i]);
        if (runner->saved) dev_free(&runner->saved[i]);
    }
    free(runner->between);
    free(runner->saved);
    Buffer *const buffers[] = {&runner->inputs,   &runner->shared, &runner->scratch,
                               &runner->gradient, &runner->norm,   &runner->loss};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) dev_free(buffers[i]);
    store_free(runner->params);
    store_free(runner->grads);
    store_free(runner->m);
    store_free(runner->v);
    schedule_done(&runner->schedule);
    stream_free(runner->stream);
    mesh_free(runner->mesh);
    free(runner);
}

/* What every block call of this micro-batch shares. */
static Pass pass_over(Runner *runner, const Micro *micro, bool train, int64_t step) {
    return (Pass){
        .exec = &runner->exec,
        .tp = runner->mesh->axis[AXIS_TP],
        .shape = shape_of(runner, micro->B, micro->T, train),
        .micro = micro,
        .seed = runner->spec.seed,
        .step = (uint64_t)step,
        .scratch = runner->scratch,
        .loss = tensor_1d(runner->loss.data, DT_F64, LOSS_COUNT),
    };
}

static void pass_enter(Runner *runner, Pass *pass, int at) {
    pass->param = runner->params->view[at];
    pass->grad = runner->grads ? runner->grads->view[at] : NULL;
    pass->saved = runner->saved[at].data ? runner->saved[at] : runner->shared;
}

/* The output of a block; without backward, outputs alternate between two buffers. */
static Tensor output_of(Runner *runner, const Pass *pass, int at) {
    if (at < 0 || at + 1 >= runner->model->count) return TENSOR_NONE;
    void *data = runner->between[at].data ? runner->between[at].data : runner->between[at % 2].data;
    return tensor_3d(data, DT_F32, pass->shape.B, pass->shape.T, runner->model->config.hidden);
}

static Status run_block(Runner *runner, Pass *pass, int at) {
    const Block *block = &runner->model->block[at];
    pass_enter(runner, pass, at);
    return block->ops->forward(block, pass, output_of(runner, pass, at), output_of(runner, pass, at - 1));
}

static Status run_forward(Runner *runner, Pass *pass, int blocks) {
    for (int at = 0; at < blocks; at++) TRY(run_block(runner, pass, at));
    return OK;
}

static Status run_backward(Runner *runner, Pass *pass) {
    Tensor gradient = output_of(runner, pass, 0);
    gradient.data = runner->gradient.data;
    for (int at = runner->model->count - 1; at >= 0; at--) {
        const Block *block = &runner->model->block[at];
        /* The last layer's activations are still there; the others share its memory. */
        if (shares_saved(runner, at) && at + 2 < runner->model->count) TRY(run_block(runner, pass, at));
        pass_enter(runner, pass, at);
        TRY(block->ops->backward(block, pass, gradient, gradient, output_of(runner, pass, at - 1)));
    }
    return OK;
}

static Status read_losses(Runner *runner, double sums[LOSS_COUNT]) {
    TRY(all_reduce(runner->mesh->axis[AXIS_DP], runner->stream,
                   tensor_1d(runner->loss.data, DT_F64, LOSS_COUNT), REDUCE_SUM, NULL));
    TRY(stream_copy(runner->stream, sums, runner->loss.data, LOSS_COUNT * sizeof(double), COPY_TO_HOST));
    return stream_sync(runner->stream);
}

/* The derivative of the objective by each loss's sum. */
static void set_loss_grads(Pass *pass, const int64_t counts[LOSS_COUNT]) {
    for (int i = 0; i < LOSS_COUNT; i++)
        pass->loss_grad[i] = counts[i] ? (float)(loss_weight[i] / (double)counts[i]) : 0.0f;
}

static Status run_schedule(Runner *runner, HostBatch *const *micros, const int64_t counts[LOSS_COUNT],
                           int64_t step) {
    Micro micro;
    Pass pass;
    for (int i = 0; i < runner->schedule.count; i++) {
        Action action = runner->schedule.action[i];
        if (action.kind == ACTION_FORWARD) {
            TRY(host_batch_upload(micros[action.micro], runner->stream, runner->inputs,
                                  action.micro * runner->spec.micro_batch, &micro));
            pass = pass_over(runner, &micro, true, step);
            set_loss_grads(&pass, counts);
            TRY(run_forward(runner, &pass, runner->model->count));
        } else {
            TRY(run_backward(runner, &pass));
        }
    }
    return OK;
}

static Status check_micros(const Runner *runner, HostBatch *const *micros, int count) {
    for (int i = 0; i < count; i++)
        if (micros[i]->B > runner->spec.micro_batch || micros[i]->T > runner->spec.seq)
            return FAILED("internal: a micro-batch of %lld x %lld where %lld x %lld was planned",
                          (long long)micros[i]->B, (long long)micros[i]->T,
                          (long long)runner->spec.micro_batch, (long long)runner->spec.seq);
    return OK;
}

Status runner_gradients(Runner *runner, HostBatch *const *micros, int count, int64_t step,
                        StepResult *ret_result) {
    TRY(check_micros(runner, micros, count));
    if (runner->schedule.spec.micros != count) {
        schedule_done(&runner->schedule);
        const ScheduleSpec spec = {.kind = SCHEDULE_1F1B, .stages = 1, .chunks = 1, .micros = count};
        TRY(schedule_init(&runner->schedule, &spec, 0));
    }
    int64_t counts[LOSS_COUNT] = {0};
    StepResult result = {0};
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < LOSS_COUNT; k++)
            if (has_loss(&runner->model->config, k)) counts[k] += micros[i]->loss_count[k];
        for (int64_t b = 0; b < micros[i]->B; b++) result.tokens += micros[i]->lens[b];
    }
    TRY(host_reduce(runner->mesh->axis[AXIS_DP], counts, LOSS_COUNT, DT_I64, REDUCE_SUM));
    TRY(store_zero(runner->grads, runner->stream));
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    TRY(run_schedule(runner, micros, counts, step));
    double sums[LOSS_COUNT];
    TRY(read_losses(runner, sums));
    result.loss = loss_objective(sums, counts);
    for (int k = 0; k < LOSS_COUNT; k++) result.part[k] = counts[k] ? sums[k] / (double)counts[k] : 0;
    TRY(optim_grad_norm(runner->grads, &runner->exec, runner->mesh->world, runner->norm, &result.grad_norm));
    *ret_result = result;
    return OK;
}

Status runner_update(Runner *runner, int64_t step, double lr, double grad_norm) {
    const OptimSpec *spec = &runner->spec.optim;
    return optim_update(spec, &runner->exec, runner->params, runner->m, runner->v, runner->grads, step, lr,
                        optim_clip_scale(spec, grad_norm));
}

Status runner_step(Runner *runner, HostBatch *const *micros, int count, int64_t step, double lr,
                   StepResult *ret_result) {
    StepResult result;
    TRY(runner_gradients(runner, micros, count, step, &result));
    if (!isfinite(result.loss) || !isfinite(result.grad_norm))
        return FAILED(
            "step %lld: the loss is %g and the gradient norm %g; a lower learning rate, a longer warm-up "
            "or clipping would help",
            (long long)step, result.loss, result.grad_norm);
    TRY(runner_update(runner, step, lr, result.grad_norm));
    *ret_result = result;
    return OK;
}

Status runner_eval(Runner *runner, const HostBatch *batch, double sums[LOSS_COUNT],
                   int64_t counts[LOSS_COUNT]) {
    TRY(check_micros(runner, (HostBatch *const *)&batch, 1));
    Micro micro;
    TRY(host_batch_upload(batch, runner->stream, runner->inputs, 0, &micro));
    Pass pass = pass_over(runner, &micro, false, 0);
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    TRY(run_forward(runner, &pass, runner->model->count));
    double fresh[LOSS_COUNT];
    TRY(read_losses(runner, fresh));
    for (int k = 0; k < LOSS_COUNT; k++) {
        if (!has_loss(&runner->model->config, k)) continue;
        sums[k] += fresh[k];
        counts[k] += batch->loss_count[k];
    }
    return OK;
}

Status runner_hidden(Runner *runner, const HostBatch *batch, Tensor *ret_hidden) {
    TRY(check_micros(runner, (HostBatch *const *)&batch, 1));
    Micro micro;
    TRY(host_batch_upload(batch, runner->stream, runner->inputs, 0, &micro));
    Pass pass = pass_over(runner, &micro, false, 0);
    TRY(run_forward(runner, &pass, runner->model->count - 1));
    *ret_hidden = output_of(runner, &pass, runner->model->count - 2);
    return OK;
}

/* The rows a head scores: all of them, or each sequence's first. */
static Status head_rows(Runner *runner, Tensor hidden, Head head, Buffer *ret_buffer, Tensor *ret_rows) {
    Tensor rows = tensor_matrix(hidden);
    *ret_buffer = (Buffer){0};
    *ret_rows = rows;
    if (head != HEAD_NSP && head != HEAD_CLASSIFY) return OK;
    int64_t B = hidden.dim[0], T = hidden.dim[1];
    size_t row = (size_t)rows.dim[1] * sizeof(float);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)B * row, ret_buffer));
    for (int64_t b = 0; b < B; b++)
        TRY(stream_copy(runner->stream, (char *)ret_buffer->data + (size_t)b * row,
                        (char *)rows.data + (size_t)(b * T) * row, row, COPY_ON_DEVICE));
    *ret_rows = tensor_2d(ret_buffer->data, DT_F32, B, rows.dim[1]);
    return OK;
}

static int64_t head_width(const ModelConfig *config, Head head) {
    if (head == HEAD_LM || head == HEAD_MLM) return config->vocab;
    return head == HEAD_CLASSIFY ? config->labels : 2;
}

Status runner_logits(Runner *runner, const HostBatch *batch, Head head, float *out) {
    Tensor hidden, rows;
    TRY(runner_hidden(runner, batch, &hidden));
    CLEANUP(dev_free) Buffer first = {0};
    CLEANUP(dev_free) Buffer scratch = {0};
    CLEANUP(dev_free) Buffer scores = {0};
    TRY(head_rows(runner, hidden, head, &first, &rows));
    int at = runner->model->count - 1;
    const Block *block = &runner->model->block[at];
    int64_t M = rows.dim[0], K = head_width(&runner->model->config, head);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, head_logits_scratch(block, head, M), &scratch));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)(M * K) * sizeof(float), &scores));
    Micro micro = {.B = batch->B, .T = batch->T};
    Pass pass = pass_over(runner, &micro, false, 0);
    pass_enter(runner, &pass, at);
    pass.scratch = scratch;
    TRY(head_logits(block, &pass, head, tensor_2d(scores.data, DT_F32, M, K), rows));
    TRY(stream_copy(runner->stream, out, scores.data, scores.bytes, COPY_TO_HOST));
    return stream_sync(runner->stream);
}
