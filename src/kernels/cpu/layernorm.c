/* Layer norm: a row stays in the L1 cache while it is read for its mean, its variance and its result. Each of
 * these passes waits for the result of the one before, which would leave the memory idle, so they prefetch
 * what comes next. In backward, each part of the rows has its own sums of the gradients of gamma and beta,
 * which are then added in order. */
#include <math.h>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* The sum of (x - center)^power over a row. Prefetches a row at `ahead`. */
static ALWAYS_INLINE float row_sum(DType dtype, const void *x, int64_t C, float center, int power,
                                   const void *ahead, bool write) {
    VecPair sums[PAIRS] = {0};
    float sum = 0;
    int64_t c = 0;
    for (; c < paired(C); c += PAIRS_STEP) {
        prefetch_run(ahead, dtype, c, PAIRS_STEP, write);
        for (int p = 0; p < PAIRS; p++) {
            VecPair v = pair_get(x, dtype, c + p * PAIR);
            VecF a = v.a - center, b = v.b - center;
            sums[p].a += power == 2 ? a * a : a;
            sums[p].b += power == 2 ? b * b : b;
        }
    }
    for (; c < C; c++) {
        float off = half_get(x, dtype, c) - center;
        sum += power == 2 ? off * off : off;
    }
    return sum + pairs_sum(sums);
}

/* `next` is the row that will be read next. */
static ALWAYS_INLINE void norm_row(DType dtype, void *y, float *ret_mean, float *ret_rstd, const void *x,
                                   const float *gamma, const float *beta, int64_t C, float eps,
                                   const void *next) {
    float mean = row_sum(dtype, x, C, 0, 1, y, true) / (float)C;
    float rstd = 1.0f / sqrtf(row_sum(dtype, x, C, mean, 2, next, false) / (float)C + eps);
    int64_t c = 0;
    for (; c < paired(C); c += PAIR) {
        VecPair v = pair_get(x, dtype, c), scale = pair_load(gamma + c), shift = pair_load(beta + c);
        v.a = (v.a - mean) * rstd * scale.a + shift.a;
        v.b = (v.b - mean) * rstd * scale.b + shift.b;
        pair_put(y, dtype, c, v);
    }
    for (; c < C; c++) half_put(y, dtype, c, (half_get(x, dtype, c) - mean) * rstd * gamma[c] + beta[c]);
    *ret_mean = mean;
    *ret_rstd = rstd;
}

/* gamma and beta (C) in fp32, as pairs: the tensors themselves or copies in `buffer`, which has room for
 * PARAM_ROWS * C floats. */
typedef struct NormParams {
    const float *gamma, *beta;
} NormParams;

enum { PARAM_ROWS = 2 };

