/* Forward passes without training: losses, hidden states and logits.
 *
 * Outputs are computed on the stage that has the heads, for the rows that are asked for, and copied to the
 * host. Logits of a vocabulary are reduced there, chunk by chunk, so that those of all rows never exist. */
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

/* ---- outputs ---- */

/* Logits of a vocabulary are computed for so many values at a time. */
enum { CHUNK_VALUES = 1 << 24 };

/* The rows of some work that a rank of context parallelism has. */
typedef struct OwnRows {
    int32_t *row;    /* (count) here, b * T + t */
    int32_t *number; /* (count) in the work */
    int64_t count;
} OwnRows;

static void own_rows_done(OwnRows *own) {
    free(own->row);
    free(own->number);
}

static int64_t work_count(const HostBatch *batch, const OutputWork *work) {
    if (work->rows) return work->count;
    return batch->B * (output_pooled(work->head) ? 1 : batch->T);
}

static int64_t work_row(const HostBatch *batch, const OutputWork *work, int64_t i) {
    if (work->rows) return work->rows[i];
    return output_pooled(work->head) ? i * batch->T : i;
}

static Status find_own_rows(const Runner *runner, const HostBatch *batch, const OutputWork *work, int rank,
                            OwnRows *own) {
    int64_t T = batch->T / runner->mesh->extent[AXIS_CP], count = work_count(batch, work);
    CLEANUP(mem_freep)
    int32_t *place = NULL; /* (batch->T) of a position on this rank, from 1; 0: elsewhere */
    Positions at = context_positions(&runner->model->config, runner_shape(runner, batch->B, T, false), rank);
    TRY(mem_new((size_t)batch->T, sizeof *place, &place));
    for (int64_t t = 0; t < T; t++) place[position_of(&at, t)] = (int32_t)t + 1;
    TRY(mem_new((size_t)count, sizeof *own->row, &own->row));
    TRY(mem_new((size_t)count, sizeof *own->number, &own->number));
    for (int64_t i = 0; i < count; i++) {
        int64_t row = work_row(batch, work, i), found = place[row % batch->T];
        if (!found) continue;
        own->row[own->count] = (int32_t)(row / batch->T * T + found - 1);
        own->number[own->count++] = (int32_t)i;
    }
    return OK;
}

/* Copies `count` rows from `at` on of those that the work asks for, unless these are all there are. */
static Status take_rows(Runner *runner, const Scores *scores, Tensor all, int64_t at, int64_t count,
                        Tensor buffer, Tensor *ret_rows) {
    size_t row = (size_t)all.dim[1] * dtype_size(all.dtype);
    *ret_rows = tensor_slice(buffer.data ? buffer : all, buffer.data ? 0 : at, count);
    for (int64_t i = 0, run; buffer.data && i < count; i += run) {
        const int32_t *from = scores->rows + at + i;
        for (run = 1; i + run < count && from[run] == from[0] + run;) run++;
        TRY(stream_copy(runner->stream, (char *)buffer.data + (size_t)i * row,
                        (char *)all.data + (size_t)from[0] * row, (size_t)run * row, COPY_ON_DEVICE));
    }
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

/* Joins the parts (tp,count,part) of `count` rows of logits to (count,width) in place of the first. */
static Status join_vocabulary(const Runner *runner, int64_t count, int64_t part, int64_t width, float *own,
                              float *all, float **ret_rows) {
    Group *tp = runner->mesh->axis[AXIS_TP];
    *ret_rows = own;
    if (part == width || tp->size == 1) return OK;
    float *joined = all + tp->size * count * part;
    TRY(host_gather(tp, all, own, (size_t)(count * part) * sizeof *own));
    for (int64_t i = 0; i < count; i++)
        for (int64_t v = 0, size; v < width; v += size) {
            size = part < width - v ? part : width - v;
            memcpy(joined + i * width + v, all + (v / part * count + i) * part, (size_t)size * sizeof *own);
        }
    *ret_rows = joined;
    return OK;
}

static void hand_out(const Scores *scores, int64_t at, int64_t count, int64_t width, const float *values) {
    const OutputWork *work = scores->work;
    for (int64_t i = 0; i < count; i++) {
        float *out = scores->out + scores->number[at + i] * work->width;
        if (work->reduce)
            work->reduce(work->context, scores->number[at + i], values + i * width, out);
        else
            memcpy(out, values + i * width, (size_t)width * sizeof *out);
    }
}

/* Memory of a chunk of R rows; C is the hidden size, K the width here. */
typedef struct ChunkMemory {
    Buffer rows, scratch, values; /* (R,C), empty if all rows are wanted; the head's; (R,K) fp32 */
    float *own, *all;             /* (R,K) and (tp,R,K) with (R,V) behind, in host memory */
} ChunkMemory;

static void chunk_memory_done(ChunkMemory *memory) {
    dev_free(&memory->rows);
    dev_free(&memory->scratch);
    dev_free(&memory->values);
    free(memory->own);
    free(memory->all);
}

static Status chunk_memory_init(const Runner *runner, const Block *block, const Scores *scores, Tensor x,
                                int64_t R, ChunkMemory *memory) {
    const ModelConfig *config = &runner->model->config;
    HeadId head = scores->work->head;
    int tp = runner->mesh->extent[AXIS_TP];
    int64_t K = output_width(config, head, tp), V = output_width(config, head, 1);
    size_t row = (size_t)x.dim[1] * dtype_size(x.dtype);
    if (scores->rows) TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)R * row, &memory->rows));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, output_logits_scratch(block, head, R), &memory->scratch));
    TRY(dev_alloc(runner->device, MEM_SCRATCH, (size_t)(R * K) * sizeof(float), &memory->values));
    TRY(mem_new((size_t)(R * K), sizeof(float), &memory->own));
    return K == V ? OK : mem_new((size_t)(R * (tp * K + V)), sizeof(float), &memory->all);
}

