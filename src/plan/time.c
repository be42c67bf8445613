/* Step time comes from the simulation. FLOPs and bytes sent are sums over the step events, each weighted by
 * the number of micro-batches that it represents. */
#include "plan/time.h"

#include <math.h>

#include "base/memory.h"
#include "plan/simulate.h"

const char *time_phase(TimePhase phase) {
    static const char *const names[TIME_COUNT] = {"forward",       "recompute", "backward",
                                                  "communication", "bubble",    "optimizer"};
    return names[phase];
}

/* ---- work ---- */

typedef struct Work {
    double flops, sent[COMM_KINDS];
} Work;

static void add_range(Work *work, const StepEvents *events, EventRange range, double times,
                      const Costs *costs) {
    for (int i = 0; i < range.count; i++) {
        const StepEvent *event = &events->event[range.first + i];
        bool gemm = event->kind == STEP_KERNEL && event->size[2] > 0;
        if (gemm && event->phase != TIME_RECOMPUTE) work->flops += times * event->flops;
        if (event->kind == STEP_START && !channel_is_host(event->channel))
            work->sent[event->what] += times * cost_sent(costs, event);
    }
}

/* FLOPs and bytes sent by one rank of a stage. */
static Work work_of(const Plan *plan, const Costs *costs, int stage) {
    static const ActionKind kinds[] = {ACTION_FORWARD, ACTION_BACKWARD, ACTION_BACKWARD_INPUT,
                                       ACTION_BACKWARD_WEIGHT};
    const StepEvents *events = &plan->stage[stage].events;
    int micros = plan->runner.micros, chunks = events->chunks, parts = plan->stages * chunks;
    Work work = {0};
    add_range(&work, events, events->begin, 1, costs);
    add_range(&work, events, events->end, 1, costs);
    for (int kind = 0; kind < COMPUTATIONS; kind++)
        for (int chunk = 0; chunk < chunks; chunk++)
            for (MicroPosition position = 0; position < MICRO_POSITIONS; position++) {
                double times = position == MICRO_MIDDLE                 ? micros - 2
                               : position == MICRO_FIRST && micros == 1 ? 0
                                                                        : 1;
                if (times > 0)
                    add_range(&work, events,
                              *step_events_slot(events, events->computation, kinds[kind], chunk, position),
                              times, costs);
            }
    for (int chunk = 0; chunk < chunks && plan->stages > 1; chunk++) {
        int part = chunk * plan->stages + stage;
        work.sent[COMM_SEND] += ((part > plan->forward_only) + (part < parts - 1)) * micros * events->message;
    }
    return work;
}

static void total_work(const Plan *plan, const Costs *costs, StepEstimate *time) {
    double largest = -1;
    for (int s = 0; s < plan->stages; s++) {
        Work work = work_of(plan, costs, s);
        double sent = 0;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++) sent += work.sent[kind];
        time->model_flops += work.flops * (double)mesh_ranks(plan->mesh, AXES_ALL & ~AXIS_SET(AXIS_PP));
        if (sent <= largest) continue;
        largest = sent;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++)
            time->sent[kind] = work.sent[kind] + (double)comm_bytes_sum(plan->stage[s].synced[kind]);
    }
}

/* What outer gradients of `bytes` in fp32 take as they travel. */
static double traveling(const OuterSpec *outer, double bytes) {
    switch (outer->type) {
    case GRAD_FP32: break;
    case GRAD_BF16: return bytes / 2;
    case GRAD_INT8: return bytes / 4 + bytes / QUANT_BLOCK; /* with scales */
    }
    return bytes;
}

/* The part of an exchange of `seconds` that does not overlap steps. In int8, its second half begins after
 * half of the overlap (parallel/shard_outer_sum.c). */
static double exposed(const OuterSpec *outer, double seconds, double step_s) {
    int64_t later = outer->type == GRAD_INT8 ? outer->overlap / 2 : 0;
    double parts = outer->type == GRAD_INT8 ? 2 : 1;
    double first = fmax(seconds / parts - (double)(outer->overlap - later) * step_s, 0);
    return parts == 1 ? first : first + fmax(seconds / 2 - (double)later * step_s, 0);
}

/* Adds, per step, what the synchronization of workers takes: the part of the exchanges that does not overlap
 * steps, and the outer steps, which read and write about 12 fp32 values per parameter, in int8 22. */
static void add_sync(const Plan *plan, const Costs *costs, StepEstimate *time, double *busy_s) {
    const OuterSpec *outer = &plan->runner.outer;
    double waiting = 0, update = 0;
    for (int s = 0; outer->every && s < plan->stages; s++) {
        double bytes = plan->stage[s].exchanged, fragments = (double)outer->fragments, between = 0;
        for (CommKind kind = 0; kind < COMM_KINDS; kind++)
            between += (double)plan->stage[s].synced[kind].between;
        StepEvent exchange = {.kind = STEP_START,
                              .what = COMM_ALL_REDUCE,
                              .channel = CHANNEL_REPLICA,
                              .bytes = traveling(outer, bytes / fragments),
                              .size = {between * (double)outer->every / fragments}};
        double each = exposed(outer, cost_operation(costs, &exchange), time->step_s);
        double values = outer->type == GRAD_INT8 ? 22 : 12;
        waiting = fmax(waiting, fragments * each / (double)outer->every);
        update = fmax(update, cost_memory(costs, values * bytes) / (double)outer->every);
    }
    time->phase_s[TIME_COMMUNICATION] += waiting;
    time->phase_s[TIME_OPTIMIZER] += update;
    time->step_s += waiting + update;
    *busy_s += update;
}

