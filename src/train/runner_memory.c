/* The blocks of a stage, and the buffers of micro-batches in flight through them.
 *
 * A buffer set (MicroBuffers) holds what backward needs of one micro-batch in one chunk: each block's input
 * and saved activations. The schedule determines how many sets a chunk needs. Without backward, two inputs
 * besides the chunk's are enough, used alternately.
 */
#include <string.h>

#include "train/runner_internal.h"

/* ---- chunks ---- */

Status runner_partition(const Model *model, int64_t seq, int parts, int **ret_first) {
    CLEANUP(mem_freep) double *cost = NULL;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(mem_new((size_t)model->count, sizeof *cost, &cost));
    TRY(mem_new((size_t)parts + 1, sizeof *first, &first));
    for (int i = 0; i < model->count; i++) cost[i] = model_block_flops(model, i, seq);
    TRY(stages_balance(cost, model->count, parts, first));
    return MOVE(ret_first, first);
}

int runner_forward_only(const Model *model, const int *first) {
    int parts = 0;
    while (first[parts + 1] <= model->lowest) parts++;
    return parts;
}

Status runner_chunks_init(Runner *runner) {
    const Model *model = runner->model;
    int stages = runner->mesh->extent[AXIS_PP], stage = runner->mesh->at[AXIS_PP];
    int chunks = runner->spec.chunks > 1 ? (int)runner->spec.chunks : 1, parts = stages * chunks;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(runner_partition(model, runner->spec.seq, parts, &first));
    TRY(mem_new((size_t)chunks, sizeof *runner->chunk, &runner->chunk));
    runner->chunks = chunks;
    runner->forward_only = runner_forward_only(model, first);
    for (int c = 0; c < chunks; c++) {
        int part = c * stages + stage;
        runner->chunk[c] = (Chunk){
            .first = first[part],
            .count = first[part + 1] - first[part],
            .from_stage = part > 0,
            .from = (part + stages - 1) % stages,
            .to_stage = part + 1 < parts,
            .to = (part + 1) % stages,
            .backward = part >= runner->forward_only,
            .sends_gradient = part > runner->forward_only,
        };
    }
    return OK;
}

static void micro_buffers_done(MicroBuffers *buffer_set, int blocks) {
    for (int i = 0; i < blocks; i++) {
        if (buffer_set->input) dev_free(&buffer_set->input[i]);
        if (buffer_set->saved) dev_free(&buffer_set->saved[i]);
        if (buffer_set->deferred) dev_free(&buffer_set->deferred[i]);
        for (int k = 0; buffer_set->received && k < RECEIVED_SCRATCH; k++)
            dev_free(&buffer_set->received[i * RECEIVED_SCRATCH + k]);
    }
    free(buffer_set->input);
    free(buffer_set->saved);
    free(buffer_set->deferred);
    free(buffer_set->received);
    dev_free(&buffer_set->ids);
}

void runner_chunks_done(Runner *runner) {
    for (int c = 0; c < runner->chunks; c++) {
        Chunk *chunk = &runner->chunk[c];
        for (int i = 0; i < chunk->buffer_sets; i++) micro_buffers_done(&chunk->buffer_set[i], chunk->count);
        free(chunk->buffer_set);
    }
    free(runner->chunk);
    for (size_t i = 0; i < runner->messages; i++) {
        dev_free(&runner->message[i].buffer);
        stream_event_free(runner->device, runner->message[i].freed);
    }
    free(runner->message);
}

/* ---- buffers of micro-batches ---- */

size_t runner_rows_bytes(const Runner *runner) {
    Shape shape = runner_largest(runner);
    int64_t rows = shape.B * shape.T / (shape.sequence ? shape.tp : 1);
    return (size_t)(rows * runner->model->config.hidden) * dtype_size(shape.dtype);
}

/* Allocates the input of block i of a chunk. Backward reads the inputs of the blocks that it reaches; the
 * output heads have computed their gradients. The embedding has no input. */
static Status alloc_input(Runner *runner, const Chunk *chunk, int i, Buffer *ret_input) {
    enum { ALTERNATING = 2 };
    int at = chunk->first + i;
    size_t rows = runner_rows_bytes(runner);
    bool kept = runner->spec.train && at >= runner->model->lowest;
    if (i == 0 && !chunk->from_stage) return OK;
    if (!runner_offloads(runner))
        return kept || i <= ALTERNATING ? dev_alloc(runner->device, MEM_ACTIVATIONS, rows, ret_input) : OK;
    if (runner->model->block[at].ops->grads_in_forward) return OK;
    return kept ? dev_alloc_host(runner->device, rows, ret_input) : OK;
}

