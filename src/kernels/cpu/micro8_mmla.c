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

/* ---- int4 weights ---- */

/* The steps of 12 columns; those of a pair of columns are repeated for both rows. */
typedef struct Steps {
    int16x4_t pair[PAIRS];
} Steps;

static inline __attribute__((always_inline)) Steps load_steps(const int8_t *from) {
    const int8x16_t bytes = vld1q_s8(from);
    const int32x4_t low = vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(bytes)));
    const int32x4_t high = vreinterpretq_s32_s16(vmovl_s8(vget_high_s8(bytes)));
    return (Steps){
        {vreinterpret_s16_s32(vdup_laneq_s32(low, 0)), vreinterpret_s16_s32(vdup_laneq_s32(low, 1)),
         vreinterpret_s16_s32(vdup_laneq_s32(low, 2)), vreinterpret_s16_s32(vdup_laneq_s32(low, 3)),
         vreinterpret_s16_s32(vdup_laneq_s32(high, 0)), vreinterpret_s16_s32(vdup_laneq_s32(high, 1))}};
}

/* Nibbles are multiplied by 16 times their value, which avoids sign extension. The sums of a slice are then
 * multiples of 16 and fit 20 bits; narrowing them to the 16 bits that the steps multiply shifts them back. */
static inline __attribute__((always_inline)) void tile_slices(int64_t depth, int pairs, int rows,
                                                              const int8_t *a, const int8_t *b, int32_t *c,
                                                              int64_t c_stride) {
    int32x4_t total[2][PAIRS] = {{{0}}};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        int32x4_t sum[2][PAIRS] = {{{0}}};
        for (int line = 0; line < COLS * (INT4_GROUP / 2 + 1); line += 64)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 4
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP)
#pragma GCC unroll 3
            for (int j = 0; j < PAIRS; j += 2) {
                const int8x16_t both = vld1q_s8(b + 8 * (PAIRS * g + j));
                const int8x16_t low = vshlq_n_s8(both, 4), high = vandq_s8(both, vdupq_n_s8(-16));
#pragma GCC unroll 2
                for (int i = 0; i < pairs; i++) {
                    sum[i][j] = vmmlaq_s32(sum[i][j], vld1q_s8(a + 16 * i), low);
                    sum[i][j + 1] = vmmlaq_s32(sum[i][j + 1], vld1q_s8(a + 16 * i), high);
                }
            }
        const Steps steps = load_steps(b + COLS * INT4_GROUP / 2);
#pragma GCC unroll 2
        for (int i = 0; i < pairs; i++)
#pragma GCC unroll 6
            for (int j = 0; j < PAIRS; j++)
                total[i][j] = vmlal_s16(total[i][j], vshrn_n_s32(sum[i][j], 4), steps.pair[j]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 3
        for (int j = 0; j < PAIRS; j += 2)
            store_pair(c + 2 * i * c_stride + 2 * j, c_stride, rows - 2 * i, total[i][j], total[i][j + 1]);
}

static void run4_mmla(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    for (; rows > 2; rows -= 4, a += 4 * GROUP, c += 4 * c_stride)
        tile_slices(depth, 2, rows, a, b, c, c_stride);
    if (rows > 0) tile_slices(depth, 1, rows, a, b, c, c_stride);
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

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    int32x4_t total[PAIRS / 2] = {{0}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        int32x4_t low[PAIRS / 2] = {{0}}, high[PAIRS / 2] = {{0}};
        for (int line = 0; line < COLS * (INT4_GROUP / 2 + 1); line += 64)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
#pragma GCC unroll 4
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += GROUP) {
            const int8x16_t left = load_group(a);
#pragma GCC unroll 3
            for (int j = 0; j < PAIRS / 2; j++) {
                const int8x16_t both = vld1q_s8(b + 16 * (PAIRS / 2 * g + j));
                low[j] = vmmlaq_s32(low[j], left, vshlq_n_s8(both, 4));
                high[j] = vmmlaq_s32(high[j], left, vandq_s8(both, vdupq_n_s8(-16)));
            }
        }
        const int8x16_t bytes = vld1q_s8(b + COLS * INT4_GROUP / 2);
        const int16x8_t first = vmovl_s8(vget_low_s8(bytes)), last = vmovl_s8(vget_high_s8(bytes));
        const int16x4_t steps[] = {vget_low_s16(first), vget_high_s16(first), vget_low_s16(last)};
#pragma GCC unroll 3
        for (int j = 0; j < PAIRS / 2; j++)
            total[j] = vmlal_s16(total[j], vshrn_n_s32(first_rows(low[j], high[j]), 4), steps[j]);
    }
    for (int j = 0; j < PAIRS / 2; j++) vst1q_s32(c + 4 * j, total[j]);
}

static const Micro8 one = {
    .name = "i8mm", .rows = 1, .tile = {COLS, GROUP, 16}, .run = run_row, .run4 = run4_row};

const Micro8 micro8_mmla = {
    .name = "i8mm", .rows = ROWS, .tile = {COLS, GROUP, 16}, .run = run_mmla, .run4 = run4_mmla, .one = &one};

#endif
