/* Dropout with a residual connection in a single pass. */
#include "kernels/cpu/dropout.h"

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static void dropout_rows(Stream *stream, Tensor out, Tensor res, Tensor y, const Dropout *dropout) {
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    int64_t T = y.ndim > 1 ? y.dim[y.ndim - 2] : 1;
#pragma omp parallel num_threads(threads_for(stream, rows *C))
    {
        Range mine = range_mine(rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++)
            BY_TYPE(y.dtype, dropout_add_run, run_at(out, row * C), run_at(res, row * C), run_at(y, row * C),
                    C, dropout, dropout_row(dropout, row / T, row % T));
    }
}

static Status dropout_add_forward_cpu(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    dropout_rows(stream, out, res, y, &dropout);
    return OK;
}

static Status dropout_backward_cpu(Stream *stream, Tensor dx, Tensor dy, Dropout dropout) {
    dropout_rows(stream, dx, TENSOR_NONE, dy, &dropout);
    return OK;
}

void VARIANT(dropout_override)(KernelTable *table) {
    table->dropout_add_forward = dropout_add_forward_cpu;
    table->dropout_backward = dropout_backward_cpu;
}
