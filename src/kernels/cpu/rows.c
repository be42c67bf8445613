/* Row operations: gather, scatter, transpose and argmax. In scatter, where rows may repeat, threads take
 * columns, so that each element is accumulated by one thread in the order of the index. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/map.h"
#include "kernels/cpu/runs.h"
#include "kernels/cpu/variant.h"
#include "kernels/ref/ref.h"

enum { TILE = 16 };

static Status gather_rows_cpu(Stream *stream, Tensor out, Tensor x, Tensor index) {
    TRY(kernels_check_rows("gather_rows", "index", index, x));
    int64_t M = tensor_count(index), C = tensor_cols(x);
    size_t bytes = (size_t)C * dtype_size(x.dtype);
    const int32_t *at = tensor_i32(index);
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, M *C))
    for (int64_t i = 0; i < M; i++)
        memcpy((char *)out.data + (size_t)i * bytes, (char *)x.data + (size_t)at[i] * bytes, bytes);
    return OK;
}

static Status scatter_add_rows_cpu(Stream *stream, Tensor x, Tensor y, Tensor index) {
    TRY(kernels_check_rows("scatter_add_rows", "index", index, x));
    int64_t M = tensor_count(index), C = tensor_cols(x);
    const int32_t *at = tensor_i32(index);
#pragma omp parallel num_threads(threads_for(stream, M *C))
    {
        Range mine = range_mine(C, 16);
        for (int64_t i = 0; i < M; i++)
            BY_TYPE(x.dtype, map_add_same, run_at(x, at[i] * C + mine.from), run_at(y, i * C + mine.from),
                    mine.to - mine.from);
    }
    return OK;
}

static Status copy_blocks_cpu(Stream *stream, Tensor to, Tensor from, Blocks blocks) {
    size_t element = dtype_size(to.dtype), bytes = (size_t)blocks.size * element;
    const int64_t *count = blocks.count, all = count[0] * count[1] * count[2];
#pragma omp parallel for schedule(static) num_threads(threads_for(stream, all *blocks.size))
    for (int64_t n = 0; n < all; n++) {
        int64_t i = n / (count[1] * count[2]), j = n / count[2] % count[1], k = n % count[2];
        memcpy((char *)to.data + (size_t)block_at(&blocks.to, i, j, k) * element,
               (char *)from.data + (size_t)block_at(&blocks.from, i, j, k) * element, bytes);
    }
    return OK;
}

/* Transposes columns [mine.from, mine.to) of x in tiles of 16 x 16, so that a tile row is half a cache line
 * or a full one on either side. `size` is the element size, a constant where this is inlined. */
static inline __attribute__((always_inline)) void transpose_part(char *to, const char *from, size_t size,
                                                                 int64_t M, int64_t N, Range mine) {
    for (int64_t n0 = mine.from; n0 < mine.to; n0 += TILE)
        for (int64_t m0 = 0; m0 < M; m0 += TILE)
            for (int64_t n = n0; n < n0 + TILE && n < mine.to; n++)
                for (int64_t m = m0; m < m0 + TILE && m < M; m++)
                    memcpy(to + (size_t)(n * M + m) * size, from + (size_t)(m * N + n) * size, size);
}

static Status transpose_cpu(Stream *stream, Tensor y, Tensor x) {
    int64_t M = tensor_rows(x), N = tensor_cols(x);
#pragma omp parallel num_threads(threads_for(stream, M *N))
    {
        Range mine = range_mine(N, TILE);
        if (dtype_size(x.dtype) == 2)
            transpose_part(y.data, x.data, 2, M, N, mine);
        else
            transpose_part(y.data, x.data, 4, M, N, mine);
    }
    return OK;
}

/* Finds the largest value of a row, then its first column; -1 if there is a NaN or the largest value is
 * infinite. */
static int32_t argmax_row(const float *x, int64_t C) {
    enum { STEP = 4 * VEC };
    VecF max[4] = {vec_set(-INFINITY), vec_set(-INFINITY), vec_set(-INFINITY), vec_set(-INFINITY)};
    VecI has_nan = {0};
    int64_t c = 0;
    for (; c + STEP <= C; c += STEP)
        for (int i = 0; i < 4; i++) {
            VecF v = vec_load(x + c + i * VEC);
            has_nan |= v != v;
            max[i] = vec_select(v > max[i], v, max[i]);
        }
    float largest = -INFINITY;
    for (int lane = 0; lane < VEC; lane++) {
        if (has_nan[lane]) return -1;
        for (int i = 0; i < 4; i++) largest = max[i][lane] > largest ? max[i][lane] : largest;
    }
    for (; c < C; c++) {
        if (isnan(x[c])) return -1;
        largest = x[c] > largest ? x[c] : largest;
    }
    if (isinf(largest)) return -1;
    for (c = 0; x[c] != largest;) c++;
    return (int32_t)c;
}

static Status argmax_cpu(Stream *stream, Tensor index, Tensor x) {
    if (x.dtype != DT_F32) return argmax_ref(stream, index, x);
    int64_t M = tensor_rows(x), C = tensor_cols(x);
#pragma omp parallel for schedule(static) num_threads(M > 1 ? threads_for(stream, M * C) : 1)
    for (int64_t m = 0; m < M; m++) tensor_i32(index)[m] = argmax_row(tensor_f32(x) + m * C, C);
    return OK;
}

static Status argmax_advance_cpu(Stream *stream, Tensor chosen, Tensor tokens, Tensor past, Tensor x) {
    TRY(argmax_cpu(stream, tokens, x));
    advance_tokens(chosen, tokens, past);
    return OK;
}

void VARIANT(rows_override)(KernelTable *table) {
    table->argmax = argmax_cpu;
    table->argmax_advance = argmax_advance_cpu;
    table->gather_rows = gather_rows_cpu;
    table->scatter_add_rows = scatter_add_rows_cpu;
    table->copy_blocks = copy_blocks_cpu;
    table->transpose = transpose_cpu;
}
