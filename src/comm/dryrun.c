/* One rank of a group whose other ranks do not exist. An operation completes when it is waited for and until
 * then holds the memory it would hold over MPI (comm/mpi): a buffer for each small reduction. The group's own
 * memory is counted from its first large operation on. */
#include <string.h>

#include "base/memory.h"
#include "comm/group.h"
#include "comm/staging.h"

/* Buffer of a small reduction that has not been waited for. */
typedef struct Held {
    uint64_t number;
    Buffer buffer;
} Held;

typedef struct DryRunGroup {
    bool staged;
    const Device *counted; /* the device that counts the group's memory */
    uint64_t numbers;
    Held *held;
    size_t count, capacity;
} DryRunGroup;

static Status start(Group *group, Stream *stream, CommKind kind, size_t bytes, Ticket *ret_ticket) {
    DryRunGroup *dryrun = group->impl;
    if (dryrun->staged && kind != COMM_SEND && (int64_t)bytes > group->small &&
        dryrun->counted != stream->device) {
        TRY(dev_adopt(stream->device, MEM_COMM, exchange_bytes(group->placement)));
        dryrun->counted = stream->device;
    }
    *ret_ticket = (Ticket){.group = group, .number = ++dryrun->numbers};
    return op_log_add(stream->device->op_log, (OpRecord){.kind = OP_START,
                                                         .what = kind,
                                                         .stream = stream,
                                                         .other = group,
                                                         .number = dryrun->numbers,
                                                         .bytes = (double)bytes,
                                                         .size = {(double)group->label.number[2]}});
}

/* A reduction of `bytes` in total. Each peer sends `part` bytes to this rank. */
static Status reduce(Group *group, Stream *stream, CommKind kind, size_t bytes, size_t part,
                     Ticket *ret_ticket) {
    DryRunGroup *dryrun = group->impl;
    if (bytes == 0) return OK;
    TRY(start(group, stream, kind, bytes, ret_ticket));
    if (!dryrun->staged || (int64_t)bytes > group->small) return OK;
    TRY(mem_grow(&dryrun->held, &dryrun->capacity, dryrun->count + 1, sizeof *dryrun->held));
    Held *held = &dryrun->held[dryrun->count];
    *held = (Held){.number = dryrun->numbers};
    TRY(dev_alloc(stream->device, MEM_COMM, part * (size_t)(group->size - 1), &held->buffer));
    dryrun->count++;
    return OK;
}

static Status all_reduce_dryrun(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    (void)op;
    return reduce(group, stream, COMM_ALL_REDUCE, tensor_bytes(data), tensor_bytes(data), ret_ticket);
}

static Status reduce_scatter_dryrun(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                                    Ticket *ret_ticket) {
    (void)op;
    return reduce(group, stream, COMM_REDUCE_SCATTER, tensor_bytes(src), tensor_bytes(dst), ret_ticket);
}

static Status all_gather_dryrun(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    (void)src;
    if (!tensor_bytes(dst)) return OK;
    return start(group, stream, COMM_ALL_GATHER, tensor_bytes(dst), ret_ticket);
}

static Status broadcast_dryrun(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    (void)root;
    if (!tensor_bytes(data)) return OK;
    return start(group, stream, COMM_BROADCAST, tensor_bytes(data), ret_ticket);
}

static Status move_dryrun(Group *group, Stream *stream, Tensor data, int other, Ticket *ret_ticket) {
    (void)other;
    return tensor_bytes(data) ? start(group, stream, COMM_SEND, tensor_bytes(data), ret_ticket) : OK;
}

static Status wait_dryrun(Group *group, Stream *stream, Ticket ticket) {
    DryRunGroup *dryrun = group->impl;
    TRY(op_log_add(stream->device->op_log,
                   (OpRecord){.kind = OP_WAIT, .stream = stream, .other = group, .number = ticket.number}));
    for (size_t i = 0; i < dryrun->count; i++) {
        if (dryrun->held[i].number != ticket.number) continue;
        dev_free(&dryrun->held[i].buffer);
        dryrun->held[i] = dryrun->held[--dryrun->count];
        break;
    }
    return OK;
}

static Status batch_dryrun(Group *group, bool begin) {
    (void)group, (void)begin;
    return OK;
}

static Status host_reduce_dryrun(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    (void)group, (void)data, (void)count, (void)dtype, (void)op;
    return OK;
}

static Status host_reduce_scatter_dryrun(Group *group, void *dst, void *src, int64_t count, DType dtype,
                                         ReduceOp op) {
    (void)group, (void)src, (void)op;
    memset(dst, 0, (size_t)count * dtype_size(dtype));
    return OK;
}

static Status host_gather_dryrun(Group *group, void *dst, const void *src, size_t bytes) {
    memset(dst, 0, bytes * (size_t)group->size);
    if (bytes) memcpy((char *)dst + (size_t)group->rank * bytes, src, bytes);
    return OK;
}

static Status host_broadcast_dryrun(Group *group, void *data, size_t bytes, int root) {
    (void)group, (void)data, (void)bytes, (void)root;
    return OK;
}

static Status split_dryrun(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    (void)color, (void)key, (void)use, (void)ret_group;
    return FAILED("internal: cannot split a dry-run group of %d ranks", group->size);
}

static void drop_dryrun(Group *group) {
    (void)group;
}

static bool claim_failure_dryrun(Group *group) {
    (void)group;
    return true;
}

static void end_all_dryrun(Group *group, int exit_code) {
    (void)group, (void)exit_code;
}

static void free_dryrun(Group *group) {
    DryRunGroup *dryrun = group->impl;
    for (size_t i = 0; i < dryrun->count; i++) dev_free(&dryrun->held[i].buffer);
    free(dryrun->held);
    placement_free(group->placement);
    free(dryrun);
    free(group);
}

static const GroupOps group_ops_dryrun = {
    .name = "dry run",
    .all_reduce = all_reduce_dryrun,
    .reduce_scatter = reduce_scatter_dryrun,
    .all_gather = all_gather_dryrun,
    .broadcast = broadcast_dryrun,
    .send = move_dryrun,
    .receive = move_dryrun,
    .wait = wait_dryrun,
    .batch = batch_dryrun,
    .host_reduce = host_reduce_dryrun,
    .host_reduce_scatter = host_reduce_scatter_dryrun,
    .host_gather = host_gather_dryrun,
    .host_broadcast = host_broadcast_dryrun,
    .split = split_dryrun,
    .drop = drop_dryrun,
    .claim_failure = claim_failure_dryrun,
    .end_all = end_all_dryrun,
    .free = free_dryrun,
};

Status group_new_dryrun(Group **ret_group, int rank, int size, const int *node, bool staged) {
    if (size == 1) return group_new_self(ret_group);
    CLEANUP(mem_freep) DryRunGroup *dryrun = NULL;
    CLEANUP(placement_freep) Placement *placement = NULL;
    Group *group = NULL;
    TRY(mem_new(1, sizeof *dryrun, &dryrun));
    TRY(placement_new(&placement, rank, size, node, NULL));
    TRY(mem_new(1, sizeof *group, &group));
    *dryrun = (DryRunGroup){.staged = staged};
    *group = (Group){.ops = &group_ops_dryrun,
                     .rank = rank,
                     .size = size,
                     .placement = placement,
                     .small = staged ? small_bytes(placement) : 0,
                     .impl = dryrun};
    dryrun = NULL;
    placement = NULL;
    *ret_group = group;
    return OK;
}
