#include "comm/cuda/net.h"

#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

static const char *const function_names[] = {
    "ncclGetVersion",    "ncclGetUniqueId", "ncclCommInitRank",      "ncclCommSplit",
    "ncclCommDestroy",   "ncclCommAbort",   "ncclCommGetAsyncError", "ncclAllReduce",
    "ncclReduceScatter", "ncclAllGather",   "ncclBroadcast",         "ncclSend",
    "ncclRecv",          "ncclGroupStart",  "ncclGroupEnd",          "ncclGetErrorString",
    "ncclGetLastError",
};

_Static_assert(sizeof(Nccl) == sizeof function_names, "a name for each function");

Status nccl_open(Nccl *ret_nccl) {
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *library;
    TRY(library_open(&library, names, "communication between GPUs"));
    return library_bind(library, function_names, sizeof function_names / sizeof *function_names, ret_nccl);
}

/* "remote process exited or there was a network error: socket ..." */
static Status nccl_failure(const Net *net, ncclResult_t result, const char *what) {
    const char *more = net->nccl.last_error(NULL);
    return FAILED("NCCL: %s: %s%s%s", what, net->nccl.error(result), more && *more ? ": " : "",
                  more ? more : "");
}

/* ---- operations ---- */

static NetOp *op_at(const Link *link, uint64_t number) {
    return &link->op[number % link->capacity];
}

static bool op_done(const NetOp *op) {
    return cudaEventQuery(op->after) == cudaSuccess;
}

/* The lock is held. */
static Status grow(Link *link) {
    enum { FIRST = 64 };
    size_t capacity = link->capacity ? 2 * link->capacity : FIRST;
    NetOp *op = NULL;
    TRY(mem_new(capacity, sizeof *op, &op));
    for (uint64_t n = link->head; n < link->tail; n++) op[n % capacity] = *op_at(link, n);
    free(link->op);
    link->op = op;
    link->capacity = capacity;
    return OK;
}

/* A slot of the ring keeps its events for its next operation. */
static Status op_new(Net *net, Link *link, uint64_t *ret_number) {
    while (link->head < link->tail && op_at(link, link->head)->waited && op_done(op_at(link, link->head))) {
        pthread_mutex_lock(&net->lock);
        link->head++;
        pthread_mutex_unlock(&net->lock);
    }
    cudaGetLastError(); /* cudaErrorNotReady is not an error */
    if (link->tail - link->head == link->capacity) {
        pthread_mutex_lock(&net->lock);
        Status status = grow(link);
        pthread_mutex_unlock(&net->lock);
        TRY(status);
    }
    NetOp *op = op_at(link, link->tail);
    if (!op->before) CUDA_TRY(cudaEventCreateWithFlags(&op->before, cudaEventDisableTiming));
    if (!op->after) CUDA_TRY(cudaEventCreateWithFlags(&op->after, cudaEventDisableTiming));
    *ret_number = link->tail;
    return OK;
}

Status link_begin(Net *net, Link *link, const Group *group, const Stream *stream, uint64_t *ret_number) {
    uint64_t number = 0;
    TRY(op_new(net, link, &number));
    NetOp *op = op_at(link, number);
    CUDA_TRY(cudaEventRecord(op->before, cuda_stream(stream)));
    CUDA_TRY(cudaStreamWaitEvent(cuda_stream(link->stream), op->before, 0));
    Trace *trace = group->label.name ? group->trace : NULL;
    StreamSpan span;
    TRY(stream_span_begin(link->stream, trace, &span));
    pthread_mutex_lock(&net->lock);
    *op = (NetOp){.before = op->before,
                  .after = op->after,
                  .label = group->label,
                  .names = group->names,
                  .trace = trace,
                  .span = span};
    link->tail++;
    char *error = net->error;
    bool broken = net->broken;
    pthread_mutex_unlock(&net->lock);
    if (error) return FAILED("%s", error);
    if (broken) return FAILED("internal: communication after a failure");
    net_call(net, "starting an operation");
    *ret_number = number;
    return OK;
}

static Status launched(Net *net, Link *link, NetOp *op) {
    CUDA_TRY(cudaEventRecord(op->after, cuda_stream(link->stream)));
    TRY(stream_span_end(link->stream, op->trace, &op->span, TRACE_COMM, op->label.name, op->label.number));
    pthread_mutex_lock(&net->lock);
    op->launched = true;
    pthread_mutex_unlock(&net->lock);
    return OK;
}

Status link_end(Net *net, Link *link, uint64_t number, ncclResult_t result) {
    TRY(net_called(net, result));
    return net->batch ? OK : launched(net, link, op_at(link, number));
}

