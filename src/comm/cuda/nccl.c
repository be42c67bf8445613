/* Groups over NCCL. Each lies over a group that stages data through host memory, which has the ranks' host
 * data, and messages between ranks that are not connected.
 *
 * A group for tensors has a link for collectives, and for messages after group_connect. A ring has a link for
 * each neighbor and direction, so that none of them waits for another. NCCL connects two ranks at their first
 * message, and both sides must then connect in the same directions: a link of a ring has only one, and
 * group_connect connects all pairs both ways.
 *
 * NCCL's summation order differs from that over MPI, but is the same in every run for the same ranks and
 * sizes.
 */
#include "comm/nccl.h"

#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/cuda/net.h"
#include "comm/staged.h"

/* Links of a group: for collectives, and of a ring to and from its next and previous rank. */
enum { LINK_ALL, LINK_TO_NEXT, LINK_FROM_NEXT, LINK_TO_PREVIOUS, LINK_FROM_PREVIOUS, LINKS, LINK_BITS = 3 };
_Static_assert(LINKS <= 1 << LINK_BITS, "tickets have the number of a link");

/* A wait on the caller's stream, timed by two events. */
typedef struct Stop {
    cudaEvent_t from, to;
} Stop;

enum { STOPS_LIMIT = 8192 }; /* unfinished waits; further ones are not timed */

typedef struct NcclGroup {
    Net *net;
    Link *link[LINKS]; /* NULL: absent */
    bool *connected;   /* with each rank, on the first link */
    bool root;         /* not a split */
    Stop *stop;        /* the first `stops` are in progress, in order; the rest are spare */
    size_t stops, stops_made, stops_capacity;
} NcclGroup;

static NcclGroup *impl(const Group *group) {
    return group->impl;
}

static ncclDataType_t type_of(DType dtype) {
    static const ncclDataType_t types[DT_COUNT] = {
        [DT_F32] = ncclFloat32,  [DT_BF16] = ncclBfloat16,    [DT_F16] = ncclFloat16, [DT_F64] = ncclFloat64,
        [DT_I32] = ncclInt32,    [DT_I64] = ncclInt64,        [DT_U8] = ncclUint8,    [DT_E4M3] = ncclUint8,
        [DT_E5M2] = ncclUint8,   [DT_I8] = ncclInt8,          [DT_Q8] = ncclUint8,    [DT_Q4] = ncclUint8,
        [DT_SPARSE] = ncclUint8, [DT_F32_LOWER] = ncclFloat16}; /* only moved, like all after DT_I64 */
    return types[dtype];
}

/* ---- operations ---- */

/* The link to or from a rank and the rank's number on it; -1: they are not connected. A ring of two has one
 * neighbor. */
static int link_with(const Group *group, int peer, bool sends, int *ret_peer) {
    const NcclGroup *own = impl(group);
    int size = group->size, next = (group->rank + 1) % size;
    int at = peer == next                              ? (sends ? LINK_TO_NEXT : LINK_FROM_NEXT)
             : peer == (group->rank + size - 1) % size ? (sends ? LINK_TO_PREVIOUS : LINK_FROM_PREVIOUS)
                                                       : LINK_ALL;
    if (at != LINK_ALL && own->link[at]) {
        *ret_peer = sends; /* the sender is rank 0 */
        return at;
    }
    *ret_peer = peer;
    return own->connected[peer] ? LINK_ALL : -1;
}

/* `peer`: the other rank's number on the link. */
static ncclResult_t call_nccl(const Nccl *nccl, const Link *link, const CommCall *call, int peer) {
    const void *src = call->src.data;
    void *dst = call->dst.data;
    size_t from = (size_t)tensor_count(call->src), to = (size_t)tensor_count(call->dst);
    ncclDataType_t type = type_of(call->src.dtype);
    ncclRedOp_t op = call->reduce == REDUCE_MAX ? ncclMax : ncclSum;
    ncclComm_t comm = link->comm;
    cudaStream_t stream = cuda_stream(link->stream);
    switch (call->kind) {
    case COMM_ALL_REDUCE: return nccl->all_reduce(src, dst, from, type, op, comm, stream);
    case COMM_REDUCE_SCATTER: return nccl->reduce_scatter(src, dst, to, type, op, comm, stream);
    case COMM_ALL_GATHER: return nccl->all_gather(src, dst, from, type, comm, stream);
    case COMM_BROADCAST: return nccl->broadcast(src, dst, from, type, call->rank, comm, stream);
    case COMM_SEND: return nccl->send(src, from, type, peer, comm, stream);
    case COMM_RECEIVE: return nccl->receive(dst, to, type, peer, comm, stream);
    default: return ncclInvalidArgument;
    }
}

