#include "parallel/shard.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "parallel/shard_internal.h"

void shard_stage(ShardSpec *spec, int zero) {
    spec->optimizer = zero >= 1;
    spec->grads = zero >= 2;
    spec->params = zero >= 3;
}

const char *const grad_type_names[] = {"fp32", "bf16", "int8", NULL};
const char *const offload_names[] = {"none", "optimizer", "params", NULL};

/* Trace labels for gathering a unit's parameters and reducing its gradient. */
static const TraceName gather_name = {.name = "gather ",
                                      .category = "data",
                                      .color = TRACE_BLUE,
                                      .number = {"unit", "bytes", "between nodes"},
                                      .numbered = true};
static const TraceName reduce_name = {.name = "reduce ",
                                      .category = "data",
                                      .color = TRACE_ORANGE,
                                      .number = {"unit", "bytes", "between nodes"},
                                      .numbered = true};

/* ---- memory ---- */

static size_t bytes_of(int64_t count, DType dtype) {
    return (size_t)count * dtype_size(dtype);
}

Status shard_place(Device *device, bool away, MemTag tag, size_t bytes, Buffer *ret_buffer) {
    return away ? dev_alloc_host(device, bytes, ret_buffer) : dev_alloc(device, tag, bytes, ret_buffer);
}

static Status unit_alloc(Shards *shards, ShardUnit *unit) {
    const ShardSpec *spec = &shards->spec;
    Device *device = shards->device;
    int64_t all = unit->layout.numel, part = all / spec->shard->size;
    bool cut = spec->optimizer || spec->params;
    bool params_away = spec->offload == OFFLOAD_PARAMS, state_away = spec->offload != OFFLOAD_NONE;
    unit->first = cut ? part * spec->shard->rank : 0;
    unit->count = cut ? part : all;
    TRY(shard_place(device, params_away, MEM_PARAMS, bytes_of(spec->params ? part : all, spec->dtype),
                    &unit->param));
    if (shards_have_masters(shards))
        TRY(shard_place(device, state_away, spec->train ? MEM_OPTIMIZER : MEM_PARAMS,
                        bytes_of(unit->count, shards_have_halves(shards) ? DT_REST : DT_F32), &unit->master));
    if (!spec->train) return OK;
    TRY(dev_alloc(device, MEM_GRADS, bytes_of(spec->grads ? part : all, DT_F32), &unit->grad));
    TRY(shard_spans(unit, &spec->optim));
    for (int k = 0; k < optim_states(&spec->optim); k++) {
        int64_t end = unit->first + unit->count,
                first = unit->state_first[k] > unit->first ? unit->state_first[k] : unit->first;
        size_t bytes = first < end ? bytes_of(end - first, DT_F32) : 0;
        TRY(shard_place(device, state_away, MEM_OPTIMIZER, bytes, &unit->state[k]));
    }
    TRY(wire_alloc(shards, unit));
    if (!shards_have_workers(shards)) return OK;
    TRY(shard_place(device, state_away, MEM_OPTIMIZER, bytes_of(unit->count, DT_F32), &unit->outer));
    return shard_place(device, state_away, MEM_OPTIMIZER, bytes_of(unit->count, DT_F32),
                       &unit->outer_momentum);
}

/* The parts of a unit's buffers that belong to a piece. */
static Status piece_init(Shards *shards, const ShardUnit *unit, int at, ShardUnit *piece) {
    TRY(unit_piece(&piece->layout, &unit->layout, at));
    piece->layout.slot[0].desc.overwritten = false; /* several blocks add to pieces, in any order */
    int64_t part = piece->layout.numel / shards->spec.shard->size;
    size_t size = dtype_size(shards->spec.dtype), full = dtype_size(DT_F32), here = (size_t)(part * at);
    piece->held = true;
    piece->first = part * shards->spec.shard->rank;
    piece->count = part;
    piece->param = (Buffer){.data = (char *)unit->param.data + here * size, .bytes = (size_t)part * size};
    if (unit->grad.data)
        piece->grad = (Buffer){.data = (char *)unit->grad.data + here * full, .bytes = (size_t)part * full};
    return OK;
}

