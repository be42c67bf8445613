/* What the files of the shards share: shard.c (memory, parameters), shard_grad.c,
 * shard_sketch.c, shard_update.c, shard_matrix.c, shard_wire.c, shard_outer.c and shard_outer_sum.c. */
#ifndef WEFT_PARALLEL_SHARD_INTERNAL_H
#define WEFT_PARALLEL_SHARD_INTERNAL_H

#include "parallel/shard.h"

typedef struct Matrices Matrices;

/* Whether the unit has a gradient here. */
static inline bool unit_trains(const ShardUnit *unit) {
    return unit->held && !unit->layout.frozen;
}

/* Whether gradients are reduced only within a worker. */
static inline bool shards_have_workers(const Shards *shards) {
    return shards->spec.outer.every > 0;
}

/* Whether the optimizer keeps fp32 masters of 16-bit parameters, and whether it stores only their lower
 * halves. Outer steps need whole fp32 values. */
static inline bool shards_have_masters(const Shards *shards) {
    return shards->spec.dtype != DT_F32;
}
static inline bool shards_have_halves(const Shards *shards) {
    const ShardSpec *spec = &shards->spec;
    return spec->train && spec->dtype == DT_BF16 && !shards_have_workers(shards);
}

/* Whether a unit has masters. */
static inline bool unit_has_master(const Shards *shards, const ShardUnit *unit) {
    return shards_have_masters(shards) && !(shards->spec.rounded && unit->layout.frozen);
}

/* Frozen matrices in blocks (shard_base.c): the elements of a unit that have codes, 0 if none have; the
 * memory for `count` elements if `coded` of them have codes; where those without are; and decoding the
 * shard. */
int64_t base_coded(const ShardSpec *spec, const Unit *layout);
size_t base_bytes(const ShardSpec *spec, int64_t coded, int64_t count);
void *base_plain(const Shards *shards, const ShardUnit *unit);
MUST_USE Status base_decode(Shards *shards, const ShardUnit *unit, Tensor to);

static inline size_t shard_bytes(int64_t count, DType dtype) {
    return (size_t)count * dtype_size(dtype);
}
/* Whether tensor-parallel ranks have partial sums of the gradient of a parameter that each of them has whole:
 * with sequence parallelism, those that sum over rows (norms, biases). */
static inline bool shard_sums_partially(const ShardSpec *spec, const ParamDesc *desc) {
    return desc->partial || (spec->sequence && desc->per_row);
}

/* Whether each rank holds all parameters but updates only its shard of them. */
static inline bool shards_gather_params(const Shards *shards) {
    return shards->spec.optimizer && !shards->spec.params;
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

/* Whether gradients of a unit are summed over its replica group in every step. */
static inline bool shard_has_replicas(const Shards *shards, const ShardUnit *unit) {
    return unit->groups.replica->size > 1 && !shards_have_workers(shards);
}
/* Whether a gradient leaves this rank, in a type other than fp32. */
static inline bool shard_has_wire(const Shards *shards, const ShardUnit *unit) {
    return shards->spec.grad_type != GRAD_FP32 &&
           (unit->groups.shard->size > 1 || shard_has_replicas(shards, unit));
}
/* Assigns the units their sums of squares. */
void shards_assign_sums(Shards *shards);
/* Adds a unit's gradient to the sketch of its next micro-batch, if sketches are wanted. Call when the
 * gradient is complete for that micro-batch, before it is reduced. */
MUST_USE Status shard_sketch(Shards *shards, ShardUnit *unit, float *grad);
/* Waits for reductions, the oldest first, until an arena has room. */
MUST_USE Status shards_make_room(Shards *shards, const Arena *arena, size_t bytes);
/* Starts to reduce the gradient `all` of a unit, which may then be overwritten. */
MUST_USE Status wire_start(Shards *shards, ShardUnit *unit, Tensor all);
/* Completes it: writes the sum to `here`, this rank's part or everything, or adds it. */
MUST_USE Status wire_finish(Shards *shards, ShardUnit *unit, Tensor here, bool adds);
/* Memory for what travels of a unit. */
size_t wire_bytes(const Shards *shards, const ShardUnit *unit);
/* Allocates what a unit keeps between steps. */
MUST_USE Status wire_alloc(Shards *shards, ShardUnit *unit);

/* A part in int8 and its scales as they travel, padded. Messages follow one another in memory: those to all
 * ranks of a group, then those from all. wire_swap sends and receives them, with two tickets for each rank;
 * the first two are not used. */
typedef struct WireMessage {
    Tensor all, q, scales;
} WireMessage;

size_t wire_message(int64_t part); /* bytes */
WireMessage wire_message_at(void *messages, int at, int64_t part);
MUST_USE Status wire_swap(Group *group, Stream *stream, void *messages, int64_t part, Ticket *tickets);

/* Sums outer gradients over the workers (shard_outer_sum.c). `own` has outer_sum_size elements, those that a
 * unit does not have being zero; units begin at multiples of outer_sum_align. In int8, the sum takes two
 * exchanges, and outer_sum_return starts the second. outer_sum_finish writes the sum to `own`, which is
 * undefined until then, except with an overlap. outer_sum_residual is what this worker has not sent; absent
 * if it has sent everything. */
typedef struct OuterSum OuterSum;
MUST_USE Status outer_sum_new(OuterSum **ret_sum, const Shards *shards, int64_t most);
void outer_sum_free(OuterSum *sum);
DEFINE_FREEP(OuterSum, outer_sum)
int64_t outer_sum_align(const Shards *shards);
int64_t outer_sum_size(const Shards *shards, int64_t count);
MUST_USE Status outer_sum_start(OuterSum *sum, Tensor own, int fragment);
MUST_USE Status outer_sum_return(OuterSum *sum);
MUST_USE Status outer_sum_finish(OuterSum *sum, Tensor own);
Tensor outer_sum_residual(const OuterSum *sum);
MUST_USE Status outer_sum_wait(OuterSum *sum);
void outer_sum_forget(OuterSum *sum);

/* Divides the units into fragments and allocates the exchange. Call after the units are allocated. */
MUST_USE Status outer_new(Shards *shards, const ParamList *units);
void outer_free(struct Outer *outer);

#endif
