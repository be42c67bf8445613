/* The BLAS library, BLIS or OpenBLAS, if the build has one. */
#ifndef WEFT_KERNELS_CPU_BLAS_H
#define WEFT_KERNELS_CPU_BLAS_H

#include "kernels/cpu/gemm.h"

/* Whether the build has a BLAS library. */
bool blas_available(void);
/* The product and sum of a GEMM with fp32 operands on this many threads. Must not be called without a
 * library. */
void blas_gemm(int threads, const Gemm *gemm);

#endif
