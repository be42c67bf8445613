/* The group of one: nothing to reduce, nobody to wait for. */
#include "base/memory.h"
#include "comm/group.h"

static Status all_reduce_self(Group *group, Stream *stream, Tensor data, ReduceOp op) {
    (void)group, (void)stream, (void)data, (void)op;
    return OK;
}

static Status copy_self(Stream *stream, Tensor dst, Tensor src) {
    if (dst.data == src.data) return OK;
    return stream_copy(stream, dst.data, src.data, tensor_bytes(src), COPY_ON_DEVICE);
}

static Status reduce_scatter_self(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op) {
    (void)group, (void)op;
    return copy_self(stream, dst, src);
}

static Status all_gather_self(Group *group, Stream *stream, Tensor dst, Tensor src) {
    (void)group;
    return copy_self(stream, dst, src);
}

static Status broadcast_self(Group *group, Stream *stream, Tensor data, int root) {
    (void)group, (void)stream, (void)data, (void)root;
    return OK;
}

static Status barrier_self(Group *group) {
    (void)group;
    return OK;
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
    .barrier = barrier_self,
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