/* NCCL copies what a rank sends itself. */
static ncclResult_t all_to_all_nccl(const Nccl *nccl, const Link *link, const Group *group,
                                    const CommCall *call) {
    char *src = call->src.data, *dst = call->dst.data;
    cudaStream_t stream = cuda_stream(link->stream);
    ncclResult_t result = nccl->group_start();
    for (int r = 0; r < group->size && result == ncclSuccess; r++) {
        size_t to = (size_t)comm_part_bytes(call->src, call->out, group->size, r);
        size_t from = (size_t)comm_part_bytes(call->dst, call->in, group->size, r);
        if (to) result = nccl->send(src, to, ncclUint8, r, link->comm, stream);
        if (from && result == ncclSuccess)
            result = nccl->receive(dst, from, ncclUint8, r, link->comm, stream);
        src += to;
        dst += from;
    }
    ncclResult_t ended = nccl->group_end();
    return result == ncclSuccess ? ended : result;
}

static bool all_connected(const Group *group) {
    bool all = true;
    for (int r = 0; r < group->size; r++) all &= r == group->rank || impl(group)->connected[r];
    return all;
}

static Status start_nccl(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket) {
    NcclGroup *own = impl(group);
    bool message = call->kind == COMM_SEND || call->kind == COMM_RECEIVE,
         pairs = call->kind == COMM_ALL_TO_ALL;
    int peer = 0, at = message ? link_with(group, call->rank, call->kind == COMM_SEND, &peer) : LINK_ALL;
    uint64_t number;
    if (pairs && own->link[at] && !all_connected(group)) at = -1;
    if (at < 0) return group->under->ops->start(group->under, stream, call, ret_ticket);
    Link *link = own->link[at];
    if (!link) return FAILED("internal: this group has no tensors");
    TRY(link_begin(own->net, link, group, stream, &number));
    TRY(link_end(own->net, link, number,
                 pairs ? all_to_all_nccl(&own->net->nccl, link, group, call)
                       : call_nccl(&own->net->nccl, link, call, peer)));
    *ret_ticket = (Ticket){.group = group, .number = number << LINK_BITS | (uint64_t)at};
    return OK;
}

/* Messages of no bytes do not connect, so each has one. */
static Status connect_nccl(Group *group, int peer) {
    NcclGroup *own = impl(group);
    const Nccl *nccl = &own->net->nccl;
    Link *link = own->link[LINK_ALL];
    char *data = own->net->bytes.data;
    if (!link) return OK;
    ncclResult_t result = nccl->group_start();
    for (int r = 0; r < group->size && result == ncclSuccess; r++) {
        if (r == group->rank || own->connected[r] || (peer != EVERY_RANK && r != peer)) continue;
        result = nccl->send(data, 1, ncclUint8, r, link->comm, cuda_stream(link->stream));
        if (result == ncclSuccess)
            result = nccl->receive(data + 1, 1, ncclUint8, r, link->comm, cuda_stream(link->stream));
    }
    net_call(own->net, "connecting GPUs with each other");
    ncclResult_t ended = nccl->group_end();
    if (result == ncclSuccess) result = ended;
    Status synced = result == ncclSuccess ? group_sync(group, link->stream) : OK;
    Status status = net_called(own->net, result);
    if (synced) {
        status_free(status);
        return synced;
    }
    for (int r = 0; r < group->size && !status; r++) own->connected[r] |= peer == EVERY_RANK || r == peer;
    return status;
}

/* Events for a new wait; NULL if it is not timed. */
static Status stop_take(NcclGroup *link, Stop **ret_stop) {
    *ret_stop = NULL;
    if (link->stops == STOPS_LIMIT) return OK;
    if (link->stops == link->stops_made) {
        Stop made = {0};
        TRY(mem_grow(&link->stop, &link->stops_capacity, link->stops_made + 1, sizeof *link->stop));
        CUDA_TRY(cudaEventCreate(&made.from));
        link->stop[link->stops_made] = made;
        Status status = cuda_status(cudaEventCreate(&link->stop[link->stops_made].to), "an event");
        if (status) {
            cudaEventDestroy(made.from);
            return status;
        }
        link->stops_made++;
    }
    *ret_stop = &link->stop[link->stops++];
    return OK;
}

