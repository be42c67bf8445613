/* Linear layers of experts, for grouped.c, which chooses among the kernels.
 *
 * R rows, E experts, K inputs, N outputs */
#ifndef WEFT_KERNELS_CUDA_GROUPED_H
#define WEFT_KERNELS_CUDA_GROUPED_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CudaGroupedKind { GROUPED_FORWARD, GROUPED_INPUT, GROUPED_WEIGHT } CudaGroupedKind;

/* One call. Rows offsets[e] .. offsets[e+1] - 1 belong to expert e; the offsets (E+1) are on the device, and
 * the host does not read them. Other rows are neither read nor written.
 *
 *   GROUPED_FORWARD  out = y (R,N),          a = x (R,K),   b = w (E,N,K)
 *   GROUPED_INPUT    out = dx (R,K),         a = dy (R,N),  b = w (E,N,K)
 *   GROUPED_WEIGHT   out = dw (E,N,K) fp32,  a = dy (R,N),  b = x (R,K)
 *
 * An expert without rows has dw 0. */
typedef struct CudaGrouped {
    CudaGroupedKind kind;
    DType dtype; /* of a and b, and of y and dx */
    void *out;
    const void *a, *b;
    const int32_t *offsets;
    int64_t rows, N, K, E;
    bool accumulate; /* GROUPED_WEIGHT: adds to dw */
} CudaGrouped;

/* grouped.cu: any shape and type. */
cudaError_t launch_grouped(cudaStream_t stream, const CudaGrouped *call);

/* grouped_few.cu: forward of few rows in 16 bits, as in generation. */
bool grouped_few_serves(const CudaGrouped *call);
cudaError_t launch_grouped_few(cudaStream_t stream, const CudaGrouped *call);

#ifdef __cplusplus
}
#endif

#endif
