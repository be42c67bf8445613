/* Linear layers of experts: a list of GEMMs (gemm.h), one per expert.
 *
 * R rows, E experts, K inputs, N outputs */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/runs.h"

/* Stores the result, unless it is where it belongs. */
static void store(const void *context, float *sums, int64_t stride, int64_t row, int64_t col, int64_t rows,
                  int64_t cols) {
    const Tensor *to = context;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (row + r) * tensor_cols(*to) + col;
        const float *from = sums + r * stride;
        if ((const void *)from != run_at(*to, at)) half_store(to->data, to->dtype, at, from, cols);
    }
}

typedef struct Grouped {
    Gemm gemm; /* of all rows, with the matrix of the first expert */
    const int32_t *offsets;
    int64_t matrix; /* elements of a matrix */
} Grouped;

static const void *at_element(Operand operand, int64_t at) {
    return (const char *)operand.data + at * (int64_t)dtype_size(operand.dtype);
}

/* The rows of expert e times its matrix. */
static Gemm rows_at(const void *context, int64_t e) {
    const Grouped *f = context;
    Gemm gemm = f->gemm;
    gemm.row = f->offsets[e];
    gemm.m = f->offsets[e + 1] - gemm.row;
    gemm.a.data = at_element(gemm.a, gemm.row * gemm.a.stride);
    gemm.b.data = at_element(gemm.b, e * f->matrix);
    if (gemm.c) gemm.c += gemm.row * gemm.n;
    return gemm;
}

/* The gradient of its matrix. */
static Gemm matrix_at(const void *context, int64_t e) {
    const Grouped *f = context;
    Gemm gemm = f->gemm;
    int64_t first = f->offsets[e];
    gemm.k = f->offsets[e + 1] - first;
    gemm.a.data = at_element(gemm.a, first * gemm.a.stride);
    gemm.b.data = at_element(gemm.b, first * gemm.b.stride);
    gemm.c += e * f->matrix;
    return gemm;
}

static Operand operand_of(Tensor x, bool trans) {
    return (Operand){x.data, x.dtype, tensor_cols(x), trans};
}

/* Requests the workspace before it reads the offsets, which a dry run does not have. */
static Status run(Stream *stream, const char *kernel, Grouped *f, Tensor offsets,
                  Gemm (*at)(const void *context, int64_t e)) {
    GemmList list = {(int)tensor_count(offsets) - 1, f->gemm, at, f};
    size_t bytes = 0;
    void *workspace;
    TRY(gemm_list_bytes(stream, &list, &bytes));
    TRY(stream_workspace(stream, bytes, &workspace));
    TRY(kernels_check_offsets(kernel, offsets, at == matrix_at ? f->gemm.k : f->gemm.m));
    f->offsets = tensor_i32(offsets);
    return gemm_list_run(stream, &list, workspace);
}

static Status grouped_forward_cpu(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    int64_t N = tensor_cols(y), K = tensor_cols(x);
    Grouped f = {.matrix = N * K};
    f.gemm = (Gemm){.m = tensor_rows(x),
                    .n = N,
                    .k = K,
                    .a = operand_of(x, false),
                    .b = operand_of(w, true),
                    .c = y.dtype == DT_F32 ? tensor_f32(y) : NULL,
                    .finish = store,
                    .context = &y};
    return run(stream, "grouped_forward", &f, offsets, rows_at);
}

static Status grouped_backward_input_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor w, Tensor offsets) {
    int64_t N = tensor_cols(dy), K = tensor_cols(dx);
    Grouped f = {.matrix = N * K};
    f.gemm = (Gemm){.m = tensor_rows(dy),
                    .n = K,
                    .k = N,
                    .a = operand_of(dy, false),
                    .b = operand_of(w, false),
                    .c = dx.dtype == DT_F32 ? tensor_f32(dx) : NULL,
                    .finish = store,
                    .context = &dx};
    return run(stream, "grouped_backward_input", &f, offsets, rows_at);
}

static Status grouped_backward_weight_cpu(Stream *stream, Tensor dw, Tensor dy, Tensor x, Tensor offsets,
                                          bool accumulate) {
    int64_t N = tensor_cols(dy), K = tensor_cols(x);
    Grouped f = {.matrix = N * K};
    f.gemm = (Gemm){.m = N,
                    .n = K,
                    .k = tensor_rows(dy),
                    .a = operand_of(dy, true),
                    .b = operand_of(x, false),
                    .c = tensor_f32(dw),
                    .add = accumulate};
    return run(stream, "grouped_backward_weight", &f, offsets, matrix_at);
}

void VARIANT(grouped_override)(KernelTable *table) {
    table->grouped_forward = grouped_forward_cpu;
    table->grouped_backward_input = grouped_backward_input_cpu;
    table->grouped_backward_weight = grouped_backward_weight_cpu;
}
