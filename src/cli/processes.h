/* The processes below another one. */
#ifndef WEFT_CLI_PROCESSES_H
#define WEFT_CLI_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

/* Sends a signal to the children of a process, or to the process and all below it. Returns the number of
 * children. */
int processes_signal(pid_t parent, int number, bool whole_tree);

#endif
