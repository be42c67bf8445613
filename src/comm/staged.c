#include "comm/staged.h"

#include <omp.h>

#include "base/memory.h"
#include "comm/watchdog.h"

/* An operation in progress, or host memory kept for the next one. */
typedef struct Move {
    bool used;
    Ticket ticket; /* of the host group */
    Buffer staging;
    Tensor from; /* on the host, to copy ... */
    void *back;  /* ... to the device; NULL: nothing to copy back */
} Move;

/* Shared by all groups split from one. */
typedef struct Stage {
    Device *device, *host;
    Stream *stream; /* of the host group */
    Move *move;
    size_t count, capacity;
    int users;
} Stage;

static Stage *stage_of(const Group *group) {
    return group->impl;
}

static void stage_leave(Stage *stage) {
    if (!stage || --stage->users > 0) return;
    /* After a failure other ranks may still write to the buffers. */
    if (stage->host && stage->host->keep) stage->device->keep = true;
    for (size_t i = 0; i < stage->count; i++) dev_free(&stage->move[i].staging);
    free(stage->move);
    stream_free(stage->stream);
    device_free(stage->host);
    free(stage);
}

static Status stage_new(Stage **ret_stage, Device *device) {
    Stage *stage = NULL;
    TRY(mem_new(1, sizeof *stage, &stage));
    stage->device = device;
    stage->users = 1;
    Status status = device_new_cpu(&stage->host, omp_get_max_threads());
    if (!status) status = stream_new(&stage->stream, stage->host);
    if (status)
        stage_leave(stage);
    else
        *ret_stage = stage;
    return status;
}

/* A move with at least `bytes` bytes of host memory: the smallest free one, or a new one. */
static Status move_open(Stage *stage, size_t bytes, size_t *ret_number) {
    Move *best = NULL;
    for (size_t i = 0; i < stage->count; i++) {
        Move *move = &stage->move[i];
        bool fits = !move->used && move->staging.bytes >= bytes;
        if (fits && (!best || move->staging.bytes < best->staging.bytes)) best = move;
    }
    if (!best) {
        TRY(mem_grow(&stage->move, &stage->capacity, stage->count + 1, sizeof *stage->move));
        best = &stage->move[stage->count];
        *best = (Move){0};
        TRY(dev_alloc_host(stage->device, bytes, &best->staging));
        stage->count++;
    }
    Buffer staging = best->staging;
    *best = (Move){.used = true, .staging = staging};
    *ret_number = (size_t)(best - stage->move);
    return OK;
}

/* Copies `src` to the host at `at`, synchronously. */
static Status fetch(Stream *stream, char *at, Tensor src) {
    TRY(stream_copy(stream, at, src.data, tensor_bytes(src), COPY_TO_HOST));
    return stream_sync(stream);
}

/* Host memory of an all-to-all's dst, before src; other operations overlay the two. */
static size_t apart(const CommCall *call) {
    return call->kind == COMM_ALL_TO_ALL ? (tensor_bytes(call->dst) + 63) / 64 * 64 : 0;
}

/* Where a tensor is on the host: a part of the larger one at this rank's place in it. */
static Tensor on_host(const Group *group, const CommCall *call, Tensor tensor, char *staging) {
    bool part = call->kind != COMM_ALL_TO_ALL && tensor_bytes(tensor) < comm_call_bytes(call);
    tensor.data = part ? staging + (size_t)group->rank * tensor_bytes(tensor) : staging;
    return tensor;
}

static Status start_on_host(Group *group, Stream *stream, const CommCall *call, Move *move) {
    bool root = call->kind == COMM_BROADCAST && group->rank == call->rank;
    CommCall host = *call;
    host.dst = on_host(group, call, call->dst, move->staging.data);
    host.src = on_host(group, call, call->src, (char *)move->staging.data + apart(call));
    if (call->kind != COMM_SEND && !root) {
        move->back = call->dst.data;
        move->from = host.dst;
    }
    if (call->kind != COMM_RECEIVE && (call->kind != COMM_BROADCAST || root))
        TRY(fetch(stream, host.src.data, call->src));
    Group *under = group->under;
    under->trace = group->trace;
    under->names = group->names;
    under->label = group->label;
    return comm_start(under, stage_of(group)->stream, host, &move->ticket);
}

static Status start_staged(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket) {
    Stage *stage = stage_of(group);
    size_t number = 0;
    TRY(move_open(stage, apart(call) + comm_call_bytes(call), &number));
    Status status = start_on_host(group, stream, call, &stage->move[number]);
    if (status)
        stage->move[number].used = false;
    else
        *ret_ticket = (Ticket){.group = group, .number = number};
    return status;
}

static Status wait_staged(Group *group, Stream *stream, Ticket ticket) {
    Stage *stage = stage_of(group);
    Move *move = &stage->move[ticket.number];
    size_t bytes = tensor_bytes(move->from);
    group->under->trace = NULL; /* this group already records the wait */
    TRY(ticket_wait(stage->stream, &move->ticket));
    if (move->back && bytes > 0) {
        TRY(stream_copy(stream, move->back, move->from.data, bytes, COPY_TO_DEVICE));
        TRY(stream_sync(stream)); /* the next operation may overwrite the host buffer */
    }
    move->used = false;
    return OK;
}

static Status batch_staged(Group *group, bool begins) {
    return begins ? comm_batch_begin(group->under) : comm_batch_end(group->under);
}

static void section_staged(Group *group, SectionStage stage, const volatile sig_atomic_t *stop) {
    group->under->ops->section(group->under, stage, stop);
}

static bool abandons_staged(Group *group) {
    return group->under->ops->abandons(group->under);
}

/* Moves of abandoned operations stay in use: other ranks may still write to their memory. */
static Status recover_staged(Group *group) {
    return group->under->ops->recover(group->under);
}

/* The host group finishes its operations first: they may use the memory. */
static void free_staged(Group *group) {
    group_free(group->under);
    group_unstage(group);
}

static Status group_over(Group **ret_group, Group *host, Stage *stage);
static const GroupOps group_ops_staged;

static Status split_staged(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    Group *host = NULL;
    TRY(group_split(group->under, color, key, use, &host));
    Status status = group_over(ret_group, host, stage_of(group));
    if (status) group_free(host);
    return status;
}

static const GroupOps group_ops_staged = {
    .name = "staged",
    .start = start_staged,
    .wait = wait_staged,
    .batch = batch_staged,
    .split = split_staged,
    .section = section_staged,
    .abandons = abandons_staged,
    .recover = recover_staged,
    .free = free_staged,
};

/* Owns `host` on success. */
static Status group_over(Group **ret_group, Group *host, Stage *stage) {
    if (host->size == 1) {
        *ret_group = host;
        return OK;
    }
    Group *group = NULL;
    TRY(mem_new(1, sizeof *group, &group));
    stage->users++;
    *group = (Group){.ops = &group_ops_staged,
                     .rank = host->rank,
                     .size = host->size,
                     .placement = host->placement,
                     .small = host->small,
                     .under = host,
                     .impl = stage};
    *ret_group = group;
    return OK;
}

Group *group_unstage(Group *group) {
    if (group->ops != &group_ops_staged) return group;
    Group *under = group->under;
    stage_leave(group->impl);
    free(group);
    return under;
}

Status group_new_staged(Group **ret_group, Group *host, Device *device) {
    Stage *stage = NULL;
    TRY(stage_new(&stage, device));
    Status status = group_over(ret_group, host, stage);
    stage_leave(stage);
    return status;
}