Status net_batch(Net *net, bool begins) {
    net->batch = begins;
    if (begins) return net_called(net, net->nccl.group_start());
    net_call(net, "starting operations");
    TRY(net_called(net, net->nccl.group_end()));
    for (Link *link = net->first; link; link = link->next)
        for (uint64_t n = link->tail; n > link->head && !op_at(link, n - 1)->launched; n--)
            TRY(launched(net, link, op_at(link, n - 1)));
    return OK;
}

Status link_wait(Net *net, Link *link, uint64_t number, const Stream *stream) {
    NetOp *op = op_at(link, number);
    if (!op->launched) return FAILED("internal: operation waited for before its batch was launched");
    CUDA_TRY(cudaStreamWaitEvent(cuda_stream(stream), op->after, 0));
    pthread_mutex_lock(&net->lock);
    op->waited = true;
    pthread_mutex_unlock(&net->lock);
    return OK;
}

/* ---- links ---- */

void net_call(Net *net, const char *what) {
    pthread_mutex_lock(&net->lock);
    net->calling = what;
    net->calls++;
    pthread_mutex_unlock(&net->lock);
}

Status net_called(Net *net, ncclResult_t result) {
    pthread_mutex_lock(&net->lock);
    const char *what = net->calling;
    net->calling = NULL;
    pthread_mutex_unlock(&net->lock);
    return result == ncclSuccess ? OK : nccl_failure(net, result, what ? what : "a batch");
}

/* Owns the communicator, even on failure. */
static Status link_add(Net *net, ncclComm_t comm, Link **ret_link) {
    Link *link = NULL;
    Status status = mem_new(1, sizeof *link, &link);
    if (!status) status = stream_new(&link->stream, net->device);
    if (status) {
        net->nccl.give_up(comm);
        free(link);
        return status;
    }
    link->comm = comm;
    link->id = ++net->links;
    pthread_mutex_lock(&net->lock);
    link->next = net->first;
    net->first = link;
    pthread_mutex_unlock(&net->lock);
    *ret_link = link;
    return OK;
}

Status link_new(Net *net, Link **ret_link, int size, ncclUniqueId id, int rank) {
    ncclComm_t comm = NULL;
    CUDA_TRY(cudaSetDevice(net->device->index));
    net_call(net, "connecting the GPUs");
    TRY(net_called(net, net->nccl.init(&comm, size, id, rank)));
    return link_add(net, comm, ret_link);
}

Status link_split(Net *net, Link *parent, int color, int key, Link **ret_link) {
    ncclComm_t comm = NULL;
    net_call(net, "connecting a group of GPUs");
    TRY(net_called(net, net->nccl.split(parent->comm, color, key, &comm, NULL)));
    *ret_link = NULL;
    return comm ? link_add(net, comm, ret_link) : OK;
}

void link_free(Net *net, Link *link) {
    if (!link) return;
    pthread_mutex_lock(&net->lock);
    Link **at = &net->first;
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    while (net->looking) pthread_cond_wait(&net->changed, &net->lock);
    bool broken = net->broken;
    pthread_mutex_unlock(&net->lock);
    net_call(net, "disconnecting the GPUs");
    if (!broken) net->nccl.destroy(link->comm);
    status_free(net_called(net, ncclSuccess));
    for (size_t i = 0; i < link->capacity; i++) {
        if (link->op[i].before) cudaEventDestroy(link->op[i].before);
        if (link->op[i].after) cudaEventDestroy(link->op[i].after);
    }
    stream_free(link->stream);
    free(link->op);
    free(link);
}

/* ---- watching ---- */

static const double look_s = 0.1, stuck_s = 2;
enum { OPS_PER_LOOK = 4096 };

/* The oldest operation that the thread has not seen complete; false if none is launched. The lock is held. */
static bool next_op(Link *link, NetOp *ret_op) {
    if (link->seen < link->head) link->seen = link->head;
    if (link->seen == link->tail || !op_at(link, link->seen)->launched) return false;
    *ret_op = *op_at(link, link->seen);
    return true;
}

/* Finds out what a link waits for. The lock is held, except while events are queried: another thread may hold
 * CUDA's own locks for long. Their slot may be in use for a later operation then; the next look sees that. */
static void look_at(Net *net, Link *link, double now, DeviceWait *wait, double *since) {
    NetOp op;
    bool more = true;
    for (int i = 0; i < OPS_PER_LOOK && more && next_op(link, &op); i++) {
        pthread_mutex_unlock(&net->lock);
        bool done = cudaEventQuery(op.after) == cudaSuccess;
        bool runs = !done && cudaEventQuery(op.before) == cudaSuccess;
        pthread_mutex_lock(&net->lock);
        more = done;
        if (done || !runs) link->seen_since = 0;
        if (done) link->seen++;
        if (!runs) continue;
        if (link->seen_since == 0) link->seen_since = now;
        if (wait->waits && link->seen_since >= *since) continue;
        *since = link->seen_since;
        *wait = (DeviceWait){
            .waits = true, .number = link->id << 40 | link->seen, .label = op.label, .names = op.names};
    }
}

