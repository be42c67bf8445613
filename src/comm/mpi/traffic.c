/* Progress of operations: the list of operations in flight, the progress thread, waiting, and failure
 * handling.
 *
 * A waiting caller first spins, then yields the core between polls, then sleeps between polls: ranks may
 * share cores, and the rank being waited for needs them more. The progress thread always sleeps after a poll
 * without progress and pauses while a caller waits.
 *
 * A failing rank sends a note to all others. Ranks that fail at about the same time see each other's notes
 * while they listen, and the lowest one reports.
 */
#include "comm/mpi/traffic.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

enum { SPINS = 32, LOOKS_PER_NOTE = 16, SLEEP_US = 20, SLEEP_US_MOST = 400, SLACK_NS = 1000, NOTE_MS = 100 };
static const double yield_s = 1e-3;   /* time spent yielding before sleeping */
static const double listen_s = 0.3;   /* time to listen for other failures */
static const double give_way_s = 5.0; /* time granted to the rank that reports */
static const double blocked_s = 4.0;  /* a caller that has not reported a failure by then is blocked */

static void sleep_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* Backoff of a caller whose polls find nothing. */
typedef struct Pause {
    int looks;
    double since;
    long us;
} Pause;

static void pause_sleep(Pause *pause) {
    pause->us = pause->us ? pause->us * 2 : SLEEP_US;
    if (pause->us > SLEEP_US_MOST) pause->us = SLEEP_US_MOST;
    sleep_us(pause->us);
}

static void pause_caller(Pause *pause) {
    if (pause->looks++ < SPINS) return;
    if (pause->since == 0) pause->since = clock_wall();
    if (clock_wall() - pause->since < yield_s)
        sched_yield();
    else
        pause_sleep(pause);
}

Status mpi_status(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return OK;
    MPI_Error_string(code, text, &length);
    return FAILED("MPI: %s: %s", what, text);
}

static bool traffic_healthy(const Traffic *traffic) {
    return !traffic->error && !traffic->dropped && !traffic->watchdog.timed_out && traffic->failed_rank < 0;
}

/* Whether this rank gives up the current section; tells the others if it is the first. The lock is held. */
static bool abandons(Traffic *traffic) {
    if (!traffic->in_section) return false;
    if (traffic->abandoned == traffic->section) return true;
    if (traffic->voted || !traffic->stop || *traffic->stop <= 0) return false;
    traffic->abandoned = traffic->section;
    notes_send(traffic, NOTE_ABANDON, traffic->section);
    return true;
}

/* Steps an operation; true if it made progress. */
static bool op_look(Traffic *traffic, Op *op) {
    bool moved = op->step(traffic, op);
    if (op->done && op->trace)
        trace_add_numbers(op->trace, TRACE_COMM, op->label.name, op->started_ns, trace_now(),
                          op->label.number);
    return moved;
}

/* Handles all notes that have arrived: when many ranks ask at once, each of them expects an answer within
 * seconds. The lock is held. */
static void take_notes(Traffic *traffic) {
    while (notes_take(traffic)) continue;
}

/* Polls all operations once. The lock is held. */
static bool traffic_look(Traffic *traffic) {
    bool moved = false;
    for (Op *op = traffic->first; op; op = op->next) {
        if (op->done) continue;
        moved |= op_look(traffic, op);
        if (op->done) traffic->active--;
    }
    if (!moved && ++traffic->idle_looks % LOOKS_PER_NOTE == 0) take_notes(traffic);
    return moved;
}

/* Waits for work; reads notes meanwhile, unless a caller waits and thus does. The lock is held. */
static void wait_idle(Traffic *traffic) {
    struct timespec until = clock_after(1e-3 * NOTE_MS);
    pthread_cond_timedwait(&traffic->wake, &traffic->lock, &until);
    if (traffic->waiting == 0 && !traffic->quitting && traffic_healthy(traffic)) take_notes(traffic);
}

/* What has failed, for a report. */
static const char *failure_text(const Traffic *traffic, char text[64]) {
    if (traffic->overdue) return traffic->overdue;
    snprintf(text, 64, traffic->failed_rank >= 0 ? "rank %d failed" : "communication failed",
             traffic->failed_rank);
    return text;
}

