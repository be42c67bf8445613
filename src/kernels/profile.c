#include "kernels/profile.h"

static const KernelInfo infos[KERNEL_COUNT] = {
#define KERNEL(id, name, phase, work, launches, ...)                                                         \
    [KERNEL_##id] = {#name, KERNEL_PHASE_##phase, KERNEL_WORK_##work, launches},
#include "kernels/ops.def"
};

const KernelInfo *kernel_info(KernelId id) {
    return &infos[id];
}
