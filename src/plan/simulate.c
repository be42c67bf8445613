/* Between communication operations, a device executes a list of kernels; each starts when the previous one
 * has finished and the host has launched it. However long the list is, three values describe it: its device
 * time (D), the host time for the launches (H), and the time from the host's first launch to the end on an
 * idle device (C). The device then finishes at max(device + D, host + C). */
#include "plan/simulate.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef enum { SIM_RUN, SIM_START, SIM_WAIT, SIM_SYNC } SimOpKind;

typedef struct SimOp {
    SimOpKind kind;
    TimePhase phase;
    /* D, H and C of a SIM_RUN; of a SIM_START, device_s is the duration of the operation. */
    double device_s, host_s, idle_s;
    Channel channel;
    int back;
} SimOp;

/* ---- communication operations ---- */

typedef struct Operation {
    double start, left, end; /* left: seconds at full bandwidth; end: valid once left is 0 */
} Operation;

typedef struct Queue {
    Operation *operation;
    size_t count, capacity, head; /* head: the first unfinished operation */
} Queue;

typedef struct StageSim {
    const Plan *plan;
    const Costs *costs;
    SimOp *op; /* the stage's events, translated */
    size_t ops, capacity;
    EventRange begin, end, *computation;
    double device, host; /* times at which device and host become free */
    double now;          /* time up to which operations have been simulated */
    Queue queue[CHANNEL_COUNT];
    double phase_s[TIME_COUNT], busy_s;
    Schedule schedule;
    int at;           /* the next action of the schedule */
    Trace *trace;     /* NULL: not traced */
    int64_t trace_ns; /* trace time of simulated time 0 */
    SimSpans *spans;  /* NULL: not recorded */
    double from;      /* start of the recorded step */
} StageSim;

static void sim_done(StageSim *sim) {
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) free(sim->queue[channel].operation);
    free(sim->op);
    free(sim->computation);
    schedule_done(&sim->schedule);
}

static Operation *head_of(StageSim *sim, Channel channel) {
    Queue *queue = &sim->queue[channel];
    return queue->head < queue->count ? &queue->operation[queue->head] : NULL;
}

/* Advances to the next time at which an operation starts or ends, or to `until`. Operations on the same port
 * share it equally; operations of a channel run one after the other. */
static void advance(StageSim *sim, double until) {
    int sharing[PORT_COUNT] = {0};
    double now = sim->now, next = until;
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        const Operation *head = head_of(sim, channel);
        if (head && head->start <= now) sharing[sim->costs->channel[channel].port]++;
        if (head && head->start > now && head->start < next) next = head->start;
    }
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        const Operation *head = head_of(sim, channel);
        if (!head || head->start > now) continue;
        double end = now + head->left * sharing[sim->costs->channel[channel].port];
        if (end < next) next = end;
    }
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) {
        Operation *head = head_of(sim, channel);
        if (!head || head->start > now) continue;
        int sharers = sharing[sim->costs->channel[channel].port];
        double end = now + head->left * sharers;
        head->left -= (next - now) / sharers;
        if (end > next) continue;
        head->left = 0;
        head->end = next;
        sim->queue[channel].head++;
    }
    sim->now = next;
}

static Status start_operation(StageSim *sim, Channel channel, double start, double seconds) {
    Queue *queue = &sim->queue[channel];
    while (sim->now < start) advance(sim, start);
    TRY(mem_grow(&queue->operation, &queue->capacity, queue->count + 1, sizeof *queue->operation));
    queue->operation[queue->count++] = (Operation){.start = start, .left = seconds};
    return OK;
}

/* The time at which the `back`-th most recent operation of a channel ends; 0 if there is no such
 * operation. */
static double end_of(StageSim *sim, Channel channel, int back) {
    Queue *queue = &sim->queue[channel];
    if (back < 1 || (size_t)back > queue->count) return 0;
    size_t number = queue->count - (size_t)back;
    while (queue->head <= number) advance(sim, INFINITY);
    return queue->operation[number].end;
}

/* ---- operations of a stage ---- */

static Status add_op(StageSim *sim, SimOp op) {
    TRY(mem_grow(&sim->op, &sim->capacity, sim->ops + 1, sizeof op));
    sim->op[sim->ops++] = op;
    return OK;
}

/* A kernel that stands for n launches runs as n equal ones, each of which starts once the host has launched
 * it.
 */