/* The simulation runs one kernel after the other. For small micro-batches on one GPU, part of the update is
 * hidden behind forward; the share is that of GPT-2 355M on an H200. */
static void hide_overlap(const Plan *plan, const Cluster *cluster, StepEstimate *time) {
    const double share = 0.39;
    if (!plan->stage[0].overlaps || cluster->software.present) return;
    double hidden = fmin(share * time->phase_s[TIME_OPTIMIZER], time->phase_s[TIME_FORWARD]);
    time->phase_s[TIME_OPTIMIZER] -= hidden;
    time->step_s -= hidden;
}

Status plan_time(const Plan *plan, const Cluster *cluster, StepEstimate *ret_time) {
    StepEstimate time = {0};
    Simulated simulated;
    Costs costs = costs_of(plan, cluster);
    if (!plan->stage[0].events.chunks)
        return FAILED("internal: the plan has no step events; set PlanSpec.timed");
    TRY(simulate(plan, &costs, NULL, &simulated));
    total_work(plan, &costs, &time);
    time.step_s = simulated.step_s;
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) time.phase_s[phase] = simulated.phase_s[phase];
    add_sync(plan, &costs, &time, &simulated.busy_s);
    time.utilization = simulated.busy_s / time.step_s; /* hiding a part of the update leaves it as is */
    hide_overlap(plan, cluster, &time);
    double ranks = (double)mesh_ranks(plan->mesh, AXES_ALL);
    time.samples_per_s = (double)plan->batch / time.step_s;
    time.tokens_per_s = time.samples_per_s * (double)plan->seq;
    time.mfu = time.model_flops / time.step_s / (ranks * cluster->peak_flops[costs.rate]);
    time.bubble = time.phase_s[TIME_BUBBLE] / time.step_s;
    *ret_time = time;
    return OK;
}

/* ---- trace ---- */

enum { MAX_SPANS = 1 << 16 };

typedef struct Stages {
    Trace **trace;
    void **bytes;
    size_t *size;
    int count;
} Stages;

static void stages_done(Stages *stages) {
    for (int s = 0; s < stages->count; s++) {
        if (stages->trace) trace_free(stages->trace[s]);
        if (stages->bytes) free(stages->bytes[s]);
    }
    free(stages->trace);
    free(stages->bytes);
    free(stages->size);
}

static Status stages_init(Stages *stages) {
    size_t count = (size_t)stages->count;
    TRY(mem_new(count, sizeof *stages->trace, &stages->trace));
    TRY(mem_new(count, sizeof *stages->bytes, &stages->bytes));
    TRY(mem_new(count, sizeof *stages->size, &stages->size));
    for (int s = 0; s < stages->count; s++) TRY(trace_new(&stages->trace[s], MAX_SPANS));
    return OK;
}

Status plan_trace(const Plan *plan, const Cluster *cluster, const char *path) {
    CLEANUP(stages_done) Stages stages = {.count = plan->stages};
    Simulated simulated;
    Costs costs = costs_of(plan, cluster);
    int each = mesh_stride(plan->mesh, AXIS_PP);
    TRY(stages_init(&stages));
    TRY(simulate(plan, &costs, &(SimRecord){.traces = stages.trace}, &simulated));
    for (int s = 0; s < plan->stages; s++) {
        char label[64];
        if (each > 1)
            snprintf(label, sizeof label, "stage %d: ranks %d to %d", s, s * each, (s + 1) * each - 1);
        else
            snprintf(label, sizeof label, "stage %d", s);
        TRY(trace_pack(stages.trace[s], s, label, &stages.bytes[s], &stages.size[s]));
    }
    return trace_write(path, (const void *const *)stages.bytes, stages.size, stages.count);
}

void plan_timeline_done(PlanTimeline *timeline) {
    for (int s = 0; timeline->stage && s < timeline->stages; s++) free(timeline->stage[s].span);
    free(timeline->stage);
    *timeline = (PlanTimeline){0};
}

Status plan_timeline(const Plan *plan, const Cluster *cluster, PlanTimeline *ret_timeline) {
    CLEANUP(plan_timeline_done) PlanTimeline timeline = {.stages = plan->stages};
    Simulated simulated;
    Costs costs = costs_of(plan, cluster);
    TRY(mem_new((size_t)plan->stages, sizeof *timeline.stage, &timeline.stage));
    TRY(simulate(plan, &costs, &(SimRecord){.spans = timeline.stage}, &simulated));
    timeline.step_s = simulated.step_s;
    return MOVE(ret_timeline, timeline);
}

Status time_json(const StepEstimate *time, json_t *json) {
    CLEANUP(json_decrefp) json_t *phases = json_object();
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++)
        json_object_set_new(phases, time_phase(phase), json_real(1e3 * time->phase_s[phase]));
    CLEANUP(json_decrefp)
    json_t *more = json_pack("{s:f, s:O, s:f, s:f, s:f, s:f, s:f, s:f}", "step_ms", 1e3 * time->step_s,
                             "phases_ms", phases, "samples_per_s", time->samples_per_s, "tokens_per_s",
                             time->tokens_per_s, "model_flops", time->model_flops, "mfu", time->mfu, "bubble",
                             time->bubble, "utilization", time->utilization);
    if (!more || json_object_update(json, more) != 0) return FAILED("out of memory while writing the plan");
    return OK;
}
