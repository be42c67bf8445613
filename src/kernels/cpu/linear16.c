/* Linear layers in bf16 and fp16: GEMMs with fp32 accumulation (gemm16.h) whose epilogues apply bias,
 * activation or its derivative while a block is in the cache, and round it as they store it. Gradients of
 * weights are fp32 and are accumulated directly.
 *
 * M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/linear16.h"

#include "kernels/cpu/act.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/gemm16.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/thin.h"

/* Columns that pass through a buffer at a time. */
enum { RUN = 256 };

static int64_t run_of(int64_t left) {
    return left < RUN ? left : RUN;
}

/* Context of the forward epilogue; pre and bias are optional. */
typedef struct Forward {
    Tensor y, pre, bias;
    DType dtype; /* the compute type; y may be fp32 even if this is not */
    int64_t stride;
    Act act;
} Forward;

/* Activations are applied to the rounded value, whether pre is stored or not, so that recomputing gives the
 * same bits. */
static void forward_round(const Forward *f, float *y, int64_t at, int64_t n) {
    uint16_t buffer[RUN];
    bool kept = f->pre.data;
    half_store(kept ? f->pre.data : buffer, f->dtype, kept ? at : 0, y, n);
    half_load(y, kept ? f->pre.data : buffer, f->dtype, kept ? at : 0, n);
}

static void forward_finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                           int64_t rows, int64_t cols) {
    const Forward *f = context;
    for (int64_t first = 0; first < cols; first += RUN) {
        int64_t n = run_of(cols - first);
        float bias[RUN];
        if (f->bias.data) half_load(bias, f->bias.data, f->dtype, col + first, n);
        for (int64_t r = 0; r < rows; r++) {
            float *y = sums + r * stride + first;
            int64_t at = (row + r) * f->stride + col + first;
            if (f->bias.data) {
#pragma omp simd
                for (int64_t c = 0; c < n; c++) y[c] += bias[c];
            }
            if (f->act != ACT_NONE) {
                forward_round(f, y, at, n);
                act_run(y, y, n, f->act);
            }
            half_store(f->y.data, f->y.dtype, at, y, n);
        }
    }
}

Status linear16_forward(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    Forward forward = {y, pre, b, w.dtype, N, act};
    bool wide = y.dtype == DT_F32, suits = false;
    Thin thin = {M, N, K, x.data, w.data, x.dtype, w.dtype, forward_finish, &forward};
    TRY(thin_suits(&thin, &suits));
    if (suits) return thin_run(stream, &thin);
    Gemm16 gemm = {.m = M,
                   .n = N,
                   .k = K,
                   .a = {x.data, x.dtype, K, false},
                   .b = {w.data, w.dtype, K, true},
                   .c = wide ? tensor_f32(y) : NULL,
                   .finish = wide && !b.data && act == ACT_NONE ? NULL : forward_finish,
                   .context = &forward};
    return gemm16_run(stream, &gemm);
}

/* Context of the backward epilogue. */
typedef struct Backward {
    Tensor dx, pre;
    int64_t stride;
    Act act;
    bool accumulate;
} Backward;

static void backward_finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                            int64_t rows, int64_t cols) {
    const Backward *f = context;
    float other[RUN];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t first = 0; first < cols; first += RUN) {
            int64_t n = run_of(cols - first), at = (row + r) * f->stride + col + first;
            float *dx = sums + r * stride + first;
            if (f->act != ACT_NONE) {
                half_load(other, f->pre.data, f->pre.dtype, at, n);
                act_backward_run(dx, dx, other, n, f->act);
            }
            if (f->accumulate) {
                half_load(other, f->dx.data, f->dx.dtype, at, n);
#pragma omp simd
                for (int64_t c = 0; c < n; c++) dx[c] += other[c];
            }
            half_store(f->dx.data, f->dx.dtype, at, dx, n);
        }
}

Status linear16_backward_input(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act,
                               Tensor pre, bool accumulate) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    Backward backward = {dx, pre, K, act, accumulate};
    Gemm16 gemm = {.m = M,
                   .n = K,
                   .k = N,
                   .a = {dy.data, dy.dtype, N, false},
                   .b = {w.data, w.dtype, K, false},
                   .finish = backward_finish,
                   .context = &backward};
    TRY(gemm16_run(stream, &gemm));
    return column_sums(stream, sums, dx);
}

Status linear16_backward_weight(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x, bool accumulate) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(x);
    Gemm16 gemm = {.m = N,
                   .n = K,
                   .k = M,
                   .a = {dy.data, dy.dtype, N, true},
                   .b = {x.data, x.dtype, K, false},
                   .c = tensor_f32(dw),
                   .add = accumulate};
    TRY(gemm16_run(stream, &gemm));
    return column_sums(stream, db, dy);
}
