/* Linear layers whose products are of 8 bits: operands are rounded by fp8.cu, all of a call in two kernels,
 * and multiplied by cuBLASLt, which takes both as their inner dimension lies:
 *
 *                              left             right
 *   forward       y  = x w^T   x (M,K)          w (N,K)
 *   to the input  dx = dy w    dy (M,N)         w turned (K,N)
 *   to weights    dw = dy^T x  dy turned (N,M)  x turned (K,M), as forward kept it
 *
 * An activation's slope is a pass over dx, which also finds what the next call wants to know of it. (cuBLASLt
 * has GELU's for 8 bits, but takes longer for such a product than for a plain one and the pass.)
 *
 * A call lays out its scratch twice, first to see how much it is: the units and the rounded operands, then
 * what rounding needs; cuBLASLt's own comes before all of it.
 */
#include "base/memory.h"
#include "kernels/cuda/blas.h"

_Static_assert((int)FP8_PEAKS == (int)CUDA_FP8_PEAKS, "launch.h has as many peaks as kernels.h");

/* What a call rounds, and where. */
typedef struct Rounds {
    CudaRounding tensor[FP8_TENSORS];
    int count;
    Bump bump;
} Rounds;

static CudaRounding *add_tensor(Rounds *rounds, Tensor x, DType type, Act act, bool plain, bool turned) {
    CudaRounding *made = &rounds->tensor[rounds->count++];
    *made = (CudaRounding){.x = x.data, .rows = tensor_rows(x), .cols = tensor_cols(x), .act = (CudaAct)act};
    made->type = type;
    made->unit = bump_take(&rounds->bump, sizeof(float));
    if (plain) made->plain = bump_take(&rounds->bump, (size_t)tensor_count(x));
    if (turned) made->turned = bump_take(&rounds->bump, (size_t)tensor_count(x));
    return made;
}

/* Scratch for what has been laid out, and rounds to lay it out again. */
static Status settle(Stream *stream, Rounds *rounds, void **ret_blas) {
    size_t bytes = rounds->bump.used + BUMP_ALIGN + fp8_round_room(rounds->tensor, rounds->count);
    char *own = NULL;
    TRY(blas_scratch(stream, bytes, ret_blas, &own));
    *rounds = (Rounds){.bump = {.base = (unsigned char *)own, .size = bytes}};
    return OK;
}

static Status round_all(Stream *stream, Rounds *rounds) {
    void *room = bump_take(&rounds->bump, fp8_round_room(rounds->tensor, rounds->count));
    LAUNCH(launch_fp8_round(cuda_stream(stream), rounds->tensor, rounds->count, room));
    return OK;
}

/* left (rows,inner) times right, which lies turned. */
static CudaProduct product_of(int64_t rows, int64_t cols, int64_t inner, const void *left,
                              const CudaRounding *left_of, const void *right, const float *right_unit) {
    return (CudaProduct){.rows = rows,
                         .cols = cols,
                         .inner = inner,
                         .left = left,
                         .left_type = left_of->type,
                         .left_unit = left_of->unit,
                         .right = right,
                         .right_type = DT_E4M3,
                         .right_unit = right_unit,
                         .right_turned = true};
}

static Status run_product(Stream *stream, const CudaProduct *p, void *scratch) {
    bool done;
    TRY(blas_product(stream, p, scratch, &done));
    if (!done) LAUNCH(launch_product(cuda_stream(stream), p));
    return OK;
}

static void plan_forward(Rounds *rounds, Fp8Input kept, Tensor x, Act act, Tensor w) {
    CudaRounding *input = add_tensor(rounds, x, DT_E4M3, act, true, false);
    if (kept.turned.data) {
        input->turned = kept.turned.data;
        input->unit = kept.unit.data;
    }
    add_tensor(rounds, w, DT_E4M3, ACT_NONE, true, false);
}