static Status make_pieces(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held || unit->layout.pieces < 2) continue;
        unit->pieces = unit->layout.pieces;
        unit->piece = shards->all;
        for (int k = 0; k < unit->pieces; k++) TRY(piece_init(shards, unit, k, &shards->unit[shards->all++]));
    }
    return OK;
}

int shard_pieces(const Shards *shards, int at) {
    return shards->unit[at].pieces;
}

int shard_piece(const Shards *shards, int at, int piece) {
    return shards->unit[at].piece + piece;
}

UnitSpec shards_layout(const ShardSpec *spec) {
    return (UnitSpec){spec->tp->rank, spec->tp->size, spec->shard->size, spec->params ? spec->piece : 0};
}

/* Sizes an arena for the two largest units that are gathered as a whole. */
static void make_rooms(Shards *shards) {
    size_t largest = 0, second = 0, size = dtype_size(shards->spec.dtype), full = dtype_size(DT_F32);
    for (int i = 0; i < shards->all; i++) {
        const ShardUnit *unit = &shards->unit[i];
        size_t numel = unit->held && !unit->pieces ? (size_t)unit->layout.numel : 0;
        if (numel > largest)
            second = largest, largest = numel;
        else if (numel > second)
            second = numel;
    }
    arena_init(&shards->params, shards->device, MEM_PARAMS, largest * size, second * size);
    arena_init(&shards->grads, shards->device, MEM_GRADS, largest * full, second * full);
    arena_init(&shards->wire, shards->device, MEM_COMM, wire_bytes(shards, (int64_t)largest),
               wire_bytes(shards, (int64_t)second));
}

static Status units_init(Shards *shards, const ParamList *units, const UnitUse *use, int count) {
    size_t all = 0;
    CLEANUP(mem_freep) Unit *layout = NULL;
    TRY(mem_new((size_t)count, sizeof *layout, &layout));
    Status status = OK;
    for (int i = 0; i < count && !status; i++) {
        status = unit_init(&layout[i], &units[i], shards_layout(&shards->spec));
        all += 1 + (size_t)layout[i].pieces;
    }
    if (!status) status = mem_new(all, sizeof *shards->unit, &shards->unit);
    for (int i = 0; i < count && status; i++) unit_done(&layout[i]);
    TRY(status);
    shards->count = shards->all = count;
    for (int i = 0; i < count; i++) {
        ShardUnit *unit = &shards->unit[i];
        unit->layout = layout[i];
        unit->held = use[i].held && unit->layout.numel > 0;
        unit->twin = use[i].twin;
        unit->block = use[i].block;
        unit->counted = use[i].counted;
    }
    for (int i = 0; i < count; i++)
        if (shards->unit[i].held) TRY(unit_alloc(shards, &shards->unit[i]));
    return make_pieces(shards);
}

/* Sums of squares that are added up, in order, to the norm. With one for each unit, the order in which units
 * are complete does not matter. */
static int norm_sums(const Shards *shards) {
    return shards->spec.apart ? shards->count : shards->spec.shard->size;
}

Status shards_new(Shards **ret_shards, Exec *exec, const ShardSpec *spec, const ParamList *units,
                  const UnitUse *use, int count) {
    CLEANUP(shards_freep) Shards *shards = NULL;
    TRY(mem_new(1, sizeof *shards, &shards));
    shards->spec = *spec;
    shards->device = exec->stream->device;
    shards->exec = exec;
    TRY(units_init(shards, units, use, count));
    make_rooms(shards);
    if (spec->offload == OFFLOAD_PARAMS) TRY(stream_new(&shards->bring, shards->device));
    if (spec->train) {
        TRY(dev_alloc(shards->device, MEM_OPTIMIZER, (size_t)norm_sums(shards) * sizeof(double),
                      &shards->norm));
        TRY(matrices_new(&shards->matrices, shards));
        if (shards_have_workers(shards)) TRY(outer_new(shards, units));
    }
    TRY(dev_alloc(shards->device, MEM_SCRATCH, bytes_of(spec->sketch * spec->micros, DT_F64),
                  &shards->sketch));
    *ret_shards = shards;
    shards = NULL;
    return OK;
}

