/* How the ranks of one machine share its cores. */
#ifndef WEFT_COMM_CORES_H
#define WEFT_COMM_CORES_H

#include "comm/group.h"

typedef struct CoreShare {
    int ranks;   /* on this machine */
    int cores;   /* that this rank may run on */
    int threads; /* it should compute with: its share of them, and at least one */
    bool bound;  /* it now has cores of its own */
} CoreShare;

/* Every rank of the world calls it. `threads` above 0 is what the rank will use whatever its share. Where a
 * launcher left all ranks on all cores and there are enough, each is bound to cores of its own, neighbours in
 * the machine; threads made later inherit that. Whoever set OpenMP's places or binding is left alone. */
MUST_USE Status cores_share(Group *world, int threads, CoreShare *ret_share);

#endif
