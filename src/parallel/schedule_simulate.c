/* Simulation of all stages' lists, in three passes.
 *
 * 1. Each list alone: every action occurs once, after its dependencies.
 * 2. Messages: both sides of a link list the same messages in the same order. Then the stages run with
 * message batches that block until matched, until all are done or none can advance (deadlock).
 * 3. Times, with buffered messages.
 *
 * In a longer pipeline, messages travel around the ring in one direction (forward) or the other (backward).
 * With two stages both directions lead to the same stage, so both kinds share one link. */
#include "base/memory.h"
#include "parallel/schedule.h"

/* ---- one list alone ---- */

/* Dependencies of an action on the same (micro-batch, chunk), as bits of ActionKind. */
static unsigned needs(const ScheduleSpec *spec, int part, ActionKind kind) {
    bool alone = spec->stages == 1, first = part == 0, last = part == spec->stages * spec->chunks - 1;
    switch (kind) {
    case ACTION_FORWARD: return first || alone ? 0 : 1u << ACTION_RECEIVE_FORWARD;
    case ACTION_SEND_FORWARD: return 1u << ACTION_FORWARD;
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT:
        return 1u << ACTION_FORWARD | (last || alone ? 0 : 1u << ACTION_RECEIVE_BACKWARD);
    case ACTION_BACKWARD_WEIGHT: return 1u << ACTION_BACKWARD_INPUT;
    case ACTION_SEND_BACKWARD: return 1u << ACTION_BACKWARD_INPUT; /* included in a full backward */
    default: return 0;
    }
}

/* The effects of an action: a full backward counts as both halves. */
static unsigned does(ActionKind kind) {
    return kind == ACTION_BACKWARD ? 1u << ACTION_BACKWARD_INPUT | 1u << ACTION_BACKWARD_WEIGHT : 1u << kind;
}

/* All effects that a (micro-batch, chunk) must have at the end. */
static unsigned all_of(const ScheduleSpec *spec, int part) {
    bool alone = spec->stages == 1, first = part == 0, last = part == spec->stages * spec->chunks - 1;
    bool train = !schedule_is_forward_only(spec, part);
    unsigned all = 1u << ACTION_FORWARD;
    if (train) all |= 1u << ACTION_BACKWARD_INPUT | 1u << ACTION_BACKWARD_WEIGHT;
    if (alone) return all;
    if (!first)
        all |= 1u << ACTION_RECEIVE_FORWARD |
               (train && part > spec->forward_only ? 1u << ACTION_SEND_BACKWARD : 0);
    if (!last) all |= 1u << ACTION_SEND_FORWARD | (train ? 1u << ACTION_RECEIVE_BACKWARD : 0);
    return all;
}

static Status wrong_action(const Schedule *schedule, int at, const char *what) {
    Action action = schedule->action[at];
    bool known = (unsigned)action.kind < ACTION_KINDS;
    return FAILED("pipeline stage %d, action %d, %s of micro-batch %d, chunk %d: %s", schedule->stage, at,
                  known ? action_name(action.kind) : "an unknown kind", action.micro, action.chunk, what);
}

static Status check_action(const Schedule *schedule, int at, unsigned *done) {
    const ScheduleSpec *spec = &schedule->spec;
    Action action = schedule->action[at];
    if ((unsigned)action.kind >= ACTION_KINDS || action.micro < 0 || action.micro >= spec->micros ||
        action.chunk < 0 || action.chunk >= spec->chunks)
        return wrong_action(schedule, at, "does not belong to this schedule");
    int part = schedule_part(spec, schedule->stage, action.chunk);
    unsigned *pair = &done[action.chunk * spec->micros + action.micro];
    unsigned missing = needs(spec, part, action.kind) & ~*pair;
    if (does(action.kind) & ~all_of(spec, part)) return wrong_action(schedule, at, "does not belong here");
    if (does(action.kind) & *pair) return wrong_action(schedule, at, "occurs twice");
    if (missing) return wrong_action(schedule, at, "comes before its dependencies");
    *pair |= does(action.kind);
    return OK;
}

static Status check_list(const Schedule *schedule) {
    const ScheduleSpec *spec = &schedule->spec;
    CLEANUP(mem_freep) unsigned *done = NULL;
    TRY(mem_new((size_t)spec->chunks * (size_t)spec->micros, sizeof *done, &done));
    for (int i = 0; i < schedule->count; i++) TRY(check_action(schedule, i, done));
    for (int chunk = 0; chunk < spec->chunks; chunk++) {
        unsigned all = all_of(spec, schedule_part(spec, schedule->stage, chunk));
        for (int micro = 0; micro < spec->micros; micro++) {
            unsigned missing = all & ~done[chunk * spec->micros + micro];
            if (missing)
                return FAILED("pipeline stage %d: %s of micro-batch %d, chunk %d is missing", schedule->stage,
                              action_name((ActionKind)__builtin_ctz(missing)), micro, chunk);
        }
    }
    return OK;
}