/* Watches what the device waits for: the caller may be blocked by it. A caller that waits for other ranks is
 * watched as such. The lock is held. */
static void look_at_device(Traffic *traffic) {
    DeviceWait wait = {0};
    if (!traffic->device.look || traffic->waiting > 0 || !traffic_healthy(traffic)) return;
    traffic->device.look(traffic->device.context, &wait);
    bool same = wait.waits == traffic->device_wait.waits && wait.number == traffic->device_wait.number &&
                wait.what == traffic->device_wait.what;
    traffic->device_wait = wait;
    if (wait.error) {
        traffic->overdue = strdup(wait.error);
        traffic->watchdog.timed_out = true;
    } else if (!same) {
        watchdog_begin(traffic, NULL, &traffic->device_watched);
        traffic->watchdog.beats++;
    } else if (wait.waits) {
        watchdog_look(traffic, &traffic->device_watched);
    }
}

/* Looks at the device from time to time, and after a failure reports it if the caller does not: it is then
 * blocked. The lock is held; reporting keeps it. */
static void mind_device(Traffic *traffic) {
    double now = clock_wall();
    if (!traffic->device.look || now - traffic->device_looked < 1e-3 * NOTE_MS) return;
    traffic->device_looked = now;
    look_at_device(traffic);
    if (traffic_healthy(traffic)) return;
    if (traffic->failed_at == 0) traffic->failed_at = now;
    if (now - traffic->failed_at < blocked_s || !traffic->watchdog.give_up) return;
    char text[64];
    void (*give_up)(void *, const char *) = traffic->watchdog.give_up;
    traffic->watchdog.give_up = NULL;
    pthread_mutex_unlock(&traffic->lock);
    give_up(traffic->watchdog.context, failure_text(traffic, text));
    pthread_mutex_lock(&traffic->lock);
}

static void *traffic_thread(void *argument) {
    Traffic *traffic = argument;
    Pause pause = {0};
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    pthread_mutex_lock(&traffic->lock);
    while (!traffic->quitting) {
        mind_device(traffic);
        if (traffic->active == 0 || traffic->waiting > 0 || !traffic_healthy(traffic)) {
            wait_idle(traffic);
            pause = (Pause){0};
            continue;
        }
        bool moved = traffic_look(traffic);
        pthread_mutex_unlock(&traffic->lock);
        if (moved) {
            pause = (Pause){0};
            sched_yield(); /* let a waiting caller take the lock */
        } else {
            pause_sleep(&pause);
        }
        pthread_mutex_lock(&traffic->lock);
    }
    pthread_mutex_unlock(&traffic->lock);
    return NULL;
}

