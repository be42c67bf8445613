/* A group of ranks (a communicator) behind one table of operations.
 *
 * comm/self.c is the group of one, where every collective is a no-op or a copy, so callers never test the
 * number of ranks. comm/mpi.h has the groups over MPI.
 *
 * Collectives are asynchronous. An operation starts after the work already on its stream; work added to a
 * stream after ticket_wait sees the result. In between, the caller must not touch the operation's tensors.
 * CPU streams are synchronous, so there ticket_wait returns when the operation is complete. All ranks of a
 * group must start the same operations in the same order; sends and receives between a pair of ranks match in
 * order.
 *
 * Every element is summed along the same tree over the ranks (comm/placement.h), regardless of tensor size,
 * chunking and the nodes on which the ranks run, so reduce_scatter plus all_gather gives the same bits as
 * all_reduce. 16-bit types are summed in fp32 and rounded once. NaN propagates through sum and maximum. NCCL
 * has its own order.
 */
#ifndef WEFT_COMM_GROUP_H
#define WEFT_COMM_GROUP_H

#include <signal.h>

#include "base/trace.h"
#include "comm/placement.h"
#include "device/device.h"
#include "tensor/tensor.h"

typedef enum { REDUCE_SUM, REDUCE_MAX } ReduceOp;

/* Operations whose bytes are counted: those that other ranks receive from this one, in messages or through
 * shared memory, on its node and on other nodes (comm/placement.h). On one node, with N ranks and n bytes in
 * total, an all-reduce counts 2n(N-1)/N, a reduce-scatter or all-gather n(N-1)/N. Over NCCL, the same as over
 * MPI. Host data is not counted.
 *
 * A row: name, title in traces, how often all data cross the group (0: as far as counted), and whether large
 * operations over MPI are exchanges (comm/mpi/exchange.c), which need memory. group.c has a function for each
 * that validates the call, and one that counts its bytes. `x` is passed on to ROW. */
#define COMM_ROWS(ROW, x)                                                                                    \
    ROW(x, ALL_REDUCE, all_reduce, "all-reduce", 2, true)                                                    \
    ROW(x, REDUCE_SCATTER, reduce_scatter, "reduce-scatter", 1, true)                                        \
    ROW(x, ALL_GATHER, all_gather, "all-gather", 1, true)                                                    \
    ROW(x, BROADCAST, broadcast, "broadcast", 1, true)                                                       \
    ROW(x, ALL_TO_ALL, all_to_all, "all-to-all", 0, false)                                                   \
    ROW(x, SEND, send, "send", 1, false)

#define COMM_ID(x, KIND, ...) COMM_##KIND,
typedef enum { COMM_ROWS(COMM_ID, ) COMM_KINDS, COMM_RECEIVE = COMM_KINDS /* not counted */ } CommKind;
#undef COMM_ID

typedef struct CommInfo {
    const char *name; /* "all_reduce" ... */
    double passes;
    bool exchange;
} CommInfo;
const CommInfo *comm_info(CommKind kind);

typedef struct Group Group;

/* Handle of an operation in progress. The zero ticket is complete. */
typedef struct Ticket {
    Group *group;
    uint64_t number;
} Ticket;

/* What a group is for. Over NCCL, groups for tensors have connections of their own. */
typedef enum {
    GROUP_TENSORS, /* everything */
    GROUP_RING, /* messages between neighbors, of which none waits for another; the last rank is a neighbor of
                   the first. No collectives of tensors */
    GROUP_HOST, /* host data only */
} GroupUse;

/* Stages of a section that ranks can abandon; see comm/mesh.h. */
typedef enum { SECTION_BEGIN, SECTION_VOTE, SECTION_END } SectionStage;

struct DeviceWatch; /* comm/watchdog.h */

/* An operation to start, validated and counted. In place, and for messages, dst and src are the same. */
typedef struct CommCall {
    CommKind kind;
    Tensor dst, src;
    ReduceOp reduce;
    int rank;                /* the root, or the other rank of a message */
    const int64_t *out, *in; /* all_to_all: rows to and from each rank; NULL: equal parts */
    CommBytes sent;          /* what it counts */
} CommCall;

/* Bytes of the larger tensor, which has all ranks' parts. */
static inline size_t comm_call_bytes(const CommCall *call) {
    size_t dst = tensor_bytes(call->dst), src = tensor_bytes(call->src);
    return dst > src ? dst : src;
}

