/* The collectives, as flows.
 *
 * All-gather: every rank sends its part directly to every other.
 *
 * Broadcast: a pipelined chain; small messages go directly from the root.
 *
 * Reductions, bandwidth-optimized: every rank owns a part. It receives the chunks of that part from all
 * others into staging memory, reduces each chunk in rank order once all have arrived and, in all_reduce,
 * sends the result to all others immediately. Staging is bounded: a slot of the stream's memory with WINDOW
 * chunks per peer. A reduction takes a slot only after all peers have announced that they started it. From
 * then on it completes without further resources, since sending needs no staging. Slots are therefore always
 * returned, and there is no deadlock.
 *
 * Reductions, latency-optimized for small sizes: all ranks send everything to everyone, into memory of the
 * operation, and reduce it in rank order. */
#include "base/memory.h"
#include "comm/mpi/reduce.h"
#include "comm/mpi/traffic.h"

static MpiGroup *impl(const Group *group) {
    return group->impl;
}

static int tag_of(TagClass class, uint64_t number) {
    return (int)class + TAG_CLASSES * (int)(number % TAGS);
}

/* The j-th peer, starting after this rank, so that ranks do not all start with the same peer. */
static int peer_at(const Group *group, int j) {
    return (group->rank + 1 + j) % group->size;
}

/* Size and start of rank r's part when `count` elements are divided evenly. */
static int64_t part_count(int64_t count, int size, int r) {
    return count / size + (r < count % size);
}
static int64_t part_first(int64_t count, int size, int r) {
    int64_t more = count % size;
    return count / size * r + (r < more ? r : more);
}

Status start_gather(Group *group, Device *device, void *dst, const void *src, int64_t bytes,
                    Ticket *ret_ticket) {
    char *out = dst, *own = out + group->rank * bytes;
    int tag = tag_of(TAG_GATHER, impl(group)->collectives++), peers = group->size - 1;
    if (bytes == 0) return OK;
    if (own != src) memcpy(own, src, (size_t)bytes);
    Op *op;
    TRY(op_new(&op, group, device, 2 * peers));
    for (int j = 0; j < peers; j++) {
        int peer = peer_at(group, j);
        flow_set(&op->flow[j], peer, tag, false, out + peer * bytes, bytes, PIECE);
        flow_set(&op->flow[peers + j], peer, tag, true, own, bytes, PIECE);
    }
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

Status all_gather_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    return start_gather(group, stream->device, dst.data, src.data, (int64_t)tensor_bytes(src), ret_ticket);
}

/* Flow 0 receives; flow 1 forwards what has arrived. */
static bool step_chain(Traffic *traffic, Op *op) {
    op->flow[1].limit = op->flow[0].done;
    bool moved = op_step_move(traffic, op);
    return moved;
}

