/* The progress engine: all communication over MPI goes through one `Traffic` per process.
 *
 * An operation (`Op`) is a set of flows and a step function. A flow moves bytes to or from one peer in
 * chunks, up to WINDOW at a time, by MPI_Isend or MPI_Irecv. The step function processes what has arrived, in
 * messages or in the memory that ranks of a node share (`Rings`), raises the flows' limits and reports
 * completion. Operations never block, so any number of them, of any groups, progress concurrently.
 *
 * A lock admits one thread at a time, and thus serializes MPI calls. A caller that waits for an operation
 * progresses all of them; otherwise a progress thread does, sleeping between polls.
 */
#ifndef WEFT_COMM_MPI_TRAFFIC_H
#define WEFT_COMM_MPI_TRAFFIC_H

#include <mpi.h>
#include <pthread.h>

#include "comm/group.h"
#include "comm/mpi/reduce.h"
#include "comm/staging.h"
#include "comm/watchdog.h"

enum { TAGS = 8191 }; /* distinct tags per class; numbers wrap around */

/* Tags are class + TAG_CLASSES * number; MPI guarantees tags up to 32767. */
typedef enum { TAG_DATA, TAG_GATHER, TAG_PAIR, TAG_CLASSES } TagClass;

typedef struct Flow {
    int peer, tag;
    bool sends;
    char *base;
    int64_t stride;       /* staged: chunks cycle through WINDOW buffers, `stride` bytes apart; 0: not */
    uint64_t turn;        /* staged: number of the first chunk */
    int64_t bytes, piece; /* total, and per chunk except the last */
    int64_t count;        /* number of chunks */
    int64_t shorts;       /* the first chunks, which the operation sends as messages of up to MESSAGE bytes */
    int64_t limit, posted, done; /* chunks that may be posted, are posted, are complete */
} Flow;

/* How far a rank has come on the rings of its group, in rounds. Only that rank writes it. */
typedef struct Progress {
    _Alignas(64) _Atomic uint64_t put;   /* contributions in the input ring */
    _Alignas(64) _Atomic uint64_t used;  /* contributions of all others read */
    _Alignas(64) _Atomic uint64_t shown; /* results in the result ring */
    _Alignas(64) _Atomic uint64_t taken; /* results of all others read */
} Progress;

/* The memory that a rank shares with the others of its domain; the rings follow. */
typedef struct Segment {
    uint64_t cookie;
    Progress progress;
} Segment;
_Static_assert(sizeof(Segment) <= SEGMENT_HEAD, "rings begin after the header");

/* A group's memory for exchanges (exchange.c), and how far this rank has come, in rounds. */
typedef struct Rings {
    RoundBytes bytes;  /* per round */
    Segment **segment; /* of each rank of this domain; NULL: a domain of one */
    size_t segment_size;
    char *staging;        /* WINDOW rounds; allocated on first use */
    uint64_t puts, shows; /* rounds of each ring that operations have been assigned */
    uint64_t summed, sent, combined;
    uint64_t *took;        /* results read, from each rank of this domain */
    const Device *counted; /* the device that counts this memory */
} Rings;

/* An exchange; see exchange.c. */
typedef struct Exchange {
    bool reduces, spreads;
    int root;              /* the only rank with data; -1: all */
    char *src, *dst, *own; /* contributions and results of all parts, and the result of this rank's part */
    int64_t count, chunk, rounds; /* elements in total; of a part per round */
    uint64_t put, show;           /* first round on each ring */
    int first[4];                 /* first flow of each block, and the number of flows */
    int flows[4];
    Source *source; /* contributions by rank; after them, the partial sums of a message by rank */
} Exchange;

/* Short messages between ranks outside operations (notes.c). */
typedef enum { NOTE_FAILED, NOTE_ABANDON, NOTE_PROBE, NOTE_STATE } NoteKind;

/* What a rank does, for the watchdog. */
typedef struct RankState {
    uint64_t answered; /* number of the question; 0: never */
    int64_t step, beats, cpu_ms;
    int64_t moved;   /* bytes read and written */
    double waited_s; /* < 0: not waiting */
    bool on_disk;    /* a thread waits for a disk */
    int32_t unheard; /* a rank of which no note arrives here; -1: none */
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
    int asked;          /* questions asked about the limit */
    double slow_asked;  /* when the ranks were asked because the wait is longer than usual; 0: not yet */
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
    int messages, requests; /* messages per chunk, 1 or of up to MESSAGE bytes; requests in total */
    MPI_Request *request;   /* WINDOW * messages per flow */
    int *index;             /* output of MPI_Testsome */
    /* Reductions. */
    DType dtype;
    ReduceOp reduce;
    Exchange exchange;
    /* Latency-optimized reductions. */
    char *own; /* this rank's contribution, and the destination */
    char *dst;
    int64_t count; /* elements of the result */
    Buffer buffer; /* receive buffer */
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
    double asked_at;           /* when the first one of this wait was; 0: none was */
    double *heard_at;          /* when the newest note of each rank came */
    const Op *wait_op;         /* what this rank waits for, or NULL; since when */
    double wait_since;
    /* A device that communicates on its own, what it waits for, and since when this rank should report a
     * failure, or 0. */
    DeviceWatch device;
    DeviceWait device_wait;
    WatchedWait device_watched;
    double device_looked, failed_at;
    char *overdue; /* the report */
    int rank, size;
};

