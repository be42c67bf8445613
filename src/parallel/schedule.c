/* Builds a stage's list: its computations in order (schedule_order.c), with messages inserted.
 *
 * Each computation has an end time under equal costs, and each message is sent at the end of the computation
 * that produces it. Sorting a stage's computations and messages by these times places both sides of every
 * message at the same position of one global order. A cyclic wait is therefore impossible, whatever the
 * actual costs, and remains so if computations are left out with both sides of their messages, such as the
 * backwards of parts in which nothing is trained. */
#include "parallel/schedule.h"

#include <string.h>

#include "base/memory.h"
#include "parallel/schedule_order.h"

const char *const schedule_names[] = {[SCHEDULE_GPIPE] = "gpipe",
                                      [SCHEDULE_1F1B] = "1f1b",
                                      [SCHEDULE_INTERLEAVED] = "interleaved",
                                      [SCHEDULE_ZERO_BUBBLE] = "zero-bubble",
                                      [SCHEDULE_EVAL] = NULL};

const char *schedule_name(ScheduleKind kind) {
    return kind == SCHEDULE_EVAL ? "eval" : schedule_names[kind];
}

const char *action_name(ActionKind kind) {
    static const char *const names[ACTION_KINDS] = {
        [ACTION_RECEIVE_FORWARD] = "receive-forward",
        [ACTION_FORWARD] = "forward",
        [ACTION_SEND_FORWARD] = "send-forward",
        [ACTION_RECEIVE_BACKWARD] = "receive-backward",
        [ACTION_BACKWARD] = "backward",
        [ACTION_BACKWARD_INPUT] = "backward-input",
        [ACTION_BACKWARD_WEIGHT] = "backward-weight",
        [ACTION_SEND_BACKWARD] = "send-backward",
    };
    return names[kind];
}

#define SHOWN(kind, letter, tint)                                                                            \
    { letter, kind, tint, {"micro", "chunk"}, true }

const TraceName *action_trace(ActionKind kind) {
    static const TraceName names[ACTION_KINDS] = {
        [ACTION_RECEIVE_FORWARD] = SHOWN("receive", "receive F", TRACE_GRAY),
        [ACTION_FORWARD] = SHOWN("forward", "F", TRACE_BLUE),
        [ACTION_SEND_FORWARD] = SHOWN("send", "send F", TRACE_GRAY),
        [ACTION_RECEIVE_BACKWARD] = SHOWN("receive", "receive B", TRACE_GRAY),
        [ACTION_BACKWARD] = SHOWN("backward", "B", TRACE_ORANGE),
        [ACTION_BACKWARD_INPUT] = SHOWN("backward-input", "B", TRACE_ORANGE),
        [ACTION_BACKWARD_WEIGHT] = SHOWN("backward-weight", "W", TRACE_GREEN),
        [ACTION_SEND_BACKWARD] = SHOWN("send", "send B", TRACE_GRAY),
    };
    return &names[kind];
}

static Status check_spec(const ScheduleSpec *spec, int stage) {
    enum { LIMIT = 1 << 22 }; /* limit that keeps every count within int */
    if (spec->stages < 1 || spec->chunks < 1 || spec->micros < 1)
        return USAGE("a pipeline needs at least 1 stage, 1 chunk per stage and 1 micro-batch, not %d, %d "
                     "and %d",
                     spec->stages, spec->chunks, spec->micros);
    if (spec->chunks > 1 && spec->kind != SCHEDULE_INTERLEAVED && spec->kind != SCHEDULE_EVAL)
        return USAGE(
            "the %s schedule has 1 chunk per stage, not %d; use {pp-schedule} interleaved for several",
            schedule_name(spec->kind), spec->chunks);
    if ((double)spec->stages * spec->chunks * spec->micros > LIMIT)
        return USAGE("a pipeline of %d stages, %d chunks per stage and %d micro-batches is too large: their "
                     "product is limited to %d",
                     spec->stages, spec->chunks, spec->micros, LIMIT);
    if (stage < 0 || stage >= spec->stages)
        return FAILED("internal: stage %d of a pipeline with %d stages", stage, spec->stages);
    return OK;
}

typedef struct Event {
    int time;
    int sender; /* -1 for a computation, which sorts before messages of the same time */
    Action action;
} Event;

static int compare_events(const void *a, const void *b) {
    const Event *x = a, *y = b;
    return x->time != y->time ? (x->time > y->time) - (x->time < y->time)
                              : (x->sender > y->sender) - (x->sender < y->sender);
}