static Status start_chain(Group *group, Device *device, void *data, int64_t bytes, int root, int tag,
                          Ticket *ret_ticket) {
    int size = group->size, place = (group->rank - root + size) % size;
    int before = (group->rank - 1 + size) % size, after = (group->rank + 1) % size;
    bool first = place == 0, last = place == size - 1;
    Op *op;
    TRY(op_new(&op, group, device, first || last ? 1 : 2));
    flow_set(&op->flow[0], first ? after : before, tag, first, data, bytes, PIECE);
    if (op->flow_count > 1) {
        flow_set(&op->flow[1], after, tag, true, data, bytes, PIECE);
        op->step = step_chain;
    }
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

Status start_broadcast(Group *group, Device *device, void *data, int64_t bytes, int root,
                       Ticket *ret_ticket) {
    int tag = tag_of(TAG_GATHER, impl(group)->collectives++);
    bool sends = group->rank == root;
    if (bytes == 0) return OK;
    if (bytes > SMALL) return start_chain(group, device, data, bytes, root, tag, ret_ticket);
    Op *op;
    TRY(op_new(&op, group, device, sends ? group->size - 1 : 1));
    for (int i = 0; i < op->flow_count; i++)
        flow_set(&op->flow[i], sends ? peer_at(group, i) : root, tag, sends, data, bytes, PIECE);
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

/* Latency-optimized: reduce once everything has arrived and all sends are complete. */
static bool step_exchange(Traffic *traffic, Op *op) {
    bool moved = op_step_move(traffic, op);
    if (!op->done) return moved;
    op->part[op->group->rank] = op->own;
    for (int j = 0; j < op->peers; j++) op->part[op->flow[j].peer] = op->flow[j].base;
    reduce_parts(op->dst, op->part, op->group->size, op->count, op->dtype, op->reduce);
    return true;
}

/* part(r): the data sent to rank r; in all_reduce, everything. */
static Status start_exchange(Op *op, Stream *stream, char *src, int64_t stride, int tag, Ticket *ret_ticket) {
    Group *group = op->group;
    int64_t bytes = op->count * (int64_t)dtype_size(op->dtype);
    Status status = dev_alloc(stream->device, MEM_COMM, (size_t)(bytes * op->peers), &op->buffer);
    if (status) {
        op_free(op);
        return status;
    }
    op->step = step_exchange;
    for (int j = 0; j < op->peers; j++) {
        int peer = peer_at(group, j);
        flow_set(&op->flow[j], peer, tag, false, (char *)op->buffer.data + j * bytes, bytes, PIECE);
        flow_set(&op->flow[op->peers + j], peer, tag, true, src + peer * stride, bytes, PIECE);
    }
    return traffic_start(impl(group)->traffic, op, ret_ticket);
}

/* Flows of bandwidth-optimized reductions: groups of one flow per peer. */
enum { READY_IN, READY_OUT, DATA_IN, DATA_OUT, GATHER_IN, GATHER_OUT, REDUCE_BLOCKS };

static Flow *flow_of(const Op *op, int block, int j) {
    return &op->flow[block * op->peers + j];
}

static bool block_done(const Op *op, int block) {
    for (int j = 0; j < op->peers; j++)
        if (flow_of(op, block, j)->done < flow_of(op, block, j)->count) return false;
    return true;
}

static bool take_slot(Op *op) {
    if (!block_done(op, READY_IN)) return false;
    int slot = 0;
    while (slot < SLOTS && op->area->busy[slot]) slot++;
    if (slot == SLOTS) return false;
    op->area->busy[slot] = true;
    op->slot = slot;
    op->staging = (char *)op->area + AREA_HEAD + (size_t)slot * op->slot_bytes;
    for (int j = 0; j < op->peers; j++) {
        Flow *flow = flow_of(op, DATA_IN, j);
        flow->base = op->staging + j * WINDOW * op->piece;
        flow->limit = flow->count < WINDOW ? flow->count : WINDOW;
    }
    return true;
}

static void reduce_piece(Op *op) {
    int64_t at = op->reduced * op->piece, size = (int64_t)dtype_size(op->dtype);
    int64_t left = op->count * size - at, bytes = left < op->piece ? left : op->piece;
    op->part[op->group->rank] = op->own + at;
    for (int j = 0; j < op->peers; j++) {
        const Flow *flow = flow_of(op, DATA_IN, j);
        op->part[flow->peer] = flow->base + op->reduced % WINDOW * op->piece;
    }
    reduce_parts(op->dst + at, op->part, op->group->size, bytes / size, op->dtype, op->reduce);
    op->reduced++;
}

/* Reduces chunks that have arrived from all peers; true if there were any. */
static bool reduce_arrived(Op *op) {
    int64_t arrived = flow_of(op, DATA_IN, 0)->done;
    for (int j = 1; j < op->peers; j++)
        if (flow_of(op, DATA_IN, j)->done < arrived) arrived = flow_of(op, DATA_IN, j)->done;
    bool moved = op->reduced < arrived;
    while (op->reduced < arrived) reduce_piece(op);
    for (int j = 0; j < op->peers; j++) {
        Flow *flow = flow_of(op, DATA_IN, j);
        flow->limit = op->reduced + WINDOW < flow->count ? op->reduced + WINDOW : flow->count;
    }
    return moved;
}

/* Reduced chunks are sent immediately; a peer's result may overwrite data that this rank has already sent. */
static void open_gather(Op *op) {
    if (op->flow_count < REDUCE_BLOCKS * op->peers) return;
    for (int j = 0; j < op->peers; j++) {
        flow_of(op, GATHER_OUT, j)->limit = op->reduced;
        flow_of(op, GATHER_IN, j)->limit = flow_of(op, DATA_OUT, j)->done;
    }
}

static bool step_reduce(Traffic *traffic, Op *op) {
    int64_t pieces = flow_of(op, DATA_IN, 0)->count;
    bool moved = flows_move(traffic, op);
    if (!op->staging && op->reduced < pieces) moved |= take_slot(op);
    if (op->staging) {
        moved |= reduce_arrived(op);
        if (op->reduced == pieces) {
            op->area->busy[op->slot] = false;
            op->staging = NULL;
        }
    }
    open_gather(op);
    op->done = op->reduced == pieces && flows_done(op);
    return moved;
}

static Status stream_area(Traffic *traffic, Stream *stream, Area **ret_area) {
    if (!stream->comm.data) {
        TRY(dev_alloc(stream->device, MEM_COMM, AREA_HEAD + SLOTS * traffic->slot_bytes, &stream->comm));
        *(Area *)stream->comm.data = (Area){0};
    }
    *ret_area = stream->comm.data;
    return OK;
}

static int64_t staged_piece(const Traffic *traffic, int peers) {
    int64_t piece = (int64_t)traffic->slot_bytes / (WINDOW * peers) / 64 * 64;
    return piece < PIECE ? piece : PIECE;
}

/* `src` has `count` elements in total; the op's own part is already set. */
static Status start_reduce(Op *op, Stream *stream, char *src, int64_t count, bool gathers,
                           Ticket *ret_ticket) {
    Group *group = op->group;
    Traffic *traffic = impl(group)->traffic;
    uint64_t number = impl(group)->collectives - 1;
    int64_t size = (int64_t)dtype_size(op->dtype);
    Status status = stream_area(traffic, stream, &op->area);
    if (status) {
        op_free(op);
        return status;
    }
    op->slot_bytes = traffic->slot_bytes;
    op->piece = staged_piece(traffic, op->peers);
    op->step = step_reduce;
    for (int j = 0; j < op->peers; j++) {
        int peer = peer_at(group, j);
        char *theirs = src + part_first(count, group->size, peer) * size;
        int64_t out = part_count(count, group->size, peer) * size, in = op->count * size;
        int ready = tag_of(TAG_READY, number), data = tag_of(TAG_DATA, number);
        /* The announcement is an empty message. */
        flow_set(flow_of(op, READY_IN, j), peer, ready, false, theirs, 1, 1);
        flow_set(flow_of(op, READY_OUT, j), peer, ready, true, theirs, 1, 1);
        flow_of(op, READY_IN, j)->bytes = flow_of(op, READY_OUT, j)->bytes = 0;
        flow_set(flow_of(op, DATA_IN, j), peer, data, false, NULL, in, op->piece);
        flow_of(op, DATA_IN, j)->staged = true;
        flow_of(op, DATA_IN, j)->limit = 0;
        flow_set(flow_of(op, DATA_OUT, j), peer, data, true, theirs, out, op->piece);
        if (!gathers) continue;
        flow_set(flow_of(op, GATHER_IN, j), peer, tag_of(TAG_GATHER, number), false, theirs, out, op->piece);
        flow_set(flow_of(op, GATHER_OUT, j), peer, tag_of(TAG_GATHER, number), true, op->dst, in, op->piece);
        flow_of(op, GATHER_IN, j)->limit = flow_of(op, GATHER_OUT, j)->limit = 0;
    }
    return traffic_start(traffic, op, ret_ticket);
}

Status all_reduce_mpi(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    int64_t count = tensor_count(data), size = (int64_t)dtype_size(data.dtype);
    int tag = tag_of(TAG_DATA, impl(group)->collectives++), peers = group->size - 1;
    if (count == 0) return OK;
    bool is_short = count * size <= SMALL;
    Op *made;
    TRY(op_new(&made, group, stream->device, is_short ? 2 * peers : REDUCE_BLOCKS * peers));
    made->dtype = data.dtype;
    made->reduce = op;
    made->own = made->dst = data.data;
    made->count = count;
    if (is_short) return start_exchange(made, stream, data.data, 0, tag, ret_ticket);
    made->own = made->dst = (char *)data.data + part_first(count, group->size, group->rank) * size;
    made->count = part_count(count, group->size, group->rank);
    return start_reduce(made, stream, data.data, count, true, ret_ticket);
}

Status reduce_scatter_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                          Ticket *ret_ticket) {
    int64_t count = tensor_count(dst), bytes = (int64_t)tensor_bytes(dst);
    int tag = tag_of(TAG_DATA, impl(group)->collectives++), peers = group->size - 1;
    if (count == 0) return OK;
    bool is_short = (int64_t)tensor_bytes(src) <= SMALL;
    Op *made;
    TRY(op_new(&made, group, stream->device, is_short ? 2 * peers : GATHER_IN * peers));
    made->dtype = src.dtype;
    made->reduce = op;
    made->own = (char *)src.data + group->rank * bytes;
    made->dst = dst.data;
    made->count = count;
    if (is_short) return start_exchange(made, stream, src.data, bytes, tag, ret_ticket);
    return start_reduce(made, stream, src.data, count * group->size, false, ret_ticket);
}
