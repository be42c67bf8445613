/* Divides a host's cores among its ranks. */
#ifndef WEFT_COMM_CORES_H
#define WEFT_COMM_CORES_H

#include "comm/group.h"

typedef struct CoreShare {
    int ranks;   /* on this host */
    int cores;   /* that this rank may use */
    int threads; /* compute threads: this rank's share of the cores, at least 1 */
    bool bound;  /* the rank is now pinned to its own cores */
} CoreShare;

/* Set by a launcher that leaves pinning to the ranks. */
#define CORES_PIN "WEFT_PIN"

/* Collective over the world. `threads` > 0 overrides the share. If the launcher did not bind ranks and there
 * are enough cores that no other job has pinned, each rank is pinned to adjacent cores of its own, and
 * threads created later inherit the binding. Does not pin if OpenMP affinity is configured in the
 * environment, or if the user started mpirun with --bind-to none. Once per process. */
MUST_USE Status cores_share(Group *world, int threads, CoreShare *ret_share);

#endif
