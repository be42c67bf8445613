/* Sketches of the micro-batches' gradients, from which shards_norm computes how much these differ. */
#include "base/memory.h"
#include "base/rng.h"
#include "parallel/shard_internal.h"

Status shards_probe(Shards *shards, int micros, uint64_t seed) {
    if (micros < 1 || shard_bytes(shards->spec.sketch * micros, DT_F64) > shards->sketch.bytes)
        return FAILED("internal: no memory to sketch %d micro-batches", micros);
    shards->probing = micros;
    shards->probe_seed = seed;
    return stream_zero(shards->exec->stream, shards->sketch.data, shards->sketch.bytes);
}

/* The place of a slot's elements in the global parameter. Padding, which is zero, may go anywhere. */
static SketchMap slot_sketch(const ParamSlot *slot, uint64_t key) {
    const ParamDesc *desc = &slot->desc;
    if (desc->split < 0) return (SketchMap){.key = key, .run = slot->count, .group = slot->count};
    int64_t inner = 1;
    for (int i = desc->split + 1; i < desc->ndim; i++) inner *= desc->dim[i];
    int64_t run = slot->dim[desc->split] * inner, group = desc->dim[desc->split] * inner;
    return (SketchMap){
        .key = key, .run = run, .group = group < run ? run : group, .start = slot->start * inner};
}

/* Which of a unit's parameters to sketch. */
typedef enum { SKETCH_ROWS = 1, SKETCH_OTHERS = 2 } SketchParams;

/* Adds the unit's gradient to the sketch of a micro-batch, or subtracts it. Replicated parameters count on
 * the first tensor-parallel rank only; with sequence parallelism, per-row gradients are partial sums, and all
 * ranks count. */
static Status sketch_params(Shards *shards, const ShardUnit *unit, float *grad, int micro, int params,
                            bool subtract) {
    const ShardSpec *spec = &shards->spec;
    Tensor totals = tensor_1d((double *)shards->sketch.data + micro * spec->sketch, DT_F64, spec->sketch);
    for (size_t j = 0; j < unit->layout.count; j++) {
        const ParamSlot *slot = &unit->layout.slot[j];
        bool partial = slot->desc.split >= 0 || shard_sums_partially(spec, &slot->desc);
        if (!(params & (slot->desc.per_row ? SKETCH_ROWS : SKETCH_OTHERS)) || !slot->count) continue;
        if (!partial && spec->tp->rank > 0) continue;
        SketchMap map = slot_sketch(slot, rng_key(shards->probe_seed, slot->desc.name, 0).key);
        map.subtract = subtract;
        TRY(sketch(shards->exec, totals, tensor_1d(grad + slot->offset, DT_F32, slot->count), map));
    }
    return OK;
}

/* Gradients that accumulate over the whole step have cumulative sketches, and shards_read_spread takes
 * differences. A sharded gradient restarts from zero after each reduction, but its per-row gradients may run
 * several micro-batches ahead of the reductions. So what has accumulated here is subtracted from the next
 * micro-batch's sketch in advance; shard_sketch adds it back if a reduction clears the gradient first. */
Status shard_rows_done(Shards *shards, int at) {
    ShardUnit *unit = &shards->unit[at];
    float *grad = NULL;
    if (!shards->probing) return OK;
    int micro = unit->rows_sketched++;
    TRY(shard_grad(shards, at, &grad));
    TRY(sketch_params(shards, unit, grad, micro, SKETCH_ROWS, false));
    if (!shards->spec.grads || micro + 1 == shards->probing) return OK;
    return sketch_params(shards, unit, grad, micro + 1, SKETCH_ROWS, true);
}

Status shard_sketch(Shards *shards, ShardUnit *unit, float *grad) {
    if (!shards->probing) return OK;
    int micro = unit->sketched++, rows = unit->rows_sketched;
    TRY(sketch_params(shards, unit, grad, micro, rows ? SKETCH_OTHERS : SKETCH_OTHERS | SKETCH_ROWS, false));
    if (!rows || !shards->spec.grads || rows == shards->probing) return OK;
    return sketch_params(shards, unit, grad, rows, SKETCH_ROWS, false);
}

Status shards_read_spread(Shards *shards, double *ret_spread) {
    const ShardSpec *spec = &shards->spec;
    int64_t size = spec->sketch, all = size * shards->probing, n = shards->probing;
    CLEANUP(mem_freep) double *sketches = NULL;
    CLEANUP(mem_freep) double *sums = NULL; /* the sum of all sketches, and the sum of their squared norms */
    TRY(mem_new((size_t)all, sizeof *sketches, &sketches));
    TRY(mem_new((size_t)size + 1, sizeof *sums, &sums));
    TRY(stream_copy(shards->exec->stream, sketches, shards->sketch.data, shard_bytes(all, DT_F64),
                    COPY_TO_HOST));
    TRY(stream_sync(shards->exec->stream));
    TRY(host_reduce(spec->model, sketches, all, DT_F64, REDUCE_SUM));
    for (int64_t i = all - 1; i >= 0; i--) {
        if (!spec->grads && i >= size) sketches[i] -= sketches[i - size];
        sums[i % size] += sketches[i];
        sums[size] += sketches[i] * sketches[i];
    }
    TRY(host_reduce(spec->shard, sums, size + 1, DT_F64, REDUCE_SUM));
    n *= spec->shard->size;
    if (!shards_have_workers(shards)) {
        TRY(host_reduce(spec->replica, sums, size + 1, DT_F64, REDUCE_SUM));
        n *= spec->replica->size;
    }
    double square = 0;
    for (int64_t i = 0; i < size; i++) square += sums[i] * sums[i];
    *ret_spread = (double)n * sums[size] - square;
    return OK;
}