typedef struct MpiGroup {
    Traffic *traffic;
    MPI_Comm comm;
    uint64_t collectives;       /* number started */
    uint64_t *sends, *receives; /* number started, per peer */
    Rings rings;
    bool is_world;
} MpiGroup;

/* Holds the lock until the end of the block: around MPI calls, since the progress thread makes some as well.
 * NULL: a world that is being created has no traffic yet. */
static inline Traffic *traffic_hold(Traffic *traffic) {
    if (traffic) pthread_mutex_lock(&traffic->lock);
    return traffic;
}
static inline void traffic_let_go(Traffic **traffic) {
    if (*traffic) pthread_mutex_unlock(&(*traffic)->lock);
}
#define HOLD(traffic) CLEANUP(traffic_let_go) Traffic *held_traffic = traffic_hold(traffic)

MUST_USE Status traffic_new(Traffic **ret_engine, MPI_Comm world, bool threaded);
void traffic_free(Traffic *traffic);

/* Allocates an operation with `flows` flows of whole chunks; if 0, flows can be added later. traffic_start
 * takes ownership. */
MUST_USE Status op_new(Op **ret_op, Group *group, Device *device, int flows);
/* `messages`: per chunk (messages_of). */
MUST_USE Status op_add_flows(Op *op, int flows, int messages);
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

/* Rows of group_ops_mpi; see comm/group.h. */
void traffic_section(Group *group, SectionStage stage, const volatile sig_atomic_t *stop);
bool traffic_abandons(Group *group);
void traffic_watch_device(Group *group, const DeviceWatch *watch);
MUST_USE Status traffic_wait_more(Group *group);
void traffic_drop(Group *group);
bool traffic_claim(Group *group);

/* Forgets operations in flight. */
void traffic_forget(Traffic *traffic);
/* Duplicates a communicator. Fails if a rank does not take part in time. */
MUST_USE Status traffic_reconnect(Traffic *traffic, MPI_Comm old, MPI_Comm *ret_comm);

/* The watchdog, comm/watchdog.h. The lock is held. */
int watchdog_new(Traffic *traffic);
void watchdog_free(Traffic *traffic);
void watchdog_answer(Traffic *traffic, int to, uint64_t number);
void watchdog_begin(Traffic *traffic, const Op *op, WatchedWait *ret_wait);
void watchdog_look(Traffic *traffic, WatchedWait *wait); /* sets timed_out after the limit */
void watchdog_end(Traffic *traffic);

/* Memory shared by ranks of a node (rings.c). Opening sets group->placement; collective. */
MUST_USE Status rings_open(Group *group);
void rings_close(Group *group);
/* After operations were abandoned, before new ones start. */
void rings_reset(Group *group);
/* Allocates what is missing, and counts it on the device (may be NULL). */
MUST_USE Status rings_prepare(Group *group, Device *device);

/* Bandwidth-optimized collectives (exchange.c). `tags`: of this operation. */
typedef struct Tags {
    int data, gather;
} Tags;
MUST_USE Status exchange_prepare(Op *op, Exchange exchange, Tags tags);

/* The operations (ops.c, host.c). */
extern const GroupOps group_ops_mpi;
Status start_mpi(Group *group, Stream *stream, const CommCall *call, Ticket *ret_ticket);
Status swap_mpi(Group *group, Stream *stream, Tensor out, int to, Tensor in, int from, Ticket *ret_ticket);
Status host_reduce_mpi(Group *group, void *data, int64_t count, DType dtype, ReduceOp op);
Status host_reduce_scatter_mpi(Group *group, void *dst, void *src, int64_t count, DType dtype, ReduceOp op);
Status host_gather_mpi(Group *group, void *dst, const void *src, size_t bytes);
Status host_broadcast_mpi(Group *group, void *data, size_t bytes, int root);
/* An operation on host memory: without a device, no small reduction. */
MUST_USE Status start_collective(Group *group, Device *device, const CommCall *call, Ticket *ret_ticket);

#endif
