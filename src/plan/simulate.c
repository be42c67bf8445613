/* Between operations of other ranks, what a device does is a list of kernels, each of which begins once the
 * one before is done and the host has started it. Of a list only three numbers matter, however long it is:
 * its time on the device (D), the host's time to start it (H), and the time from the host's beginning to the
 * device's end if the device was idle (C). Then the device ends at max(device + D, host + C). */
#include "plan/simulate.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef enum { MOVE_RUN, MOVE_START, MOVE_WAIT, MOVE_SYNC } MoveKind;

typedef struct Move {
    MoveKind kind;
    TimePhase phase;
    double device_s, host_s, idle_s; /* D, H and C; device_s of a start: of the operation */
    Channel channel;
    int back;
} Move;

/* ---- operations under way ---- */

typedef struct Operation {
    double start, left, end; /* end: once left is 0 */
} Operation;

typedef struct Queue {
    Operation *operation;
    size_t count, capacity, head; /* head: the first that is not over */
} Queue;

typedef struct Player {
    const Plan *plan;
    const Costs *costs;
    Move *move; /* as tape->beat, with moves for beats */
    size_t moves, capacity;
    Stretch begin, end, *computation;
    double device, host; /* when they are free */
    double under_way;    /* up to when operations have been followed */
    Queue queue[CHANNEL_COUNT];
    double phase_s[PHASE_COUNT];
    Schedule schedule;
    int at;           /* the next action */
    Trace *trace;     /* NULL: none */
    int64_t trace_ns; /* the moment that stands for 0 */
} Player;

static void player_done(Player *player) {
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) free(player->queue[channel].operation);
    free(player->move);
    free(player->computation);
    schedule_done(&player->schedule);
}

static Operation *head_of(Player *player, Channel channel) {
    Queue *queue = &player->queue[channel];
    return queue->head < queue->count ? &queue->operation[queue->head] : NULL;
}

/* Follows operations to the next moment at which one begins or ends, or to `until`. */
static void follow(Player *player, double until) {
    int sharing[PORT_COUNT] = {0};
    double now = player->under_way, next = until;
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        const Operation *head = head_of(player, channel);
        if (head && head->start <= now) sharing[player->costs->channel[channel].port]++;
        if (head && head->start > now && head->start < next) next = head->start;
    }
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        const Operation *head = head_of(player, channel);
        if (!head || head->start > now) continue;
        double end = now + head->left * sharing[player->costs->channel[channel].port];
        if (end < next) next = end;
    }
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        Operation *head = head_of(player, channel);
        if (!head || head->start > now) continue;
        int ranks = sharing[player->costs->channel[channel].port];
        double end = now + head->left * ranks;
        head->left -= (next - now) / ranks;
        if (end > next) continue;
        head->left = 0;
        head->end = next;
        player->queue[channel].head++;
    }
    player->under_way = next;
}

static Status start_operation(Player *player, Channel channel, double start, double seconds) {
    Queue *queue = &player->queue[channel];
    while (player->under_way < start) follow(player, start);
    TRY(mem_grow(&queue->operation, &queue->capacity, queue->count + 1, sizeof *queue->operation));
    queue->operation[queue->count++] = (Operation){.start = start, .left = seconds};
    return OK;
}

/* When the `back`-th last operation is over. */
static double end_of(Player *player, Channel channel, int back) {
    Queue *queue = &player->queue[channel];
    if (back < 1 || (size_t)back > queue->count) return 0;
    size_t number = queue->count - (size_t)back;
    while (queue->head <= number) follow(player, INFINITY);
    return queue->operation[number].end;
}

/* ---- moves ---- */

static Status add_move(Player *player, Move move) {
    TRY(mem_grow(&player->move, &player->capacity, player->moves + 1, sizeof move));
    player->move[player->moves++] = move;
    return OK;
}

