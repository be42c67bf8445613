/* Linear layers in fp8: fp8.cu quantizes all operands of a call with two kernels, and cuBLASLt multiplies
 * them. It requires both operands to be contiguous along the inner dimension:
 *
 *                              left                  right
 *   forward       y  = x w^T   x (M,K)               w (N,K)
 *   to the input  dx = dy w    dy (M,N)              w transposed (K,N)
 *   to weights    dw = dy^T x  dy transposed (N,M)   x transposed (K,M), as saved by forward
 *
 * The derivative of an activation is a separate pass over dx, which also collects the statistics for the next
 * call or, with delayed scaling, already quantizes dx for it. (cuBLASLt can fuse the derivative of GELU in
 * fp8, but that takes longer than a plain GEMM plus the pass.)
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

static CudaFp8Tensor tensor_of(Tensor x, DType type, Act act, Fp8Scale how) {
    return (CudaFp8Tensor){.x = x.data,
                           .rows = tensor_rows(x),
                           .cols = tensor_cols(x),
                           .act = act,
                           .type = type,
                           .given = how.scale.data,
                           .record = how.amax.data};
}

static CudaFp8Tensor *add_tensor(Fp8Set *set, Tensor x, DType type, Act act, Fp8Scale how, bool plain,
                                 bool transposed) {
    CudaFp8Tensor *tensor = &set->tensor[set->count++];
    *tensor = tensor_of(x, type, act, how);
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
    if (!set->count) return OK;
    void *scratch = bump_take(&set->bump, fp8_quantize_scratch(set->tensor, set->count));
    LAUNCH(launch_fp8_quantize(cuda_stream(stream), set->tensor, set->count, scratch));
    return OK;
}

/* left (rows,inner) times right, which is stored transposed. */
static CudaGemm gemm_of(int64_t rows, int64_t cols, int64_t inner, const void *left, DType left_type,
                        const float *left_scale, const void *right, const float *right_scale) {
    return (CudaGemm){.rows = rows,
                      .cols = cols,
                      .inner = inner,
                      .left = left,
                      .left_type = left_type,
                      .left_scale = left_scale,
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

Status fp8_weight_cuda(Stream *stream, Fp8Weight weight, Tensor w, Fp8Scale scale) {
    CudaFp8Tensor tensor = tensor_of(w, DT_E4M3, ACT_NONE, scale);
    void *scratch = NULL;
    tensor.plain = weight.plain.data;
    tensor.transposed = weight.transposed.data;
    tensor.scale = weight.scale.data;
    TRY(stream_workspace(stream, fp8_quantize_scratch(&tensor, 1), &scratch));
    LAUNCH(launch_fp8_quantize(cuda_stream(stream), &tensor, 1, scratch));
    return OK;
}

static void plan_forward(Fp8Set *set, Fp8Input kept, Tensor x, Act act, Tensor w, const Fp8Weight *weight,
                         const Fp8Scales *scales) {
    if (!kept.plain.data) {
        CudaFp8Tensor *input = add_tensor(set, x, DT_E4M3, act, scales->input, true, false);
        if (kept.transposed.data) {
            input->transposed = kept.transposed.data;
            input->scale = kept.scale.data;
        }
    }
    if (!weight->plain.data) add_tensor(set, w, DT_E4M3, ACT_NONE, scales->weight, true, false);
}

Status linear_fp8_forward_cuda(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                               Fp8Weight known_weight, Tensor b, Fp8Scales scales) {
    Fp8Set set = {0};
    void *scratch = NULL;
    plan_forward(&set, kept, x, act, w, &known_weight, &scales);
    TRY(allocate(stream, &set, &scratch));
    plan_forward(&set, kept, x, act, w, &known_weight, &scales);
    TRY(quantize_all(stream, &set));
    CudaFp8Tensor input = {.plain = kept.plain.data, .scale = kept.scale.data};
    CudaFp8Tensor weight = {.plain = known_weight.plain.data, .scale = known_weight.scale.data};
    const CudaFp8Tensor *next = set.tensor;
    if (!input.plain) input = *next++;
    if (!weight.plain) weight = *next;
    CudaGemm gemm = gemm_of(tensor_rows(x), tensor_rows(w), tensor_cols(x), input.plain, DT_E4M3, input.scale,
                            weight.plain, weight.scale);
    gemm.out = y.data;
    gemm.out_type = DT_BF16;
    gemm.bias = b.data;
    return run_gemm(stream, &gemm, scratch);
}

typedef struct Operands {
    CudaFp8Tensor gradient; /* as stored, transposed, and its scale */
    const void *weights;    /* transposed */
    const float *weights_scale;
    const void *input; /* transposed */
    const float *input_scale;
    void *next_scratch; /* scratch memory of what is left about dx */
} Operands;

/* dx as a tensor that is quantized for the next call. */
static CudaFp8Tensor next_tensor(Tensor dx, Fp8Gradient next, Tensor x, Act act) {
    CudaFp8Tensor tensor = tensor_of(dx, DT_E5M2, act, next.scale);
    tensor.plain = next.plain.data;
    tensor.transposed = next.transposed.data;
    tensor.sums = next.sums.data;
    tensor.pre = act == ACT_NONE ? NULL : x.data;
    return tensor;
}

static size_t next_scratch(Tensor dx, Fp8Gradient next, Tensor x, Act act) {
    if (!dx.data) return 0;
    CudaFp8Tensor tensor = next_tensor(dx, next, x, act);
    if (next.plain.data) return fp8_quantize_scratch(&tensor, 1);
    return next.amax.data ? fp8_stats_scratch(tensor.rows, tensor.cols) : 0;
}

static Operands plan_backward(Fp8Set *set, Tensor dx, Fp8Gradient next, Tensor dw, Tensor db, Tensor dy,
                              Fp8Gradient known, const CudaDropout *dropout, Tensor w, Fp8Weight weight,
                              Fp8Input kept, Tensor x, Act act, const Fp8Scales *scales) {
    Operands o = {.input = kept.transposed.data,
                  .input_scale = kept.scale.data,
                  .weights = weight.transposed.data,
                  .weights_scale = weight.scale.data};
    if (known.plain.data) {
        o.gradient = (CudaFp8Tensor){
            .plain = known.plain.data, .transposed = known.transposed.data, .scale = known.scale.scale.data};
        if (dw.data && !known.transposed.data)
            o.gradient.transposed = bump_take(&set->bump, (size_t)tensor_count(dy));
    } else {
        CudaFp8Tensor *gradient = add_tensor(set, dy, DT_E5M2, ACT_NONE, scales->gradient, dx.data, dw.data);
        gradient->sums = db.data;
        gradient->amax = known.amax.data;
        if (dropout->threshold) {
            gradient->dropout = dropout;
            gradient->positions = dy.dim[1];
        }
        o.gradient = *gradient;
    }
    if (dx.data && !weight.plain.data) {
        CudaFp8Tensor *weights = add_tensor(set, w, DT_E4M3, ACT_NONE, scales->weight, false, true);
        o.weights = weights->transposed;
        o.weights_scale = weights->scale;
    }
    if (dw.data && !kept.transposed.data) {
        CudaFp8Tensor *input = add_tensor(set, x, DT_E4M3, act, scales->input, false, true);
        o.input = input->transposed;
        o.input_scale = input->scale;
    }
    o.next_scratch = bump_take(&set->bump, next_scratch(dx, next, x, act));
    return o;
}

/* dx *= act'(x), and leaves what the next call needs of it. */
static Status finish_input(Stream *stream, Tensor dx, Fp8Gradient next, Tensor x, Act act, void *scratch) {
    bool has_act = act != ACT_NONE;
    if (next.plain.data) {
        CudaFp8Tensor tensor = next_tensor(dx, next, x, act);
        LAUNCH(launch_fp8_quantize(cuda_stream(stream), &tensor, 1, scratch));
    } else if (next.amax.data) {
        CudaFp8Stats stats = {.x = dx.data, .rows = tensor_rows(dx), .cols = tensor_cols(dx)};
        stats.pre = has_act ? x.data : NULL;
        stats.act = act;
        stats.amax = next.amax.data;
        stats.sums = next.sums.data;
        LAUNCH(launch_fp8_stats(cuda_stream(stream), &stats, scratch));
    } else if (has_act) {
        return act_backward_onto(stream, dx, dx, x, act, false);
    }
    return OK;
}

/* Reads w and the input, either as saved by forward or as x; also x if the input is the output of an
 * activation. */
Status linear_fp8_backward_cuda(Stream *stream, Tensor dx, Fp8Gradient next, Tensor dw, Tensor db, Tensor dy,
                                Fp8Gradient known, Dropout dropout, Tensor w, Fp8Weight weight, Fp8Input kept,
                                Tensor x, Act act, bool add, bool accumulate, Fp8Scales scales) {
    CudaDropout drop = cuda_dropout(&dropout);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    Fp8Set set = {0};
    void *scratch = NULL;
    plan_backward(&set, dx, next, dw, db, dy, known, &drop, w, weight, kept, x, act, &scales);
    TRY(allocate(stream, &set, &scratch));
    Operands o = plan_backward(&set, dx, next, dw, db, dy, known, &drop, w, weight, kept, x, act, &scales);
    TRY(quantize_all(stream, &set));
    if (dw.data && known.plain.data && !known.transposed.data)
        LAUNCH(launch_fp8_transpose(cuda_stream(stream), o.gradient.transposed, o.gradient.plain, M, N));
    if (dw.data) {
        CudaGemm gemm =
            gemm_of(N, K, M, o.gradient.transposed, DT_E5M2, o.gradient.scale, o.input, o.input_scale);
        gemm.out = dw.data;
        gemm.out_type = DT_F32;
        gemm.accumulate = accumulate;
        TRY(run_gemm(stream, &gemm, scratch));
    }
    if (!dx.data) return OK;
    CudaGemm gemm = gemm_of(M, K, N, o.gradient.plain, DT_E5M2, o.gradient.scale, o.weights, o.weights_scale);
    gemm.out = dx.data;
    gemm.out_type = DT_BF16;
    gemm.accumulate = add;
    TRY(run_gemm(stream, &gemm, scratch));
    return finish_input(stream, dx, next, x, act, o.next_scratch);
}
