/* A build without NCCL. */
#include "comm/nccl.h"

bool nccl_built(void) {
    return false;
}

Status nccl_version(char *text, size_t size) {
    (void)text, (void)size;
    return FAILED("this build has no NCCL support");
}

Status group_new_nccl(Group **ret_group, Group *host, Device *device) {
    (void)ret_group, (void)host, (void)device;
    return FAILED("this build has no NCCL support");
}
