/* What is asked of a device, mostly one on paper (device_new_paper), written down in order: kernels and
 * collectives with their sizes, copies, waits. How long a run takes follows from it (plan/time.h), so the
 * list is made where the run itself passes: by the functions of kernels.h, by the groups on paper and by the
 * runner. */
#ifndef WEFT_DEVICE_LEDGER_H
#define WEFT_DEVICE_LEDGER_H

#include <stdint.h>

#include "base/status.h"

typedef enum {
    NOTE_KERNEL, /* what: its KernelId */
    NOTE_ZERO,
    NOTE_COPY,   /* what: its CopyKind */
    NOTE_SYNC,   /* the host waits for what is on the stream */
    NOTE_JOIN,   /* the stream waits for another one, `other` */
    NOTE_START,  /* of an operation of `other`, a group; what: its CommKind */
    NOTE_WAIT,   /* for operation `number` of the group `other` */
    NOTE_ACTION, /* of the schedule; what: its ActionKind, size: micro-batch and chunk. From here on... */
    NOTE_END,    /* ...to here; after the schedule's last */
} NoteKind;

enum { LEDGER_SIZES = 3 };

typedef struct Note {
    NoteKind kind;
    int what;
    bool act;                  /* a product with an activation or its slope; attention with dropout */
    const void *stream;        /* on which it is */
    const void *other;         /* see the kind */
    uint64_t number;           /* of an operation of its group */
    double flops, bytes;       /* as the kernel's profile counts them; of a collective, all of the tensor's */
    double size[LEDGER_SIZES]; /* products: M, N, K; attention: heads x sequences, positions, width of a
    head; losses: rows, vocabulary; updates: parameters */
    double seconds;            /* that a kernel took, where a profile measures it; else 0 */
} Note;

typedef struct Ledger {
    Note *note;
    size_t count, capacity;
    double size[LEDGER_SIZES]; /* of the kernel that is about to be noted */
    bool act;
} Ledger;

void ledger_done(Ledger *ledger);
/* Does nothing where there is no ledger (NULL). */
MUST_USE Status ledger_add(Ledger *ledger, Note note);
/* Says more of the next kernel. */
static inline void ledger_size(Ledger *ledger, int64_t a, int64_t b, int64_t c, bool act) {
    if (!ledger) return;
    ledger->size[0] = (double)a;
    ledger->size[1] = (double)b;
    ledger->size[2] = (double)c;
    ledger->act = act;
}
MUST_USE Status ledger_kernel(Ledger *ledger, const void *stream, int kernel, double flops, double bytes,
                              double seconds);

#endif
