/* Converts the op log of a dry run into step events: drops what does not take time, assigns phases and
 * channels, and keeps one micro-batch of each position. */
#include "plan/step_events.h"

#include <string.h>

#include "base/memory.h"

void step_events_done(StepEvents *events) {
    free(events->event);
    free(events->computation);
    *events = (StepEvents){0};
}

Status step_events_copy(StepEvents *ret_events, const StepEvents *events) {
    CLEANUP(step_events_done) StepEvents copy = *events;
    size_t slots = (size_t)(COMPUTATIONS * events->chunks * MICRO_POSITIONS);
    copy.event = NULL;
    copy.computation = NULL;
    copy.capacity = events->count;
    TRY(mem_new(events->count, sizeof *copy.event, &copy.event));
    TRY(mem_new(slots, sizeof *copy.computation, &copy.computation));
    if (events->count) memcpy(copy.event, events->event, events->count * sizeof *copy.event);
    if (slots) memcpy(copy.computation, events->computation, slots * sizeof *copy.computation);
    return MOVE(ret_events, copy);
}

MicroPosition micro_position(int micro, int micros) {
    return micro == micros - 1 ? MICRO_LAST : micro == 0 ? MICRO_FIRST : MICRO_MIDDLE;
}

static int computation_index(ActionKind kind) {
    switch (kind) {
    case ACTION_FORWARD: return 0;
    case ACTION_BACKWARD: return 1;
    case ACTION_BACKWARD_INPUT: return 2;
    default: return 3;
    }
}

EventRange *step_events_slot(const StepEvents *events, EventRange *computation, ActionKind kind, int chunk,
                             MicroPosition position) {
    return &computation[(computation_index(kind) * events->chunks + chunk) * MICRO_POSITIONS + (int)position];
}

/* ---- reading an op log ---- */

typedef struct Reader {
    StepEvents *events;
    const Runner *runner;
    int started[CHANNEL_COUNT]; /* operations started so far */
    int action;                 /* the current ActionKind; -1: outside of the schedule */
    bool skip;                  /* the current action is not recorded */
} Reader;

/* CHANNEL_COUNT for messages between stages and for groups that do not matter. */
static Channel channel_of(const Mesh *mesh, const void *group) {
    if (group == mesh->axis[AXIS_TP]) return CHANNEL_TENSOR;
    if (group == mesh->axis[AXIS_CP]) return CHANNEL_CONTEXT;
    if (group == mesh->shard) return CHANNEL_SHARD;
    if (group == mesh->replica) return CHANNEL_REPLICA;
    if (group == mesh->expert) return CHANNEL_EXPERT;
    if (group == mesh->expert_shard) return CHANNEL_EXPERT_SHARD;
    if (group == mesh->expert_replica) return CHANNEL_EXPERT_REPLICA;
    if (group == mesh->ends) return CHANNEL_ENDS;
    return CHANNEL_COUNT;
}

static bool is_kernel(const OpRecord *record, KernelPhase phase) {
    return record->kind == OP_KERNEL && kernel_info((KernelId)record->what)->phase == phase;
}

/* The output head may compute its gradients during forward, and backward may recompute forward kernels. */
static TimePhase phase_of(const Reader *reader, const OpRecord *record) {
    if (reader->action < 0) return TIME_OPTIMIZER;
    if (reader->action == ACTION_FORWARD)
        return is_kernel(record, KERNEL_PHASE_BACKWARD) ? TIME_BACKWARD : TIME_FORWARD;
    return is_kernel(record, KERNEL_PHASE_FORWARD) ? TIME_RECOMPUTE : TIME_BACKWARD;
}

/* Only recomputed logits are followed by the end of the loss: the first time, its statistics come first. */
static void mark_recomputed_logits(StepEvents *events, const OpRecord *record) {
    StepEvent *last = events->count ? &events->event[events->count - 1] : NULL;
    if (record->kind == OP_KERNEL && record->what == KERNEL_XENT_FINISH && last &&
        last->kind == STEP_KERNEL && last->what == KERNEL_LINEAR_FORWARD)
        last->phase = TIME_RECOMPUTE;
}

static Status add_event(Reader *reader, const OpRecord *record, StepEventKind kind, Channel channel,
                        int back) {
    StepEvents *events = reader->events;
    StepEvent event = {.kind = kind,
                       .phase = phase_of(reader, record),
                       .what = record->what,
                       .channel = channel,
                       .back = back,
                       .traits = record->traits,
                       .flops = record->flops,
                       .bytes = record->bytes};
    memcpy(event.size, record->size, sizeof event.size);
    if (reader->skip) return OK;
    mark_recomputed_logits(events, record);
    TRY(mem_grow(&events->event, &events->capacity, events->count + 1, sizeof event));
    events->event[events->count++] = event;
    return OK;
}

