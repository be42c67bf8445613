/* Linear layers: GEMMs with fp32 accumulation whose epilogues apply bias, activation or its derivative while
 * a block is in the cache, and round it as they store it. Gradients of weights are fp32 and are accumulated
 * directly.
 *
 * In fp32, forward and the input gradient omit zero rows of pruned matrices (zero_rows.h).
 *
 * M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/act.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/thin.h"
#include "kernels/cpu/zero_rows.h"

static Operand operand_of(Tensor x, bool trans) {
    return (Operand){x.data, x.dtype, tensor_cols(x), trans};
}

/* Runs the GEMM with the stream's workspace. */
static Status run(Stream *stream, const Gemm *gemm) {
    size_t bytes = 0;
    void *workspace;
    TRY(gemm_bytes(stream, gemm, &bytes));
    TRY(stream_workspace(stream, bytes, &workspace));
    return gemm_run(stream, gemm, workspace);
}

static Status run_thin(Stream *stream, const Thin *thin) {
    size_t bytes = 0;
    void *workspace;
    TRY(thin_bytes(stream, thin, 1, &bytes));
    TRY(stream_workspace(stream, bytes, &workspace));
    return thin_run(stream, thin, 1, workspace);
}

/* Forward with `count` of N rows: the product goes to memory of its own and from there to the columns of y.
 */
static Status forward_kept(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b, int64_t count) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    float *c = tensor_f32(y); /* for gemm_bytes, until there is memory */
    Gemm gemm = {.m = M, .n = count, .k = K, .a = operand_of(x, false), .b = operand_of(w, true), .c = c};
    size_t rows_bytes = kept_bytes(count, K), result_bytes = floats_bytes(M * count), bytes = 0;
    void *memory;
    TRY(gemm_bytes(stream, &gemm, &bytes));
    TRY(stream_workspace(stream, rows_bytes + result_bytes + bytes, &memory));
    Kept kept = keep_rows(tensor_f32(w), N, K, count, memory);
    gemm.b.data = kept.w;
    gemm.c = (float *)(void *)((char *)memory + rows_bytes);
    TRY(gemm_run(stream, &gemm, (char *)memory + rows_bytes + result_bytes));
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

/* Columns that pass through a buffer at a time. */
enum { RUN = 256 };

static int64_t run_of(int64_t left) {
    return left < RUN ? left : RUN;
}

/* Stores n elements from `at` on, unless they are where the GEMM has left them. */
static void run_put(Tensor to, int64_t at, int64_t n, const float *from) {
    if ((const void *)from != run_at(to, at)) half_store(to.data, to.dtype, at, from, n);
}

/* Context of the forward epilogue; pre and bias are optional. */
typedef struct Forward {
    Tensor y, pre, bias;
    DType dtype; /* the compute type; y may be fp32 even if this is not */
    int64_t stride;
    Act act;
} Forward;

/* Activations are applied to the rounded value, whether pre is stored or not, so that recomputing gives the
 * same bits. */
static void forward_round(const Forward *f, float *y, int64_t at, int64_t n) {
    uint16_t buffer[RUN];
    bool kept = f->pre.data;
    void *to = kept ? run_at(f->pre, at) : buffer;
    if (!kept && f->dtype == DT_F32) return;
    half_store(to, f->dtype, 0, y, n);
    if (f->dtype != DT_F32) half_load(y, to, f->dtype, 0, n);
}

static void forward_finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                           int64_t rows, int64_t cols) {
    const Forward *f = context;
    for (int64_t first = 0; first < cols; first += RUN) {
        int64_t n = run_of(cols - first);
        float buffer[RUN];
        const float *bias = run_in(f->bias, col + first, n, buffer);
        for (int64_t r = 0; r < rows; r++) {
            float *y = sums + r * stride + first;
            int64_t at = (row + r) * f->stride + col + first;
            if (bias) {
#pragma omp simd
                for (int64_t c = 0; c < n; c++) y[c] += bias[c];
            }
            if (f->act != ACT_NONE) {
                forward_round(f, y, at, n);
                act_run(y, y, n, f->act);
            }
            run_put(f->y, at, n, y);
        }
    }
}