/* ---- messages ---- */

enum { TO_NEXT, TO_PREVIOUS, WAYS };

/* Messages from one stage to a neighbor. */
typedef struct Link {
    int *sent, *received; /* indices of the actions on both sides, in order */
    int sends, receives;
    int started_sends, started_receives;
} Link;

typedef struct Paper {
    const Schedule *stages;
    int count;
    Link *link;   /* [stages][WAYS], by sender */
    int **number; /* [stages][actions]: index of the message on its link */
} Paper;

static void simulation_done(Paper *sim) {
    for (int i = 0; sim->link && i < sim->count * WAYS; i++) {
        free(sim->link[i].sent);
        free(sim->link[i].received);
    }
    for (int s = 0; sim->number && s < sim->count; s++) free(sim->number[s]);
    free(sim->link);
    free(sim->number);
    *sim = (Paper){0};
}

static Link *link_of(const Paper *sim, int stage, ActionKind kind) {
    int count = sim->count, sender = stage;
    bool forward = kind == ACTION_SEND_FORWARD || kind == ACTION_RECEIVE_FORWARD;
    if (kind == ACTION_RECEIVE_FORWARD) sender = (stage + count - 1) % count;
    if (kind == ACTION_RECEIVE_BACKWARD) sender = (stage + 1) % count;
    return &sim->link[sender * WAYS + (forward || count == 2 ? TO_NEXT : TO_PREVIOUS)];
}

static Status simulation_init(Paper *ret_sim, const Schedule *stages, int count) {
    CLEANUP(simulation_done) Paper sim = {.stages = stages, .count = count};
    TRY(mem_new((size_t)count * WAYS, sizeof *sim.link, &sim.link));
    TRY(mem_new((size_t)count, sizeof *sim.number, &sim.number));
    /* A pair sends up to two messages over a link: forward and, with two stages, backward. */
    size_t most = (size_t)stages->spec.chunks * (size_t)stages->spec.micros * 2;
    for (int i = 0; i < count * WAYS; i++) {
        TRY(mem_new(most, sizeof(int), &sim.link[i].sent));
        TRY(mem_new(most, sizeof(int), &sim.link[i].received));
    }
    for (int s = 0; s < count; s++) {
        TRY(mem_new((size_t)stages[s].count, sizeof(int), &sim.number[s]));
        for (int i = 0; i < stages[s].count; i++) {
            ActionKind kind = stages[s].action[i].kind;
            if (action_computes(kind)) continue;
            Link *link = link_of(&sim, s, kind);
            bool receive = action_receives(kind);
            sim.number[s][i] = receive ? link->receives : link->sends;
            *(receive ? &link->received[link->receives++] : &link->sent[link->sends++]) = i;
        }
    }
    return MOVE(ret_sim, sim);
}

/* Whether a receive matches a send. */
static bool is_partner(const Schedule *from, Action send, const Schedule *to, Action receive) {
    bool forward = send.kind == ACTION_SEND_FORWARD;
    int part = schedule_part(&from->spec, from->stage, send.chunk) + (forward ? 1 : -1);
    return receive.kind == (forward ? ACTION_RECEIVE_FORWARD : ACTION_RECEIVE_BACKWARD) &&
           part == schedule_part(&to->spec, to->stage, receive.chunk) && send.micro == receive.micro;
}

static Status check_link(const Paper *sim, int sender, int way) {
    const Link *link = &sim->link[sender * WAYS + way];
    int count = sim->count;
    const Schedule *from = &sim->stages[sender];
    const Schedule *to = &sim->stages[(sender + (way == TO_NEXT ? 1 : count - 1)) % count];
    for (int k = 0; k < link->sends && k < link->receives; k++)
        if (!is_partner(from, from->action[link->sent[k]], to, to->action[link->received[k]])) {
            Action send = from->action[link->sent[k]];
            return status_wrap(wrong_action(to, link->received[k], "does not match the next message"),
                               "stage %d sends %s of micro-batch %d, chunk %d (action %d)", sender,
                               send.kind == ACTION_SEND_FORWARD ? "the output" : "the gradient", send.micro,
                               send.chunk, link->sent[k]);
        }
    if (link->sends > link->receives)
        return wrong_action(from, link->sent[link->receives], "has no matching receive");
    if (link->receives > link->sends)
        return wrong_action(to, link->received[link->sends], "has no matching send");
    return OK;
}

