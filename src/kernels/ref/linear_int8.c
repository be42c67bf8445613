/* Linear layers with int8 or int4 weights, for any packing. Inputs are quantized in fp32 exactly as
 * kernels.h specifies, so that every backend gets the same integers. */
#include <math.h>

#include "kernels/int8.h"
#include "kernels/ref/ref.h"

Status int8_tile_ref(int bits, Int8Tile *ret_tile) {
    (void)bits;
    *ret_tile = (Int8Tile){1, 1, 16, false};
    return OK;
}

/* Quantizes a row, overwriting x with its scaled and clamped values. Returns the scale of q; NaN if an
 * element is not finite. */
static float quantize_row(int8_t *q, float *x, const Int8View *view) {
    int64_t K = view->header->inputs;
    float row_amax = 0, static_amax = view->header->amax;
    for (int64_t k = 0; k < K; k++) {
        if (view->factor) x[k] *= view->factor[k];
        if (!isfinite(x[k])) return NAN;
        if (static_amax > 0) x[k] = fminf(fmaxf(x[k], -static_amax), static_amax);
        if (fabsf(x[k]) > row_amax) row_amax = fabsf(x[k]);
    }
    if (static_amax > 0) row_amax = static_amax;
    float inverse = row_amax > 0 ? 127.0f / row_amax : 0;
    if (isinf(inverse)) inverse = 0; /* the reciprocal overflowed: treat the row as zero */
    for (int64_t k = 0; k < K; k++) q[k] = (int8_t)rintf(x[k] * inverse);
    return row_amax / 127.0f;
}

Status linear_int8_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    Int8View view = int8_view(w);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(M + 2 * K) * sizeof(float) + (size_t)(M * K), &workspace));
    float *scale = workspace, *row = scale + M;    /* (M), (K) */
    int32_t *weights = (int32_t *)(void *)row + K; /* (K) */
    int8_t *q = (int8_t *)(weights + K);           /* (M,K) */
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) row[k] = (float)tensor_get(x, m * K + k);
        scale[m] = quantize_row(q + m * K, row, &view);
    }
    for (int64_t n = 0; n < N; n++) {
        for (int64_t k = 0; k < K; k++) weights[k] = int8_value(&view, n, k);
        for (int64_t m = 0; m < M; m++) {
            int64_t inputs = isnan(scale[m]) ? 0 : K; /* a row that is not finite has no q */
            int32_t total = 0;
            for (int64_t k = 0; k < inputs; k++) total += q[m * K + k] * weights[k];
            double value = (double)total * scale[m] * view.scale[n] + (b.data ? tensor_get(b, n) : 0);
            if (pre.data) tensor_put(pre, m * N + n, value);
            tensor_put(y, m * N + n, act == ACT_NONE ? value : act_value(act, value));
        }
    }
    return OK;
}
