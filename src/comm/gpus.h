/* How the ranks of a machine share its GPUs, and what their groups go through. */
#ifndef WEFT_COMM_GPUS_H
#define WEFT_COMM_GPUS_H

#include "comm/group.h"

typedef struct GpuShare {
    int ranks;   /* on this machine */
    int gpus;    /* that they have between them */
    int index;   /* this rank's, as the device is made by */
    int sharing; /* ranks that have the same one */
} GpuShare;

/* Ranks take the GPUs of their machine in turn. Every rank of the world calls it, before the world goes into
 * group_over_gpus. Where there is no GPU, index is 0. */
MUST_USE Status gpus_share(Group *world, GpuShare *ret_share);

/* The ranks of `world` for tensors on their GPUs: over NCCL where every rank has a GPU of its own and the
 * library is there, else through host memory. Takes the world over, unless it fails; the device must live
 * longer. Collective. `note` says which it is and why; empty for one rank. */
enum { GPU_NOTE = 256 };
MUST_USE Status group_over_gpus(Group **ret_group, Group *world, Device *device, const GpuShare *share,
                                char note[GPU_NOTE]);

#endif
