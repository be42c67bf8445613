/* Layer norm: a row stays in the L1 cache while it is read for its mean, its variance and its result. In
 * backward, each part of the rows has its own sums of the gradients of gamma and beta, which are then added
 * in order. */
#include <math.h>

#include "kernels/cpu/dropout.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* Vectors per iteration: independent sums hide latency, and there is less loop overhead. */
enum { PARTS = 4, STEP = PARTS * VEC };

static inline float parts_sum(const VecF part[PARTS]) {
    return vec_sum_of((part[0] + part[1]) + (part[2] + part[3]));
}

/* The sum of (x - center)^power over a row. */
static ALWAYS_INLINE float row_sum(DType dtype, const void *x, int64_t C, float center, int power) {
    VecF sums[PARTS] = {0};
    float sum = 0;
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            VecF off = vec_get(x, dtype, c + p * VEC) - center;
            sums[p] += power == 2 ? off * off : off;
        }
    for (; c < C; c++) {
        float off = half_get(x, dtype, c) - center;
        sum += power == 2 ? off * off : off;
    }
    return sum + parts_sum(sums);
}

static ALWAYS_INLINE void norm_row(DType dtype, void *y, float *ret_mean, float *ret_rstd, const void *x,
                                   const float *gamma, const float *beta, int64_t C, float eps) {
    float mean = row_sum(dtype, x, C, 0, 1) / (float)C;
    float rstd = 1.0f / sqrtf(row_sum(dtype, x, C, mean, 2) / (float)C + eps);
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            VecF normed = (vec_get(x, dtype, at) - mean) * rstd;
            vec_put(y, dtype, at, normed * vec_load(gamma + at) + vec_load(beta + at));
        }
    for (; c < C; c++) half_put(y, dtype, c, (half_get(x, dtype, c) - mean) * rstd * gamma[c] + beta[c]);
    *ret_mean = mean;
    *ret_rstd = rstd;
}

/* gamma and beta (C) in fp32: the tensors themselves or copies in `buffer`, which has room for PARAM_ROWS *
 * C floats. */
typedef struct NormParams {
    const float *gamma, *beta;
} NormParams;

enum { PARAM_ROWS = 2 };

static NormParams norm_params(Tensor gamma, Tensor beta, int64_t C, float *buffer) {
    return (NormParams){run_in(gamma, 0, C, buffer), run_in(beta, 0, C, buffer + C)};
}

/* What the parts of both forward kernels share. With a residual connection, x is res + dropout(y). */
typedef struct Forward {
    Tensor out, mean, rstd, x;
    NormParams params;
    float eps;
    Tensor res, y; /* y is absent in layernorm_forward */
    const Dropout *dropout;
} Forward;

static void forward_rows(const void *context, Range mine) {
    const Forward *f = context;
    int64_t C = tensor_cols(f->x), T = f->y.data && f->y.ndim > 1 ? f->y.dim[f->y.ndim - 2] : 1;
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t at = row * C;
        if (f->y.data)
            BY_TYPE(f->y.dtype, dropout_add_run, run_at(f->x, at), run_at(f->res, at), run_at(f->y, at), C,
                    f->dropout, dropout_row(f->dropout, row / T, row % T));
        BY_TYPE(f->x.dtype, norm_row, run_at(f->out, at), tensor_f32(f->mean) + row,
                tensor_f32(f->rstd) + row, run_at(f->x, at), f->params.gamma, f->params.beta, C, f->eps);
    }
}

static Status layernorm_forward_cpu(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                                    Tensor gamma, Tensor beta, float eps) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(PARAM_ROWS * C) * sizeof(float), &workspace));
    Forward forward = {.out = y, .mean = mean, .rstd = rstd, .x = x, .eps = eps};
    forward.params = norm_params(gamma, beta, C, workspace);
    ranges_run(stream, rows, 1, rows * C, forward_rows, &forward);
    return OK;
}

static Status dropout_add_norm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                           Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                           Dropout dropout) {
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(PARAM_ROWS * C) * sizeof(float), &workspace));
    Forward forward = {out, mean, rstd, sum, norm_params(gamma, beta, C, workspace), eps, res, y, &dropout};
    ranges_run(stream, rows, 1, rows * C, forward_rows, &forward);
    return OK;
}

/* The statistics of a row, and where its gradients of gamma and beta (C) are accumulated. */
typedef struct NormRow {
    float mean, rstd;
    const float *gamma;
    float *dgamma, *dbeta;
} NormRow;