static Status micro_buffers_init(Runner *runner, const Chunk *chunk, MicroBuffers *buffer_set,
                                 bool deferred) {
    const RunnerSpec *spec = &runner->spec;
    Device *device = runner->device;
    Shape shape = runner_largest(runner);
    size_t blocks = (size_t)chunk->count;
    TRY(mem_new(blocks, sizeof(Buffer), &buffer_set->input));
    TRY(mem_new(blocks, sizeof(Buffer), &buffer_set->saved));
    TRY(mem_new(blocks, sizeof(Buffer), &buffer_set->deferred));
    TRY(mem_new(RECEIVED_SCRATCH * blocks, sizeof(Buffer), &buffer_set->received));
    size_t ids = host_batch_bytes(shape.B, shape.T, spec->seq, config_targets(&runner->model->config));
    TRY(dev_alloc(device, MEM_ACTIVATIONS, ids, &buffer_set->ids));
    for (int i = 0; i < chunk->count; i++) {
        int at = chunk->first + i;
        const Block *block = &runner->model->block[at];
        size_t saved, scratch;
        block->ops->measure(block, shape, &saved, &scratch);
        TRY(alloc_input(runner, chunk, i, &buffer_set->input[i]));
        if (runner_saves(runner, at)) TRY(dev_alloc(device, MEM_ACTIVATIONS, saved, &buffer_set->saved[i]));
        if (deferred && runner_defers(runner, at) && !runner_recomputes(runner, at))
            TRY(dev_alloc(device, MEM_ACTIVATIONS, block->ops->measure_deferred(block, shape),
                          &buffer_set->deferred[i]));
    }
    return OK;
}

/* Maximum number of micro-batches that a schedule has in flight in a chunk. */
static int max_in_flight(const Schedule *schedule, int chunk) {
    int now = 0, max = 0;
    for (int i = 0; i < schedule->count; i++) {
        Action action = schedule->action[i];
        if (action.chunk != chunk) continue;
        if (action.kind == ACTION_FORWARD) now++;
        if (now > max) max = now;
        int part = schedule_part(&schedule->spec, schedule->stage, chunk);
        if (schedule_is_forward_only(&schedule->spec, part) && action.kind == ACTION_FORWARD) now--;
        if (action.kind == ACTION_BACKWARD || action.kind == ACTION_BACKWARD_WEIGHT) now--;
    }
    return max;
}

Status runner_reserve(Runner *runner, const Schedule *schedule) {
    for (int c = 0; c < runner->chunks; c++) {
        Chunk *chunk = &runner->chunk[c];
        int max = max_in_flight(schedule, c);
        if (max <= chunk->buffer_sets) continue;
        MicroBuffers *buffer_set = NULL;
        TRY(mem_new((size_t)max, sizeof *buffer_set, &buffer_set));
        if (chunk->buffer_sets)
            memcpy(buffer_set, chunk->buffer_set, (size_t)chunk->buffer_sets * sizeof *buffer_set);
        free(chunk->buffer_set);
        chunk->buffer_set = buffer_set;
        while (chunk->buffer_sets < max)
            TRY(micro_buffers_init(runner, chunk, &chunk->buffer_set[chunk->buffer_sets++],
                                   schedule->deferred > 0));
    }
    return OK;
}

MicroBuffers *micro_buffers_find(Runner *runner, int at, int micro) {
    Chunk *chunk = &runner->chunk[at];
    for (int i = 0; i < chunk->buffer_sets; i++)
        if (chunk->buffer_set[i].used && chunk->buffer_set[i].micro == micro) return &chunk->buffer_set[i];
    return NULL;
}

Status micro_buffers_open(Runner *runner, int at, int micro, MicroBuffers **ret_buffer_set) {
    Chunk *chunk = &runner->chunk[at];
    for (int i = 0; i < chunk->buffer_sets; i++) {
        if (chunk->buffer_set[i].used) continue;
        chunk->buffer_set[i].used = true;
        chunk->buffer_set[i].micro = micro;
        *ret_buffer_set = &chunk->buffer_set[i];
        return OK;
    }
    return FAILED("internal: more micro-batches in flight than the schedule allows");
}

/* ---- messages ---- */

StageMessage *message_find(Runner *runner, MessageKind kind, int chunk, int micro) {
    for (size_t i = 0; i < runner->messages; i++) {
        StageMessage *message = &runner->message[i];
        if (message->used && message->kind == kind && message->chunk == chunk && message->micro == micro)
            return message;
    }
    return NULL;
}

/* Returns a free message buffer or, if there are enough to overlap communication in both directions, one
 * whose send must finish first. NULL: allocate another. */
static StageMessage *message_free(Runner *runner) {
    enum { ENOUGH_TO_OVERLAP = 4 };
    for (size_t i = 0; i < runner->messages; i++)
        if (!runner->message[i].used && !runner->message[i].ticket.group) return &runner->message[i];
    for (size_t i = 0; runner->messages >= ENOUGH_TO_OVERLAP && i < runner->messages; i++)
        if (!runner->message[i].used && runner->message[i].launched) return &runner->message[i];
    return NULL;
}

Status message_open(Runner *runner, Stream *stream, MessageKind kind, int chunk, int micro,
                    StageMessage **ret_message) {
    StageMessage *message = message_free(runner);
    if (!message) {
        TRY(mem_grow(&runner->message, &runner->message_capacity, runner->messages + 1,
                     sizeof *runner->message));
        message = &runner->message[runner->messages];
        *message = (StageMessage){0};
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, runner_rows_bytes(runner), &message->buffer));
        runner->messages++;
        TRY(stream_event_record(runner->stream, &message->freed)); /* the memory may have had an owner */
    }
    TRY(ticket_wait(stream, &message->ticket));
    if (stream != runner->stream) TRY(stream_event_wait(stream, message->freed));
    message->used = true;
    message->kind = kind;
    message->chunk = chunk;
    message->micro = micro;
    *ret_message = message;
    return OK;
}
