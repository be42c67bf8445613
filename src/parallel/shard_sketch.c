/* Sketches of the micro-batches' gradients, from which shards_norm computes how much these differ. */
#include <string.h>

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
    if (desc->split < 0)
        return (SketchMap){.key = key, .run = slot->count, .group = slot->count, .start = slot->skipped};
    int64_t inner = 1;
    for (int i = desc->split + 1; i < desc->ndim; i++) inner *= desc->dim[i];
    int64_t run = slot->dim[desc->split] * inner, group = desc->dim[desc->split] * inner;
    return (SketchMap){.key = key,
                       .run = run,
                       .group = group < run ? run : group,
                       .start = slot->start * inner + slot->skipped};
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

/* Rows of totals of which this rank has some columns. */
typedef struct Columns {
    double *values; /* (rows,width) */
    int64_t rows, width;
} Columns;

static void columns_done(Columns *columns) {
    mem_freep(&columns->values);
}

/* Sums the columns over a group and leaves each of its ranks a part of them. Sums of squares need no more,
 * and an all-reduce would send twice as much. */
static Status scatter_columns(Group *group, Columns *columns) {
    int64_t rows = columns->rows, width = columns->width, part = (width + group->size - 1) / group->size;
    CLEANUP(mem_freep) double *parts = NULL;
    if (group->size == 1) return OK;
    TRY(mem_new((size_t)(group->size * rows * part), sizeof *parts, &parts));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++)
            parts[(i / part * rows + row) * part + i % part] = columns->values[row * width + i];
    columns->width = part;
    return host_reduce_scatter(group, columns->values, parts, rows * part, DT_F64, REDUCE_SUM);
}

/* Sums the sketches of this replica, each from its stages, tensor-parallel ranks and `parts`, which keep some
 * columns each. */
static Status read_sketches(Shards *shards, Columns *ret_sketches) {
    const ShardSpec *spec = &shards->spec;
    int64_t all = spec->sketch * shards->probing, n = shards->probing;
    CLEANUP(columns_done) Columns sketches = {.rows = n, .width = spec->sketch};
    TRY(mem_new((size_t)(all + n * (spec->model->size + spec->parts->size)), sizeof *sketches.values,
                &sketches.values));
    TRY(stream_copy(shards->exec->stream, sketches.values, shards->sketch.data, shard_bytes(all, DT_F64),
                    COPY_TO_HOST));
    TRY(stream_sync(shards->exec->stream));
    TRY(scatter_columns(spec->model, &sketches));
    TRY(scatter_columns(spec->parts, &sketches));
    return MOVE(ret_sketches, sketches);
}

/* Puts this rank's columns of one row in their place among those of the other ranks of `parts`, with zeros
 * there, so that a sum over the data axis adds each column once. */
static Status place_columns(const ShardSpec *spec, Columns *columns) {
    int64_t width = columns->width, parts = spec->parts->size;
    CLEANUP(mem_freep) double *row = NULL;
    if (parts == 1) return OK;
    TRY(mem_new((size_t)(width * parts + spec->data.shard->size), sizeof *row, &row));
    memcpy(row + width * spec->parts->rank, columns->values, (size_t)width * sizeof *row);
    free(columns->values);
    *columns = (Columns){.values = row, .rows = 1, .width = width * parts};
    row = NULL;
    return OK;
}

Status shards_read_spread(Shards *shards, double *ret_spread) {
    const ShardSpec *spec = &shards->spec;
    int64_t n = shards->probing;
    bool workers = shards_have_workers(shards);
    CLEANUP(columns_done) Columns sketches = {0};
    double sums[2] = {0}; /* of the squares of all sketches, and of those of their sum */
    TRY(read_sketches(shards, &sketches));
    double *values = sketches.values;
    int64_t width = sketches.width;
    for (int64_t i = n * width - 1; i >= 0; i--) {
        if (!spec->grads && i >= width) values[i] -= values[i - width];
        sums[0] += values[i] * values[i];
        if (i >= width) continue;
        for (int64_t row = 1; row < n; row++) values[i] += values[row * width + i];
    }
    sketches.rows = 1; /* the sum, of this rank's columns */
    TRY(place_columns(spec, &sketches));
    TRY(scatter_columns(spec->data.shard, &sketches));
    if (!workers) TRY(scatter_columns(spec->data.replica, &sketches));
    for (int64_t i = 0; i < sketches.width; i++) sums[1] += sketches.values[i] * sketches.values[i];
    Group *const groups[] = {spec->model, spec->data.shard, workers ? NULL : spec->data.replica};
    for (int g = 0; g < 3 && groups[g]; g++) TRY(host_reduce(groups[g], sums, 2, DT_F64, REDUCE_SUM));
    n *= spec->data.shard->size * (workers ? 1 : spec->data.replica->size) / spec->parts->size;
    *ret_spread = (double)n * sums[0] - sums[1];
    return OK;
}
