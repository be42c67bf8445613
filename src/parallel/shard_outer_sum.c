/* The sum of outer gradients over the workers, in the type in which they travel.
 *
 * fp32 and bf16 are one all-reduce. In int8, every worker owns an equal part. First each sends the owners
 * their parts of its gradient, quantized with a scale per block, and an owner sums what arrives in rank order
 * in fp32. Then owners send their sums to all, quantized as well. So both directions take a quarter of the
 * bytes of fp32. What the first rounding leaves over is returned: the worker keeps it in its own parameters,
 * which makes it part of its next outer gradient. The second rounding is an error of the sum.
 *
 * Blocks begin at multiples of QUANT_BLOCK in a unit's shard, and what is left over does not depend on the
 * owner. Copies of a parameter on several stages therefore stay equal.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "parallel/shard_internal.h"

typedef struct OuterSum {
    Exec *exec;
    Group *workers;
    GradType type;
    bool in_place;      /* sums replace the input right away */
    Stream *stream;     /* whose staging memory no other reduction waits for */
    Buffer total;       /* bf16, or fp32 unless in place: what is being summed */
    Buffer wire, parts; /* int8: messages to all workers, then from all; fp32: the own part, and its rest */
    Buffer residual;    /* int8: what was rounded off */
    Ticket ticket, *message;
    int64_t count; /* of elements, padded */
    bool returns;  /* int8: the sums are on their way back */
} OuterSum;

static const TraceName sync_name = {.name = "synchronize ",
                                    .category = "data",
                                    .color = TRACE_ORANGE,
                                    .number = {"fragment", "bytes"},
                                    .numbered = true};

void outer_sum_free(OuterSum *sum) {
    if (!sum) return;
    dev_free(&sum->total);
    dev_free(&sum->wire);
    dev_free(&sum->parts);
    dev_free(&sum->residual);
    stream_free(sum->stream);
    free(sum->message);
    free(sum);
}

int64_t outer_sum_align(const Shards *shards) {
    return shards->spec.outer.type == GRAD_INT8 && shards->spec.data.replica->size > 1 ? QUANT_BLOCK : 1;
}

int64_t outer_sum_size(const Shards *shards, int64_t count) {
    int64_t align = outer_sum_align(shards);
    if (align > 1) align *= shards->spec.data.replica->size;
    return (count + align - 1) / align * align;
}

static Status alloc(OuterSum *sum, Device *device, int64_t most) {
    size_t size = (size_t)sum->workers->size, full = (size_t)most * sizeof(float);
    switch (sum->type) {
    case GRAD_FP32: return sum->in_place ? OK : dev_alloc(device, MEM_COMM, full, &sum->total);
    case GRAD_BF16: return dev_alloc(device, MEM_COMM, (size_t)most * dtype_size(DT_BF16), &sum->total);
    case GRAD_INT8: break;
    }
    TRY(group_connect(sum->workers, EVERY_RANK));
    TRY(mem_new(2 * size, sizeof *sum->message, &sum->message));
    TRY(dev_alloc(device, MEM_COMM, 2 * size * wire_message(most / (int64_t)size), &sum->wire));
    TRY(dev_alloc(device, MEM_COMM, 2 * full / size, &sum->parts));
    return dev_alloc(device, MEM_COMM, full, &sum->residual);
}

Status outer_sum_new(OuterSum **ret_sum, const Shards *shards, int64_t most) {
    CLEANUP(outer_sum_freep) OuterSum *sum = NULL;
    TRY(mem_new(1, sizeof *sum, &sum));
    sum->exec = shards->exec;
    sum->workers = shards->spec.data.replica;
    sum->type = sum->workers->size > 1 ? shards->spec.outer.type : GRAD_FP32;
    sum->in_place = !shards->spec.outer.overlap;
    TRY(alloc(sum, shards->device, outer_sum_size(shards, most)));
    TRY(stream_new(&sum->stream, shards->device));
    return MOVE(ret_sum, sum);
}

/* ---- one all-reduce ---- */

static Tensor total_of(const OuterSum *sum) {
    DType dtype = sum->type == GRAD_BF16 ? DT_BF16 : DT_F32;
    return tensor_1d(sum->total.data, dtype, sum->count);
}

static Status start_plain(OuterSum *sum, Tensor own, int fragment) {
    Tensor total = sum->total.data ? total_of(sum) : own;
    if (sum->total.data) TRY(convert(sum->exec, total, own));
    TRY(stream_wait(sum->stream, sum->exec->stream));
    comm_label(sum->workers, &sync_name, fragment, (int64_t)tensor_bytes(total));
    return all_reduce(sum->workers, sum->stream, total, REDUCE_SUM, &sum->ticket);
}

