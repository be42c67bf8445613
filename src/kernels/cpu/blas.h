/* The matrix library, BLIS or OpenBLAS, where the build has one. */
#ifndef WEFT_KERNELS_CPU_BLAS_H
#define WEFT_KERNELS_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* A matrix as a product takes it: rows `stride` apart; with `trans` its transpose is what is meant. */
typedef struct GemmOperand {
    const float *data;
    int64_t stride;
    bool trans;
} GemmOperand;

/* Whether the build has a library. */
bool blas_there(void);
/* c (m,n) = a (m,k) b (k,n) + beta c, rows of c n apart, on so many threads; nothing without a library. */
void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c);

#endif
