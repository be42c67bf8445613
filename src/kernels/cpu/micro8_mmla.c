/* SMMLA: a tile of 8 rows x 12 columns as 4 x 6 accumulators of 2 x 2, in 24 registers; see micro8.h. With
 * fewer rows only the existing pairs are multiplied, and reading the weights takes most of the time.
 * Compiled without pre-RA instruction scheduling, which would spill accumulators. */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 8, COLS = 12, GROUP = 8, PAIRS = COLS / 2 };
/* With few rows, reading the weights is the bottleneck. Panels are contiguous, so they are one stream. */
enum { PREFETCH_BYTES = 32768 };

/* Two adjacent 2 x 2 accumulators are four columns of two rows. */
static inline void store_pair(int32_t *c, int64_t c_stride, int rows, int32x4_t left, int32x4_t right) {
    int64x2_t l = vreinterpretq_s64_s32(left), r = vreinterpretq_s64_s32(right);
    vst1q_s32(c, vreinterpretq_s32_s64(vtrn1q_s64(l, r)));
    if (rows > 1) vst1q_s32(c + c_stride, vreinterpretq_s32_s64(vtrn2q_s64(l, r)));
}

#define EACH_PAIR(X) X(0) X(1) X(2) X(3)
#define START(i)                                                                                             \
    int32x4_t s##i##0 = {0}, s##i##1 = {0}, s##i##2 = {0}, s##i##3 = {0}, s##i##4 = {0}, s##i##5 = {0};
#define STEP(j)                                                                                              \
    {                                                                                                        \
        const int8x16_t right = vld1q_s8(b + 16 * (j));                                                      \
        s0##j = vmmlaq_s32(s0##j, a0, right);                                                                \
        s1##j = vmmlaq_s32(s1##j, a1, right);                                                                \
        s2##j = vmmlaq_s32(s2##j, a2, right);                                                                \
        s3##j = vmmlaq_s32(s3##j, a3, right);                                                                \
    }
#define STORE(i)                                                                                             \
    if (rows > 2 * (i)) {                                                                                    \
        store_pair(c + 2 * (i)*c_stride, c_stride, rows - 2 * (i), s##i##0, s##i##1);                        \
        store_pair(c + 2 * (i)*c_stride + 4, c_stride, rows - 2 * (i), s##i##2, s##i##3);                    \
        store_pair(c + 2 * (i)*c_stride + 8, c_stride, rows - 2 * (i), s##i##4, s##i##5);                    \
    }

static void tile_full(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    EACH_PAIR(START)
    for (int64_t k = 0; k < depth; k += GROUP) {
        const int8x16_t a0 = vld1q_s8(a), a1 = vld1q_s8(a + 16);
        const int8x16_t a2 = vld1q_s8(a + 32), a3 = vld1q_s8(a + 48);
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) a += ROWS * GROUP;
        b += COLS * GROUP;
    }
    EACH_PAIR(STORE)
}

/* One or two pairs of rows; `pairs` is a constant at the call sites. */
static inline __attribute__((always_inline)) void
tile_few(int64_t depth, int pairs, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    int32x4_t sum[2][PAIRS] = {{{0}}};
    for (int64_t k = 0; k < depth; k += 2 * GROUP) {
        for (int line = 0; line < 2 * COLS * GROUP; line += 64)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++, a += ROWS * GROUP, b += COLS * GROUP)
#pragma GCC unroll 6
            for (int j = 0; j < PAIRS; j++) {
                const int8x16_t right = vld1q_s8(b + 16 * j);
#pragma GCC unroll 2
                for (int i = 0; i < pairs; i++)
                    sum[i][j] = vmmlaq_s32(sum[i][j], vld1q_s8(a + 16 * i), right);
            }
    }
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 3
        for (int j = 0; j < PAIRS; j += 2)
            store_pair(c + 2 * i * c_stride + 2 * j, c_stride, rows - 2 * i, sum[i][j], sum[i][j + 1]);
}

static void run_mmla(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    if (rows > 4)
        tile_full(depth, rows, a, b, c, c_stride);
    else if (rows > 2)
        tile_few(depth, 2, rows, a, b, c, c_stride);
    else
        tile_few(depth, 1, rows, a, b, c, c_stride);
}

/* ---- int4 weights: 16 columns, in two halves of 8; see micro8_bias ---- */

enum { COLS4 = 16, SLICE = COLS4 * (INT4_GROUP / 2 + 1), COPIES = 2 };

/* A row pair's sums of two columns, over a slice or in total, in the low and in the high nibbles. */
typedef struct Sums4 {
    int32x4_t low, high;
} Sums4;

/* Up to two pairs of rows of half a panel; `pairs` is a constant at the call sites. */
static inline __attribute__((always_inline)) void tile_slices(int64_t depth, int pairs, int rows,
                                                              const int8_t *a, const int32_t *bias,
                                                              const int8_t *b, int half, int32_t *c,
                                                              int64_t c_stride) {
    Sums4 total[2][2] = {{{{0}, {0}}}};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += ROWS * COPIES) {
        int32x4_t x[2][2], y[2][2];
#pragma GCC unroll 2
        for (int i = 0; i < pairs; i++) x[i][0] = x[i][1] = y[i][0] = y[i][1] = vld1q_s32(bias + 4 * i);
        for (int line = 0; line < SLICE; line += 64) __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 4
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP)
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const int8x16_t both = vld1q_s8(b + 64 * g + 32 * half + 16 * j);
                const int8x16_t low = vandq_s8(both, vdupq_n_s8(15));
#pragma GCC unroll 2
                for (int i = 0; i < pairs; i++) {
                    x[i][j] = vmmlaq_s32(x[i][j], vld1q_s8(a + 16 * i), both);
                    y[i][j] = vmmlaq_s32(y[i][j], vld1q_s8(a + 16 * i), low);
                }
            }
        /* The steps of a pair of columns, repeated for both rows. */
        const int32x4_t steps =
            vreinterpretq_s32_s16(vmovl_s8(vld1_s8(b + COLS4 * INT4_GROUP / 2 + 8 * half)));
        const int16x4_t step[2][2] = {
            {vreinterpret_s16_s32(vdup_laneq_s32(steps, 0)), vreinterpret_s16_s32(vdup_laneq_s32(steps, 1))},
            {vreinterpret_s16_s32(vdup_laneq_s32(steps, 2)), vreinterpret_s16_s32(vdup_laneq_s32(steps, 3))}};
