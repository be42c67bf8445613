/* Worker pool for reading a corpus: several threads process pieces of documents in parallel, and the results
 * of each block are passed on in text order. */
#ifndef WEFT_DATA_WORKERS_H
#define WEFT_DATA_WORKERS_H

#include <signal.h>

#include "data/reader.h"

/* Callbacks of a pool. A slot holds the result of one block; there are workers_slots of them, and only one
 * thread at a time works on each. */
typedef struct WorkerTask {
    void *context;
    /* Called from several threads at once; `worker` (0 .. threads - 1) identifies the thread. The pieces of a
     * block arrive in order and with the same slot. */
    Status (*piece)(void *context, int worker, int slot, const TextPiece *piece);
    /* Called after the last piece of a block, in the same thread; may be NULL. */
    Status (*pack)(void *context, int worker, int slot);
    /* Called in text order, one block at a time, from any thread; afterwards the slot is free. `used` is
     * the number of input bytes read so far. May be NULL. */
    Status (*finish)(void *context, int slot, int64_t used);
} WorkerTask;

/* Number of threads to use; asked = 0: OpenMP's default. */
int workers_threads(int asked);
int workers_slots(int threads);

/* Processes all input and returns the first failure in text order; blocks after it are not finished. Once
 * `*stop` is nonzero (`stop` may be NULL), the pool fails early. */
MUST_USE Status workers_run(const ReaderSpec *spec, int threads, const WorkerTask *work,
                            const volatile sig_atomic_t *stop);

#endif