static Status add_run(Player *player, size_t first, const StepEvent *event, Cost cost) {
    double host = cost.launches * cost_launch(player->costs);
    Move *last = player->moves > first ? &player->move[player->moves - 1] : NULL;
    if (!last || last->kind != MOVE_RUN || last->phase != event->phase)
        return add_move(player, (Move){.kind = MOVE_RUN,
                                       .phase = event->phase,
                                       .device_s = cost.device_s,
                                       .host_s = host,
                                       .idle_s = host + cost.device_s});
    last->host_s += host;
    last->idle_s = fmax(last->idle_s, last->host_s) + cost.device_s;
    last->device_s += cost.device_s;
    return OK;
}

static Status add_kernel(Player *player, size_t first, const StepEvent *event) {
    Cost cost = cost_event(player->costs, event);
    TRY(add_run(player, first, event, cost));
    if (cost.stall_s == 0) return OK;
    return add_move(player, (Move){.kind = MOVE_SYNC, .phase = event->phase, .host_s = cost.stall_s});
}

static Status translate(Player *player, const StepEvents *events, Stretch stretch, Stretch *ret_moves) {
    size_t first = player->moves;
    for (int i = 0; i < stretch.count; i++) {
        const StepEvent *event = &events->event[stretch.first + i];
        Move move = {.phase = event->phase, .channel = event->channel, .back = event->back};
        switch (event->kind) {
        case STEP_START:
            move.kind = MOVE_START;
            move.device_s = cost_operation(player->costs, event);
            TRY(add_move(player, move));
            break;
        case STEP_WAIT:
            move.kind = MOVE_WAIT;
            TRY(add_move(player, move));
            break;
        case STEP_SYNC:
            move.kind = MOVE_SYNC;
            TRY(add_move(player, move));
            break;
        default: TRY(add_kernel(player, first, event));
        }
    }
    *ret_moves = (Stretch){(int)first, (int)(player->moves - first)};
    return OK;
}

static void wait_until(Player *player, double moment, TimePhase phase) {
    if (moment <= player->device) return;
    player->phase_s[phase] += moment - player->device;
    player->device = moment;
}

static Status play_move(Player *player, const Move *move) {
    const Cluster *cluster = player->costs->cluster;
    /* A CPU's ranks carry their messages themselves. */
    bool beside = cluster->gpu && !(cluster->software.present && cluster->software.overlap == 0);
    switch (move->kind) {
    case MOVE_RUN: {
        double end = fmax(player->device + move->device_s, player->host + move->idle_s);
        player->host += move->host_s;
        wait_until(player, end, move->phase);
        return OK;
    }
    case MOVE_START:
        player->host += cost_launch(player->costs);
        TRY(start_operation(player, move->channel, fmax(player->device, player->host), move->device_s));
        if (!beside) wait_until(player, end_of(player, move->channel, 1), PHASE_COMMUNICATION);
        return OK;
    case MOVE_WAIT:
        wait_until(player, end_of(player, move->channel, move->back), PHASE_COMMUNICATION);
        return OK;
    case MOVE_SYNC: player->host = fmax(player->host, player->device) + move->host_s; return OK;
    }
    return OK;
}

static Status play(Player *player, Stretch moves) {
    for (int i = 0; i < moves.count; i++) TRY(play_move(player, &player->move[moves.first + i]));
    return OK;
}

/* ---- stages ---- */

static void show(const Player *player, const TraceName *name, double start, double end, int64_t first,
                 int64_t second) {
    trace_add(player->trace, TRACE_COMPUTE, name, player->trace_ns + llround(1e9 * start),
              player->trace_ns + llround(1e9 * end), first, second);
}

static Status player_init(Player *player, const Plan *plan, const Costs *costs, int stage) {
    const StepEvents *events = &plan->stage[stage].events;
    size_t slots = (size_t)(COMPUTATIONS * events->chunks * MICRO_PLACES);
    player->plan = plan;
    player->costs = costs;
    TRY(mem_new(slots, sizeof *player->computation, &player->computation));
    TRY(translate(player, events, events->begin, &player->begin));
    for (size_t i = 0; i < slots; i++)
        TRY(translate(player, events, events->computation[i], &player->computation[i]));
    return translate(player, events, events->end, &player->end);
}

typedef struct Pipeline {
    const Plan *plan;
    const Costs *costs;
    Player *player;
    int count;
    double *forward, *backward; /* [parts][micros]: when a part's message is there; -1: not sent yet */
} Pipeline;

