/* GEMM through the native interface of BLIS, which accepts 64-bit sizes and the number of threads per call,
 * or through the CBLAS interface of OpenBLAS, whose sizes are ints and whose number of threads is global.
 * Larger dimensions are split into several calls. cmake/FindBlas.cmake decides which library is used, if
 * any. */
#include "kernels/cpu/blas.h"

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

static trans_t trans_of(Operand operand) {
    return operand.trans ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE;
}

void blas_gemm(int threads, const Gemm *f) {
    float one = 1, beta = f->add ? 1 : 0;
    rntm_t runtime;
    bli_rntm_init(&runtime);
    bli_rntm_set_num_threads(threads, &runtime);
    bli_sgemm_ex(trans_of(f->a), trans_of(f->b), f->m, f->n, f->k, &one, (float *)f->a.data, f->a.stride, 1,
                 (float *)f->b.data, f->b.stride, 1, &beta, f->c, f->n, 1, NULL, &runtime);
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

static const float *operand_at(Operand operand, int64_t row, int64_t col) {
    return (const float *)operand.data +
           (operand.trans ? col * operand.stride + row : row * operand.stride + col);
}
static CBLAS_TRANSPOSE trans_of(Operand operand) {
    return operand.trans ? CblasTrans : CblasNoTrans;
}

void blas_gemm(int threads, const Gemm *f) {
    if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
    for (int64_t i = 0; i < f->m; i += CHUNK)
        for (int64_t j = 0; j < f->n; j += CHUNK)
            for (int64_t p = 0; p < f->k; p += CHUNK)
                cblas_sgemm(CblasRowMajor, trans_of(f->a), trans_of(f->b), chunk(i, f->m), chunk(j, f->n),
                            chunk(p, f->k), 1.0f, operand_at(f->a, i, p), (int)f->a.stride,
                            operand_at(f->b, p, j), (int)f->b.stride, p || f->add ? 1.0f : 0.0f,
                            f->c + i * f->n + j, (int)f->n);
}

#else

bool blas_available(void) {
    return false;
}

const char *kernels_cpu_blas(void) {
    return "weft";
}

void blas_gemm(int threads, const Gemm *f) {
    (void)threads, (void)f;
}

#endif
