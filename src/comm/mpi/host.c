/* Control data in host memory. Small reductions are all-gathers, after which each rank reduces locally, along
 * the tree. All use separately allocated memory, which is leaked after a failure, since other ranks may still
 * send into it. */
#include "base/memory.h"
#include "comm/mpi/reduce.h"
#include "comm/mpi/traffic.h"

static Status run(Group *group, CommCall call) {
    Ticket ticket = {0};
    TRY(start_collective(group, NULL, &call, &ticket));
    return ticket_wait(NULL, &ticket);
}

/* The bytes of all ranks, in rank order. */
static Status gather(Group *group, const void *src, size_t bytes, char **ret_all) {
    char *all = NULL;
    TRY(mem_new((size_t)group->size, bytes, &all));
    Tensor whole = tensor_1d(all, DT_U8, (int64_t)bytes * group->size);
    Tensor own = tensor_slice(whole, (int64_t)bytes * group->rank, (int64_t)bytes);
    if (bytes) memcpy(own.data, src, bytes);
    TRY(run(group, (CommCall){COMM_ALL_GATHER, .dst = whole, .src = own}));
    *ret_all = all;
    return OK;
}

Status host_gather_mpi(Group *group, void *dst, const void *src, size_t bytes) {
    CLEANUP(mem_freep) char *all = NULL;
    TRY(gather(group, src, bytes, &all));
    if (bytes) memcpy(dst, all, (size_t)group->size * bytes);
    return OK;
}

static Status reduce_large(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    size_t bytes = (size_t)count * dtype_size(dtype);
    char *copy = NULL;
    TRY(mem_new(1, bytes, &copy));
    memcpy(copy, data, bytes);
    Tensor all = tensor_1d(copy, dtype, count);
    TRY(run(group, (CommCall){COMM_ALL_REDUCE, .dst = all, .src = all, .reduce = op}));
    memcpy(data, copy, bytes);
    free(copy);
    return OK;
}

Status host_reduce_mpi(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    size_t bytes = (size_t)count * dtype_size(dtype);
    if (group->placement && (int64_t)bytes > group->small) return reduce_large(group, data, count, dtype, op);
    CLEANUP(mem_freep) char *all = NULL;
    CLEANUP(mem_freep) Source *source = NULL;
    TRY(mem_new((size_t)group->size, sizeof *source, &source));
    TRY(gather(group, data, bytes, &all));
    for (int r = 0; r < group->size; r++) source[r] = (Source){all + (size_t)r * bytes, r + 1, false};
    reduce_tree(data, source, (RankSpan){0, group->size}, count, dtype, op, false);
    return OK;
}

Status host_reduce_scatter_mpi(Group *group, void *dst, void *src, int64_t count, DType dtype, ReduceOp op) {
    size_t bytes = (size_t)count * dtype_size(dtype);
    char *copy = NULL, *part = NULL;
    TRY(mem_new((size_t)group->size, bytes, &copy));
    memcpy(copy, src, (size_t)group->size * bytes);
    Status status = mem_new(1, bytes, &part);
    if (status) {
        free(copy);
        return status;
    }
    TRY(run(group, (CommCall){COMM_REDUCE_SCATTER, .dst = tensor_1d(part, dtype, count),
                              .src = tensor_1d(copy, dtype, count * group->size), .reduce = op}));
    memcpy(dst, part, bytes);
    free(part);
    free(copy);
    return OK;
}

Status host_broadcast_mpi(Group *group, void *data, size_t bytes, int root) {
    char *copy = NULL;
    TRY(mem_new(1, bytes, &copy));
    if (bytes) memcpy(copy, data, bytes);
    Tensor all = tensor_1d(copy, DT_U8, (int64_t)bytes);
    TRY(run(group, (CommCall){COMM_BROADCAST, .dst = all, .src = all, .rank = root}));
    if (bytes) memcpy(data, copy, bytes);
    free(copy);
    return OK;
}
