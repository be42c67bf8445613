/* norm_fp8.cu: norms with results in fp8. */
#ifndef WEFT_KERNELS_CUDA_NORM_FP8_H
#define WEFT_KERNELS_CUDA_NORM_FP8_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows and C must be as norm_fp8_supports says, and pointers 16-byte aligned. */
typedef struct CudaNormFp8 {
    void *plain, *transposed; /* (rows,C) and (C,rows) e4m3 */
    void *y;                  /* (rows,C) bf16, the norm before quantization; may be NULL */
    void *sum;                /* (rows,C) bf16: res + dropout(x); not used without x */
    float *mean, *rstd;       /* mean: not used without beta */
    const void *res, *x;      /* x may be NULL */
    const void *gamma, *beta; /* beta is NULL: RMS norm */
    int64_t rows, C;
    float eps;
    int64_t positions; /* rows per sequence */
    CudaDropout dropout;
    const float *given; /* the scale */
    float *scale;       /* receives it */
    float *record;      /* becomes at least the amax of y; may be NULL */
} CudaNormFp8;
cudaError_t launch_norm_fp8(cudaStream_t stream, const CudaNormFp8 *norm);

#ifdef __cplusplus
}
#endif

#endif