/* Bytes that an all-to-all moves to a rank (of src and out) or from one (of dst and in). */
static inline int64_t comm_part_bytes(Tensor tensor, const int64_t *rows, int size, int rank) {
    int64_t all = tensor.dim[0], each = all ? (int64_t)tensor_bytes(tensor) / all : 0;
    return (rows ? rows[rank] : all / size) * each;
}

/* Slots that start an operation receive a zero ticket and leave it zero if the operation is already
 * complete. */
typedef struct GroupOps {
    const char *name;
    Status (*start)(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket);
    /* NULL: a send and a receive. */
    Status (*swap)(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from, Ticket *ret_ticket);
    Status (*connect)(Group *group, int peer); /* NULL: nothing to do */
    Status (*wait)(Group *group, Stream *stream, Ticket ticket);
    /* Nanoseconds that completed waits have stalled streams since the last call. NULL: waits block the caller
     * instead. */
    int64_t (*held_up)(Group *group);
    Status (*batch)(Group *group, bool begin); /* NULL: nothing to do */
    Status (*split)(Group *group, int color, int key, GroupUse use, Group **ret_group);
    Status (*sync)(Group *world, Stream *stream); /* NULL: stream_sync */
    /* Sections; NULL: this kind of group cannot abandon operations. */
    void (*section)(Group *world, SectionStage stage, const volatile sig_atomic_t *stop);
    bool (*abandons)(Group *world);
    Status (*recover)(Group *group);
    void (*drop)(Group *group); /* NULL: nothing to do */
    void (*free)(Group *group);
    /* The rest only in groups that lie over no other. NULL: nothing to do. */
    Status (*host_reduce)(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
    Status (*host_reduce_scatter)(Group *group, void *dst, void *src, int64_t count, DType dtype,
                                  ReduceOp op); /* not small, on several ranks */
    Status (*host_gather)(Group *group, void *dst, const void *src, size_t bytes);
    Status (*host_broadcast)(Group *group, void *data, size_t bytes, int root);
    struct Watchdog *(*watchdog)(const Group *world);
    /* For waits on a device, between polls of it: reads notes and looks at the watchdog. */
    Status (*wait_more)(Group *world);
    void (*watch_device)(Group *world, const struct DeviceWatch *watch);
    bool (*claim_failure)(Group *group);
    void (*end_all)(Group *group, int exit_code);
} GroupOps;

/* Trace labels of a group's operations and of the time its callers are blocked. */
typedef struct CommNames {
    TraceName op[COMM_KINDS];
    TraceName wait;
} CommNames;

#define COMM_NAME(axis, KIND, key, title, ...)                                                               \
    [COMM_##KIND] = {.name = (title), .category = (axis), .number = {"bytes", "ranks", "between nodes"}},
/* An initializer. */
#define COMM_NAMES(axis)                                                                                     \
    {                                                                                                        \
        .op = {COMM_ROWS(COMM_NAME, axis)}, .wait = {                                                        \
            .name = "wait: " axis,                                                                           \
            .category = "wait",                                                                              \
            .color = TRACE_GRAY                                                                              \
        }                                                                                                    \
    }

typedef struct CommLabel {
    const TraceName *name;         /* NULL: not shown */
    int64_t number[TRACE_NUMBERS]; /* the last: bytes sent to other nodes */
} CommLabel;

struct Group {
    const GroupOps *ops;
    int rank, size;
    Placement *placement; /* NULL in a group of one */
    int64_t small;        /* operations of up to this many bytes send directly to every rank */
    CommBytes sent[COMM_KINDS];
    int64_t waited_ns;     /* time callers or their streams were blocked; see group_waited */
    int64_t ticket_ns;     /* part of waited_ns spent in ticket_wait */
    int64_t waited_cpu_ns; /* CPU time of callers while blocked */
    Trace *trace;          /* may be NULL */
    const CommNames *names;
    CommLabel label; /* label of the next operation */
    Group *under;    /* that of the same ranks which this one lies over, and owns; may be NULL */
    void *impl;
};

MUST_USE Status group_new_self(Group **ret_group);
/* One rank of a group whose other ranks do not exist, for dry runs: operations are validated and counted.
 * With `staged` they need the same memory as a group over MPI; NCCL needs none. Data of other ranks reads as
 * zero. `node` numbers the node of each rank. A size of one gives the group of one. */
MUST_USE Status group_new_dryrun(Group **ret_group, int rank, int size, const int *node, bool staged);
void group_free(Group *group);
DEFINE_FREEP(Group, group)
Group *group_base(const Group *group); /* the lowest that it lies over, or itself */

/* If ret_ticket is NULL, the call blocks until the operation is complete. Reductions support fp32, bf16,
 * fp16, fp64, int32 and int64; other operations any type. */
MUST_USE Status comm_start(Group *group, Stream *stream, CommCall call, Ticket *ret_ticket); /* any */
MUST_USE Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket);
/* dst = this rank's part of the reduced src, which has group->size times as many elements. dst may alias that
 * part of src. */
MUST_USE Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                               Ticket *ret_ticket);
/* dst = src of all ranks, in rank order. src may alias this rank's part of dst. */
MUST_USE Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket);
MUST_USE Status broadcast(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket);
/* Moves rows, which are the entries of the first dim: src has out[0] rows for rank 0, then out[1] for rank 1
 * and so on; any of them may be 0. dst receives in[0] rows from rank 0, then in[1] from rank 1. NULL: as
 * many for each rank. What a rank sends to another must be what that one receives: the ranks do not compare
 * their counts, only each its own with its tensors. dst and src do not overlap. */
