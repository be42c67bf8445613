// What this program's device code was compiled for, where it can run at all.
extern "C" {
#include "device/cuda/cuda.h"
}

__global__ static void nothing() {}

cudaError_t cuda_code_capability(int *ret_capability) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, nothing);
    *ret_capability = error == cudaSuccess ? attributes.ptxVersion : 0;
    return error;
}
