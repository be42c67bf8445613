/* Products by cuBLASLt: what blas.c and blas_tune.c share, and what linear.c calls.
 *
 * A plan is all that cuBLASLt needs to know about products of one shape, set of types and alignments: its
 * descriptors and an algorithm. Plans are made when first needed and live as long as the device.
 */
#ifndef WEFT_KERNELS_CUDA_BLAS_H
#define WEFT_KERNELS_CUDA_BLAS_H

#include <cublasLt.h>

#include "kernels/cuda/cuda.h"

enum {
    BLAS_WORKSPACE = 32 << 20, /* bytes that an algorithm may use */
    BLAS_CANDIDATES = 16,      /* algorithms that are compared */
    BLAS_BUCKETS = 256,
};

/* The functions of the library, in the order of their names in blas.c. */
typedef struct BlasApi {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmulAlgoCheck) *check;
    __typeof__(cublasLtMatmul) *matmul;
} BlasApi;

/* What a plan depends on. All members are of one type: a key is compared, hashed and written as an array. */
typedef struct GemmKey {
    int64_t rows, cols, inner;
    int64_t left_type, right_type, out_type, compute;
    int64_t left_turned, right_turned, accumulate, epilogue, bias, aux;
    int64_t left_align, right_align, out_align; /* of addresses, in bytes */
} GemmKey;

enum { GEMM_KEY_SIZE = sizeof(GemmKey) / sizeof(int64_t) };

typedef struct GemmPlan {
    struct GemmPlan *next; /* in its bucket */
    GemmKey key;
    bool refused; /* cuBLASLt has nothing for it */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t right, left, out; /* A, B, and C and D, see blas.c */
    cublasLtMatmulAlgo_t algo;
} GemmPlan;

/* An algorithm that was found fastest, now or by an earlier run. */
typedef struct Choice {
    GemmKey key;
    cublasLtMatmulAlgo_t algo;
} Choice;

typedef struct Blas {
    BlasApi api;
    cublasLtHandle_t handle;
    GemmPlan *bucket[BLAS_BUCKETS];
    char *choices_path; /* NULL: nothing is measured, the first algorithm offered is taken */
    Choice *choice;     /* those of the file, once read */
    size_t choices, choices_capacity;
    bool choices_read;
} Blas;

/* linear.c: cuBLASLt's scratch and `bytes` more. */
MUST_USE Status blas_scratch(Stream *stream, size_t bytes, void **ret_blas, char **ret_own);

/* Runs the product, with BLAS_WORKSPACE bytes at `workspace`, unless cuBLASLt refuses: then *ret_done is
 * false and nothing has happened. The bias must lie at a multiple of 16 bytes, and so must aux, whose rows
 * must be a multiple of 8 elements. */
MUST_USE Status blas_product(Stream *stream, const CudaProduct *product, void *workspace, bool *ret_done);

/* One run of a plan with the algorithm and the output given (out is product->out but for measurements). */
cublasStatus_t blas_run(const Blas *blas, const GemmPlan *plan, const CudaProduct *product, void *out,
                        const cublasLtMatmulAlgo_t *algo, void *workspace, cudaStream_t stream);

/* Where choices are kept, from the environment and the device. */
MUST_USE Status blas_choices_find(Blas *blas, int device);
/* Sets plan->algo to the one chosen for its key, after measuring the candidates if this is the first time on
 * this machine; where that cannot be done or kept, to the first candidate. */
MUST_USE Status blas_choose(Blas *blas, GemmPlan *plan, const CudaProduct *product, void *workspace,
                            cudaStream_t stream, const cublasLtMatmulAlgo_t *candidate, int candidates);

#endif
