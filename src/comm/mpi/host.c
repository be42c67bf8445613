/* Control data in host memory. Small reductions are all-gathers, after which each rank reduces locally, along
 * the tree. All use separately allocated memory, which is leaked after a failure, since other ranks may still
 * send into it. */
#include "base/memory.h"
#include "comm/mpi/reduce.h"
#include "comm/mpi/traffic.h"

/* The bytes of all ranks, in rank order. */
static Status gather(Group *group, const void *src, size_t bytes, char **ret_all) {
    Ticket ticket = {0};
    char *all = NULL;
    TRY(mem_new((size_t)group->size, bytes, &all));
    if (bytes) memcpy(all + (size_t)group->rank * bytes, src, bytes);
    TRY(start_gather(group, NULL, all, all + (size_t)group->rank * bytes, (int64_t)bytes, &ticket));
    TRY(ticket_wait(NULL, &ticket));
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
    TRY(host_all_reduce(group, copy, count, dtype, op));
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
    TRY(scatter_on_host(group, part, copy, count, dtype, op));
    memcpy(dst, part, bytes);
    free(part);
    free(copy);
    return OK;
}

Status host_broadcast_mpi(Group *group, void *data, size_t bytes, int root) {
    Ticket ticket = {0};
    char *copy = NULL;
    TRY(mem_new(1, bytes, &copy));
    if (bytes) memcpy(copy, data, bytes);
    TRY(start_broadcast(group, NULL, copy, (int64_t)bytes, root, &ticket));
    TRY(ticket_wait(NULL, &ticket));
    if (bytes) memcpy(data, copy, bytes);
    free(copy);
    return OK;
}
