/* Gradients that travel over the data axis in fewer bits than they are computed in.
 *
 * bf16: gradients are rounded, summed in fp32 and rounded once more (comm/group.h). The sum is the same on
 * all ranks, and the same in all ZeRO stages.
 *
 * int8: every rank owns an equal part of a unit. It receives this part of all other ranks' gradients,
 * quantized with a scale per block, and sums them in rank order in fp32. What quantization leaves over is
 * added to the gradient of the next step (error feedback), so that nothing is lost, only late. Where every
 * rank needs the whole gradient (stage 0), the sums then travel as bf16. A rank's own contribution is
 * quantized like the others', so that a sum does not depend on its owner. A message to an owner has its part
 * of the int8 values, padded, and then the scales.
 *
 * What is smaller than fp32 lives in an arena from the start of a reduction to its end, while backward
 * continues.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

enum { ALIGN = 64 };
_Static_assert(UNIT_BLOCK % QUANT_BLOCK == 0, "blocks must not mix ranges of a unit");

/* Whether a unit, if it is neither a twin nor in pieces, has a residual. The sum over a replica group would
 * need another one. */
static bool has_residual(const Shards *shards, const ShardUnit *unit) {
    return shards->spec.grad_type == GRAD_INT8 && shards->spec.train && unit->groups.shard->size > 1 &&
           !shard_has_replicas(shards, unit);
}

bool shards_have_residual(const Shards *shards) {
    for (int i = 0; i < shards->count; i++)
        if (has_residual(shards, &shards->unit[i])) return true;
    return false;
}

Tensor shard_residual(const Shards *shards, int at) {
    const Buffer *residual = &shards->unit[at].residual;
    return tensor_1d(residual->data, DT_F32, (int64_t)(residual->bytes / sizeof(float)));
}

/* Twins travel as bf16: the first and the last stage would each have a residual, and only one is saved. */
Status wire_alloc(Shards *shards, ShardUnit *unit) {
    if (!has_residual(shards, unit) || unit->layout.pieces > 1 || unit->twin) return OK;
    TRY(mem_new(2 * (size_t)unit->groups.shard->size, sizeof *unit->messages, &unit->messages));
    return dev_alloc(shards->device, MEM_GRADS, (size_t)unit->layout.numel * sizeof(float), &unit->residual);
}

/* ---- sizes ---- */

static size_t padded(int64_t count) {
    return ((size_t)count + ALIGN - 1) / ALIGN * ALIGN;
}

size_t wire_message(int64_t part) {
    return padded(part) + padded(quant_blocks(part) * (int64_t)sizeof(float));
}

/* In int8, the messages to all ranks and from all ranks, which also have space for everything in bf16. */
size_t wire_bytes(const Shards *shards, const ShardUnit *unit) {
    int64_t numel = unit->layout.numel, size = unit->groups.shard->size;
    if (!shard_has_wire(shards, unit)) return 0;
    return has_residual(shards, unit) ? 2 * (size_t)size * wire_message(numel / size)
                                      : (size_t)numel * dtype_size(DT_BF16);
}

static Status open_wire(Shards *shards, ShardUnit *unit) {
    size_t bytes = wire_bytes(shards, unit);
    TRY(shards_make_room(shards, &shards->wire, bytes));
    return arena_alloc(&shards->wire, bytes, &unit->wire);
}

/* ---- bf16 ---- */

static Tensor bf16_of(const ShardUnit *unit) {
    return tensor_1d(unit->wire.data, DT_BF16, unit->layout.numel);
}

/* What this rank has of the sum. */
static Tensor bf16_part(const Shards *shards, const ShardUnit *unit) {
    Tensor all = bf16_of(unit);
    return shards->spec.optimizer ? tensor_slice(all, unit->first, unit->count) : all;
}

static Status start_bf16(Shards *shards, ShardUnit *unit, Tensor all) {
    Group *group = unit->groups.shard;
    Stream *stream = shards->exec->stream;
    Tensor wire = bf16_of(unit);
    TRY(convert(shards->exec, wire, all));
    if (!shards->spec.optimizer) return all_reduce(group, stream, wire, REDUCE_SUM, &unit->reduce);
    return reduce_scatter(group, stream, bf16_part(shards, unit), wire, REDUCE_SUM, &unit->reduce);
}

