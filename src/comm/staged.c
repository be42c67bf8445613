#include "comm/staged.h"

#include <omp.h>

#include "base/memory.h"
#include "comm/watchdog.h"

/* An operation in progress, or host memory kept for the next one. */
typedef struct Move {
    bool used;
    Ticket ticket; /* of the host group */
    Buffer staging;
    size_t first, bytes; /* range of the host buffer to copy back */
    void *back;          /* destination on the device; NULL: nothing to copy back */
} Move;

/* Shared by all groups split from one. */
typedef struct Stage {
    Device *device, *host;
    Stream *stream; /* of the host group */
    Move *move;
    size_t count, capacity;
    int users;
} Stage;

typedef struct Staged {
    Group *host;
    Stage *stage;
} Staged;

static Staged *impl(const Group *group) {
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

static Tensor on_host(Tensor tensor, void *data) {
    tensor.data = data;
    return tensor;
}

/* Starts a move of `bytes`, of which the part from byte `first` is copied back to `back`. */
static Status begin(Group *group, size_t bytes, Tensor back, size_t first, size_t *ret_number,
                    char **ret_staging) {
    Stage *stage = impl(group)->stage;
    TRY(move_open(stage, bytes, ret_number));
    Move *move = &stage->move[*ret_number];
    move->back = back.data;
    move->first = first;
    move->bytes = back.data ? tensor_bytes(back) : 0;
    *ret_staging = move->staging.data;
    Group *host = impl(group)->host;
    host->trace = group->trace;
    host->names = group->names;
    host->label = group->label;
    return OK;
}

/* Called with the result of starting the host operation. */
static Status begun(Status status, Group *group, size_t number, Ticket *ret_ticket) {
    if (status)
        impl(group)->stage->move[number].used = false;
    else
        *ret_ticket = (Ticket){.group = group, .number = number};
    return status;
}

static Ticket *ticket_of(Group *group, size_t number) {
    return &impl(group)->stage->move[number].ticket;
}

static Status all_reduce_staged(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    size_t number;
    char *staging;
    TRY(begin(group, tensor_bytes(data), data, 0, &number, &staging));
    Status status = fetch(stream, staging, data);
    if (!status)
        status = all_reduce(impl(group)->host, impl(group)->stage->stream, on_host(data, staging), op,
                            ticket_of(group, number));
    return begun(status, group, number, ret_ticket);
}

static Status reduce_scatter_staged(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                                    Ticket *ret_ticket) {
    size_t number, first = (size_t)group->rank * tensor_bytes(dst);
    char *staging;
    TRY(begin(group, tensor_bytes(src), dst, first, &number, &staging));
    Status status = fetch(stream, staging, src);
    if (!status)
        status = reduce_scatter(impl(group)->host, impl(group)->stage->stream, on_host(dst, staging + first),
                                on_host(src, staging), op, ticket_of(group, number));
    return begun(status, group, number, ret_ticket);
}

static Status all_gather_staged(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    size_t number, first = (size_t)group->rank * tensor_bytes(src);
    char *staging;
    TRY(begin(group, tensor_bytes(dst), dst, 0, &number, &staging));
    Status status = fetch(stream, staging + first, src);
    if (!status)
        status = all_gather(impl(group)->host, impl(group)->stage->stream, on_host(dst, staging),
                            on_host(src, staging + first), ticket_of(group, number));
    return begun(status, group, number, ret_ticket);
}

static Status broadcast_staged(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    size_t number;
    char *staging;
    bool own = group->rank == root;
    TRY(begin(group, tensor_bytes(data), own ? TENSOR_NONE : data, 0, &number, &staging));
    Status status = own ? fetch(stream, staging, data) : OK;
    if (!status)
        status = broadcast(impl(group)->host, impl(group)->stage->stream, on_host(data, staging), root,
                           ticket_of(group, number));
    return begun(status, group, number, ret_ticket);
}

static Status send_staged(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket) {
    size_t number;
    char *staging;
    TRY(begin(group, tensor_bytes(data), TENSOR_NONE, 0, &number, &staging));
    Status status = fetch(stream, staging, data);
    if (!status)
        status = comm_send(impl(group)->host, impl(group)->stage->stream, on_host(data, staging), to,
                           ticket_of(group, number));
    return begun(status, group, number, ret_ticket);
}

static Status receive_staged(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket) {
    (void)stream;
    size_t number;
    char *staging;
    TRY(begin(group, tensor_bytes(data), data, 0, &number, &staging));
    return begun(comm_receive(impl(group)->host, impl(group)->stage->stream, on_host(data, staging), from,
                              ticket_of(group, number)),
                 group, number, ret_ticket);
}

static Status wait_staged(Group *group, Stream *stream, Ticket ticket) {
    Stage *stage = impl(group)->stage;
    Move *move = &stage->move[ticket.number];
    impl(group)->host->trace = NULL; /* this group already records the wait */
    TRY(ticket_wait(stage->stream, &move->ticket));
    if (move->back && move->bytes > 0) {
        TRY(stream_copy(stream, move->back, (char *)move->staging.data + move->first, move->bytes,
                        COPY_TO_DEVICE));
        TRY(stream_sync(stream)); /* the next operation may overwrite the host buffer */
    }
    move->used = false;
    return OK;
}

static Status batch_staged(Group *group, bool begins) {
    return begins ? comm_batch_begin(impl(group)->host) : comm_batch_end(impl(group)->host);
}

static Status host_reduce_staged(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    return host_reduce(impl(group)->host, data, count, dtype, op);
}

static Status host_reduce_scatter_staged(Group *group, void *dst, void *src, int64_t count, DType dtype,
                                         ReduceOp op) {
    return host_reduce_scatter(impl(group)->host, dst, src, count, dtype, op);
}

static Status host_gather_staged(Group *group, void *dst, const void *src, size_t bytes) {
    return host_gather(impl(group)->host, dst, src, bytes);
}

static Status host_broadcast_staged(Group *group, void *data, size_t bytes, int root) {
    return host_broadcast(impl(group)->host, data, bytes, root);
}

static Group *under_staged(const Group *group) {
    return impl(group)->host;
}

static Watchdog *watchdog_staged(const Group *group) {
    return group_watchdog(impl(group)->host);
}

static Status wait_more_staged(Group *group) {
    Group *host = impl(group)->host;
    return host->ops->wait_more ? host->ops->wait_more(host) : OK;
}

static void watch_device_staged(Group *group, const DeviceWatch *watch) {
    group_watch_device(impl(group)->host, *watch);
}

static void section_staged(Group *group, SectionStage stage, const volatile sig_atomic_t *stop) {
    Group *host = impl(group)->host;
    host->ops->section(host, stage, stop);
}

static bool abandons_staged(Group *group) {
    return impl(group)->host->ops->abandons(impl(group)->host);
}

/* Moves of abandoned operations stay in use: other ranks may still write to their memory. */
static Status recover_staged(Group *group) {
    return impl(group)->host->ops->recover(impl(group)->host);
}

static void drop_staged(Group *group) {
    group_drop(impl(group)->host);
}

static bool claim_failure_staged(Group *group) {
    return group_claim_failure(impl(group)->host);
}

static void end_all_staged(Group *group, int exit_code) {
    group_end_all(impl(group)->host, exit_code);
}

/* The host group finishes its operations first: they may use the memory. */
static void free_staged(Group *group) {
    group_free(impl(group)->host);
    group_unstage(group);
}

static Status group_over(Group **ret_group, Group *host, Stage *stage);
static const GroupOps group_ops_staged;

static Status split_staged(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    Group *host = NULL;
    TRY(group_split(impl(group)->host, color, key, use, &host));
    Status status = group_over(ret_group, host, impl(group)->stage);
    if (status) group_free(host);
    return status;
}

static const GroupOps group_ops_staged = {
    .name = "staged",
    .all_reduce = all_reduce_staged,
    .reduce_scatter = reduce_scatter_staged,
    .all_gather = all_gather_staged,
    .broadcast = broadcast_staged,
    .send = send_staged,
    .receive = receive_staged,
    .wait = wait_staged,
    .batch = batch_staged,
    .host_reduce = host_reduce_staged,
    .host_reduce_scatter = host_reduce_scatter_staged,
    .host_gather = host_gather_staged,
    .host_broadcast = host_broadcast_staged,
    .split = split_staged,
    .under = under_staged,
    .watchdog = watchdog_staged,
    .wait_more = wait_more_staged,
    .watch_device = watch_device_staged,
    .section = section_staged,
    .abandons = abandons_staged,
    .recover = recover_staged,
    .drop = drop_staged,
    .claim_failure = claim_failure_staged,
    .end_all = end_all_staged,
    .free = free_staged,
};

/* Owns `host` on success. */
static Status group_over(Group **ret_group, Group *host, Stage *stage) {
    if (host->size == 1) {
        *ret_group = host;
        return OK;
    }
    CLEANUP(mem_freep) Group *group = NULL;
    Staged *staged = NULL;
    TRY(mem_new(1, sizeof *group, &group));
    TRY(mem_new(1, sizeof *staged, &staged));
    *staged = (Staged){.host = host, .stage = stage};
    stage->users++;
    *group = (Group){.ops = &group_ops_staged,
                     .rank = host->rank,
                     .size = host->size,
                     .placement = host->placement,
                     .small = host->small,
                     .impl = staged};
    *ret_group = group;
    group = NULL;
    return OK;
}

Group *group_unstage(Group *group) {
    if (group->ops != &group_ops_staged) return group;
    Group *host = impl(group)->host;
    stage_leave(impl(group)->stage);
    free(group->impl);
    free(group);
    return host;
}

Status group_new_staged(Group **ret_group, Group *host, Device *device) {
    Stage *stage = NULL;
    TRY(stage_new(&stage, device));
    Status status = group_over(ret_group, host, stage);
    stage_leave(stage);
    return status;
}
