/* Stopping a command by signal; see stop.c. */
#ifndef WEFT_CLI_STOP_H
#define WEFT_CLI_STOP_H

#include <signal.h>

/* Catches SIGINT, SIGTERM and SIGUSR1: the first signal sets the returned flag, the second kills the process.
 * If the command has not ended 1.7 s after the first, the process exits. `flags`: SA_RESTART, or 0 if the
 * signal should interrupt system calls. */
const volatile sig_atomic_t *stop_catch(int flags);
/* Nonzero, as set by training, while a checkpoint has yet to be written: then the command ends by itself. */
volatile sig_atomic_t *stop_has_unsaved(void);

#endif
