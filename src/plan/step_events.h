/* The events of one training step of a rank, recorded in a dry run: kernels, copies and communication,
 * divided by the actions of the pipeline schedule.
 *
 * All micro-batches except the first and the last are alike, so events are stored for these two and for one
 * in the middle. A schedule of any length can be simulated from them. */
#ifndef WEFT_PLAN_STEP_EVENTS_H
#define WEFT_PLAN_STEP_EVENTS_H

#include "train/runner.h"

/* What a rank does at any time of a step; every moment belongs to one phase. Communication that overlaps with
 * computation is hidden and does not count. */
typedef enum {
    TIME_FORWARD,
    TIME_RECOMPUTE, /* forward kernels during backward */
    TIME_BACKWARD,
    TIME_COMMUNICATION, /* exposed: waiting for replicas, tensor-parallel ranks or host memory */
    TIME_BUBBLE,        /* waiting for other pipeline stages */
    TIME_OPTIMIZER,     /* gradient norm, optimizer step, and the all-gather of updated parameters */
    TIME_COUNT
} TimePhase;

/* The peers of a communication operation. Operations on the same channel run one after the other. */
typedef enum {
    CHANNEL_TENSOR,
    CHANNEL_CONTEXT,
    CHANNEL_SHARD,        /* the replicas of a sharding group, or all replicas */
    CHANNEL_REPLICA,      /* replicas that hold the same shard (hybrid sharding) */
    CHANNEL_EXPERT,       /* ranks with different experts, which exchange tokens */
    CHANNEL_EXPERT_SHARD, /* of those with the same experts, as above */
    CHANNEL_EXPERT_REPLICA,
    CHANNEL_ENDS,      /* the first and the last stage (tied embeddings) */
    CHANNEL_FROM_HOST, /* host memory, on streams of their own */
    CHANNEL_TO_HOST,
    CHANNEL_COUNT
} Channel;

static inline bool channel_is_host(Channel channel) {
    return channel == CHANNEL_FROM_HOST || channel == CHANNEL_TO_HOST;
}

typedef enum {
    STEP_KERNEL, /* what: KernelId */
    STEP_ZERO,
    STEP_COPY,  /* between device and host, on the main stream */
    STEP_SYNC,  /* the host waits for the device */
    STEP_START, /* starts an operation; what: CommKind */
    STEP_WAIT,  /* waits for the `back`-th most recent operation of the channel; 1 is the latest */
} StepEventKind;

typedef struct StepEvent {
    StepEventKind kind;
    TimePhase phase;
    int what;
    Channel channel;
    int back;
    unsigned traits;
    double flops, bytes, size[OP_SIZES]; /* as in OpRecord */
} StepEvent;

/* A range of StepEvents.event. */
typedef struct EventRange {
    int first, count;
} EventRange;

typedef enum { MICRO_FIRST, MICRO_MIDDLE, MICRO_LAST, MICRO_POSITIONS } MicroPosition;
enum { COMPUTATIONS = 4 }; /* ACTION_FORWARD, _BACKWARD, _BACKWARD_INPUT, _BACKWARD_WEIGHT */

typedef struct StepEvents {
    StepEvent *event;
    size_t count, capacity;
    EventRange begin;        /* before the schedule */
    EventRange *computation; /* [COMPUTATIONS][chunks][MICRO_POSITIONS] */
    EventRange end;          /* after the schedule */
    int chunks;
    double message; /* bytes per message between stages; 0: no messages */
} StepEvents;

/* Reads the op log of one complete step of `runner` with `micros` micro-batches. */
MUST_USE Status step_events_init(StepEvents *ret_events, const OpLog *op_log, const Runner *runner,
                                 int micros);
MUST_USE Status step_events_copy(StepEvents *ret_events, const StepEvents *events);
void step_events_done(StepEvents *events);
MicroPosition micro_position(int micro, int micros);
/* The element for a computation in events->computation, or in another array of the same shape. */
EventRange *step_events_slot(const StepEvents *events, EventRange *computation, ActionKind kind, int chunk,
                             MicroPosition position);

#endif
