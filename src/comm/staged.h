/* Groups for device memory that the transport cannot access: data is staged through host memory.
 *
 * An operation synchronizes with the stream, copies its tensor to the host and starts there; waiting for it
 * copies the result back. It overlaps device work in between, at the cost of one stream synchronization at
 * its start and one at its end. Works over any group and device.
 */
#ifndef WEFT_COMM_STAGED_H
#define WEFT_COMM_STAGED_H

#include "comm/group.h"

/* A group of the ranks of `host` for tensors on `device`. Owns the host group on success. The device must
 * outlive the group. A group of one is returned unchanged. */
MUST_USE Status group_new_staged(Group **ret_group, Group *host, Device *device);
/* Frees the group, but not the one that it lies over, which is returned. */
Group *group_unstage(Group *group);

#endif
