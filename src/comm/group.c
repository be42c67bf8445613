/* Common to all groups: validates shapes, counts bytes and waits for operations without a ticket. */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/watchdog.h"

static const char *const kind_names[COMM_KINDS] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                   "send"};

const char *comm_kind_name(CommKind kind) {
    return kind_names[kind];
}

void group_free(Group *group) {
    if (group) group->ops->free(group);
}

/* Counts a reduction of `whole`. If it is small, a rank sends `part` directly to every other rank. */
static void count_reduce(Group *group, CommKind kind, Tensor whole, Tensor part) {
    CommBytes *sent = &group->sent[kind];
    if (group->size == 1) return;
    if ((int64_t)tensor_bytes(whole) <= group->small) {
        sent_to_all(group->placement, tensor_bytes(part), sent);
        return;
    }
    sent_reduce(group->placement, tensor_count(whole), whole.dtype, sent);
    if (kind == COMM_ALL_REDUCE)
        sent_gather(group->placement, tensor_count(whole), dtype_size(whole.dtype), sent);
}

static void count_gather(Group *group, Tensor whole, Tensor part) {
    CommBytes *sent = &group->sent[COMM_ALL_GATHER];
    if (group->size == 1) return;
    if ((int64_t)tensor_bytes(whole) <= group->small)
        sent_to_all(group->placement, tensor_bytes(part), sent);
    else
        sent_gather(group->placement, (int64_t)tensor_bytes(whole), 1, sent);
}

static void count_broadcast(Group *group, Tensor data, int root) {
    CommBytes *sent = &group->sent[COMM_BROADCAST];
    if (group->size == 1) return;
    if ((int64_t)tensor_bytes(data) > group->small)
        sent_broadcast(group->placement, tensor_bytes(data), root, sent);
    else if (group->rank == root)
        sent_to_all(group->placement, tensor_bytes(data), sent);
}

/* Also the watchdog shows it. */
void comm_label(Group *group, const TraceName *name, int64_t first, int64_t second) {
    group->label = (CommLabel){name, {first, second}};
}

/* Default trace label, unless the caller has set one. `before`: bytes sent before this operation. */
static void label_kind(Group *group, CommKind kind, Tensor data, CommBytes before) {
    if (!group->label.name && group->names)
        comm_label(group, &group->names->op[kind], (int64_t)tensor_bytes(data), group->size);
    group->label.number[2] = (int64_t)(group->sent[kind].between - before.between);
}

static Status started(Status status, Group *group, Stream *stream, Ticket *ticket, Ticket *ret_ticket) {
    group->label = (CommLabel){0};
    TRY(status);
    if (!ret_ticket) return ticket_wait(stream, ticket);
    *ret_ticket = *ticket;
    return OK;
}

static Status check_reducible(const Group *group, DType dtype) {
    if (group->size == 1 || dtype < DT_U8) return OK;
    return FAILED("internal: cannot reduce type %s", dtype_name(dtype));
}

static Status check_rank(const Group *group, const char *what, int rank) {
    if (rank >= 0 && rank < group->size) return OK;
    return FAILED("internal: %s rank %d in a group of %d", what, rank, group->size);
}

Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_reducible(group, data.dtype));
    CommBytes before = group->sent[COMM_ALL_REDUCE];
    count_reduce(group, COMM_ALL_REDUCE, data, data);
    label_kind(group, COMM_ALL_REDUCE, data, before);
    return started(group->ops->all_reduce(group, stream, data, op, &ticket), group, stream, &ticket,
                   ret_ticket);
}

static Status check_parts(const Group *group, const char *what, Tensor part, Tensor whole) {
    if (tensor_count(whole) == tensor_count(part) * group->size && whole.dtype == part.dtype) return OK;
    return FAILED("internal: %s: a part has %lld %s and the whole %lld %s, over %d ranks", what,
                  (long long)tensor_count(part), dtype_name(part.dtype), (long long)tensor_count(whole),
                  dtype_name(whole.dtype), group->size);
}

Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_parts(group, "reduce_scatter", dst, src));
    TRY(check_reducible(group, src.dtype));
    CommBytes before = group->sent[COMM_REDUCE_SCATTER];
    count_reduce(group, COMM_REDUCE_SCATTER, src, dst);
    label_kind(group, COMM_REDUCE_SCATTER, src, before);
    return started(group->ops->reduce_scatter(group, stream, dst, src, op, &ticket), group, stream, &ticket,
                   ret_ticket);
}

Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_parts(group, "all_gather", src, dst));
    CommBytes before = group->sent[COMM_ALL_GATHER];
    count_gather(group, dst, src);
    label_kind(group, COMM_ALL_GATHER, dst, before);
    return started(group->ops->all_gather(group, stream, dst, src, &ticket), group, stream, &ticket,
                   ret_ticket);
}