static Status finish_bf16(Shards *shards, ShardUnit *unit, Tensor here, bool adds) {
    Stream *stream = shards->exec->stream;
    Tensor part = bf16_part(shards, unit);
    TRY(ticket_wait(stream, &unit->reduce));
    if (shard_has_replicas(shards, unit))
        TRY(all_reduce(unit->groups.replica, stream, part, REDUCE_SUM, NULL));
    return adds ? add(shards->exec, here, part) : convert(shards->exec, here, part);
}

/* ---- int8 ---- */

WireMessage wire_message_at(void *messages, int at, int64_t part) {
    char *data = (char *)messages + (size_t)at * wire_message(part);
    return (WireMessage){.all = tensor_1d(data, DT_I8, (int64_t)wire_message(part)),
                         .q = tensor_1d(data, DT_I8, part),
                         .scales = tensor_1d(data + padded(part), DT_F32, quant_blocks(part))};
}

Status wire_swap(Group *group, Stream *stream, void *messages, int64_t part, Ticket *tickets) {
    TRY(comm_batch_begin(group));
    for (int k = 1; k < group->size; k++) {
        int to = (group->rank + k) % group->size, from = (group->rank - k + group->size) % group->size;
        TRY(comm_swap(group, stream, wire_message_at(messages, to, part).all, to,
                      wire_message_at(messages, group->size + from, part).all, from, &tickets[2 * k]));
    }
    return comm_batch_end(group);
}

/* The message to rank `peer`, or from it. */
static WireMessage message_of(const ShardUnit *unit, int peer, bool arrives) {
    int size = unit->groups.shard->size;
    return wire_message_at(unit->wire.data, peer + (arrives ? size : 0), unit->layout.numel / size);
}

static Status start_int8(Shards *shards, ShardUnit *unit, Tensor all) {
    Group *group = unit->groups.shard;
    int64_t part = unit->layout.numel / group->size;
    Tensor residual = tensor_1d(unit->residual.data, DT_F32, unit->layout.numel);
    for (int peer = 0; peer < group->size; peer++) {
        WireMessage to = message_of(unit, peer, false);
        TRY(quantize_blocks(shards->exec, to.q, to.scales, tensor_slice(residual, peer * part, part),
                            tensor_slice(all, peer * part, part)));
    }
    return wire_swap(group, shards->exec->stream, unit->wire.data, part, unit->messages);
}

static Status finish_int8(Shards *shards, ShardUnit *unit, Tensor here, bool adds) {
    Group *group = unit->groups.shard;
    Stream *stream = shards->exec->stream;
    int64_t part = unit->layout.numel / group->size;
    bool whole = !shards->spec.optimizer;
    Tensor own = whole ? tensor_slice(here, group->rank * part, part) : here;
    for (int k = 2; k < 2 * group->size; k++) TRY(ticket_wait(stream, &unit->messages[k]));
    for (int peer = 0; peer < group->size; peer++) {
        WireMessage from = message_of(unit, peer, peer != group->rank);
        TRY(dequantize_blocks(shards->exec, own, from.q, from.scales, adds || peer > 0));
    }
    if (!whole) return OK;
    Tensor all = bf16_of(unit), rounded = tensor_slice(all, group->rank * part, part);
    TRY(convert(shards->exec, rounded, own));
    TRY(all_gather(group, stream, all, rounded, NULL));
    return convert(shards->exec, here, all);
}

/* ---- both ---- */

Status wire_start(Shards *shards, ShardUnit *unit, Tensor all) {
    TRY(open_wire(shards, unit));
    return unit->residual.data ? start_int8(shards, unit, all) : start_bf16(shards, unit, all);
}

Status wire_finish(Shards *shards, ShardUnit *unit, Tensor here, bool adds) {
    TRY(unit->residual.data ? finish_int8(shards, unit, here, adds) : finish_bf16(shards, unit, here, adds));
    arena_release(&shards->wire, &unit->wire);
    return OK;
}
