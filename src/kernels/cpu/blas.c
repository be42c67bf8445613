/* The product through BLIS's own interface, which takes 64-bit sizes and the number of threads with the
 * call, or through OpenBLAS's CBLAS, whose sizes are ints and whose number of threads is set beforehand.
 * Dimensions past an int are cut into several calls. cmake/FindBlas.cmake says which, if any. */
#include "kernels/cpu/blas.h"

#include "kernels/kernels.h"

#if defined(WEFT_BLAS_BLIS)
#include <blis.h>

bool blas_there(void) {
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

bool blas_there(void) {
    return true;
}

const char *kernels_cpu_blas(void) {
    return openblas_get_config();
}

/* The largest piece of a dimension that one call takes. */
enum { PIECE = 1 << 30 };

static int piece(int64_t from, int64_t size) {
    return (int)(size - from < PIECE ? size - from : PIECE);
}

static const float *operand_at(GemmOperand operand, int64_t row, int64_t col) {
    return operand.data + (operand.trans ? col * operand.stride + row : row * operand.stride + col);
}

void blas_gemm(int threads, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, float beta,
               float *c) {
    if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
    for (int64_t i = 0; i < m; i += PIECE)
        for (int64_t j = 0; j < n; j += PIECE)
            for (int64_t p = 0; p < k; p += PIECE)
                cblas_sgemm(CblasRowMajor, a.trans ? CblasTrans : CblasNoTrans,
                            b.trans ? CblasTrans : CblasNoTrans, piece(i, m), piece(j, n), piece(p, k), 1.0f,
                            operand_at(a, i, p), (int)a.stride, operand_at(b, p, j), (int)b.stride,
                            p ? 1.0f : beta, c + i * n + j, (int)n);
}

#else

bool blas_there(void) {
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