static void pipeline_done(Pipeline *pipeline) {
    for (int s = 0; pipeline->player && s < pipeline->count; s++) player_done(&pipeline->player[s]);
    free(pipeline->player);
    free(pipeline->forward);
    free(pipeline->backward);
}

/* All stages' lists at once: one at a time takes as long for each. */
static Status give_schedules(Pipeline *pipeline) {
    const RunnerSpec *run = &pipeline->plan->runner;
    ScheduleSpec spec = {.kind = run->schedule,
                         .stages = pipeline->count,
                         .chunks = run->chunks > 0 ? run->chunks : 1,
                         .micros = run->micros};
    CLEANUP(mem_freep) Schedule *stages = NULL;
    TRY(mem_new((size_t)pipeline->count, sizeof *stages, &stages));
    TRY(schedule_init_all(stages, &spec));
    for (int s = 0; s < pipeline->count; s++) pipeline->player[s].schedule = stages[s];
    return OK;
}

/* Where the moment stands at which a message is there: that of a send, or what a computation waits for. */
static double *arrival_of(const Pipeline *pipeline, const Schedule *schedule, Action action) {
    const ScheduleSpec *spec = &schedule->spec;
    int part = schedule_part(spec, schedule->stage, action.chunk), last = spec->stages * spec->chunks - 1;
    size_t slot = (size_t)part * (size_t)spec->micros + (size_t)action.micro, micros = (size_t)spec->micros;
    if (spec->stages == 1) return NULL;
    switch (action.kind) {
    case ACTION_FORWARD: return part > 0 ? &pipeline->forward[slot] : NULL;
    case ACTION_BACKWARD:
    case ACTION_BACKWARD_INPUT: return part < last ? &pipeline->backward[slot] : NULL;
    case ACTION_SEND_FORWARD: return &pipeline->forward[slot + micros];
    case ACTION_SEND_BACKWARD: return &pipeline->backward[slot - micros];
    default: return NULL;
    }
}

static double message_s(const Pipeline *pipeline, const Player *player, ActionKind kind) {
    int stage = player->schedule.stage, count = pipeline->count;
    int from = kind == ACTION_SEND_FORWARD ? stage : (stage + count - 1) % count;
    return cost_message(pipeline->costs, pipeline->plan, from, pipeline->plan->stage[stage].events.message);
}

/* Carries a stage's actions out as far as messages let it. */
static Status play_stage(Pipeline *pipeline, Player *player, bool *ret_moved) {
    const Schedule *schedule = &player->schedule;
    const StepEvents *events = &pipeline->plan->stage[schedule->stage].events;
    for (; player->at < schedule->count; player->at++) {
        Action action = schedule->action[player->at];
        double *arrival = arrival_of(pipeline, schedule, action);
        if (action_computes(action.kind)) {
            if (arrival && *arrival < 0) return OK;
            if (arrival) wait_until(player, *arrival, PHASE_BUBBLE);
            MicroPlace place = micro_place(action.micro, schedule->spec.micros);
            const Stretch *found =
                step_events_slot(events, player->computation, action.kind, action.chunk, place);
            double start = player->device;
            TRY(play(player, *found));
            show(player, action_trace(action.kind), start, player->device, action.micro, action.chunk);
        } else if (!action_receives(action.kind)) {
            player->host += cost_launch(player->costs);
            *arrival = fmax(player->device, player->host) + message_s(pipeline, player, action.kind);
        }
        *ret_moved = true;
    }
    return OK;
}

/* All ranks learn the loss and the norm before they update. */
static Status play_end(Pipeline *pipeline) {
    static const TraceName name = {.name = "update", .category = "optimizer", .color = TRACE_GREEN};
    double latest = 0;
    for (int s = 0; s < pipeline->count; s++) {
        Player *player = &pipeline->player[s];
        Stretch moves = player->end;
        int sync = 0;
        while (sync < moves.count && player->move[moves.first + sync].kind != MOVE_SYNC) sync++;
        TRY(play(player, (Stretch){moves.first, sync}));
        latest = fmax(latest, fmax(player->device, player->host));
    }
    for (int s = 0; s < pipeline->count; s++) {
        Player *player = &pipeline->player[s];
        Stretch moves = player->end;
        int sync = 0;
        while (sync < moves.count && player->move[moves.first + sync].kind != MOVE_SYNC) sync++;
        wait_until(player, latest, PHASE_BUBBLE);
        player->host = latest;
        double start = player->device;
        TRY(play(player, (Stretch){moves.first + sync, moves.count - sync}));
        show(player, &name, start, player->device, 0, 0);
    }
    return OK;
}

