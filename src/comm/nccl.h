/* Groups over NCCL, for ranks with one GPU each. Host data, and NCCL's unique id, go through the underlying
 * host group. */
#ifndef WEFT_COMM_NCCL_H
#define WEFT_COMM_NCCL_H

#include "comm/group.h"

bool nccl_built(void);
/* Writes the version, for example "2.28.3"; an error says why the library is unavailable. */
MUST_USE Status nccl_version(char *text, size_t size);
/* A group of the ranks of `host` for tensors on their GPUs. Owns the host group on success; on failure the
 * caller keeps it, since it is needed to abort ranks that still wait. The device must outlive the group.
 * Collective. Splits are NCCL groups as well, except groups of one. */
MUST_USE Status group_new_nccl(Group **ret_group, Group *host, Device *device);

#endif