static Status read_start(Reader *reader, const OpRecord *record) {
    Channel channel = channel_of(reader->runner->mesh, record->other);
    if (channel == CHANNEL_COUNT) {
        if (record->what == COMM_SEND) reader->events->message = record->bytes;
        return OK;
    }
    reader->started[channel]++;
    return add_event(reader, record, STEP_START, channel, 0);
}

/* Operation numbers count from the creation of the group; operations of the previous step are complete. */
static Status read_wait(Reader *reader, const OpRecord *record, const uint64_t first[CHANNEL_COUNT]) {
    Channel channel = channel_of(reader->runner->mesh, record->other);
    if (channel == CHANNEL_COUNT || record->number <= first[channel]) return OK;
    int back = reader->started[channel] - (int)(record->number - first[channel]) + 1;
    return add_event(reader, record, STEP_WAIT, channel, back);
}

/* Other streams transfer offloaded memory. */
static Status read_other_stream(Reader *reader, const OpRecord *record) {
    if (record->kind != OP_COPY) return OK;
    Channel channel = record->what == COPY_TO_HOST ? CHANNEL_TO_HOST : CHANNEL_FROM_HOST;
    reader->started[channel]++;
    return add_event(reader, record, STEP_START, channel, 0);
}

/* Waits for the copies of another stream; those of the previous step are complete. */
static Status read_join(Reader *reader, const OpRecord *record) {
    const Stream *to_host = reader->runner->offload.to_host;
    Channel channel = to_host && record->other == to_host ? CHANNEL_TO_HOST : CHANNEL_FROM_HOST;
    int back = 1 + (int)record->number;
    return back <= reader->started[channel] ? add_event(reader, record, STEP_WAIT, channel, back) : OK;
}

static Status read_record(Reader *reader, const OpRecord *record, const uint64_t first[CHANNEL_COUNT]) {
    if (record->stream != reader->runner->stream) return read_other_stream(reader, record);
    switch (record->kind) {
    case OP_KERNEL: return add_event(reader, record, STEP_KERNEL, CHANNEL_COUNT, 0);
    case OP_ZERO: return add_event(reader, record, STEP_ZERO, CHANNEL_COUNT, 0);
    case OP_COPY: return add_event(reader, record, STEP_COPY, CHANNEL_COUNT, 0);
    case OP_SYNC: return add_event(reader, record, STEP_SYNC, CHANNEL_COUNT, 0);
    case OP_JOIN: return read_join(reader, record);
    case OP_START: return read_start(reader, record);
    case OP_WAIT: return read_wait(reader, record, first);
    default: return OK;
    }
}

/* For each channel, the number of the operation before the step's first; UINT64_MAX if the step has none. */
static void find_first(const OpLog *op_log, const Mesh *mesh, uint64_t first[CHANNEL_COUNT]) {
    bool found[CHANNEL_COUNT] = {false};
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) first[channel] = UINT64_MAX;
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *record = &op_log->record[i];
        Channel channel = record->kind == OP_START ? channel_of(mesh, record->other) : CHANNEL_COUNT;
        if (channel == CHANNEL_COUNT || found[channel]) continue;
        found[channel] = true;
        first[channel] = record->number - 1;
    }
}

/* Selects the range that the following events belong to. Messages are simulated from the schedule and not
 * recorded. */
static void open_action(Reader *reader, const OpRecord *record, int micros, EventRange **ret_open) {
    ActionKind kind = (ActionKind)record->what;
    int micro = (int)record->size[0], chunk = (int)record->size[1];
    StepEvents *events = reader->events;
    *ret_open = NULL;
    reader->action = (int)kind;
    reader->skip = true;
    if (!action_computes(kind)) return;
    MicroPosition position = micro_position(micro, micros);
    EventRange *slot = step_events_slot(events, events->computation, kind, chunk, position);
    if (position == MICRO_MIDDLE && slot->count > 0) return;
    reader->skip = false;
    *slot = (EventRange){.first = (int)events->count};
    *ret_open = slot;
}

Status step_events_init(StepEvents *ret_events, const OpLog *op_log, const Runner *runner, int micros) {
    CLEANUP(step_events_done) StepEvents events = {.chunks = runner->chunks};
    TRY(mem_new((size_t)(COMPUTATIONS * events.chunks * MICRO_POSITIONS), sizeof *events.computation,
                &events.computation));
    Reader reader = {.events = &events, .runner = runner, .action = -1};
    uint64_t first[CHANNEL_COUNT];
    find_first(op_log, runner->mesh, first);
    EventRange *open = &events.begin;
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *record = &op_log->record[i];
        bool boundary = record->kind == OP_ACTION || record->kind == OP_END;
        if (!boundary) {
            TRY(read_record(&reader, record, first));
            continue;
        }
        if (open) open->count = (int)events.count - open->first;
        if (record->kind == OP_ACTION) {
            open_action(&reader, record, micros, &open);
            continue;
        }
        reader.action = -1;
        reader.skip = false;
        events.end = (EventRange){.first = (int)events.count};
        open = &events.end;
    }
    if (open) open->count = (int)events.count - open->first;
    return MOVE(ret_events, events);
}
