/* Tensor parallelism: the points inside a block where tensor ranks meet.
 *
 * A block computes with rows (B*T of them, C wide) and, in between, with split matrices, of which each
 * rank has a part. It goes into a split part with tp_spread and comes out of it with tp_collect; backward
 * the two change places:
 *
 *                    rows are whole on every rank     rows are cut over the ranks (sequence parallelism)
 *   tp_spread        nothing                          all-gather of the rows
 *   tp_collect       all-reduce of partial sums       reduce-scatter of partial sums
 *
 * In a group of one both are free.
 */
#ifndef WEFT_PARALLEL_TP_H
#define WEFT_PARALLEL_TP_H

#include "comm/group.h"
#include "kernels/kernels.h"

/* All rows, from a rank's own: `rows` itself, or `room` with all ranks' rows in it when they are cut. */
MUST_USE Status tp_spread(Group *tp, Exec *exec, bool sequence, Tensor room, Tensor rows, Tensor *ret_whole);
/* A rank's rows of the sum over all ranks of `partial`. Uncut, rows and partial are the same memory. */
MUST_USE Status tp_collect(Group *tp, Exec *exec, bool sequence, Tensor rows, Tensor partial);

/* The part of a dim of `extent` that each rank holds. */
static inline int64_t tp_part(const Group *tp, int64_t extent) {
    return extent / tp->size;
}

/* The bias of a row-split linear layer counts once in the sum: rank 0 adds it, the others none. */
static inline Tensor tp_once(const Group *tp, Tensor bias) {
    return tp->rank == 0 ? bias : TENSOR_NONE;
}

/* xent_loss over a vocabulary of which each rank holds a part: losses (M) and stats (M,3) become complete,
 * logits (M,V) turn into the gradient of the rank's own part. `parts` is room for all ranks' statistics
 * (tp,M,3); none in a group of one. */
MUST_USE Status tp_xent_loss(Group *tp, Exec *exec, Tensor losses, Tensor stats, Tensor parts, Tensor logits,
                             Tensor labels, VocabPart part, float scale, bool gradient);

#endif
