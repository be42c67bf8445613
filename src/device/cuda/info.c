/* What CUDA finds on this machine, without taking any of it. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "device/registry.h"

void device_cuda_info(CudaInfo *ret_info) {
    CudaInfo info = {.built = true};
    cudaRuntimeGetVersion(&info.runtime);
    cudaDriverGetVersion(&info.driver);
    cudaError_t error = cudaGetDeviceCount(&info.devices);
    if (error != cudaSuccess) {
        info.devices = 0;
        snprintf(info.problem, sizeof info.problem, "%s",
                 info.driver ? cudaGetErrorString(error) : "there is no NVIDIA driver");
    }
    for (int i = 0; i < info.devices && i < CUDA_DEVICES_SHOWN; i++) {
        struct cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
        snprintf(info.device[i].name, sizeof info.device[i].name, "%.63s", properties.name);
        info.device[i].memory = properties.totalGlobalMem;
        info.device[i].capability = properties.major * 10 + properties.minor;
        info.device[i].processors = properties.multiProcessorCount;
    }
    *ret_info = info;
}