/* The thread blocks all signals. If it cannot be created, everything still works, with less overlap. */
static void start_thread(Traffic *traffic) {
    sigset_t all, before;
    traffic->may_thread = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    traffic->threaded = pthread_create(&traffic->thread, NULL, traffic_thread, traffic) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

Status traffic_new(Traffic **ret_engine, MPI_Comm world, bool threaded) {
    Traffic *traffic = NULL;
    TRY(mem_new(1, sizeof *traffic, &traffic));
    pthread_mutex_init(&traffic->lock, NULL);
    clock_cond_init(&traffic->wake);
    traffic->failed_rank = -1;
    traffic->control = MPI_COMM_NULL;
    traffic->note_request = MPI_REQUEST_NULL;
    int code = MPI_Comm_dup(world, &traffic->control);
    if (!code) code = MPI_Comm_set_errhandler(traffic->control, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_rank(world, &traffic->rank);
    if (!code) code = MPI_Comm_size(world, &traffic->size);
    if (!code) code = watchdog_new(traffic);
    if (!code) code = notes_listen(traffic);
    if (code) {
        traffic_free(traffic);
        return mpi_status(code, "cannot connect the ranks");
    }
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    traffic->may_thread = threaded;
    *ret_engine = traffic;
    return OK;
}

void traffic_free(Traffic *traffic) {
    if (!traffic) return;
    if (traffic->threaded) {
        pthread_mutex_lock(&traffic->lock);
        traffic->quitting = true;
        pthread_cond_signal(&traffic->wake);
        pthread_mutex_unlock(&traffic->lock);
        pthread_join(traffic->thread, NULL);
    }
    notes_free(traffic);
    watchdog_free(traffic);
    /* After a failure, memory is leaked on purpose: MPI or another rank may still access it. */
    if (traffic->control != MPI_COMM_NULL) MPI_Comm_free(&traffic->control);
    pthread_cond_destroy(&traffic->wake);
    pthread_mutex_destroy(&traffic->lock);
    free(traffic);
}

static Status traffic_outcome(Traffic *traffic) {
    if (traffic->watchdog.timed_out)
        return FAILED("%s", traffic->overdue ? traffic->overdue : "a wait timed out");
    if (traffic->failed_rank >= 0) return FAILED("rank %d failed", traffic->failed_rank);
    if (traffic->error) return mpi_status(traffic->error, "communication between ranks failed");
    if (traffic->dropped) return FAILED("internal: communication after a failure");
    return abandons(traffic) ? STOPPED("stopped by a signal") : OK;
}

Status traffic_start(Traffic *traffic, Op *op, Ticket *ret_ticket) {
    HOLD(traffic);
    Status status = traffic_outcome(traffic);
    if (status) {
        op_free(op);
        return status;
    }
    op->number = ++traffic->numbers;
    if (traffic->last)
        traffic->last->next = op;
    else
        traffic->first = op;
    traffic->last = op;
    op->label = op->group->label;
    op->trace = op->label.name ? op->group->trace : NULL;
    if (op->trace) op->started_ns = trace_now();
    op_look(traffic, op);
    if (!op->done) {
        if (traffic->may_thread) start_thread(traffic);
        if (traffic->active++ == 0) pthread_cond_signal(&traffic->wake);
    }
    *ret_ticket = (Ticket){.group = op->group, .number = op->number};
    return OK;
}

/* Unlinks the operation. */
static Op *traffic_take(Traffic *traffic, Op *before, Op *op) {
    if (before)
        before->next = op->next;
    else
        traffic->first = op->next;
    if (traffic->last == op) traffic->last = before;
    return op;
}

static Op *traffic_find(const Traffic *traffic, uint64_t number, Op **ret_before) {
    Op *op = traffic->first;
    *ret_before = NULL;
    while (op && op->number != number) {
        *ret_before = op;
        op = op->next;
    }
    return op;
}

/* Waits until the operation is done or has failed. The lock is held. */
static void drive(Traffic *traffic, const Op *op) {
    Pause pause = {0};
    WatchedWait wait;
    traffic->waiting++;
    watchdog_begin(traffic, op, &wait);
    traffic->device_wait = (DeviceWait){0};
    while (!op->done && traffic_healthy(traffic) && !abandons(traffic)) {
        if (traffic_look(traffic)) {
            pause = (Pause){0};
            continue;
        }
        pthread_mutex_unlock(&traffic->lock);
        pause_caller(&pause);
        pthread_mutex_lock(&traffic->lock);
        if (pause.us == SLEEP_US_MOST) watchdog_look(traffic, &wait);
    }
    watchdog_end(traffic);
    traffic->waiting--;
    if (traffic->active > 0) pthread_cond_signal(&traffic->wake);
}

/* Posted requests cannot be canceled, so their memory must stay valid. */
static void keep_memory(const Traffic *traffic) {
    for (const Op *op = traffic->first; op; op = op->next)
        if (!op->done && op->device) op->device->keep = true;
}

Status traffic_wait(Traffic *traffic, uint64_t number) {
    Op *before, *op;
    Status status = OK;
    pthread_mutex_lock(&traffic->lock);
    op = traffic_find(traffic, number, &before);
    if (op) drive(traffic, op);
    /* Unfinished operations stay in the list, since MPI may still access them. */
    if (!op) {
        status = FAILED("internal: ticket waited for twice");
    } else if (op->done) {
        traffic_find(traffic, number, &before);
        traffic_take(traffic, before, op);
    } else {
        status = traffic_outcome(traffic);
        keep_memory(traffic);
        op = NULL;
    }
    pthread_mutex_unlock(&traffic->lock);
    op_free(op);
    return status;
}

bool traffic_failed(Traffic *traffic) {
    HOLD(traffic);
    return !traffic_healthy(traffic);
}

bool traffic_busy(Traffic *traffic) {
    HOLD(traffic);
    return traffic->active > 0;
}

void traffic_finish_group(Traffic *traffic, Group *group) {
    for (;;) {
        pthread_mutex_lock(&traffic->lock);
        Op *op = traffic->first;
        while (op && op->group != group) op = op->next;
        uint64_t number = op ? op->number : 0;
        pthread_mutex_unlock(&traffic->lock);
        if (!op) return;
        CLEANUP(status_freep) Status status = traffic_wait(traffic, number);
        if (status) return;
    }
}

static Traffic *traffic_of(const Group *group) {
    return ((const MpiGroup *)group->impl)->traffic;
}

void traffic_drop(Group *group) {
    Traffic *traffic = traffic_of(group);
    HOLD(traffic);
    if (traffic->active == 0) return;
    traffic->dropped = true;
    keep_memory(traffic);
}

void traffic_section(Group *group, SectionStage stage, const volatile sig_atomic_t *stop) {
    Traffic *traffic = traffic_of(group);
    HOLD(traffic);
    if (stage == SECTION_BEGIN) traffic->section++;
    traffic->in_section = stage != SECTION_END;
    traffic->voted = stage == SECTION_VOTE;
    traffic->stop = stop;
}

bool traffic_abandons(Group *group) {
    Traffic *traffic = traffic_of(group);
    HOLD(traffic);
    traffic->watchdog.beats++;
    return abandons(traffic);
}

/* Waits for all ranks, as long as the watchdog allows, to duplicate a communicator. */
static Status duplicate(Traffic *traffic, MPI_Comm old, MPI_Comm *ret_comm) {
    double start = clock_wall(), limit = traffic->watchdog.limit_s;
    MPI_Request request;
    int done = 0, code = MPI_Comm_idup(old, ret_comm, &request);
    while (!code && !done) {
        code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) break;
        if (limit > 0 && clock_wall() - start > limit)
            return FAILED("the ranks have not met again for %.0f s after a request to stop ({timeout})",
                          limit);
        sleep_us(1000);
    }
    if (!code) code = MPI_Comm_set_errhandler(*ret_comm, MPI_ERRORS_RETURN);
    return mpi_status(code, "cannot reconnect the ranks");
}

void traffic_forget(Traffic *traffic) {
    HOLD(traffic);
    keep_memory(traffic);
    traffic->first = traffic->last = NULL; /* leaked, like their memory */
    traffic->active = 0;
    traffic->in_section = false;
}

Status traffic_reconnect(Traffic *traffic, MPI_Comm old, MPI_Comm *ret_comm) {
    HOLD(traffic);
    return duplicate(traffic, old, ret_comm);
}

void traffic_watch_device(Group *group, const DeviceWatch *watch) {
    Traffic *traffic = traffic_of(group);
    HOLD(traffic);
    traffic->device = *watch;
    traffic->device_wait = (DeviceWait){0};
    if (watch->look && traffic->may_thread) start_thread(traffic);
}

Status traffic_wait_more(Group *group) {
    Traffic *traffic = traffic_of(group);
    HOLD(traffic);
    take_notes(traffic);
    look_at_device(traffic);
    return traffic_outcome(traffic);
}

/* Notifies all others and listens for other failures. False if a lower rank has failed. */
static bool exchange_notes(Traffic *traffic) {
    double start = clock_wall();
    notes_send(traffic, NOTE_FAILED, 0);
    while (clock_wall() - start < listen_s)
        if (!notes_take(traffic)) sleep_us(1000);
    return traffic->failed_rank < 0 || traffic->failed_rank > traffic->rank;
}

bool traffic_claim(Group *group) {
    Traffic *traffic = traffic_of(group);
    pthread_mutex_lock(&traffic->lock);
    traffic->dropped = true; /* keep the lock: from here on, only this thread calls MPI */
    for (int i = 0; i < LOOKS_PER_NOTE; i++) notes_take(traffic);
    if (traffic->failed_rank < 0 && exchange_notes(traffic)) return true;
    /* The reporting rank aborts this one. If it does not, report after all. */
    double start = clock_wall();
    while (clock_wall() - start < give_way_s)
        if (!notes_take(traffic)) sleep_us(1000);
    return true;
}