/* The lock is held. */
static void find_error(Net *net) {
    for (const Link *link = net->first; link && !net->broken && !net->error; link = link->next) {
        ncclResult_t state = ncclSuccess;
        if (net->nccl.state(link->comm, &state) != ncclSuccess || state == ncclSuccess ||
            state == ncclInProgress)
            continue;
        CLEANUP(status_freep) Status status = nccl_failure(net, state, "communication between GPUs");
        status_free(str_dup(status_message(status), &net->error));
    }
}

static void *watch(void *argument) {
    Net *net = argument;
    cudaSetDevice(net->device->index);
    pthread_mutex_lock(&net->lock);
    while (!net->quitting) {
        struct timespec until = clock_after(look_s);
        pthread_cond_timedwait(&net->changed, &net->lock, &until);
        DeviceWait wait = {0};
        double now = clock_wall(), since = 0;
        net->looking = true; /* links stay */
        for (Link *link = net->first; link; link = link->next) look_at(net, link, now, &wait, &since);
        find_error(net);
        net->looking = false;
        net->seen = wait;
        net->looked_at = clock_wall();
        pthread_cond_broadcast(&net->changed);
    }
    pthread_mutex_unlock(&net->lock);
    return NULL;
}

/* A look that takes long is blocked by the device. */
void net_look(void *context, DeviceWait *ret_wait) {
    Net *net = context;
    pthread_mutex_lock(&net->lock);
    *ret_wait = net->seen;
    if (net->calling)
        *ret_wait = (DeviceWait){.waits = true, .number = net->calls, .what = net->calling};
    else if (clock_wall() - net->looked_at > stuck_s)
        *ret_wait = (DeviceWait){.waits = true, .what = "work on the GPU"};
    ret_wait->error = net->error;
    pthread_mutex_unlock(&net->lock);
}

static bool is_busy(const Net *net) {
    for (const Link *link = net->first; link; link = link->next)
        if (cudaStreamQuery(cuda_stream(link->stream)) == cudaErrorNotReady) return true;
    return false;
}

/* Operations end by themselves unless a rank has failed. */
static bool ends_soon(Net *net) {
    static const double settle_s = 2;
    double start = clock_wall();
    while (is_busy(net) && clock_wall() - start < settle_s)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    bool busy = is_busy(net);
    cudaGetLastError(); /* cudaErrorNotReady is not an error */
    return !busy;
}

void net_drop(Net *net) {
    pthread_mutex_lock(&net->lock);
    bool failed = net->broken || net->error || net->calling;
    pthread_mutex_unlock(&net->lock);
    bool busy = !failed && !ends_soon(net);
    pthread_mutex_lock(&net->lock);
    bool drop = !net->broken && (busy || net->error || net->calling);
    if (drop) net->broken = true;
    pthread_mutex_unlock(&net->lock);
    if (!drop) return;
    net_call(net, "giving up communication between GPUs"); /* may wait for threads of NCCL's */
    for (Link *link = net->first; link; link = link->next) net->nccl.give_up(link->comm);
    status_free(net_called(net, ncclSuccess));
}

Status net_new(Net **ret_net, Device *device) {
    Net *net = NULL;
    TRY(mem_new(1, sizeof *net, &net));
    Status status = nccl_open(&net->nccl);
    if (status) {
        free(net);
        return status;
    }
    net->device = device;
    net->users = 1;
    net->looked_at = clock_wall();
    status = dev_alloc(device, MEM_COMM, 64, &net->bytes);
    if (status) {
        free(net);
        return status;
    }
    pthread_mutex_init(&net->lock, NULL);
    clock_cond_init(&net->changed);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    net->threaded = pthread_create(&net->thread, NULL, watch, net) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!net->threaded) {
        net_leave(net);
        return FAILED("cannot create a thread that watches the GPU");
    }
    *ret_net = net;
    return OK;
}

void net_leave(Net *net) {
    if (!net || --net->users > 0) return;
    pthread_mutex_lock(&net->lock);
    net->quitting = true;
    pthread_cond_broadcast(&net->changed);
    pthread_mutex_unlock(&net->lock);
    if (net->threaded) pthread_join(net->thread, NULL);
    pthread_cond_destroy(&net->changed);
    pthread_mutex_destroy(&net->lock);
    dev_free(&net->bytes);
    free(net->error);
    free(net);
}
