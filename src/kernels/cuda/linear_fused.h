/* linear_fused.cu: linear layers of few rows, together with what surrounds them in generation. */
#ifndef WEFT_KERNELS_CUDA_LINEAR_FUSED_H
#define WEFT_KERNELS_CUDA_LINEAR_FUSED_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_FUSED_ROWS = 16 };

/* y (rows,cols) = res + act(norm(x (rows,inner)) w^T + bias); see linear_fused_forward of ops.def. */
typedef struct CudaFused {
    int rows, cols, inner;
    DType type; /* of x, y, bias, gamma, beta and res: bf16 or fp16 */
    const void *x;
    void *y;
    const void *bias, *res; /* may be NULL */
    Act act;
    bool gated; /* w and bias have 2 * cols rows: gate, then up */
    /* Norm of x; gamma is NULL: none, beta is NULL: RMS norm. */
    const void *gamma, *beta;
    float eps;
    /* Weights: 16 bits, of `type`, (cols,inner); or int8 or int4 panels as in kernels/int8.h. */
    int bits;
    const void *w;
    const float *scale, *factor; /* int8 and int4; factor may be NULL */
    bool streamed;               /* by linear_stream.cu, if its shared memory suffices */
} CudaFused;

/* Whether the sizes and addresses allow it on the current device. */
bool linear_fused_runs(const CudaFused *call);
cudaError_t launch_linear_fused(cudaStream_t stream, const CudaFused *call);

/* linear_stream.cu: the same for large layers. `shared`: the most shared memory that a block can have. */
bool linear_stream_runs(const CudaFused *call, int shared);
cudaError_t launch_linear_stream(cudaStream_t stream, const CudaFused *call, int shared);

#ifdef __cplusplus
}
#endif

#endif
