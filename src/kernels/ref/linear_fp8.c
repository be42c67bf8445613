/* Linear layers in fp8; see kernels.h. Quantized operands are kept dequantized in fp32, which represents
 * them exactly, because scales are powers of two. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* The largest magnitude; NaN if an element is infinite or NaN. */
static double amax_of(Tensor x) {
    double largest = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        double magnitude = fabs(tensor_get(x, i));
        if (!isfinite(magnitude)) return NAN;
        if (magnitude > largest) largest = magnitude;
    }
    return largest;
}

/* Records the amax of x (or of the tensor with these partial maxima) and returns the scale to use. */
static float scale_of(Tensor x, DType type, Fp8Scale scale) {
    double amax = amax_of(x);
    float *recorded = scale.amax.data ? tensor_f32(scale.amax) : NULL;
    if (recorded && !isnan(*recorded) && !(amax <= *recorded)) *recorded = (float)amax;
    return scale.scale.data ? tensor_f32(scale.scale)[0] : fp8_scale(amax, type);
}

/* An element as bits. */
static uint8_t quantize_one(double value, float scale, DType type) {
    uint8_t bits;
    tensor_put(tensor_1d(&bits, type, 1), 0, value / scale);
    return bits;
}

/* values = act(x), quantized and dequantized. `kept`, if present, receives the quantized elements,
 * transposed, and the scale. `amax` is optional. */
static void quantize_operand(float *values, Tensor x, Tensor amax, Act act, DType type, Fp8Input kept,
                             Fp8Scale how) {
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    float scale = scale_of(amax.data ? amax : x, type, how);
    if (kept.transposed.data) tensor_f32(kept.scale)[0] = scale;
    for (int64_t i = 0; i < rows * cols; i++) {
        double value = act == ACT_NONE ? tensor_get(x, i) : act_value(act, tensor_get(x, i));
        uint8_t bits = quantize_one(value, scale, type);
        values[i] = (float)tensor_get(tensor_1d(&bits, type, 1), 0) * scale;
        if (kept.transposed.data) ((uint8_t *)kept.transposed.data)[i % cols * rows + i / cols] = bits;
    }
}

static const Fp8Input not_kept = {0};

/* x, quantized, as stored and transposed. */
static void quantize_both(Tensor plain, Tensor transposed, Tensor x, float scale, DType type) {
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    uint8_t *to = plain.data, *to_transposed = transposed.data;
    for (int64_t i = 0; i < rows * cols; i++)
        to[i] = to_transposed[i % cols * rows + i / cols] = quantize_one(tensor_get(x, i), scale, type);
}

void quantize_input_ref(Fp8Input ret_input, Tensor x, Fp8Scale scale) {
    float used = scale_of(x, DT_E4M3, scale);
    tensor_f32(ret_input.scale)[0] = used;
    quantize_both(ret_input.plain, ret_input.transposed, x, used, DT_E4M3);
}

Status norm_fp8_forward_ref(Stream *stream, Tensor sum, Tensor out, Fp8Input quantized, Tensor mean,
                            Tensor rstd, Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                            Dropout dropout, Fp8Scale scale) {
    Tensor normed = res, from = y.data ? sum : res;
    TRY(stream_workspace(stream, tensor_bytes(res), &normed.data));
    if (y.data) TRY(dropout_add_forward_ref(stream, sum, res, y, dropout));
    if (beta.data)
        TRY(layernorm_forward_ref(stream, normed, mean, rstd, from, gamma, beta, eps));
    else
        TRY(rmsnorm_forward_ref(stream, normed, rstd, from, gamma, eps, (HeadRange){0}));
    if (out.data) memcpy(out.data, normed.data, tensor_bytes(normed));
    quantize_input_ref(quantized, normed, scale);
    return OK;
}

Status fp8_weight_ref(Stream *stream, Fp8Weight weight, Tensor w, Fp8Scale scale) {
    (void)stream;
    float used = scale_of(w, DT_E4M3, scale);
    tensor_f32(weight.scale)[0] = used;
    quantize_both(weight.plain, weight.transposed, w, used, DT_E4M3);
    return OK;
}

/* The quantized weights (N,K): as they are, or w. */
static void weight_rows(float *weights, Tensor w, Fp8Weight weight, Fp8Scale how) {
    if (!weight.plain.data) {
        quantize_operand(weights, w, TENSOR_NONE, ACT_NONE, DT_E4M3, not_kept, how);
        return;
    }
    for (int64_t i = 0; i < tensor_count(w); i++)
        weights[i] = (float)tensor_get(weight.plain, i) * tensor_f32(weight.scale)[0];
}

