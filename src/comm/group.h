/* A group of ranks that compute together, behind one table of operations.
 *
 * `comm/self.c` is the group of one, in which every collective is a no-op or a copy, so code above never
 * asks how many ranks there are. `comm/mpi.h` has the groups over MPI.
 *
 * Collectives are started on a stream and waited for on a stream: an operation begins once the work
 * already on the stream is done, and what is put on a stream after ticket_wait sees its result. In
 * between the caller computes, and must leave the operation's tensors alone. On the CPU streams are
 * synchronous, so ticket_wait returns when the operation is complete. All ranks of a group start the same
 * operations in the same order; sends and receives match in order between each pair of ranks.
 *
 * Sums run in the order of the ranks for every element, whatever the size of the tensor or of its parts,
 * so reduce_scatter followed by all_gather gives the bits of all_reduce. 16-bit types are summed in fp32
 * and rounded once. The maximum with a value that is not a number is not a number.
 */
#ifndef WEFT_COMM_GROUP_H
#define WEFT_COMM_GROUP_H

#include "base/trace.h"
#include "device/device.h"
#include "tensor/tensor.h"

typedef enum { REDUCE_SUM, REDUCE_MAX } ReduceOp;

/* What bytes are counted by: those a rank sends, as the theory of the bandwidth-optimal algorithm has
 * them, rounded down: all-reduce of n bytes 2n(N-1)/N, reduce-scatter and all-gather of n in all
 * n(N-1)/N, broadcast n at its root and 0 elsewhere, send n. Host data is not counted. */
typedef enum {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_BROADCAST,
    COMM_SEND,
    COMM_KINDS
} CommKind;

typedef struct Group Group;

/* An operation that has been started. The zero ticket is complete. */
typedef struct Ticket {
    Group *group;
    uint64_t number;
} Ticket;

/* Shapes are checked and bytes counted before a slot is called. Slots that start an operation are always
 * given a ticket, which is zero, and leave it so where the operation is complete. */
typedef struct GroupOps {
    const char *name;
    Status (*all_reduce)(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket);
    Status (*reduce_scatter)(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                             Ticket *ret_ticket);
    Status (*all_gather)(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket);
    Status (*broadcast)(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket);
    Status (*send)(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket);
    Status (*receive)(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket);
    Status (*wait)(Group *group, Stream *stream, Ticket ticket);
    /* Nanoseconds since the last call that streams were held up by waits, of those that are over. NULL: waits
     * block the caller instead. */
    int64_t (*held_up)(Group *group);
    Status (*batch)(Group *group, bool begin);
    Status (*host_reduce)(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
    Status (*host_gather)(Group *group, void *dst, const void *src, size_t bytes);
    Status (*host_broadcast)(Group *group, void *data, size_t bytes, int root);
    Status (*split)(Group *group, int color, int key, Group **ret_group);
    void (*drop)(Group *group);
    bool (*claim_failure)(Group *group);
    void (*end_all)(Group *group, int exit_code);
    void (*free)(Group *group);
} GroupOps;

/* What a group's operations, and the time its callers are blocked, are called in a trace. */
typedef struct CommNames {
    TraceName op[COMM_KINDS];
    TraceName wait;
} CommNames;

typedef struct CommLabel {
    const TraceName *name; /* NULL: it is not shown */
    int64_t number[2];
} CommLabel;

struct Group {
    const GroupOps *ops;
    int rank, size;
    uint64_t bytes_sent[COMM_KINDS];
    int64_t waited_ns;     /* that callers, or their streams, have been blocked; see group_waited... */
    int64_t ticket_ns;     /* ...of that, by waiting for tickets... */
    int64_t waited_cpu_ns; /* ...and what callers used of the processor meanwhile */
    Trace *trace;          /* NULL: none */
    const CommNames *names;
    CommLabel label; /* of the operation that is being started */
    void *impl;
};

MUST_USE Status group_new_self(Group **ret_group);
/* One rank of a group that is not there, for planning: operations are checked and counted, and those that a
 * group over MPI stages take the same memory (`staged`; over NCCL there is none to count). The others' data
 * is as if it were zero. `world`: ranks in all. For a size of one it is the group of one. */
MUST_USE Status group_new_dryrun(Group **ret_group, int rank, int size, int world, bool staged);
void group_free(Group *group);
DEFINE_FREEP(Group, group)
const char *comm_kind_name(CommKind kind); /* "all_reduce" ... */

/* ret_ticket may be NULL: then the operation is waited for. Tensors have one of the types fp32, bf16,
 * fp16, fp64, int32, int64 where they are reduced, and any type where they are only moved. */
MUST_USE Status all_reduce(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket);
/* dst = this rank's part of the sum of src; src has size times as many elements as dst. dst may be that
 * part of src itself. */
MUST_USE Status reduce_scatter(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                               Ticket *ret_ticket);
/* dst = all ranks' src, in order; src may be its own part of dst. */
MUST_USE Status all_gather(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket);
MUST_USE Status broadcast(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket);
MUST_USE Status comm_send(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket);
MUST_USE Status comm_receive(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket);
MUST_USE Status ticket_wait(Stream *stream, Ticket *ticket); /* the ticket is zero afterwards */
/* Brings waited_ns and ticket_ns up to date, where a device keeps them; returns the first. */
int64_t group_waited(Group *group);
/* In a trace, the group's next operation goes by this name instead of its kind's. */
void comm_label(Group *group, const TraceName *name, int64_t first, int64_t second);

/* Operations between begin and end are launched together, so that sends and receives of both directions
 * cannot wait for each other. Each takes a ticket, which is waited for after the end. */
MUST_USE Status comm_batch_begin(Group *group);
MUST_USE Status comm_batch_end(Group *group);

/* Small host data, whatever the device: done when the call returns. DT_F64 or DT_I64 for reduce. */
MUST_USE Status host_reduce(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
MUST_USE Status host_gather(Group *group, void *dst, const void *src, size_t bytes); /* bytes of each rank */
MUST_USE Status host_broadcast(Group *group, void *data, size_t bytes, int root);
MUST_USE Status barrier(Group *group);
/* Ranks that give the same color (0 or above) form a group, ordered by key. Every rank of the group
 * takes part. The new group must go before this one does. */
MUST_USE Status group_split(Group *group, int color, int key, Group **ret_group);

/* When a rank fails, operations may be in flight. What they work on may go only after this; from then on,
 * if there were any, no operation of any group succeeds. Any group will do. */
void group_drop(Group *group);
/* After a failure of this rank: whether it is the one to report it. Of ranks that fail at about the same
 * time the lowest is, and the others are about to be ended by it. Takes up to half a second, and longer
 * only where the reporting rank cannot report. */
bool group_claim_failure(Group *world);
/* Ends all ranks, whatever they are doing, so that the launcher exits with this code. It does not return
 * where there are others. */
void group_end_all(Group *world, int exit_code);

#endif
