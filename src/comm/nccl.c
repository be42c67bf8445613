/* Each group has its own communicator and stream. An operation runs on that stream after an event of the
 * caller's stream and records an end event, which the caller's stream waits for in ticket_wait; the host
 * never blocks. A batch is one launch with one end event. Two more events around the wait measure how long it
 * stalled the stream.
 *
 * NCCL's summation order differs from that over MPI, but is the same in every run for the same ranks and
 * sizes.
 */
#include "comm/nccl.h"

#include <nccl.h>
#include <time.h>

#include "base/memory.h"
#include "comm/watchdog.h"
#include "device/cuda/cuda.h"

typedef struct Nccl {
    ncclResult_t (*version)(int *version);
    ncclResult_t (*unique_id)(ncclUniqueId *id);
    ncclResult_t (*init)(ncclComm_t *comm, int size, ncclUniqueId id, int rank);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*give_up)(ncclComm_t comm);
    ncclResult_t (*all_reduce)(const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*reduce_scatter)(const void *src, void *dst, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_gather)(const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream);
    ncclResult_t (*broadcast)(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*send)(const void *src, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                         cudaStream_t stream);
    ncclResult_t (*receive)(void *dst, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                            cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    const char *(*error)(ncclResult_t result);
} Nccl;

static const char *const function_names[] = {
    "ncclGetVersion", "ncclGetUniqueId",   "ncclCommInitRank", "ncclCommDestroy",    "ncclCommAbort",
    "ncclAllReduce",  "ncclReduceScatter", "ncclAllGather",    "ncclBroadcast",      "ncclSend",
    "ncclRecv",       "ncclGroupStart",    "ncclGroupEnd",     "ncclGetErrorString",
};

_Static_assert(sizeof(Nccl) == sizeof function_names, "a name for each function");

static Status nccl_open(Nccl *ret_nccl) {
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *library;
    TRY(library_open(&library, names, "communication between GPUs"));
    return library_bind(library, function_names, sizeof function_names / sizeof *function_names, ret_nccl);
}

/* End events of operations. Slots are reused after the wait. */
typedef struct Mark {
    cudaEvent_t event;
    bool used;
    bool held; /* in a batch that is not yet launched */
} Mark;

/* A wait on the caller's stream, timed by two events. */
typedef struct Stop {
    cudaEvent_t from, to;
} Stop;

enum { STOPS_LIMIT = 8192 }; /* unfinished waits; further ones are not timed */

typedef struct Link {
    Group *host;
    Device *device;
    Nccl nccl;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t before; /* marks the caller's earlier work */
    Mark *mark;
    size_t marks, capacity;
    Stop *stop; /* the first `stops` are in progress, in order; the rest are spare */
    size_t stops, stops_made, stops_capacity;
    bool batch, broken;
} Link;

static Link *impl(const Group *group) {
    return group->impl;
}

static Status nccl_status(const Link *link, ncclResult_t result, const char *what) {
    if (result == ncclSuccess) return OK;
    return FAILED("NCCL: %s: %s", what, link->nccl.error(result));
}

static Status check_type(DType dtype, ncclDataType_t *ret_type) {
    static const ncclDataType_t types[DT_COUNT] = {
        [DT_F32] = ncclFloat32, [DT_BF16] = ncclBfloat16, [DT_F16] = ncclFloat16, [DT_F64] = ncclFloat64,
        [DT_I32] = ncclInt32,   [DT_I64] = ncclInt64,     [DT_U8] = ncclUint8,    [DT_E4M3] = ncclUint8,
        [DT_E5M2] = ncclUint8,  [DT_I8] = ncclInt8,       [DT_Q8] = ncclUint8};
    if (dtype >= DT_COUNT) return FAILED("internal: unsupported tensor type");
    *ret_type = types[dtype];
    return OK;
}

static Status mark_take(Link *link, size_t *ret_number) {
    size_t at = 0;
    while (at < link->marks && link->mark[at].used) at++;
    if (at == link->marks) {
        TRY(mem_grow(&link->mark, &link->capacity, at + 1, sizeof *link->mark));
        link->mark[at] = (Mark){0};
        CUDA_TRY(cudaEventCreateWithFlags(&link->mark[at].event, cudaEventDisableTiming));
        link->marks++;
    }
    link->mark[at].used = true;
    *ret_number = at;
    return OK;
}