static NormParams norm_params(Tensor gamma, Tensor beta, int64_t C, float *buffer) {
    return (NormParams){pairs_in(gamma.data, gamma.dtype, C, buffer),
                        pairs_in(beta.data, beta.dtype, C, buffer + C)};
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
        int64_t at = row * C, next = row + 1 < mine.to ? at + C : at;
        if (f->y.data)
            BY_TYPE(f->y.dtype, dropout_add_run, run_at(f->x, at), run_at(f->res, at), run_at(f->y, at), C,
                    f->dropout, dropout_row(f->dropout, row / T, row % T));
        BY_TYPE(f->x.dtype, norm_row, run_at(f->out, at), tensor_f32(f->mean) + row,
                tensor_f32(f->rstd) + row, run_at(f->x, at), f->params.gamma, f->params.beta, C, f->eps,
                run_at(f->y.data ? f->y : f->x, next));
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

/* The statistics of a row, and where its gradients of gamma and beta (C) are accumulated, as pairs. */
typedef struct NormRow {
    float mean, rstd;
    const float *gamma;
    float *dgamma, *dbeta;
} NormRow;

/* Accumulates dgamma and dbeta for one row and computes the means of g = dy * gamma and of g * normed. */
static ALWAYS_INLINE void norm_sums(DType dtype, const NormRow *b, const void *dx, const void *dy,
                                    const void *x, const void *dres, int64_t C, float *ret_mean_g,
                                    float *ret_mean_gn) {
    VecPair g_sums[PAIRS] = {0}, dots[PAIRS] = {0};
    float g_sum = 0, dot = 0, mean = b->mean, rstd = b->rstd;
    int64_t c = 0;
    for (; c < paired(C); c += PAIRS_STEP) {
        if (dres) prefetch_run(dres, dtype, c, PAIRS_STEP, false);
        prefetch_run(dx, dtype, c, PAIRS_STEP, true);
        for (int p = 0; p < PAIRS; p++) {
            int64_t at = c + p * PAIR;
            VecPair grad = pair_get(dy, dtype, at), v = pair_get(x, dtype, at);
            VecPair gamma = pair_load(b->gamma + at), dgamma = pair_load(b->dgamma + at),
                    dbeta = pair_load(b->dbeta + at);
            v.a = (v.a - mean) * rstd, v.b = (v.b - mean) * rstd;
            VecPair g = {grad.a * gamma.a, grad.b * gamma.b};
            g_sums[p].a += g.a, g_sums[p].b += g.b;
            dots[p].a += g.a * v.a, dots[p].b += g.b * v.b;
            dgamma.a += grad.a * v.a, dgamma.b += grad.b * v.b;
            dbeta.a += grad.a, dbeta.b += grad.b;
            pair_store(b->dgamma + at, dgamma), pair_store(b->dbeta + at, dbeta);
        }
    }
    for (; c < C; c++) {
        float grad = half_get(dy, dtype, c), normed = (half_get(x, dtype, c) - mean) * rstd;
        g_sum += grad * b->gamma[c];
        dot += grad * b->gamma[c] * normed;
        b->dgamma[c] += grad * normed;
        b->dbeta[c] += grad;
    }
    *ret_mean_g = (g_sum + pairs_sum(g_sums)) / (float)C;
    *ret_mean_gn = (dot + pairs_sum(dots)) / (float)C;
}

/* dx may alias dy or dres: each element is read before it is written. The next row of dy and x is `ahead`
 * elements further. */
static ALWAYS_INLINE void norm_row_backward(DType dtype, void *dx, const NormRow *b, const void *dy,
                                            const void *x, const void *dres, int64_t C, int64_t ahead) {
    float mean_g, mean_gn, mean = b->mean, rstd = b->rstd;
    norm_sums(dtype, b, dx, dy, x, dres, C, &mean_g, &mean_gn);
    int64_t c = 0;
    for (; c < paired(C); c += PAIR) {
        prefetch_run(dy, dtype, c + ahead, PAIR, false);
        prefetch_run(x, dtype, c + ahead, PAIR, false);
        VecPair grad = pair_get(dy, dtype, c), v = pair_get(x, dtype, c), gamma = pair_load(b->gamma + c);
        v.a = rstd * (grad.a * gamma.a - mean_g - (v.a - mean) * rstd * mean_gn);
        v.b = rstd * (grad.b * gamma.b - mean_g - (v.b - mean) * rstd * mean_gn);
        if (dres) {
            VecPair res = pair_get(dres, dtype, c);
            v.a += res.a, v.b += res.b;
        }
        pair_put(dx, dtype, c, v);
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
    ColumnSums dgamma, dbeta; /* each part has its sums of both side by side */
    ColumnSums sums_dres, sums_dx;
} Backward;

static void backward_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Backward *f = context;
    int64_t C = tensor_cols(f->x);
    float *mine_gamma = f->dgamma.sums + part * f->dgamma.stride;
    memset(mine_gamma, 0, (size_t)(2 * C) * sizeof(float));
    Range mine = range_part(tensor_rows(f->x), 1, (int)part, f->dgamma.parts);
    columns_part(&f->sums_dres, f->dres, part); /* before dx, which may overwrite it */
    for (int64_t row = mine.from; row < mine.to; row++) {
        NormRow grads = {tensor_f32(f->mean)[row], tensor_f32(f->rstd)[row], f->gamma, mine_gamma,
                         mine_gamma + C};
        BY_TYPE(f->x.dtype, norm_row_backward, run_at(f->dx, row * C), &grads, run_at(f->dy, row * C),
                run_at(f->x, row * C), run_at(f->dres, row * C), C, row + 1 < mine.to ? C : 0);
    }
    columns_part(&f->sums_dx, f->dx, part);
}

static Status layernorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                     Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres,
                                     NormSums extra) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int parts = sum_row_parts(rows, C);
    int64_t stride = columns_stride(2 * C), params_size = columns_stride(PARAM_ROWS * C);
    void *workspace;
    size_t own = (size_t)(params_size + parts * stride) * sizeof(float),
           of_dres = columns_bytes(extra.dres, dres);
    TRY(stream_workspace(stream, own + of_dres + columns_bytes(extra.dx, dx), &workspace));
    NormParams params = norm_params(gamma, TENSOR_NONE, C, workspace);
    float *sums = (float *)workspace + params_size;
    Backward backward = {dx,
                         dy,
                         x,
                         mean,
                         rstd,
                         dres,
                         params.gamma,
                         {tensor_f32(dgamma), sums, rows, C, stride, parts, x.dtype},
                         {tensor_f32(dbeta), sums + C, rows, C, stride, parts, x.dtype},
                         columns_of(extra.dres, dres, (char *)workspace + own),
                         columns_of(extra.dx, dx, (char *)workspace + own + of_dres)};
    pool_run(pool_for(stream, rows * C), parts, backward_task, &backward);
    columns_add(stream, &backward.dgamma);
    columns_add(stream, &backward.dbeta);
    columns_add(stream, &backward.sums_dres);
    columns_add(stream, &backward.sums_dx);
    return OK;
}

void VARIANT(layernorm_override)(KernelTable *table) {
    table->layernorm_forward = layernorm_forward_cpu;
    table->layernorm_backward = layernorm_backward_cpu;
    table->dropout_add_norm_forward = dropout_add_norm_forward_cpu;
}
