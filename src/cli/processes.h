/* The processes below another one. */
#ifndef WEFT_CLI_PROCESSES_H
#define WEFT_CLI_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

/* Sends a signal to all processes below another one that have not ended, or only to those that run this
 * program. Returns their number; with signal 0 they are only counted. */
int processes_signal(pid_t parent, int number, bool own);
/* A child of a process that is in one of these states, letters as in /proc: "T" is stopped, "Z" has ended.
 * 0: none is. */
pid_t processes_in_state(pid_t parent, const char *states);

#endif
