/* The functions of kernels.h, first part: linear layers, activations, dropout and norms in fp8.
 * Each function checks that its tensors agree, counts the call and runs the slot. A call on zero rows
 * returns early, so slots never see one.
 *
 * FLOPs are counted from shapes: a multiplication, an addition, a comparison and a call of exp or tanh
 * count as one each. Attention counts the query-key pairs that the causal mask and the window leave. Padding
 * and documents are not known here and count as work. */
#include "kernels/kernels.h"

#include <math.h>

#include "kernels/backend.h"
#include "kernels/dispatch.h"
#include "kernels/int8.h"
#include "kernels/sparse.h"

const double act_forward_flops[ACT_COUNT] = {
    [ACT_NONE] = 0, [ACT_GELU_TANH] = 9, [ACT_GELU_ERF] = 5, [ACT_RELU] = 1, [ACT_TANH] = 1, [ACT_SILU] = 4};
const double act_backward_flops[ACT_COUNT] = {[ACT_NONE] = 0, [ACT_GELU_TANH] = 17, [ACT_GELU_ERF] = 11,
                                              [ACT_RELU] = 2, [ACT_TANH] = 4,       [ACT_SILU] = 9};

Status linear_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    if (exec->observer) TRY(exec->observer->observe(exec->observer, exec->stream, x, w));
    if (w.dtype == DT_Q8 || w.dtype == DT_Q4) return linear_int8_forward(exec, y, pre, x, w, b, act);
    if (w.dtype == DT_SPARSE) return linear_sparse_act_forward(exec, y, pre, x, w, b, act);
    CHECK_FLOAT(x);
    CHECK_FLOAT(w);
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    CHECK_MATRIX(w, x.dtype, N, K);
    CHECK_MATRIX(y, act == ACT_NONE && y.dtype == DT_F32 ? DT_F32 : x.dtype, M, N);
    if (b.data) CHECK_COUNT(b, x.dtype, N);
    if (pre.data && act == ACT_NONE) return FAILED("internal: %s: pre requires an activation", __func__);
    if (pre.data) CHECK_MATRIX(pre, x.dtype, M, N);
    if (M == 0 || N == 0) return OK;
    SIZES(M, N, K, act == ACT_NONE ? 0 : OP_ACT);
    RUN(KERNEL_LINEAR_FORWARD, 2.0 * (double)M * (double)N * (double)K, BYTES(y, pre, x, w, b),
        linear_forward, y, pre, x, w, b, act);
}

Status linear_backward_input(Exec *exec, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act, Tensor pre,
                             bool accumulate) {
    CHECK_FLOAT(dy);
    CHECK_FLOAT(w);
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    CHECK_MATRIX(w, w.dtype, N, K);
    CHECK_MATRIX(dy, dy.dtype == DT_F32 ? DT_F32 : w.dtype, M, N);
    CHECK_MATRIX(dx, w.dtype, M, K);
    if (act != ACT_NONE) CHECK_MATRIX(pre, w.dtype, M, K);
    if (sums.data) CHECK_COUNT(sums, DT_F32, K);
    if (M == 0 || K == 0) return OK;
    SIZES(M, K, N, act == ACT_NONE ? 0 : OP_ACT);
    RUN(KERNEL_LINEAR_BACKWARD_INPUT, 2.0 * (double)M * (double)N * (double)K, BYTES(dx, dy, w, pre),
        linear_backward_input, dx, sums, dy, w, act, pre, accumulate);
}

Status linear_backward_weight(Exec *exec, Tensor dw, Tensor db, Tensor dy, Tensor x, bool accumulate) {
    CHECK_FLOAT(dy);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = dw.data ? tensor_cols(x) : 1;
    CHECK_MATRIX(dy, dy.dtype, M, N);
    if (dw.data) {
        CHECK_FLOAT(x);
        CHECK_MATRIX(x, x.dtype, M, K);
        CHECK_MATRIX(dy, dy.dtype == DT_F32 ? DT_F32 : x.dtype, M, N);
        CHECK_MATRIX(dw, DT_F32, N, K);
    }
    if (db.data) CHECK_COUNT(db, DT_F32, N);
    if ((M == 0 || N == 0) && dw.data && !accumulate)
        return stream_zero(exec->stream, dw.data, tensor_bytes(dw));
    if (M == 0 || N == 0 || (!dw.data && !db.data)) return OK;
    SIZES(N, K, M, 0);
    RUN(KERNEL_LINEAR_BACKWARD_WEIGHT, 2.0 * (double)M * (double)N * (double)K,
        BYTES(dw, db, dy) + (dw.data ? BYTES(x) : 0), linear_backward_weight, dw, db, dy, x, accumulate);
}

