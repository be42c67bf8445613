/* GEMM with cuBLASLt: what blas.c and blas_tune.c share, and what the linear layers call.
 *
 * A plan is everything that cuBLASLt needs for GEMMs of one shape, set of types and alignments: its
 * descriptors and an algorithm. Plans are created on first use and live as long as the device. */
#ifndef WEFT_KERNELS_CUDA_BLAS_H
#define WEFT_KERNELS_CUDA_BLAS_H

#include <cublasLt.h>

#include "kernels/cuda/cuda.h"

enum {
    BLAS_CANDIDATES = 16, /* algorithms to compare */
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
    __typeof__(cublasLtMatmulAlgoCapGetAttribute) *cap_get;
    __typeof__(cublasLtMatmulAlgoConfigSetAttribute) *config_set;
    __typeof__(cublasLtMatmul) *matmul;
} BlasApi;

/* The key of a plan. All members have the same type, so a key can be compared, hashed and written as an
 * array. */
typedef struct GemmKey {
    int64_t rows, cols, inner;
    int64_t left_type, right_type, out_type, compute;
    int64_t left_transposed, right_transposed, accumulate, epilogue, bias, aux; /* epilogue: 0 or KEY_SLOPE */
    int64_t left_align, right_align, out_align; /* alignment of addresses, in bytes */
} GemmKey;

/* KEY_SLOPE: the value of CudaGemm.slope in the files of earlier versions. */
enum { GEMM_KEY_SIZE = sizeof(GemmKey) / sizeof(int64_t), KEY_SLOPE = 2 };

typedef struct GemmPlan {
    struct GemmPlan *next; /* next in its hash bucket */
    GemmKey key;
    bool refused; /* cuBLASLt does not support this GEMM */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t right, left, out; /* layouts of A, of B, and of both C and D; see blas.c */
    cublasLtMatmulAlgo_t algo;
} GemmPlan;

/* The fastest algorithm for a key, measured now or in an earlier run. */
typedef struct Choice {
    GemmKey key;
    cublasLtMatmulAlgo_t algo;
} Choice;

typedef struct Blas {
    BlasApi api;
    cublasLtHandle_t handle;
    GemmPlan *bucket[BLAS_BUCKETS];
    char *choices_path; /* NULL: tuning is off, use cuBLASLt's first proposal */
    Choice *choice;     /* contents of the file, once read */
    size_t choices, choices_capacity;
    bool choices_read;
} Blas;

/* linear.c: allocates the workspace of cuBLASLt and `bytes` more. */
MUST_USE Status blas_scratch(Stream *stream, size_t bytes, void **ret_blas, char **ret_own);

/* Runs the GEMM with BLAS_WORKSPACE bytes at `workspace`. If cuBLASLt does not support it, *ret_done is
 * false and nothing has happened. bias and aux must be 16-byte aligned, and rows of aux must have a
 * multiple of 8 elements. */
MUST_USE Status cuda_gemm(Stream *stream, const CudaGemm *gemm, void *workspace, bool *ret_done);

/* Runs a plan with the given algorithm and output (which differs from gemm->out only in measurements). */
cublasStatus_t blas_run(const Blas *blas, const GemmPlan *plan, const CudaGemm *gemm, void *out,
                        const cublasLtMatmulAlgo_t *algo, void *workspace, cudaStream_t stream);

/* Sets the path of the tuning file, from the environment and the device. */
MUST_USE Status blas_choices_find(Blas *blas, int device);
/* Sets plan->algo to the algorithm chosen for its key, after measuring the candidates if this is the first
 * time on this kind of GPU. If tuning is off or its result cannot be stored, uses the first candidate. */
MUST_USE Status blas_choose(Blas *blas, GemmPlan *plan, const CudaGemm *gemm, void *workspace,
                            cudaStream_t stream, const cublasLtMatmulAlgo_t *candidate, int candidates);

#endif
