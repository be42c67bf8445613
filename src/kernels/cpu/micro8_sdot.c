/* SDOT: a tile of 8 rows x 12 columns, in 24 registers of 4 columns each; see micro8.h. */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 8, COLS = 12, GROUP = 4 };

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define START(i)    int32x4_t s##i##0 = {0}, s##i##1 = {0}, s##i##2 = {0};
#define STEP(i)                                                                                              \
    s##i##0 = vdotq_laneq_s32(s##i##0, b0, (i) < 4 ? a0 : a1, (i) % 4);                                      \
    s##i##1 = vdotq_laneq_s32(s##i##1, b1, (i) < 4 ? a0 : a1, (i) % 4);                                      \
    s##i##2 = vdotq_laneq_s32(s##i##2, b2, (i) < 4 ? a0 : a1, (i) % 4);
#define STORE(i)                                                                                             \
    if ((i) < rows) {                                                                                        \
        vst1q_s32(c + (i)*c_stride, s##i##0);                                                                \
        vst1q_s32(c + (i)*c_stride + 4, s##i##1);                                                            \
        vst1q_s32(c + (i)*c_stride + 8, s##i##2);                                                            \
    }

static void run_sdot(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    EACH_ROW(START)
    for (int64_t k = 0; k < depth; k += GROUP) {
        const int8x16_t a0 = vld1q_s8(a), a1 = vld1q_s8(a + 16);
        const int8x16_t b0 = vld1q_s8(b), b1 = vld1q_s8(b + 16), b2 = vld1q_s8(b + 32);
        EACH_ROW(STEP)
        a += ROWS * GROUP;
        b += COLS * GROUP;
    }
    EACH_ROW(STORE)
}

/* A single row, where reading the weights is the bottleneck. Panels are contiguous, so they are one stream.
 */
enum { PREFETCH_BYTES = 32768, VECTORS = COLS / 4 };

#define EACH_GROUP(X) X(0) X(1) X(2) X(3)
#define ROW_GROUP(g)                                                                                         \
    for (int j = 0; j < VECTORS; j++)                                                                        \
        sum[(g) % 2][j] = vdotq_laneq_s32(sum[(g) % 2][j], vld1q_s8(b + 48 * (g) + 16 * j), left, g);

static void run_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    int32x4_t sum[2][VECTORS] = {{{0}}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += 16, b += 16 * COLS) {
        for (int line = 0; line < 16 * COLS; line += 64) __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
        const int8x16_t left = vld1q_s8(a + k);
        EACH_GROUP(ROW_GROUP)
    }
    for (int j = 0; j < VECTORS; j++) vst1q_s32(c + 4 * j, vaddq_s32(sum[0][j], sum[1][j]));
}

/* ---- int4 weights: 16 columns, in two halves of 8; see micro8_bias ---- */

enum { COLS4 = 16, ROWS4 = 4, SLICE = COLS4 * (INT4_GROUP / 2 + 1), COPIES = 4 };

/* Adds 8 columns of a slice, from its sums X and Y (see micro8_bias), times their steps. */
static inline void add_slice(int32x4_t total[2], int32x4_t x, int32x4_t y, int16x8_t steps) {
    const int16x8_t sums = vshrn_high_n_s32(vmovn_s32(y), vsubq_s32(x, y), 4);
    total[0] = vmlal_s16(total[0], vget_low_s16(sums), vget_low_s16(steps));
    total[1] = vmlal_high_s16(total[1], sums, steps);
}

/* Up to four rows of half a panel. */
static void tile_slices(int64_t depth, int rows, const int8_t *a, const int32_t *bias, const int8_t *b,
                        int half, int32_t *c, int64_t c_stride) {
    int32x4_t total[ROWS4][2] = {{{0}}};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += ROWS * COPIES) {
        int32x4_t x[ROWS4] = {vld1q_s32(bias), vld1q_s32(bias + 4), vld1q_s32(bias + 8),
                              vld1q_s32(bias + 12)};
        int32x4_t y[ROWS4] = {x[0], x[1], x[2], x[3]};
        for (int line = 64 * half; line < SLICE; line += 128)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP) {
            const int8x16_t both = vld1q_s8(b + 32 * g + 16 * half), low = vandq_s8(both, vdupq_n_s8(15));
            const int8x16_t left = vld1q_s8(a);
#define SLICE_ROW(i)                                                                                         \
    x[i] = vdotq_laneq_s32(x[i], both, left, i);                                                             \
    y[i] = vdotq_laneq_s32(y[i], low, left, i);
            SLICE_ROW(0) SLICE_ROW(1) SLICE_ROW(2) SLICE_ROW(3)
        }
        const int16x8_t steps = vmovl_s8(vld1_s8(b + COLS4 * INT4_GROUP / 2 + 8 * half));
        for (int i = 0; i < ROWS4; i++) add_slice(total[i], x[i], y[i], steps);
    }
    for (int i = 0; i < ROWS4 && i < rows; i++) {
        vst1q_s32(c + i * c_stride, total[i][0]);
        vst1q_s32(c + i * c_stride + 4, total[i][1]);
    }
}

static void run4_sdot(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    const int32_t *bias = micro8_bias(a, ROWS, depth);
    for (int row = 0; row < rows; row += ROWS4)
        for (int half = 0; half < 2; half++)
            tile_slices(depth, rows - row, a + row * GROUP, bias + row * COPIES, b, half,
                        c + row * c_stride + 8 * half, c_stride);
}

#define ROW_SLICE(g)                                                                                         \
    for (int half = 0; half < 2; half++) {                                                                   \
        const int8x16_t both = vld1q_s8(b + 32 * (g) + 16 * half), low = vandq_s8(both, vdupq_n_s8(15));     \
        x[half] = vdotq_laneq_s32(x[half], both, (g) < 4 ? a0 : a1, (g) % 4);                                \
        y[half] = vdotq_laneq_s32(y[half], low, (g) < 4 ? a0 : a1, (g) % 4);                                 \
    }

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    const int32_t *bias = micro8_bias(a, 1, depth);
    int32x4_t total[2][2] = {{{0}}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += COPIES) {
        int32x4_t x[2] = {vld1q_s32(bias), vld1q_s32(bias)}, y[2] = {x[0], x[1]};
        for (int line = 0; line < SLICE; line += 64) __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
        const int8x16_t a0 = vld1q_s8(a + k), a1 = vld1q_s8(a + k + 16);
        EACH_GROUP(ROW_SLICE)
        ROW_SLICE(4)
        ROW_SLICE(5) ROW_SLICE(6) ROW_SLICE(7) const int8x16_t steps = vld1q_s8(b + COLS4 * INT4_GROUP / 2);
        add_slice(total[0], x[0], y[0], vmovl_s8(vget_low_s8(steps)));
        add_slice(total[1], x[1], y[1], vmovl_high_s8(steps));
    }
    for (int i = 0; i < 4; i++) vst1q_s32(c + 4 * i, total[i / 2][i % 2]);
}

#define TILES .tile = {COLS, GROUP, 16, false}, .tile4 = {COLS4, GROUP, 16, true}, .bias_copies = COPIES

static const Micro8 one = {.name = "dotprod", .rows = 1, TILES, .run = run_row, .run4 = run4_row};

const Micro8 micro8_sdot = {
    .name = "dotprod", .rows = ROWS, TILES, .run = run_sdot, .run4 = run4_sdot, .one = &one};

#endif