static Status add_run(StageSim *sim, size_t first, const StepEvent *event, Cost cost) {
    double launch = cost_launch(sim->costs), parts = fmax(cost.launches, 1);
    SimOp *last = sim->ops > first ? &sim->op[sim->ops - 1] : NULL;
    if (!last || last->kind != SIM_RUN || last->phase != event->phase) {
        TRY(add_op(sim, (SimOp){.kind = SIM_RUN, .phase = event->phase}));
        last = &sim->op[sim->ops - 1];
    }
    double begin = fmax(last->idle_s, last->host_s + fmin(cost.launches, 1) * launch);
    last->host_s += cost.launches * launch;
    last->idle_s = fmax(begin + cost.device_s, last->host_s + cost.device_s / parts);
    last->device_s += cost.device_s;
    return OK;
}

static Status add_kernel(StageSim *sim, size_t first, const StepEvent *event) {
    Cost cost = cost_event(sim->costs, event);
    TRY(add_run(sim, first, event, cost));
    if (cost.stall_s == 0) return OK;
    return add_op(sim, (SimOp){.kind = SIM_SYNC, .phase = event->phase, .host_s = cost.stall_s});
}

static Status translate(StageSim *sim, const StepEvents *events, EventRange range, EventRange *ret_ops) {
    size_t first = sim->ops;
    for (int i = 0; i < range.count; i++) {
        const StepEvent *event = &events->event[range.first + i];
        SimOp op = {.phase = event->phase, .channel = event->channel, .back = event->back};
        switch (event->kind) {
        case STEP_START:
            op.kind = SIM_START;
            op.device_s = cost_operation(sim->costs, event);
            TRY(add_op(sim, op));
            break;
        case STEP_WAIT:
            op.kind = SIM_WAIT;
            TRY(add_op(sim, op));
            break;
        case STEP_SYNC:
            op.kind = SIM_SYNC;
            TRY(add_op(sim, op));
            break;
        default: TRY(add_kernel(sim, first, event));
        }
    }
    *ret_ops = (EventRange){(int)first, (int)(sim->ops - first)};
    return OK;
}

static void wait_until(StageSim *sim, double moment, TimePhase phase) {
    if (moment <= sim->device) return;
    sim->phase_s[phase] += moment - sim->device;
    sim->device = moment;
}

static Status run_op(StageSim *sim, const SimOp *op) {
    const Cluster *cluster = sim->costs->cluster;
    /* CPU ranks communicate synchronously. */
    bool asynchronous = cluster->gpu && !(cluster->software.present && cluster->software.overlap == 0);
    switch (op->kind) {
    case SIM_RUN: {
        double end = fmax(sim->device + op->device_s, sim->host + op->idle_s);
        sim->host += op->host_s;
        sim->busy_s += op->device_s;
        wait_until(sim, end, op->phase);
        return OK;
    }
    case SIM_START:
        sim->host += cost_launch(sim->costs);
        TRY(start_operation(sim, op->channel, fmax(sim->device, sim->host), op->device_s));
        if (!asynchronous) wait_until(sim, end_of(sim, op->channel, 1), TIME_COMMUNICATION);
        return OK;
    case SIM_WAIT: wait_until(sim, end_of(sim, op->channel, op->back), TIME_COMMUNICATION); return OK;
    case SIM_SYNC: sim->host = fmax(sim->host, sim->device) + op->host_s; return OK;
    }
    return OK;
}

static Status run_ops(StageSim *sim, EventRange ops) {
    for (int i = 0; i < ops.count; i++) TRY(run_op(sim, &sim->op[ops.first + i]));
    return OK;
}

/* ---- stages ---- */

static void trace_span(const StageSim *sim, const TraceName *name, double start, double end, int64_t first,
                       int64_t second) {
    trace_add(sim->trace, TRACE_COMPUTE, name, sim->trace_ns + llround(1e9 * start),
              sim->trace_ns + llround(1e9 * end), first, second);
}

/* Records what the stage has done since `start`; since `waited` it waited for communication. A stage may
 * begin the step while others end the previous one. */
static Status record_span(StageSim *sim, SpanKind kind, Action action, double start, double waited) {
    SimSpans *spans = sim->spans;
    double communication = sim->phase_s[TIME_COMMUNICATION] - waited;
    if (!spans || sim->device <= fmax(start, sim->from)) return OK;
    TRY(mem_grow(&spans->span, &spans->capacity, spans->count + 1, sizeof *spans->span));
    spans->span[spans->count++] = (SimSpan){.kind = kind,
                                            .micro = action.micro,
                                            .chunk = action.chunk,
                                            .start = fmax(start - sim->from, 0),
                                            .end = sim->device - sim->from,
                                            .communication = communication};
    return OK;
}

static SpanKind span_of(ActionKind kind) {
    return kind == ACTION_FORWARD           ? SPAN_FORWARD
           : kind == ACTION_BACKWARD_WEIGHT ? SPAN_WEIGHT
                                            : SPAN_BACKWARD;
}

