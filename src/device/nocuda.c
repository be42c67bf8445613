/* A build without CUDA. */
#include "device/device.h"
#include "device/registry.h"

void device_cuda_info(CudaInfo *ret_info) {
    *ret_info = (CudaInfo){.built = false};
    snprintf(ret_info->problem, sizeof ret_info->problem, "built without CUDA");
}

int device_cuda_libraries(CudaLibrary ret_library[CUDA_LIBRARIES]) {
    (void)ret_library;
    return 0;
}

Status device_new_cuda(Device **ret_device, int index) {
    (void)ret_device, (void)index;
    return FAILED("no GPU available: this build has no CUDA support; use {device} cpu, or rebuild with CUDA");
}

void device_allow_tf32(Device *device, bool allow) {
    (void)device, (void)allow;
}

Status device_check_precision(const Device *device, const char *name) {
    (void)device, (void)name;
    return OK;
}

int device_oldest_capability(void) {
    return 0;
}
