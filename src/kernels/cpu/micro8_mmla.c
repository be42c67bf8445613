/* SMMLA: a tile of 8 rows x 12 columns as 4 x 6 sums of 2 x 2, in 24 registers; see micro8.h. Where fewer
 * rows exist, only their pairs are multiplied: then reading the weights is all the time it takes. Compiled
 * without the scheduling that comes before register allocation, which would spill sums. */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 8, COLS = 12, GROUP = 8, PAIRS = COLS / 2 };

/* Two sums side by side are four columns of two rows. */
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

static void tile_whole(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
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

/* Of one or two pairs of rows; `pairs` is a constant wherever this is called. */
static inline __attribute__((always_inline)) void
tile_few(int64_t depth, int pairs, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    int32x4_t sum[2][PAIRS] = {{{0}}};
    for (int64_t k = 0; k < depth; k += GROUP, a += ROWS * GROUP, b += COLS * GROUP)
#pragma GCC unroll 6
        for (int j = 0; j < PAIRS; j++) {
            const int8x16_t right = vld1q_s8(b + 16 * j);
            for (int i = 0; i < pairs; i++) sum[i][j] = vmmlaq_s32(sum[i][j], vld1q_s8(a + 16 * i), right);
        }
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 3
        for (int j = 0; j < PAIRS; j += 2)
            store_pair(c + 2 * i * c_stride + 2 * j, c_stride, rows - 2 * i, sum[i][j], sum[i][j + 1]);
}

static void run_mmla(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    if (rows > 4)
        tile_whole(depth, rows, a, b, c, c_stride);
    else if (rows > 2)
        tile_few(depth, 2, rows, a, b, c, c_stride);
    else
        tile_few(depth, 1, rows, a, b, c, c_stride);
}

const Micro8 micro8_mmla = {.name = "i8mm", .rows = ROWS, .tile = {COLS, GROUP}, .run = run_mmla};

#endif