Status linear_fp8_forward_cuda(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                               Tensor b) {
    Rounds rounds = {0};
    void *scratch = NULL;
    plan_forward(&rounds, kept, x, act, w);
    TRY(settle(stream, &rounds, &scratch));
    plan_forward(&rounds, kept, x, act, w);
    TRY(round_all(stream, &rounds));
    const CudaRounding *input = &rounds.tensor[0], *weight = &rounds.tensor[1];
    CudaProduct product = product_of(tensor_rows(x), tensor_rows(w), tensor_cols(x), input->plain, input,
                                     weight->plain, weight->unit);
    product.out = y.data;
    product.out_type = DT_BF16;
    product.bias = b.data;
    return run_product(stream, &product, scratch);
}

typedef struct Backward {
    bool input, weight;                         /* which products are wanted */
    const CudaRounding *gradient, *weights, *x; /* x: NULL where it was kept */
    void *finding;                              /* room for what is found of dx */
} Backward;

static Backward plan_backward(Rounds *rounds, Tensor dx, Fp8Found found, Tensor dw, Tensor db, Tensor dy,
                              Tensor peaks, Tensor w, Fp8Input kept, Tensor x, Act act) {
    Backward b = {.input = dx.data != NULL, .weight = dw.data != NULL};
    CudaRounding *gradient = add_tensor(rounds, dy, DT_E5M2, ACT_NONE, b.input, b.weight);
    gradient->sums = db.data;
    gradient->peaks = peaks.data;
    b.gradient = gradient;
    if (b.input) b.weights = add_tensor(rounds, w, DT_E4M3, ACT_NONE, false, true);
    if (b.weight && !kept.turned.data) b.x = add_tensor(rounds, x, DT_E4M3, act, false, true);
    if (found.peaks.data)
        b.finding = bump_take(&rounds->bump, fp8_find_room(tensor_rows(dx), tensor_cols(dx)));
    return b;
}

/* dx *= act'(x), and what is to be found of it. */
static Status finish_input(Stream *stream, Tensor dx, Fp8Found found, Tensor x, Act act, void *room) {
    bool slope = act != ACT_NONE;
    if (found.peaks.data) {
        CudaFinding finding = {.x = dx.data, .rows = tensor_rows(dx), .cols = tensor_cols(dx)};
        finding.pre = slope ? x.data : NULL;
        finding.act = (CudaAct)act;
        finding.peaks = found.peaks.data;
        finding.sums = found.sums.data;
        LAUNCH(launch_fp8_find(cuda_stream(stream), &finding, room));
    } else if (slope) {
        LAUNCH(launch_slope(cuda_stream(stream), DT_BF16, dx.data, DT_BF16, dx.data, x.data, (CudaAct)act,
                            tensor_count(dx), false));
    }
    return OK;
}

/* Needs: w, and the input as kept or x; x where the input came out of an activation. */
Status linear_fp8_backward_cuda(Stream *stream, Tensor dx, Fp8Found found, Tensor dw, Tensor db, Tensor dy,
                                Tensor peaks, Tensor w, Fp8Input kept, Tensor x, Act act) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    Rounds rounds = {0};
    void *scratch = NULL;
    plan_backward(&rounds, dx, found, dw, db, dy, peaks, w, kept, x, act);
    TRY(settle(stream, &rounds, &scratch));
    Backward b = plan_backward(&rounds, dx, found, dw, db, dy, peaks, w, kept, x, act);
    TRY(round_all(stream, &rounds));
    if (b.weight) {
        CudaProduct product =
            product_of(N, K, M, b.gradient->turned, b.gradient, b.x ? b.x->turned : kept.turned.data,
                       b.x ? b.x->unit : (const float *)kept.unit.data);
        product.out = dw.data;
        product.out_type = DT_F32;
        product.accumulate = true;
        TRY(run_product(stream, &product, scratch));
    }
    if (!b.input) return OK;
    CudaProduct product =
        product_of(M, K, N, b.gradient->plain, b.gradient, b.weights->turned, b.weights->unit);
    product.out = dx.data;
    product.out_type = DT_BF16;
    TRY(run_product(stream, &product, scratch));
    return finish_input(stream, dx, found, x, act, b.finding);
}
