/* Layer norm: a row stays in the first cache while it is read for its mean, its variance and its
 * result. In backward each thread sums the gradients of gamma and beta over its own rows; the sums are
 * then added in the order of the threads. */
#include <math.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

static void norm_row(float *y, float *ret_mean, float *ret_rstd, const float *x, const float *gamma,
                     const float *beta, int64_t C, float eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; c++) sum += x[c];
    float mean = sum / (float)C;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; c++) squares += (x[c] - mean) * (x[c] - mean);
    float rstd = 1.0f / sqrtf(squares / (float)C + eps);
#pragma omp simd
    for (int64_t c = 0; c < C; c++) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
    *ret_mean = mean;
    *ret_rstd = rstd;
}

/* Rows of floats for 16-bit types: gamma and beta for all threads, then some for each thread. Nothing for
 * fp32, which is used where it lies. */
typedef struct Wide {
    float *memory;
    const float *gamma, *beta;
    int64_t stride; /* of a row */
    int each;       /* rows of a thread */
} Wide;

static int64_t wide_count(DType dtype, int64_t C, int threads, int each) {
    return dtype == DT_F32 ? 0 : (2 + threads * each) * ((C + 15) / 16 * 16);
}

static Wide wide_of(float *memory, Tensor gamma, Tensor beta, int64_t C, int each) {
    int64_t stride = gamma.dtype == DT_F32 ? 0 : (C + 15) / 16 * 16;
    return (Wide){memory, run_in(gamma, 0, C, memory), run_in(beta, 0, C, memory + stride), stride, each};
}

/* Row `row` of thread `part`'s. */
static float *wide_row(const Wide *wide, int part, int row) {
    return wide->memory + (2 + part * wide->each + row) * wide->stride;
}

static Status layernorm_forward_cpu(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                                    Tensor gamma, Tensor beta, float eps) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int threads = threads_for(stream, rows * C);
    void *space;
    TRY(stream_workspace(stream, (size_t)wide_count(x.dtype, C, threads, 1) * sizeof(float), &space));
    Wide wide = wide_of(space, gamma, beta, C, 1);
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(rows, 1);
        float *buffer = wide_row(&wide, omp_get_thread_num(), 0);
        for (int64_t row = mine.from; row < mine.to; row++) {
            const float *from = run_in(x, row * C, C, buffer);
            float *to = run_out(y, row * C, buffer);
            norm_row(to, tensor_f32(mean) + row, tensor_f32(rstd) + row, from, wide.gamma, wide.beta, C, eps);
            run_end(y, row * C, C, to);
        }
    }
    return OK;
}

static Status dropout_add_norm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                           Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                           Dropout dropout) {
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    int64_t T = y.ndim > 1 ? y.dim[y.ndim - 2] : 1;
    int threads = threads_for(stream, rows * C);
    void *space;
    TRY(stream_workspace(stream, (size_t)wide_count(y.dtype, C, threads, 2) * sizeof(float), &space));
    Wide wide = wide_of(space, gamma, beta, C, 2);
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(rows, 1);
        float *buffer = wide_row(&wide, omp_get_thread_num(), 0);
        float *other = wide_row(&wide, omp_get_thread_num(), 1);
        for (int64_t row = mine.from; row < mine.to; row++) {
            int64_t at = row * C;
            float *both = run_out(sum, at, buffer), *to = run_out(out, at, buffer);
            dropout_add_run(both, run_in(res, at, C, other), run_in(y, at, C, buffer), C, &dropout,
                            dropout_row(&dropout, row / T, row % T));
            run_end(sum, at, C, both);
            norm_row(to, tensor_f32(mean) + row, tensor_f32(rstd) + row, run_in(sum, at, C, buffer),
                     wide.gamma, wide.beta, C, eps);
            run_end(out, at, C, to);
        }
    }
    return OK;
}

/* dgamma and dbeta gain this row's part. dx may be dy or dres: each element is read before it is
 * written. */
static void norm_row_backward(float *dx, float *dgamma, float *dbeta, const float *dy, const float *x,
                              float mean, float rstd, const float *gamma, const float *dres, int64_t C) {
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t c = 0; c < C; c++) {
        float normed = (x[c] - mean) * rstd, slope = dy[c] * gamma[c];
        sum += slope;
        dot += slope * normed;
        dgamma[c] += dy[c] * normed;
        dbeta[c] += dy[c];
    }
    sum /= (float)C;
    dot /= (float)C;
    if (dres) {
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            dx[c] = dres[c] + rstd * (dy[c] * gamma[c] - sum - (x[c] - mean) * rstd * dot);
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; c++) dx[c] = rstd * (dy[c] * gamma[c] - sum - (x[c] - mean) * rstd * dot);
    }
}

/* A thread's rows; its sums go to `sums`: (C) for gamma, (C) for beta. */
static void norm_part_backward(Tensor dx, float *sums, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                               Tensor dres, const Wide *wide, int part, Range mine) {
    int64_t C = tensor_cols(x);
    memset(sums, 0, (size_t)(2 * C) * sizeof(float));
    float *grads = wide_row(wide, part, 0), *inputs = wide_row(wide, part, 1),
          *more = wide_row(wide, part, 2);
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t at = row * C;
        const float *grad = run_in(dy, at, C, grads), *in = run_in(x, at, C, inputs);
        float *to = run_out(dx, at, grads);
        norm_row_backward(to, sums, sums + C, grad, in, tensor_f32(mean)[row], tensor_f32(rstd)[row],
                          wide->gamma, run_in(dres, at, C, more), C);
        run_end(dx, at, C, to);
    }
}

static Status layernorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                     Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int threads = threads_for(stream, rows * C);
    int64_t stride = (2 * C + 15) / 16 * 16, held = wide_count(x.dtype, C, threads, 3);
    void *space;
    TRY(stream_workspace(stream, (size_t)(held + threads * stride) * sizeof(float), &space));
    Wide wide = wide_of(space, gamma, TENSOR_NONE, C, 3);
    float *sums = (float *)space + held;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++)
        norm_part_backward(dx, sums + part * stride, dy, x, mean, rstd, dres, &wide, part,
                           range_part(rows, 1, part, threads));
    for (int part = 0; part < threads; part++) {
        const float *from = sums + part * stride;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            tensor_f32(dgamma)[c] += from[c];
            tensor_f32(dbeta)[c] += from[C + c];
        }
    }
    return OK;
}

void VARIANT(layernorm_override)(KernelTable *table) {
    table->layernorm_forward = layernorm_forward_cpu;
    table->layernorm_backward = layernorm_backward_cpu;
    table->dropout_add_norm_forward = dropout_add_norm_forward_cpu;
}
