/* Layer norm: a row stays in the first cache while it is read for its mean, its variance and its
 * result. In backward each thread sums the gradients of gamma and beta over its own rows; the sums are
 * then added in the order of the threads. */
#include <math.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

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

static Status layernorm_forward_cpu(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                                    Tensor gamma, Tensor beta, float eps) {
    FP32_ELSE(layernorm_forward_ref(stream, y, mean, rstd, x, gamma, beta, eps), y, mean, rstd, x, gamma,
              beta);
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
#pragma omp parallel num_threads(threads_for(stream, rows *C))
    {
        Range mine = range_mine(rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++)
            norm_row(tensor_f32(y) + row * C, tensor_f32(mean) + row, tensor_f32(rstd) + row,
                     tensor_f32(x) + row * C, tensor_f32(gamma), tensor_f32(beta), C, eps);
    }
    return OK;
}

static Status dropout_add_norm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                           Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                           Dropout dropout) {
    FP32_ELSE(dropout_add_norm_forward_ref(stream, sum, out, mean, rstd, res, y, gamma, beta, eps, dropout),
              sum, out, mean, rstd, res, y, gamma, beta);
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    int64_t T = y.ndim > 1 ? y.dim[y.ndim - 2] : 1;
#pragma omp parallel num_threads(threads_for(stream, rows *C))
    {
        Range mine = range_mine(rows, 1);
        for (int64_t row = mine.from; row < mine.to; row++) {
            float *both = tensor_f32(sum) + row * C;
            dropout_add_row(both, res.data ? tensor_f32(res) + row * C : NULL, tensor_f32(y) + row * C, row,
                            T, C, &dropout);
            norm_row(tensor_f32(out) + row * C, tensor_f32(mean) + row, tensor_f32(rstd) + row, both,
                     tensor_f32(gamma), tensor_f32(beta), C, eps);
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

static Status layernorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                     Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    FP32_ELSE(layernorm_backward_ref(stream, dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dres), dx, dgamma,
              dbeta, dy, x, mean, rstd, gamma, dres);
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int threads = threads_for(stream, rows * C);
    int64_t stride = (2 * C + 15) / 16 * 16;
    void *space;
    TRY(stream_workspace(stream, (size_t)(threads * stride) * sizeof(float), &space));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++) {
        float *mine_gamma = (float *)space + part * stride, *mine_beta = mine_gamma + C;
        memset(mine_gamma, 0, (size_t)(2 * C) * sizeof(float));
        Range mine = range_part(rows, 1, part, threads);
        for (int64_t row = mine.from; row < mine.to; row++)
            norm_row_backward(tensor_f32(dx) + row * C, mine_gamma, mine_beta, tensor_f32(dy) + row * C,
                              tensor_f32(x) + row * C, tensor_f32(mean)[row], tensor_f32(rstd)[row],
                              tensor_f32(gamma), dres.data ? tensor_f32(dres) + row * C : NULL, C);
    }
    for (int part = 0; part < threads; part++) {
        const float *from = (const float *)space + part * stride;
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
