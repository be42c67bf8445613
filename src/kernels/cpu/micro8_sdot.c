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

const Micro8 micro8_sdot = {.name = "dotprod", .rows = ROWS, .tile = {COLS, GROUP}, .run = run_sdot};

#endif