void shards_free(Shards *shards) {
    if (!shards) return;
    for (int i = 0; i < shards->all; i++) {
        ShardUnit *unit = &shards->unit[i];
        Buffer *const buffers[] = {&unit->param,    &unit->master, &unit->grad,
                                   &unit->residual, &unit->outer,  &unit->outer_momentum};
        for (size_t k = 0; i < shards->count && k < sizeof buffers / sizeof *buffers; k++)
            dev_free(buffers[k]);
        for (int k = 0; k < OPTIM_STATES; k++) dev_free(&unit->state[k]);
        free(unit->span);
        free(unit->messages);
        stream_event_free(shards->device, unit->updated);
        arena_release(&shards->params, &unit->full);
        arena_release(&shards->grads, &unit->full_grad);
        arena_release(&shards->grads, &unit->reducing);
        arena_release(&shards->wire, &unit->wire);
        unit_done(&unit->layout);
    }
    arena_done(&shards->params);
    arena_done(&shards->grads);
    arena_done(&shards->wire);
    matrices_free(shards->matrices);
    outer_free(shards->outer);
    dev_free(&shards->norm);
    dev_free(&shards->sketch);
    stream_free(shards->bring);
    free(shards->unit);
    free(shards);
}

static Status clear(Stream *stream, const Buffer *buffer) {
    return buffer->bytes ? stream_zero(stream, buffer->data, buffer->bytes) : OK;
}

Status shards_clear(Shards *shards) {
    Stream *stream = shards->exec->stream;
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        TRY(clear(stream, &unit->param));
        TRY(clear(stream, &unit->master));
        TRY(clear(stream, &unit->grad));
        for (int k = 0; k < OPTIM_STATES; k++) TRY(clear(stream, &unit->state[k]));
        TRY(clear(stream, &unit->residual));
        TRY(clear(stream, &unit->outer));
        TRY(clear(stream, &unit->outer_momentum));
    }
    return OK;
}

/* ---- parameters ---- */

char *shard_param_at(const Shards *shards, const ShardUnit *unit, int64_t first) {
    return (char *)unit->param.data +
           bytes_of(shards->spec.params ? first - unit->first : first, shards->spec.dtype);
}

Tensor shard_master(const Shards *shards, int at) {
    const ShardUnit *unit = &shards->unit[at];
    void *data =
        shards_have_masters(shards) ? unit->master.data : (void *)shard_param_at(shards, unit, unit->first);
    return tensor_1d(data, DT_F32, unit->held ? unit->count : 0);
}

Values shard_values(const Shards *shards, int at) {
    const ShardUnit *unit = &shards->unit[at];
    if (!shards_have_halves(shards)) return (Values){.data = shard_master(shards, at).data};
    return (Values){shard_param_at(shards, unit, unit->first), unit->master.data};
}

Tensor shard_state(const Shards *shards, int at, int state, int64_t *ret_first) {
    const ShardUnit *unit = &shards->unit[at];
    int64_t count = (int64_t)(unit->state[state].bytes / dtype_size(DT_F32));
    *ret_first = unit->first + unit->count - count;
    return tensor_1d(unit->state[state].data, DT_F32, count);
}

Status shard_publish_unit(Shards *shards, ShardUnit *unit) {
    const ShardSpec *spec = &shards->spec;
    if (!shards_gather_params(shards)) return OK;
    Tensor all = tensor_1d(unit->param.data, spec->dtype, unit->layout.numel);
    Tensor part = tensor_1d(shard_param_at(shards, unit, unit->first), spec->dtype, unit->count);
    comm_label(spec->shard, &gather_name, (int)(unit - shards->unit), (int64_t)tensor_bytes(all));
    return all_gather(spec->shard, shards->exec->stream, all, part, &unit->gather);
}

Status shards_publish_finish(Shards *shards) {
    for (int i = 0; i < shards->count; i++)
        if (shards->unit[i].held) TRY(ticket_wait(shards->exec->stream, &shards->unit[i].gather));
    return OK;
}

Status shards_publish(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        if (shards_have_masters(shards) && !shards_have_halves(shards)) {
            Tensor part =
                tensor_1d(shard_param_at(shards, unit, unit->first), shards->spec.dtype, unit->count);
            TRY(convert(shards->exec, part, shard_master(shards, i)));
            if (!shards->spec.train) dev_free(&unit->master);
        }
        TRY(shard_publish_unit(shards, unit));
    }
    return shards_publish_finish(shards);
}

