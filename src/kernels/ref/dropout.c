/* Dropout on (B,T,C) tensors; backward draws forward's mask again. */
#include "kernels/ref/ref.h"

/* to = add + from * mask / (1 - p); add may be NULL. With p = 0 the shape is free. */
static void drop(float *to, const float *add, const float *from, Tensor shape, const Dropout *dropout) {
    int64_t C = tensor_cols(shape), T = dropout->p == 0 ? 1 : shape.dim[1];
    for (int64_t r = 0; r < tensor_rows(shape); r++) {
        uint64_t index = dropout_row(dropout, r / T, r % T);
        for (int64_t c = 0; c < C; c++) {
            double kept = from[r * C + c] * dropout_factor(dropout, index + (uint64_t)c);
            to[r * C + c] = (float)((add ? add[r * C + c] : 0) + kept);
        }
    }
}

Status dropout_add_forward_ref(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    (void)stream;
    FP32_ONLY("dropout_add_forward", out, res, y);
    drop(out.data, res.data, y.data, y, &dropout);
    return OK;
}

Status dropout_backward_ref(Stream *stream, Tensor dx, Tensor dy, Dropout dropout) {
    (void)stream;
    FP32_ONLY("dropout_backward", dx, dy);
    drop(dx.data, NULL, dy.data, dy, &dropout);
    return OK;
}