static Status sim_init(StageSim *sim, const Plan *plan, const Costs *costs, int stage) {
    const StepEvents *events = &plan->stage[stage].events;
    size_t slots = (size_t)(COMPUTATIONS * events->chunks * MICRO_POSITIONS);
    sim->plan = plan;
    sim->costs = costs;
    TRY(mem_new(slots, sizeof *sim->computation, &sim->computation));
    TRY(translate(sim, events, events->begin, &sim->begin));
    for (size_t i = 0; i < slots; i++)
        TRY(translate(sim, events, events->computation[i], &sim->computation[i]));
    return translate(sim, events, events->end, &sim->end);
}

typedef struct Pipeline {
    const Plan *plan;
    const Costs *costs;
    StageSim *sim;
    int count;
    double *forward, *backward; /* [parts][micros]: arrival time of a part's message; -1: not sent yet */
} Pipeline;

static void pipeline_done(Pipeline *pipeline) {
    for (int s = 0; pipeline->sim && s < pipeline->count; s++) sim_done(&pipeline->sim[s]);
    free(pipeline->sim);
    free(pipeline->forward);
    free(pipeline->backward);
}

/* Computes the schedules of all stages at once; a single one would take as long. */
static Status init_schedules(Pipeline *pipeline) {
    const RunnerSpec *run = &pipeline->plan->runner;
    ScheduleSpec spec = {.kind = run->schedule,
                         .stages = pipeline->count,
                         .chunks = run->chunks > 0 ? (int)run->chunks : 1,
                         .micros = run->micros,
                         .forward_only = pipeline->plan->forward_only};
    CLEANUP(mem_freep) Schedule *stages = NULL;
    TRY(mem_new((size_t)pipeline->count, sizeof *stages, &stages));
    TRY(schedule_init_all(stages, &spec));
    for (int s = 0; s < pipeline->count; s++) pipeline->sim[s].schedule = stages[s];
    return OK;
}

/* The arrival time that a send sets or a computation waits for; NULL if the action needs no message. */
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

static double message_s(const Pipeline *pipeline, const StageSim *sim, ActionKind kind) {
    int stage = sim->schedule.stage, count = pipeline->count;
    int from = kind == ACTION_SEND_FORWARD ? stage : (stage + count - 1) % count;
    return cost_message(pipeline->costs, pipeline->plan, from, pipeline->plan->stage[stage].events.message);
}

/* Runs the stage's actions until one waits for a message that has not been sent. */
static Status run_stage(Pipeline *pipeline, StageSim *sim, bool *ret_progress) {
    const Schedule *schedule = &sim->schedule;
    const StepEvents *events = &pipeline->plan->stage[schedule->stage].events;
    for (; sim->at < schedule->count; sim->at++) {
        Action action = schedule->action[sim->at];
        double *arrival = arrival_of(pipeline, schedule, action);
        if (action_computes(action.kind)) {
            if (arrival && *arrival < 0) return OK;
            if (arrival) wait_until(sim, *arrival, TIME_BUBBLE);
            MicroPosition position = micro_position(action.micro, schedule->spec.micros);
            const EventRange *ops =
                step_events_slot(events, sim->computation, action.kind, action.chunk, position);
            double start = sim->device, waited = sim->phase_s[TIME_COMMUNICATION];
            TRY(run_ops(sim, *ops));
            TRY(record_span(sim, span_of(action.kind), action, start, waited));
            trace_span(sim, action_trace(action.kind), start, sim->device, action.micro, action.chunk);
        } else if (!action_receives(action.kind)) {
            sim->host += cost_launch(sim->costs);
            *arrival = fmax(sim->device, sim->host) + message_s(pipeline, sim, action.kind);
        }
        *ret_progress = true;
    }
    return OK;
}

/* All stages exchange the loss and the gradient norm before the optimizer step. */
static Status run_end(Pipeline *pipeline) {
    static const TraceName name = {.name = "update", .category = "optimizer", .color = TRACE_GREEN};
    double latest = 0;
    for (int s = 0; s < pipeline->count; s++) {
        StageSim *sim = &pipeline->sim[s];
        EventRange ops = sim->end;
        int sync = 0;
        while (sync < ops.count && sim->op[ops.first + sync].kind != SIM_SYNC) sync++;
        double start = sim->device, waited = sim->phase_s[TIME_COMMUNICATION];
        TRY(run_ops(sim, (EventRange){ops.first, sync}));
        TRY(record_span(sim, SPAN_COMMUNICATION, (Action){0}, start, waited));
        latest = fmax(latest, fmax(sim->device, sim->host));
    }
    for (int s = 0; s < pipeline->count; s++) {
        StageSim *sim = &pipeline->sim[s];
        EventRange ops = sim->end;
        int sync = 0;
        while (sync < ops.count && sim->op[ops.first + sync].kind != SIM_SYNC) sync++;
        wait_until(sim, latest, TIME_BUBBLE);
        sim->host = latest;
        double start = sim->device, waited = sim->phase_s[TIME_COMMUNICATION];
        TRY(run_ops(sim, (EventRange){ops.first + sync, ops.count - sync}));
        TRY(record_span(sim, SPAN_OPTIMIZER, (Action){0}, start, waited));
        trace_span(sim, &name, start, sim->device, 0, 0);
    }
    return OK;
}