/* Copies this rank's shard of offloaded parameters into the gathered buffer, after earlier work on the stream
 * that may still use that memory. */
static Status bring_part(Shards *shards, ShardUnit *unit, Tensor *part) {
    Stream *stream = shards->exec->stream;
    char *to = (char *)unit->full.data + bytes_of(unit->first, shards->spec.dtype);
    TRY(stream_wait(shards->bring, stream));
    TRY(stream_copy(shards->bring, to, part->data, tensor_bytes(*part), COPY_TO_DEVICE));
    part->data = to;
    unit->brought = true;
    /* The all-gather reads this shard immediately. */
    return shards->spec.shard->size > 1 ? stream_wait(stream, shards->bring) : OK;
}

Status shard_fetch(Shards *shards, int at, bool must) {
    ShardUnit *unit = &shards->unit[at];
    const ShardSpec *spec = &shards->spec;
    if (!spec->params || !unit->held || unit->full.data) return OK;
    size_t bytes = bytes_of(unit->layout.numel, spec->dtype);
    if (!must && !arena_fits(&shards->params, bytes)) return OK;
    TRY(arena_alloc(&shards->params, bytes, &unit->full));
    Tensor part = tensor_1d(unit->param.data, spec->dtype, unit->count);
    if (shards->bring) TRY(bring_part(shards, unit, &part));
    comm_label(spec->shard, &gather_name, at, (int64_t)bytes);
    return all_gather(spec->shard, shards->exec->stream,
                      tensor_1d(unit->full.data, spec->dtype, unit->layout.numel), part, &unit->gather);
}

Status shard_ready(Shards *shards, int at, void **ret_params) {
    ShardUnit *unit = &shards->unit[at];
    TRY(shard_fetch(shards, at, true));
    TRY(ticket_wait(shards->exec->stream, &unit->gather));
    if (device_is_host(shards->device)) TRY(shard_await_update(shards, at, shards->exec->stream));
    if (unit->brought) TRY(stream_wait(shards->exec->stream, shards->bring));
    unit->brought = false;
    *ret_params = shards->spec.params ? unit->full.data : unit->param.data;
    return OK;
}

void shard_release(Shards *shards, int at) {
    arena_release(&shards->params, &shards->unit[at].full);
}

/* ---- gradients ---- */

/* The first `overwritten` parameter from element `at` on; NULL: none. */
static const ParamSlot *next_overwritten(const Unit *layout, int64_t at) {
    const ParamSlot *next = NULL;
    for (size_t i = 0; i < layout->count; i++) {
        const ParamSlot *slot = &layout->slot[i];
        if (slot->desc.overwritten && slot->count && slot->offset >= at &&
            (!next || slot->offset < next->offset))
            next = slot;
    }
    return next;
}

/* Clears a full gradient and its padding, except for `overwritten` parameters. */
static Status start_grad(Shards *shards, ShardUnit *unit, float *grad) {
    const Unit *layout = &unit->layout;
    unit->unwritten = true;
    unit->begun = true;
    for (int64_t at = 0; at < layout->numel;) {
        const ParamSlot *slot = next_overwritten(layout, at);
        int64_t end = slot ? slot->offset : layout->numel;
        if (end > at) TRY(stream_zero(shards->exec->stream, grad + at, bytes_of(end - at, DT_F32)));
        at = slot ? end + slot->count : end;
    }
    return OK;
}

/* Whether a gradient is cleared only when backward reaches it: idle threads may still read it for the
 * update. */
static bool begins_late(const Shards *shards) {
    return shards_update_apart(shards) && device_is_host(shards->device);
}

/* `updated` also covers a clear that was left to idle threads. */
static Status begin_late(Shards *shards, int at) {
    ShardUnit *unit = &shards->unit[at];
    if (!begins_late(shards)) return OK;
    TRY(shard_await_update(shards, at, shards->exec->stream));
    return unit->begun ? OK : start_grad(shards, unit, unit->grad.data);
}

Status shards_clear_ahead(Shards *shards) {
    Stream *stream = shards->exec->stream;
    for (int i = 0; begins_late(shards) && i < shards->count; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held || unit->begun) continue;
        TRY(shard_await_update(shards, i, stream));
        stream->leaves = shards_leave(shards);
        Status status = start_grad(shards, unit, unit->grad.data);
        stream->leaves = false;
        TRY(status);
        TRY(stream_event_record(stream, &unit->updated));
    }
    return OK;
}

