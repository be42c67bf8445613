/* RMS norm: a row stays in the L1 cache while it is read for its mean square and its result. Both passes
 * prefetch what comes next, as in layernorm.c. In backward, each part of the rows has its own sums of the
 * gradient of gamma, which are then added in order. */
#include <math.h>

#include "kernels/cpu/columns.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* Prefetches y. */
static ALWAYS_INLINE float row_squares(DType dtype, const void *x, int64_t C, const void *y) {
    VecPair sums[PAIRS] = {0};
    float sum = 0;
    int64_t c = 0;
    for (; c < paired(C); c += PAIRS_STEP) {
        prefetch_run(y, dtype, c, PAIRS_STEP, true);
        for (int p = 0; p < PAIRS; p++) {
            VecPair v = pair_get(x, dtype, c + p * PAIR);
            sums[p].a += v.a * v.a, sums[p].b += v.b * v.b;
        }
    }
    for (; c < C; c++) sum += half_get(x, dtype, c) * half_get(x, dtype, c);
    return sum + pairs_sum(sums);
}

/* y may alias x. `next` is the row that will be read next. */
static ALWAYS_INLINE void norm_row(DType dtype, void *y, float *ret_rstd, const void *x, const float *gamma,
                                   int64_t C, float eps, const void *next) {
    float rstd = 1.0f / sqrtf(row_squares(dtype, x, C, y) / (float)C + eps);
    int64_t c = 0;
    for (; c < paired(C); c += PAIR) {
        prefetch_run(next, dtype, c, PAIR, false);
        VecPair v = pair_get(x, dtype, c), scale = pair_load(gamma + c);
        v.a = v.a * rstd * scale.a, v.b = v.b * rstd * scale.b;
        pair_put(y, dtype, c, v);
    }
    for (; c < C; c++) half_put(y, dtype, c, half_get(x, dtype, c) * rstd * gamma[c]);
    *ret_rstd = rstd;
}

/* What the parts of both forward kernels share. With a residual connection, x is res + dropout(y). */
typedef struct Forward {
    Tensor out, rstd, x;
    HeadRows rows;
    const float *gamma;
    float eps;
    Tensor res, y; /* y is absent in rmsnorm_forward */
    const Dropout *dropout;
} Forward;

static void forward_rows(const void *context, Range mine) {
    const Forward *f = context;
    int64_t C = f->rows.D, T = f->y.data && f->y.ndim > 1 ? f->y.dim[f->y.ndim - 2] : 1;
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t at = head_row(&f->rows, row), next = head_row(&f->rows, row + 1 < mine.to ? row + 1 : row);
        if (f->y.data)
            BY_TYPE(f->y.dtype, dropout_add_run, run_at(f->x, at), run_at(f->res, at), run_at(f->y, at), C,
                    f->dropout, dropout_row(f->dropout, row / T, row % T));
        BY_TYPE(f->x.dtype, norm_row, run_at(f->out, at), tensor_f32(f->rstd) + row, run_at(f->x, at),
                f->gamma, C, f->eps, run_at(f->y.data ? f->y : f->x, next));
    }
}

static Status rmsnorm_forward_cpu(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                                  HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(float), &workspace));
    Forward forward = {.out = y, .rstd = rstd, .x = x, .rows = at, .eps = eps};
    forward.gamma = pairs_in(gamma.data, gamma.dtype, at.D, workspace);
    ranges_run(stream, at.rows, 1, at.rows * at.D, forward_rows, &forward);
    return OK;
}

static Status dropout_add_rmsnorm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor rstd, Tensor res,
                                              Tensor y, Tensor gamma, float eps, Dropout dropout) {
    HeadRows at = head_rows(sum, (HeadRange){0});
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(float), &workspace));
    Forward forward = {out, rstd, sum, at,      pairs_in(gamma.data, gamma.dtype, at.D, workspace),
                       eps, res,  y,   &dropout};
    ranges_run(stream, at.rows, 1, at.rows * at.D, forward_rows, &forward);
    return OK;
}

