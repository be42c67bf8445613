/* Column sums for bias gradients: a thread sums some columns over all rows, so the order is fixed. */
#ifndef WEFT_KERNELS_CPU_COLUMNS_H
#define WEFT_KERNELS_CPU_COLUMNS_H

#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"

enum { COLUMN_RUN = 256 }; /* columns that pass through a buffer at a time */

typedef struct ColumnSums {
    float *sums;
    Tensor x;
} ColumnSums;

static inline void column_range(const void *context, Range mine) {
    const ColumnSums *f = context;
    int64_t rows = tensor_rows(f->x), cols = tensor_cols(f->x);
    float buffer[COLUMN_RUN];
    for (int64_t first = mine.from; first < mine.to; first += COLUMN_RUN) {
        int64_t left = mine.to - first, n = left < COLUMN_RUN ? left : COLUMN_RUN;
        float *sums = f->sums + first;
        for (int64_t row = 0; row < rows; row++) {
            const float *line = run_in(f->x, row * cols + first, n, buffer);
#pragma omp simd
            for (int64_t c = 0; c < n; c++) sums[c] += line[c];
        }
    }
}

/* sums += column sums of x. Either may be absent. */
static inline void column_sums(Stream *stream, Tensor sums, Tensor x) {
    if (!sums.data || !x.data) return;
    ColumnSums context = {tensor_f32(sums), x};
    ranges_run(stream, tensor_cols(x), 16, tensor_count(x), column_range, &context);
}

#endif
