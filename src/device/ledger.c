#include "device/ledger.h"

#include <string.h>

#include "base/memory.h"

void ledger_done(Ledger *ledger) {
    free(ledger->note);
    *ledger = (Ledger){0};
}

Status ledger_add(Ledger *ledger, Note note) {
    if (!ledger) return OK;
    TRY(mem_grow(&ledger->note, &ledger->capacity, ledger->count + 1, sizeof note));
    ledger->note[ledger->count++] = note;
    return OK;
}

Status ledger_kernel(Ledger *ledger, const void *stream, int kernel, double flops, double bytes,
                     double seconds) {
    Note note = {.kind = NOTE_KERNEL,
                 .what = kernel,
                 .stream = stream,
                 .flops = flops,
                 .bytes = bytes,
                 .seconds = seconds,
                 .act = ledger->act};
    memcpy(note.size, ledger->size, sizeof note.size);
    memset(ledger->size, 0, sizeof ledger->size);
    ledger->act = false;
    return ledger_add(ledger, note);
}
