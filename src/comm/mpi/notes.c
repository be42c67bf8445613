/* Notes: short messages between ranks outside operations. A rank always has one receive posted. Memory of
 * notes that have not been delivered when the ranks part is leaked. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/mpi/traffic.h"

enum { TAG_NOTE = 0 };

int notes_listen(Traffic *traffic) {
    if (!traffic->note) {
        Status status = mem_new(1, sizeof *traffic->note, &traffic->note);
        status_free(status);
        if (!traffic->note) return MPI_ERR_NO_MEM;
    }
    return MPI_Irecv(traffic->note, sizeof *traffic->note, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTE,
                     traffic->control, &traffic->note_request);
}

/* Frees notes that have arrived. */
static void sweep(Traffic *traffic) {
    for (NoteOut **at = &traffic->notes_out; *at;) {
        NoteOut *out = *at;
        int arrived = 0;
        if (MPI_Testall(out->count, out->request, &arrived, MPI_STATUSES_IGNORE) == MPI_SUCCESS && arrived) {
            *at = out->next;
            free(out);
        } else {
            at = &out->next;
        }
    }
}

static void handle(Traffic *traffic, const Note *note) {
    traffic->heard_at[note->from] = clock_wall();
    switch (note->kind) {
    case NOTE_FAILED:
        if (traffic->failed_rank < 0 || note->from < traffic->failed_rank) traffic->failed_rank = note->from;
        break;
    case NOTE_ABANDON:
        if (note->number > traffic->abandoned) traffic->abandoned = note->number;
        break;
    case NOTE_PROBE: watchdog_answer(traffic, note->from, note->number); break;
    case NOTE_STATE:
        traffic->state[note->from] = note->state;
        traffic->state[note->from].answered = note->number;
        break;
    default: break;
    }
}

bool notes_take(Traffic *traffic) {
    int arrived = 0;
    sweep(traffic);
    if (MPI_Test(&traffic->note_request, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived)
        return false;
    handle(traffic, traffic->note);
    return notes_listen(traffic) == MPI_SUCCESS;
}

/* A note that cannot be sent for lack of memory is lost; the launcher then ends the other ranks. */
static void send_note(Traffic *traffic, int first, int last, const Note *note) {
    NoteOut *out = calloc(1, sizeof *out + (size_t)(last - first + 1) * sizeof *out->request);
    if (!out) return;
    out->note = *note;
    for (int to = first; to <= last; to++)
        if (to != traffic->rank && MPI_Isend(&out->note, sizeof out->note, MPI_BYTE, to, TAG_NOTE,
                                             traffic->control, &out->request[out->count]) == MPI_SUCCESS)
            out->count++;
    out->next = traffic->notes_out;
    traffic->notes_out = out;
}

void notes_send(Traffic *traffic, NoteKind kind, uint64_t number) {
    Note note = {.kind = kind, .from = traffic->rank, .number = number};
    send_note(traffic, 0, traffic->size - 1, &note);
}

void notes_send_to(Traffic *traffic, int to, NoteKind kind, uint64_t number, const RankState *state) {
    Note note = {.kind = kind, .from = traffic->rank, .number = number, .state = *state};
    send_note(traffic, to, to, &note);
}

void notes_free(Traffic *traffic) {
    if (traffic->note_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&traffic->note_request);
        MPI_Wait(&traffic->note_request, MPI_STATUS_IGNORE);
    }
    sweep(traffic);
    free(traffic->note);
}
