/* Groups over a device whose memory the ranks cannot reach: what they exchange passes through host memory.
 *
 * An operation waits for the stream's work, copies its tensor to the host and starts there; waiting for it
 * copies the result back. So it overlaps with what the device does in between, at the cost of one stop of the
 * stream at its start and another at its end. Works over any group and device.
 */
#ifndef WEFT_COMM_STAGED_H
#define WEFT_COMM_STAGED_H

#include "comm/group.h"

/* The ranks of `host`, for tensors on `device`. Takes the host group over, unless it fails; both the
 * device and whoever still uses the host group's splits must live longer. A group of one stays what it is. */
MUST_USE Status group_new_staged(Group **ret_group, Group *host, Device *device);

#endif