Status shards_begin(Shards *shards) {
    shards->probing = 0;
    TRY(stream_zero(shards->exec->stream, shards->norm.data, shards->norm.bytes));
    for (int i = 0; i < shards->all; i++) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        unit->fresh = true;
        unit->squared = unit->begun = false;
        unit->sketched = unit->rows_sketched = 0;
        if (!shards->spec.grads && !begins_late(shards)) TRY(start_grad(shards, unit, unit->grad.data));
    }
    return OK;
}

/* The reduced gradient on this rank: full or a shard. */
static Tensor reduced(const Shards *shards, const ShardUnit *unit) {
    char *data = unit->grad.data;
    if (!shards->spec.grads) data += bytes_of(unit->first, DT_F32);
    return tensor_1d(data, DT_F32, unit->count);
}

Tensor shard_gradient(const Shards *shards, int at) {
    return reduced(shards, &shards->unit[at]);
}

/* This rank's part of the reduction's input. */
static Tensor own_part(const ShardUnit *unit) {
    return tensor_1d((float *)unit->reducing.data + unit->first, DT_F32, unit->count);
}

/* Waits for a reduction and accumulates its output. */
static Status complete(Shards *shards, ShardUnit *unit) {
    const ShardSpec *spec = &shards->spec;
    Stream *stream = shards->exec->stream;
    if (!unit->pending) return OK;
    unit->pending = false;
    if (shards_have_wire(shards)) {
        bool adds = unit->adding;
        unit->adding = false;
        return wire_finish(shards, unit, reduced(shards, unit), adds);
    }
    TRY(ticket_wait(stream, &unit->reduce));
    Tensor here = reduced(shards, unit), arrived = unit->adding ? own_part(unit) : here;
    if (spec->replica->size > 1 && !shards_have_workers(shards))
        TRY(all_reduce(spec->replica, stream, arrived, REDUCE_SUM, NULL));
    if (unit->adding) TRY(add(shards->exec, here, arrived));
    unit->adding = false;
    arena_release(&shards->grads, &unit->reducing);
    return OK;
}

Status shards_complete(Shards *shards) {
    for (int i = 0; i < shards->all; i++) TRY(complete(shards, &shards->unit[i]));
    return OK;
}

Status shard_grad(Shards *shards, int at, float **ret_grad) {
    ShardUnit *unit = &shards->unit[at];
    if (!shards->spec.grads) {
        *ret_grad = unit->grad.data;
        return begin_late(shards, at);
    }
    if (!unit->full_grad.data) {
        size_t bytes = bytes_of(unit->layout.numel, DT_F32);
        if (!arena_fits(&shards->grads, bytes)) TRY(shards_complete(shards));
        TRY(arena_alloc(&shards->grads, bytes, &unit->full_grad));
        TRY(start_grad(shards, unit, unit->full_grad.data));
    }
    *ret_grad = unit->full_grad.data;
    return OK;
}

bool shard_is_unwritten(const Shards *shards, int at) {
    return shards->unit[at].unwritten;
}

void shard_written(Shards *shards, int at) {
    shards->unit[at].unwritten = false;
}

/* Whether tensor-parallel ranks have partial sums of the gradient of a parameter that each of them has whole:
 * with sequence parallelism, those that sum over rows (norms, biases). */
static bool has_partial_sums(const ShardSpec *spec, const ParamDesc *desc) {
    return desc->partial || (spec->sequence && desc->per_row);
}

/* All-reduces partial sums over `tp`. */
static Status add_rows(Shards *shards, const ShardUnit *unit, float *grad) {
    for (size_t j = 0; j < unit->layout.count; j++) {
        const ParamSlot *slot = &unit->layout.slot[j];
        if (!has_partial_sums(&shards->spec, &slot->desc)) continue;
        TRY(all_reduce(shards->spec.tp, shards->exec->stream,
                       tensor_1d(grad + slot->offset, DT_F32, slot->count), REDUCE_SUM, NULL));
    }
    return OK;
}

