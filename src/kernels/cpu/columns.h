/* Column sums for bias gradients. Rows are divided into parts, and the sums of the parts are added in order.
 * Their number depends on the shape only, so the result does not depend on the number of threads. A part's
 * rows are contiguous in memory; columns of all rows would be in as many pages as there are rows.
 *
 * A kernel whose own parts are those of sum_row_parts sums the rows that it has just computed:
 *
 *   ColumnSums sums = columns_of(to, x, workspace);   with columns_bytes(to, x) bytes
 *   in each part: columns_part(&sums, x, part);
 *   columns_add(stream, &sums);
 */
#ifndef WEFT_KERNELS_CPU_COLUMNS_H
#define WEFT_KERNELS_CPU_COLUMNS_H

#include "kernels/cpu/pairs.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

/* Sums of x (rows,cols) that are added to `to` (cols). */
typedef struct ColumnSums {
    float *to;
    float *sums; /* of each part, `stride` apart, in the order of pairs */
    int64_t rows, cols, stride;
    int parts;
    DType dtype;
} ColumnSums;

static inline int64_t columns_stride(int64_t cols) {
    return round_up(cols, 16);
}

/* 0 if either is absent. */
static inline size_t columns_bytes(Tensor to, Tensor x) {
    if (!to.data || !x.data) return 0;
    int64_t cols = tensor_cols(x);
    return (size_t)(sum_row_parts(tensor_rows(x), cols) * columns_stride(cols)) * sizeof(float);
}

/* All zero if either is absent; the functions below then do nothing. */
static inline ColumnSums columns_of(Tensor to, Tensor x, void *workspace) {
    if (!to.data || !x.data) return (ColumnSums){0};
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    return (ColumnSums){
        tensor_f32(to), workspace, rows, cols, columns_stride(cols), sum_row_parts(rows, cols), x.dtype};
}

/* Sums of `pairs` pairs of columns, a constant at the call sites. */
static ALWAYS_INLINE void rows_sum(DType dtype, float *sums, const void *x, int64_t at, Range rows,
                                   int64_t cols, int pairs) {
    enum { AHEAD = 4, MOST = 4 };
    VecPair sum[MOST] = {0};
    for (int64_t row = rows.from; row < rows.to; row++) {
        prefetch_run(x, dtype, (row + AHEAD) * cols + at, pairs * PAIR, false);
#pragma GCC unroll 4
        for (int i = 0; i < pairs; i++) {
            VecPair v = pair_get(x, dtype, row * cols + at + i * PAIR);
            sum[i].a += v.a, sum[i].b += v.b;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < pairs; i++) pair_store(sums + at + i * PAIR, sum[i]);
}

static ALWAYS_INLINE void columns_run(DType dtype, float *sums, const void *x, Range rows, int64_t cols) {
    int64_t at = 0;
    for (; at + 2 * PAIRS_STEP <= paired(cols); at += 2 * PAIRS_STEP)
        rows_sum(dtype, sums, x, at, rows, cols, 2 * PAIRS);
    if (at < paired(cols)) rows_sum(dtype, sums, x, at, rows, cols, PAIRS);
    for (at = paired(cols); at < cols; at++) {
        sums[at] = 0;
        for (int64_t row = rows.from; row < rows.to; row++) sums[at] += half_get(x, dtype, row * cols + at);
    }
}

static inline void columns_part(const ColumnSums *f, Tensor x, int64_t part) {
    if (!f->to) return;
    Range rows = range_part(f->rows, 1, (int)part, f->parts);
    BY_TYPE(f->dtype, columns_run, f->sums + part * f->stride, x.data, rows, f->cols);
}

/* Adds the sums of all parts for SUM_COLUMNS columns. */
static inline void columns_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const ColumnSums *f = context;
    int64_t from = task * SUM_COLUMNS, end = from + SUM_COLUMNS < f->cols ? from + SUM_COLUMNS : f->cols;
    pairs_add(f->to, f->dtype, f->cols, f->sums, f->parts, f->stride, from, end);
}

static inline void columns_add(const Stream *stream, const ColumnSums *f) {
    if (!f->to) return;
    pool_run(pool_for(stream, f->parts * f->cols), parts_of(f->cols, SUM_COLUMNS), columns_task, f);
}

typedef struct ColumnJob {
    ColumnSums sums;
    Tensor x;
} ColumnJob;

static inline void column_job_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const ColumnJob *job = context;
    columns_part(&job->sums, job->x, part);
}

/* sums += column sums of x. Either may be absent. Uses the stream's workspace. */
static inline Status column_sums(Stream *stream, Tensor sums, Tensor x) {
    void *workspace;
    if (!columns_bytes(sums, x)) return OK;
    TRY(stream_workspace(stream, columns_bytes(sums, x), &workspace));
    ColumnJob job = {columns_of(sums, x, workspace), x};
    pool_run(pool_for(stream, tensor_count(x)), job.sums.parts, column_job_task, &job);
    columns_add(stream, &job.sums);
    return OK;
}

#endif