#pragma GCC unroll 2
        for (int i = 0; i < pairs; i++)
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                Sums4 *to = &total[i][j];
                to->low = vmlal_s16(to->low, vmovn_s32(y[i][j]), step[j][0]);
                to->high = vmlal_s16(to->high, vshrn_n_s32(vsubq_s32(x[i][j], y[i][j]), 4), step[j][1]);
            }
    }
#pragma GCC unroll 2
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            store_pair(c + 2 * i * c_stride + 4 * j, c_stride, rows - 2 * i, total[i][j].low,
                       total[i][j].high);
}

static void run4_mmla(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    const int32_t *bias = micro8_bias(a, ROWS, depth);
    for (int row = 0; row < rows; row += 4, a += 4 * GROUP, bias += 4 * COPIES, c += 4 * c_stride)
        for (int half = 0; half < 2; half++)
            if (rows - row > 2)
                tile_slices(depth, 2, rows - row, a, bias, b, half, c + 8 * half, c_stride);
            else
                tile_slices(depth, 1, rows - row, a, bias, b, half, c + 8 * half, c_stride);
}

/* ---- a single row, whose partner in a pair is zero ---- */

static inline int8x16_t load_group(const int8_t *a) {
    return vcombine_s8(vld1_s8(a), vdup_n_s8(0));
}

/* The valid halves of two accumulators: four columns. */
static inline int32x4_t first_rows(int32x4_t left, int32x4_t right) {
    return vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(left), vreinterpretq_s64_s32(right)));
}

static void run_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    int32x4_t sum[PAIRS] = {{0}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += 2 * GROUP) {
        for (int line = 0; line < 2 * COLS * GROUP; line += 64)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++, a += GROUP, b += COLS * GROUP) {
            const int8x16_t left = load_group(a);
#pragma GCC unroll 6
            for (int j = 0; j < PAIRS; j++) sum[j] = vmmlaq_s32(sum[j], left, vld1q_s8(b + 16 * j));
        }
    }
    for (int j = 0; j < PAIRS; j += 2) vst1q_s32(c + 2 * j, first_rows(sum[j], sum[j + 1]));
}

/* Adds four pairs of columns of a slice, two in low and two in high nibbles, times their steps. The columns
 * are in the order 0 1 4 5 2 3 6 7. */
static inline void add_slice(int32x4_t total[2], const int32x4_t *x, const int32x4_t *y, int16x8_t steps) {
    const int32x4_t low = first_rows(y[0], y[1]), both = first_rows(x[0], x[1]);
    const int16x8_t sums = vshrn_high_n_s32(vmovn_s32(low), vsubq_s32(both, low), 4);
    total[0] = vmlal_s16(total[0], vget_low_s16(sums), vget_low_s16(steps));
    total[1] = vmlal_high_s16(total[1], sums, steps);
}

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    static const uint8_t order[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    const uint8x16_t permutation = vld1q_u8(order);
    const int32_t *bias = micro8_bias(a, 1, depth);
    int32x4_t total[2][2] = {{{0}}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += COPIES) {
        int32x4_t x[4], y[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) x[j] = y[j] = vcombine_s32(vld1_s32(bias), vdup_n_s32(0));
        for (int line = 0; line < SLICE; line += 64) __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 4
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += GROUP) {
            const int8x16_t left = load_group(a);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const int8x16_t both = vld1q_s8(b + 64 * g + 16 * j);
                x[j] = vmmlaq_s32(x[j], left, both);
                y[j] = vmmlaq_s32(y[j], left, vandq_s8(both, vdupq_n_s8(15)));
            }
        }
        const int8x16_t steps = vqtbl1q_s8(vld1q_s8(b + COLS4 * INT4_GROUP / 2), permutation);
        add_slice(total[0], x, y, vmovl_s8(vget_low_s8(steps)));
        add_slice(total[1], x + 2, y + 2, vmovl_high_s8(steps));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) store_pair(c + 8 * i, 4, 2, total[i][0], total[i][1]);
}

#define TILES .tile = {COLS, GROUP, 16, false}, .tile4 = {COLS4, GROUP, 16, true}, .bias_copies = COPIES

static const Micro8 one = {.name = "i8mm", .rows = 1, TILES, .run = run_row, .run4 = run4_row};

const Micro8 micro8_mmla = {
    .name = "i8mm", .rows = ROWS, TILES, .run = run_mmla, .run4 = run4_mmla, .one = &one};

#endif
