/* GEMM through the native interface of BLIS, which accepts 64-bit sizes and the number of threads per call,
 * or through the CBLAS interface of OpenBLAS, whose sizes are ints and whose number of threads is global.
 * Larger dimensions are split into several calls. cmake/FindBlas.cmake decides which library is used, if
 * any. */
#include "kernels/cpu/blas.h"

#include "kernels/kernels.h"

#if defined(WEFT_BLAS_BLIS)
#include <blis.h>

bool blas_available(void) {
    return true;
}

const char *kernels_cpu_blas(void) {
    static char text[64];
    snprintf(text, sizeof text, "BLIS %s", bli_info_get_version_str());
    return text;
}

void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c) {
    float one = 1.0f;
    rntm_t runtime;
    bli_rntm_init(&runtime);
    bli_rntm_set_num_threads(threads, &runtime);
    bli_sgemm_ex(a.trans ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, b.trans ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE,
                 m, n, k, &one, (float *)a.data, a.stride, 1, (float *)b.data, b.stride, 1, &beta, c, n, 1,
                 NULL, &runtime);
}

#elif defined(WEFT_BLAS_OPENBLAS)
#include <cblas.h>

bool blas_available(void) {
    return true;
}

const char *kernels_cpu_blas(void) {
    return openblas_get_config();
}

/* The largest size of a dimension in one call. */
enum { CHUNK = 1 << 30 };

static int chunk(int64_t from, int64_t size) {
    return (int)(size - from < CHUNK ? size - from : CHUNK);
}

static const float *operand_at(GemmOperand operand, int64_t row, int64_t col) {
    return operand.data + (operand.trans ? col * operand.stride + row : row * operand.stride + col);
}

void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c) {
    if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
    for (int64_t i = 0; i < m; i += CHUNK)
        for (int64_t j = 0; j < n; j += CHUNK)
            for (int64_t p = 0; p < k; p += CHUNK)
                cblas_sgemm(CblasRowMajor, a.trans ? CblasTrans : CblasNoTrans,
                            b.trans ? CblasTrans : CblasNoTrans, chunk(i, m), chunk(j, n), chunk(p, k), 1.0f,
                            operand_at(a, i, p), (int)a.stride, operand_at(b, p, j), (int)b.stride,
                            p ? 1.0f : beta, c + i * n + j, (int)n);
}

#else

bool blas_available(void) {
    return false;
}

const char *kernels_cpu_blas(void) {
    return "weft";
}

void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c) {
    (void)threads, (void)m, (void)n, (void)k, (void)a, (void)b, (void)beta, (void)c;
}

#endif
