/* Linear layers whose products are of 8 bits: operands are rounded by fp8.cu, all of a call in two kernels,
 * and multiplied by cuBLASLt, which takes both as their inner dimension lies:
 *
 *                              left             right
 *   forward       y  = x w^T   x (M,K)          w (N,K)
 *   to the input  dx = dy w    dy (M,N)         w turned (K,N)
 *   to weights    dw = dy^T x  dy turned (N,M)  x turned (K,M), as forward kept it
 *
 * The slope of GELU (by tanh) is cuBLASLt's if it has a kernel for that, and else a pass over dx, which also
 * finds what the next call wants to know of it.
 *
 * The product for weights has a long inner dimension and an output of few tiles. If it is cut into parts,
 * there is work for all of a device; the parts' outputs are added up afterwards. Sums may stay in the tensor
 * cores for longer where they are short and their result is rounded to 16 bits anyway: forward.
 *
 * WEFT_CUDA_FP8 lists what else is to be done: "fast-input" and "fast-weight", such sums for the gradients,
 * of which the latter loses more than it should; "parts", products for weights in parts.
 *
 * A call lays out its scratch twice, first to see how much it is: the units and the rounded operands, then
 * what rounding needs; cuBLASLt's own comes before all of it.
 */
#include <string.h>

#include "base/memory.h"
#include "kernels/cuda/blas.h"

enum {
    TILE = 128,         /* the side of what a multiprocessor works on at a time */
    WANTED_TILES = 400, /* of a product in parts, to fill a device a few times */
    MOST_PARTS = 8,     /* their outputs are written and read */
    LEAST_INNER = 2048, /* of a part */
};

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

static bool asked_for(const char *what) {
    const char *asked = getenv("WEFT_CUDA_FP8");
    return asked && strstr(asked, what) != NULL;
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
    product.fast = true;
    return run_product(stream, &product, scratch);
}

/* How many parts the product for weights comes in; each has a multiple of 256 numbers, for alignment. */
static int parts_of(int64_t rows, int64_t cols, int64_t inner) {
    int64_t tiles = (rows + TILE - 1) / TILE * ((cols + TILE - 1) / TILE);
    int parts = 1;
    if (!asked_for("parts")) return parts;
    while (parts < MOST_PARTS && tiles * parts < WANTED_TILES && inner % (2 * parts * 256) == 0 &&
           inner / (2 * parts) >= LEAST_INNER)
        parts *= 2;
    return parts;
}

typedef struct Backward {
    bool input, weight;                         /* which products are wanted */
    const CudaRounding *gradient, *weights, *x; /* x: NULL where it was kept */
    float *parts;                               /* room for those of dw; NULL: there are none */
    void *finding;                              /* room for that */
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
    bool may_cut = b.weight && (uintptr_t)dw.data % 16 == 0;
    int parts = may_cut ? parts_of(tensor_rows(w), tensor_cols(w), tensor_rows(dy)) : 1;
    if (parts > 1)
        b.parts = bump_take(&rounds->bump, (size_t)parts * (size_t)tensor_count(w) * sizeof(float));
    if (found.peaks.data)
        b.finding = bump_take(&rounds->bump, fp8_find_room(tensor_rows(dx), tensor_cols(dx)));
    return b;
}

/* dw += product, in parts if there is room for them. */
static Status weight_product(Stream *stream, CudaProduct product, Tensor dw, float *room, void *scratch) {
    product.out_type = DT_F32;
    product.fast = asked_for("fast-weight");
    if (room) {
        CudaProduct cut = product;
        bool done;
        cut.out = room;
        cut.parts = parts_of(product.rows, product.cols, product.inner);
        TRY(blas_product(stream, &cut, scratch, &done));
        if (done) {
            LAUNCH(launch_add_parts(cuda_stream(stream), dw.data, room, cut.parts, tensor_count(dw)));
            return OK;
        }
    }
    product.out = dw.data;
    product.accumulate = true;
    return run_product(stream, &product, scratch);
}

/* dx = product, times act'(x) if cuBLASLt can. */
static Status input_product(Stream *stream, CudaProduct product, Tensor dx, Tensor x, Act act, void *scratch,
                            bool *ret_sloped) {
    product.out = dx.data;
    product.out_type = DT_BF16;
    product.fast = asked_for("fast-input");
    *ret_sloped = false;
    if (blas_suits_gelu(act, product.cols, dx.data, x.data) && blas_may_fuse(stream, "slope", DT_BF16)) {
        CudaProduct fused = product;
        fused.epilogue = CUDA_EPILOGUE_GELU_SLOPE;
        fused.aux = x.data;
        TRY(blas_product(stream, &fused, scratch, ret_sloped));
    }
    return *ret_sloped ? OK : run_product(stream, &product, scratch);
}

/* dx *= act'(x), unless that is done, and what is to be found of it. */
static Status finish_input(Stream *stream, Tensor dx, Fp8Found found, Tensor x, Act act, bool sloped,
                           void *room) {
    bool slope = act != ACT_NONE && !sloped;
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
        TRY(weight_product(stream, product, dw, b.parts, scratch));
    }
    if (!b.input) return OK;
    CudaProduct product =
        product_of(M, K, N, b.gradient->plain, b.gradient, b.weights->turned, b.weights->unit);
    bool sloped;
    TRY(input_product(stream, product, dx, x, act, scratch, &sloped));
    return finish_input(stream, dx, found, x, act, sloped, b.finding);
}
