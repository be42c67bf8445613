/* Gradients of the shards: cleared, reduced as soon as they are complete, and their norm.
 *
 * The norm is the sum of one sum of squares per shard, so that it has the same bits in all ZeRO stages. Units
 * with the same groups share these sums, which begin at ShardUnit.norm. With ShardSpec.by_unit, each unit has
 * one sum, so that the order in which units are complete does not matter. */
#include <math.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

/* Trace label for reducing a unit's gradient. */
static const TraceName reduce_name = {.name = "reduce ",
                                      .category = "data",
                                      .color = TRACE_ORANGE,
                                      .number = {"unit", "bytes", "between nodes"},
                                      .numbered = true};

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
        if (end > at) TRY(stream_zero(shards->exec->stream, grad + at, shard_bytes(end - at, DT_F32)));
        at = slot ? end + slot->count : end;
    }
    return OK;
}

/* Whether a gradient is cleared only when backward reaches it: idle threads may still read it for the
 * update. */
static bool begins_late(const Shards *shards) {
    return shards_update_by_unit(shards) && device_is_host(shards->device);
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
        if (!unit_trains(unit) || unit->begun) continue;
        TRY(shard_await_update(shards, i, stream));
        stream->background = shards_background(shards);
        Status status = start_grad(shards, unit, unit->grad.data);
        stream->background = false;
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
        if (!unit_trains(unit)) continue;
        unit->unreduced = true;
        unit->squared = unit->begun = false;
        unit->sketched = unit->rows_sketched = 0;
        if (!shards->spec.grads && !begins_late(shards)) TRY(start_grad(shards, unit, unit->grad.data));
    }
    return OK;
}

/* The reduced gradient on this rank: full or a shard. */
static Tensor reduced(const Shards *shards, const ShardUnit *unit) {
    char *data = unit->grad.data;
    if (!shards->spec.grads) data += shard_bytes(unit->first, DT_F32);
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
    Stream *stream = shards->exec->stream;
    if (!unit->pending) return OK;
    unit->pending = false;
    if (shard_has_wire(shards, unit)) {
        bool adds = unit->adding;
        unit->adding = false;
        return wire_finish(shards, unit, reduced(shards, unit), adds);
    }
    TRY(ticket_wait(stream, &unit->reduce));
    Tensor here = reduced(shards, unit), arrived = unit->adding ? own_part(unit) : here;
    if (shard_has_replicas(shards, unit))
        TRY(all_reduce(unit->groups.replica, stream, arrived, REDUCE_SUM, NULL));
    if (unit->adding) TRY(add(shards->exec, here, arrived));
    unit->adding = false;
    arena_release(&shards->grads, &unit->reducing);
    return OK;
}

Status shards_make_room(Shards *shards, const Arena *arena, size_t bytes) {
    while (!arena_fits(arena, bytes)) {
        ShardUnit *oldest = NULL;
        for (int i = 0; i < shards->all; i++) {
            ShardUnit *unit = &shards->unit[i];
            if (unit->pending && (!oldest || unit->started < oldest->started)) oldest = unit;
        }
        if (!oldest) return OK;
        TRY(complete(shards, oldest));
    }
    return OK;
}

