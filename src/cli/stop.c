/* Stopping a command by signal.
 *
 * The handler sets a flag, which long loops check between pieces of work. Setup and other phases may not get
 * to a check for a while; unless steps are waiting to be saved, a timer then ends the process. Files are
 * written under temporary names, so nothing that was complete is lost.
 */
#include "cli/stop.h"

#include <errno.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requested, stop_unsaved;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGUSR1}; /* the launcher forwards SIGUSR1 */

static void set_handlers(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stop_signals / sizeof *stop_signals; i++)
        sigaction(stop_signals[i], &action, NULL);
}

static void end_late(int signal_number) {
    static const char text[] = "\nweft: stopped\n";
    (void)signal_number;
    if (stop_unsaved) return;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(1);
}

static void request_stop(int signal_number) {
    const struct itimerval limit = {.it_value = {.tv_sec = 1, .tv_usec = 700000}};
    int error = errno;
    stop_requested = signal_number;
    set_handlers(SIG_DFL, 0); /* the next signal kills the process */
    if (!stop_unsaved) setitimer(ITIMER_REAL, &limit, NULL);
    errno = error;
}

const volatile sig_atomic_t *stop_catch(int flags) {
    struct sigaction late = {.sa_handler = end_late, .sa_flags = SA_RESTART};
    sigemptyset(&late.sa_mask);
    sigaction(SIGALRM, &late, NULL);
    set_handlers(request_stop, flags);
    return &stop_requested;
}

volatile sig_atomic_t *stop_has_unsaved(void) {
    return &stop_unsaved;
}
