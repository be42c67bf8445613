/* The progress engine: all communication over MPI goes through one `Traffic` per process.
 *
 * An operation (`Op`) is a set of flows and a step function. A flow moves bytes to or from one peer in
 * chunks, up to WINDOW at a time, by MPI_Isend or MPI_Irecv. The step function processes what has arrived,
 * raises the flows' limits and reports completion. Operations never block, so any number of them, of any
 * groups, progress concurrently.
 *
 * A lock admits one thread at a time, and thus serializes MPI calls. A caller that waits for an operation
 * progresses all of them; otherwise a progress thread does, sleeping between polls.
 */
#ifndef WEFT_COMM_MPI_TRAFFIC_H
#define WEFT_COMM_MPI_TRAFFIC_H

#include <mpi.h>
#include <pthread.h>

#include "comm/group.h"
#include "comm/staging.h"
#include "comm/watchdog.h"

enum { TAGS = 8191 }; /* distinct tags per class; numbers wrap around */

/* Tags are class + TAG_CLASSES * number; MPI guarantees tags up to 32767. */
typedef enum { TAG_READY, TAG_DATA, TAG_GATHER, TAG_PAIR, TAG_CLASSES } TagClass;

typedef struct Flow {
    int peer, tag;
    bool sends, staged; /* staged: chunks cycle through WINDOW buffers at `base` */
    char *base;
    int64_t bytes, piece;        /* total, and per chunk except the last */
    int64_t count;               /* number of chunks */
    int64_t limit, posted, done; /* chunks that may be posted, are posted, are complete */
} Flow;

/* Header of a stream's staging memory; slots follow. */
typedef struct Area {
    bool busy[SLOTS];
} Area;

/* Short messages between ranks outside operations (notes.c). */
typedef enum { NOTE_FAILED, NOTE_ABANDON, NOTE_PROBE, NOTE_STATE } NoteKind;

/* What a rank does, for the watchdog. */
typedef struct RankState {
    uint64_t answered; /* number of the question; 0: never */
    int64_t step, beats, cpu_ms;
    int64_t moved;   /* bytes read and written */
    double waited_s; /* < 0: not waiting */
    bool on_disk;    /* a thread waits for a disk */
    char doing[120];
} RankState;

typedef struct Note {
    int32_t kind, from;
    uint64_t number; /* NOTE_ABANDON: the section; NOTE_PROBE, NOTE_STATE: the question */
    RankState state;
} Note;

/* A wait that is being watched. */
typedef struct WatchedWait {
    double since, last; /* without times in which this process was stopped */
    int asked;          /* questions asked */
    bool warned;
} WatchedWait;

/* A note on its way to other ranks. */
typedef struct NoteOut {
    struct NoteOut *next;
    Note note;
    int count;
    MPI_Request request[];
} NoteOut;

typedef struct Traffic Traffic;
typedef struct Op Op;

struct Op {
    Op *next;
    Group *group;
    uint64_t number;
    bool (*step)(Traffic *traffic, Op *op); /* returns whether it made progress; sets `done` */
    bool done;
    Trace *trace; /* records the operation under `label`; may be NULL */
    CommLabel label;
    int64_t started_ns;
    Device *device; /* owner of its memory; NULL: memory owned by the operation */
    MPI_Comm comm;
    int flow_count, peers;
    Flow *flow;
    MPI_Request *request; /* WINDOW per flow */
    int *index;           /* output of MPI_Testsome */
    /* Reductions. */
    DType dtype;
    ReduceOp reduce;
    char *own, *dst;        /* this rank's contribution, and the destination */
    int64_t count;          /* elements of the result */
    int64_t piece, reduced; /* bytes per chunk; chunks reduced so far */
    const void **part;      /* one pointer per rank */
    Buffer buffer;          /* receive buffer of latency-optimized reductions */
    char *staging;          /* slot of `area` for the other reductions; NULL: not yet assigned */
    Area *area;
    size_t slot_bytes;
    int slot;
};

