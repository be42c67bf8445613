/* Common to all groups: validates shapes, counts bytes and waits for operations without a ticket. */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/watchdog.h"

void group_free(Group *group) {
    if (group) group->ops->free(group);
}

Group *group_base(const Group *group) {
    while (group->under) group = group->under;
    return (Group *)(uintptr_t)group;
}

/* ---- operations: validated and counted ---- */

static Status check_reducible(const Group *group, DType dtype) {
    if (group->size == 1 || dtype < DT_U8) return OK;
    return FAILED("internal: cannot reduce type %s", dtype_name(dtype));
}

static Status check_rank(const Group *group, const char *what, int rank) {
    if (rank >= 0 && rank < group->size) return OK;
    return FAILED("internal: %s rank %d in a group of %d", what, rank, group->size);
}

static Status check_other(const Group *group, const char *what, int rank) {
    TRY(check_rank(group, what, rank));
    return rank != group->rank ? OK : FAILED("internal: %s the rank itself", what);
}

static Status check_parts(const Group *group, const char *what, Tensor part, Tensor whole) {
    if (tensor_count(whole) == tensor_count(part) * group->size && whole.dtype == part.dtype) return OK;
    return FAILED("internal: %s: a part has %lld %s and the whole %lld %s, over %d ranks", what,
                  (long long)tensor_count(part), dtype_name(part.dtype), (long long)tensor_count(whole),
                  dtype_name(whole.dtype), group->size);
}

/* A small operation sends directly to every rank that needs the data. */
static bool is_small(const Group *group, const CommCall *call) {
    return (int64_t)comm_call_bytes(call) <= group->small;
}

static Status check_all_reduce(const Group *group, const CommCall *call) {
    return check_reducible(group, call->src.dtype);
}

static void count_all_reduce(const Group *group, const CommCall *call, CommBytes *sent) {
    Tensor data = call->src;
    if (is_small(group, call)) {
        sent_to_all(group->placement, tensor_bytes(data), sent);
        return;
    }
    sent_reduce(group->placement, tensor_count(data), data.dtype, sent);
    sent_gather(group->placement, tensor_count(data), dtype_size(data.dtype), sent);
}

static Status check_reduce_scatter(const Group *group, const CommCall *call) {
    TRY(check_parts(group, "reduce_scatter", call->dst, call->src));
    return check_reducible(group, call->src.dtype);
}

static void count_reduce_scatter(const Group *group, const CommCall *call, CommBytes *sent) {
    if (is_small(group, call))
        sent_to_all(group->placement, tensor_bytes(call->dst), sent);
    else
        sent_reduce(group->placement, tensor_count(call->src), call->src.dtype, sent);
}

static Status check_all_gather(const Group *group, const CommCall *call) {
    return check_parts(group, "all_gather", call->src, call->dst);
}

static void count_all_gather(const Group *group, const CommCall *call, CommBytes *sent) {
    if (is_small(group, call))
        sent_to_all(group->placement, tensor_bytes(call->src), sent);
    else
        sent_gather(group->placement, (int64_t)tensor_bytes(call->dst), 1, sent);
}

static Status check_broadcast(const Group *group, const CommCall *call) {
    return check_rank(group, "a broadcast from", call->rank);
}

static void count_broadcast(const Group *group, const CommCall *call, CommBytes *sent) {
    if (!is_small(group, call))
        sent_broadcast(group->placement, tensor_bytes(call->src), call->rank, sent);
    else if (group->rank == call->rank)
        sent_to_all(group->placement, tensor_bytes(call->src), sent);
}

static Status check_rows(const Group *group, const char *what, Tensor tensor, const int64_t *rows) {
    int64_t all = tensor.dim[0], sum = 0;
    bool valid = rows || all % group->size == 0;
    for (int r = 0; r < group->size && rows; r++) {
        valid &= rows[r] >= 0 && rows[r] <= all - sum;
        sum += valid ? rows[r] : 0;
    }
    if (valid && (!rows || sum == all)) return OK;
    return FAILED("internal: all_to_all: rank %d has %lld rows to %s, which %s %d ranks", group->rank,
                  (long long)all, what,
                  rows ? "its counts do not divide among" : "cannot be divided evenly among", group->size);
}

static int64_t row_width(Tensor tensor) {
    tensor.dim[0] = 1;
    return tensor_count(tensor);
}

