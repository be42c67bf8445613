/* Dropout with a residual: one pass, the mask drawn on the way. */
#include "kernels/cpu/dropout.h"

#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static void rows_run(Stream *stream, Tensor out, const float *res, Tensor y, const Dropout *dropout) {
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    int64_t T = y.ndim > 1 ? y.dim[y.ndim - 2] : 1;
#pragma omp parallel num_threads(threads_for(stream, rows *C))
    {
        Range mine = range_mine(rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++)
            dropout_add_row(tensor_f32(out) + row * C, res ? res + row * C : NULL, tensor_f32(y) + row * C,
                            row, T, C, dropout);
    }
}

static Status dropout_add_forward_cpu(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    FP32_ELSE(dropout_add_forward_ref(stream, out, res, y, dropout), out, res, y);
    rows_run(stream, out, tensor_f32(res), y, &dropout);
    return OK;
}

static Status dropout_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Dropout dropout) {
    FP32_ELSE(dropout_backward_ref(stream, dx, dy, dropout), dx, dy);
    rows_run(stream, dx, NULL, dy, &dropout);
    return OK;
}

void VARIANT(dropout_override)(KernelTable *table) {
    table->dropout_add_forward = dropout_add_forward_cpu;
    table->dropout_backward = dropout_backward_cpu;
}
