/* Linear layers in fp8: fp8.cu quantizes all operands of a call with two kernels, and cuBLASLt multiplies
 * them. It requires both operands to be contiguous along the inner dimension:
 *
 *                              left                  right
 *   forward       y  = x w^T   x (M,K)               w (N,K)
 *   to the input  dx = dy w    dy (M,N)              w transposed (K,N)
 *   to weights    dw = dy^T x  dy transposed (N,M)   x transposed (K,M), as saved by forward
 *
 * The derivative of an activation is a separate pass over dx, which also collects the statistics for the next
 * call. (cuBLASLt can fuse the derivative of GELU in fp8, but that takes longer than a plain GEMM plus the
 * pass.)
 *
 * A call lays out its scratch memory twice, first to find out how much it needs: scales and quantized
 * operands, then the scratch of the quantization. The workspace of cuBLASLt precedes all of it. */
#include "base/memory.h"
#include "kernels/cuda/blas.h"

_Static_assert((int)FP8_AMAX_PARTS == (int)CUDA_FP8_AMAX_PARTS,
               "FP8_AMAX_PARTS in launch.h must match kernels.h");

/* The tensors that a call quantizes, and their memory. */
typedef struct Fp8Set {
    CudaFp8Tensor tensor[FP8_TENSORS];
    int count;
    Bump bump;
} Fp8Set;

static CudaFp8Tensor *add_tensor(Fp8Set *set, Tensor x, DType type, Act act, bool plain, bool transposed) {
    CudaFp8Tensor *tensor = &set->tensor[set->count++];
    *tensor =
        (CudaFp8Tensor){.x = x.data, .rows = tensor_rows(x), .cols = tensor_cols(x), .act = (CudaAct)act};
    tensor->type = type;
    tensor->scale = bump_take(&set->bump, sizeof(float));
    if (plain) tensor->plain = bump_take(&set->bump, (size_t)tensor_count(x));
    if (transposed) tensor->transposed = bump_take(&set->bump, (size_t)tensor_count(x));
    return tensor;
}

/* Allocates the scratch memory for the layout so far and resets `set`, so that it can be laid out again. */
static Status allocate(Stream *stream, Fp8Set *set, void **ret_blas) {
    size_t bytes = set->bump.used + BUMP_ALIGN + fp8_quantize_scratch(set->tensor, set->count);
    char *own = NULL;
    TRY(blas_scratch(stream, bytes, ret_blas, &own));
    *set = (Fp8Set){.bump = {.base = (unsigned char *)own, .size = bytes}};
    return OK;
}

static Status quantize_all(Stream *stream, Fp8Set *set) {
    void *scratch = bump_take(&set->bump, fp8_quantize_scratch(set->tensor, set->count));
    LAUNCH(launch_fp8_quantize(cuda_stream(stream), set->tensor, set->count, scratch));
    return OK;
}

/* left (rows,inner) times right, which is stored transposed. */
static CudaGemm gemm_of(int64_t rows, int64_t cols, int64_t inner, const void *left,
                        const CudaFp8Tensor *left_of, const void *right, const float *right_scale) {
    return (CudaGemm){.rows = rows,
                      .cols = cols,
                      .inner = inner,
                      .left = left,
                      .left_type = left_of->type,
                      .left_scale = left_of->scale,
                      .right = right,
                      .right_type = DT_E4M3,
                      .right_scale = right_scale,
                      .right_transposed = true};
}

static Status run_gemm(Stream *stream, const CudaGemm *p, void *scratch) {
    bool done;
    TRY(cuda_gemm(stream, p, scratch, &done));
    if (!done) LAUNCH(launch_gemm(cuda_stream(stream), p));
    return OK;
}

static void plan_forward(Fp8Set *set, Fp8Input kept, Tensor x, Act act, Tensor w) {
    CudaFp8Tensor *input = add_tensor(set, x, DT_E4M3, act, true, false);
    if (kept.transposed.data) {
        input->transposed = kept.transposed.data;
        input->scale = kept.scale.data;
    }
    add_tensor(set, w, DT_E4M3, ACT_NONE, true, false);
}