static Status play_step(Pipeline *pipeline) {
    const ScheduleSpec *spec = &pipeline->player[0].schedule.spec;
    size_t slots = (size_t)spec->stages * (size_t)spec->chunks * (size_t)spec->micros;
    for (size_t i = 0; i < slots; i++) pipeline->forward[i] = pipeline->backward[i] = -1;
    for (int s = 0; s < pipeline->count; s++) {
        pipeline->player[s].at = 0;
        memset(pipeline->player[s].phase_s, 0, sizeof pipeline->player[s].phase_s);
        TRY(play(&pipeline->player[s], pipeline->player[s].begin));
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < pipeline->count; s++) TRY(play_stage(pipeline, &pipeline->player[s], &moved));
    }
    for (int s = 0; s < pipeline->count; s++)
        if (pipeline->player[s].at < pipeline->player[s].schedule.count)
            return FAILED("internal: stage %d waits for a message that nobody sends", s);
    return play_end(pipeline);
}

static double latest_of(const Pipeline *pipeline) {
    double latest = 0;
    for (int s = 0; s < pipeline->count; s++) latest = fmax(latest, pipeline->player[s].device);
    return latest;
}

/* From here on what happens is shown; this moment is 0. */
static void open_traces(Pipeline *pipeline, Trace *const *traces, double from) {
    int64_t now = trace_now();
    for (int s = 0; traces && s < pipeline->count; s++) {
        trace_start(traces[s]);
        pipeline->player[s].trace = traces[s];
        pipeline->player[s].trace_ns = now - llround(1e9 * from);
    }
}

/* The host starts a step's first work while the device still ends the one before, so it is the second step
 * that is typical. */
static Status play_steps(Pipeline *pipeline, Trace *const *traces, Simulated *ret_result) {
    static const TraceName name = {.name = "step ", .category = "step", .number = {"step"}, .numbered = true};
    Simulated result = {0};
    TRY(play_step(pipeline));
    double from = latest_of(pipeline);
    open_traces(pipeline, traces, from);
    TRY(play_step(pipeline));
    result.step_s = latest_of(pipeline) - from;
    for (int s = 0; s < pipeline->count; s++) {
        show(&pipeline->player[s], &name, from, from + result.step_s, 2, 0);
        double rest = result.step_s;
        for (TimePhase phase = 0; phase < PHASE_COUNT; phase++) {
            result.phase_s[phase] += pipeline->player[s].phase_s[phase] / pipeline->count;
            rest -= pipeline->player[s].phase_s[phase];
        }
        result.phase_s[PHASE_BUBBLE] += rest / pipeline->count;
    }
    *ret_result = result;
    return OK;
}

Status simulate(const Plan *plan, const Costs *costs, Trace *const *traces, Simulated *ret_result) {
    CLEANUP(pipeline_done) Pipeline pipeline = {.plan = plan, .costs = costs, .count = plan->stages};
    const RunnerSpec *run = &plan->runner;
    size_t slots = (size_t)plan->stages * (size_t)(run->chunks > 0 ? run->chunks : 1) * (size_t)run->micros;
    TRY(mem_new((size_t)plan->stages, sizeof *pipeline.player, &pipeline.player));
    TRY(mem_new(slots, sizeof *pipeline.forward, &pipeline.forward));
    TRY(mem_new(slots, sizeof *pipeline.backward, &pipeline.backward));
    for (int s = 0; s < plan->stages; s++) TRY(player_init(&pipeline.player[s], plan, costs, s));
    TRY(give_schedules(&pipeline));
    return play_steps(&pipeline, traces, ret_result);
}
