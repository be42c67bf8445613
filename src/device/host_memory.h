/* The memory that this host and its limits leave to a run. */
#ifndef WEFT_DEVICE_HOST_MEMORY_H
#define WEFT_DEVICE_HOST_MEMORY_H

#include <stddef.h>

typedef struct HostMemory {
    size_t host;    /* for all processes of the run on this host together: available memory and swap, and the
                     * room in each cgroup of this process; 0: unknown */
    size_t process; /* left to this process by `ulimit -v`; SIZE_MAX: no limit */
} HostMemory;

/* Reads ROOT/proc and ROOT/sys/fs/cgroup; `root` is "" except in tests. */
HostMemory host_memory(const char *root);

#endif