struct Traffic {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool may_thread; /* MPI supports a progress thread, not started yet. The first operation starts it, so
                        that it inherits the rank's CPU affinity */
    bool threaded, quitting;
    bool dropped; /* after a failure: operations in flight are abandoned */
    int waiting;  /* callers that wait and thus make progress */
    Op *first, *last;
    int active; /* unfinished operations */
    uint64_t numbers;
    int error; /* first MPI error */
    /* Notes, on a separate communicator. */
    MPI_Comm control;
    MPI_Request note_request;
    Note *note; /* the next one to arrive */
    NoteOut *notes_out;
    int failed_rank; /* -1: no rank has failed */
    unsigned idle_looks;
    /* Sections, numbered from 1; see comm/mesh.h. */
    uint64_t section, abandoned; /* the current one, and the newest one that a rank has abandoned */
    bool in_section, voted;
    const volatile sig_atomic_t *stop;
    /* The watchdog, comm/watchdog.h. Arrays have an entry per rank. */
    Watchdog watchdog;
    RankState *state, *before; /* the newest answers, and those to the question before */
    uint64_t question;         /* number of questions asked */
    const Op *wait_op;         /* what this rank waits for, or NULL; since when */
    double wait_since;
    bool on_device; /* it waits for its device instead */
    WatchedWait device_wait;
    char *overdue; /* the report */
    int rank, size;
    size_t slot_bytes;
};

typedef struct MpiGroup {
    Traffic *traffic;
    MPI_Comm comm;
    uint64_t collectives;       /* number started */
    uint64_t *sends, *receives; /* number started, per peer */
    bool is_world;
} MpiGroup;

MUST_USE Status traffic_new(Traffic **ret_engine, MPI_Comm world, bool threaded);
void traffic_free(Traffic *traffic);

/* Allocates an operation with `flows` flows. traffic_start takes ownership. */
MUST_USE Status op_new(Op **ret_op, Group *group, Device *device, int flows);
void op_free(Op *op);
DEFINE_FREEP(Op, op)
/* Sets up a flow of `bytes` bytes in chunks of `piece`, all of which may be posted. */
void flow_set(Flow *flow, int peer, int tag, bool sends, void *base, int64_t bytes, int64_t piece);

MUST_USE Status traffic_start(Traffic *traffic, Op *op, Ticket *ret_ticket);
MUST_USE Status traffic_wait(Traffic *traffic, uint64_t number);
/* Waits for the group's operations; after a failure, abandons them. */
void traffic_finish_group(Traffic *traffic, Group *group);
/* Whether operations are in flight or the engine has failed. */
bool traffic_busy(Traffic *traffic);
bool traffic_failed(Traffic *traffic);
MUST_USE Status mpi_status(int code, const char *what);

/* For step functions: completes finished requests and posts new ones; returns whether anything changed. */
bool flows_move(Traffic *traffic, Op *op);
bool flows_done(const Op *op);
bool op_step_move(Traffic *traffic, Op *op); /* step function of operations that only move bytes */

/* Notes. The lock is held. */
int notes_listen(Traffic *traffic);
bool notes_take(Traffic *traffic);                                 /* handles the next note, if any */
void notes_send(Traffic *traffic, NoteKind kind, uint64_t number); /* to all other ranks */
void notes_send_to(Traffic *traffic, int to, NoteKind kind, uint64_t number, const RankState *state);
void notes_free(Traffic *traffic);

/* Sections, see comm/mesh.h. */
void traffic_section(Traffic *traffic, SectionStage stage, const volatile sig_atomic_t *stop);
bool traffic_abandons(Traffic *traffic);
/* Forgets operations in flight and duplicates a communicator. Fails if a rank does not take part in time. */
MUST_USE Status traffic_recover(Traffic *traffic, MPI_Comm old, MPI_Comm *ret_comm);
/* For waits on a device. */
MUST_USE Status traffic_wait_more(Traffic *traffic, bool begins);

/* The watchdog, comm/watchdog.h. The lock is held. */
int watchdog_new(Traffic *traffic);
void watchdog_free(Traffic *traffic);
void watchdog_answer(Traffic *traffic, int to, uint64_t number);
void watchdog_begin(Traffic *traffic, const Op *op, WatchedWait *ret_wait);
void watchdog_look(Traffic *traffic, WatchedWait *wait); /* sets timed_out after the limit */
void watchdog_end(Traffic *traffic);

/* Failure handling, see group_drop and group_claim_failure. */
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
/* Gathers `bytes` bytes per rank into dst, in rank order. src may alias its part of dst. */
MUST_USE Status start_gather(Group *group, Device *device, void *dst, const void *src, int64_t bytes,
                             Ticket *ret_ticket);
MUST_USE Status start_broadcast(Group *group, Device *device, void *data, int64_t bytes, int root,
                                Ticket *ret_ticket);

#endif