static Status check_all_to_all(const Group *group, const CommCall *call) {
    Tensor dst = call->dst, src = call->src;
    const char *to = dst.data, *from = src.data;
    if (dst.dtype != src.dtype || row_width(dst) != row_width(src))
        return FAILED("internal: all_to_all: sends rows of %lld %s and receives rows of %lld %s",
                      (long long)row_width(src), dtype_name(src.dtype), (long long)row_width(dst),
                      dtype_name(dst.dtype));
    TRY(check_rows(group, "send", src, call->out));
    TRY(check_rows(group, "receive", dst, call->in));
    if (comm_part_bytes(src, call->out, group->size, group->rank) !=
        comm_part_bytes(dst, call->in, group->size, group->rank))
        return FAILED("internal: all_to_all: rank %d sends itself other rows than it receives", group->rank);
    if (from < to + tensor_bytes(dst) && to < from + tensor_bytes(src) && comm_call_bytes(call))
        return FAILED("internal: all_to_all: the tensors overlap");
    return OK;
}

static void count_all_to_all(const Group *group, const CommCall *call, CommBytes *sent) {
    for (int r = 0; r < group->size; r++)
        if (r != group->rank)
            sent_to(group->placement, r, (uint64_t)comm_part_bytes(call->src, call->out, group->size, r),
                    sent);
}

static Status check_send(const Group *group, const CommCall *call) {
    return check_other(group, "a send to", call->rank);
}

static void count_send(const Group *group, const CommCall *call, CommBytes *sent) {
    sent_to(group->placement, call->rank, tensor_bytes(call->src), sent);
}

static Status check_receive(const Group *group, const CommCall *call) {
    return check_other(group, "a receive from", call->rank);
}

typedef struct CommRow {
    CommInfo info;
    Status (*check)(const Group *group, const CommCall *call);
    void (*count)(const Group *group, const CommCall *call, CommBytes *sent); /* NULL: not counted */
} CommRow;

#define COMM_ROW(x, KIND, name, title, ...)                                                                  \
    [COMM_##KIND] = {{#name, __VA_ARGS__}, check_##name, count_##name},
static const CommRow rows[] = {COMM_ROWS(COMM_ROW, )[COMM_RECEIVE] = {.check = check_receive}};

const CommInfo *comm_info(CommKind kind) {
    return &rows[kind].info;
}

/* Also the watchdog shows it. */
void comm_label(Group *group, const TraceName *name, int64_t first, int64_t second) {
    group->label = (CommLabel){name, {first, second}};
}

/* Validates, counts and labels a call; the label is the kind, unless the caller has set one. */
static Status prepare(Group *group, CommCall *call) {
    const CommRow *row = &rows[call->kind];
    TRY(row->check(group, call));
    if (!row->count) return OK;
    call->sent = (CommBytes){0};
    if (group->size > 1) row->count(group, call, &call->sent);
    comm_bytes_add(&group->sent[call->kind], call->sent, 1);
    if (!group->label.name && group->names)
        comm_label(group, &group->names->op[call->kind], (int64_t)comm_call_bytes(call), group->size);
    group->label.number[2] = (int64_t)call->sent.between;
    return OK;
}

static Status started(Status status, Group *group, Stream *stream, Ticket *ticket, Ticket *ret_ticket) {
    group->label = (CommLabel){0};
    TRY(status);
    if (!ret_ticket) return ticket_wait(stream, ticket);
    *ret_ticket = *ticket;
    return OK;
}

Status comm_start(Group *group, Stream *stream, CommCall call, Ticket *ret_ticket) {
    Ticket ticket = {0};
    TRY(prepare(group, &call));
    return started(group->ops->start(group, stream, &call, &ticket), group, stream, &ticket, ret_ticket);
}

Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_ALL_REDUCE, .dst = data, .src = data, .reduce = op},
                      ret_ticket);
}

Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_REDUCE_SCATTER, .dst = dst, .src = src, .reduce = op},
                      ret_ticket);
}

Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_ALL_GATHER, .dst = dst, .src = src}, ret_ticket);
}

Status broadcast(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_BROADCAST, .dst = data, .src = data, .rank = root},
                      ret_ticket);
}

Status all_to_all(Group *group, Stream *stream, Tensor dst, Tensor src, const int64_t *in, const int64_t *out,
                  Ticket *ret_ticket) {
    return comm_start(group, stream,
                      (CommCall){COMM_ALL_TO_ALL, .dst = dst, .src = src, .in = in, .out = out}, ret_ticket);
}

Status comm_send(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_SEND, .dst = data, .src = data, .rank = to}, ret_ticket);
}

Status comm_receive(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket) {
    return comm_start(group, stream, (CommCall){COMM_RECEIVE, .dst = data, .src = data, .rank = from},
                      ret_ticket);
}

Status comm_swap(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from,
                 Ticket ret_ticket[2]) {
    Ticket ticket = {0};
    if (!group->ops->swap) {
        TRY(comm_send(group, stream, out, to, &ret_ticket[0]));
        return comm_receive(group, stream, in, from, &ret_ticket[1]);
    }
    CommCall sends = {COMM_SEND, .dst = out, .src = out, .rank = to};
    TRY(check_other(group, "a receive from", from));
    TRY(prepare(group, &sends));
    return started(group->ops->swap(group, stream, out, to, in, from, &ticket), group, stream, &ticket,
                   &ret_ticket[0]);
}

