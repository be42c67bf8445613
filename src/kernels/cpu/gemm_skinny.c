/* Skinny GEMMs, see gemm.h. The left operand is first converted to fp32 unless a micro-kernel reads both as
 * they are. Columns are contiguous in memory, so tiles of several rows prefetch them in that order as a
 * single stream. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/micro16.h"
#include "kernels/cpu/pairs.h"

/* Columns of a tile of one, two and four rows, in fp32 and in 16 bits; the accumulators must fit the
 * registers. SUMS: accumulators per element in 16 bits. With AVX2, the latency of a single one would limit
 * the bandwidth. */
#if defined(__aarch64__) || defined(__AVX512F__)
static const int tile_cols[2][3] = {{8, 8, 4}, {4, 4, 4}};
enum { SUMS = 1 };
#elif defined(__AVX2__)
static const int tile_cols[2][3] = {{8, 4, 2}, {4, 2, 1}};
enum { SUMS = 2 };
#else
static const int tile_cols[2][3] = {{8, 4, 2}, {4, 4, 2}};
enum { SUMS = 1 };
#endif
enum { DOT_ROWS = 4, DOT_COLS = 8, LINE = 64 };
/* ONE_BY_ONE: whether a single row is multiplied by one column after the other; x86 CPUs prefetch one stream
 * best, AHEAD bytes ahead in fp32 and in 16 bits. PREFETCH_FOUR: whether the first tile of four rows
 * prefetches 16-bit columns, too; those of fp32 always do. */
#if defined(__x86_64__)
enum { ONE_BY_ONE = 1, AHEAD32 = 4096, AHEAD16 = 3072, PREFETCH_FOUR = 1 };
#else
enum { ONE_BY_ONE = 0, AHEAD32 = 0, AHEAD16 = 0, PREFETCH_FOUR = 0 };
#endif

/* The left operand in fp32, with rows `stride` apart, and the result, with rows n apart. */
typedef struct Skinny {
    const Gemm *gemm;
    const float *left;
    int64_t stride;
    float *sums;
    const Micro *micro; /* reads both operands unconverted; NULL: not available */
} Skinny;

/* The elements of a step, which have as many bytes as a vector: a vector of fp32, or two of 16-bit types, for
 * bf16 those of even and of odd index, which takes one instruction per vector, and for fp16 the first and the
 * second half. */
static ALWAYS_INLINE int step_of(DType dtype) {
    return dtype == DT_F32 ? VEC : PAIR;
}
static ALWAYS_INLINE VecPair load_step(DType dtype, const void *from, int64_t at) {
    const uint16_t *half = (const uint16_t *)from + at;
    if (dtype == DT_F32) return (VecPair){.a = vec_load((const float *)from + at)};
    if (dtype == DT_F16) return (VecPair){vec_load_f16(half), vec_load_f16(half + VEC)};
    return pair_load_bf16(half);
}

/* A row of the left operand in fp32, with elements in the order of load_step. The rest after the last full
 * step stays in order. */
static void load_left(const Gemm *gemm, float *to, int64_t row) {
    half_load(to, gemm->a.data, gemm->a.dtype, row * gemm->a.stride, gemm->k);
    if (gemm->b.dtype == DT_F16) return;
    for (int64_t k = 0; k + PAIR <= gemm->k; k += PAIR) {
        float pair[PAIR];
        memcpy(pair, to + k, sizeof pair);
        for (int i = 0; i < VEC; i++) {
            to[k + i] = pair[2 * i];
            to[k + VEC + i] = pair[2 * i + 1];
        }
    }
}

/* The sums of an element. */
typedef struct Dot {
    VecF part[SUMS];
} Dot;

static ALWAYS_INLINE void dot_add(DType dtype, Dot *dot, const float *a, VecPair right) {
    dot->part[0] += vec_load(a) * right.a;
    if (dtype != DT_F32) dot->part[SUMS - 1] += vec_load(a + VEC) * right.b;
}