/* Makes the group's stream wait for the caller's earlier work. */
static Status begin(Link *link, const Stream *stream, DType dtype, ncclDataType_t *ret_type) {
    TRY(check_type(dtype, ret_type));
    CUDA_TRY(cudaEventRecord(link->before, cuda_stream(stream)));
    CUDA_TRY(cudaStreamWaitEvent(link->stream, link->before, 0));
    return OK;
}

static Status end(Group *group, ncclResult_t result, const char *what, Ticket *ret_ticket) {
    Link *link = impl(group);
    TRY(nccl_status(link, result, what));
    size_t number = 0;
    TRY(mark_take(link, &number));
    link->mark[number].held = link->batch;
    if (!link->batch) CUDA_TRY(cudaEventRecord(link->mark[number].event, link->stream));
    *ret_ticket = (Ticket){.group = group, .number = number};
    return OK;
}

static ncclRedOp_t reduction(ReduceOp op) {
    return op == REDUCE_MAX ? ncclMax : ncclSum;
}

static Status all_reduce_nccl(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, data.dtype, &type));
    return end(group,
               link->nccl.all_reduce(data.data, data.data, (size_t)tensor_count(data), type, reduction(op),
                                     link->comm, link->stream),
               "all-reduce", ret_ticket);
}

static Status reduce_scatter_nccl(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                                  Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, src.dtype, &type));
    return end(group,
               link->nccl.reduce_scatter(src.data, dst.data, (size_t)tensor_count(dst), type, reduction(op),
                                         link->comm, link->stream),
               "reduce-scatter", ret_ticket);
}

static Status all_gather_nccl(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, src.dtype, &type));
    return end(
        group,
        link->nccl.all_gather(src.data, dst.data, (size_t)tensor_count(src), type, link->comm, link->stream),
        "all-gather", ret_ticket);
}

static Status broadcast_nccl(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, data.dtype, &type));
    return end(group,
               link->nccl.broadcast(data.data, data.data, (size_t)tensor_count(data), type, root, link->comm,
                                    link->stream),
               "broadcast", ret_ticket);
}

static Status send_nccl(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, data.dtype, &type));
    return end(group,
               link->nccl.send(data.data, (size_t)tensor_count(data), type, to, link->comm, link->stream),
               "send", ret_ticket);
}

static Status receive_nccl(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket) {
    Link *link = impl(group);
    ncclDataType_t type;
    TRY(begin(link, stream, data.dtype, &type));
    return end(
        group,
        link->nccl.receive(data.data, (size_t)tensor_count(data), type, from, link->comm, link->stream),
        "receive", ret_ticket);
}

/* Events for a new wait; NULL if it is not timed. */
static Status stop_take(Link *link, Stop **ret_stop) {
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
    Link *link = impl(group);
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
    Link *link = impl(group);
    Mark *mark = &link->mark[ticket.number];
    if (mark->held) return FAILED("internal: operation waited for before its batch was launched");
    Stop *stop;
    TRY(stop_take(link, &stop));
    if (stop) CUDA_TRY(cudaEventRecord(stop->from, cuda_stream(stream)));
    CUDA_TRY(cudaStreamWaitEvent(cuda_stream(stream), mark->event, 0));
    if (stop) CUDA_TRY(cudaEventRecord(stop->to, cuda_stream(stream)));
    mark->used = false;
    return OK;
}

static Status batch_nccl(Group *group, bool begins) {
    Link *link = impl(group);
    link->batch = begins;
    if (begins) return nccl_status(link, link->nccl.group_start(), "a batch");
    TRY(nccl_status(link, link->nccl.group_end(), "a batch"));
    for (size_t i = 0; i < link->marks; i++) {
        if (!link->mark[i].held) continue;
        link->mark[i].held = false;
        CUDA_TRY(cudaEventRecord(link->mark[i].event, link->stream));
    }
    return OK;
}

static Status host_reduce_nccl(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    return host_reduce(impl(group)->host, data, count, dtype, op);
}

static Status host_gather_nccl(Group *group, void *dst, const void *src, size_t bytes) {
    return host_gather(impl(group)->host, dst, src, bytes);
}

static Status host_broadcast_nccl(Group *group, void *data, size_t bytes, int root) {
    return host_broadcast(impl(group)->host, data, bytes, root);
}

/* cudaStreamSynchronize would wait forever for a rank that does not take part. Polls the stream, at first
 * without pause, since steps are short. */
