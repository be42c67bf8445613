/* The matrix library, BLIS or OpenBLAS, behind one function. */
#ifndef WEFT_KERNELS_CPU_BLAS_H
#define WEFT_KERNELS_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* A row-major matrix as a product takes it: with `trans`, its transpose is what is meant. */
typedef struct GemmOperand {
    const float *data;
    int64_t stride; /* elements between rows as stored */
    bool trans;
} GemmOperand;

/* c (m,n) = a (m,k) b (k,n) + beta c, on so many threads. */
void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c, int64_t c_stride);

#endif
