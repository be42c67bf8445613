/* Linear layers in fp32: GEMMs whose epilogues add bias and activation, or multiply by the derivative of
 * the activation, while a block is still in the cache.
 *
 * Forward and the input gradient omit zero rows of pruned matrices (zero_rows.h).
 *
 * M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/act.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/linear16.h"
#include "kernels/cpu/thin.h"
#include "kernels/cpu/zero_rows.h"

/* Forward with `count` of N rows: the product goes to memory of its own and from there to the columns of y.
 */
static Status forward_kept(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b, int64_t count) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    Gemm gemm = {.m = M, .n = count, .k = K, .a = {tensor_f32(x), K, false}};
    size_t rows_bytes = kept_bytes(count, K), result_bytes = floats_bytes(M * count);
    void *memory;
    TRY(stream_workspace(stream, rows_bytes + result_bytes + gemm_workspace_bytes(stream, &gemm), &memory));
    Kept kept = keep_rows(tensor_f32(w), N, K, count, memory);
    gemm.b = (GemmOperand){kept.w, K, true};
    gemm.c = (float *)(void *)((char *)memory + rows_bytes);
    gemm_run(stream, &gemm, (char *)memory + rows_bytes + result_bytes);
    const float *bias = tensor_f32(b);
#pragma omp parallel for num_threads(threads_for(stream, M *N))
    for (int64_t r = 0; r < M; r++) {
        float *to = tensor_f32(y) + r * N;
        const float *from = gemm.c + r * count;
        if (bias)
            memcpy(to, bias, (size_t)N * sizeof *to);
        else
            memset(to, 0, (size_t)N * sizeof *to);
        for (int64_t k = 0; k < count; k++) to[kept.row[k]] += from[k];
    }
    return OK;
}

/* Context of the forward epilogue; pre and bias may be NULL. */
typedef struct Forward {
    float *y, *pre;
    const float *bias;
    int64_t stride;
    Act act;
} Forward;

static void forward_finish(const void *context, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const Forward *f = context;
    for (int64_t r = row; r < row + rows; r++) {
        float *y = f->y + r * f->stride + col;
        if (f->bias) {
#pragma omp simd
            for (int64_t c = 0; c < cols; c++) y[c] += f->bias[col + c];
        }
        if (f->pre) memcpy(f->pre + r * f->stride + col, y, (size_t)cols * sizeof *y);
        act_run(y, y, cols, f->act);
    }
}

/* The same for sums that are not in y yet. */
static void forward_place(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                          int64_t rows, int64_t cols) {
    const Forward *f = context;
    for (int64_t r = 0; r < rows; r++)
        memcpy(f->y + (row + r) * f->stride + col, sums + r * stride, (size_t)cols * sizeof *sums);
    forward_finish(context, row, col, rows, cols);
}

static Status linear_forward_cpu(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                 Act act) {
    FP32_ELSE(linear16_forward(stream, y, pre, x, w, b, act), y, pre, x, w, b);
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    int64_t kept = act == ACT_NONE && !pre.data ? count_kept(stream, tensor_f32(w), M, N, K) : N;
    if (kept < N) return forward_kept(stream, y, x, w, b, kept);
    Forward forward = {tensor_f32(y), tensor_f32(pre), tensor_f32(b), N, act};
    bool plain = !b.data && !pre.data && act == ACT_NONE, suits = false;
    Thin thin = {M, N, K, x.data, w.data, DT_F32, DT_F32, forward_place, &forward};
    TRY(thin_suits(&thin, &suits));
    if (suits && !blas_available()) return thin_run(stream, &thin);
    Gemm gemm = {.m = M,
                 .n = N,
                 .k = K,
                 .a = {tensor_f32(x), K, false},
                 .b = {tensor_f32(w), K, true},
                 .c = tensor_f32(y),
                 .finish = plain ? NULL : forward_finish,
                 .context = &forward};
    void *workspace;
    TRY(stream_workspace(stream, gemm_workspace_bytes(stream, &gemm), &workspace));
    gemm_run(stream, &gemm, workspace);
    return OK;
}

/* Context of the backward epilogue. `result` is where the GEMM stores; if it is not dx, it is added to dx. */
typedef struct Backward {
    float *dx, *result;
    const float *pre;
    int64_t stride;
    Act act;
} Backward;

static void backward_finish(const void *context, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const Backward *f = context;
    for (int64_t r = row; r < row + rows; r++) {
        int64_t at = r * f->stride + col;
        float *from = f->result + at, *dx = f->dx + at;
        act_backward_run(from, from, f->pre + at, cols, f->act);
        if (from == dx) continue;
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) dx[c] += from[c];
    }
}

/* With an activation, the GEMM cannot accumulate into dx directly; its result goes to the workspace. */
static Status linear_backward_input_cpu(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act,
                                        Tensor pre, bool accumulate) {
    FP32_ELSE(linear16_backward_input(stream, dx, sums, dy, w, act, pre, accumulate), dx, dy, w, pre);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    Backward backward = {tensor_f32(dx), tensor_f32(dx), tensor_f32(pre), K, act};
    int64_t kept = count_kept(stream, tensor_f32(w), M, N, K);
    Gemm gemm = {.m = M,
                 .n = K,
                 .k = kept,
                 .a = {tensor_f32(dy), N, false},
                 .b = {tensor_f32(w), K, false},
                 .c = tensor_f32(dx),
                 .add = accumulate && act == ACT_NONE,
                 .finish = act == ACT_NONE ? NULL : backward_finish,
                 .context = &backward};
    bool separate = accumulate && act != ACT_NONE;
    size_t result_bytes = separate ? floats_bytes(M * K) : 0;
    size_t rows_bytes = kept < N ? kept_bytes(kept, K) : 0,
           columns_bytes = kept < N ? floats_bytes(M * kept) : 0;
    void *workspace;
    TRY(stream_workspace(
        stream, result_bytes + rows_bytes + columns_bytes + gemm_workspace_bytes(stream, &gemm), &workspace));
    char *at = workspace;
    if (separate) gemm.c = backward.result = workspace;
    at += result_bytes;
    if (kept < N) {
        Kept rows = keep_rows(tensor_f32(w), N, K, kept, at);
        float *columns = (float *)(void *)(at + rows_bytes);
        keep_columns(stream, &rows, columns, tensor_f32(dy), M, N);
        gemm.a = (GemmOperand){columns, kept, false};
        gemm.b = (GemmOperand){rows.w, K, false};
        at += rows_bytes + columns_bytes;
    }
    gemm_run(stream, &gemm, at);
    return column_sums(stream, sums, dx);
}

static Status linear_backward_weight_cpu(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                         bool accumulate) {
    if (!dw.data) return column_sums(stream, db, dy);
    FP32_ELSE(linear16_backward_weight(stream, dw, db, dy, x, accumulate), dw, db, dy, x);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(x);
    Gemm gemm = {.m = N,
                 .n = K,
                 .k = M,
                 .a = {tensor_f32(dy), N, true},
                 .b = {tensor_f32(x), K, false},
                 .c = tensor_f32(dw),
                 .add = accumulate};
    void *workspace;
    TRY(stream_workspace(stream, gemm_workspace_bytes(stream, &gemm), &workspace));
    gemm_run(stream, &gemm, workspace);
    return column_sums(stream, db, dy);
}

void VARIANT(linear_override)(KernelTable *table) {
    table->linear_forward = linear_forward_cpu;
    table->linear_backward_input = linear_backward_input_cpu;
    table->linear_backward_weight = linear_backward_weight_cpu;
}
