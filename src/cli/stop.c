/* The one thing a signal handler may do is set a flag; the run looks at it between steps. */
#include "cli/train_options.h"

static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
}

const volatile sig_atomic_t *stop_catch(void) {
    struct sigaction action = {.sa_handler = ask_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* what a launcher hands on */
    return &stop_asked;
}
