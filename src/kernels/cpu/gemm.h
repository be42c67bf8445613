/* fp32 GEMM of any size on the device's threads. */
#ifndef WEFT_KERNELS_CPU_GEMM_H
#define WEFT_KERNELS_CPU_GEMM_H

#include "kernels/cpu/blas.h"
#include "kernels/cpu/micro.h"

/* c (m,n) [+]= a (m,k) b (k,n); `add` selects accumulation. The epilogue `finish`, if not NULL, is called
 * by the thread that completed a block of c, while the block is still in its cache. */
typedef struct Gemm {
    int64_t m, n, k;
    GemmOperand a, b;
    float *c; /* contiguous */
    bool add;
    void (*finish)(const void *context, int64_t row, int64_t col, int64_t rows, int64_t cols);
    const void *context;
} Gemm;

/* Bytes of workspace that gemm_run needs. It may be 0. */
size_t VARIANT(gemm_workspace_bytes)(const Stream *stream, const Gemm *gemm);
void VARIANT(gemm_run)(const Stream *stream, const Gemm *gemm, void *workspace);

#define gemm_workspace_bytes VARIANT(gemm_workspace_bytes)
#define gemm_run             VARIANT(gemm_run)

#endif
