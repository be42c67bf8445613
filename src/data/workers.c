/* Every thread runs the same loop: read the next block, process its pieces, pass the result on. The thread
 * that needs a block reads it, under a separate lock. Results wait in a ring of slots; the thread that
 * completes the oldest one finishes it and all completed slots behind it, so threads wait only if the ring is
 * full. The ring has 2 * threads + 1 slots, each with one block and its result, which bounds memory. */
#include "data/workers.h"

#include <omp.h>
#include <pthread.h>

#include "base/memory.h"

typedef enum { SLOT_FREE, SLOT_TAKEN, SLOT_READY } SlotState;

typedef struct Slot {
    TextBlock block;
    SlotState state;
    Status status; /* result of processing the block */
} Slot;

typedef struct WorkerPool {
    const ReaderSpec *spec;
    const WorkerTask *task;
    const volatile sig_atomic_t *stop;
    Reader *reader;
    pthread_mutex_t reading;   /* held while a block is read; acquired before `lock` */
    pthread_mutex_t lock;      /* guards everything below */
    pthread_cond_t slot_freed; /* a slot became free, or the input ended */
    Slot *slot;
    int slots;
    int64_t taken, finished; /* number of blocks */
    bool finishing;          /* some thread is in finish_ready */
    bool ended;              /* end of input, or a failure */
    Status status;           /* the first failure */
} WorkerPool;

typedef struct Worker {
    WorkerPool *pool;
    int index, slot;
    pthread_t thread;
    bool started;
} Worker;

int workers_threads(int asked) {
    return asked > 0 ? asked : omp_get_max_threads();
}

int workers_slots(int threads) {
    return 2 * threads + 1;
}

/* Takes ownership of the status; keeps the first failure. */
static void fail(WorkerPool *pool, Status status) {
    if (pool->status)
        status_free(status);
    else
        pool->status = status;
    pool->ended = true;
    pthread_cond_broadcast(&pool->slot_freed);
}

/* Waits for a free slot in the ring; false if there is no more work. */
static bool take_slot(WorkerPool *pool, int *ret_slot) {
    pthread_mutex_lock(&pool->lock);
    while (!pool->ended && pool->taken - pool->finished >= pool->slots)
        pthread_cond_wait(&pool->slot_freed, &pool->lock);
    if (!pool->ended && pool->stop && *pool->stop) fail(pool, STOPPED("stopped by a signal"));
    bool more = !pool->ended;
    if (more) *ret_slot = (int)(pool->taken % pool->slots);
    pthread_mutex_unlock(&pool->lock);
    return more;
}

/* Reads the next block into a slot; false at the end. Only the reading thread takes slots, so a free one
 * stays free. A read error is stored as the result of an extra block, because it must be reported after the
 * blocks read before it. */
static bool take_block(WorkerPool *pool, int *ret_slot) {
    pthread_mutex_lock(&pool->reading);
    bool more = take_slot(pool, ret_slot);
    if (more) {
        Slot *slot = &pool->slot[*ret_slot];
        Status status = reader_next(pool->reader, &slot->block, &more);
        pthread_mutex_lock(&pool->lock);
        if (status) {
            more = true;
            slot->status = status;
        }
        if (more) {
            slot->state = SLOT_TAKEN;
            pool->taken++;
        }
        if (status || !more) {
            pool->ended = true;
            pthread_cond_broadcast(&pool->slot_freed);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->reading);
    return more;
}

/* Finishes completed blocks in order. The lock is held on entry and on return, but not during
 * the callback. */
static void finish_ready(WorkerPool *pool) {
    if (pool->finishing) return;
    pool->finishing = true;
    for (;;) {
        int at = (int)(pool->finished % pool->slots);
        Slot *slot = &pool->slot[at];
        if (pool->finished == pool->taken || slot->state != SLOT_READY) break;
        Status status = slot->status;
        slot->status = OK;
        if (!status && !pool->status && pool->task->finish) {
            pthread_mutex_unlock(&pool->lock);
            status = pool->task->finish(pool->task->context, at, slot->block.used);
            pthread_mutex_lock(&pool->lock);
        }
        if (status) fail(pool, status);
        slot->state = SLOT_FREE;
        pool->finished++;
        pthread_cond_broadcast(&pool->slot_freed);
    }
    pool->finishing = false;
}

static Status process_piece(void *context, const TextPiece *piece) {
    Worker *worker = context;
    const WorkerTask *task = worker->pool->task;
    return task->piece(task->context, worker->index, worker->slot, piece);
}

static void *run_worker(void *argument) {
    Worker *worker = argument;
    WorkerPool *pool = worker->pool;
    const WorkerTask *task = pool->task;
    while (take_block(pool, &worker->slot)) {
        Slot *slot = &pool->slot[worker->slot];
        Status status = slot->status;
        if (!status) status = reader_split(pool->spec, &slot->block, process_piece, worker);
        if (!status && task->pack) status = task->pack(task->context, worker->index, worker->slot);
        pthread_mutex_lock(&pool->lock);
        slot->status = status;
        slot->state = SLOT_READY;
        finish_ready(pool);
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

static void pool_done(WorkerPool *pool) {
    for (int i = 0; pool->slot && i < pool->slots; i++) {
        text_block_done(&pool->slot[i].block);
        status_free(pool->slot[i].status);
    }
    free(pool->slot);
    reader_free(pool->reader);
    status_free(pool->status);
    pthread_cond_destroy(&pool->slot_freed);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->reading);
}

Status workers_run(const ReaderSpec *spec, int threads, const WorkerTask *task,
                   const volatile sig_atomic_t *stop) {
    CLEANUP(pool_done)
    WorkerPool pool = {.spec = spec, .task = task, .stop = stop, .slots = workers_slots(threads)};
    pthread_mutex_init(&pool.reading, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.slot_freed, NULL);
    CLEANUP(mem_freep) Worker *worker = NULL;
    TRY(reader_new(&pool.reader, spec));
    TRY(mem_new((size_t)pool.slots, sizeof *pool.slot, &pool.slot));
    TRY(mem_new((size_t)threads, sizeof *worker, &worker));
    for (int i = 0; i < threads; i++) worker[i] = (Worker){.pool = &pool, .index = i};
    /* The calling thread is worker 0. If some threads cannot be created, the others do all the work. */
    for (int i = 1; i < threads; i++)
        worker[i].started = pthread_create(&worker[i].thread, NULL, run_worker, &worker[i]) == 0;
    run_worker(&worker[0]);
    for (int i = 1; i < threads; i++)
        if (worker[i].started) pthread_join(worker[i].thread, NULL);
    Status status = pool.status;
    pool.status = OK;
    return status;
}
