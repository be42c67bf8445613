/* Forward passes without training: losses, hidden states and logits. */
#include <string.h>

#include "base/memory.h"
#include "model/head.h"
#include "parallel/tp.h"
#include "train/runner_internal.h"

Status runner_eval(Runner *runner, HostBatch *const *batches, int count, double sums[LOSS_COUNT],
                   int64_t counts[LOSS_COUNT], int64_t hits[LOSS_COUNT]) {
    TRY(runner_take_parts(runner, batches, count, &batches));
    TRY(runner_set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, count));
    TRY(overlap_settle(runner));
    TRY(stream_zero(runner->stream, runner->loss.data, runner->loss.bytes));
    CLEANUP(mem_freep) int64_t *head_rows = NULL;
    TRY(mem_new((size_t)count, sizeof *head_rows, &head_rows));
    TRY(runner_count_head_rows(runner, batches, count, head_rows));
    Round round = {.micros = batches, .count = count, .head_rows = head_rows};
    TRY(runner_run(runner, &runner->eval_schedule, &round));
    double added[2 * LOSS_COUNT];
    int64_t terms[LOSS_COUNT], own[LOSS_COUNT], tokens;
    TRY(runner_read_losses(runner, 2 * LOSS_COUNT, added));
    TRY(runner_count_terms(runner, batches, count, terms, own, &tokens));
    unsigned losses = heads_traits(runner->model->config.outputs_mask).losses;
    for (int k = 0; k < LOSS_COUNT; k++) {
        if (!(losses & 1u << k)) continue;
        sums[k] += added[k];
        counts[k] += terms[k];
        if (hits) hits[k] += (int64_t)added[LOSS_COUNT + k];
    }
    return OK;
}

/* The rows that a head reads: all, or the first of each sequence (copied to *ret_buffer). */
static Status output_rows(Runner *runner, Shape shape, Tensor rows, HeadId head, Buffer *ret_buffer,
                          Tensor *ret_rows) {
    *ret_buffer = (Buffer){0};
    *ret_rows = rows;
    if (!head_at(head)->traits.pooled) return OK;
    size_t row = (size_t)rows.dim[1] * dtype_size(rows.dtype);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)shape.B * row, ret_buffer));
    for (int64_t b = 0; b < shape.B; b++)
        TRY(stream_copy(runner->stream, (char *)ret_buffer->data + (size_t)b * row,
                        (char *)rows.data + (size_t)(b * shape.T) * row, row, COPY_ON_DEVICE));
    *ret_rows = tensor_2d(ret_buffer->data, rows.dtype, shape.B, rows.dim[1]);
    return OK;
}

/* The last layer's output, gathered if sequence parallelism has split it. */
static Status gather_hidden(Runner *runner, const Pass *pass, Tensor own, Buffer *ret_workspace,
                            Tensor *ret_rows) {
    Shape shape = pass->shape;
    Tensor gathered, workspace = tensor_3d(NULL, shape.dtype, shape.B, shape.T, runner->model->config.hidden);
    *ret_workspace = (Buffer){0};
    if (shape.sequence) TRY(dev_alloc(runner->device, MEM_SCRATCH, tensor_bytes(workspace), ret_workspace));
    workspace.data = ret_workspace->data;
    TRY(tp_spread(pass->tp, pass->exec, shape.sequence, workspace, own, &gathered));
    *ret_rows = tensor_matrix(gathered);
    return OK;
}

bool runner_has_output(const Runner *runner, const Chunk *chunk) {
    return chunk->first + chunk->count == runner->model->count;
}