/* One row times one column, without the rest after the last full step. */
static ALWAYS_INLINE Dot dot_one(DType dtype, const float *a, const char *b, int64_t depth) {
    int size = dtype == DT_F32 ? 4 : 2, line = LINE / size, step = step_of(dtype);
    Dot dot = {0};
    int64_t k = 0;
    for (; k + line <= depth; k += line) {
        __builtin_prefetch(b + k * size + (dtype == DT_F32 ? AHEAD32 : AHEAD16), 0, 3);
#pragma GCC unroll 4
        for (int i = 0; i < line; i += step) dot_add(dtype, &dot, a + k + i, load_step(dtype, b, k + i));
    }
    for (; k < depth; k += step) dot_add(dtype, &dot, a + k, load_step(dtype, b, k));
    return dot;
}

/* `rows`, `cols`, `dtype` and `prefetch` are constants at the call sites; rows * cols is a multiple of 4. */
static ALWAYS_INLINE void dot_tile(DType dtype, const Skinny *skinny, int64_t row, int64_t col, int rows,
                                   int cols, bool prefetch) {
    enum { PREFETCH_BYTES = 8192 };
    const Gemm *gemm = skinny->gemm;
    Dot dot[DOT_ROWS * DOT_COLS];
    float total[DOT_ROWS * DOT_COLS];
    const float *a[DOT_ROWS];
    const char *b[DOT_COLS];
    int size = dtype == DT_F32 ? 4 : 2, step = step_of(dtype);
    for (int i = 0; i < rows; i++) a[i] = skinny->left + (row + i) * skinny->stride;
    for (int j = 0; j < cols; j++)
        b[j] = (const char *)gemm->b.data + min_of(col + j, gemm->n - 1) * gemm->b.stride * size;
    int64_t k = 0, full = gemm->k / step * step;
#pragma GCC unroll 8
    for (int at = 0; at < rows * cols; at++) dot[at] = (Dot){0};
    if (rows == 1 && ONE_BY_ONE) {
        for (int j = 0; j < cols; j++) dot[j] = dot_one(dtype, a[0], b[j], full);
        k = full;
    }
    const char *ahead = b[0] + cols * gemm->b.stride * size + (dtype == DT_F32 ? 0 : PREFETCH_BYTES);
    for (; k < full; k += step) {
        for (int line = 0; line < cols * step * size && prefetch; line += LINE)
            __builtin_prefetch(ahead + cols * k * size + line, 0, 2);
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++) {
            const VecPair right = load_step(dtype, b[j], k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) dot_add(dtype, &dot[i * cols + j], a[i] + k, right);
        }
    }
#pragma GCC unroll 4
    for (int at = 0; at < rows * cols; at += 4) {
        VecF four[4];
        for (int i = 0; i < 4; i++) {
            four[i] = dot[at + i].part[0];
            if (SUMS > 1 && dtype != DT_F32) four[i] += dot[at + i].part[SUMS - 1];
        }
        vec_sum_four(total + at, four);
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols && col + j < gemm->n; j++) {
            float all = total[i * cols + j];
            for (int64_t rest = full; rest < gemm->k; rest++) all += a[i][rest] * half_get(b[j], dtype, rest);
            float *c = skinny->sums + (row + i) * gemm->n + col + j;
            *c = gemm->c && gemm->add ? *c + all : all;
        }
}

/* All rows of columns [from, to). */
static ALWAYS_INLINE void dot_columns(DType dtype, const Skinny *skinny, int64_t from, int64_t to,
                                      void (*dot_row)(const Skinny *skinny, int64_t row, int64_t col)) {
    const int *cols = tile_cols[dtype != DT_F32];
    bool wide = dtype == DT_F32;
    int64_t m = skinny->gemm->m, n = skinny->gemm->n;
    for (int64_t col = from, row = 0; col < to; col += cols[0], row = 0) {
        for (; row + DOT_ROWS <= m; row += DOT_ROWS)
            for (int j = 0; j < cols[0] && col + j < n; j += cols[2])
                dot_tile(dtype, skinny, row, col + j, DOT_ROWS, cols[2], wide || (PREFETCH_FOUR && row == 0));
        for (; row + 2 <= m; row += 2)
            for (int j = 0; j < cols[0] && col + j < n; j += cols[1])
                dot_tile(dtype, skinny, row, col + j, 2, cols[1], true);
        if (row < m) dot_row(skinny, row, col);
    }
}