Status broadcast(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_rank(group, "a broadcast from", root));
    CommBytes before = group->sent[COMM_BROADCAST];
    count_broadcast(group, data, root);
    label_kind(group, COMM_BROADCAST, data, before);
    return started(group->ops->broadcast(group, stream, data, root, &ticket), group, stream, &ticket,
                   ret_ticket);
}

static Status check_other(const Group *group, const char *what, int rank) {
    TRY(check_rank(group, what, rank));
    return rank != group->rank ? OK : FAILED("internal: %s the rank itself", what);
}

Status comm_send(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_other(group, "a send to", to));
    CommBytes before = group->sent[COMM_SEND];
    sent_to(group->placement, to, tensor_bytes(data), &group->sent[COMM_SEND]);
    label_kind(group, COMM_SEND, data, before);
    return started(group->ops->send(group, stream, data, to, &ticket), group, stream, &ticket, ret_ticket);
}

Status comm_receive(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(check_other(group, "a receive from", from));
    return started(group->ops->receive(group, stream, data, from, &ticket), group, stream, &ticket,
                   ret_ticket);
}

Status comm_swap(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from,
                 Ticket ret_ticket[2]) {
    Ticket ticket = {0};
    if (!group->ops->swap) {
        TRY(comm_send(group, stream, out, to, &ret_ticket[0]));
        return comm_receive(group, stream, in, from, &ret_ticket[1]);
    }
    TRY(check_other(group, "a send to", to));
    TRY(check_other(group, "a receive from", from));
    CommBytes before = group->sent[COMM_SEND];
    sent_to(group->placement, to, tensor_bytes(out), &group->sent[COMM_SEND]);
    label_kind(group, COMM_SEND, out, before);
    return started(group->ops->swap(group, stream, out, to, in, from, &ticket), group, stream, &ticket,
                   &ret_ticket[0]);
}

/* An interval in which the caller is blocked. */
typedef struct Stay {
    int64_t start_ns, cpu_ns, waited_ns;
} Stay;

/* CPU time of the calling thread. */
static int64_t cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static Stay stay_begin(const Group *group) {
    return group->size > 1 ? (Stay){trace_now(), cpu_now(), group->waited_ns} : (Stay){0};
}

/* A host operation may call others, which have then already counted the time. */
static Status stay_end(Group *group, Stay stay, bool shown, Status status) {
    if (group->size == 1 || group->waited_ns != stay.waited_ns) return status;
    int64_t end = trace_now();
    group->waited_ns += end - stay.start_ns;
    group->waited_cpu_ns += cpu_now() - stay.cpu_ns;
    if (group->trace && shown)
        trace_add(group->trace, TRACE_COMPUTE, &group->names->wait, stay.start_ns, end, 0, 0);
    return status;
}

Status ticket_wait(Stream *stream, Ticket *ticket) {
    if (!ticket->group) return OK;
    Ticket waited = *ticket;
    Group *group = waited.group;
    *ticket = (Ticket){0};
    Stay stay = stay_begin(group);
    int64_t before = group->waited_ns;
    bool blocks = !group->ops->held_up; /* else the stream waits, and shows it */
    Status status = stay_end(group, stay, blocks, group->ops->wait(group, stream, waited));
    group->ticket_ns += group->waited_ns - before;
    return status;
}

int64_t group_waited(Group *group) {
    int64_t ns = group->ops->held_up ? group->ops->held_up(group) : 0;
    group->ticket_ns += ns;
    group->waited_ns += ns;
    return group->waited_ns;
}

Status comm_batch_begin(Group *group) {
    return group->ops->batch(group, true);
}