/* ---- int8 ---- */

static int64_t part_size(const OuterSum *sum) {
    return sum->count / sum->workers->size;
}

static Tensor slice(const OuterSum *sum, Tensor all, int peer) {
    return tensor_slice(all, peer * part_size(sum), part_size(sum));
}

static Tensor residual_of(const OuterSum *sum) {
    return tensor_1d(sum->residual.data, DT_F32, sum->count);
}

static WireMessage message_of(const OuterSum *sum, int peer, bool arrives) {
    int at = peer + (arrives ? sum->workers->size : 0);
    return wire_message_at(sum->wire.data, at, part_size(sum));
}

static Status start_int8(OuterSum *sum, Tensor own, int fragment) {
    Group *workers = sum->workers;
    Stream *stream = sum->stream;
    Tensor residual = residual_of(sum);
    TRY(stream_zero(sum->exec->stream, residual.data, tensor_bytes(residual)));
    for (int peer = 0; peer < workers->size; peer++) {
        WireMessage to = message_of(sum, peer, false);
        TRY(quantize_blocks(sum->exec, to.q, to.scales, slice(sum, residual, peer), slice(sum, own, peer)));
    }
    TRY(stream_wait(stream, sum->exec->stream));
    comm_label(workers, &sync_name, fragment, (int64_t)sum->wire.bytes / 2);
    return wire_swap(workers, stream, sum->wire.data, part_size(sum), sum->message);
}

/* Sums the own part, and sends the sum to all. */
static Status return_int8(OuterSum *sum) {
    Exec *exec = sum->exec;
    Group *workers = sum->workers;
    Tensor parts = tensor_1d(sum->parts.data, DT_F32, 2 * part_size(sum));
    Tensor total = slice(sum, parts, 0), rest = slice(sum, parts, 1);
    for (int k = 2; k < 2 * workers->size; k++) TRY(ticket_wait(exec->stream, &sum->message[k]));
    for (int peer = 0; peer < workers->size; peer++) {
        WireMessage from = message_of(sum, peer, peer != workers->rank);
        TRY(dequantize_blocks(exec, total, from.q, from.scales, peer > 0));
    }
    WireMessage own = message_of(sum, workers->rank, false);
    TRY(stream_zero(exec->stream, rest.data, tensor_bytes(rest)));
    TRY(quantize_blocks(exec, own.q, own.scales, rest, total));
    TRY(stream_wait(sum->stream, exec->stream));
    Tensor all = message_of(sum, 0, false).all;
    all = tensor_1d(all.data, DT_I8, workers->size * tensor_count(all));
    return all_gather(workers, sum->stream, all, own.all, &sum->ticket);
}

/* ---- both ---- */

Status outer_sum_start(OuterSum *sum, Tensor own, int fragment) {
    sum->count = tensor_count(own);
    sum->returns = false;
    if (!sum->count) return OK;
    return sum->type == GRAD_INT8 ? start_int8(sum, own, fragment) : start_plain(sum, own, fragment);
}

Status outer_sum_return(OuterSum *sum) {
    if (sum->type != GRAD_INT8 || sum->returns || !sum->count) return OK;
    sum->returns = true;
    return return_int8(sum);
}

Status outer_sum_finish(OuterSum *sum, Tensor own) {
    TRY(outer_sum_return(sum));
    TRY(outer_sum_wait(sum));
    if (!sum->count) return OK;
    if (sum->type != GRAD_INT8) return sum->total.data ? convert(sum->exec, own, total_of(sum)) : OK;
    for (int peer = 0; peer < sum->workers->size; peer++) {
        WireMessage from = message_of(sum, peer, false);
        TRY(dequantize_blocks(sum->exec, slice(sum, own, peer), from.q, from.scales, false));
    }
    return OK;
}

Tensor outer_sum_residual(const OuterSum *sum) {
    return sum->residual.data ? residual_of(sum) : TENSOR_NONE;
}

Status outer_sum_wait(OuterSum *sum) {
    for (int k = 2; sum->message && k < 2 * sum->workers->size; k++)
        TRY(ticket_wait(sum->exec->stream, &sum->message[k]));
    return ticket_wait(sum->exec->stream, &sum->ticket);
}

void outer_sum_forget(OuterSum *sum) {
    sum->ticket = (Ticket){0};
    for (int k = 0; sum->message && k < 2 * sum->workers->size; k++) sum->message[k] = (Ticket){0};
}