/* Functions for each type and for a single row, because all loops together need more registers than there
 * are. */
#define COLUMNS(type, dtype)                                                                                 \
    static __attribute__((noinline)) void row_##type(const Skinny *skinny, int64_t row, int64_t col) {       \
        dot_tile(dtype, skinny, row, col, 1, tile_cols[dtype != DT_F32][0], true);                           \
    }                                                                                                        \
    static __attribute__((noinline)) void columns_##type(const Skinny *skinny, int64_t from, int64_t to) {   \
        dot_columns(dtype, skinny, from, to, row_##type);                                                    \
    }
COLUMNS(f32, DT_F32)
COLUMNS(bf16, DT_BF16)
COLUMNS(f16, DT_F16)

/* The same with bf16 instructions. */
static void columns_micro(const Skinny *skinny, int64_t from, int64_t to) {
    const Gemm *gemm = skinny->gemm;
    for (int64_t col = from; col < to; col += SKINNY_COLS)
        skinny->micro->skinny(gemm->k, gemm->m, gemm->a.data, gemm->a.stride,
                              (int)min_of(SKINNY_COLS, to - col),
                              (const uint16_t *)gemm->b.data + col * gemm->b.stride, gemm->b.stride,
                              skinny->sums + col, gemm->n);
}

/* Places the converted left operand and a result that is not c. */
static Status skinny_of(const Gemm *gemm, float *workspace, Skinny *ret_skinny, size_t *ret_bytes) {
    int64_t left = gemm->b.dtype == DT_F32 ? 0 : gemm->m * gemm->k, result = gemm->c ? 0 : gemm->m * gemm->n;
    const Micro *micro = NULL;
    if (gemm->a.dtype == DT_BF16 && gemm->b.dtype == DT_BF16) TRY(micro16_choose(&micro));
    if (micro && (!micro->skinny || (gemm->c && gemm->add))) micro = NULL;
    if (micro) left = 0;
    *ret_skinny = (Skinny){gemm, workspace, gemm->k, gemm->c ? gemm->c : workspace + left, micro};
    if (gemm->b.dtype == DT_F32) ret_skinny->left = gemm->a.data, ret_skinny->stride = gemm->a.stride;
    *ret_bytes = (size_t)(left + result) * sizeof(float);
    return OK;
}

Status gemm_skinny_bytes(const Gemm *gemm, size_t *ret_bytes) {
    Skinny skinny;
    return skinny_of(gemm, NULL, &skinny, ret_bytes);
}

Status gemm_skinny_run(int threads, const Gemm *gemm, void *workspace) {
    Skinny skinny;
    size_t bytes;
    TRY(skinny_of(gemm, workspace, &skinny, &bytes));
    bool converts = gemm->b.dtype != DT_F32 && !skinny.micro;
    for (int64_t row = 0; row < gemm->m && converts; row++)
        load_left(gemm, (float *)workspace + row * gemm->k, row);
    void (*columns)(const Skinny *, int64_t, int64_t) = skinny.micro               ? columns_micro
                                                        : gemm->b.dtype == DT_F32  ? columns_f32
                                                        : gemm->b.dtype == DT_BF16 ? columns_bf16
                                                                                   : columns_f16;
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->n, 16);
        columns(&skinny, mine.from, mine.to);
        if (gemm->finish && mine.to > mine.from)
            gemm->finish(gemm->context, skinny.sums + mine.from, gemm->n, gemm->row, mine.from, gemm->m,
                         mine.to - mine.from);
    }
    return OK;
}
