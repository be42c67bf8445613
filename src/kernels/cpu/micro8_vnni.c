/* VPDPBUSD: a tile of 12 rows x 32 columns, in 24 registers of 16 columns each; see micro8.h. The instruction
 * takes its left numbers without a sign, so they come raised by 128; linear_int8.c takes off what that adds
 * to the sums. Few rows have a loop of their own, so that no time goes into rows that do not exist. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 12, COLS = 32, GROUP = 4 };

static inline __m512i four_of(const int8_t *a) {
    int32_t four;
    memcpy(&four, a, sizeof four);
    return _mm512_set1_epi32(four);
}

/* `count` rows are multiplied; it is a constant wherever this is called. */
static inline __attribute__((always_inline)) void tile(int64_t depth, int count, int rows, const int8_t *a,
                                                       const int8_t *b, int32_t *c, int64_t c_stride) {
    __m512i sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += GROUP, a += ROWS * GROUP, b += COLS * GROUP) {
        const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 12
        for (int i = 0; i < count; i++) {
            const __m512i left = four_of(a + GROUP * i);
            sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], left, b0);
            sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], left, b1);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) {
        if (i >= rows) break;
        _mm512_storeu_si512(c + i * c_stride, sum[i][0]);
        _mm512_storeu_si512(c + i * c_stride + 16, sum[i][1]);
    }
}

static void run_vnni(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    if (rows > 4)
        tile(depth, ROWS, rows, a, b, c, c_stride);
    else if (rows > 1)
        tile(depth, 4, rows, a, b, c, c_stride);
    else
        tile(depth, 1, rows, a, b, c, c_stride);
}

const Micro8 micro8_vnni = {
    .name = "avx512-vnni", .rows = ROWS, .tile = {COLS, GROUP}, .raised = true, .run = run_vnni};

#endif
