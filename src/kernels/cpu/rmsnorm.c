/* RMS norm: a row stays in the L1 cache while it is read for its mean square and its result. In backward,
 * each thread sums the gradient of gamma over its own rows; the partial sums are then added in thread order.
 */
#include <math.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* Vectors per iteration: independent sums hide latency. */
enum { PARTS = 4, STEP = PARTS * VEC };

static inline float parts_sum(const VecF part[PARTS]) {
    return vec_sum_of((part[0] + part[1]) + (part[2] + part[3]));
}

static ALWAYS_INLINE float row_squares(DType dtype, const void *x, int64_t C) {
    VecF sums[PARTS] = {0};
    float sum = 0;
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            VecF v = vec_get(x, dtype, c + p * VEC);
            sums[p] += v * v;
        }
    for (; c < C; c++) sum += half_get(x, dtype, c) * half_get(x, dtype, c);
    return sum + parts_sum(sums);
}

/* y may alias x. */
static ALWAYS_INLINE void norm_row(DType dtype, void *y, float *ret_rstd, const void *x, const float *gamma,
                                   int64_t C, float eps) {
    float rstd = 1.0f / sqrtf(row_squares(dtype, x, C) / (float)C + eps);
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            vec_put(y, dtype, at, vec_get(x, dtype, at) * rstd * vec_load(gamma + at));
        }
    for (; c < C; c++) half_put(y, dtype, c, half_get(x, dtype, c) * rstd * gamma[c]);
    *ret_rstd = rstd;
}

static Status rmsnorm_forward_cpu(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                                  HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(float), &workspace));
    const float *weights = run_in(gamma, 0, at.D, workspace);
#pragma omp parallel num_threads(threads_for(stream, at.rows *at.D))
    {
        Range mine = range_mine(at.rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++) {
            int64_t from = head_row(&at, row);
            BY_TYPE(x.dtype, norm_row, run_at(y, from), tensor_f32(rstd) + row, run_at(x, from), weights,
                    at.D, eps);
        }
    }
    return OK;
}

static Status dropout_add_rmsnorm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor rstd, Tensor res,
                                              Tensor y, Tensor gamma, float eps, Dropout dropout) {
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    int64_t T = y.ndim > 1 ? y.dim[y.ndim - 2] : 1;
    void *workspace;
    TRY(stream_workspace(stream, (size_t)C * sizeof(float), &workspace));
    const float *weights = run_in(gamma, 0, C, workspace);
#pragma omp parallel num_threads(threads_for(stream, rows *C))
    {
        Range mine = range_mine(rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++) {
            int64_t at = row * C;
            BY_TYPE(y.dtype, dropout_add_run, run_at(sum, at), run_at(res, at), run_at(y, at), C, &dropout,
                    dropout_row(&dropout, row / T, row % T));
            BY_TYPE(y.dtype, norm_row, run_at(out, at), tensor_f32(rstd) + row, run_at(sum, at), weights, C,
                    eps);
        }
    }
    return OK;
}

/* Accumulates dgamma for one row and returns the mean of dy * gamma * normed. */
static ALWAYS_INLINE float row_dots(DType dtype, float *dgamma, const void *dy, const void *x,
                                    const float *gamma, int64_t C, float rstd) {
    VecF dots[PARTS] = {0};
    float dot = 0;
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            VecF each = vec_get(dy, dtype, at) * (vec_get(x, dtype, at) * rstd);
            dots[p] += each * vec_load(gamma + at);
            vec_store(dgamma + at, vec_load(dgamma + at) + each);
        }
    for (; c < C; c++) {
        float each = half_get(dy, dtype, c) * (half_get(x, dtype, c) * rstd);
        dot += each * gamma[c];
        dgamma[c] += each;
    }
    return (dot + parts_sum(dots)) / (float)C;
}

/* dx may alias dy or dres: each element is read before it is written. */
static ALWAYS_INLINE void row_backward(DType dtype, void *dx, float *dgamma, const void *dy, const void *x,
                                       const void *dres, const float *gamma, int64_t C, float rstd) {
    float factor = rstd * row_dots(dtype, dgamma, dy, x, gamma, C, rstd);
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            VecF g = vec_get(dy, dtype, at) * vec_load(gamma + at);
            VecF dnorm = rstd * (g - vec_get(x, dtype, at) * factor);
            vec_put(dx, dtype, at, dres ? vec_get(dres, dtype, at) + dnorm : dnorm);
        }
    for (; c < C; c++) {
        float dnorm = rstd * (half_get(dy, dtype, c) * gamma[c] - half_get(x, dtype, c) * factor);
        half_put(dx, dtype, c, dres ? half_get(dres, dtype, c) + dnorm : dnorm);
    }
}

static Status rmsnorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                                   Tensor gamma, Tensor dres, HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    int threads = threads_for(stream, at.rows * at.D);
    int64_t stride = (at.D + 15) / 16 * 16;
    void *workspace;
    TRY(stream_workspace(stream, (size_t)((1 + threads) * stride) * sizeof(float), &workspace));
    const float *weights = run_in(gamma, 0, at.D, workspace);
    float *sums = (float *)workspace + stride;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++) {
        memset(sums + part * stride, 0, (size_t)at.D * sizeof(float));
        Range mine = range_part(at.rows, 1, part, threads);
        for (int64_t row = mine.from; row < mine.to; row++) {
            int64_t from = head_row(&at, row);
            BY_TYPE(x.dtype, row_backward, run_at(dx, from), sums + part * stride, run_at(dy, from),
                    run_at(x, from), run_at(dres, from), weights, at.D, tensor_f32(rstd)[row]);
        }
    }
    for (int part = 0; part < threads; part++)
        for (int64_t c = 0; c < at.D; c++) tensor_f32(dgamma)[c] += sums[part * stride + c];
    return OK;
}

void VARIANT(rmsnorm_override)(KernelTable *table) {
    table->rmsnorm_forward = rmsnorm_forward_cpu;
    table->rmsnorm_backward = rmsnorm_backward_cpu;
    table->dropout_add_rmsnorm_forward = dropout_add_rmsnorm_forward_cpu;
}
