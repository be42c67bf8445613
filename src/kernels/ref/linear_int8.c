/* Linear layers with weights of 8 bits, in whatever order they are packed. The rounding is done in fp32, as
 * kernels.h has it, so that every backend gets the same integers. */
#include <math.h>

#include "kernels/int8.h"
#include "kernels/ref/ref.h"

Status int8_tile_ref(int bits, Int8Tile *ret_tile) {
    (void)bits;
    *ret_tile = (Int8Tile){1, 1, 16};
    return OK;
}

/* What q is to be multiplied by; NaN where a number is not finite. x is used up. */
static float round_row(int8_t *q, float *x, const Int8View *view) {
    int64_t K = view->head->inputs;
    float largest = 0, held = view->head->largest;
    for (int64_t k = 0; k < K; k++) {
        if (view->factor) x[k] *= view->factor[k];
        if (!isfinite(x[k])) return NAN;
        if (held > 0) x[k] = fminf(fmaxf(x[k], -held), held);
        if (fabsf(x[k]) > largest) largest = fabsf(x[k]);
    }
    if (held > 0) largest = held;
    float finer = largest > 0 ? 127.0f / largest : 0;
    if (isinf(finer)) finer = 0; /* as good as zero */
    for (int64_t k = 0; k < K; k++) q[k] = (int8_t)rintf(x[k] * finer);
    return largest / 127.0f;
}

Status linear_int8_forward_ref(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    Int8View view = int8_view(w);
    void *room;
    TRY(stream_workspace(stream, (size_t)K * (sizeof(float) + 1), &room));
    float *row = room;
    int8_t *q = (int8_t *)(row + K);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) row[k] = (float)tensor_get(x, m * K + k);
        float unit = round_row(q, row, &view);
        for (int64_t n = 0; n < N; n++) {
            int32_t total = 0;
            for (int64_t k = 0; k < K && !isnan(unit); k++) total += q[k] * int8_value(&view, n, k);
            double value = (double)total * unit * view.scale[n] + (b.data ? tensor_get(b, n) : 0);
            if (pre.data) tensor_put(pre, m * N + n, value);
            tensor_put(y, m * N + n, act == ACT_NONE ? value : act_value(act, value));
        }
    }
    return OK;
}