/* Collects finished waits and recycles their events. Errors surface at the next synchronization. */
static int64_t held_up_nccl(Group *group) {
    NcclGroup *link = impl(group);
    double ns = 0;
    size_t over = 0;
    for (; over < link->stops; over++) {
        float ms = 0;
        if (cudaEventQuery(link->stop[over].to) != cudaSuccess ||
            cudaEventElapsedTime(&ms, link->stop[over].from, link->stop[over].to) != cudaSuccess)
            break;
        ns += 1e6 * (double)ms;
    }
    if (over < link->stops) cudaGetLastError(); /* cudaErrorNotReady is not an error */
    for (size_t i = 0; over && i < link->stops - over; i++) {
        Stop later = link->stop[over + i];
        link->stop[over + i] = link->stop[i];
        link->stop[i] = later;
    }
    link->stops -= over;
    return (int64_t)ns;
}

static Status wait_nccl(Group *group, Stream *stream, Ticket ticket) {
    NcclGroup *own = impl(group);
    Link *link = own->link[ticket.number & ((1 << LINK_BITS) - 1)];
    Stop *stop;
    StreamSpan span;
    TRY(stream_span_begin(stream, group->trace, &span));
    TRY(stop_take(own, &stop));
    if (stop) CUDA_TRY(cudaEventRecord(stop->from, cuda_stream(stream)));
    TRY(link_wait(own->net, link, ticket.number >> LINK_BITS, stream));
    if (stop) CUDA_TRY(cudaEventRecord(stop->to, cuda_stream(stream)));
    return group->trace ? stream_span_end(stream, group->trace, &span, TRACE_COMPUTE, &group->names->wait,
                                          (int64_t[TRACE_NUMBERS]){0})
                        : OK;
}

static Status batch_nccl(Group *group, bool begins) {
    return net_batch(impl(group)->net, begins);
}

/* cudaStreamSynchronize would wait forever for a rank that does not take part. Polls the stream, at first
 * without pause, since steps are short. */
static Status sync_nccl(Group *group, Stream *stream) {
    enum { SPIN_US = 500, SLEEP_US = 50, LOOK_US = 20000 };
    Group *base = group_base(group);
    int64_t start = trace_now(), looked = start;
    while (cudaStreamQuery(cuda_stream(stream)) == cudaErrorNotReady) {
        int64_t now = trace_now();
        if (now - start < SPIN_US * 1000) continue;
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_US * 1000}, NULL);
        if (now - looked < LOOK_US * 1000) continue;
        looked = now;
        if (base->ops->wait_more) TRY(base->ops->wait_more(base));
    }
    cudaGetLastError(); /* cudaErrorNotReady is not an error */
    return stream_sync(stream);
}

static void drop_nccl(Group *group) {
    net_drop(impl(group)->net);
}

static void free_nccl(Group *group) {
    NcclGroup *own = impl(group);
    for (int i = 0; i < LINKS; i++) link_free(own->net, own->link[i]);
    for (size_t i = 0; i < own->stops_made; i++) {
        cudaEventDestroy(own->stop[i].from);
        cudaEventDestroy(own->stop[i].to);
    }
    if (own->root) group_watch_device(group->under, (DeviceWatch){0});
    net_leave(own->net);
    group_free(group->under);
    free(own->stop);
    free(own->connected);
    free(own);
    free(group);
}

/* ---- creation ---- */

/* The edge of a ring, from a rank to the next one, that a rank has in a round; -1: none. Edges of a round
 * have no rank in common, so that one split makes all of their links: those from even ranks, those from odd
 * ranks, and the last one if their number is odd. A ring of two has one edge. */
static int edge_of(int rank, int size, int round) {
    for (int e = 0; e < (size == 2 ? 1 : size) && size > 1; e++) {
        int turn = size % 2 && e == size - 1 ? 2 : e % 2;
        if (turn == round && (e == rank || (e + 1) % size == rank)) return e;
    }
    return -1;
}

/* Sends a byte over a link of two ranks. Later, connecting would block the caller until the other rank sends
 * or receives, which may in turn wait for this one. */
static Status link_try(Net *net, Link *link, bool sends) {
    net_call(net, "connecting neighbors in a ring of GPUs");
    cudaStream_t stream = cuda_stream(link->stream);
    return net_called(net, sends ? net->nccl.send(net->bytes.data, 1, ncclUint8, 1, link->comm, stream)
                                 : net->nccl.receive(net->bytes.data, 1, ncclUint8, 0, link->comm, stream));
}

