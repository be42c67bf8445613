/* GEMM with cuBLASLt, which is loaded when the first GEMM runs.
 *
 * cuBLASLt's matrices are column-major: to it, a row-major (r,c) matrix in memory is a (c,r) matrix with
 * leading dimension c. So the code computes the transpose of the result:
 *
 *   out^T (cols,rows) = right^T (cols,inner) left^T (inner,rows)
 *
 * with A = right and B = left, m = cols, n = rows, k = inner. Layouts describe matrices as stored:
 *
 *               stored row-major   to cuBLASLt (rows, cols, ld)   op
 *   right       (inner, cols)      (cols, inner, cols)            N
 *   transposed  (cols, inner)      (inner, cols, inner)           T
 *   left        (rows, inner)      (inner, rows, inner)           N
 *   transposed  (inner, rows)      (rows, inner, rows)            T
 *   out, aux    (rows, cols)       (cols, rows, cols)
 *
 * The bias runs along m = cols, as cuBLASLt expects, and sums over B's k are those of left's rows. The
 * three GEMMs of a linear layer, y = x w^T, dx = dy w and dw = dy^T x, are (right, left) = (w transposed,
 * x), (w, dy) and (x, dy transposed).
 *
 * fp8 GEMMs need both operands with the inner dimension contiguous, as tensor cores do: right transposed,
 * left not. Their scales are in device memory. int8 GEMMs accumulate in int32 and have no scales.
 *
 * Algorithms that split the inner dimension may only reduce in fp32 and in a separate step; all remaining
 * algorithms are deterministic. */
#include "kernels/cuda/blas.h"

#include <string.h>

#include "base/memory.h"

static const char *const library_names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};

static const char *const function_names[] = {
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmulAlgoCapGetAttribute",
    "cublasLtMatmulAlgoConfigSetAttribute",
    "cublasLtMatmul",
};
enum { FUNCTIONS = sizeof function_names / sizeof *function_names };
_Static_assert(sizeof(BlasApi) == FUNCTIONS * sizeof(void *), "a name for each function");

static Status blas_status(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return OK;
    return FAILED("cuBLASLt: error %d (%s)", (int)status, what);
}
#define BLAS_TRY(call) TRY(blas_status((call), #call))

static void plan_free(const BlasApi *api, GemmPlan *plan) {
    if (plan->desc) api->desc_destroy(plan->desc);
    if (plan->right) api->layout_destroy(plan->right);
    if (plan->left) api->layout_destroy(plan->left);
    if (plan->out) api->layout_destroy(plan->out);
    free(plan);
}

static void blas_free(void *data) {
    Blas *blas = data;
    for (int i = 0; i < BLAS_BUCKETS; i++)
        while (blas->bucket[i]) {
            GemmPlan *plan = blas->bucket[i];
            blas->bucket[i] = plan->next;
            plan_free(&blas->api, plan);
        }
    if (blas->handle) blas->api.destroy(blas->handle);
    free(blas->choices_path);
    free(blas->choice);
    free(blas);
}

static void blas_freep(Blas **blas) {
    if (*blas) blas_free(*blas);
}

static Status blas_of(Stream *stream, Blas **ret_blas) {
    CudaKernels *kernels;
    TRY(cuda_kernels(stream, &kernels));
    if (!kernels->blas) {
        CLEANUP(blas_freep) Blas *blas = NULL;
        void *library;
        TRY(mem_new(1, sizeof *blas, &blas));
        TRY(library_open(&library, library_names, "matrix multiplication on a GPU"));
        TRY(library_bind(library, function_names, FUNCTIONS, &blas->api));
        BLAS_TRY(blas->api.create(&blas->handle));
        TRY(blas_choices_find(blas, cuda_device(stream)->index));
        kernels->blas = blas;
        kernels->blas_free = blas_free;
        blas = NULL;
    }
    *ret_blas = kernels->blas;
    return OK;
}

/* The largest power of two that divides an address, up to the largest that matters to cuBLASLt. */
static int64_t alignment(const void *pointer) {
    uintptr_t address = (uintptr_t)pointer | 256;
    return (int64_t)(address & -address);
}

static cudaDataType_t data_type(int64_t dtype) {
    switch (dtype) {
    case DT_BF16: return CUDA_R_16BF;
    case DT_F16: return CUDA_R_16F;
    case DT_E4M3: return CUDA_R_8F_E4M3;
    case DT_E5M2: return CUDA_R_8F_E5M2;
    case DT_I8: return CUDA_R_8I;
    case DT_I32: return CUDA_R_32I;
    default: return CUDA_R_32F;
    }
}

