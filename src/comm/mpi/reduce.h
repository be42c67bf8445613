/* Local reduction of the contributions of all ranks, in rank order. */
#ifndef WEFT_COMM_MPI_REDUCE_H
#define WEFT_COMM_MPI_REDUCE_H

#include "comm/group.h"

/* dst[i] = part[0][i] op part[1][i] op ... op part[parts - 1][i]. dst may alias one of the parts. */
void reduce_parts(void *dst, const void *const *part, int parts, int64_t count, DType dtype, ReduceOp op);

#endif