float fp8_scale(double amax, DType type) {
    int top = type == DT_E4M3 ? 8 : 15; /* the type's largest value is 1.75 * 2^top */
    if (!isfinite(amax)) return NAN;
    if (amax == 0) return 1;
    int exponent = ilogb(amax) - top;
    if (ldexp(amax, -ilogb(amax)) > 1.75) exponent++;
    return ldexpf(1, exponent < -126 ? -126 : exponent);
}

bool linear_fp8_supports(int64_t M, int64_t N, int64_t K) {
    return M % 16 == 0 && N % 16 == 0 && K % 16 == 0;
}

static Status check_fp8(const char *kernel, int64_t M, int64_t N, int64_t K, Fp8Input kept) {
    if (!linear_fp8_supports(M, N, K))
        return FAILED("internal: %s: GEMM sizes (%lld, %lld, %lld) must be multiples of 16", kernel,
                      (long long)M, (long long)N, (long long)K);
    if (kept.plain.data) TRY(check_matrix(kernel, "kept.plain", kept.plain, DT_E4M3, M, K));
    if (!kept.transposed.data && !kept.plain.data) return OK;
    TRY(check_matrix(kernel, "kept.transposed", kept.transposed, DT_E4M3, K, M));
    return check_count(kernel, "kept.scale", kept.scale, DT_F32, 1);
}

static unsigned fp8_traits(Act act, Fp8Scale scale, bool quantized) {
    return (act == ACT_NONE ? 0 : OP_ACT) | (scale.scale.data ? OP_DELAYED : 0) |
           (quantized ? OP_QUANTIZED : 0);
}

static Status check_fp8_scale(const char *kernel, Fp8Scale scale) {
    if (scale.scale.data) TRY(check_count(kernel, "scale", scale.scale, DT_F32, 1));
    return scale.amax.data ? check_count(kernel, "amax", scale.amax, DT_F32, 1) : OK;
}

static Status check_fp8_scales(const char *kernel, const Fp8Scales *scales) {
    TRY(check_fp8_scale(kernel, scales->input));
    TRY(check_fp8_scale(kernel, scales->weight));
    return check_fp8_scale(kernel, scales->gradient);
}

static Status check_fp8_weight(const char *kernel, const Fp8Weight *weight, int64_t N, int64_t K) {
    TRY(check_matrix(kernel, "weight.plain", weight->plain, DT_E4M3, N, K));
    TRY(check_matrix(kernel, "weight.transposed", weight->transposed, DT_E4M3, K, N));
    return check_count(kernel, "weight.scale", weight->scale, DT_F32, 1);
}

Status fp8_weight(Exec *exec, Fp8Weight weight, Tensor w, Fp8Scale scale) {
    int64_t N = tensor_rows(w), K = tensor_cols(w);
    CHECK_MATRIX(w, DT_BF16, N, K);
    TRY(check_fp8_weight(__func__, &weight, N, K));
    TRY(check_fp8_scale(__func__, scale));
    if (!linear_fp8_supports(N, N, K)) return FAILED("internal: %s: sizes must be multiples of 16", __func__);
    if (N == 0 || K == 0) return OK;
    RUN(KERNEL_FP8_WEIGHT, 2.0 * (double)tensor_count(w), BYTES(weight.plain, weight.transposed, w),
        fp8_weight, weight, w, scale);
}

Status linear_fp8_forward(Exec *exec, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w, Fp8Weight weight,
                          Tensor b, Fp8Scales scales) {
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    CHECK_MATRIX(x, DT_BF16, M, K);
    CHECK_MATRIX(w, DT_BF16, N, K);
    CHECK_MATRIX(y, DT_BF16, M, N);
    if (b.data) CHECK_COUNT(b, DT_BF16, N);
    TRY(check_fp8(__func__, M, N, K, kept));
    TRY(check_fp8_scales(__func__, &scales));
    if (weight.plain.data) TRY(check_fp8_weight(__func__, &weight, N, K));
    if (kept.plain.data && act != ACT_NONE)
        return FAILED("internal: %s: a quantized input excludes an activation", __func__);
    if (M == 0 || N == 0) return OK;
    SIZES(M, N, K, fp8_traits(act, scales.weight, kept.plain.data));
    RUN(KERNEL_LINEAR_FP8_FORWARD, 2.0 * (double)M * (double)N * (double)K,
        BYTES(y, kept.transposed, x, w, b), linear_fp8_forward, y, kept, x, act, w, weight, b, scales);
}

