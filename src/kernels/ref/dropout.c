/* Dropout on (B,T,C) tensors. The mask is not stored: backward draws forward's mask again. */
#include "kernels/ref/ref.h"

/* to = add + from * mask / (1 - p); add is optional. With p = 0 any shape is accepted. */
static void drop(Tensor to, Tensor add, Tensor from, const Dropout *dropout) {
    int64_t C = tensor_cols(from), T = dropout->p == 0 ? 1 : from.dim[1];
    for (int64_t r = 0; r < tensor_rows(from); r++) {
        uint64_t index = dropout_row(dropout, r / T, r % T);
        for (int64_t c = 0; c < C; c++) {
            double kept = tensor_get(from, r * C + c) * dropout_factor(dropout, index + (uint64_t)c);
            tensor_put(to, r * C + c, (add.data ? tensor_get(add, r * C + c) : 0) + kept);
        }
    }
}

Status dropout_add_forward_ref(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    (void)stream;
    drop(out, res, y, &dropout);
    return OK;
}

Status dropout_backward_ref(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    (void)stream;
    drop(dx, TENSOR_NONE, dy, &dropout);
    add_column_sums(sums, dx);
    return OK;
}
