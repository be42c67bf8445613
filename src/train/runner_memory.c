/* Which blocks a stage has, and the memory of micro-batches in flight through them.
 *
 * A flight holds what backward needs of one micro-batch in one chunk: the chunk's input, each block's
 * output (the next block's input) and what blocks save. How many flights a chunk needs follows from the
 * schedule. Without backward two outputs suffice, a block's and the next one's.
 */
#include <string.h>

#include "train/runner_internal.h"

/* ---- chunks ---- */

Status runner_cut(const Model *model, int64_t seq, int parts, int **ret_first) {
    CLEANUP(mem_freep) double *cost = NULL;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(mem_new((size_t)model->count, sizeof *cost, &cost));
    TRY(mem_new((size_t)parts + 1, sizeof *first, &first));
    for (int i = 0; i < model->count; i++) cost[i] = block_flops(&model->block[i], seq);
    TRY(stages_balance(cost, model->count, parts, first));
    *ret_first = first;
    first = NULL;
    return OK;
}

Status runner_chunks_init(Runner *runner) {
    const Model *model = runner->model;
    int stages = runner->mesh->extent[AXIS_PP], stage = runner->mesh->at[AXIS_PP];
    int chunks = runner->spec.chunks > 1 ? runner->spec.chunks : 1, parts = stages * chunks;
    CLEANUP(mem_freep) int *first = NULL;
    TRY(runner_cut(model, runner->spec.seq, parts, &first));
    TRY(mem_new((size_t)chunks, sizeof *runner->chunk, &runner->chunk));
    runner->chunks = chunks;
    for (int c = 0; c < chunks; c++) {
        int part = c * stages + stage;
        runner->chunk[c] = (Chunk){
            .first = first[part],
            .count = first[part + 1] - first[part],
            .from_stage = part > 0,
            .from = (part + stages - 1) % stages,
            .to_stage = part + 1 < parts,
            .to = (part + 1) % stages,
        };
    }
    return OK;
}

static void flight_done(Flight *flight, int blocks) {
    for (int i = 0; i < blocks; i++) {
        if (flight->output) dev_free(&flight->output[i]);
        if (flight->saved) dev_free(&flight->saved[i]);
        if (flight->deferred) dev_free(&flight->deferred[i]);
    }
    free(flight->output);
    free(flight->saved);
    free(flight->deferred);
    dev_free(&flight->ids);
    dev_free(&flight->input);
}

void runner_chunks_done(Runner *runner) {
    for (int c = 0; c < runner->chunks; c++) {
        Chunk *chunk = &runner->chunk[c];
        for (int i = 0; i < chunk->flights; i++) flight_done(&chunk->flight[i], chunk->count);
        free(chunk->flight);
    }
    free(runner->chunk);
    for (size_t i = 0; i < runner->relays; i++) dev_free(&runner->relay[i].buffer);
    free(runner->relay);
}

/* ---- flights ---- */

static size_t rows_bytes(const Runner *runner) {
    Shape shape = runner_shape(runner, runner->spec.micro_batch, runner->spec.seq, runner->spec.train);
    int64_t rows = shape.B * shape.T / (shape.sequence ? shape.tp : 1);
    return (size_t)(rows * runner->model->config.hidden) * dtype_size(shape.dtype);
}

static Status flight_init(Runner *runner, const Chunk *chunk, Flight *flight, bool deferred) {
    const RunnerSpec *spec = &runner->spec;
    Device *device = runner->device;
    Shape shape = runner_shape(runner, spec->micro_batch, spec->seq, spec->train);
    size_t blocks = (size_t)chunk->count, rows = rows_bytes(runner);
    TRY(mem_new(blocks, sizeof(Buffer), &flight->output));
    TRY(mem_new(blocks, sizeof(Buffer), &flight->saved));
    TRY(mem_new(blocks, sizeof(Buffer), &flight->deferred));
    TRY(dev_alloc(device, MEM_ACTIVATIONS, host_batch_bytes(shape.B, shape.T), &flight->ids));
    if (chunk->from_stage) TRY(dev_alloc(device, MEM_ACTIVATIONS, rows, &flight->input));
    for (int i = 0; i < chunk->count; i++) {
        int at = chunk->first + i;
        const Block *block = &runner->model->block[at];
        size_t saved, scratch;
        block->ops->measure(block, shape, &saved, &scratch);
        if (spec->train && !runner_recomputes(runner, at))
            TRY(dev_alloc(device, MEM_ACTIVATIONS, saved, &flight->saved[i]));
        if (deferred && block->ops->measure_deferred && !runner_recomputes(runner, at))
            TRY(dev_alloc(device, MEM_ACTIVATIONS, block->ops->measure_deferred(block, shape),
                          &flight->deferred[i]));
        /* The chunk's last output is a message, or the head's, which gives none. */
        if (i + 1 < chunk->count && (spec->train || i < 2))
            TRY(dev_alloc(device, MEM_ACTIVATIONS, rows, &flight->output[i]));
    }
    return OK;
}