/* Accumulates dgamma for one row and returns the mean of dy * gamma * normed. Prefetches dx and dres. */
static ALWAYS_INLINE float row_dots(DType dtype, float *dgamma, const void *dx, const void *dy, const void *x,
                                    const void *dres, const float *gamma, int64_t C, float rstd) {
    VecPair dots[PAIRS] = {0};
    float dot = 0;
    int64_t c = 0;
    for (; c < paired(C); c += PAIRS_STEP) {
        if (dres) prefetch_run(dres, dtype, c, PAIRS_STEP, false);
        prefetch_run(dx, dtype, c, PAIRS_STEP, true);
        for (int p = 0; p < PAIRS; p++) {
            int64_t at = c + p * PAIR;
            VecPair each = pair_get(dy, dtype, at), v = pair_get(x, dtype, at);
            VecPair scale = pair_load(gamma + at), sum = pair_load(dgamma + at);
            each.a *= v.a * rstd, each.b *= v.b * rstd;
            dots[p].a += each.a * scale.a, dots[p].b += each.b * scale.b;
            sum.a += each.a, sum.b += each.b;
            pair_store(dgamma + at, sum);
        }
    }
    for (; c < C; c++) {
        float each = half_get(dy, dtype, c) * (half_get(x, dtype, c) * rstd);
        dot += each * gamma[c];
        dgamma[c] += each;
    }
    return (dot + pairs_sum(dots)) / (float)C;
}

/* dx may alias dy or dres: each element is read before it is written. The next row of dy and x is `ahead`
 * elements further. */
static ALWAYS_INLINE void row_backward(DType dtype, void *dx, float *dgamma, const void *dy, const void *x,
                                       const void *dres, const float *gamma, int64_t C, float rstd,
                                       int64_t ahead) {
    float factor = rstd * row_dots(dtype, dgamma, dx, dy, x, dres, gamma, C, rstd);
    int64_t c = 0;
    for (; c < paired(C); c += PAIR) {
        prefetch_run(dy, dtype, c + ahead, PAIR, false);
        prefetch_run(x, dtype, c + ahead, PAIR, false);
        VecPair grad = pair_get(dy, dtype, c), v = pair_get(x, dtype, c), scale = pair_load(gamma + c);
        v.a = rstd * (grad.a * scale.a - v.a * factor), v.b = rstd * (grad.b * scale.b - v.b * factor);
        if (dres) {
            VecPair res = pair_get(dres, dtype, c);
            v.a += res.a, v.b += res.b;
        }
        pair_put(dx, dtype, c, v);
    }
    for (; c < C; c++) {
        float dnorm = rstd * (half_get(dy, dtype, c) * gamma[c] - half_get(x, dtype, c) * factor);
        half_put(dx, dtype, c, dres ? half_get(dres, dtype, c) + dnorm : dnorm);
    }
}

/* What the parts of rmsnorm_backward share. */
typedef struct Backward {
    Tensor dx, dy, x, rstd, dres;
    HeadRows rows;
    const float *gamma;
    ColumnSums dgamma;
} Backward;

static void backward_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Backward *f = context;
    float *sums = f->dgamma.sums + part * f->dgamma.stride;
    memset(sums, 0, (size_t)f->rows.D * sizeof(float));
    Range mine = range_part(f->rows.rows, 1, (int)part, f->dgamma.parts);
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t from = head_row(&f->rows, row), next = head_row(&f->rows, row + 1 < mine.to ? row + 1 : row);
        BY_TYPE(f->x.dtype, row_backward, run_at(f->dx, from), sums, run_at(f->dy, from), run_at(f->x, from),
                run_at(f->dres, from), f->gamma, f->rows.D, tensor_f32(f->rstd)[row], next - from);
    }
}

static Status rmsnorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                                   Tensor gamma, Tensor dres, HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    int parts = sum_row_parts(at.rows, at.D);
    int64_t stride = columns_stride(at.D);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)((1 + parts) * stride) * sizeof(float), &workspace));
    const float *weights = pairs_in(gamma.data, gamma.dtype, at.D, workspace);
    float *sums = (float *)workspace + stride;
    Backward backward = {
        dx,   dy, x,       rstd,
        dres, at, weights, {tensor_f32(dgamma), sums, at.rows, at.D, stride, parts, x.dtype}};
    pool_run(pool_for(stream, at.rows * at.D), parts, backward_task, &backward);
    columns_add(stream, &backward.dgamma);
    return OK;
}

void VARIANT(rmsnorm_override)(KernelTable *table) {
    table->rmsnorm_forward = rmsnorm_forward_cpu;
    table->rmsnorm_backward = rmsnorm_backward_cpu;
    table->dropout_add_rmsnorm_forward = dropout_add_rmsnorm_forward_cpu;
}