Status shard_grad(Shards *shards, int at, float **ret_grad) {
    ShardUnit *unit = &shards->unit[at];
    if (!shards->spec.grads) {
        *ret_grad = unit->grad.data;
        return begin_late(shards, at);
    }
    if (!unit->full_grad.data) {
        size_t bytes = shard_bytes(unit->layout.numel, DT_F32);
        TRY(shards_make_room(shards, &shards->grads, bytes));
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

/* All-reduces partial sums over `tp`. */
static Status add_rows(Shards *shards, const ShardUnit *unit, float *grad) {
    for (size_t j = 0; j < unit->layout.count; j++) {
        const ParamSlot *slot = &unit->layout.slot[j];
        if (!shard_sums_partially(&shards->spec, &slot->desc)) continue;
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
    unit->adding = !unit->unreduced;
    Tensor to = unit->adding ? own_part(unit) : reduced(shards, unit);
    unit->unreduced = false;
    Group *group = unit->groups.shard;
    comm_label(group, &reduce_name, unit - shards->unit, (int64_t)tensor_bytes(all));
    if (shard_has_wire(shards, unit)) {
        TRY(wire_start(shards, unit, all));
        arena_release(&shards->grads, &unit->reducing);
    } else {
        TRY(reduce_scatter(group, shards->exec->stream, to, all, REDUCE_SUM, &unit->reduce));
    }
    unit->pending = true;
    unit->started = ++shards->started;
    return OK;
}

/* ---- reductions ---- */

Status shard_grad_done(Shards *shards, int at, bool last) {
    ShardUnit *unit = &shards->unit[at];
    const ShardSpec *spec = &shards->spec;
    bool waits = !last && !spec->grads;
    float *grad = NULL;
    TRY(shard_grad(shards, at, &grad));
    TRY(shard_sketch(shards, unit, grad));
    if (waits) return OK;
    TRY(add_rows(shards, unit, grad));
    Tensor all = tensor_1d(grad, DT_F32, unit->layout.numel);
    if (spec->grads) return start_sharded(shards, unit, all);
    unit->unreduced = false;
    Stream *stream = shards->exec->stream;
    Group *group = unit->groups.shard;
    comm_label(group, &reduce_name, at, (int64_t)tensor_bytes(all));
    if (shard_has_wire(shards, unit)) TRY(wire_start(shards, unit, all));
    unit->pending = true;
    unit->started = ++shards->started;
    if (shard_has_wire(shards, unit)) return OK;
    if (!spec->optimizer) return all_reduce(group, stream, all, REDUCE_SUM, &unit->reduce);
    return reduce_scatter(group, stream, reduced(shards, unit), all, REDUCE_SUM, &unit->reduce);
}

Status shard_piece_done(Shards *shards, int at, int micro) {
    shards->unit[at].sketched = micro;
    return shard_grad_done(shards, at, true);
}

Status shards_finish(Shards *shards) {
    for (int i = 0; i < shards->all; i++) TRY(complete(shards, &shards->unit[i]));
    for (int i = shards->all - 1; i >= 0; i--) {
        ShardUnit *unit = &shards->unit[i];
        if (!unit_trains(unit)) continue;
        TRY(begin_late(shards, i));
        if (unit->unreduced && shards->spec.grads && !unit->pieces)
            TRY(stream_zero(shards->exec->stream, unit->grad.data, unit->grad.bytes));
        if (unit->twin && shards->spec.ends->size > 1)
            TRY(all_reduce(shards->spec.ends, shards->exec->stream, reduced(shards, unit), REDUCE_SUM, NULL));
    }
    return OK;
}

/* ---- norm ---- */

/* The first unit with the same groups, which share their sums. */
static int first_alike(const Shards *shards, int at) {
    const ShardGroups *groups = &shards->unit[at].groups;
    for (int i = 0; i < at; i++) {
        const ShardGroups *other = &shards->unit[i].groups;
        if (groups->shard == other->shard && groups->others == other->others) return i;
    }
    return at;
}

void shards_assign_sums(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        int first = shards->spec.by_unit ? i : first_alike(shards, i);
        shards->unit[i].norm = first < i ? shards->unit[first].norm : shards->sums;
        if (first == i) shards->sums += shards->unit[i].groups.shard->size;
    }
}

/* Adds the squares of a range to the sum of each shard it overlaps: all shards, or only the local one. */
static Status add_range(Shards *shards, const ShardUnit *unit, const UnitRange *range) {
    const ShardSpec *spec = &shards->spec;
    int size = unit->groups.shard->size;
    int64_t share = unit->layout.numel / size, base = spec->grads ? unit->first : 0, first, count;
    Tensor sums = tensor_1d((double *)shards->norm.data + unit->norm, DT_F64, size);
    float *grad = unit->grad.data;
    if (!spec->optimizer && size > 1)
        return sum_squares_parts(shards->exec, sums, tensor_1d(grad + range->first, DT_F32, range->count),
                                 range->first, share);
    if (!range_overlap(range, unit->first, unit->count, &first, &count)) return OK;
    return sum_squares(shards->exec, tensor_slice(sums, unit->first / share, 1),
                       tensor_1d(grad + (first - base), DT_F32, count));
}

/* Replicated parameters count on the first tensor-parallel rank only. That rank adds a unit as a whole;
 * padding is 0. */
static Status add_squares(Shards *shards) {
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        const UnitRange whole = {.count = unit->layout.numel};
        if (!unit_trains(unit) || !unit->counted || unit->squared) continue;
        if (shards->spec.tp->rank == 0) TRY(add_range(shards, unit, &whole));
        for (int k = 0; shards->spec.tp->rank > 0 && k < UNIT_RANGES; k++) {
            const UnitRange *range = &unit->layout.range[k];
            if (range->split) TRY(add_range(shards, unit, range));
        }
    }
    return OK;
}

bool shards_background(const Shards *shards) {
    return device_is_host(shards->device) && !shards->exec->profile;
}

Status shards_norm_start(Shards *shards) {
    return add_squares(shards);
}

Status shard_square(Shards *shards, int at) {
    ShardUnit *unit = &shards->unit[at];
    const UnitRange whole = {.count = unit->layout.numel};
    unit->squared = true;
    shards->exec->stream->background = shards_background(shards);
    Status status = add_range(shards, unit, &whole);
    shards->exec->stream->background = false;
    return status;
}

/* Adds the squares of all units with the same groups, whose sums on this rank are `sums`. */
static Status add_sums(const Shards *shards, const ShardGroups *groups, double *sums, double *total) {
    int size = groups->shard->size;
    bool others = groups->others && groups->others->size > 1;
    double all = 0;
    if (shards->spec.optimizer) TRY(host_reduce(groups->shard, sums, size, DT_F64, REDUCE_SUM));
    for (int part = 0; part < size; part++) all += sums[part];
    if (others) TRY(host_reduce(groups->others, &all, 1, DT_F64, REDUCE_SUM));
    *total += all;
    return OK;
}

Status shards_norm(Shards *shards, double *ret_norm, double *ret_spread) {
    Stream *stream = shards->exec->stream;
    CLEANUP(mem_freep) double *sums = NULL;
    TRY(mem_new((size_t)shards->sums, sizeof *sums, &sums));
    TRY(stream_copy(stream, sums, shards->norm.data, shards->norm.bytes, COPY_TO_HOST));
    TRY(stream_sync(stream));
    double total = 0, spread = NAN;
    for (int i = 0, done = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        if (unit->norm < done) continue;
        TRY(add_sums(shards, &unit->groups, &sums[unit->norm], &total));
        done = unit->norm + unit->groups.shard->size;
    }
    TRY(host_reduce(shards->spec.model, &total, 1, DT_F64, REDUCE_SUM));
    if (shards->probing) TRY(shards_read_spread(shards, &spread));
    *ret_norm = sqrt(total);
    *ret_spread = spread;
    return OK;
}
