/* If all cores compute, the thread takes time from one of them, and all threads of a step wait for the
 * slowest. So the thread copies the values, for which the next update waits, and then lowers its priority: a
 * save takes longer, and the steps beside it a little longer each. How low depends on the time to the next
 * save, which is about that since the one before. After a quarter of it, another thread continues at normal
 * priority, since a thread cannot raise its own. When the caller has nothing to do but wait, it writes the
 * rest itself. With a collector, the thread keeps its priority, since ranks wait for each other's threads. */
#include "checkpoint/background.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/collect.h"

typedef enum { PHASE_NONE, PHASE_WRITE, PHASE_PUBLISH } Phase;

struct Background {
    Snapshot snapshot;
    Stream *stream; /* computes the values */
    Stream *copier; /* on a GPU: copies them beside the computation; else NULL */
    Mesh *mesh;
    CheckpointState state; /* of the pending save or, after a failure, the one before */
    json_t *progress;
    char *run_dir;
    int64_t step;
    int keep;
    CkptSave *save;       /* NULL: none is pending */
    Collector *collector; /* NULL: every rank writes its part by itself */
    Phase phase;
    /* The thread of the phase. */
    pthread_t thread;
    bool started;
    atomic_bool busy, cancel;
    atomic_bool pause;     /* it is to end, and leave the rest to the caller */
    SnapshotCursor cursor; /* what it has written */
    double since;          /* when the last save began; the first: when training did */
    double due_s;          /* from then to the next one, probably */
    int niceness;
    Status status; /* its outcome, valid once it has ended */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool copied; /* guarded by the lock */
    bool waits;  /* the same: with a collector, the thread waits for a round */
};

