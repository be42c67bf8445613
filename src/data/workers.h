/* A corpus read on all cores: documents go to several threads in pieces, and what they make of a block of
 * them is handed on in the order of the text. */
#ifndef WEFT_DATA_WORKERS_H
#define WEFT_DATA_WORKERS_H

#include <signal.h>

#include "data/reader.h"

/* What is done with the pieces. A place holds what becomes of one block; there are workers_slots of them,
 * and only one thread at a time works on each. */
typedef struct WorkerTask {
    void *context;
    /* Called by several threads at once; `slot` (0 .. threads - 1) is the calling one's number. The pieces of
     * a block come in order, to one place. */
    Status (*piece)(void *context, int slot, int place, const TextPiece *piece);
    /* After the last piece of a block, still in that thread; may be NULL. */
    Status (*pack)(void *context, int slot, int place);
    /* In the order of the text, one at a time, from any thread; then the place is free again. `used` is how
     * many bytes of the files have been read so far. May be NULL. */
    Status (*finish)(void *context, int place, int64_t used);
} WorkerTask;

/* 0: as many as OpenMP would take. */
int workers_threads(int asked);
int workers_slots(int threads);

/* Reads all of it. The first thing that goes wrong, in the order of the text, is the result, and what comes
 * after it is not finished. `stop`, where given, ends it early with an error once it is not 0. */
MUST_USE Status workers_run(const ReaderSpec *spec, int threads, const WorkerTask *work,
                            const volatile sig_atomic_t *stop);

#endif
