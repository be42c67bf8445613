/* What each stage of a pipeline does in one optimizer step, as data: a list of actions that the runner
 * carries out in order. The same lists drive the check for deadlock, the timeline picture and the
 * simulator. Gradient accumulation is the schedule of a pipeline with one stage.
 *
 * The model's blocks are cut into stages x chunks parts, in order; part c * stages + s is chunk c of stage
 * s. A micro-batch goes through the parts in order and its gradient comes back in reverse.
 *
 * Messages carry no names: the first that a stage sends to another is the first that the other receives
 * from it. A send stands right after the computation whose result it takes. A receive stands where, at
 * equal costs, its message comes, and the computation that uses it waits for it: so it overlaps what runs
 * in between. All lists follow one order of the whole pipeline's computations and messages, so nothing
 * waits for ever, even where each send and receive blocks until its partner is there; whoever buffers
 * messages, or launches those between two computations as one batch, waits less and is safe too. */
#ifndef WEFT_PARALLEL_SCHEDULE_H
#define WEFT_PARALLEL_SCHEDULE_H

#include "base/trace.h"

typedef enum {
    SCHEDULE_GPIPE,       /* all forwards, then all backwards */
    SCHEDULE_1F1B,        /* as few micro-batches in flight as keep the stage busy */
    SCHEDULE_INTERLEAVED, /* 1F1B over several chunks a stage */
    SCHEDULE_ZERO_BUBBLE, /* 1F1B with weight gradients put where a stage would wait */
    SCHEDULE_EVAL,        /* forwards alone */
    SCHEDULE_KINDS
} ScheduleKind;

typedef enum {
    ACTION_RECEIVE_FORWARD, /* a part's input from the part before it */
    ACTION_FORWARD,
    ACTION_SEND_FORWARD,     /* a part's output to the part after it */
    ACTION_RECEIVE_BACKWARD, /* the gradient of a part's output */
    ACTION_BACKWARD,         /* input and weight gradients */
    ACTION_BACKWARD_INPUT,   /* the two halves of it; the second may come later */
    ACTION_BACKWARD_WEIGHT,
    ACTION_SEND_BACKWARD, /* the gradient of a part's input */
    ACTION_KINDS
} ActionKind;

typedef struct Action {
    ActionKind kind;
    int micro; /* which micro-batch of the step */
    int chunk; /* which of the stage's chunks */
} Action;

typedef struct ScheduleSpec {
    ScheduleKind kind;
    int stages, chunks, micros; /* chunks 1 but for INTERLEAVED and EVAL */
} ScheduleSpec;

typedef struct Schedule {
    ScheduleSpec spec;
    int stage;
    Action *action;
    int count;
    int in_flight; /* most (micro-batch, chunk) pairs between their forward and the end of their backward */
    int deferred;  /* most of them between input and weight gradients */
    /* Most messages of one direction received, or being received, whose computation has not begun. */
    int waiting_forward, waiting_backward;
} Schedule;

/* One stage's list. What cannot be is a usage error that says what would work. A neighbour that is the
 * same stage needs no messages. */
MUST_USE Status schedule_init(Schedule *ret_schedule, const ScheduleSpec *spec, int stage);
/* Those of all stages, for little more than one takes; stages[spec->stages]. */
MUST_USE Status schedule_init_all(Schedule *stages, const ScheduleSpec *spec);
void schedule_done(Schedule *schedule);

MUST_USE Status schedule_parse(const char *name, ScheduleKind *ret_kind);
const char *schedule_name(ScheduleKind kind);
const char *action_name(ActionKind kind);
/* How a trace shows it: F3, B3 (a whole backward or its input half), W3, and messages in gray; the numbers
 * are the micro-batch and the chunk. */
const TraceName *action_trace(ActionKind kind);

/* The part that an action of a stage is about. */
static inline int schedule_part(const ScheduleSpec *spec, int stage, int chunk) {
    return chunk * spec->stages + stage;
}
static inline bool action_computes(ActionKind kind) {
    return kind == ACTION_FORWARD || kind == ACTION_BACKWARD || kind == ACTION_BACKWARD_INPUT ||
           kind == ACTION_BACKWARD_WEIGHT;
}
static inline bool action_receives(ActionKind kind) {
    return kind == ACTION_RECEIVE_FORWARD || kind == ACTION_RECEIVE_BACKWARD;
}

typedef struct ScheduleCosts {
    double forward, backward_input, backward_weight; /* of one part; a whole backward is their sum */
    double transfer;
} ScheduleCosts;

typedef struct ActionTime {
    double start, end;
} ActionTime;

typedef struct ScheduleTimes {
    ActionTime **time; /* [stage][action] */
    double makespan;
    double bubble; /* share of stages x makespan without computation */
} ScheduleTimes;

/* Carries all stages' lists out on paper: fails, naming stage and action, when they would wait for each
 * other for ever, when a message has no partner or the order of messages between two stages differs, or
 * when an action comes before what it needs.
 *
 * The check is made for the strictest way in which a runner may work: the messages between two
 * computations are launched as one batch, and the stage waits there until all of them have met their
 * partners in launched batches of the other stages. With costs, each action's start and end are given for
 * the way in which it should: sends are buffered and arrive after the transfer, receives wait until they
 * are needed. Without costs (NULL, and NULL for the times) the lists are only checked. */
MUST_USE Status schedule_simulate(const Schedule *stages, int count, const ScheduleCosts *costs,
                                  ScheduleTimes *ret_times);
void schedule_times_done(ScheduleTimes *times, int stages);

/* Cuts `count` blocks with the given costs into `parts` runs so that the costliest run is as cheap as
 * possible, then the next costliest, and so on: first[p] is the first block of part p, first[parts] =
 * count. Among equals, later parts get more blocks, since earlier stages hold more micro-batches. Every
 * part has at least one block; count < parts is a usage error. */
MUST_USE Status stages_balance(const double *cost, int count, int parts, int *first);

#endif