/* ---- waiting ---- */

/* An interval in which the caller is blocked. */
typedef struct Stay {
    int64_t start_ns, cpu_ns, waited_ns;
} Stay;

static Stay stay_begin(const Group *group) {
    return group->size > 1 ? (Stay){trace_now(), clock_thread_ns(), group->waited_ns} : (Stay){0};
}

/* A host operation may call others, which have then already counted the time. */
static Status stay_end(Group *group, Stay stay, bool shown, Status status) {
    if (group->size == 1 || group->waited_ns != stay.waited_ns) return status;
    int64_t end = trace_now();
    group->waited_ns += end - stay.start_ns;
    group->waited_cpu_ns += clock_thread_ns() - stay.cpu_ns;
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
    return group->ops->batch ? group->ops->batch(group, true) : OK;
}

Status comm_batch_end(Group *group) {
    return group->ops->batch ? group->ops->batch(group, false) : OK;
}

/* ---- host data ---- */

static Status check_host_type(DType dtype) {
    if (dtype == DT_F64 || dtype == DT_I64) return OK;
    return FAILED("internal: host_reduce does not support type %s", dtype_name(dtype));
}

Status host_reduce(Group *group, void *data, int64_t count, DType dtype, ReduceOp op) {
    TRY(check_host_type(dtype));
    Group *base = group_base(group);
    Stay stay = stay_begin(group);
    if (!base->ops->host_reduce) return OK;
    return stay_end(group, stay, true, base->ops->host_reduce(base, data, count, dtype, op));
}

/* A small one is an all-gather of everything, as in host_reduce. */
Status host_reduce_scatter(Group *group, void *dst, void *src, int64_t count, DType dtype, ReduceOp op) {
    Group *base = group_base(group);
    CommBytes *sent = &group->sent[COMM_REDUCE_SCATTER];
    size_t bytes = (size_t)count * dtype_size(dtype);
    int64_t whole = count * group->size, all = (int64_t)bytes * group->size;
    TRY(check_host_type(dtype));
    if (count == 0) return OK;
    if (group->size > 1 && all <= group->small)
        sent_to_all(group->placement, (size_t)all, sent);
    else if (group->size > 1)
        sent_reduce(group->placement, whole, dtype, sent);
    if (group->size > 1 && all > base->small) {
        Stay stay = stay_begin(group);
        return stay_end(group, stay, true, base->ops->host_reduce_scatter(base, dst, src, count, dtype, op));
    }
    TRY(host_reduce(group, src, whole, dtype, op));
    memcpy(dst, (char *)src + (size_t)group->rank * bytes, bytes);
    return OK;
}

Status host_gather(Group *group, void *dst, const void *src, size_t bytes) {
    Group *base = group_base(group);
    Stay stay = stay_begin(group);
    return stay_end(group, stay, true, base->ops->host_gather(base, dst, src, bytes));
}

Status host_broadcast(Group *group, void *data, size_t bytes, int root) {
    TRY(check_rank(group, "a broadcast from", root));
    Group *base = group_base(group);
    Stay stay = stay_begin(group);
    if (!base->ops->host_broadcast) return OK;
    return stay_end(group, stay, true, base->ops->host_broadcast(base, data, bytes, root));
}

Status barrier(Group *group) {
    int64_t nothing = 0;
    return host_reduce(group, &nothing, 1, DT_I64, REDUCE_SUM);
}

/* ---- failures and the watchdog ---- */

void group_drop(Group *group) {
    if (group->under) group_drop(group->under);
    if (group->ops->drop) group->ops->drop(group);
}

bool group_claim_failure(Group *world) {
    Group *base = group_base(world);
    return base->ops->claim_failure ? base->ops->claim_failure(base) : true;
}

void group_end_all(Group *world, int exit_code) {
    Group *base = group_base(world);
    if (base->ops->end_all) base->ops->end_all(base, exit_code);
}

Status group_sync(Group *world, Stream *stream) {
    return world->ops->sync ? world->ops->sync(world, stream) : stream_sync(stream);
}

Watchdog *group_watchdog(const Group *world) {
    const Group *base = group_base(world);
    return base->ops->watchdog ? base->ops->watchdog(base) : NULL;
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
    Group *base = group_base(world);
    if (base->ops->watch_device) base->ops->watch_device(base, &watch);
}

Status group_connect(Group *group, int peer) {
    return group->ops->connect ? group->ops->connect(group, peer) : OK;
}

Status group_split(Group *group, int color, int key, GroupUse use, Group **ret_group) {
    if (color < 0) return FAILED("internal: group_split with color %d", color);
    return group->ops->split(group, color, key, use, ret_group);
}