static Status score_chunks(Runner *runner, Pass *pass, const Scores *scores, Tensor x) {
    CLEANUP(chunk_memory_done) ChunkMemory memory = {0};
    const Block *block = &runner->model->block[runner->model->count - 1];
    const ModelConfig *config = block->config;
    HeadId head = scores->work->head;
    int tp = runner->mesh->extent[AXIS_TP];
    int64_t K = output_width(config, head, tp), V = output_width(config, head, 1);
    int64_t R = scores->work->reduce && CHUNK_VALUES / K < scores->count ? CHUNK_VALUES / K : scores->count;
    if (R < 1) R = 1;
    TRY(chunk_memory_init(runner, block, scores, x, R, &memory));
    pass->scratch = memory.scratch;
    Tensor buffer = tensor_2d(memory.rows.data, x.dtype, R, x.dim[1]);
    for (int64_t at = 0; at < scores->count; at += R) {
        int64_t count = scores->count - at < R ? scores->count - at : R;
        Tensor rows, values = tensor_2d(memory.values.data, DT_F32, count, K);
        float *joined;
        TRY(take_rows(runner, scores, x, at, count, buffer, &rows));
        TRY(output_logits(block, pass, head, values, rows));
        TRY(stream_copy(runner->stream, memory.own, values.data, tensor_bytes(values), COPY_TO_HOST));
        TRY(stream_sync(runner->stream));
        TRY(join_vocabulary(runner, count, K, V, memory.own, memory.all, &joined));
        hand_out(scores, at, count, V, joined);
    }
    return OK;
}

Status runner_score(Runner *runner, const Round *round, Chunk *chunk, MicroBuffers *buffer_set) {
    CLEANUP(dev_free) Buffer workspace = {0};
    CLEANUP(dev_free) Buffer whole = {0};
    HeadId head = round->scores->work->head;
    Pass pass = runner_pass(runner, round, buffer_set);
    Tensor x;
    TRY(gather_hidden(runner, &pass, runner_output(runner, chunk, buffer_set, pass.shape, chunk->count - 2),
                      &workspace, &x));
    int at = runner->model->count - 1;
    TRY(runner_enter(runner, &pass, at, true, false));
    if (head != HEAD_NONE && head_at(head)->traits.vocab)
        TRY(runner_gather_pieces(runner, &pass, at, &whole));
    TRY(score_chunks(runner, &pass, round->scores, x));
    runner_leave(runner, at);
    return OK;
}

/* Values of all rows, on all ranks of context parallelism, from those of a rank's own rows. */
static Status join_rows(const Runner *runner, const HostBatch *batch, const OutputWork *work, float *out) {
    Group *cp = runner->mesh->axis[AXIS_CP];
    size_t row = (size_t)work->width * sizeof *out, count = (size_t)work_count(batch, work);
    CLEANUP(mem_freep) char *all = NULL;
    TRY(mem_new((size_t)cp->size * count, row, &all));
    TRY(host_gather(cp, all, out, count * row));
    for (int rank = 0; rank < cp->size; rank++) {
        CLEANUP(own_rows_done) OwnRows own = {0};
        TRY(find_own_rows(runner, batch, work, rank, &own));
        for (int64_t i = 0; i < own.count; i++)
            memcpy((char *)out + (size_t)own.number[i] * row,
                   all + ((size_t)rank * count + (size_t)own.number[i]) * row, row);
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

Status runner_outputs(Runner *runner, const HostBatch *batch, const OutputWork *work, float *out) {
    HostBatch *const whole[] = {(HostBatch *)batch}, *const *batches = whole;
    CLEANUP(own_rows_done) OwnRows own = {0};
    bool has_heads = false, parts = runner->mesh->extent[AXIS_CP] > 1;
    TRY(runner_take_parts(runner, whole, 1, &batches));
    TRY(runner_set_schedule(runner, &runner->eval_schedule, SCHEDULE_EVAL, 1));
    TRY(overlap_settle(runner));
    TRY(find_own_rows(runner, batch, work, runner->mesh->at[AXIS_CP], &own));
    bool all = own.count == batches[0]->B * batches[0]->T && !work->rows;
    Scores scores = {
        .work = work, .rows = all ? NULL : own.row, .number = own.number, .count = own.count, .out = out};
    Round round = {.micros = batches, .count = 1, .scores = &scores};
    TRY(runner_run(runner, &runner->eval_schedule, &round));
    for (int i = 0; i < runner->chunks; i++) has_heads |= runner_has_output(runner, &runner->chunk[i]);
    if (parts && has_heads) TRY(join_rows(runner, batch, work, out));
    size_t bytes = (size_t)(work_count(batch, work) * work->width) * sizeof *out;
    return share_scores(runner, has_heads, out, bytes);
}

Status runner_logits(Runner *runner, const HostBatch *batch, HeadId head, float *out) {
    OutputWork work = {.head = head, .width = head_at(head)->width(&runner->model->config)};
    return runner_outputs(runner, batch, &work, out);
}