static GemmKey plan_key(const CudaGemm *p, bool tf32) {
    bool fast = tf32 && p->left_type == DT_F32 && p->right_type == DT_F32;
    return (GemmKey){
        .rows = p->rows,
        .cols = p->cols,
        .inner = p->inner,
        .left_type = p->left_type,
        .right_type = p->right_type,
        .out_type = p->out_type,
        .compute = p->out_type == DT_I32 ? CUBLAS_COMPUTE_32I
                   : fast                ? CUBLAS_COMPUTE_32F_FAST_TF32
                                         : CUBLAS_COMPUTE_32F,
        .left_transposed = p->left_transposed,
        .right_transposed = p->right_transposed,
        .accumulate = p->accumulate,
        .epilogue = p->slope ? KEY_SLOPE : 0,
        .bias = p->bias != NULL,
        .aux = p->slope != NULL,
        .left_align = alignment(p->left),
        .right_align = alignment(p->right),
        .out_align = alignment(p->out),
    };
}

static GemmPlan **find_plan(Blas *blas, const GemmKey *key) {
    uint64_t hash = 0;
    for (size_t i = 0; i < GEMM_KEY_SIZE; i++)
        hash = (hash ^ (uint64_t)((const int64_t *)key)[i]) * 0x9E3779B97F4A7C15u;
    GemmPlan **at = &blas->bucket[(hash >> 32) % BLAS_BUCKETS];
    while (*at && memcmp(&(*at)->key, key, sizeof *key)) at = &(*at)->next;
    return at;
}

static uint32_t epilogue_of(const GemmKey *key) {
    if (key->epilogue == KEY_SLOPE) return CUBLASLT_EPILOGUE_DGELU;
    return key->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Sets the pointers in the plan's descriptor. */
static cublasStatus_t set_pointers(const BlasApi *api, const GemmPlan *plan, const CudaGemm *p) {
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *address;
    } at[] = {
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->slope},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->right_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->left_scale},
    };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (!at[i].address) continue;
        cublasStatus_t status = api->desc_set(plan->desc, at[i].name, &at[i].address, sizeof at[i].address);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static Status make_layout(const BlasApi *api, cublasLtMatrixLayout_t *ret_layout, int64_t dtype, int64_t rows,
                          int64_t cols) {
    BLAS_TRY(api->layout_create(ret_layout, data_type(dtype), (uint64_t)rows, (uint64_t)cols, rows));
    return OK;
}

static Status describe(const BlasApi *api, GemmPlan *plan, const CudaGemm *p) {
    const GemmKey *key = &plan->key;
    int32_t op_right = key->right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t op_left = key->left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(key);
    cudaDataType_t scale = key->compute == CUBLAS_COMPUTE_32I ? CUDA_R_32I : CUDA_R_32F;
    BLAS_TRY(api->desc_create(&plan->desc, (cublasComputeType_t)key->compute, scale));
    BLAS_TRY(api->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_right, sizeof op_right));
    BLAS_TRY(api->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_left, sizeof op_left));
    BLAS_TRY(api->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    BLAS_TRY(set_pointers(api, plan, p)); /* heuristics depend on the addresses */
    /* Fast accumulation keeps partial sums in the tensor cores longer and is less precise. Gradients (e5m2)
     * do not tolerate that well. */
    int8_t fast = key->left_type == DT_E4M3 && key->right_type == DT_E4M3;
    if (fast) BLAS_TRY(api->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    if (p->slope)
        BLAS_TRY(api->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->cols, sizeof p->cols));
    if (p->right_transposed)
        TRY(make_layout(api, &plan->right, key->right_type, p->inner, p->cols));
    else
        TRY(make_layout(api, &plan->right, key->right_type, p->cols, p->inner));
    if (p->left_transposed)
        TRY(make_layout(api, &plan->left, key->left_type, p->rows, p->inner));
    else
        TRY(make_layout(api, &plan->left, key->left_type, p->inner, p->rows));
    return make_layout(api, &plan->out, key->out_type, p->cols, p->rows);
}

