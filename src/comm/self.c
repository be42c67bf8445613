/* The group of one: collectives are no-ops or copies. */
#include "base/memory.h"
#include "comm/group.h"

static Status all_reduce_self(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    (void)group, (void)stream, (void)data, (void)op, (void)ret_ticket;
    return OK;
}

static Status copy_self(Stream *stream, Tensor dst, Tensor src) {
    if (dst.data == src.data) return OK;
    return stream_copy(stream, dst.data, src.data, tensor_bytes(src), COPY_ON_DEVICE);
}

static Status reduce_scatter_self(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                                  Ticket *ret_ticket) {
    (void)group, (void)op, (void)ret_ticket;
    return copy_self(stream, dst, src);
}

static Status all_gather_self(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    (void)group, (void)ret_ticket;
    return copy_self(stream, dst, src);
}

static Status broadcast_self(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    (void)group, (void)stream, (void)data, (void)root, (void)ret_ticket;
    return OK;
}

/* Unreachable: group.c rejects peers outside the group. */
static Status send_self(Group *group, Stream *stream, Tensor data, int other, Ticket *ret_ticket) {
    (void)group, (void)stream, (void)data, (void)ret_ticket;
    return FAILED("internal: rank %d is not in a group of one", other);
}

static Status wait_self(Group *group, Stream *stream, Ticket ticket) {
    (void)group, (void)stream, (void)ticket;
    return OK;
}

static Status batch_self(Group *group, bool begin) {
    (void)group, (void)begin;
    return OK;
}

static Status host_reduce_self(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    (void)group, (void)data, (void)count, (void)dtype, (void)op;
    return OK;
}

static Status host_gather_self(Group *group, void *dst, const void *src, size_t bytes) {
    (void)group;
    if (bytes) memmove(dst, src, bytes);
    return OK;
}

static Status host_broadcast_self(Group *group, void *data, size_t bytes, int root) {
    (void)group, (void)data, (void)bytes, (void)root;
    return OK;
}

static Status split_self(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    (void)group, (void)color, (void)key, (void)use;
    return group_new_self(ret_group);
}

static void drop_self(Group *group) {
    (void)group;
}

static bool claim_failure_self(Group *group) {
    (void)group;
    return true;
}

static void end_all_self(Group *group, int exit_code) {
    (void)group, (void)exit_code;
}

static void free_self(Group *group) {
    free(group);
}

static const GroupOps group_ops_self = {
    .name = "self",
    .all_reduce = all_reduce_self,
    .reduce_scatter = reduce_scatter_self,
    .all_gather = all_gather_self,
    .broadcast = broadcast_self,
    .send = send_self,
    .receive = send_self,
    .wait = wait_self,
    .batch = batch_self,
    .host_reduce = host_reduce_self,
    .host_gather = host_gather_self,
    .host_broadcast = host_broadcast_self,
    .split = split_self,
    .drop = drop_self,
    .claim_failure = claim_failure_self,
    .end_all = end_all_self,
    .free = free_self,
};

Status group_new_self(Group **ret_group) {
    Group *group = NULL;
    TRY(mem_new(1, sizeof *group, &group));
    group->ops = &group_ops_self;
    group->size = 1;
    *ret_group = group;
    return OK;
}
