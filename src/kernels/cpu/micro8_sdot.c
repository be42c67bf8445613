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

/* ---- int4 weights; see micro8_mmla.c for how nibbles are multiplied ---- */

/* The steps of 12 columns. */
typedef struct Steps {
    int16x4_t of[VECTORS];
} Steps;

static inline Steps load_steps(const int8_t *from) {
    const int8x16_t bytes = vld1q_s8(from);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return (Steps){{vget_low_s16(low), vget_high_s16(low), vget_low_s16(high)}};
}

/* Two groups of inputs: six vectors, two per vector of bytes. */
typedef struct Unpacked {
    int8x16_t of[2 * VECTORS];
} Unpacked;

static inline __attribute__((always_inline)) Unpacked unpack(const int8_t *b) {
    const int8x16_t both0 = vld1q_s8(b), both1 = vld1q_s8(b + 16), both2 = vld1q_s8(b + 32);
    const int8x16_t sixteens = vdupq_n_s8(-16);
    return (Unpacked){{vshlq_n_s8(both0, 4), vandq_s8(both0, sixteens), vshlq_n_s8(both1, 4),
                       vandq_s8(both1, sixteens), vshlq_n_s8(both2, 4), vandq_s8(both2, sixteens)}};
}

/* Only 4 rows, because the sums of a slice and the totals over all slices together need the registers of 8
 * rows. */
enum { ROWS4 = 4 };

static void tile_slices(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                        int64_t c_stride) {
    int32x4_t total[ROWS4][VECTORS] = {{{0}}};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        int32x4_t sum[ROWS4][VECTORS] = {{{0}}};
        for (int g = 0; g < INT4_GROUP / GROUP; g += 2, a += 2 * ROWS * GROUP) {
            const Unpacked w = unpack(b + 24 * g);
            const int8x16_t a0 = vld1q_s8(a), a1 = vld1q_s8(a + ROWS * GROUP);
#define CUT_ROW(i, j)                                                                                        \
    sum[i][j] = vdotq_laneq_s32(sum[i][j], w.of[j], a0, i);                                                  \
    sum[i][j] = vdotq_laneq_s32(sum[i][j], w.of[VECTORS + (j)], a1, i);
#define CUT(j) CUT_ROW(0, j) CUT_ROW(1, j) CUT_ROW(2, j) CUT_ROW(3, j)
            CUT(0) CUT(1) CUT(2)
        }
        const Steps steps = load_steps(b + COLS * INT4_GROUP / 2);
        for (int i = 0; i < ROWS4; i++)
            for (int j = 0; j < VECTORS; j++)
                total[i][j] = vmlal_s16(total[i][j], vshrn_n_s32(sum[i][j], 4), steps.of[j]);
    }
    for (int i = 0; i < ROWS4 && i < rows; i++)
        for (int j = 0; j < VECTORS; j++) vst1q_s32(c + i * c_stride + 4 * j, total[i][j]);
}

static void run4_sdot(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    for (; rows > 0; rows -= ROWS4, a += ROWS4 * GROUP, c += ROWS4 * c_stride)
        tile_slices(depth, rows, a, b, c, c_stride);
}

#define ROW_SLICE(g)                                                                                         \
    {                                                                                                        \
        const Unpacked w = unpack(b + 48 * (g));                                                             \
        for (int j = 0; j < VECTORS; j++) {                                                                  \
            sum[j] = vdotq_laneq_s32(sum[j], w.of[j], (g) < 2 ? a0 : a1, 2 * (g) % 4);                       \
            sum[j] = vdotq_laneq_s32(sum[j], w.of[VECTORS + j], (g) < 2 ? a0 : a1, 2 * (g) % 4 + 1);         \
        }                                                                                                    \
    }

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    int32x4_t total[VECTORS] = {{0}};
    (void)rows, (void)c_stride;
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        int32x4_t sum[VECTORS] = {{0}};
        for (int line = 0; line < COLS * (INT4_GROUP / 2 + 1); line += 64)
            __builtin_prefetch(b + PREFETCH_BYTES + line, 0, 1);
        const int8x16_t a0 = vld1q_s8(a + k), a1 = vld1q_s8(a + k + 16);
        EACH_GROUP(ROW_SLICE)
        const Steps steps = load_steps(b + COLS * INT4_GROUP / 2);
        for (int j = 0; j < VECTORS; j++) total[j] = vmlal_s16(total[j], vshrn_n_s32(sum[j], 4), steps.of[j]);
    }
    for (int j = 0; j < VECTORS; j++) vst1q_s32(c + 4 * j, total[j]);
}

static const Micro8 one = {
    .name = "dotprod", .rows = 1, .tile = {COLS, GROUP, 16}, .run = run_row, .run4 = run4_row};

const Micro8 micro8_sdot = {.name = "dotprod",
                            .rows = ROWS,
                            .tile = {COLS, GROUP, 16},
                            .run = run_sdot,
                            .run4 = run4_sdot,
                            .one = &one};

#endif
