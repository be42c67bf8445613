/* All traffic between ranks over MPI goes through one `Traffic` per process.
 *
 * An operation (`Op`) is a set of flows and a step function. A flow moves bytes to or from one peer in
 * pieces, at most WINDOW of them at a time, by MPI_Isend or MPI_Irecv. The step function looks at what has
 * arrived, computes what can be computed, raises the flows' limits, and says when the operation is done.
 * Nothing in an operation ever blocks, so any number of them, of any groups, go on beside each other.
 *
 * A lock lets one thread at a time into it, and so into MPI. Whoever waits for an operation drives
 * all of them meanwhile; while nobody waits, a thread of its own does, asleep between looks.
 */
#ifndef WEFT_COMM_MPI_TRAFFIC_H
#define WEFT_COMM_MPI_TRAFFIC_H

#include <mpi.h>
#include <pthread.h>

#include "comm/group.h"
#include "comm/staging.h"

enum { TAGS = 8191 }; /* operations between a pair of ranks that tags tell apart */

/* Tags are class + TAG_CLASSES * number; MPI guarantees tags up to 32767. */
typedef enum { TAG_READY, TAG_DATA, TAG_GATHER, TAG_PAIR, TAG_CLASSES } TagClass;

typedef struct Flow {
    int peer, tag;
    bool sends, staged; /* staged: pieces alternate between WINDOW places at `base` */
    char *base;
    int64_t bytes, piece;        /* in all, and of each piece but the last */
    int64_t count;               /* pieces in all */
    int64_t limit, posted, done; /* pieces that may be posted, were, and are complete */
} Flow;

/* At the head of a stream's memory for operations in flight; slots follow. */
typedef struct Area {
    bool busy[SLOTS];
} Area;

typedef struct Traffic Traffic;
typedef struct Op Op;

struct Op {
    Op *next;
    Group *group;
    uint64_t number;
    bool (*step)(Traffic *traffic, Op *op); /* whether anything moved; sets `done` */
    bool done;
    Trace *trace; /* where it is shown under this label, from its start to its end; NULL: nowhere */
    CommLabel label;
    int64_t started_ns;
    Device *device; /* whose memory it works on; NULL: memory that lives as long as the operation */
    MPI_Comm comm;
    int flow_count, peers;
    Flow *flow;
    MPI_Request *request; /* WINDOW per flow */
    int *index;           /* room for MPI_Testsome's answer */
    /* Reductions. */
    DType dtype;
    ReduceOp reduce;
    char *own, *dst;        /* this rank's contribution and where the result goes */
    int64_t count;          /* elements of it */
    int64_t piece, reduced; /* bytes of a piece; pieces reduced so far */
    const void **part;      /* room for a pointer per rank */
    Buffer buffer;          /* what peers send, in operations that take the short way */
    char *staging;          /* the same in the others: a slot of `area`; NULL: none yet */
    Area *area;
    size_t slot_bytes;
    int slot;
};

struct Traffic {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool may_thread; /* MPI allows a thread; it is started with the first operation, on the cores of then */
    bool threaded, quitting;
    bool dropped; /* after a failure: operations in flight are left alone for good */
    int waiting;  /* callers that drive it themselves */
    Op *first, *last;
    int active; /* operations that are not done */
    uint64_t numbers;
    int error; /* of MPI; the first one counts */
    /* Failures of other ranks arrive as notes, on a communicator of their own. */
    MPI_Comm control;
    MPI_Request note_request;
    int note, failed_rank; /* -1: none has failed */
    unsigned idle_looks;
    int rank, size;
    size_t slot_bytes;
};

typedef struct MpiGroup {
    Traffic *traffic;
    MPI_Comm comm;
    uint64_t collectives;       /* started so far */
    uint64_t *sends, *receives; /* per peer */
    bool is_world;
} MpiGroup;

MUST_USE Status traffic_new(Traffic **ret_engine, MPI_Comm world, bool threaded);
void traffic_free(Traffic *traffic);

/* An operation with room for `flows` flows; once started it belongs to the traffic. */
MUST_USE Status op_new(Op **ret_op, Group *group, Device *device, int flows);
void op_free(Op *op);
DEFINE_FREEP(Op, op)
/* Sets the flow to move `bytes` bytes in pieces, all of which may be posted. */
void flow_set(Flow *flow, int peer, int tag, bool sends, void *base, int64_t bytes, int64_t piece);

MUST_USE Status traffic_start(Traffic *traffic, Op *op, Ticket *ret_ticket);
MUST_USE Status traffic_wait(Traffic *traffic, uint64_t number);
/* Waits for the group's operations, or forgets them where that is not possible any more. */
void traffic_finish_group(Traffic *traffic, Group *group);
/* Whether anything is in flight, or nothing ever will be again. */
bool traffic_busy(Traffic *traffic);
bool traffic_failed(Traffic *traffic);
MUST_USE Status mpi_status(int code, const char *what);

/* For step functions: takes what is complete from MPI, posts what may be posted. */
bool flows_move(Traffic *traffic, Op *op);
bool flows_done(const Op *op);
bool op_step_move(Traffic *traffic, Op *op); /* the step of operations that only move bytes */

/* Failing, see GroupOps. */
void traffic_drop(Traffic *traffic);
bool traffic_claim(Traffic *traffic);

/* The operations (ops.c, host.c). */
extern const GroupOps group_ops_mpi;
Status host_reduce_mpi(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
Status host_gather_mpi(Group *group, void *dst, const void *src, size_t bytes);
Status host_broadcast_mpi(Group *group, void *data, size_t bytes, int root);
Status all_reduce_mpi(Group *group, Stream *stream, Tensor data, ReduceOp op, Ticket *ret_ticket);
Status reduce_scatter_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, ReduceOp op,
                          Ticket *ret_ticket);
Status all_gather_mpi(Group *group, Stream *stream, Tensor dst, Tensor src, Ticket *ret_ticket);
Status broadcast_mpi(Group *group, Stream *stream, Tensor data, int root, Ticket *ret_ticket);
Status send_mpi(Group *group, Stream *stream, Tensor data, int to, Ticket *ret_ticket);
Status receive_mpi(Group *group, Stream *stream, Tensor data, int from, Ticket *ret_ticket);
/* All ranks' bytes into dst, in order; src may be its own place in dst. */
MUST_USE Status start_gather(Group *group, Device *device, void *dst, const void *src, int64_t bytes,
                             Ticket *ret_ticket);
MUST_USE Status start_broadcast(Group *group, Device *device, void *data, int64_t bytes, int root,
                                Ticket *ret_ticket);

#endif
