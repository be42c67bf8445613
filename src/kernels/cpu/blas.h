/* The BLAS library, BLIS or OpenBLAS, if the build has one. */
#ifndef WEFT_KERNELS_CPU_BLAS_H
#define WEFT_KERNELS_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* A GEMM operand, row-major with rows `stride` apart. `trans` means that its transpose is multiplied. */
typedef struct GemmOperand {
    const float *data;
    int64_t stride;
    bool trans;
} GemmOperand;

/* Whether the build has a BLAS library. */
bool blas_available(void);
/* c (m,n) = a (m,k) b (k,n) + beta c on this many threads; rows of c are contiguous. Must not be called
 * without a library. */
void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c);

#endif