/* Adds a computation with the messages for its input and output. */
static int add_events(const Orders *orders, int stage, int at, Event *event) {
    const ScheduleSpec *spec = &orders->spec;
    Action action = orders->action[(size_t)stage * (size_t)orders->count + (size_t)at];
    int end = orders->end[(size_t)stage * (size_t)orders->count + (size_t)at], count = 0;
    int part = schedule_part(spec, stage, action.chunk), last = spec->stages * spec->chunks - 1;
    if (action.kind != ACTION_FORWARD && schedule_is_forward_only(spec, part)) return 0;
    event[count++] = (Event){end, -1, action};
    if (spec->stages == 1 || action.kind == ACTION_BACKWARD_WEIGHT) return count;
    int slot = part * spec->micros + action.micro;
    int before = (stage + spec->stages - 1) % spec->stages, after = (stage + 1) % spec->stages;
    Action receive = action, send = action;
    if (action.kind == ACTION_FORWARD) {
        receive.kind = ACTION_RECEIVE_FORWARD;
        send.kind = ACTION_SEND_FORWARD;
        if (part > 0) event[count++] = (Event){orders->forward_end[slot - spec->micros], before, receive};
        if (part < last) event[count++] = (Event){end, stage, send};
    } else {
        receive.kind = ACTION_RECEIVE_BACKWARD;
        send.kind = ACTION_SEND_BACKWARD;
        if (part < last) event[count++] = (Event){orders->backward_end[slot + spec->micros], after, receive};
        if (part > spec->forward_only) event[count++] = (Event){end, stage, send};
    }
    return count;
}

static void raise_to(int *most, int value) {
    if (value > *most) *most = value;
}

/* Computes the peaks that determine memory: in_flight, deferred, waiting_*. */
static void count_held(Schedule *schedule) {
    int in_flight = 0, deferred = 0, forward = 0, backward = 0;
    bool messages = schedule->spec.stages > 1;
    int last = schedule->spec.stages * schedule->spec.chunks - 1;
    for (int i = 0; i < schedule->count; i++) {
        Action action = schedule->action[i];
        int part = schedule_part(&schedule->spec, schedule->stage, action.chunk);
        switch (action.kind) {
        case ACTION_RECEIVE_FORWARD: raise_to(&schedule->waiting_forward, ++forward); break;
        case ACTION_RECEIVE_BACKWARD: raise_to(&schedule->waiting_backward, ++backward); break;
        case ACTION_FORWARD:
            raise_to(&schedule->in_flight, ++in_flight);
            if (messages && part > 0) forward--;
            if (schedule_is_forward_only(&schedule->spec, part)) in_flight--;
            break;
        case ACTION_BACKWARD: in_flight--; break;
        case ACTION_BACKWARD_INPUT: raise_to(&schedule->deferred, ++deferred); break;
        case ACTION_BACKWARD_WEIGHT: in_flight--, deferred--; break;
        default: break;
        }
        bool backs = action.kind == ACTION_BACKWARD || action.kind == ACTION_BACKWARD_INPUT;
        if (backs && messages && part < last) backward--;
    }
}

static Status make_list(Schedule *ret_schedule, const Orders *orders, int stage) {
    CLEANUP(mem_freep) Event *event = NULL;
    TRY(mem_new((size_t)orders->count * 3, sizeof *event, &event));
    int count = 0;
    for (int i = 0; i < orders->count; i++) count += add_events(orders, stage, i, event + count);
    qsort(event, (size_t)count, sizeof *event, compare_events);
    CLEANUP(schedule_done) Schedule schedule = {.spec = orders->spec, .stage = stage, .count = count};
    TRY(mem_new((size_t)count, sizeof *schedule.action, &schedule.action));
    TRY(mem_new((size_t)count, sizeof *schedule.end, &schedule.end));
    for (int i = 0; i < count; i++) {
        schedule.action[i] = event[i].action;
        schedule.end[i] = event[i].time;
    }
    count_held(&schedule);
    return MOVE(ret_schedule, schedule);
}

Status schedule_init(Schedule *ret_schedule, const ScheduleSpec *spec, int stage) {
    TRY(check_spec(spec, stage));
    CLEANUP(orders_done) Orders orders = {0};
    TRY(orders_init(&orders, spec));
    return make_list(ret_schedule, &orders, stage);
}

Status schedule_init_all(Schedule *stages, const ScheduleSpec *spec) {
    TRY(check_spec(spec, 0));
    CLEANUP(orders_done) Orders orders = {0};
    TRY(orders_init(&orders, spec));
    for (int s = 0; s < spec->stages; s++) {
        Status status = make_list(&stages[s], &orders, s);
        while (status && s > 0) schedule_done(&stages[--s]);
        TRY(status);
    }
    return OK;
}

void schedule_done(Schedule *schedule) {
    free(schedule->action);
    free(schedule->end);
    *schedule = (Schedule){0};
}

ScheduleTimes schedule_times(const Schedule *stages, int count) {
    ScheduleTimes times = {0};
    int busy = 0;
    for (int s = 0; s < count; s++)
        for (int i = 0; i < stages[s].count; i++) {
            int length = action_length(stages[s].action[i].kind);
            busy += length;
            if (length) raise_to(&times.makespan, stages[s].end[i]);
        }
    times.bubble = times.makespan > 0 ? 1 - (double)busy / ((double)count * times.makespan) : 0;
    return times;
}
