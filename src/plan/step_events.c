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
    size_t slots = (size_t)(COMPUTATIONS * events->chunks * MICRO_PLACES);
    copy.event = NULL;
    copy.computation = NULL;
    copy.capacity = events->count;
    TRY(mem_new(events->count, sizeof *copy.event, &copy.event));
    TRY(mem_new(slots, sizeof *copy.computation, &copy.computation));
    if (events->count) memcpy(copy.event, events->event, events->count * sizeof *copy.event);
    if (slots) memcpy(copy.computation, events->computation, slots * sizeof *copy.computation);
    *ret_events = copy;
    copy = (StepEvents){0};
    return OK;
}

MicroPlace micro_place(int micro, int micros) {
    return micro == micros - 1 ? MICRO_LAST : micro == 0 ? MICRO_FIRST : MICRO_MIDDLE;
}

static int number_of(ActionKind kind) {
    switch (kind) {
    case ACTION_FORWARD: return 0;
    case ACTION_BACKWARD: return 1;
    case ACTION_BACKWARD_INPUT: return 2;
    default: return 3;
    }
}

Stretch *step_events_slot(const StepEvents *events, Stretch *computation, ActionKind kind, int chunk,
                          MicroPlace place) {
    return &computation[(number_of(kind) * events->chunks + chunk) * MICRO_PLACES + (int)place];
}

/* ---- reading a ledger ---- */

typedef struct Reader {
    StepEvents *events;
    const Runner *runner;
    int started[CHANNEL_COUNT]; /* operations so far */
    int action;                 /* the one that runs, or -1 */
    bool skip;                  /* it is not one that is kept */
} Reader;

/* CHANNEL_COUNT: stages talk to each other, or the group is of no matter. */
static Channel channel_of(const Mesh *mesh, const void *group) {
    if (group == mesh->axis[AXIS_TP]) return CHANNEL_TENSOR;
    if (group == mesh->shard) return CHANNEL_SHARD;
    if (group == mesh->replica) return CHANNEL_REPLICA;
    if (group == mesh->ends) return CHANNEL_ENDS;
    return CHANNEL_COUNT;
}

static bool is_backward(int kernel) {
    return kernel == KERNEL_LINEAR_BACKWARD_INPUT || kernel == KERNEL_LINEAR_BACKWARD_WEIGHT ||
           kernel == KERNEL_LINEAR_FP8_BACKWARD || kernel == KERNEL_LAYERNORM_BACKWARD ||
           kernel == KERNEL_ACT_BACKWARD || kernel == KERNEL_DROPOUT_BACKWARD ||
           kernel == KERNEL_ATTENTION_BACKWARD || kernel == KERNEL_EMBEDDING_BACKWARD;
}

static bool is_forward(int kernel) {
    return kernel == KERNEL_LINEAR_FORWARD || kernel == KERNEL_LINEAR_FP8_FORWARD ||
           kernel == KERNEL_LAYERNORM_FORWARD || kernel == KERNEL_ACT_FORWARD ||
           kernel == KERNEL_DROPOUT_ADD_FORWARD || kernel == KERNEL_DROPOUT_ADD_NORM_FORWARD ||
           kernel == KERNEL_ATTENTION_FORWARD;
}

/* A head may find its gradients at once; backward may compute what was not kept. */
static TimePhase phase_of(const Reader *reader, const OpRecord *note) {
    bool kernel = note->kind == OP_KERNEL;
    if (reader->action < 0) return PHASE_OPTIMIZER;
    if (reader->action == ACTION_FORWARD)
        return kernel && is_backward(note->what) ? PHASE_BACKWARD : PHASE_FORWARD;
    return kernel && is_forward(note->what) ? PHASE_RECOMPUTE : PHASE_BACKWARD;
}

static Status add_event(Reader *reader, const OpRecord *note, StepEventKind kind, Channel channel, int back) {
    StepEvents *events = reader->events;
    StepEvent event = {.kind = kind,
                       .phase = phase_of(reader, note),
                       .what = note->what,
                       .channel = channel,
                       .back = back,
                       .act = note->act,
                       .flops = note->flops,
                       .bytes = note->bytes};
    memcpy(event.size, note->size, sizeof event.size);
    if (reader->skip) return OK;
    TRY(mem_grow(&events->event, &events->capacity, events->count + 1, sizeof event));
    events->event[events->count++] = event;
    return OK;
}

static Status read_start(Reader *reader, const OpRecord *note) {
    Channel channel = channel_of(reader->runner->mesh, note->other);
    if (channel == CHANNEL_COUNT) {
        if (note->what == COMM_SEND) reader->events->message = note->bytes;
        return OK;
    }
    reader->started[channel]++;
    return add_event(reader, note, STEP_START, channel, 0);
}

