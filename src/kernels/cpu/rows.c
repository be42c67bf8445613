/* Rows by index, and the transpose. Where rows may collide (scatter) the threads take columns, so each
 * element is summed by one thread in the order of the index. */
#include <string.h>

#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

static Status index_check(const char *kernel, Tensor index, int64_t rows) {
    const int32_t *at = tensor_i32(index);
    for (int64_t i = 0; i < tensor_count(index); i++)
        if (at[i] < 0 || at[i] >= rows)
            return FAILED("internal: %s: row %d is asked for, expected 0 to %lld", kernel, at[i],
                          (long long)rows - 1);
    return OK;
}

static Status gather_rows_cpu(Stream *stream, Tensor out, Tensor x, Tensor index) {
    FP32_ELSE(gather_rows_ref(stream, out, x, index), out, x);
    TRY(index_check("gather_rows", index, tensor_rows(x)));
    int64_t M = tensor_count(index), C = tensor_cols(x);
    const int32_t *at = tensor_i32(index);
#pragma omp parallel num_threads(threads_for(stream, M *C))
    {
        Range mine = range_mine(M, 1);
        for (int64_t i = mine.from; i < mine.to; i++)
            memcpy(tensor_f32(out) + i * C, tensor_f32(x) + at[i] * C, (size_t)C * sizeof(float));
    }
    return OK;
}

static Status scatter_add_rows_cpu(Stream *stream, Tensor x, Tensor y, Tensor index) {
    FP32_ELSE(scatter_add_rows_ref(stream, x, y, index), x, y);
    TRY(index_check("scatter_add_rows", index, tensor_rows(x)));
    int64_t M = tensor_count(index), C = tensor_cols(x);
    const int32_t *at = tensor_i32(index);
#pragma omp parallel num_threads(threads_for(stream, M *C))
    {
        Range mine = range_mine(C, 16);
        for (int64_t i = 0; i < M; i++) {
            float *to = tensor_f32(x) + at[i] * C;
            const float *from = tensor_f32(y) + i * C;
#pragma omp simd
            for (int64_t c = mine.from; c < mine.to; c++) to[c] += from[c];
        }
    }
    return OK;
}

/* Tiles of 16 x 16: one cache line of each row of either side. */
static Status transpose_cpu(Stream *stream, Tensor y, Tensor x) {
    FP32_ELSE(transpose_ref(stream, y, x), y, x);
    enum { TILE = 16 };
    int64_t M = tensor_rows(x), N = tensor_cols(x);
    const float *from = tensor_f32(x);
    float *to = tensor_f32(y);
#pragma omp parallel num_threads(threads_for(stream, M *N))
    {
        Range mine = range_mine(N, TILE);
        for (int64_t n0 = mine.from; n0 < mine.to; n0 += TILE)
            for (int64_t m0 = 0; m0 < M; m0 += TILE)
                for (int64_t n = n0; n < n0 + TILE && n < mine.to; n++)
                    for (int64_t m = m0; m < m0 + TILE && m < M; m++) to[n * M + m] = from[m * N + n];
    }
    return OK;
}

void VARIANT(rows_override)(KernelTable *table) {
    table->gather_rows = gather_rows_cpu;
    table->scatter_add_rows = scatter_add_rows_cpu;
    table->transpose = transpose_cpu;
}
