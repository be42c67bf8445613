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
        int64_t at = head_row(&f->rows, row);
        if (f->y.data)
            BY_TYPE(f->y.dtype, dropout_add_run, run_at(f->x, at), run_at(f->res, at), run_at(f->y, at), C,
                    f->dropout, dropout_row(f->dropout, row / T, row % T));
        BY_TYPE(f->x.dtype, norm_row, run_at(f->out, at), tensor_f32(f->rstd) + row, run_at(f->x, at),
                f->gamma, C, f->eps);
    }
}

static Status rmsnorm_forward_cpu(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                                  HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(float), &workspace));
    Forward forward = {.out = y, .rstd = rstd, .x = x, .rows = at, .eps = eps};
    forward.gamma = run_in(gamma, 0, at.D, workspace);
    ranges_run(stream, at.rows, 1, at.rows * at.D, forward_rows, &forward);
    return OK;
}

static Status dropout_add_rmsnorm_forward_cpu(Stream *stream, Tensor sum, Tensor out, Tensor rstd, Tensor res,
                                              Tensor y, Tensor gamma, float eps, Dropout dropout) {
    HeadRows at = head_rows(sum, (HeadRange){0});
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(float), &workspace));
    Forward forward = {out, rstd, sum, at, run_in(gamma, 0, at.D, workspace), eps, res, y, &dropout};
    ranges_run(stream, at.rows, 1, at.rows * at.D, forward_rows, &forward);
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

/* What the parts of rmsnorm_backward share. */
typedef struct Backward {
    Tensor dx, dy, x, rstd, dres;
    HeadRows rows;
    const float *gamma;
    float *sums; /* dgamma of each part, `stride` apart */
    int64_t stride;
    int parts;
} Backward;

static void backward_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const Backward *f = context;
    float *sums = f->sums + part * f->stride;
    memset(sums, 0, (size_t)f->rows.D * sizeof(float));
    Range mine = range_part(f->rows.rows, 1, (int)part, f->parts);
    for (int64_t row = mine.from; row < mine.to; row++) {
        int64_t from = head_row(&f->rows, row);
        BY_TYPE(f->x.dtype, row_backward, run_at(f->dx, from), sums, run_at(f->dy, from), run_at(f->x, from),
                run_at(f->dres, from), f->gamma, f->rows.D, tensor_f32(f->rstd)[row]);
    }
}

static Status rmsnorm_backward_cpu(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                                   Tensor gamma, Tensor dres, HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    int parts = parts_for(stream, at.rows * at.D, 2);
    int64_t stride = (at.D + 15) / 16 * 16;
    void *workspace;
    TRY(stream_workspace(stream, (size_t)((1 + parts) * stride) * sizeof(float), &workspace));
    const float *weights = run_in(gamma, 0, at.D, workspace);
    float *sums = (float *)workspace + stride;
    Backward backward = {dx, dy, x, rstd, dres, at, weights, sums, stride, parts};
    pool_run(pool_for(stream, at.rows * at.D), parts, backward_task, &backward);
    for (int part = 0; part < parts; part++)
        for (int64_t c = 0; c < at.D; c++) tensor_f32(dgamma)[c] += sums[part * stride + c];
    return OK;
}

void VARIANT(rmsnorm_override)(KernelTable *table) {
    table->rmsnorm_forward = rmsnorm_forward_cpu;
    table->rmsnorm_backward = rmsnorm_backward_cpu;
    table->dropout_add_rmsnorm_forward = dropout_add_rmsnorm_forward_cpu;
}
