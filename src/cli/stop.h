/* Stopping a command by signal; see stop.c. */
#ifndef WEFT_CLI_STOP_H
#define WEFT_CLI_STOP_H

#include <signal.h>
#include <stdbool.h>

/* Catches SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU: the first signal sets the returned flag to
 * its number. If the command has nothing to save and has not ended 1.6 s later, the process exits. Ctrl-C
 * pressed again, at least 1 s later, kills it. `flags`: SA_RESTART, or 0 if the signal should interrupt
 * system calls. */
const volatile sig_atomic_t *stop_catch(int flags);
/* Sets a handler for the signals that stop_catch catches. SIGHUP stays ignored if the parent ignores it, as
 * nohup does. */
void stop_handle(void (*handler)(int), int flags);
/* How long after a signal other than Ctrl-C the job lasts: the step under way has half of it to finish before
 * it is abandoned. 0, the default: it is abandoned at once. */
void stop_grace(double seconds);
/* A line to print, "\nweft: ...\n", if saving takes more than 1 s after a signal other than Ctrl-C. It is
 * not copied. */
void stop_save_notice(const char *text);
/* Notes a Ctrl-C. True if it is the second: at least 1 s after the last one, whose time is *last; 0: none. */
bool stop_insists(volatile double *last);
#define STOP_AT_ONCE "stopped at once; steps after the newest checkpoint are lost"
/* Set by training to a WorkState. While it is WORK_UNSAVED, the command ends by itself. */
volatile sig_atomic_t *stop_work(void);
/* The death of the parent process, the launcher, also asks for a stop. stop_orphaned: it has died, so nobody
 * reads what this process prints. */
void stop_catch_orphaned(void);
bool stop_orphaned(void);
/* After a failure: signals kill the process again. */
void stop_release(void);

#endif
