/* Local reduction of the contributions of several ranks, along the tree of comm/placement.h. */
#ifndef WEFT_COMM_MPI_REDUCE_H
#define WEFT_COMM_MPI_REDUCE_H

#include "comm/group.h"
#include "comm/placement.h"

/* A contribution: of one rank or, in entry r of an array, the partial sum of ranks [r, end). */
typedef struct Source {
    const void *data;
    int end;
    bool wide; /* a partial sum; 16-bit types as fp32 */
} Source;

/* dst = the reduction over the ranks of `span`, which is a node of the tree. source[r] is the contribution
 * that starts with rank r; contributions are nodes of the tree. dst may alias one of type `dtype`, and is a
 * partial sum itself if `wide`. */
void reduce_tree(void *dst, const Source *source, RankSpan span, int64_t count, DType dtype, ReduceOp op,
                 bool wide);

#endif
