/* A rank's step as it was carried out on paper: what the runner asked of its device and groups, cut at the
 * actions of its schedule.
 *
 * Micro-batches are alike but for the first and the last, so a tape holds what an action does for these two
 * and for one in between, and a schedule of any length can be played from it. */
#ifndef WEFT_PLAN_TAPE_H
#define WEFT_PLAN_TAPE_H

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
    PARTY_TENSOR,
    PARTY_SHARD,   /* replicas that share out what is sharded, or all of them */
    PARTY_REPLICA, /* those that hold the same part */
    PARTY_ENDS,    /* the first and the last stage */
    PARTY_HOST,    /* memory of the host, over a stream of its own */
    PARTY_COUNT
} Party;

typedef enum {
    BEAT_KERNEL, /* what: KernelId */
    BEAT_ZERO,
    BEAT_COPY,  /* between device and host, on the main stream */
    BEAT_SYNC,  /* the host waits for the device */
    BEAT_START, /* of an operation; what: CommKind */
    BEAT_WAIT,  /* for the operation of its party that was the `back`-th last one to start, from 1 */
} BeatKind;

typedef struct Beat {
    BeatKind kind;
    TimePhase phase;
    int what;
    Party party;
    int back;
    bool act;
    double flops, bytes, size[LEDGER_SIZES]; /* as in Note */
} Beat;

typedef struct Stretch {
    int first, count;
} Stretch;

typedef enum { MICRO_FIRST, MICRO_MIDDLE, MICRO_LAST, MICRO_PLACES } MicroPlace;
enum { COMPUTATIONS = 4 }; /* ACTION_FORWARD, _BACKWARD, _BACKWARD_INPUT, _BACKWARD_WEIGHT */

typedef struct Tape {
    Beat *beat;
    size_t count, capacity;
    Stretch begin;        /* of the step, before the schedule */
    Stretch *computation; /* [COMPUTATIONS][chunks][MICRO_PLACES] */
    Stretch end;          /* after it */
    int chunks;
    double message; /* bytes between stages; 0: there are none */
} Tape;

/* From the notes of one whole step of a runner. */
MUST_USE Status tape_init(Tape *ret_tape, const Ledger *ledger, const Runner *runner, int micros);
MUST_USE Status tape_copy(Tape *ret_tape, const Tape *tape);
void tape_done(Tape *tape);
MicroPlace micro_place(int micro, int micros);
/* That of a computation in the tape's list, or in one of the same form. */
Stretch *tape_slot(const Tape *tape, Stretch *computation, ActionKind kind, int chunk, MicroPlace place);

#endif