/* Links of a ring, one of each edge and direction. `own` may be NULL on ranks that are in none. */
static Status connect_ring(NcclGroup *own, Net *net, Link *parent, const Group *under, int first_color) {
    enum { ROUNDS = 3 };
    for (int i = 0; i < 2 * ROUNDS; i++) {
        int edge = edge_of(under->rank, under->size, i / 2), back = i % 2;
        bool low = edge == under->rank, sends = low == !back;
        Link *link = NULL;
        TRY(link_split(net, parent, edge < 0 ? NCCL_SPLIT_NOCOLOR : first_color + edge, !sends, &link));
        if (!link) continue;
        TRY(link_try(net, link, sends));
        bool next = low || under->size == 2;
        own->link[next ? (sends ? LINK_TO_NEXT : LINK_FROM_NEXT)
                       : (sends ? LINK_TO_PREVIOUS : LINK_FROM_PREVIOUS)] = link;
    }
    return OK;
}

static const GroupOps group_ops_nccl;

/* Owns `under` on success. */
static Status group_over(Group **ret_group, Group *under, Net *net) {
    CLEANUP(mem_freep) Group *group = NULL;
    NcclGroup *own = NULL;
    TRY(mem_new(1, sizeof *group, &group));
    CLEANUP(mem_freep) bool *connected = NULL;
    TRY(mem_new((size_t)under->size, sizeof *connected, &connected));
    TRY(mem_new(1, sizeof *own, &own));
    *own = (NcclGroup){.net = net, .connected = connected};
    connected = NULL;
    net->users++;
    *group = (Group){.ops = &group_ops_nccl,
                     .rank = under->rank,
                     .size = under->size,
                     .placement = under->placement,
                     .under = under,
                     .impl = own};
    *ret_group = group;
    group = NULL;
    return OK;
}

/* Splits are collective, also over ranks whose new group has one rank. */
static Status split_nccl(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    NcclGroup *own = impl(group);
    Link *parent = own->link[LINK_ALL];
    CLEANUP(group_freep) Group *under = NULL, *part = NULL;
    TRY(group_split(group->under, color, key, use, &under));
    int64_t largest = under->size;
    TRY(host_reduce(group->under, &largest, 1, DT_I64, REDUCE_MAX));
    if (under->size > 1) {
        TRY(group_over(&part, under, own->net));
        under = NULL;
    }
    const Group *made = part ? part : under;
    NcclGroup *linked = part ? impl(part) : NULL;
    if (largest > 1 && use != GROUP_HOST && !parent)
        return FAILED("internal: split of a group without tensors");
    if (largest > 1 && use == GROUP_RING)
        TRY(connect_ring(linked, own->net, parent, made, color * group->size));
    if (largest > 1 && use == GROUP_TENSORS) {
        Link *link = NULL;
        TRY(link_split(own->net, parent, part ? color : NCCL_SPLIT_NOCOLOR, made->rank, &link));
        if (linked) linked->link[LINK_ALL] = link;
    }
    *ret_group = part ? part : under;
    part = under = NULL;
    return OK;
}

static const GroupOps group_ops_nccl = {
    .name = "nccl",
    .start = start_nccl,
    .connect = connect_nccl,
    .wait = wait_nccl,
    .held_up = held_up_nccl,
    .batch = batch_nccl,
    .split = split_nccl,
    .sync = sync_nccl,
    .drop = drop_nccl,
    .free = free_nccl,
};

static Status connect_world(Group *group) {
    NcclGroup *own = impl(group);
    ncclUniqueId id = {0};
    if (group->rank == 0) TRY(net_called(own->net, own->net->nccl.unique_id(&id)));
    TRY(host_broadcast(group->under, &id, sizeof id, 0));
    return link_new(own->net, &own->link[LINK_ALL], group->size, id, group->rank);
}

Status group_new_nccl(Group **ret_group, Group *host, Device *device) {
    CLEANUP(group_freep) Group *group = NULL;
    Group *under = NULL;
    Net *net = NULL;
    TRY(group_new_staged(&under, host, device));
    Status status = net_new(&net, device);
    if (!status) status = group_over(&group, under, net);
    net_leave(net);
    if (status) {
        group_unstage(under);
        return status;
    }
    impl(group)->root = true;
    group_watch_device(under, (DeviceWatch){net_look, net});
    status = connect_world(group);
    if (status) {
        group_watch_device(under, (DeviceWatch){0});
        group_unstage(under);
        impl(group)->root = false;
        group->under = NULL;
        return status;
    }
    *ret_group = group;
    group = NULL;
    return OK;
}

bool nccl_built(void) {
    return true;
}

Status nccl_version(char *text, size_t size) {
    Nccl nccl;
    int number = 0;
    TRY(nccl_open(&nccl));
    if (nccl.version(&number) != ncclSuccess) return FAILED("cannot read the NCCL version");
    snprintf(text, size, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return OK;
}
