/* Tensor parallelism: the two points inside a block where tensor-parallel ranks communicate.
 *
 * A block computes with rows (B*T, C) and, in between, with matrices that are split across ranks. It enters a
 * split region with tp_spread (Megatron's f) and leaves it with tp_collect (g); in backward they swap roles:
 *
 *                    replicated rows                  rows split across ranks (sequence parallelism)
 *   tp_spread        no-op                            all-gather of the rows
 *   tp_collect       all-reduce of partial sums       reduce-scatter of partial sums
 *
 * In a group of one both are no-ops.
 */
#ifndef WEFT_PARALLEL_TP_H
#define WEFT_PARALLEL_TP_H

#include "comm/group.h"
#include "kernels/kernels.h"

/* *ret_whole: all rows. That is `rows` itself, or with sequence parallelism `buffer`, filled with the rows of
 * all ranks. */
MUST_USE Status tp_spread(Group *tp, Exec *exec, bool sequence, Tensor buffer, Tensor rows,
                          Tensor *ret_whole);
/* Sums `partial` over all ranks into this rank's `rows`. Without sequence parallelism both are the same
 * memory. */
MUST_USE Status tp_collect(Group *tp, Exec *exec, bool sequence, Tensor rows, Tensor partial);

/* Extent of the local part of a split dim. */
static inline int64_t tp_part(const Group *tp, int64_t extent) {
    return extent / tp->size;
}

/* The bias of a row-parallel linear layer enters the sum once: on rank 0. */
static inline Tensor tp_once(const Group *tp, Tensor bias) {
    return tp->rank == 0 ? bias : TENSOR_NONE;
}

/* xent_loss with the vocabulary split across ranks. Computes losses (M) and stats (M,3) over the whole
 * vocabulary; logits (M,V) become the gradient of the local part. `parts` (tp,M,3) is workspace for all
 * ranks' statistics; absent in a group of one. */
MUST_USE Status tp_xent_loss(Group *tp, Exec *exec, Tensor losses, Tensor stats, Tensor parts, Tensor logits,
                             Tensor labels, VocabPart part, float scale, bool gradient);

#endif