MUST_USE Status all_to_all(Group *group, Stream *stream, Tensor dst, Tensor src, const int64_t *in,
                           const int64_t *out, Ticket *ret_ticket);
MUST_USE Status comm_send(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket);
MUST_USE Status comm_receive(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket);
/* Sends and receives as many bytes, in a batch. The ranks that it sends to and receives from do the same. */
MUST_USE Status comm_swap(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from,
                          Ticket ret_ticket[2]);
MUST_USE Status ticket_wait(Stream *stream, Ticket *ticket); /* zeroes the ticket */
/* Prepares a group for tensors for messages between this rank and `peer`, which calls this as well; with
 * EVERY_RANK, between all pairs of ranks. Over NCCL, ranks that are not connected, and not neighbors in a
 * ring, exchange messages through host memory, and so does all_to_all unless all pairs are connected. */
enum { EVERY_RANK = -1 };
MUST_USE Status group_connect(Group *group, int peer);
/* Updates waited_ns and ticket_ns from device timers and returns waited_ns. */
int64_t group_waited(Group *group);
/* Trace label of the group's next operation, instead of its kind. */
void comm_label(Group *group, const TraceName *name, int64_t first, int64_t second);

/* Like stream_sync, under the watchdog: work on the stream may wait for other ranks. Collective. */
MUST_USE Status group_sync(Group *world, Stream *stream);

/* Operations between begin and end are launched together, so that sends and receives in both directions
 * cannot deadlock. Each needs a ticket, to be waited for after the end. */
MUST_USE Status comm_batch_begin(Group *group);
MUST_USE Status comm_batch_end(Group *group);

/* Small control data in host memory; synchronous. Reductions support DT_F64 and DT_I64. */
MUST_USE Status host_reduce(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
/* dst = this rank's `count` elements of the reduced src, which has group->size times as many and may be
 * overwritten. For larger data: counted, unlike the others. */
MUST_USE Status host_reduce_scatter(Group *group, void *dst, void *src, int64_t count, DType dtype,
                                    ReduceOp op);
MUST_USE Status host_gather(Group *group, void *dst, const void *src, size_t bytes); /* bytes per rank */
MUST_USE Status host_broadcast(Group *group, void *data, size_t bytes, int root);
MUST_USE Status barrier(Group *group);
/* Ranks with the same color (>= 0) form a group, ordered by key. Collective, with the same use on all ranks.
 * Free the new group before this one. */
MUST_USE Status group_split(Group *group, int color, int key, GroupUse use, Group **ret_group);

/* The host name of a rank of the world, written to `host`, which is returned. */
enum { HOST_SIZE = 65 };
const char *group_host(const Group *world, int rank, char host[HOST_SIZE]);
int group_hosts(const Group *world); /* number of different hosts */

/* After a failure of this rank, call this (on any group) before freeing memory that operations in flight may
 * use. If operations were in flight, all further operations of all groups fail. */
void group_drop(Group *group);
/* After a failure of this rank: whether it should report the error. Among ranks that fail at about the same
 * time the lowest reports, then aborts the others. Takes up to half a second, longer only if the reporting
 * rank cannot report. */
bool group_claim_failure(Group *world);
/* Aborts all ranks immediately; the launcher exits with this code. Returns only in a group of one. */
void group_end_all(Group *world, int exit_code);

#endif