static Status linear_forward_cpu(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                 Act act) {
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w), kept = N;
    bool fp32 = w.dtype == DT_F32, wide = y.dtype == DT_F32, suits = false;
    if (fp32 && act == ACT_NONE) kept = count_kept(stream, tensor_f32(w), M, N, K);
    if (kept < N) return forward_kept(stream, y, x, w, b, kept);
    Forward forward = {y, pre, b, w.dtype, N, act};
    Thin thin = {M, N, K, x.data, w.data, x.dtype, w.dtype, forward_finish, &forward, 0};
    TRY(thin_suits(&thin, &suits));
    if (suits && !(fp32 && blas_available())) return run_thin(stream, &thin);
    Gemm gemm = {.m = M,
                 .n = N,
                 .k = K,
                 .a = operand_of(x, false),
                 .b = operand_of(w, true),
                 .c = wide ? tensor_f32(y) : NULL,
                 .finish = wide && !b.data && act == ACT_NONE ? NULL : forward_finish,
                 .context = &forward};
    return run(stream, &gemm);
}

/* Context of the backward epilogue. */
typedef struct Backward {
    Tensor dx, pre;
    int64_t stride;
    Act act;
    bool accumulate;
} Backward;

static void backward_finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                            int64_t rows, int64_t cols) {
    const Backward *f = context;
    float buffer[RUN];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t first = 0; first < cols; first += RUN) {
            int64_t n = run_of(cols - first), at = (row + r) * f->stride + col + first;
            float *dx = sums + r * stride + first;
            if (f->act != ACT_NONE) act_backward_run(dx, dx, run_in(f->pre, at, n, buffer), n, f->act);
            if (f->accumulate) {
                const float *other = run_in(f->dx, at, n, buffer);
#pragma omp simd
                for (int64_t c = 0; c < n; c++) dx[c] += other[c];
            }
            run_put(f->dx, at, n, dx);
        }
}

/* The GEMM accumulates into dx directly if that is fp32 and there is no activation. */
static Status linear_backward_input_cpu(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w, Act act,
                                        Tensor pre, bool accumulate) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    bool fp32 = w.dtype == DT_F32, direct = fp32 && act == ACT_NONE;
    int64_t kept = fp32 ? count_kept(stream, tensor_f32(w), M, N, K) : N;
    Backward backward = {dx, pre, K, act, accumulate};
    Gemm gemm = {.m = M,
                 .n = K,
                 .k = kept,
                 .a = operand_of(dy, false),
                 .b = operand_of(w, false),
                 .c = direct || (fp32 && !accumulate) ? tensor_f32(dx) : NULL,
                 .add = accumulate && direct,
                 .finish = direct ? NULL : backward_finish,
                 .context = &backward};
    size_t rows_bytes = kept < N ? kept_bytes(kept, K) : 0, bytes = 0;
    size_t columns_bytes = kept < N ? floats_bytes(M * kept) : 0;
    void *workspace;
    TRY(gemm_bytes(stream, &gemm, &bytes));
    TRY(stream_workspace(stream, rows_bytes + columns_bytes + bytes, &workspace));
    if (kept < N) {
        Kept rows = keep_rows(tensor_f32(w), N, K, kept, workspace);
        float *columns = (float *)(void *)((char *)workspace + rows_bytes);
        keep_columns(stream, &rows, columns, tensor_f32(dy), M, N);
        gemm.a = (Operand){columns, DT_F32, kept, false};
        gemm.b.data = rows.w;
    }
    TRY(gemm_run(stream, &gemm, (char *)workspace + rows_bytes + columns_bytes));
    return column_sums(stream, sums, dx);
}

static Status linear_backward_weight_cpu(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                         bool accumulate) {
    if (!dw.data) return column_sums(stream, db, dy);
    Gemm gemm = {.m = tensor_cols(dy),
                 .n = tensor_cols(x),
                 .k = tensor_rows(dy),
                 .a = operand_of(dy, true),
                 .b = operand_of(x, false),
                 .c = tensor_f32(dw),
                 .add = accumulate};
    TRY(run(stream, &gemm));
    return column_sums(stream, db, dy);
}

void VARIANT(linear_override)(KernelTable *table) {
    table->linear_forward = linear_forward_cpu;
    table->linear_backward_input = linear_backward_input_cpu;
    table->linear_backward_weight = linear_backward_weight_cpu;
}