static int batch_end(const Schedule *schedule, int at) {
    while (at < schedule->count && !action_computes(schedule->action[at].kind)) at++;
    return at;
}

static bool has_met(const Paper *sim, int stage, int at) {
    const Link *link = link_of(sim, stage, sim->stages[stage].action[at].kind);
    int number = sim->number[stage][at];
    return number < link->started_sends && number < link->started_receives;
}

/* Position of a stage: `at` is a computation or the first message of a launched batch. */
typedef struct Place {
    int at;
    bool started;
} Place;

/* The first unmatched message of the batch, or the end of the batch. */
static int first_unmet(const Paper *sim, int stage, int at) {
    int end = batch_end(&sim->stages[stage], at);
    while (at < end && has_met(sim, stage, at)) at++;
    return at;
}

static bool walk(const Paper *sim, int stage, Place *place) {
    const Schedule *schedule = &sim->stages[stage];
    bool moved = false;
    while (place->at < schedule->count) {
        int end = batch_end(schedule, place->at);
        if (end == place->at) {
            place->at++;
            moved = true;
            continue;
        }
        for (int i = place->at; !place->started && i < end; i++) {
            Link *link = link_of(sim, stage, schedule->action[i].kind);
            ++*(action_receives(schedule->action[i].kind) ? &link->started_receives : &link->started_sends);
            moved = true;
        }
        place->started = true;
        if (first_unmet(sim, stage, place->at) < end) break;
        *place = (Place){.at = end};
        moved = true;
    }
    return moved;
}

static Status check_waits(const Paper *sim) {
    CLEANUP(mem_freep) Place *place = NULL;
    TRY(mem_new((size_t)sim->count, sizeof *place, &place));
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < sim->count; s++) moved |= walk(sim, s, &place[s]);
    }
    for (int s = 0; s < sim->count; s++)
        if (place[s].at < sim->stages[s].count)
            return wrong_action(&sim->stages[s], first_unmet(sim, s, place[s].at),
                                "waits forever (deadlock)");
    return OK;
}

static Status check_messages(const Schedule *stages, int count) {
    CLEANUP(simulation_done) Paper sim = {0};
    TRY(simulation_init(&sim, stages, count));
    for (int s = 0; s < count; s++)
        for (int way = 0; way < WAYS; way++) TRY(check_link(&sim, s, way));
    return check_waits(&sim);
}

/* ---- times ---- */

typedef struct Clock {
    const ScheduleCosts *costs;
    double *forward, *backward; /* [parts][micros]: arrival time of a part's message; -1: not sent yet */
} Clock;

static void clock_done(Clock *clock) {
    free(clock->forward);
    free(clock->backward);
}

static double cost_of(const ScheduleCosts *costs, ActionKind kind) {
    switch (kind) {
    case ACTION_FORWARD: return costs->forward;
    case ACTION_BACKWARD: return costs->backward_input + costs->backward_weight;
    case ACTION_BACKWARD_INPUT: return costs->backward_input;
    case ACTION_BACKWARD_WEIGHT: return costs->backward_weight;
    default: return 0;
    }
}

/* Arrival time of the message that a receive, or a computation, waits for; NULL for a computation that needs
 * no message. */
static double *arrival_of(const Clock *clock, const Schedule *schedule, Action action) {
    const ScheduleSpec *spec = &schedule->spec;
    int part = schedule_part(spec, schedule->stage, action.chunk), last = spec->stages * spec->chunks - 1;
    int slot = part * spec->micros + action.micro;
    if (spec->stages == 1) return NULL;
    switch (action.kind) {
    case ACTION_FORWARD:
    case ACTION_RECEIVE_FORWARD: return part > 0 ? &clock->forward[slot] : NULL;
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT:
    case ACTION_RECEIVE_BACKWARD: return part < last ? &clock->backward[slot] : NULL;
    case ACTION_SEND_FORWARD: return &clock->forward[slot + spec->micros];
    case ACTION_SEND_BACKWARD: return &clock->backward[slot - spec->micros];
    default: return NULL;
    }
}

/* Advances a stage until a message is missing; `now` is the time at which it becomes free. Returns its
 * position. */
