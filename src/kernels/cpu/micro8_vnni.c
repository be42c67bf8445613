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

/* Weights of 4 bits, taken as 16 times their value: a cut's sums are multiples of 16, brought back before
 * steps multiply them. Totals may wrap around; with what raising has added taken off, they fit again. */
static inline __attribute__((always_inline)) void tile_cuts(int64_t depth, int count, int rows,
                                                            const int8_t *a, const int8_t *b, int32_t *c,
                                                            int64_t c_stride) {
    enum { MOST = 6 };
    const __m512i sixteens = _mm512_set1_epi8(-16);
    __m512i total[MOST][2];
#pragma GCC unroll 6
    for (int i = 0; i < count; i++) total[i][0] = total[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        __m512i sum[MOST][2];
#pragma GCC unroll 6
        for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP) {
            const __m512i both = _mm512_loadu_si512(b + 64 * g);
            const __m512i low = _mm512_and_si512(_mm512_slli_epi16(both, 4), sixteens);
            const __m512i high = _mm512_and_si512(both, sixteens);
#pragma GCC unroll 6
            for (int i = 0; i < count; i++) {
                const __m512i left = four_of(a + GROUP * i);
                sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], left, low);
                sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], left, high);
            }
        }
        const __m128i *steps = (const __m128i *)(const void *)(b + COLS * INT4_GROUP / 2);
        const __m512i step0 = _mm512_cvtepi8_epi32(_mm_loadu_si128(steps));
        const __m512i step1 = _mm512_cvtepi8_epi32(_mm_loadu_si128(steps + 1));
#pragma GCC unroll 6
        for (int i = 0; i < count; i++) {
            const __m512i left = _mm512_srai_epi32(sum[i][0], 4), right = _mm512_srai_epi32(sum[i][1], 4);
            total[i][0] = _mm512_add_epi32(total[i][0], _mm512_mullo_epi32(left, step0));
            total[i][1] = _mm512_add_epi32(total[i][1], _mm512_mullo_epi32(right, step1));
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < count; i++) {
        if (i >= rows) break;
        _mm512_storeu_si512(c + i * c_stride, total[i][0]);
        _mm512_storeu_si512(c + i * c_stride + 16, total[i][1]);
    }
}

static void run4_vnni(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    enum { SIX = 6 };
    for (; rows > 2; rows -= SIX, a += SIX * GROUP, c += SIX * c_stride)
        tile_cuts(depth, SIX, rows, a, b, c, c_stride);
    if (rows > 1)
        tile_cuts(depth, 2, rows, a, b, c, c_stride);
    else if (rows > 0)
        tile_cuts(depth, 1, rows, a, b, c, c_stride);
}

const Micro8 micro8_vnni = {.name = "avx512-vnni",
                            .rows = ROWS,
                            .tile = {COLS, GROUP, 64},
                            .raised = true,
                            .run = run_vnni,
                            .run4 = run4_vnni};

#endif
