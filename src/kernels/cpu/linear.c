/* Linear layers: a matrix product, then one pass over its output for bias and activation. Column sums
 * for the bias gradient: each thread owns columns and runs down the rows, so the order is fixed.
 *
 * Legend: M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/act.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/variant.h"

static void finish_row(float *y, float *pre, const float *bias, int64_t n, Act act) {
    if (bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] += bias[i];
    }
    if (pre) memcpy(pre, y, (size_t)n * sizeof *y);
    act_run(y, y, n, act);
}

static Status linear_forward_cpu(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                 Act act) {
    FP32_ONLY("linear_forward", y, pre, x, w, b);
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    blas_gemm(stream->device->threads, M, N, K, (GemmOperand){tensor_f32(x), K, false},
              (GemmOperand){tensor_f32(w), K, true}, 0.0f, tensor_f32(y), N);
    if (!b.data && !pre.data && act == ACT_NONE) return OK;
#pragma omp parallel num_threads(threads_for(stream, M *N))
    {
        Range mine = range_mine(M, 1);
        for (int64_t row = mine.from; row < mine.to; row++)
            finish_row(tensor_f32(y) + row * N, pre.data ? tensor_f32(pre) + row * N : NULL, tensor_f32(b), N,
                       act);
    }
    return OK;
}

/* With an activation the product cannot go straight onto what dx holds; it goes through the workspace. */
static Status backward_input_add(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre) {
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    void *space;
    TRY(stream_workspace(stream, (size_t)(M * K) * sizeof(float), &space));
    float *product = space;
    blas_gemm(stream->device->threads, M, K, N, (GemmOperand){tensor_f32(dy), N, false},
              (GemmOperand){tensor_f32(w), K, false}, 0.0f, product, K);
#pragma omp parallel num_threads(threads_for(stream, M *K))
    {
        Range mine = range_mine(M * K, 16);
        act_slope_run(product + mine.from, product + mine.from, tensor_f32(pre) + mine.from,
                      mine.to - mine.from, act);
#pragma omp simd
        for (int64_t i = mine.from; i < mine.to; i++) tensor_f32(dx)[i] += product[i];
    }
    return OK;
}

static Status linear_backward_input_cpu(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                        bool accumulate) {
    FP32_ONLY("linear_backward_input", dx, dy, w, pre);
    if (accumulate && act != ACT_NONE) return backward_input_add(stream, dx, dy, w, act, pre);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(w);
    blas_gemm(stream->device->threads, M, K, N, (GemmOperand){tensor_f32(dy), N, false},
              (GemmOperand){tensor_f32(w), K, false}, accumulate ? 1.0f : 0.0f, tensor_f32(dx), K);
    if (act == ACT_NONE) return OK;
#pragma omp parallel num_threads(threads_for(stream, M *K))
    {
        Range mine = range_mine(M * K, 16);
        float *to = tensor_f32(dx) + mine.from;
        act_slope_run(to, to, tensor_f32(pre) + mine.from, mine.to - mine.from, act);
    }
    return OK;
}

static void column_sums(Stream *stream, float *sums, const float *x, int64_t rows, int64_t cols) {
#pragma omp parallel num_threads(threads_for(stream, rows *cols))
    {
        Range mine = range_mine(cols, 16);
        for (int64_t row = 0; row < rows; row++) {
            const float *from = x + row * cols;
#pragma omp simd
            for (int64_t c = mine.from; c < mine.to; c++) sums[c] += from[c];
        }
    }
}

static Status linear_backward_weight_cpu(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    FP32_ONLY("linear_backward_weight", dw, db, dy, x);
    int64_t M = tensor_rows(dy), N = tensor_cols(dy), K = tensor_cols(x);
    blas_gemm(stream->device->threads, N, K, M, (GemmOperand){tensor_f32(dy), N, true},
              (GemmOperand){tensor_f32(x), K, false}, 1.0f, tensor_f32(dw), K);
    if (db.data) column_sums(stream, tensor_f32(db), tensor_f32(dy), M, N);
    return OK;
}

void VARIANT(linear_override)(KernelTable *table) {
    table->linear_forward = linear_forward_cpu;
    table->linear_backward_input = linear_backward_input_cpu;
    table->linear_backward_weight = linear_backward_weight_cpu;
}
