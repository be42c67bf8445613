/* VPDPBUSD: a tile of 12 rows x 32 columns, in 24 registers of 16 columns each; see micro8.h. The
 * instruction treats its left operand as unsigned, so left values have an offset of 128, whose contribution
 * linear_int8.c subtracts from the sums. Small row counts have specialized loops, so that no time is spent
 * on missing rows. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 12, COLS = 32, GROUP = 4 };

static inline __m512i broadcast_four(const int8_t *a) {
    int32_t four;
    memcpy(&four, a, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Multiplies `count` rows, a constant at the call sites, and stores the first `rows` of them. */
static inline __attribute__((always_inline)) void tile(int64_t depth, int count, int rows, const int8_t *a,
                                                       const int8_t *b, int32_t *c, int64_t c_stride) {
    __m512i sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += GROUP, a += ROWS * GROUP, b += COLS * GROUP) {
        const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 12
        for (int i = 0; i < count; i++) {
            const __m512i left = broadcast_four(a + GROUP * i);
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

/* int4 weights, multiplied by 16: nibbles stay in the high half of a byte, and the sums of a slice, which
 * are multiples of 16, are shifted back before steps multiply them. Totals may wrap around; after the
 * offset is subtracted they fit again. */
static inline __attribute__((always_inline)) void tile_slices(int64_t depth, int count, int rows,
                                                              const int8_t *a, const int8_t *b, int32_t *c,
                                                              int64_t c_stride) {
    enum { ROWS4_MAX = 6 };
    const __m512i sixteens = _mm512_set1_epi8(-16);
    __m512i total[ROWS4_MAX][2];
#pragma GCC unroll 6
    for (int i = 0; i < count; i++) total[i][0] = total[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += COLS * (INT4_GROUP / 2 + 1)) {
        __m512i sum[ROWS4_MAX][2];
#pragma GCC unroll 6
        for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP) {
            const __m512i both = _mm512_loadu_si512(b + 64 * g);
            const __m512i low = _mm512_and_si512(_mm512_slli_epi16(both, 4), sixteens);
            const __m512i high = _mm512_and_si512(both, sixteens);
#pragma GCC unroll 6
            for (int i = 0; i < count; i++) {
                const __m512i left = broadcast_four(a + GROUP * i);
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
    enum { ROWS4 = 6 };
    for (; rows > 2; rows -= ROWS4, a += ROWS4 * GROUP, c += ROWS4 * c_stride)
        tile_slices(depth, ROWS4, rows, a, b, c, c_stride);
    if (rows > 1)
        tile_slices(depth, 2, rows, a, b, c, c_stride);
    else if (rows > 0)
        tile_slices(depth, 1, rows, a, b, c, c_stride);
}

const Micro8 micro8_vnni = {.name = "avx512-vnni",
                            .rows = ROWS,
                            .tile = {COLS, GROUP, 64, false},
                            .tile4 = {COLS, GROUP, 64, false},
                            .offset_left = true,
                            .run = run_vnni,
                            .run4 = run4_vnni};

#endif