static int clock_stage(const Clock *clock, const Schedule *schedule, int at, double *now, ActionTime *time) {
    for (; at < schedule->count; at++) {
        Action action = schedule->action[at];
        double *arrival = arrival_of(clock, schedule, action), start = *now;
        if (action_computes(action.kind)) {
            if (arrival && *arrival < 0) break;
            if (arrival && *arrival > start) start = *arrival;
            *now = start + cost_of(clock->costs, action.kind);
            time[at] = (ActionTime){start, *now};
        } else if (action_receives(action.kind)) {
            time[at] = (ActionTime){start, start};
        } else {
            *arrival = start + clock->costs->transfer;
            time[at] = (ActionTime){start, *arrival};
        }
    }
    return at;
}

static Status clock_all(const Clock *clock, const Schedule *stages, int count, ActionTime **time) {
    CLEANUP(mem_freep) int *at = NULL;
    CLEANUP(mem_freep) double *now = NULL;
    TRY(mem_new((size_t)count, sizeof *at, &at));
    TRY(mem_new((size_t)count, sizeof *now, &now));
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < count; s++) {
            int to = clock_stage(clock, &stages[s], at[s], &now[s], time[s]);
            moved |= to > at[s];
            at[s] = to;
        }
    }
    for (int s = 0; s < count; s++)
        for (int i = 0; i < stages[s].count; i++) {
            if (!action_receives(stages[s].action[i].kind)) continue;
            double arrival = *arrival_of(clock, &stages[s], stages[s].action[i]);
            if (arrival > time[s][i].end) time[s][i].end = arrival;
        }
    return OK;
}

static void sum_up(ScheduleTimes *times, const Schedule *stages, int count) {
    double busy = 0;
    for (int s = 0; s < count; s++)
        for (int i = 0; i < stages[s].count; i++) {
            if (!action_computes(stages[s].action[i].kind)) continue;
            ActionTime time = times->time[s][i];
            busy += time.end - time.start;
            if (time.end > times->makespan) times->makespan = time.end;
        }
    times->bubble = times->makespan > 0 ? 1 - busy / (count * times->makespan) : 0;
}

typedef struct TimesOwner {
    ScheduleTimes times;
    int stages;
} TimesOwner;

static void times_owner_done(TimesOwner *owner) {
    schedule_times_done(&owner->times, owner->stages);
}

static Status find_times(const Schedule *stages, int count, const ScheduleCosts *costs,
                         ScheduleTimes *ret_times) {
    const ScheduleSpec *spec = &stages->spec;
    size_t slots = (size_t)spec->stages * (size_t)spec->chunks * (size_t)spec->micros;
    CLEANUP(times_owner_done) TimesOwner owner = {.stages = count};
    CLEANUP(clock_done) Clock clock = {.costs = costs};
    TRY(mem_new(slots, sizeof *clock.forward, &clock.forward));
    TRY(mem_new(slots, sizeof *clock.backward, &clock.backward));
    for (size_t i = 0; i < slots; i++) clock.forward[i] = clock.backward[i] = -1;
    TRY(mem_new((size_t)count, sizeof *owner.times.time, &owner.times.time));
    for (int s = 0; s < count; s++)
        TRY(mem_new((size_t)stages[s].count, sizeof(ActionTime), &owner.times.time[s]));
    TRY(clock_all(&clock, stages, count, owner.times.time));
    sum_up(&owner.times, stages, count);
    *ret_times = owner.times;
    owner.times = (ScheduleTimes){0};
    return OK;
}

static bool same_pipeline(const ScheduleSpec *a, const ScheduleSpec *b) {
    return a->stages == b->stages && a->chunks == b->chunks && a->micros == b->micros &&
           a->forward_only == b->forward_only && (a->kind == SCHEDULE_EVAL) == (b->kind == SCHEDULE_EVAL);
}

Status schedule_simulate(const Schedule *stages, int count, const ScheduleCosts *costs,
                         ScheduleTimes *ret_times) {
    for (int s = 0; s < count; s++)
        if (stages[s].stage != s || stages[s].spec.stages != count ||
            !same_pipeline(&stages[s].spec, &stages[0].spec))
            return FAILED("pipeline stage %d: its list belongs to stage %d of %d of another pipeline", s,
                          stages[s].stage, stages[s].spec.stages);
    for (int s = 0; s < count; s++) TRY(check_list(&stages[s]));
    if (count > 1) TRY(check_messages(stages, count));
    return costs ? find_times(stages, count, costs, ret_times) : OK;
}

void schedule_times_done(ScheduleTimes *times, int stages) {
    for (int s = 0; times->time && s < stages; s++) free(times->time[s]);
    free(times->time);
    *times = (ScheduleTimes){0};
}
