/* Groups over NCCL: for ranks that each have a GPU of their own. What is said in host memory goes through the
 * group they are made from, and so does the id that NCCL's ranks meet by. */
#ifndef WEFT_COMM_NCCL_H
#define WEFT_COMM_NCCL_H

#include "comm/group.h"

bool nccl_built(void);
/* Whether the library is there: "2.28.3", or the reason why it is not. */
MUST_USE Status nccl_version(char *text, size_t size);
/* The ranks of `host`, for tensors on their GPUs. Takes the host group over, unless it fails: other ranks may
 * then still wait, and only the host group can end them. The device must live longer. Collective. Groups
 * split from it are NCCL's too, those of one rank excepted. */
MUST_USE Status group_new_nccl(Group **ret_group, Group *host, Device *device);

#endif
