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

/* Takes ownership of the operation. */
static Status op_start(Op **op, Ticket *ret_ticket) {
    Op *started = *op;
    *op = NULL;
    return traffic_start(impl(started->group)->traffic, started, ret_ticket);
}

/* The j-th peer, starting after this rank, so that ranks do not all start with the same peer. */
static int peer_at(const Group *group, int j) {
    return (group->rank + 1 + j) % group->size;
}

/* A group that is being created has no rings yet. */
static bool is_small(const Group *group, int64_t bytes) {
    return bytes <= group->small || !group->placement;
}

static bool reduces(CommKind kind) {
    return kind == COMM_ALL_REDUCE || kind == COMM_REDUCE_SCATTER;
}

/* ---- large collectives ---- */

static Exchange exchange_of(const Group *group, const CommCall *call) {
    bool gathers = call->kind == COMM_ALL_GATHER, broadcasts = call->kind == COMM_BROADCAST;
    bool scatters = call->kind == COMM_REDUCE_SCATTER;
    int64_t bytes = (int64_t)comm_call_bytes(call), size = (int64_t)dtype_size(call->src.dtype);
    Exchange x = {.reduces = reduces(call->kind),
                  .spreads = !scatters,
                  .root = broadcasts ? call->rank : -1,
                  .src = call->src.data,
                  .dst = call->dst.data,
                  .own = call->dst.data,
                  .count = gathers || broadcasts ? bytes : bytes / size};
    if (gathers) x.own += part_first(bytes, group->size, group->rank);
    if (call->kind == COMM_ALL_REDUCE) x.own += part_first(x.count, group->size, group->rank) * size;
    return x;
}

/* ---- small ones ---- */

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

/* This rank's contribution to all others, or what it has for each of them, and memory for theirs. */
static Status prepare_reduction(Op *op, const CommCall *call, int tag) {
    Group *group = op->group;
    int64_t bytes = (int64_t)tensor_bytes(call->dst);
    char *src = call->src.data;
    int64_t stride = call->kind == COMM_REDUCE_SCATTER ? bytes : 0;
    TRY(dev_alloc(op->device, MEM_COMM, (size_t)(bytes * op->peers), &op->buffer));
    op->own = src + group->rank * stride;
    op->dst = call->dst.data;
    op->count = tensor_count(call->dst);
    op->step = step_small;
    for (int j = 0; j < op->peers; j++) {
        int peer = peer_at(group, j);
        flow_set(&op->flow[j], peer, tag, false, (char *)op->buffer.data + j * bytes, bytes, PIECE);
        flow_set(&op->flow[op->peers + j], peer, tag, true, src + peer * stride, bytes, PIECE);
    }
    return OK;
}

static void prepare_gather(Op *op, const CommCall *call, int tag) {
    int64_t bytes = (int64_t)tensor_bytes(call->src);
    char *dst = call->dst.data, *own = dst + op->group->rank * bytes;
    for (int j = 0; j < op->peers; j++) {
        int peer = peer_at(op->group, j);
        flow_set(&op->flow[j], peer, tag, false, dst + peer * bytes, bytes, PIECE);
        flow_set(&op->flow[op->peers + j], peer, tag, true, own, bytes, PIECE);
    }
}

static void prepare_broadcast(Op *op, const CommCall *call, int tag) {
    bool sends = op->group->rank == call->rank;
    for (int i = 0; i < op->flow_count; i++)
        flow_set(&op->flow[i], sends ? peer_at(op->group, i) : call->rank, tag, sends, call->dst.data,
                 (int64_t)tensor_bytes(call->dst), PIECE);
}

/* ---- all-to-all ---- */

/* Flows come in pairs, in and out. Short messages leave before the receiver asks for them, so the sender
 * stays at most WINDOW chunks ahead of what it has received. */
static bool step_paced(Traffic *traffic, Op *op) {
    bool moved = flows_move(traffic, op);
    for (int i = 0; i < op->flow_count; i += 2) {
        Flow *in = &op->flow[i], *out = in + 1;
        bool last = in->done == in->count;
        out->limit = last || in->done + WINDOW > out->count ? out->count : in->done + WINDOW;
    }
    if (moved) flows_move(traffic, op);
    op->done = flows_done(op);
    return moved;
}

/* Messages per chunk of what this rank exchanges with others on other nodes. */
static int messages_between(const Group *group, const CommCall *call) {
    int64_t most = 1;
    for (int r = 0; r < group->size; r++) {
        if (group->placement->node[r] == group->placement->node[group->rank]) continue;
        int64_t out = comm_part_bytes(call->src, call->out, group->size, r);
        int64_t in = comm_part_bytes(call->dst, call->in, group->size, r);
        most = out > most ? out : most;
        most = in > most ? in : most;
    }
    return messages_of(most < PIECE ? most : PIECE);
}

