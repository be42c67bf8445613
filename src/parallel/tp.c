#include "parallel/tp.h"

Status tp_spread(Group *tp, Exec *exec, bool sequence, Tensor room, Tensor rows, Tensor *ret_whole) {
    if (!sequence) {
        *ret_whole = rows;
        return OK;
    }
    TRY(all_gather(tp, exec->stream, room, rows, NULL));
    *ret_whole = room;
    return OK;
}

Status tp_collect(Group *tp, Exec *exec, bool sequence, Tensor rows, Tensor partial) {
    if (sequence) return reduce_scatter(tp, exec->stream, rows, partial, REDUCE_SUM, NULL);
    return all_reduce(tp, exec->stream, partial, REDUCE_SUM, NULL);
}

Status tp_xent_combine(Group *tp, Exec *exec, Tensor stats, Tensor parts) {
    if (tp->size == 1) return OK;
    TRY(all_gather(tp, exec->stream, parts, stats, NULL));
    return xent_combine(exec, stats, parts);
}
