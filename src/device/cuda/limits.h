/* What kernels are chosen by on a GPU, for C and device code. */
#ifndef WEFT_DEVICE_CUDA_LIMITS_H
#define WEFT_DEVICE_CUDA_LIMITS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaLimits {
    int capability;       /* of the GPU, or of the code that runs on it if that is older; 90 is 9.0 */
    size_t shared_memory; /* maximum bytes per thread block */
} CudaLimits;

/* Of the thread's current device; zeros if it has not been opened. */
CudaLimits cuda_limits(void);
/* code.cu: what this program's code for the current device was compiled for; an error if there is none. */
cudaError_t cuda_code_capability(int *ret_capability);

#ifdef __cplusplus
}
#endif

#endif
