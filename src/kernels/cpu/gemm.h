/* Matrix products of any size on the device's threads. */
#ifndef WEFT_KERNELS_CPU_GEMM_H
#define WEFT_KERNELS_CPU_GEMM_H

#include "kernels/cpu/blas.h"
#include "kernels/cpu/micro.h"

/* c (m,n) = a (m,k) b (k,n), plus what c holds with `add`. `finish`, if given, is called by the thread
 * that completed a block of c, while the block is still in its cache. */
typedef struct Gemm {
    int64_t m, n, k;
    GemmOperand a, b;
    float *c; /* rows n apart */
    bool add;
    void (*finish)(const void *context, int64_t row, int64_t col, int64_t rows, int64_t cols);
    const void *context;
} Gemm;

/* Bytes of workspace that gemm_run needs. */
size_t VARIANT(gemm_space)(const Gemm *gemm);
void VARIANT(gemm_run)(const Stream *stream, const Gemm *gemm, void *space);

#define gemm_space VARIANT(gemm_space)
#define gemm_run   VARIANT(gemm_run)

#endif