Status comm_batch_end(Group *group) {
    return group->ops->batch(group, false);
}

static Status check_host_type(DType dtype) {
    if (dtype == DT_F64 || dtype == DT_I64) return OK;
    return FAILED("internal: host_reduce does not support type %s", dtype_name(dtype));
}

Status host_reduce(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    TRY(check_host_type(dtype));
    Stay stay = stay_begin(group);
    return stay_end(group, stay, true, group->ops->host_reduce(group, data, count, dtype, op));
}

/* A small one is an all-gather of everything, as in host_reduce. */
Status host_reduce_scatter(Group *group, void *dst, void *src, int64_t count, DType dtype, ReduceOp op) {
    size_t bytes = (size_t)count * dtype_size(dtype);
    int64_t whole = count * group->size;
    bool small = group->size == 1 || (int64_t)bytes * group->size <= group->small;
    TRY(check_host_type(dtype));
    if (count == 0) return OK;
    if (group->size > 1 && small)
        sent_to_all(group->placement, bytes * (size_t)group->size, &group->sent[COMM_REDUCE_SCATTER]);
    if (!small) sent_reduce(group->placement, whole, dtype, &group->sent[COMM_REDUCE_SCATTER]);
    Stay stay = stay_begin(group);
    if (!small)
        return stay_end(group, stay, true,
                        group->ops->host_reduce_scatter(group, dst, src, count, dtype, op));
    TRY(stay_end(group, stay, true, group->ops->host_reduce(group, src, whole, dtype, op)));
    memcpy(dst, (char *)src + (size_t)group->rank * bytes, bytes);
    return OK;
}

Status host_gather(Group *group, void *dst, const void *src, size_t bytes) {
    Stay stay = stay_begin(group);
    return stay_end(group, stay, true, group->ops->host_gather(group, dst, src, bytes));
}

Status host_broadcast(Group *group, void *data, size_t bytes, int root) {
    TRY(check_rank(group, "a broadcast from", root));
    Stay stay = stay_begin(group);
    return stay_end(group, stay, true, group->ops->host_broadcast(group, data, bytes, root));
}

Status barrier(Group *group) {
    int64_t nothing = 0;
    return host_reduce(group, &nothing, 1, DT_I64, REDUCE_SUM);
}

void group_drop(Group *group) {
    group->ops->drop(group);
}

bool group_claim_failure(Group *world) {
    return world->ops->claim_failure(world);
}

void group_end_all(Group *world, int exit_code) {
    world->ops->end_all(world, exit_code);
}

Status group_sync(Group *world, Stream *stream) {
    return world->ops->sync ? world->ops->sync(world, stream) : stream_sync(stream);
}

Watchdog *group_watchdog(const Group *world) {
    return world->ops->watchdog ? world->ops->watchdog(world) : NULL;
}

const char *group_host(const Group *world, int rank, char host[HOST_SIZE]) {
    const Watchdog *watch = group_watchdog(world);
    host[HOST_SIZE - 1] = 0;
    if (watch && watch->place)
        snprintf(host, HOST_SIZE, "%s", watch->place[rank].host);
    else if (gethostname(host, HOST_SIZE - 1) != 0)
        snprintf(host, HOST_SIZE, "unknown host");
    return host;
}

int group_hosts(const Group *world) {
    const Watchdog *watch = group_watchdog(world);
    int count = 0;
    for (int r = 0; watch && watch->place && r < world->size; r++) {
        int s = 0;
        while (strcmp(watch->place[s].host, watch->place[r].host)) s++;
        count += s == r;
    }
    return count ? count : 1;
}

void group_doing(const Group *world, const char *doing, int64_t step) {
    Watchdog *watch = group_watchdog(world);
    if (!watch) return;
    watch->doing = doing;
    watch->step = step;
    watch->beats++;
}

void group_watch_device(Group *world, DeviceWatch watch) {
    if (world->ops->watch_device) world->ops->watch_device(world, &watch);
}

Status group_connect(Group *group, int peer) {
    return group->ops->connect ? group->ops->connect(group, peer) : OK;
}

Status group_split(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    if (color < 0) return FAILED("internal: group_split with color %d", color);
    return group->ops->split(group, color, key, use, ret_group);
}
