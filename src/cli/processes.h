/* The processes below another one. */
#ifndef WEFT_CLI_PROCESSES_H
#define WEFT_CLI_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

/* Sends a signal to the children of a process, or to the process and all below it. Returns the number of
 * children. */
int processes_signal(pid_t parent, int number, bool whole_tree);
/* A child of a process that is in one of these states, letters as in /proc: "T" is stopped, "Z" has ended.
 * 0: none is. */
pid_t processes_in_state(pid_t parent, const char *states);

#endif
