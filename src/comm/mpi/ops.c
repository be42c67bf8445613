/* The collectives. Large ones are exchanges (exchange.c), which cross between nodes as little as possible.
 * Small ones are optimized for latency: every rank sends what it has directly to every rank that needs it.
 * Reductions then take place in memory of the operation.
 */
#include "base/memory.h"
#include "comm/mpi/reduce.h"
#include "comm/mpi/traffic.h"

static MpiGroup *impl(const Group *group) {
    return group->impl;
}

static int tag_of(TagClass class, uint64_t number) {
    return (int)class + TAG_CLASSES * (int)(number % TAGS);
}

static Tags next_tags(Group *group) {
    uint64_t number = impl(group)->collectives++;
    return (Tags){tag_of(TAG_DATA, number), tag_of(TAG_GATHER, number)};
}

/* The j-th peer, starting after this rank, so that ranks do not all start with the same peer. */
static int peer_at(const Group *group, int j) {
    return (group->rank + 1 + j) % group->size;
}

/* A group that is being created has no rings yet. */
static bool is_small(const Group *group, int64_t bytes) {
    return bytes <= group->small || !group->placement;
}

Status start_gather(Group *group, Device *device, void *dst, const void *src, int64_t bytes,
                    Ticket *ret_ticket) {
    char *out = dst, *own = out + group->rank * bytes;
    Tags tags = next_tags(group);
    int peers = group->size - 1;
    if (bytes == 0) return OK;
    if (own != src) memcpy(own, src, (size_t)bytes);
    Op *op;
    bool small = is_small(group, bytes * group->size);
    TRY(op_new(&op, group, device, small ? 2 * peers : 0));
    if (!small)
        return exchange_start(
            op, (Exchange){.spreads = true, .root = -1, .dst = dst, .own = own, .count = bytes * group->size},
            tags, ret_ticket);
    for (int j = 0; j < peers; j++) {
        int peer = peer_at(group, j);
        flow_set(&op->flow[j], peer, tags.gather, false, out + peer * bytes, bytes, PIECE);
        flow_set(&op->flow[peers + j], peer, tags.gather, true, own, bytes, PIECE);
    }
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

Status all_gather_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    return start_gather(group, stream->device, dst.data, src.data, (int64_t)tensor_bytes(src), ret_ticket);
}