/* `is` describes a gradient (rows,cols). */
static Status check_fp8_gradient(const char *kernel, const Fp8Gradient *is, bool known, int64_t rows,
                                 int64_t cols) {
    TRY(check_fp8_scale(kernel, is->scale));
    if (is->sums.data) TRY(check_count(kernel, "sums", is->sums, DT_F32, cols));
    if (is->plain.data) {
        TRY(check_matrix(kernel, "plain", is->plain, DT_E5M2, rows, cols));
        if (is->transposed.data || !known)
            TRY(check_matrix(kernel, "transposed", is->transposed, DT_E5M2, cols, rows));
        return check_count(kernel, "scale", is->scale.scale, DT_F32, 1);
    }
    if (!is->amax.data && !is->sums.data) return OK;
    TRY(check_count(kernel, "amax", is->amax, DT_F32, FP8_AMAX_PARTS));
    if (cols <= FP8_AMAX_MAX_COLS) return OK;
    return FAILED("internal: %s: an amax requires at most %d columns", kernel, FP8_AMAX_MAX_COLS);
}

Status linear_fp8_backward(Exec *exec, Tensor dx, Fp8Gradient next, Tensor dw, Tensor db, Tensor dy,
                           Fp8Gradient known, Dropout dropout, Tensor w, Fp8Weight weight, Fp8Input kept,
                           Tensor x, Act act, bool add, bool accumulate, Fp8Scales scales) {
    TRY(check_act(__func__, act));
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    CHECK_MATRIX(dy, DT_BF16, M, N);
    CHECK_MATRIX(w, DT_BF16, N, K);
    if (dx.data) CHECK_MATRIX(dx, DT_BF16, M, K);
    if (dw.data) CHECK_MATRIX(dw, DT_F32, N, K);
    if (db.data) CHECK_COUNT(db, DT_F32, N);
    if (db.data && !dw.data) return FAILED("internal: %s: db requires dw", __func__);
    if (known.plain.data && db.data) return FAILED("internal: %s: db requires dy", __func__);
    if (next.amax.data || next.plain.data) CHECK_MATRIX(dx, DT_BF16, M, K);
    if (weight.plain.data) TRY(check_fp8_weight(__func__, &weight, N, K));
    if (add && (act != ACT_NONE || next.plain.data || next.amax.data))
        return FAILED("internal: %s: adding to dx excludes an activation and `next`", __func__);
    if (dropout.p > 0 && (dy.ndim != 3 || known.plain.data || known.amax.data || !scales.gradient.scale.data))
        return FAILED("internal: %s: dropout requires dy (B,T,C) and delayed scaling", __func__);
    TRY(check_fp8_gradient(__func__, &next, false, M, K));
    TRY(check_fp8_gradient(__func__, &known, true, M, N));
    TRY(check_fp8_scales(__func__, &scales));
    TRY(check_fp8(__func__, M, N, K, kept));
    if ((act != ACT_NONE && dx.data) || (dw.data && !kept.transposed.data)) CHECK_MATRIX(x, DT_BF16, M, K);
    if ((M == 0 || N == 0) && dw.data && !accumulate)
        return stream_zero(exec->stream, dw.data, tensor_bytes(dw));
    if (M == 0 || N == 0 || (!dx.data && !dw.data)) return OK;
    double flops_per_element = (dx.data ? 2.0 : 0.0) + (dw.data ? 2.0 : 0.0);
    SIZES(M, N, K, fp8_traits(act, scales.weight, false));
    RUN(KERNEL_LINEAR_FP8_BACKWARD, flops_per_element * (double)M * (double)N * (double)K,
        BYTES(dx, dw, db, dy, w, kept.transposed), linear_fp8_backward, dx, next, dw, db, dy, known, dropout,
        w, weight, kept, x, act, add, accumulate, scales);
}

Status act_forward(Exec *exec, Tensor y, Tensor x, Act act) {
    CHECK_FLOAT(x);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(x);
    CHECK_COUNT(y, x.dtype, count);
    if (count == 0) return OK;
    RUN(KERNEL_ACT_FORWARD, act_forward_flops[act] * (double)count, BYTES(y, x), act_forward, y, x, act);
}

Status act_backward(Exec *exec, Tensor dx, Tensor dy, Tensor x, Act act) {
    CHECK_FLOAT(x);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(x);
    CHECK_COUNT(dx, x.dtype, count);
    CHECK_COUNT(dy, x.dtype, count);
    if (count == 0) return OK;
    RUN(KERNEL_ACT_BACKWARD, act_backward_flops[act] * (double)count, BYTES(dx, dy, x), act_backward, dx, dy,
        x, act);
}

