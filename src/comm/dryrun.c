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

static Status log_start(Group *group, Stream *stream, const CommCall *call, uint64_t number) {
    CommKind kind = call->kind == COMM_RECEIVE ? COMM_SEND : call->kind;
    return op_log_add(stream->device->op_log,
                      (OpRecord){.kind = OP_START,
                                 .what = (int)kind,
                                 .stream = stream,
                                 .other = group,
                                 .number = number,
                                 .bytes = (double)comm_call_bytes(call),
                                 .size = {(double)call->sent.between, (double)call->sent.within}});
}

/* A small reduction: each peer sends its part to this rank. */
static Status hold(Group *group, const Stream *stream, size_t part) {
    DryRunGroup *dryrun = group->impl;
    TRY(mem_grow(&dryrun->held, &dryrun->capacity, dryrun->count + 1, sizeof *dryrun->held));
    Held *held = &dryrun->held[dryrun->count];
    *held = (Held){.number = dryrun->numbers};
    TRY(dev_alloc(stream->device, MEM_COMM, part * (size_t)(group->size - 1), &held->buffer));
    dryrun->count++;
    return OK;
}

static Status start_dryrun(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket) {
    DryRunGroup *dryrun = group->impl;
    size_t bytes = comm_call_bytes(call);
    bool small = (int64_t)bytes <= group->small;
    bool reduces = call->kind == COMM_ALL_REDUCE || call->kind == COMM_REDUCE_SCATTER;
    if (bytes == 0) return OK;
    if (dryrun->staged && comm_info(call->kind)->exchange && !small && dryrun->counted != stream->device) {
        TRY(dev_adopt(stream->device, MEM_COMM, exchange_bytes(group->placement)));
        dryrun->counted = stream->device;
    }
    *ret_ticket = (Ticket){.group = group, .number = ++dryrun->numbers};
    TRY(log_start(group, stream, call, dryrun->numbers));
    return dryrun->staged && small && reduces ? hold(group, stream, tensor_bytes(call->dst)) : OK;
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

static Status split_dryrun(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    (void)color, (void)key, (void)use, (void)ret_group;
    return FAILED("internal: cannot split a dry-run group of %d ranks", group->size);
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
    .start = start_dryrun,
    .wait = wait_dryrun,
    .host_reduce_scatter = host_reduce_scatter_dryrun,
    .host_gather = host_gather_dryrun,
    .split = split_dryrun,
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
