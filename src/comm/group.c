#include "comm/group.h"

void group_free(Group *group) {
    if (group) group->ops->free(group);
}

Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op) {
    return group->ops->all_reduce(group, stream, data, op);
}

Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op) {
    if (tensor_count(src) != tensor_count(dst) * group->size)
        return FAILED("internal: reduce_scatter of %lld elements into %lld over %d ranks",
                      (long long)tensor_count(src), (long long)tensor_count(dst), group->size);
    return group->ops->reduce_scatter(group, stream, dst, src, op);
}

Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src) {
    if (tensor_count(dst) != tensor_count(src) * group->size)
        return FAILED("internal: all_gather of %lld elements into %lld over %d ranks",
                      (long long)tensor_count(src), (long long)tensor_count(dst), group->size);
    return group->ops->all_gather(group, stream, dst, src);
}

Status broadcast(Group *group, Stream *stream, Tensor data, int root) {
    return group->ops->broadcast(group, stream, data, root);
}

Status barrier(Group *group) {
    return group->ops->barrier(group);
}