Status runner_score(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set) {
    CLEANUP(dev_free) Buffer workspace = {0};
    CLEANUP(dev_free) Buffer first = {0};
    CLEANUP(dev_free) Buffer whole = {0};
    CLEANUP(dev_free) Buffer scratch = {0};
    CLEANUP(dev_free) Buffer scores = {0};
    HeadId head = round->scores->head;
    Pass pass = runner_pass(runner, round, buffer_set);
    Tensor rows;
    TRY(gather_hidden(runner, &pass, runner_output(runner, chunk, buffer_set, pass.shape, chunk->count - 2),
                      &workspace, &rows));
    TRY(output_rows(runner, pass.shape, rows, head, &first, &rows));
    int at = runner->model->count - 1;
    const Block *block = &runner->model->block[at];
    int64_t M = rows.dim[0], K = head_at(head)->width(&runner->model->config);
    TRY(dev_alloc(runner->device, MEM_SCRATCH, output_logits_scratch(block, head, M), &scratch));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)(M * K) * sizeof(float), &scores));
    TRY(runner_enter(runner, &pass, at, true, false));
    if (head_at(head)->traits.vocab) TRY(runner_gather_pieces(runner, &pass, at, &whole));
    pass.scratch = scratch;
    TRY(output_logits(block, &pass, head, tensor_2d(scores.data, DT_F32, M, K), rows));
    runner_leave(runner, at);
    TRY(stream_copy(runner->stream, round->scores->out, scores.data, scores.bytes, COPY_TO_HOST));
    return stream_sync(runner->stream);
}

/* Scores of whole sequences, on all ranks of context parallelism, from `own`, those of a rank's part. Pooled
 * heads read the first position, which is on the first rank. */
static Status join_scores(const Runner *runner, const HostBatch *batch, HeadId head, const float *own,
                          float *out) {
    Group *cp = runner->mesh->axis[AXIS_CP];
    const ModelConfig *config = &runner->model->config;
    bool pooled = head_at(head)->traits.pooled;
    int64_t T = batch->T / cp->size, rows = batch->B * (pooled ? 1 : T);
    size_t row = (size_t)head_at(head)->width(config) * sizeof *own;
    CLEANUP(mem_freep) char *all = NULL;
    TRY(mem_new((size_t)(cp->size * rows), row, &all));
    TRY(host_gather(cp, all, own, (size_t)rows * row));
    if (pooled) return memcpy(out, all, (size_t)rows * row), OK;
    for (int rank = 0; rank < cp->size; rank++) {
        Positions at = context_positions(config, runner_shape(runner, batch->B, T, false), rank);
        for (int64_t i = 0; i < rows; i++) {
            int64_t to = i / T * batch->T + position_of(&at, i % T);
            memcpy((char *)out + (size_t)to * row, all + (size_t)(rank * rows + i) * row, row);
        }
    }
    return OK;
}

/* From the stage that has the heads to the others. */
static Status share_scores(const Runner *runner, bool has_heads, float *out, size_t bytes) {
    Group *stages = runner->mesh->axis[AXIS_PP];
    int64_t root = has_heads ? stages->rank : -1;
    if (stages->size == 1) return OK;
    TRY(host_reduce(stages, &root, 1, DT_I64, REDUCE_MAX));
    /* In a dry run, no other stage says that it has them. */
    return host_broadcast(stages, out, bytes, root < 0 ? 0 : (int)root);
}

Status runner_logits(Runner *runner, const HostBatch *batch, HeadId head, float *out) {
    HostBatch *const whole[] = {(HostBatch *)batch}, *const *batches = whole;
    const ModelConfig *config = &runner->model->config;
    if (runner->mesh->extent[AXIS_TP] > 1 && head_at(head)->traits.vocab)
        return FAILED("internal: vocabulary logits require a tensor-parallel size of 1");
    int64_t rows = batch->B * (head_at(head)->traits.pooled ? 1 : batch->T);
    size_t count = (size_t)(rows * head_at(head)->width(config));
    bool has_heads = false, parts = runner->mesh->extent[AXIS_CP] > 1;
    CLEANUP(mem_freep) float *part = NULL;
    if (parts) TRY(mem_new(count, sizeof *part, &part));
    TRY(runner_take_parts(runner, whole, 1, &batches));
    TRY(runner_set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, 1));
    TRY(overlap_settle(runner));
    Scores scores = {.head = head, .out = parts ? part : out};
    Round round = {.micros = batches, .count = 1, .scores = &scores};
    TRY(runner_run(runner, &runner->eval_schedule, &round));
    for (int i = 0; i < runner->chunks; i++) has_heads |= runner_has_output(runner, &runner->chunk[i]);
    if (parts && has_heads) TRY(join_scores(runner, batch, head, part, out));
    return share_scores(runner, has_heads, out, count * sizeof *out);
}
