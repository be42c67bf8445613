/* Stopping a command by signal.
 *
 * The handler sets a flag, which long loops check between pieces of work. However often signals arrive, they
 * ask for one stop; batch systems send several, and a launcher adds its own. Only Ctrl-C pressed again ends
 * the process at once. Wrappers such as timeout forward what the terminal has already sent, so signals closer
 * than a second are one.
 *
 * Setup and other phases may not get to a check for a while; unless steps are waiting to be saved, a timer
 * then ends the process. If they are, it prints what the user may want to know while it lasts. Files are
 * written under temporary names, so nothing that was complete is lost. Ranks other than 0 end later and
 * silently, so that one sentence is printed.
 */
#include "cli/stop.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/mpi.h"
#include "train/train.h"

static volatile sig_atomic_t stop_requested, work_state, orphaned, follower;
static volatile double interrupted; /* see stop_insists */
static volatile sig_atomic_t saves; /* the timer waits for a save */

static volatile int64_t grace_ms;        /* see stop_grace */
static const char *volatile save_notice; /* see stop_save_notice */

static const double again_s = 1;
enum { LATE_MS = 1600, FOLLOWER_MS = 1900, SAVE_MS = 1000 };

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

/* Prints a text in a signal handler, on rank 0. */
static void say(const char *text) {
    ssize_t written = follower ? 0 : write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void end_late(int signal_number) {
    (void)signal_number;
    if (saves) {
        if (work_state == WORK_UNSAVED && save_notice) say(save_notice);
        return;
    }
    if (stop_requested < 0) { /* the step under way took too long */
        stop_requested = -stop_requested;
        if (work_state != WORK_UNSAVED) set_timer(LATE_MS);
        return;
    }
    if (work_state == WORK_UNSAVED) return;
    bool is_saved = work_state == WORK_SAVED;
    say(is_saved ? "\nweft: stopped; add --resume to continue\n"
                 : "\nweft: stopped before there was anything to save\n");
    _exit(is_saved ? STATUS_SAVED : STATUS_FAILED);
}

bool stop_insists(volatile double *last) {
    double now = clock_wall();
    bool again = *last > 0 && now - *last >= again_s;
    *last = now;
    return again;
}

/* What rank 0 says if saving takes a while. */
static void await_save(int signal_number) {
    if (signal_number == SIGINT)
        save_notice = "\nweft: stopping takes a while; press Ctrl-C again to end at once, without saving\n";
    saves = 1;
    set_timer(SAVE_MS);
}

static void request_stop(int signal_number) {
    int error = errno;
    if (signal_number == SIGINT && stop_insists(&interrupted)) {
        say("\nweft: " STOP_AT_ONCE "\n");
        signal(SIGINT, SIG_DFL);
        raise(SIGINT); /* delivered when this handler returns */
    }
    if (!stop_requested) {
        bool soft = grace_ms > 0 && signal_number != SIGINT;
        stop_requested = soft ? -signal_number : signal_number;
        if (soft)
            set_timer(grace_ms / 2);
        else if (work_state == WORK_UNSAVED)
            await_save(signal_number);
        else
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

void stop_save_notice(const char *text) {
    save_notice = text;
}

volatile sig_atomic_t *stop_work(void) {
    return &work_state;
}