/* Reduce-scatters a sharded gradient: the first one directly into the shard, later ones in place, to be added
 * to it. */
static Status start_sharded(Shards *shards, ShardUnit *unit, Tensor all) {
    TRY(complete(shards, unit));
    unit->reducing = unit->full_grad;
    unit->full_grad = (Buffer){0};
    unit->adding = !unit->fresh;
    Tensor to = unit->adding ? own_part(unit) : reduced(shards, unit);
    unit->fresh = false;
    comm_label(shards->spec.shard, &reduce_name, unit - shards->unit, (int64_t)tensor_bytes(all));
    if (shards_have_wire(shards)) {
        TRY(wire_start(shards, unit, all));
        arena_release(&shards->grads, &unit->reducing);
    } else {
        TRY(reduce_scatter(shards->spec.shard, shards->exec->stream, to, all, REDUCE_SUM, &unit->reduce));
    }
    unit->pending = true;
    return OK;
}

/* ---- sketches of the micro-batches' gradients ---- */

Status shards_probe(Shards *shards, int micros, uint64_t seed) {
    if (micros < 1 || bytes_of(shards->spec.sketch * micros, DT_F64) > shards->sketch.bytes)
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
        bool partial = slot->desc.split >= 0 || has_partial_sums(spec, &slot->desc);
        if (!(params & (slot->desc.per_row ? SKETCH_ROWS : SKETCH_OTHERS)) || !slot->count) continue;
        if (!partial && spec->tp->rank > 0) continue;
        SketchMap map = slot_sketch(slot, rng_key(shards->probe_seed, slot->desc.name, 0).key);
        map.subtract = subtract;
        TRY(sketch(shards->exec, totals, tensor_1d(grad + slot->offset, DT_F32, slot->count), map));
    }
    return OK;
}

/* Gradients that accumulate over the whole step have cumulative sketches, and read_spread takes differences.
 * A sharded gradient restarts from zero after each reduction, but its per-row gradients may run several
 * micro-batches ahead of the reductions. So what has accumulated here is subtracted from the next
 * micro-batch's sketch in advance; sketch_unit adds it back if a reduction clears the gradient first. */
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

/* Call when the unit's gradient is complete for a micro-batch, before it is reduced. */
static Status sketch_unit(Shards *shards, ShardUnit *unit, float *grad) {
    if (!shards->probing) return OK;
    int micro = unit->sketched++, rows = unit->rows_sketched;
    TRY(sketch_params(shards, unit, grad, micro, rows ? SKETCH_OTHERS : SKETCH_OTHERS | SKETCH_ROWS, false));
    if (!rows || !shards->spec.grads || rows == shards->probing) return OK;
    return sketch_params(shards, unit, grad, rows, SKETCH_ROWS, false);
}

