/* What the files of the shards share: shard.c (memory, parameters, gradients),
 * shard_update.c and shard_matrix.c. */
#ifndef WEFT_PARALLEL_SHARD_INTERNAL_H
#define WEFT_PARALLEL_SHARD_INTERNAL_H

#include "parallel/shard.h"

typedef struct Matrices Matrices;

/* Whether the optimizer has fp32 copies of 16-bit parameters. */
static inline bool shards_have_masters(const Shards *shards) {
    return shards->spec.dtype != DT_F32;
}

/* The parameter that is element `first` of the flat buffer. */
char *shard_param_at(const Shards *shards, const ShardUnit *unit, int64_t first);
/* Divides a unit into spans and finds where each state of the optimizer begins. */
MUST_USE Status shard_spans(ShardUnit *unit, const OptimSpec *optim);
/* All-gathers parameters that every rank holds in full. The gather of one unit overlaps the work on the next;
 * shards_publish_finish waits for all of them. */
MUST_USE Status shard_publish_unit(Shards *shards, ShardUnit *unit);
MUST_USE Status shards_publish_finish(Shards *shards);

/* The matrices of this stage that the optimizer updates as a whole, and the memory for doing so.
 * *ret_matrices is NULL if there are none. */
MUST_USE Status matrices_new(Matrices **ret_matrices, const Shards *shards);
void matrices_free(Matrices *matrices);
/* Applies the optimizer's transform to all matrices, which are in the place of the gradients. Collective. */
MUST_USE Status matrices_transform(Shards *shards);

#endif
