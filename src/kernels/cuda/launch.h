/* Between the slots, in C, and the device code, in CUDA C++: pointers, sizes, types. Every launcher puts its
 * kernels on the stream and gives back the launch's error. A NULL pointer is a tensor that is none. `type` is
 * the compute type of pointers declared void. */
#ifndef WEFT_KERNELS_CUDA_LAUNCH_H
#define WEFT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See kernels.h; threshold 0: off. */
typedef struct CudaDropout {
    uint32_t threshold;
    float scale;
    RngKey key;
    int64_t origin[3], extent[2];
} CudaDropout;

/* elementwise.cu */
cudaError_t launch_fill(cudaStream_t stream, DType type, void *x, int64_t count, float value);
cudaError_t launch_convert(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_add(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_scale(cudaStream_t stream, DType type, void *y, int64_t count, float factor);

#ifdef __cplusplus
}
#endif

#endif