/* Reads the sketches; see shards_norm. */
static Status read_spread(Shards *shards, double *ret_spread) {
    const ShardSpec *spec = &shards->spec;
    int64_t size = spec->sketch, all = size * shards->probing, n = shards->probing;
    CLEANUP(mem_freep) double *sketches = NULL;
    CLEANUP(mem_freep) double *sums = NULL; /* the sum of all sketches, and the sum of their squared norms */
    TRY(mem_new((size_t)all, sizeof *sketches, &sketches));
    TRY(mem_new((size_t)size + 1, sizeof *sums, &sums));
    TRY(stream_copy(shards->exec->stream, sketches, shards->sketch.data, bytes_of(all, DT_F64),
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

/* ---- reductions ---- */

Status shard_grad_done(Shards *shards, int at, bool last) {
    ShardUnit *unit = &shards->unit[at];
    const ShardSpec *spec = &shards->spec;
    bool waits = !last && !spec->grads;
    float *grad = NULL;
    TRY(shard_grad(shards, at, &grad));
    TRY(sketch_unit(shards, unit, grad));
    if (waits) return OK;
    TRY(add_rows(shards, unit, grad));
    Tensor all = tensor_1d(grad, DT_F32, unit->layout.numel);
    if (spec->grads) return start_sharded(shards, unit, all);
    unit->fresh = false;
    Stream *stream = shards->exec->stream;
    comm_label(spec->shard, &reduce_name, at, (int64_t)tensor_bytes(all));
    if (shards_have_wire(shards)) TRY(wire_start(shards, unit, all));
    unit->pending = true;
    if (shards_have_wire(shards)) return OK;
    if (!spec->optimizer) return all_reduce(spec->shard, stream, all, REDUCE_SUM, &unit->reduce);
    return reduce_scatter(spec->shard, stream, reduced(shards, unit), all, REDUCE_SUM, &unit->reduce);
}

Status shard_piece_done(Shards *shards, int at, int micro) {
    shards->unit[at].sketched = micro;
    return shard_grad_done(shards, at, true);
}

Status shards_finish(Shards *shards) {
    TRY(shards_complete(shards));
    for (int i = shards->all - 1; i >= 0; i--) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        TRY(begin_late(shards, i));
        if (unit->fresh && shards->spec.grads && !unit->pieces)
            TRY(stream_zero(shards->exec->stream, unit->grad.data, unit->grad.bytes));
        if (unit->twin && shards->spec.ends->size > 1)
            TRY(all_reduce(shards->spec.ends, shards->exec->stream, reduced(shards, unit), REDUCE_SUM, NULL));
    }
    return OK;
}

/* Adds the squares of a range to the sum of each shard it overlaps: all shards, or only the local one. */
static Status add_range(Shards *shards, const ShardUnit *unit, const UnitRange *range) {
    const ShardSpec *spec = &shards->spec;
    int size = spec->shard->size;
    int64_t share = unit->layout.numel / size, base = spec->grads ? unit->first : 0, first, count;
    Tensor sums = tensor_1d(shards->norm.data, DT_F64, norm_sums(shards));
    float *grad = unit->grad.data;
    int64_t slot = spec->apart ? unit - shards->unit : unit->first / share;
    if (!spec->optimizer && size > 1)
        return sum_squares_parts(shards->exec, sums, tensor_1d(grad + range->first, DT_F32, range->count),
                                 range->first, share);
    if (!range_overlap(range, unit->first, unit->count, &first, &count)) return OK;
    return sum_squares(shards->exec, tensor_slice(sums, slot, 1),
                       tensor_1d(grad + (first - base), DT_F32, count));
}

/* Replicated parameters count on the first tensor-parallel rank only. That rank adds a unit as a whole;
 * padding is 0. */
static Status add_squares(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        const UnitRange whole = {.count = unit->layout.numel};
        if (!unit->held || !unit->counted || unit->squared) continue;
        if (shards->spec.tp->rank == 0) TRY(add_range(shards, unit, &whole));
        for (int k = 0; shards->spec.tp->rank > 0 && k < UNIT_RANGES; k++) {
            const UnitRange *range = &unit->layout.range[k];
            if (range->split) TRY(add_range(shards, unit, range));
        }
    }
    return OK;
}

bool shards_leave(const Shards *shards) {
    return device_is_host(shards->device) && !shards->exec->profile;
}

Status shards_norm_start(Shards *shards) {
    return add_squares(shards);
}

Status shard_square(Shards *shards, int at) {
    ShardUnit *unit = &shards->unit[at];
    const UnitRange whole = {.count = unit->layout.numel};
    unit->squared = true;
    shards->exec->stream->leaves = shards_leave(shards);
    Status status = add_range(shards, unit, &whole);
    shards->exec->stream->leaves = false;
    return status;
}

Status shards_norm(Shards *shards, double *ret_norm, double *ret_spread) {
    const ShardSpec *spec = &shards->spec;
    Stream *stream = shards->exec->stream;
    int size = norm_sums(shards);
    CLEANUP(mem_freep) double *sums = NULL;
    TRY(mem_new((size_t)size, sizeof *sums, &sums));
    TRY(stream_copy(stream, sums, shards->norm.data, shards->norm.bytes, COPY_TO_HOST));
    TRY(stream_sync(stream));
    if (spec->optimizer) TRY(host_reduce(spec->shard, sums, size, DT_F64, REDUCE_SUM));
    double total = 0, spread = NAN;
    for (int part = 0; part < size; part++) total += sums[part];
    TRY(host_reduce(spec->model, &total, 1, DT_F64, REDUCE_SUM));
    if (shards->probing) TRY(read_spread(shards, &spread));
    *ret_norm = sqrt(total);
    *ret_spread = spread;
    return OK;
}
