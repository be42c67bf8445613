/* Dropout with a residual connection in a single pass. */
#include "kernels/cpu/dropout.h"

#include "kernels/cpu/columns.h"

typedef struct DropoutRows {
    Tensor out, res, y;
    const Dropout *dropout;
} DropoutRows;

static void dropout_range(const void *context, Range mine) {
    const DropoutRows *f = context;
    int64_t C = tensor_cols(f->y), T = f->y.ndim > 1 ? f->y.dim[f->y.ndim - 2] : 1;
    for (int64_t row = mine.from; row < mine.to; row++)
        BY_TYPE(f->y.dtype, dropout_add_run, run_at(f->out, row * C), run_at(f->res, row * C),
                run_at(f->y, row * C), C, f->dropout, dropout_row(f->dropout, row / T, row % T));
}

static void dropout_rows(Stream *stream, Tensor out, Tensor res, Tensor y, const Dropout *dropout) {
    DropoutRows rows = {out, res, y, dropout};
    ranges_run(stream, tensor_rows(y), 1, tensor_count(y), dropout_range, &rows);
}

static Status dropout_add_forward_cpu(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    dropout_rows(stream, out, res, y, &dropout);
    return OK;
}

/* A part of the rows whose sums are also needed. */
typedef struct SummedRows {
    DropoutRows rows;
    ColumnSums sums;
} SummedRows;

static void summed_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const SummedRows *f = context;
    dropout_range(&f->rows, range_part(f->sums.rows, 1, (int)part, f->sums.parts));
    columns_part(&f->sums, f->rows.out, part);
}

static Status dropout_backward_cpu(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    if (!columns_bytes(sums, dx)) {
        dropout_rows(stream, dx, TENSOR_NONE, dy, &dropout);
        return OK;
    }
    void *workspace;
    TRY(stream_workspace(stream, columns_bytes(sums, dx), &workspace));
    SummedRows summed = {{dx, TENSOR_NONE, dy, &dropout}, columns_of(sums, dx, workspace)};
    pool_run(pool_for(stream, tensor_count(dx)), summed.sums.parts, summed_task, &summed);
    columns_add(stream, &summed.sums);
    return OK;
}

void VARIANT(dropout_override)(KernelTable *table) {
    table->dropout_add_forward = dropout_add_forward_cpu;
    table->dropout_backward = dropout_backward_cpu;
}
