#include "device/registry.h"

#include <stdio.h>

#ifdef WEFT_CUDA
void cuda_info_probe(CudaInfo *ret_info); /* device/cuda/probe.c */
#else
static void cuda_info_probe(CudaInfo *ret_info) {
    *ret_info = (CudaInfo){.built = false};
    snprintf(ret_info->problem, sizeof ret_info->problem, "built without CUDA");
}
#endif

void device_cuda_info(CudaInfo *ret_info) {
    cuda_info_probe(ret_info);
}
