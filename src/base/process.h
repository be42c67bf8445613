/* Other processes of this host. */
#ifndef WEFT_BASE_PROCESS_H
#define WEFT_BASE_PROCESS_H

#include <sys/types.h>

/* The state of a process by its letter in /proc, such as 'T' for stopped and 'Z' for ended; 0: it is gone, or
 * unknown. ret_parent may be NULL. */
char process_state(pid_t process, pid_t *ret_parent);

#endif
