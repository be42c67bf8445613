#include "plan/tape.h"

#include <string.h>

#include "base/memory.h"

void tape_done(Tape *tape) {
    free(tape->beat);
    free(tape->computation);
    *tape = (Tape){0};
}

Status tape_copy(Tape *ret_tape, const Tape *tape) {
    CLEANUP(tape_done) Tape copy = *tape;
    size_t slots = (size_t)(COMPUTATIONS * tape->chunks * MICRO_PLACES);
    copy.beat = NULL;
    copy.computation = NULL;
    copy.capacity = tape->count;
    TRY(mem_new(tape->count, sizeof *copy.beat, &copy.beat));
    TRY(mem_new(slots, sizeof *copy.computation, &copy.computation));
    if (tape->count) memcpy(copy.beat, tape->beat, tape->count * sizeof *copy.beat);
    if (slots) memcpy(copy.computation, tape->computation, slots * sizeof *copy.computation);
    *ret_tape = copy;
    copy = (Tape){0};
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

Stretch *tape_slot(const Tape *tape, Stretch *computation, ActionKind kind, int chunk, MicroPlace place) {
    return &computation[(number_of(kind) * tape->chunks + chunk) * MICRO_PLACES + (int)place];
}

/* ---- reading a ledger ---- */

typedef struct Reader {
    Tape *tape;
    const Runner *runner;
    int started[PARTY_COUNT]; /* operations so far */
    int action;               /* the one that runs, or -1 */
    bool skip;                /* it is not one that is kept */
} Reader;

/* PARTY_COUNT: stages talk to each other, or the group is of no matter. */
static Party party_of(const Mesh *mesh, const void *group) {
    if (group == mesh->axis[AXIS_TP]) return PARTY_TENSOR;
    if (group == mesh->shard) return PARTY_SHARD;
    if (group == mesh->replica) return PARTY_REPLICA;
    if (group == mesh->ends) return PARTY_ENDS;
    return PARTY_COUNT;
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
static TimePhase phase_of(const Reader *reader, const Note *note) {
    bool kernel = note->kind == NOTE_KERNEL;
    if (reader->action < 0) return PHASE_OPTIMIZER;
    if (reader->action == ACTION_FORWARD)
        return kernel && is_backward(note->what) ? PHASE_BACKWARD : PHASE_FORWARD;
    return kernel && is_forward(note->what) ? PHASE_RECOMPUTE : PHASE_BACKWARD;
}

static Status add_beat(Reader *reader, const Note *note, BeatKind kind, Party party, int back) {
    Tape *tape = reader->tape;
    Beat beat = {.kind = kind,
                 .phase = phase_of(reader, note),
                 .what = note->what,
                 .party = party,
                 .back = back,
                 .act = note->act,
                 .flops = note->flops,
                 .bytes = note->bytes};
    memcpy(beat.size, note->size, sizeof beat.size);
    if (reader->skip) return OK;
    TRY(mem_grow(&tape->beat, &tape->capacity, tape->count + 1, sizeof beat));
    tape->beat[tape->count++] = beat;
    return OK;
}

static Status read_start(Reader *reader, const Note *note) {
    Party party = party_of(reader->runner->mesh, note->other);
    if (party == PARTY_COUNT) {
        if (note->what == COMM_SEND) reader->tape->message = note->bytes;
        return OK;
    }
    reader->started[party]++;
    return add_beat(reader, note, BEAT_START, party, 0);
}

/* Numbers of operations count from a group's first on; those of the step before are over. */
static Status read_wait(Reader *reader, const Note *note, const uint64_t first[PARTY_COUNT]) {
    Party party = party_of(reader->runner->mesh, note->other);
    if (party == PARTY_COUNT || note->number <= first[party]) return OK;
    int back = reader->started[party] - (int)(note->number - first[party]) + 1;
    return add_beat(reader, note, BEAT_WAIT, party, back);
}

/* Another stream brings memory of the host's. */
static Status read_other_stream(Reader *reader, const Note *note) {
    if (note->kind != NOTE_COPY) return OK;
    reader->started[PARTY_HOST]++;
    return add_beat(reader, note, BEAT_START, PARTY_HOST, 0);
}

static Status read_note(Reader *reader, const Note *note, const uint64_t first[PARTY_COUNT]) {
    if (note->stream != reader->runner->stream) return read_other_stream(reader, note);
    switch (note->kind) {
    case NOTE_KERNEL: return add_beat(reader, note, BEAT_KERNEL, PARTY_COUNT, 0);
    case NOTE_ZERO: return add_beat(reader, note, BEAT_ZERO, PARTY_COUNT, 0);
    case NOTE_COPY: return add_beat(reader, note, BEAT_COPY, PARTY_COUNT, 0);
    case NOTE_SYNC: return add_beat(reader, note, BEAT_SYNC, PARTY_COUNT, 0);
    case NOTE_JOIN:
        return reader->started[PARTY_HOST] ? add_beat(reader, note, BEAT_WAIT, PARTY_HOST, 1) : OK;
    case NOTE_START: return read_start(reader, note);
    case NOTE_WAIT: return read_wait(reader, note, first);
    default: return OK;
    }
}

/* The number before each party's first operation of the step. */
static void find_first(const Ledger *ledger, const Mesh *mesh, uint64_t first[PARTY_COUNT]) {
    bool found[PARTY_COUNT] = {false};
    for (Party party = 0; party < PARTY_COUNT; party++) first[party] = UINT64_MAX;
    for (size_t i = 0; i < ledger->count; i++) {
        const Note *note = &ledger->note[i];
        Party party = note->kind == NOTE_START ? party_of(mesh, note->other) : PARTY_COUNT;
        if (party == PARTY_COUNT || found[party]) continue;
        found[party] = true;
        first[party] = note->number - 1;
    }
}

/* Where what follows belongs. Messages are the schedule's to play. */
static void open_action(Reader *reader, const Note *note, int micros, Stretch **ret_open) {
    ActionKind kind = (ActionKind)note->what;
    int micro = (int)note->size[0], chunk = (int)note->size[1];
    Tape *tape = reader->tape;
    *ret_open = NULL;
    reader->action = (int)kind;
    reader->skip = true;
    if (!action_computes(kind)) return;
    MicroPlace place = micro_place(micro, micros);
    Stretch *slot = tape_slot(tape, tape->computation, kind, chunk, place);
    if (place == MICRO_MIDDLE && slot->count > 0) return;
    reader->skip = false;
    *slot = (Stretch){.first = (int)tape->count};
    *ret_open = slot;
}

Status tape_init(Tape *ret_tape, const Ledger *ledger, const Runner *runner, int micros) {
    CLEANUP(tape_done) Tape tape = {.chunks = runner->chunks};
    TRY(mem_new((size_t)(COMPUTATIONS * tape.chunks * MICRO_PLACES), sizeof *tape.computation,
                &tape.computation));
    Reader reader = {.tape = &tape, .runner = runner, .action = -1};
    uint64_t first[PARTY_COUNT];
    find_first(ledger, runner->mesh, first);
    Stretch *open = &tape.begin;
    for (size_t i = 0; i < ledger->count; i++) {
        const Note *note = &ledger->note[i];
        bool cut = note->kind == NOTE_ACTION || note->kind == NOTE_END;
        if (!cut) {
            TRY(read_note(&reader, note, first));
            continue;
        }
        if (open) open->count = (int)tape.count - open->first;
        if (note->kind == NOTE_ACTION) {
            open_action(&reader, note, micros, &open);
            continue;
        }
        reader.action = -1;
        reader.skip = false;
        tape.end = (Stretch){.first = (int)tape.count};
        open = &tape.end;
    }
    if (open) open->count = (int)tape.count - open->first;
    *ret_tape = tape;
    tape = (Tape){0};
    return OK;
}