static Status run_step(Pipeline *pipeline) {
    const ScheduleSpec *spec = &pipeline->sim[0].schedule.spec;
    size_t slots = (size_t)spec->stages * (size_t)spec->chunks * (size_t)spec->micros;
    for (size_t i = 0; i < slots; i++) pipeline->forward[i] = pipeline->backward[i] = -1;
    for (int s = 0; s < pipeline->count; s++) {
        pipeline->sim[s].at = 0;
        StageSim *sim = &pipeline->sim[s];
        memset(sim->phase_s, 0, sizeof sim->phase_s);
        sim->busy_s = 0;
        double start = sim->device;
        TRY(run_ops(sim, sim->begin));
        TRY(record_span(sim, SPAN_OPTIMIZER, (Action){0}, start, 0));
    }
    for (bool progress = true; progress;) {
        progress = false;
        for (int s = 0; s < pipeline->count; s++) TRY(run_stage(pipeline, &pipeline->sim[s], &progress));
    }
    for (int s = 0; s < pipeline->count; s++)
        if (pipeline->sim[s].at < pipeline->sim[s].schedule.count)
            return FAILED("internal: stage %d waits for a message that is never sent", s);
    return run_end(pipeline);
}

static double latest_of(const Pipeline *pipeline) {
    double latest = 0;
    for (int s = 0; s < pipeline->count; s++) latest = fmax(latest, pipeline->sim[s].device);
    return latest;
}

/* Starts recording, with `from` as time 0. */
static void start_record(Pipeline *pipeline, const SimRecord *record, double from) {
    int64_t now = trace_now();
    for (int s = 0; record && s < pipeline->count; s++) {
        StageSim *sim = &pipeline->sim[s];
        sim->from = from;
        sim->spans = record->spans ? &record->spans[s] : NULL;
        if (!record->traces) continue;
        trace_start(record->traces[s]);
        sim->trace = record->traces[s];
        sim->trace_ns = now - llround(1e9 * from);
    }
}

/* The host launches the first work of a step while the device finishes the previous one, so the second step
 * is the typical one. */
static Status run_steps(Pipeline *pipeline, const SimRecord *record, Simulated *ret_result) {
    static const TraceName name = {.name = "step ", .category = "step", .number = {"step"}, .numbered = true};
    Simulated result = {0};
    TRY(run_step(pipeline));
    double from = latest_of(pipeline);
    start_record(pipeline, record, from);
    TRY(run_step(pipeline));
    result.step_s = latest_of(pipeline) - from;
    for (int s = 0; s < pipeline->count; s++) {
        trace_span(&pipeline->sim[s], &name, from, from + result.step_s, 2, 0);
        double rest = result.step_s;
        for (TimePhase phase = 0; phase < TIME_COUNT; phase++) {
            result.phase_s[phase] += pipeline->sim[s].phase_s[phase] / pipeline->count;
            rest -= pipeline->sim[s].phase_s[phase];
        }
        result.phase_s[TIME_BUBBLE] += rest / pipeline->count;
        result.busy_s += pipeline->sim[s].busy_s / pipeline->count;
    }
    *ret_result = result;
    return OK;
}

Status simulate(const Plan *plan, const Costs *costs, const SimRecord *record, Simulated *ret_result) {
    CLEANUP(pipeline_done) Pipeline pipeline = {.plan = plan, .costs = costs, .count = plan->stages};
    const RunnerSpec *run = &plan->runner;
    size_t slots = (size_t)plan->stages * (size_t)(run->chunks > 0 ? run->chunks : 1) * (size_t)run->micros;
    TRY(mem_new((size_t)plan->stages, sizeof *pipeline.sim, &pipeline.sim));
    TRY(mem_new(slots, sizeof *pipeline.forward, &pipeline.forward));
    TRY(mem_new(slots, sizeof *pipeline.backward, &pipeline.backward));
    for (int s = 0; s < plan->stages; s++) TRY(sim_init(&pipeline.sim[s], plan, costs, s));
    TRY(init_schedules(&pipeline));
    return run_steps(&pipeline, record, ret_result);
}