/* Numbers of operations count from a group's first on; those of the step before are over. */
static Status read_wait(Reader *reader, const OpRecord *note, const uint64_t first[CHANNEL_COUNT]) {
    Channel channel = channel_of(reader->runner->mesh, note->other);
    if (channel == CHANNEL_COUNT || note->number <= first[channel]) return OK;
    int back = reader->started[channel] - (int)(note->number - first[channel]) + 1;
    return add_event(reader, note, STEP_WAIT, channel, back);
}

/* Another stream brings memory of the host's. */
static Status read_other_stream(Reader *reader, const OpRecord *note) {
    if (note->kind != OP_COPY) return OK;
    reader->started[CHANNEL_HOST]++;
    return add_event(reader, note, STEP_START, CHANNEL_HOST, 0);
}

static Status read_note(Reader *reader, const OpRecord *note, const uint64_t first[CHANNEL_COUNT]) {
    if (note->stream != reader->runner->stream) return read_other_stream(reader, note);
    switch (note->kind) {
    case OP_KERNEL: return add_event(reader, note, STEP_KERNEL, CHANNEL_COUNT, 0);
    case OP_ZERO: return add_event(reader, note, STEP_ZERO, CHANNEL_COUNT, 0);
    case OP_COPY: return add_event(reader, note, STEP_COPY, CHANNEL_COUNT, 0);
    case OP_SYNC: return add_event(reader, note, STEP_SYNC, CHANNEL_COUNT, 0);
    case OP_JOIN:
        return reader->started[CHANNEL_HOST] ? add_event(reader, note, STEP_WAIT, CHANNEL_HOST, 1) : OK;
    case OP_START: return read_start(reader, note);
    case OP_WAIT: return read_wait(reader, note, first);
    default: return OK;
    }
}

/* The number before each party's first operation of the step. */
static void find_first(const OpLog *op_log, const Mesh *mesh, uint64_t first[CHANNEL_COUNT]) {
    bool found[CHANNEL_COUNT] = {false};
    for (Channel channel = 0; channel < CHANNEL_COUNT; channel++) first[channel] = UINT64_MAX;
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *note = &op_log->note[i];
        Channel channel = note->kind == OP_START ? channel_of(mesh, note->other) : CHANNEL_COUNT;
        if (channel == CHANNEL_COUNT || found[channel]) continue;
        found[channel] = true;
        first[channel] = note->number - 1;
    }
}

/* Where what follows belongs. Messages are the schedule's to play. */
static void open_action(Reader *reader, const OpRecord *note, int micros, Stretch **ret_open) {
    ActionKind kind = (ActionKind)note->what;
    int micro = (int)note->size[0], chunk = (int)note->size[1];
    StepEvents *events = reader->events;
    *ret_open = NULL;
    reader->action = (int)kind;
    reader->skip = true;
    if (!action_computes(kind)) return;
    MicroPlace place = micro_place(micro, micros);
    Stretch *slot = step_events_slot(events, events->computation, kind, chunk, place);
    if (place == MICRO_MIDDLE && slot->count > 0) return;
    reader->skip = false;
    *slot = (Stretch){.first = (int)events->count};
    *ret_open = slot;
}

Status step_events_init(StepEvents *ret_events, const OpLog *op_log, const Runner *runner, int micros) {
    CLEANUP(step_events_done) StepEvents events = {.chunks = runner->chunks};
    TRY(mem_new((size_t)(COMPUTATIONS * events.chunks * MICRO_PLACES), sizeof *events.computation,
                &events.computation));
    Reader reader = {.events = &events, .runner = runner, .action = -1};
    uint64_t first[CHANNEL_COUNT];
    find_first(op_log, runner->mesh, first);
    Stretch *open = &events.begin;
    for (size_t i = 0; i < op_log->count; i++) {
        const OpRecord *note = &op_log->note[i];
        bool cut = note->kind == OP_ACTION || note->kind == OP_END;
        if (!cut) {
            TRY(read_note(&reader, note, first));
            continue;
        }
        if (open) open->count = (int)events.count - open->first;
        if (note->kind == OP_ACTION) {
            open_action(&reader, note, micros, &open);
            continue;
        }
        reader.action = -1;
        reader.skip = false;
        events.end = (Stretch){.first = (int)events.count};
        open = &events.end;
    }
    if (open) open->count = (int)events.count - open->first;
    *ret_events = events;
    events = (StepEvents){0};
    return OK;
}