Status linear_fp8_forward_ref(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                              Fp8Weight weight, Tensor b, Fp8Scales scales) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(M * K + N * K) * sizeof(float), &workspace));
    float *rows = workspace, *weights = rows + M * K;
    if (kept.plain.data)
        for (int64_t i = 0; i < M * K; i++)
            rows[i] = (float)tensor_get(kept.plain, i) * tensor_f32(kept.scale)[0];
    else
        quantize_operand(rows, x, TENSOR_NONE, act, DT_E4M3, kept, scales.input);
    weight_rows(weights, w, weight, scales.weight);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            const float *row = rows + m * K, *column = weights + n * K;
            double total = b.data ? tensor_get(b, n) : 0;
            for (int64_t k = 0; k < K; k++) total += (double)row[k] * column[k];
            tensor_put(y, m * N + n, total);
        }
    return OK;
}

/* The quantized input (M,K): what forward saved, or x quantized again. */
static void input_rows(float *rows, Fp8Input kept, Tensor x, Act act, int64_t M, int64_t K, Fp8Scale how) {
    if (!kept.transposed.data) {
        quantize_operand(rows, x, TENSOR_NONE, act, DT_E4M3, not_kept, how);
        return;
    }
    for (int64_t i = 0; i < M * K; i++)
        rows[i] = (float)tensor_get(kept.transposed, i % K * M + i / K) * tensor_f32(kept.scale)[0];
}

static void backward_input(Tensor dx, const float *dy, const float *weights, Tensor x, Act act, bool add,
                           int64_t N) {
    int64_t M = tensor_rows(dx), K = tensor_cols(dx);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            double total = 0;
            for (int64_t n = 0; n < N; n++) total += (double)dy[m * N + n] * weights[n * K + k];
            if (act != ACT_NONE) total *= act_derivative(act, tensor_get(x, m * K + k));
            tensor_put(dx, m * K + k, add ? tensor_get(dx, m * K + k) + total : total);
        }
}

static void backward_weight(Tensor dw, const float *dy, const float *rows, int64_t M, bool accumulate) {
    int64_t N = tensor_rows(dw), K = tensor_cols(dw);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            double total = accumulate ? tensor_f32(dw)[n * K + k] : 0, sum = 0;
            for (int64_t m = 0; m < M; m++) sum += (double)dy[m * N + n] * rows[m * K + k];
            tensor_f32(dw)[n * K + k] = (float)(total + sum);
        }
}

static void leave_gradient(Fp8Gradient next, Tensor dx) {
    add_column_sums(next.sums, dx);
    for (int64_t i = 0; next.amax.data && i < FP8_AMAX_PARTS; i++)
        tensor_f32(next.amax)[i] = i == 0 ? (float)amax_of(dx) : 0;
    if (!next.plain.data) return;
    quantize_both(next.plain, next.transposed, dx, scale_of(dx, DT_E5M2, next.scale), DT_E5M2);
}

/* The quantized output gradient: as it was left, or dy. */
static void gradient_rows(float *gradients, Tensor dy, Fp8Gradient known, Fp8Scale how) {
    if (!known.plain.data) {
        quantize_operand(gradients, dy, known.amax, ACT_NONE, DT_E5M2, not_kept, how);
        return;
    }
    for (int64_t i = 0; i < tensor_count(dy); i++)
        gradients[i] = (float)tensor_get(known.plain, i) * tensor_f32(known.scale.scale)[0];
}

/* Reads w and the input, either as saved by forward or as x; also x if the input is the output of an
 * activation. */
Status linear_fp8_backward_ref(Stream *stream, Tensor dx, Fp8Gradient next, Tensor dw, Tensor db, Tensor dy,
                               Fp8Gradient known, Dropout dropout, Tensor w, Fp8Weight weight, Fp8Input kept,
                               Tensor x, Act act, bool add, bool accumulate, Fp8Scales scales) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(2 * M * N + N * K + M * K) * sizeof(float), &workspace));
    float *gradients = workspace, *weights = gradients + M * N, *rows = weights + N * K;
    if (dropout.p > 0) {
        Tensor dropped = dy;
        dropped.data = rows + M * K;
        TRY(dropout_backward_ref(stream, dropped, TENSOR_NONE, dy, dropout));
        dy = dropped;
    }
    gradient_rows(gradients, dy, known, scales.gradient);
    if (dx.data) {
        weight_rows(weights, w, weight, scales.weight);
        backward_input(dx, gradients, weights, x, act, add, N);
        leave_gradient(next, dx);
    }
    if (!dw.data) return OK;
    input_rows(rows, kept, x, act, M, K, scales.input);
    backward_weight(dw, gradients, rows, M, accumulate);
    add_column_sums(db, dy);
    return OK;
}
