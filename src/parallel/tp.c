#include "parallel/tp.h"

Status tp_spread(Group *tp, Exec *exec, bool sequence, Tensor buffer, Tensor rows, Tensor *ret_whole) {
    if (!sequence) {
        *ret_whole = rows;
        return OK;
    }
    TRY(all_gather(tp, exec->stream, buffer, rows, NULL));
    *ret_whole = buffer;
    return OK;
}

Status tp_collect(Group *tp, Exec *exec, bool sequence, Tensor rows, Tensor partial) {
    if (sequence) return reduce_scatter(tp, exec->stream, rows, partial, REDUCE_SUM, NULL);
    return all_reduce(tp, exec->stream, partial, REDUCE_SUM, NULL);
}

Status tp_xent_loss(Group *tp, Exec *exec, Tensor losses, Tensor stats, Tensor parts, Tensor logits,
                    Tensor labels, VocabPart part, float scale, bool gradient) {
    if (tp->size == 1) return xent_loss(exec, losses, stats, logits, labels, part, scale, gradient);
    TRY(xent_partial(exec, stats, logits, labels, part));
    TRY(all_gather(tp, exec->stream, parts, stats, NULL));
    TRY(xent_combine(exec, stats, parts));
    return xent_finish(exec, losses, logits, stats, labels, part, scale, gradient);
}
