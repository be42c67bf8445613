/* What the files of the shards share: shard.c (memory, parameters, gradients) and shard_update.c. */
#ifndef WEFT_PARALLEL_SHARD_INTERNAL_H
#define WEFT_PARALLEL_SHARD_INTERNAL_H

#include "parallel/shard.h"

/* Whether the optimizer has fp32 copies of 16-bit parameters. */
static inline bool shards_have_masters(const Shards *shards) {
    return shards->spec.dtype != DT_F32;
}

/* The parameter that is element `first` of the flat buffer. */
char *shard_param_at(const Shards *shards, const ShardUnit *unit, int64_t first);
/* Divides a unit into spans. */
MUST_USE Status shard_spans(ShardUnit *unit, const OptimSpec *optim);
/* All-gathers parameters that every rank holds in full. The gather of one unit overlaps the work on the next;
 * shards_publish_finish waits for all of them. */
MUST_USE Status shard_publish_unit(Shards *shards, ShardUnit *unit);
MUST_USE Status shards_publish_finish(Shards *shards);

#endif