/* Every rank sends directly to every other one. Between nodes, chunks are short messages as far as the other
 * direction has chunks to pace them; for the rest the receiver must be ready. Both ranks of a pair know the
 * sizes of both directions. */
static Status prepare_all_to_all(Op *op, const CommCall *call, int tag) {
    const Group *group = op->group;
    const int *node = group->placement->node;
    char *in = call->dst.data, *out = call->src.data;
    TRY(op_add_flows(op, 2 * op->peers, messages_between(group, call)));
    op->step = step_paced;
    for (int r = 0; r < group->size; r++) {
        int64_t from = comm_part_bytes(call->dst, call->in, group->size, r);
        int64_t to = comm_part_bytes(call->src, call->out, group->size, r);
        Flow *pair = op->flow + 2 * ((r + op->peers - group->rank) % group->size);
        if (r != group->rank) {
            flow_set(&pair[0], r, tag, false, in, from, PIECE);
            flow_set(&pair[1], r, tag, true, out, to, PIECE);
            pair[0].shorts = node[r] == node[group->rank] ? 0 : pair[1].count + WINDOW;
            pair[1].shorts = node[r] == node[group->rank] ? 0 : pair[0].count + WINDOW;
        } else if (to > 0) {
            memcpy(in, out, (size_t)to);
        }
        in += from;
        out += to;
    }
    return OK;
}

Status start_collective(Group *group, Device *device, const CommCall *call, Ticket *ret_ticket) {
    Tags tags = next_tags(group);
    int64_t bytes = (int64_t)comm_call_bytes(call), part = (int64_t)tensor_bytes(call->src);
    bool exchanges = comm_info(call->kind)->exchange && !is_small(group, bytes);
    bool broadcasts = call->kind == COMM_BROADCAST, spreads = call->kind == COMM_ALL_TO_ALL;
    int peers = group->size - 1, flows = !broadcasts ? 2 * peers : group->rank == call->rank ? peers : 1;
    if (bytes == 0) return OK;
    char *own = (char *)call->dst.data + group->rank * part;
    if (call->kind == COMM_ALL_GATHER && own != call->src.data) memcpy(own, call->src.data, (size_t)part);
    CLEANUP(op_freep) Op *op = NULL;
    TRY(op_new(&op, group, device, exchanges || spreads ? 0 : flows));
    op->dtype = call->src.dtype;
    op->reduce = call->reduce;
    if (exchanges)
        TRY(exchange_prepare(op, exchange_of(group, call), tags));
    else if (spreads)
        TRY(prepare_all_to_all(op, call, tags.data));
    else if (reduces(call->kind))
        TRY(prepare_reduction(op, call, tags.data));
    else if (broadcasts)
        prepare_broadcast(op, call, tags.gather);
    else
        prepare_gather(op, call, tags.gather);
    return op_start(&op, ret_ticket);
}

/* ---- messages ---- */

static Status start_message(Group *group, Device *device, const CommCall *call, Ticket *ret_ticket) {
    bool sends = call->kind == COMM_SEND;
    uint64_t *numbers = sends ? impl(group)->sends : impl(group)->receives;
    int tag = tag_of(TAG_PAIR, numbers[call->rank]++);
    int64_t bytes = (int64_t)tensor_bytes(call->src);
    if (bytes == 0) return OK;
    CLEANUP(op_freep) Op *op = NULL;
    TRY(op_new(&op, group, device, 1));
    flow_set(&op->flow[0], call->rank, tag, sends, call->src.data, bytes, PIECE);
    return op_start(&op, ret_ticket);
}

Status start_mpi(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket) {
    bool message = call->kind == COMM_SEND || call->kind == COMM_RECEIVE;
    return (message ? start_message : start_collective)(group, stream->device, call, ret_ticket);
}

Status swap_mpi(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from, Ticket *ret_ticket) {
    int out_tag = tag_of(TAG_PAIR, impl(group)->sends[to]++);
    int in_tag = tag_of(TAG_PAIR, impl(group)->receives[from]++);
    if (tensor_bytes(out) == 0) return OK;
    CLEANUP(op_freep) Op *op = NULL;
    TRY(op_new(&op, group, stream->device, 0));
    TRY(op_add_flows(op, 2, messages_of(PIECE)));
    op->step = step_paced;
    flow_set(&op->flow[0], from, in_tag, false, in.data, (int64_t)tensor_bytes(in), PIECE);
    flow_set(&op->flow[1], to, out_tag, true, out.data, (int64_t)tensor_bytes(out), PIECE);
    return op_start(&op, ret_ticket);
}
