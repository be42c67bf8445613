/* Assigns a host's GPUs to its ranks and selects the transport of their groups. */
#ifndef WEFT_COMM_GPUS_H
#define WEFT_COMM_GPUS_H

#include "comm/group.h"

typedef struct GpuShare {
    int ranks;   /* on this host */
    int gpus;    /* visible to these ranks */
    int index;   /* this rank's GPU, for device_new */
    int sharing; /* number of ranks on the same GPU */
} GpuShare;

/* Assigns GPUs round-robin. Collective over the world; call it before group_over_gpus takes ownership of the
 * world. Without a GPU, index is 0. */
MUST_USE Status gpus_share(Group *world, GpuShare *ret_share);

/* A group of the ranks of `world` for tensors on their GPUs: NCCL if every rank has its own GPU and the
 * library is available, otherwise staged through host memory. Owns `world` on success; the device must
 * outlive the group. Collective. `note` describes the choice; empty for one rank. */
enum { GPU_NOTE = 256 };
MUST_USE Status group_over_gpus(Group **ret_group, Group *world, Device *device, const GpuShare *share,
                                char note[GPU_NOTE]);

#endif
