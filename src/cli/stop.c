/* Stopping a command by signal.
 *
 * The handler sets a flag, which long loops check between pieces of work. However often signals arrive, they
 * ask for one stop; batch systems send several, and a launcher adds its own. Only two Ctrl-C within 2 s end
 * the process at once.
 *
 * Setup and other phases may not get to a check for a while; unless steps are waiting to be saved, a timer
 * then ends the process. Files are written under temporary names, so nothing that was complete is lost. Ranks
 * other than 0 end later and silently, so that one sentence is printed.
 */
#include "cli/stop.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/mpi.h"
#include "train/train.h"

static volatile sig_atomic_t stop_requested, work_state, orphaned, follower;
static volatile int64_t interrupted_ms; /* time of the last Ctrl-C; 0: none */

static volatile int64_t grace_ms; /* see stop_grace */

enum { AGAIN_MS = 2000, LATE_MS = 1600, FOLLOWER_MS = 1900 };

/* Batch systems announce the end of a job by most of these; the launcher passes SIGUSR1 on. */
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

void stop_handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stop_signals / sizeof *stop_signals; i++) {
        bool ignored = sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (ignored && stop_signals[i] == SIGHUP) continue; /* by nohup */
        sigaction(stop_signals[i], &action, NULL);
    }
}

static void set_timer(int64_t ms) {
    const struct itimerval limit = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &limit, NULL);
}

static void end_late(int signal_number) {
    static const char stopped[] = "\nweft: stopped before there was anything to save\n",
                      saved[] = "\nweft: stopped; add --resume to continue\n";
    (void)signal_number;
    if (stop_requested < 0) { /* the step under way took too long */
        stop_requested = -stop_requested;
        if (work_state != WORK_UNSAVED) set_timer(LATE_MS);
        return;
    }
    if (work_state == WORK_UNSAVED) return;
    bool is_saved = work_state == WORK_SAVED;
    ssize_t written = follower   ? 0
                      : is_saved ? write(STDERR_FILENO, saved, sizeof saved - 1)
                                 : write(STDERR_FILENO, stopped, sizeof stopped - 1);
    (void)written;
    _exit(is_saved ? STATUS_SAVED : STATUS_FAILED);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void request_stop(int signal_number) {
    int error = errno;
    if (signal_number == SIGINT) {
        int64_t now = now_ms();
        if (interrupted_ms && now - interrupted_ms <= AGAIN_MS) {
            signal(SIGINT, SIG_DFL);
            raise(SIGINT); /* delivered when this handler returns */
        }
        interrupted_ms = now;
    }
    if (!stop_requested) {
        bool soft = grace_ms > 0 && signal_number != SIGINT;
        stop_requested = soft ? -signal_number : signal_number;
        if (soft)
            set_timer(grace_ms / 2);
        else if (work_state != WORK_UNSAVED)
            set_timer(follower ? FOLLOWER_MS : LATE_MS);
    }
    errno = error;
}

static void lose_parent(int signal_number) {
    orphaned = 1;
    request_stop(signal_number);
}

const volatile sig_atomic_t *stop_catch(int flags) {
    struct sigaction late = {.sa_handler = end_late, .sa_flags = SA_RESTART};
    sigemptyset(&late.sa_mask);
    sigaction(SIGALRM, &late, NULL);
    follower = mpi_launched().rank > 0;
    stop_handle(request_stop, flags);
    return &stop_requested;
}

void stop_catch_orphaned(void) {
    struct sigaction action = {.sa_handler = lose_parent, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGRTMIN, &action, NULL);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGRTMIN);
}

bool stop_orphaned(void) {
    return orphaned != 0;
}

void stop_release(void) {
    stop_handle(SIG_DFL, 0);
}

void stop_grace(double seconds) {
    grace_ms = (int64_t)(1000 * seconds);
}

volatile sig_atomic_t *stop_work(void) {
    return &work_state;
}