Status glu_forward(Exec *exec, Tensor y, Tensor x, Act act) {
    CHECK_FLOAT(y);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(y);
    CHECK_COUNT(x, y.dtype, 2 * count);
    if (count == 0) return OK;
    RUN(KERNEL_GLU_FORWARD, (1 + act_forward_flops[act]) * (double)count, BYTES(y, x), glu_forward, y, x,
        act);
}

Status glu_backward(Exec *exec, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    CHECK_FLOAT(dy);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(dy);
    CHECK_COUNT(x, dy.dtype, 2 * count);
    CHECK_COUNT(dx, dy.dtype, 2 * count);
    if (y.data) CHECK_LIKE(y, dy);
    if (count == 0) return OK;
    RUN(KERNEL_GLU_BACKWARD, (2 + act_forward_flops[act] + act_backward_flops[act]) * (double)count,
        BYTES(dx, y, dy, x), glu_backward, dx, y, dy, x, act);
}

Status dropout_add_forward(Exec *exec, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    CHECK_FLOAT(y);
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    CHECK_MATRIX(out, y.dtype, rows, C);
    if (res.data) CHECK_MATRIX(res, y.dtype, rows, C);
    TRY(check_dropout(__func__, &dropout, y));
    if (rows == 0) return OK;
    SIZES(0, 0, 0, dropout.p > 0 ? OP_DROPOUT : 0);
    RUN(KERNEL_DROPOUT_ADD_FORWARD, 3.0 * (double)tensor_count(y), BYTES(out, res, y), dropout_add_forward,
        out, res, y, dropout);
}

Status dropout_backward(Exec *exec, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    CHECK_FLOAT(dy);
    int64_t rows = tensor_rows(dy), C = tensor_cols(dy);
    CHECK_MATRIX(dx, dy.dtype, rows, C);
    if (sums.data) CHECK_COUNT(sums, DT_F32, C);
    TRY(check_dropout(__func__, &dropout, dy));
    if (rows == 0) return OK;
    SIZES(0, 0, 0, dropout.p > 0 ? OP_DROPOUT : 0);
    RUN(KERNEL_DROPOUT_BACKWARD, 2.0 * (double)tensor_count(dy), BYTES(dx, dy), dropout_backward, dx, sums,
        dy, dropout);
}

bool norm_fp8_supports(int64_t rows, int64_t C, bool rms) {
    return linear_fp8_supports(rows, C, C) && C <= (rms ? 1024 : 1792);
}

Status norm_fp8_forward(Exec *exec, Tensor sum, Tensor out, Fp8Input quantized, Tensor mean, Tensor rstd,
                        Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps, Dropout dropout,
                        Fp8Scale scale) {
    int64_t rows = tensor_rows(res), C = tensor_cols(res);
    CHECK_MATRIX(res, DT_BF16, rows, C);
    if (y.data) CHECK_MATRIX(y, DT_BF16, rows, C);
    if (y.data) CHECK_MATRIX(sum, DT_BF16, rows, C);
    if (out.data) CHECK_MATRIX(out, DT_BF16, rows, C);
    CHECK_MATRIX(quantized.plain, DT_E4M3, rows, C);
    CHECK_MATRIX(quantized.transposed, DT_E4M3, C, rows);
    CHECK_COUNT(quantized.scale, DT_F32, 1);
    if (beta.data) CHECK_COUNT(mean, DT_F32, rows);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, DT_BF16, C);
    if (beta.data) CHECK_COUNT(beta, DT_BF16, C);
    CHECK_COUNT(scale.scale, DT_F32, 1);
    TRY(check_fp8_scale(__func__, scale));
    if (y.data) TRY(check_dropout(__func__, &dropout, y));
    if (!norm_fp8_supports(rows, C, !beta.data)) return FAILED("internal: %s: unsupported sizes", __func__);
    if (rows == 0) return OK;
    SIZES(0, 0, 0, y.data && dropout.p > 0 ? OP_DROPOUT : 0);
    RUN(KERNEL_NORM_FP8_FORWARD, 12.0 * (double)tensor_count(res),
        BYTES(sum, out, quantized.plain, quantized.transposed, mean, rstd, res, y, gamma, beta),
        norm_fp8_forward, sum, out, quantized, mean, rstd, res, y, gamma, beta, eps, dropout, scale);
}