static Status set_preferences(const BlasApi *api, cublasLtMatmulPreference_t preference, const GemmKey *key) {
    uint64_t workspace = BLAS_WORKSPACE;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t right = (uint32_t)key->right_align, left = (uint32_t)key->left_align;
    uint32_t out = (uint32_t)key->out_align;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } attribute[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &right, sizeof right},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &left, sizeof left},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out},
    };
    for (size_t i = 0; i < sizeof attribute / sizeof *attribute; i++)
        BLAS_TRY(api->preference_set(preference, attribute[i].name, attribute[i].value, attribute[i].size));
    return OK;
}

/* The algorithms that cuBLASLt proposes, best first; an empty list if it does not support the GEMM. */
static Status find_candidates(const Blas *blas, const GemmPlan *plan, cublasLtMatmulAlgo_t *ret_candidate,
                              int *ret_count) {
    cublasLtMatmulHeuristicResult_t result[BLAS_CANDIDATES];
    cublasLtMatmulPreference_t preference;
    BLAS_TRY(blas->api.preference_create(&preference));
    Status status = set_preferences(&blas->api, preference, &plan->key);
    int found = 0, count = 0;
    if (!status &&
        blas->api.heuristic(blas->handle, plan->desc, plan->right, plan->left, plan->out, plan->out,
                            preference, BLAS_CANDIDATES, result, &found) != CUBLAS_STATUS_SUCCESS)
        found = 0;
    blas->api.preference_destroy(preference);
    TRY(status);
    for (int i = 0; i < found; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS && result[i].workspaceSize <= BLAS_WORKSPACE)
            ret_candidate[count++] = result[i].algo;
    *ret_count = count;
    return OK;
}

static Status make_plan(Blas *blas, GemmPlan *plan, const CudaGemm *gemm, void *workspace,
                        cudaStream_t stream) {
    cublasLtMatmulAlgo_t candidate[BLAS_CANDIDATES];
    int candidates = 0;
    TRY(describe(&blas->api, plan, gemm));
    TRY(find_candidates(blas, plan, candidate, &candidates));
    plan->refused = candidates == 0;
    if (plan->refused) return OK;
    return blas_choose(blas, plan, gemm, workspace, stream, candidate, candidates);
}

static Status plan_new(Blas *blas, const GemmKey *key, const CudaGemm *gemm, void *workspace,
                       cudaStream_t stream, GemmPlan **ret_plan) {
    GemmPlan *plan;
    TRY(mem_new(1, sizeof *plan, &plan));
    plan->key = *key;
    Status status = make_plan(blas, plan, gemm, workspace, stream);
    if (status) {
        plan_free(&blas->api, plan);
        return status_trace(status, __FILE__, __LINE__);
    }
    *ret_plan = plan;
    return OK;
}

cublasStatus_t blas_run(const Blas *blas, const GemmPlan *plan, const CudaGemm *gemm, void *out,
                        const cublasLtMatmulAlgo_t *algo, void *workspace, cudaStream_t stream) {
    const BlasApi *api = &blas->api;
    float one = 1, zero = 0;
    int32_t int_one = 1, int_zero = 0;
    bool integers = plan->key.compute == CUBLAS_COMPUTE_32I;
    const void *alpha = integers ? (const void *)&int_one : &one,
               *beta_zero = integers ? (const void *)&int_zero : &zero;
    const void *beta = gemm->accumulate ? alpha : beta_zero;
    cublasStatus_t status = set_pointers(api, plan, gemm);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return api->matmul(blas->handle, plan->desc, alpha, gemm->right, plan->right, gemm->left, plan->left,
                       beta, out, plan->out, out, plan->out, algo, workspace, BLAS_WORKSPACE, stream);
}

/* Whether the status means that cuBLASLt has no kernel for a GEMM, rather than that running one failed. */
static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

Status cuda_gemm(Stream *stream, const CudaGemm *gemm, void *workspace, bool *ret_done) {
    Blas *blas = NULL;
    TRY(blas_of(stream, &blas));
    GemmKey key = plan_key(gemm, cuda_device(stream)->tf32);
    GemmPlan **at = find_plan(blas, &key);
    if (!*at) TRY(plan_new(blas, &key, gemm, workspace, cuda_stream(stream), at));
    GemmPlan *plan = *at;
    if (!plan->refused) {
        cublasStatus_t status =
            blas_run(blas, plan, gemm, gemm->out, &plan->algo, workspace, cuda_stream(stream));
        plan->refused = is_refusal(status);
        if (!plan->refused) BLAS_TRY(status);
    }
    *ret_done = !plan->refused;
    return OK;
}
