/* Host data, for control: gathered by all and, where it is reduced, added up by each in the order of the
 * ranks. */
#include "base/memory.h"
#include "comm/mpi/reduce.h"
#include "comm/mpi/traffic.h"

Status host_gather_mpi(Group *group, void *dst, const void *src, size_t bytes) {
    Ticket ticket = {0};
    TRY(start_gather(group, dst, src, (int64_t)bytes, &ticket));
    return ticket_wait(NULL, &ticket);
}

Status host_broadcast_mpi(Group *group, void *data, size_t bytes, int root) {
    Ticket ticket = {0};
    TRY(start_broadcast(group, data, (int64_t)bytes, root, &ticket));
    return ticket_wait(NULL, &ticket);
}

Status host_reduce_mpi(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    size_t bytes = (size_t)count * dtype_size(dtype);
    CLEANUP(mem_freep) char *all = NULL;
    CLEANUP(mem_freep) const void **part = NULL;
    TRY(mem_new((size_t)group->size, bytes, &all));
    TRY(mem_new((size_t)group->size, sizeof *part, &part));
    /* Should this fail, what other ranks still send has nowhere to go. */
    Status status = host_gather_mpi(group, all, data, bytes);
    if (status) {
        all = NULL;
        return status;
    }
    for (int r = 0; r < group->size; r++) part[r] = all + (size_t)r * bytes;
    reduce_parts(data, part, group->size, count, dtype, op);
    return OK;
}
