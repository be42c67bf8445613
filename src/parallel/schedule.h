/* Pipeline schedules as data: for each stage, the list of actions of one optimizer step, in order. The same
 * lists drive the runner, the timeline picture and the simulator. Gradient accumulation
 * is the schedule of a pipeline with one stage.
 *
 * The model's blocks are divided into stages x chunks parts, in order; part c * stages + s is chunk c of
 * stage s. A micro-batch passes through the parts in order, its gradient in reverse.
 *
 * Messages are matched by order: the first message a stage sends to another is the first one that stage
 * receives from it. A send directly follows the computation that produces its data. A receive is posted
 * where, at equal costs, its message arrives; the computation that needs it waits, so the transfer overlaps
 * the work in between. All lists are projections of one global order of computations and messages. Hence they
 * cannot deadlock, even if every send and receive blocks until matched; buffering messages, or launching
 * those between two computations as one batch, is safe as well. */
#ifndef WEFT_PARALLEL_SCHEDULE_H
#define WEFT_PARALLEL_SCHEDULE_H

#include "base/trace.h"

typedef enum {
    SCHEDULE_GPIPE,       /* all forwards, then all backwards */
    SCHEDULE_1F1B,        /* the fewest micro-batches in flight that keep every stage busy */
    SCHEDULE_INTERLEAVED, /* 1F1B with several chunks per stage */
    SCHEDULE_ZERO_BUBBLE, /* 1F1B with weight gradients filling the bubble */
    SCHEDULE_EVAL,        /* forward only */
    SCHEDULE_KINDS
} ScheduleKind;

typedef enum {
    ACTION_RECEIVE_FORWARD, /* a part's input from the previous part */
    ACTION_FORWARD,
    ACTION_SEND_FORWARD,     /* a part's output to the next part */
    ACTION_RECEIVE_BACKWARD, /* the gradient of a part's output */
    ACTION_BACKWARD,         /* both halves at once */
    ACTION_BACKWARD_INPUT,   /* gradient of the input; the weight half may follow later */
    ACTION_BACKWARD_WEIGHT,
    ACTION_SEND_BACKWARD, /* the gradient of a part's input */
    ACTION_KINDS
} ActionKind;

typedef struct Action {
    ActionKind kind;
    int micro; /* index of the micro-batch in the step */
    int chunk; /* index of the stage's chunk */
} Action;

typedef struct ScheduleSpec {
    ScheduleKind kind;
    int stages, chunks, micros; /* chunks is 1 except for INTERLEAVED and EVAL */
    int forward_only;           /* the first parts, which have no backward: nothing up to there is trained */
} ScheduleSpec;

typedef struct Schedule {
    ScheduleSpec spec;
    int stage;
    Action *action;
    int *end; /* of each action, if a forward and each half of a backward take 1 and messages no time */
    int count;
    int in_flight; /* peak number of (micro-batch, chunk) pairs between forward and the end of backward */
    int deferred;  /* peak number of pairs between input and weight gradient */
    /* Peak number of messages per direction, received or in transit, whose computation has not started. */
    int waiting_forward, waiting_backward;
} Schedule;

static inline bool schedule_is_forward_only(const ScheduleSpec *spec, int part) {
    return spec->kind == SCHEDULE_EVAL || part < spec->forward_only;
}

/* The list of one stage. An impossible specification is a usage error that names one that works. Consecutive
 * parts on the same stage exchange no messages. */
MUST_USE Status schedule_init(Schedule *ret_schedule, const ScheduleSpec *spec, int stage);
/* The lists of all stages, at little more than the cost of one. stages[spec->stages] receives them. */
MUST_USE Status schedule_init_all(Schedule *stages, const ScheduleSpec *spec);
void schedule_done(Schedule *schedule);

/* By kind, without SCHEDULE_EVAL, which is internal; ends with NULL. */
extern const char *const schedule_names[];
const char *schedule_name(ScheduleKind kind);
const char *action_name(ActionKind kind);
/* Trace labels: F3, B3 (backward, or its input half), W3; messages are gray. The numbers are micro-batch and
 * chunk. */
const TraceName *action_trace(ActionKind kind);

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

/* What a computation takes in Schedule.end. */
static inline int action_length(ActionKind kind) {
    return kind == ACTION_BACKWARD ? 2 : action_computes(kind);
}

/* When the last stage ends, and the idle share of stages x makespan. */
typedef struct ScheduleTimes {
    int makespan;
    double bubble;
} ScheduleTimes;
ScheduleTimes schedule_times(const Schedule *stages, int count);

/* Divides `count` blocks with the given costs into `parts` contiguous parts, minimizing the largest cost,
 * then the second largest, and so on. first[p] is the first block of part p; first[parts] = count. Ties give
 * later parts more blocks, since earlier stages hold more micro-batches. Each part gets at least one block;
 * count < parts is a usage error. */
MUST_USE Status stages_balance(const double *cost, int count, int parts, int *first);

#endif
