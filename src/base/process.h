/* Processes of this host: others and this one. */
#ifndef WEFT_BASE_PROCESS_H
#define WEFT_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

#define PROGRAM_SIZE 4096

/* The state of a process by its letter in /proc, such as 'T' for stopped and 'Z' for ended; 0: it is gone, or
 * unknown. ret_parent may be NULL. */
char process_state(pid_t process, pid_t *ret_parent);
/* Whether a thread of this process waits for a disk, as in fsync: uninterruptible sleep, state 'D'. */
bool process_awaits_disk(void);
/* Has a directory removed when this process ends, even if it is killed: a shell waits for the end of a pipe
 * that only this process has open for writing. Without a shell, nothing happens. */
void process_remove_at_end(const char *dir);
/* The path of this program. If an update has replaced its file, that of the new one. */
MUST_USE Status process_program(char ret_path[PROGRAM_SIZE]);

#endif