static Status sync_nccl(Group *group, Stream *stream) {
    enum { SPIN_US = 500, SLEEP_US = 50, LOOK_US = 20000 };
    Group *host = impl(group)->host;
    int64_t start = trace_now(), looked = start;
    bool begins = true;
    while (cudaStreamQuery(cuda_stream(stream)) == cudaErrorNotReady) {
        int64_t now = trace_now();
        if (now - start < SPIN_US * 1000) continue;
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_US * 1000}, NULL);
        if (!host->ops->wait_more || now - looked < LOOK_US * 1000) continue;
        looked = now;
        TRY(host->ops->wait_more(host, begins));
        begins = false;
    }
    cudaGetLastError(); /* cudaErrorNotReady is not an error */
    return stream_sync(stream);
}

static Watchdog *watchdog_nccl(const Group *group) {
    return group_watchdog(impl(group)->host);
}

/* Operations with a failed rank would never complete. */
static void drop_nccl(Group *group) {
    Link *link = impl(group);
    group_drop(link->host);
    bool busy = cudaStreamQuery(link->stream) == cudaErrorNotReady;
    if (!busy || link->broken) return;
    link->broken = true;
    link->nccl.give_up(link->comm);
}

static bool claim_failure_nccl(Group *group) {
    return group_claim_failure(impl(group)->host);
}

static void end_all_nccl(Group *group, int exit_code) {
    group_end_all(impl(group)->host, exit_code);
}

static void link_free(Link *link) {
    if (link->comm && !link->broken) link->nccl.destroy(link->comm);
    for (size_t i = 0; i < link->marks; i++) cudaEventDestroy(link->mark[i].event);
    for (size_t i = 0; i < link->stops_made; i++) {
        cudaEventDestroy(link->stop[i].from);
        cudaEventDestroy(link->stop[i].to);
    }
    if (link->before) cudaEventDestroy(link->before);
    if (link->stream) cudaStreamDestroy(link->stream);
    group_free(link->host);
    free(link->mark);
    free(link->stop);
    free(link);
}

static void free_nccl(Group *group) {
    link_free(impl(group));
    free(group);
}

static Status group_over(Group **ret_group, Group *host, Device *device);

static Status split_nccl(Group *group, int color, int key, Group **ret_group) {
    Link *link = impl(group);
    Group *host = NULL;
    TRY(group_split(link->host, color, key, &host));
    if (host->size == 1) {
        *ret_group = host;
        return OK;
    }
    Status status = group_over(ret_group, host, link->device);
    if (status) group_free(host);
    return status;
}

static const GroupOps group_ops_nccl = {
    .name = "nccl",
    .all_reduce = all_reduce_nccl,
    .reduce_scatter = reduce_scatter_nccl,
    .all_gather = all_gather_nccl,
    .broadcast = broadcast_nccl,
    .send = send_nccl,
    .receive = receive_nccl,
    .wait = wait_nccl,
    .held_up = held_up_nccl,
    .batch = batch_nccl,
    .host_reduce = host_reduce_nccl,
    .host_gather = host_gather_nccl,
    .host_broadcast = host_broadcast_nccl,
    .split = split_nccl,
    .watchdog = watchdog_nccl,
    .sync = sync_nccl,
    .drop = drop_nccl,
    .claim_failure = claim_failure_nccl,
    .end_all = end_all_nccl,
    .free = free_nccl,
};

static Status link_init(Link *link) {
    ncclUniqueId id = {0};
    CUDA_TRY(cudaSetDevice(link->device->index));
    TRY(nccl_open(&link->nccl));
    if (link->host->rank == 0) TRY(nccl_status(link, link->nccl.unique_id(&id), "cannot create a unique id"));
    TRY(host_broadcast(link->host, &id, sizeof id, 0));
    CUDA_TRY(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&link->before, cudaEventDisableTiming));
    return nccl_status(link, link->nccl.init(&link->comm, link->host->size, id, link->host->rank),
                       "cannot connect the ranks");
}

/* Owns `host` on success. */
static Status group_over(Group **ret_group, Group *host, Device *device) {
    Group *group = NULL;
    Link *link = NULL;
    Status status = mem_new(1, sizeof *group, &group);
    if (!status) status = mem_new(1, sizeof *link, &link);
    if (status) {
        free(group);
        return status;
    }
    *link = (Link){.host = host, .device = device};
    *group = (Group){.ops = &group_ops_nccl,
                     .rank = host->rank,
                     .size = host->size,
                     .placement = host->placement,
                     .impl = link};
    status = link_init(link);
    if (!status) {
        *ret_group = group;
        return OK;
    }
    link->host = NULL;
    free_nccl(group);
    return status;
}

Status group_new_nccl(Group **ret_group, Group *host, Device *device) {
    return group_over(ret_group, host, device);
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