Status start_broadcast(Group *group, Device *device, void *data, int64_t bytes, int root,
                       Ticket *ret_ticket) {
    Tags tags = next_tags(group);
    bool sends = group->rank == root;
    if (bytes == 0) return OK;
    Op *op;
    bool small = is_small(group, bytes);
    TRY(op_new(&op, group, device, !small ? 0 : sends ? group->size - 1 : 1));
    if (!small)
        return exchange_start(
            op, (Exchange){.spreads = true, .root = root, .dst = data, .own = data, .count = bytes}, tags,
            ret_ticket);
    for (int i = 0; i < op->flow_count; i++)
        flow_set(&op->flow[i], sends ? peer_at(group, i) : root, tags.gather, sends, data, bytes, PIECE);
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

Status broadcast_mpi(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    return start_broadcast(group, stream->device, data.data, (int64_t)tensor_bytes(data), root, ret_ticket);
}

static Status start_pair(Group *group, Stream *stream, Tensor data, int peer, bool sends,
                         Ticket *ret_ticket) {
    uint64_t *numbers = sends ? impl(group)->sends : impl(group)->receives;
    int tag = tag_of(TAG_PAIR, numbers[peer]++);
    if (tensor_bytes(data) == 0) return OK;
    Op *op;
    TRY(op_new(&op, group, stream->device, 1));
    flow_set(&op->flow[0], peer, tag, sends, data.data, (int64_t)tensor_bytes(data), PIECE);
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

Status send_mpi(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket) {
    return start_pair(group, stream, data, to, true, ret_ticket);
}

Status receive_mpi(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket) {
    return start_pair(group, stream, data, from, false, ret_ticket);
}

/* Short messages leave before the receiver asks for them, so the sender stays at most WINDOW chunks ahead of
 * what it has received. */
static bool step_swap(Traffic *traffic, Op *op) {
    Flow *in = &op->flow[0], *out = &op->flow[1];
    bool moved = flows_move(traffic, op), last = in->done == in->count;
    out->limit = last || in->done + WINDOW > out->count ? out->count : in->done + WINDOW;
    if (moved) flows_move(traffic, op);
    op->done = flows_done(op);
    return moved;
}

Status swap_mpi(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from, Ticket *ret_ticket) {
    int out_tag = tag_of(TAG_PAIR, impl(group)->sends[to]++);
    int in_tag = tag_of(TAG_PAIR, impl(group)->receives[from]++);
    if (tensor_bytes(out) == 0) return OK;
    Op *op;
    TRY(op_new(&op, group, stream->device, 0));
    Status status = op_add_flows(op, 2, messages_of(PIECE));
    if (status) {
        op_free(op);
        return status;
    }
    op->step = step_swap;
    flow_set(&op->flow[0], from, in_tag, false, in.data, (int64_t)tensor_bytes(in), PIECE);
    flow_set(&op->flow[1], to, out_tag, true, out.data, (int64_t)tensor_bytes(out), PIECE);
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

/* Small reductions: reduce once everything has arrived and all sends are complete. */
static bool step_small(Traffic *traffic, Op *op) {
    bool moved = op_step_move(traffic, op);
    if (!op->done) return moved;
    Source *source = op->exchange.source;
    int rank = op->group->rank;
    source[rank] = (Source){op->own, rank + 1, false};
    for (int j = 0; j < op->peers; j++) {
        const Flow *flow = &op->flow[j];
        source[flow->peer] = (Source){flow->base, flow->peer + 1, false};
    }
    reduce_tree(op->dst, source, (RankSpan){0, op->group->size}, op->count, op->dtype, op->reduce, false);
    return true;
}

/* Peer r receives the data at src + r * stride; in all_reduce, everything. */
static Status start_small(Op *op, Stream *stream, char *src, int64_t stride, Tags tags, Ticket *ret_ticket) {
    Group *group = op->group;
    int64_t bytes = op->count * (int64_t)dtype_size(op->dtype);
    Status status = dev_alloc(stream->device, MEM_COMM, (size_t)(bytes * op->peers), &op->buffer);
    if (status) {
        op_free(op);
        return status;
    }
    op->step = step_small;
    for (int j = 0; j < op->peers; j++) {
        int peer = peer_at(group, j);
        flow_set(&op->flow[j], peer, tags.data, false, (char *)op->buffer.data + j * bytes, bytes, PIECE);
        flow_set(&op->flow[op->peers + j], peer, tags.data, true, src + peer * stride, bytes, PIECE);
    }
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

static Status new_reduction(Op **ret_op, Group *group, Stream *stream, Tensor src, ReduceOp reduce) {
    TRY(op_new(ret_op, group, stream->device,
               is_small(group, (int64_t)tensor_bytes(src)) ? 2 * (group->size - 1) : 0));
    (*ret_op)->dtype = src.dtype;
    (*ret_op)->reduce = reduce;
    return OK;
}

/* A large one. */
static Status start_all_reduce(Op *op, char *data, int64_t count, Tags tags, Ticket *ret_ticket) {
    int64_t first = part_first(count, op->group->size, op->group->rank);
    return exchange_start(op,
                          (Exchange){.reduces = true,
                                     .spreads = true,
                                     .root = -1,
                                     .src = data,
                                     .dst = data,
                                     .own = data + first * (int64_t)dtype_size(op->dtype),
                                     .count = count},
                          tags, ret_ticket);
}

Status all_reduce_mpi(Group *group, Stream *stream, Tensor data, ReduceOp reduce, Ticket *ret_ticket) {
    int64_t count = tensor_count(data);
    Tags tags = next_tags(group);
    if (count == 0) return OK;
    Op *op;
    TRY(new_reduction(&op, group, stream, data, reduce));
    if (op->flow_count > 0) {
        op->own = op->dst = data.data;
        op->count = count;
        return start_small(op, stream, data.data, 0, tags, ret_ticket);
    }
    return start_all_reduce(op, data.data, count, tags, ret_ticket);
}

Status host_all_reduce(Group *group, void *data, int64_t count, DType dtype, ReduceOp reduce) {
    Tags tags = next_tags(group);
    Ticket ticket = {0};
    Op *op;
    TRY(op_new(&op, group, NULL, 0));
    op->dtype = dtype;
    op->reduce = reduce;
    TRY(start_all_reduce(op, data, count, tags, &ticket));
    return ticket_wait(NULL, &ticket);
}

Status scatter_on_host(Group *group, void *dst, void *src, int64_t count, DType dtype, ReduceOp reduce) {
    Tags tags = next_tags(group);
    Ticket ticket = {0};
    Op *op;
    TRY(op_new(&op, group, NULL, 0));
    op->dtype = dtype;
    op->reduce = reduce;
    TRY(exchange_start(
        op, (Exchange){.reduces = true, .root = -1, .src = src, .own = dst, .count = count * group->size},
        tags, &ticket));
    return ticket_wait(NULL, &ticket);
}

Status reduce_scatter_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp reduce,
                          Ticket *ret_ticket) {
    int64_t bytes = (int64_t)tensor_bytes(dst);
    Tags tags = next_tags(group);
    if (bytes == 0) return OK;
    Op *op;
    TRY(new_reduction(&op, group, stream, src, reduce));
    if (op->flow_count > 0) {
        op->own = (char *)src.data + group->rank * bytes;
        op->dst = dst.data;
        op->count = tensor_count(dst);
        return start_small(op, stream, src.data, bytes, tags, ret_ticket);
    }
    return exchange_start(
        op,
        (Exchange){.reduces = true, .root = -1, .src = src.data, .own = dst.data, .count = tensor_count(src)},
        tags, ret_ticket);
}