/* Accumulates dgamma and dbeta for one row and computes the means of g = dy * gamma and of g * normed. */
static ALWAYS_INLINE void norm_sums(DType dtype, const NormRow *b, const void *dy, const void *x, int64_t C,
                                    float *ret_mean_g, float *ret_mean_gn) {
    VecF g_sums[PARTS] = {0}, dots[PARTS] = {0};
    float g_sum = 0, dot = 0, mean = b->mean, rstd = b->rstd;
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            VecF grad = vec_get(dy, dtype, at), normed = (vec_get(x, dtype, at) - mean) * rstd;
            VecF g = grad * vec_load(b->gamma + at);
            g_sums[p] += g;
            dots[p] += g * normed;
            vec_store(b->dgamma + at, vec_load(b->dgamma + at) + grad * normed);
            vec_store(b->dbeta + at, vec_load(b->dbeta + at) + grad);
        }
    for (; c < C; c++) {
        float grad = half_get(dy, dtype, c), normed = (half_get(x, dtype, c) - mean) * rstd;
        g_sum += grad * b->gamma[c];
        dot += grad * b->gamma[c] * normed;
        b->dgamma[c] += grad * normed;
        b->dbeta[c] += grad;
    }
    *ret_mean_g = (g_sum + parts_sum(g_sums)) / (float)C;
    *ret_mean_gn = (dot + parts_sum(dots)) / (float)C;
}

/* dx may alias dy or dres: each element is read before it is written. */
static ALWAYS_INLINE void norm_row_backward(DType dtype, void *dx, const NormRow *b, const void *dy,
                                            const void *x, const void *dres, int64_t C) {
    float mean_g, mean_gn;
    norm_sums(dtype, b, dy, x, C, &mean_g, &mean_gn);
    float mean = b->mean, rstd = b->rstd;
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int p = 0; p < PARTS; p++) {
            int64_t at = c + p * VEC;
            VecF normed = (vec_get(x, dtype, at) - mean) * rstd;
            VecF dnorm =
                rstd * (vec_get(dy, dtype, at) * vec_load(b->gamma + at) - mean_g - normed * mean_gn);
            vec_put(dx, dtype, at, dres ? vec_get(dres, dtype, at) + dnorm : dnorm);
        }
    for (; c < C; c++) {
        float normed = (half_get(x, dtype, c) - mean) * rstd;
        float dnorm = rstd * (half_get(dy, dtype, c) * b->gamma[c] - mean_g - normed * mean_gn);
        half_put(dx, dtype, c, dres ? half_get(dres, dtype, c) + dnorm : dnorm);
    }
}

/* What the parts of layernorm_backward share. */
typedef struct Backward {
    Tensor dx, dy, x, mean, rstd, dres;
    const float *gamma;
    float *sums; /* dgamma and dbeta of each part, `stride` apart */
    int64_t stride;
    int parts;
} Backward;

static void backward_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Backward *f = context;
    int64_t C = tensor_cols(f->x);
    float *mine_gamma = f->sums + part * f->stride;
    memset(mine_gamma, 0, (size_t)(2 * C) * sizeof(float));
    Range mine = range_part(tensor_rows(f->x), 1, (int)part, f->parts);
    for (int64_t row = mine.from; row < mine.to; row++) {
        NormRow grads = {tensor_f32(f->mean)[row], tensor_f32(f->rstd)[row], f->gamma, mine_gamma,
                         mine_gamma + C};
        BY_TYPE(f->x.dtype, norm_row_backward, run_at(f->dx, row * C), &grads, run_at(f->dy, row * C),
                run_at(f->x, row * C), run_at(f->dres, row * C), C);
    }
}

static Status layernorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                     Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int parts = parts_for(stream, rows * C, 2);
    int64_t stride = (2 * C + 15) / 16 * 16, params_size = (PARAM_ROWS * C + 15) / 16 * 16;
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(params_size + parts * stride) * sizeof(float), &workspace));
    NormParams params = norm_params(gamma, TENSOR_NONE, C, workspace);
    float *sums = (float *)workspace + params_size;
    Backward backward = {dx, dy, x, mean, rstd, dres, params.gamma, sums, stride, parts};
    pool_run(pool_for(stream, rows * C), parts, backward_task, &backward);
    for (int part = 0; part < parts; part++) {
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
