/* Stopping a run by signal: the handler sets a flag, which the run checks between steps. */
#include "cli/train_options.h"

static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    stop_requested = signal_number;
}

const volatile sig_atomic_t *stop_catch(void) {
    struct sigaction action = {.sa_handler = request_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* forwarded by the launcher */
    return &stop_requested;
}
