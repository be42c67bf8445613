/* Files that only rank 0 has, for hosts that share no directory.
 *
 * Other ranks read a mirror: a temporary directory with the small files of rank 0's directory and, of each
 * weight file, the header followed by a hole. So everything that reads configurations, tokenizers and the
 * shapes of tensors works on a mirror as it does on the directory itself; only the tensors' values must come
 * through slice_receive. In the other direction, collect.h sends what ranks write to rank 0.
 */
#ifndef WEFT_CHECKPOINT_ROOT_DISK_H
#define WEFT_CHECKPOINT_ROOT_DISK_H

#include "comm/group.h"

typedef struct RootDisk {
    Group *group;   /* all ranks, over host memory */
    Device *device; /* a CPU */
    Stream *stream; /* of the device, for the group's operations */
    Device *own;    /* the device, if it is not the run's */
} RootDisk;

/* Uses the run's device if it is a CPU. Group and device must outlive the disk. */
MUST_USE Status root_disk_new(RootDisk **ret_disk, Group *group, Device *device);
void root_disk_free(RootDisk *disk);
DEFINE_FREEP(RootDisk, root_disk)

typedef struct Mirror {
    char *path; /* on rank 0 the path itself, elsewhere the mirror's; NULL: rank 0 has no such path */
    char *temporary;
} Mirror;

/* Mirrors a directory, or a file and those that belong to it in its directory. `path` counts on rank 0 only.
 * Collective. */
MUST_USE Status mirror_init(Mirror *ret_mirror, const RootDisk *disk, const char *path);
/* Removes the temporary directory; `path` remains. */
void mirror_clear(Mirror *mirror);
void mirror_done(Mirror *mirror);

#endif
