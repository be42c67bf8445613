/* Tensor parallelism: the two points inside a block where tensor ranks meet.
 *
 * A block enters its split part with an activation that all ranks hold (f) and leaves it with partial
 * sums that are added up (g). Forward, enter is free and exit reduces; backward, the other way round.
 * In a group of one both are free.
 */
#ifndef WEFT_PARALLEL_TP_H
#define WEFT_PARALLEL_TP_H

#include "comm/group.h"
#include "kernels/kernels.h"

MUST_USE Status tp_exit_forward(Group *tp, Exec *exec, Tensor y);
MUST_USE Status tp_enter_backward(Group *tp, Exec *exec, Tensor dx);

/* The part of a dim of `extent` that each rank holds. */
static inline int64_t tp_part(const Group *tp, int64_t extent) {
    return extent / tp->size;
}

/* The bias of a row-split linear layer counts once in the sum: rank 0 adds it, the others none. */
static inline Tensor tp_once(const Group *tp, Tensor bias) {
    return tp->rank == 0 ? bias : TENSOR_NONE;
}

/* Makes stats (M,3) of xent_partial complete over the ranks' parts of the vocabulary. */
MUST_USE Status tp_xent_combine(Group *tp, Exec *exec, Tensor stats);

#endif