Status background_new(Background **ret_background, Snapshot *snapshot, Stream *stream, Mesh *mesh,
                      const RootDisk *disk) {
    Background *made = NULL;
    TRY(mem_new(1, sizeof *made, &made));
    Status status = device_is_host(stream->device) ? OK : stream_new(&made->copier, stream->device);
    if (!status && disk) status = collector_new(&made->collector, disk, snapshot_bytes(snapshot));
    if (status) {
        stream_free(made->copier);
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->snapshot = *snapshot;
    *snapshot = (Snapshot){0};
    made->stream = stream;
    made->mesh = mesh;
    made->copied = true;
    made->since = clock_wall();
    *ret_background = made;
    return OK;
}

static bool is_alone(const Background *b) {
    return !b->mesh || b->mesh->size == 1;
}

static void set_copied(Background *b, bool copied) {
    pthread_mutex_lock(&b->lock);
    b->copied = copied;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void wait_copied(Background *b) {
    pthread_mutex_lock(&b->lock);
    while (!b->copied) pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

/* ---- the thread ---- */

/* On a GPU the caller starts the copies and announces their end, so that this thread need not use CUDA. */
static Status copy_values(Background *b) {
    if (b->copier || b->copied) {
        wait_copied(b);
        return OK;
    }
    Status status = snapshot_copy(&b->snapshot, b->stream);
    set_copied(b, true);
    return status;
}

/* Lets the main thread exchange buffers (advance_round), and waits for that. */
static Status wait_for_round(void *context) {
    Background *b = context;
    pthread_mutex_lock(&b->lock);
    b->waits = true;
    b->busy = false;
    pthread_cond_broadcast(&b->changed);
    while (b->waits && !b->cancel) pthread_cond_wait(&b->changed, &b->lock);
    Status status = b->cancel ? STOPPED("stopped while writing a checkpoint") : OK;
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* The lowest priority with which a save on busy cores takes at most a quarter of the time to the next. */
static int find_niceness(const Background *b) {
    static const struct {
        int niceness;
        double share; /* of a core that is busy */
    } levels[] = {{15, 0.03}, {10, 0.1}, {5, 0.25}};
    const double per_byte = 1e-9; /* to copy, sum and write */
    double seconds = (double)snapshot_bytes(&b->snapshot) * per_byte;
    for (size_t i = 0; !b->collector && i < sizeof levels / sizeof *levels; i++)
        if (seconds / levels[i].share <= b->due_s / 4) return levels[i].niceness;
    return 0;
}

/* Of the calling thread only, on Linux. */
static void lower_priority(const Background *b) {
    if (b->niceness && nice(b->niceness) < 0) errno = 0;
}

static bool is_paused(const Background *b) {
    return b->phase == PHASE_WRITE && !b->cursor.done && !b->collector;
}

static Status write_values(Background *b) {
    Status status = copy_values(b);
    lower_priority(b);
    if (!status) status = snapshot_write(&b->snapshot, &b->save->list, &b->cursor, &b->pause);
    if (!status && is_paused(b)) return OK;
    if (!status && b->cancel) status = STOPPED("stopped while writing a checkpoint");
    if (b->collector) status = collector_end(b->collector, status);
    Status closed = save_list_close(&b->save->list);
    if (!status) return closed;
    status_free(closed);
    return status;
}

static Status run_phase(Background *b) {
    if (b->phase == PHASE_WRITE) TRY(write_values(b));
    if (is_paused(b)) return OK;
    if (b->phase == PHASE_PUBLISH) lower_priority(b);
    return b->phase == PHASE_PUBLISH || is_alone(b) ? ckpt_save_publish(b->save) : OK;
}

static void *run_thread(void *argument) {
    Background *b = argument;
    b->status = run_phase(b);
    pthread_mutex_lock(&b->lock);
    b->busy = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Without a thread, the phase is run here. A collector's rounds need one. */
static void run_here(Background *b) {
    b->niceness = 0;
    b->status = b->copier ? background_copied(b) : OK;
    if (b->collector && b->phase == PHASE_WRITE) {
        if (!b->status) b->status = FAILED("cannot start a thread");
        set_copied(b, true);
        collector_fail(b->collector);
    }
    if (!b->status) b->status = run_phase(b);
    b->busy = false;
}

/* Signals are left to the other threads, whose system calls they may have to interrupt. */
static void start_thread(Background *b, Phase phase) {
    sigset_t all, before;
    b->phase = phase;
    b->busy = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    b->started = pthread_create(&b->thread, NULL, run_thread, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!b->started) run_here(b);
}

/* Ends the thread, and the phase if `finish` is set. */
static Status end_thread(Background *b, bool finish) {
    b->pause = !b->collector || b->cancel;
    if (b->started) pthread_join(b->thread, NULL);
    b->pause = b->started = false;
    Status status = b->status;
    b->status = OK;
    if (status || !b->save || !finish || !is_paused(b)) return status;
    b->niceness = 0;
    return run_phase(b);
}

/* ---- the protocol ---- */

static void drop_save(Background *b) {
    ckpt_save_free(b->save);
    b->save = NULL;
    b->phase = PHASE_NONE;
}

static Status fail(Background *b, Status status) {
    status = ckpt_save_failed(b->save, status);
    drop_save(b);
    return status;
}

static Status open_files(Background *b) {
    b->cursor = (SnapshotCursor){0};
    TRY(ckpt_save_new(&b->save, b->run_dir, b->step, &b->state, b->keep));
    if (b->collector) {
        collector_begin(b->collector, &b->save->list, wait_for_round, b);
        return OK;
    }
    Status status = save_agree(b->mesh, save_list_open(&b->save->list));
    return status ? fail(b, status) : OK;
}

/* The copies wait for the computation so far. */
static Status start_copy(Background *b) {
    set_copied(b, false);
    if (!b->copier) return OK;
    TRY(stream_wait(b->copier, b->stream));
    return snapshot_copy(&b->snapshot, b->copier);
}

Status background_begin(Background *b, const char *run_dir, int64_t step, const CheckpointState *state,
                        int keep) {
    if (b->save) return FAILED("internal: a checkpoint is still being saved");
    json_decref(b->progress);
    mem_freep(&b->run_dir);
    b->progress = json_clone_deep(state->progress);
    Status status = b->progress ? str_dup(run_dir, &b->run_dir) : FAILED("out of memory");
    TRY(save_agree(b->mesh, status));
    b->state = *state;
    b->state.progress = b->progress;
    b->step = step;
    b->keep = keep;
    double now = clock_wall();
    b->due_s = now - b->since;
    b->since = now;
    b->niceness = find_niceness(b);
    TRY(open_files(b));
    status = save_agree(b->mesh, start_copy(b));
    if (status) {
        set_copied(b, true); /* nothing will be copied, so nobody may wait for it */
        return fail(b, status);
    }
    start_thread(b, PHASE_WRITE);
    return OK;
}

Status background_retry(Background *b) {
    TRY(open_files(b));
    start_thread(b, PHASE_WRITE);
    return OK;
}

Status background_copied(Background *b) {
    if (!b->copier) {
        wait_copied(b);
        return OK;
    }
    if (b->copied) return OK;
    Status status = stream_sync(b->copier);
    set_copied(b, true);
    return status;
}

int64_t background_pending(const Background *b) {
    return b->save ? b->step : 0;
}

/* A thread that is late pauses first. */
bool background_busy(Background *b) {
    bool late = b->niceness && clock_wall() - b->since > b->due_s / 4;
    if (!b->save || b->phase != PHASE_WRITE || b->collector) return b->busy;
    if (b->busy && late) b->pause = true;
    if (b->busy || b->status || !is_paused(b)) return b->busy;
    status_free(end_thread(b, false));
    b->niceness = 0;
    start_thread(b, PHASE_WRITE);
    return true;
}

/* Exchanges the buffers of all ranks once their threads wait for it, and lets the threads continue. If the
 * ranks have lost each other, the save is over. */
static Status advance_round(Background *b) {
    pthread_mutex_lock(&b->lock);
    while (b->busy) pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    Status status = collector_round(b->collector);
    if (status) collector_abandon(b->collector);
    pthread_mutex_lock(&b->lock);
    b->busy = b->waits;
    b->waits = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (!status) return OK;
    status_free(end_thread(b, false));
    return fail(b, status);
}

Status background_advance(Background *b) {
    if (!b->save) return OK;
    if (b->collector && b->phase == PHASE_WRITE && !collector_over(b->collector)) return advance_round(b);
    Status status = background_copied(b), ended = end_thread(b, !status);
    if (status)
        status_free(ended);
    else
        status = ended;
    status = save_agree(b->mesh, status);
    bool written = b->phase == PHASE_WRITE && !is_alone(b);
    if (!status && written) status = save_list_share_sums(&b->save->list, b->mesh);
    if (status) return fail(b, status);
    if (!written)
        drop_save(b);
    else if (b->save->first)
        start_thread(b, PHASE_PUBLISH);
    else
        b->phase = PHASE_PUBLISH;
    return OK;
}

Status background_wait(Background *b) {
    while (b->save) TRY(background_advance(b));
    return OK;
}

void background_free(Background *b) {
    if (!b) return;
    status_free(background_copied(b));
    pthread_mutex_lock(&b->lock);
    if (!is_alone(b)) b->cancel = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    status_free(end_thread(b, is_alone(b)));
    if (b->save && !is_alone(b)) status_free(ckpt_save_failed(b->save, OK));
    ckpt_save_free(b->save);
    collector_free(b->collector);
    snapshot_done(&b->snapshot);
    stream_free(b->copier);
    json_decref(b->progress);
    free(b->run_dir);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