/* Most micro-batches that a schedule has in a chunk at once. */
static int most_in_flight(const Schedule *schedule, int chunk) {
    int now = 0, most = 0;
    for (int i = 0; i < schedule->count; i++) {
        Action action = schedule->action[i];
        if (action.chunk != chunk) continue;
        if (action.kind == ACTION_FORWARD) now++;
        if (now > most) most = now;
        bool forward_only = schedule->spec.kind == SCHEDULE_EVAL;
        if (forward_only && action.kind == ACTION_FORWARD) now--;
        if (action.kind == ACTION_BACKWARD || action.kind == ACTION_BACKWARD_WEIGHT) now--;
    }
    return most;
}

Status runner_reserve(Runner *runner, const Schedule *schedule) {
    for (int c = 0; c < runner->chunks; c++) {
        Chunk *chunk = &runner->chunk[c];
        int most = most_in_flight(schedule, c);
        if (most <= chunk->flights) continue;
        Flight *flight = NULL;
        TRY(mem_new((size_t)most, sizeof *flight, &flight));
        if (chunk->flights) memcpy(flight, chunk->flight, (size_t)chunk->flights * sizeof *flight);
        free(chunk->flight);
        chunk->flight = flight;
        while (chunk->flights < most)
            TRY(flight_init(runner, chunk, &chunk->flight[chunk->flights++], schedule->deferred > 0));
    }
    return OK;
}

Flight *flight_find(Runner *runner, int at, int micro) {
    Chunk *chunk = &runner->chunk[at];
    for (int i = 0; i < chunk->flights; i++)
        if (chunk->flight[i].used && chunk->flight[i].micro == micro) return &chunk->flight[i];
    return NULL;
}

Status flight_open(Runner *runner, int at, int micro, Flight **ret_flight) {
    Chunk *chunk = &runner->chunk[at];
    for (int i = 0; i < chunk->flights; i++) {
        if (chunk->flight[i].used) continue;
        chunk->flight[i].used = true;
        chunk->flight[i].micro = micro;
        *ret_flight = &chunk->flight[i];
        return OK;
    }
    return FAILED("internal: more micro-batches in flight than the schedule said");
}

/* ---- messages ---- */

Relay *relay_find(Runner *runner, RelayWay way, int chunk, int micro) {
    for (size_t i = 0; i < runner->relays; i++) {
        Relay *relay = &runner->relay[i];
        if (relay->used && relay->way == way && relay->chunk == chunk && relay->micro == micro) return relay;
    }
    return NULL;
}

/* One that is free at once; else, when each way has one computing and one travelling, one that is free
 * when its sending is done. */
static Relay *relay_free(Runner *runner) {
    enum { ENOUGH = 4 };
    for (size_t i = 0; i < runner->relays; i++)
        if (!runner->relay[i].used && !runner->relay[i].ticket.group) return &runner->relay[i];
    for (size_t i = 0; runner->relays >= ENOUGH && i < runner->relays; i++)
        if (!runner->relay[i].used && runner->relay[i].launched) return &runner->relay[i];
    return NULL;
}

Status relay_open(Runner *runner, RelayWay way, int chunk, int micro, Relay **ret_relay) {
    Relay *relay = relay_free(runner);
    if (!relay) {
        TRY(mem_grow(&runner->relay, &runner->relay_capacity, runner->relays + 1, sizeof *runner->relay));
        relay = &runner->relay[runner->relays];
        *relay = (Relay){0};
        TRY(dev_alloc(runner->device, MEM_ACTIVATIONS, rows_bytes(runner), &relay->buffer));
        runner->relays++;
    }
    TRY(ticket_wait(runner->stream, &relay->ticket));
    relay->used = true;
    relay->way = way;
    relay->chunk = chunk;
    relay->micro = micro;
    *ret_relay = relay;
    return OK;
}