Status linear_fp8_forward_cuda(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                               Tensor b) {
    Fp8Set set = {0};
    void *scratch = NULL;
    plan_forward(&set, kept, x, act, w);
    TRY(allocate(stream, &set, &scratch));
    plan_forward(&set, kept, x, act, w);
    TRY(quantize_all(stream, &set));
    const CudaFp8Tensor *input = &set.tensor[0], *weight = &set.tensor[1];
    CudaGemm gemm = gemm_of(tensor_rows(x), tensor_rows(w), tensor_cols(x), input->plain, input,
                            weight->plain, weight->scale);
    gemm.out = y.data;
    gemm.out_type = DT_BF16;
    gemm.bias = b.data;
    return run_gemm(stream, &gemm, scratch);
}

typedef struct Backward {
    bool input, weight;                          /* which GEMMs to run */
    const CudaFp8Tensor *gradient, *weights, *x; /* x: NULL if forward saved it */
    void *stats_scratch;                         /* scratch memory of the dx statistics */
} Backward;

static Backward plan_backward(Fp8Set *set, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                              Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act act) {
    Backward b = {.input = dx.data != NULL, .weight = dw.data != NULL};
    CudaFp8Tensor *gradient = add_tensor(set, dy, DT_E5M2, ACT_NONE, b.input, b.weight);
    gradient->sums = db.data;
    gradient->amax = amax.data;
    b.gradient = gradient;
    if (b.input) b.weights = add_tensor(set, w, DT_E4M3, ACT_NONE, false, true);
    if (b.weight && !kept.transposed.data) b.x = add_tensor(set, x, DT_E4M3, act, false, true);
    if (dx_stats.amax.data)
        b.stats_scratch = bump_take(&set->bump, fp8_stats_scratch(tensor_rows(dx), tensor_cols(dx)));
    return b;
}

/* dx *= act'(x), and collects its statistics if requested. */
static Status finish_input(Stream *stream, Tensor dx, Fp8Stats dx_stats, Tensor x, Act act, void *scratch) {
    bool has_act = act != ACT_NONE;
    if (dx_stats.amax.data) {
        CudaFp8Stats stats = {.x = dx.data, .rows = tensor_rows(dx), .cols = tensor_cols(dx)};
        stats.pre = has_act ? x.data : NULL;
        stats.act = (CudaAct)act;
        stats.amax = dx_stats.amax.data;
        stats.sums = dx_stats.sums.data;
        LAUNCH(launch_fp8_stats(cuda_stream(stream), &stats, scratch));
    } else if (has_act) {
        LAUNCH(launch_act_backward(cuda_stream(stream), DT_BF16, dx.data, DT_BF16, dx.data, x.data,
                                   (CudaAct)act, tensor_count(dx), false));
    }
    return OK;
}

/* Reads w and the input, either as saved by forward or as x; also x if the input is the output of an
 * activation. */
Status linear_fp8_backward_cuda(Stream *stream, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                                Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act act, bool accumulate) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    Fp8Set set = {0};
    void *scratch = NULL;
    plan_backward(&set, dx, dx_stats, dw, db, dy, amax, w, kept, x, act);
    TRY(allocate(stream, &set, &scratch));
    Backward b = plan_backward(&set, dx, dx_stats, dw, db, dy, amax, w, kept, x, act);
    TRY(quantize_all(stream, &set));
    if (b.weight) {
        CudaGemm gemm =
            gemm_of(N, K, M, b.gradient->transposed, b.gradient, b.x ? b.x->transposed : kept.transposed.data,
                    b.x ? b.x->scale : (const float *)kept.scale.data);
        gemm.out = dw.data;
        gemm.out_type = DT_F32;
        gemm.accumulate = accumulate;
        TRY(run_gemm(stream, &gemm, scratch));
    }
    if (!b.input) return OK;
    CudaGemm gemm = gemm_of(M, K, N, b.gradient->plain, b.gradient, b.weights->transposed, b.weights->scale);
    gemm.out = dx.data;
    gemm.out_type = DT_BF16;
    TRY(run_gemm(stream, &gemm, scratch));
    return finish_input(stream, dx, dx_stats, x, act, b.stats_scratch);
}
