/* A rank's step as it was carried out on paper: what the runner asked of its device and groups, cut at the
 * actions of its schedule.
 *
 * Micro-batches are alike but for the first and the last, so a tape holds what an action does for these two
 * and for one in between, and a schedule of any length can be played from it. */
#ifndef WEFT_PLAN_STEP_EVENTS_H
#define WEFT_PLAN_STEP_EVENTS_H

#include "train/runner.h"

/* What a rank does at a moment of a step; each moment counts once. Communication is what nothing runs beside:
 * the rest of it is hidden and takes no time. */
typedef enum {
    PHASE_FORWARD,
    PHASE_RECOMPUTE, /* of the forward again, for backward */
    PHASE_BACKWARD,
    PHASE_COMMUNICATION, /* waiting for other replicas and tensor ranks, and for the host's memory */
    PHASE_BUBBLE,        /* waiting for other stages */
    PHASE_OPTIMIZER,     /* the gradients' norm, the update, and parameters that come together after it */
    PHASE_COUNT
} TimePhase;

/* Whom an operation is with. Those of one party take place one after the other. */
typedef enum {
    CHANNEL_TENSOR,
    CHANNEL_SHARD,   /* replicas that share out what is sharded, or all of them */
    CHANNEL_REPLICA, /* those that hold the same part */
    CHANNEL_ENDS,    /* the first and the last stage */
    CHANNEL_HOST,    /* memory of the host, over a stream of its own */
    CHANNEL_COUNT
} Channel;

typedef enum {
    STEP_KERNEL, /* what: KernelId */
    STEP_ZERO,
    STEP_COPY,  /* between device and host, on the main stream */
    STEP_SYNC,  /* the host waits for the device */
    STEP_START, /* of an operation; what: CommKind */
    STEP_WAIT,  /* for the operation of its party that was the `back`-th last one to start, from 1 */
} StepEventKind;

typedef struct StepEvent {
    StepEventKind kind;
    TimePhase phase;
    int what;
    Channel channel;
    int back;
    bool act;
    double flops, bytes, size[OP_SIZES]; /* as in Note */
} StepEvent;

typedef struct Stretch {
    int first, count;
} Stretch;

typedef enum { MICRO_FIRST, MICRO_MIDDLE, MICRO_LAST, MICRO_PLACES } MicroPlace;
enum { COMPUTATIONS = 4 }; /* ACTION_FORWARD, _BACKWARD, _BACKWARD_INPUT, _BACKWARD_WEIGHT */

typedef struct StepEvents {
    StepEvent *event;
    size_t count, capacity;
    Stretch begin;        /* of the step, before the schedule */
    Stretch *computation; /* [COMPUTATIONS][chunks][MICRO_PLACES] */
    Stretch end;          /* after it */
    int chunks;
    double message; /* bytes between stages; 0: there are none */
} StepEvents;

/* From the notes of one whole step of a runner. */
MUST_USE Status step_events_init(StepEvents *ret_events, const OpLog *op_log, const Runner *runner,
                                 int micros);
MUST_USE Status step_events_copy(StepEvents *ret_events, const StepEvents *events);
void step_events_done(StepEvents *events);
MicroPlace micro_place(int micro, int micros);
/* That of a computation in the tape's list, or in one of the same form. */
Stretch *step_events_slot(const StepEvents *events, Stretch *computation, ActionKind kind, int chunk,
                          MicroPlace place);

#endif
