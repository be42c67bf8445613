/* Each thread runs the same loop: take the next block from the reader, split it and work on its pieces,
 * then hand the result on. Reading is done by whichever thread comes for a block, under a lock of its own.
 * Results stand in a ring of places; the thread that completes the oldest one finishes it and all that are
 * complete behind it, so nobody waits unless the whole ring is full. That bounds the memory: a ring of twice
 * the threads and one more, each with a block and what became of it. */
#include "data/workers.h"

#include <omp.h>
#include <pthread.h>

#include "base/memory.h"

typedef enum { PLACE_FREE, PLACE_TAKEN, PLACE_READY } PlaceState;

typedef struct Place {
    TextBlock block;
    PlaceState state;
    Status status; /* of the work on it */
} Place;

typedef struct WorkerPool {
    const ReaderSpec *spec;
    const WorkerTask *work;
    const volatile sig_atomic_t *stop;
    Reader *reader;
    pthread_mutex_t reading; /* held while a block is read; taken before `lock` */
    pthread_mutex_t lock;    /* guards all below */
    pthread_cond_t room;     /* a place has become free, or the end has come */
    Place *place;
    int places;
    int64_t taken, finished; /* blocks so far */
    bool finishing;          /* a thread is at it */
    bool ended;              /* nothing more to read, or something failed */
    Status status;           /* the first failure */
} WorkerPool;

typedef struct Worker {
    WorkerPool *pipeline;
    int slot, place;
    pthread_t thread;
    bool started;
} Worker;

int workers_threads(int asked) {
    return asked > 0 ? asked : omp_get_max_threads();
}

int workers_slots(int threads) {
    return 2 * threads + 1;
}

/* Keeps the first failure; takes it over. */
static void fail(WorkerPool *pipeline, Status status) {
    if (pipeline->status)
        status_free(status);
    else
        pipeline->status = status;
    pipeline->ended = true;
    pthread_cond_broadcast(&pipeline->room);
}

/* A free place in the ring; false when there is nothing more to do. */
static bool take_place(WorkerPool *pipeline, int *ret_place) {
    pthread_mutex_lock(&pipeline->lock);
    while (!pipeline->ended && pipeline->taken - pipeline->finished >= pipeline->places)
        pthread_cond_wait(&pipeline->room, &pipeline->lock);
    if (!pipeline->ended && pipeline->stop && *pipeline->stop) fail(pipeline, FAILED("stopped by a signal"));
    bool more = !pipeline->ended;
    if (more) *ret_place = (int)(pipeline->taken % pipeline->places);
    pthread_mutex_unlock(&pipeline->lock);
    return more;
}

/* Reads the next block into a place; false at the end. Only the thread that reads takes places, so the one
 * found free stays so. A failure to read comes after what was read before it: it is kept as the result of
 * a block of its own. */
static bool take_block(WorkerPool *pipeline, int *ret_place) {
    pthread_mutex_lock(&pipeline->reading);
    bool more = take_place(pipeline, ret_place);
    if (more) {
        Place *place = &pipeline->place[*ret_place];
        Status status = reader_next(pipeline->reader, &place->block, &more);
        pthread_mutex_lock(&pipeline->lock);
        if (status) {
            more = true;
            place->status = status;
        }
        if (more) {
            place->state = PLACE_TAKEN;
            pipeline->taken++;
        }
        if (status || !more) {
            pipeline->ended = true;
            pthread_cond_broadcast(&pipeline->room);
        }
        pthread_mutex_unlock(&pipeline->lock);
    }
    pthread_mutex_unlock(&pipeline->reading);
    return more;
}

/* Finishes what is ready, in order. The lock is held on entry and on return, not during the work. */
static void finish_ready(WorkerPool *pipeline) {
    if (pipeline->finishing) return;
    pipeline->finishing = true;
    for (;;) {
        int at = (int)(pipeline->finished % pipeline->places);
        Place *place = &pipeline->place[at];
        if (pipeline->finished == pipeline->taken || place->state != PLACE_READY) break;
        Status status = place->status;
        place->status = OK;
        if (!status && !pipeline->status && pipeline->work->finish) {
            pthread_mutex_unlock(&pipeline->lock);
            status = pipeline->work->finish(pipeline->work->context, at, place->block.used);
            pthread_mutex_lock(&pipeline->lock);
        }
        if (status) fail(pipeline, status);
        place->state = PLACE_FREE;
        pipeline->finished++;
        pthread_cond_broadcast(&pipeline->room);
    }
    pipeline->finishing = false;
}

static Status give_piece(void *context, const TextPiece *piece) {
    Worker *worker = context;
    const WorkerTask *work = worker->pipeline->work;
    return work->piece(work->context, worker->slot, worker->place, piece);
}

static void *work_on(void *argument) {
    Worker *worker = argument;
    WorkerPool *pipeline = worker->pipeline;
    const WorkerTask *work = pipeline->work;
    while (take_block(pipeline, &worker->place)) {
        Place *place = &pipeline->place[worker->place];
        Status status = place->status;
        if (!status) status = reader_split(pipeline->spec, &place->block, give_piece, worker);
        if (!status && work->pack) status = work->pack(work->context, worker->slot, worker->place);
        pthread_mutex_lock(&pipeline->lock);
        place->status = status;
        place->state = PLACE_READY;
        finish_ready(pipeline);
        pthread_mutex_unlock(&pipeline->lock);
    }
    return NULL;
}

static void pipeline_done(WorkerPool *pipeline) {
    for (int i = 0; pipeline->place && i < pipeline->places; i++) {
        text_block_done(&pipeline->place[i].block);
        status_free(pipeline->place[i].status);
    }
    free(pipeline->place);
    reader_free(pipeline->reader);
    status_free(pipeline->status);
    pthread_cond_destroy(&pipeline->room);
    pthread_mutex_destroy(&pipeline->lock);
    pthread_mutex_destroy(&pipeline->reading);
}

Status workers_run(const ReaderSpec *spec, int threads, const WorkerTask *work,
                   const volatile sig_atomic_t *stop) {
    CLEANUP(pipeline_done)
    WorkerPool pipeline = {.spec = spec, .work = work, .stop = stop, .places = workers_slots(threads)};
    pthread_mutex_init(&pipeline.reading, NULL);
    pthread_mutex_init(&pipeline.lock, NULL);
    pthread_cond_init(&pipeline.room, NULL);
    CLEANUP(mem_freep) Worker *worker = NULL;
    TRY(reader_new(&pipeline.reader, spec));
    TRY(mem_new((size_t)pipeline.places, sizeof *pipeline.place, &pipeline.place));
    TRY(mem_new((size_t)threads, sizeof *worker, &worker));
    for (int i = 0; i < threads; i++) worker[i] = (Worker){.pipeline = &pipeline, .slot = i};
    /* The caller is one of them; with fewer threads than asked for the work is the same. */
    for (int i = 1; i < threads; i++)
        worker[i].started = pthread_create(&worker[i].thread, NULL, work_on, &worker[i]) == 0;
    work_on(&worker[0]);
    for (int i = 1; i < threads; i++)
        if (worker[i].started) pthread_join(worker[i].thread, NULL);
    Status status = pipeline.status;
    pipeline.status = OK;
    return status;
}
