/* VPDPBUSD: a tile of 12 rows x 32 columns, in 24 registers of 16 columns each; see micro8.h. The
 * instruction multiplies unsigned by signed bytes. With int8 weights, the left values are unsigned, with an
 * offset of 128 whose contribution linear_int8.c subtracts from the sums; with int4 weights, the weights are,
 * with an offset of 8. Small row counts have specialized loops, so that no time is spent on missing rows. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 12, COLS = 32, GROUP = 4, SLICE = COLS * (INT4_GROUP / 2 + 1), PREFETCH_BYTES = 2048 };

/* With few rows, the weights come from memory. With many, this costs little. */
static inline void prefetch(const int8_t *from, int bytes) {
    for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + PREFETCH_BYTES + line, 0, 3);
}

static inline __m512i broadcast_four(const int8_t *a) {
    int32_t four;
    memcpy(&four, a, sizeof four);
    return _mm512_set1_epi32(four);
}

/* The first `rows` of `count` rows, a constant at the call sites. */
static inline __attribute__((always_inline)) void store_rows(int32_t *c, int64_t c_stride,
                                                             const __m512i (*sum)[2], int count, int rows) {
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) {
        if (i >= rows) break;
        _mm512_storeu_si512(c + i * c_stride, sum[i][0]);
        _mm512_storeu_si512(c + i * c_stride + 16, sum[i][1]);
    }
}

/* Multiplies `count` rows of a left panel of `panel` rows, constants at the call sites, and stores the first
 * `rows` of them. */
static inline __attribute__((always_inline)) void tile(int64_t depth, int count, int panel, int rows,
                                                       const int8_t *a, const int8_t *b, int32_t *c,
                                                       int64_t c_stride) {
    __m512i sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += GROUP, a += panel * GROUP, b += COLS * GROUP) {
        prefetch(b, COLS * GROUP);
        const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 12
        for (int i = 0; i < count; i++) {
            const __m512i left = broadcast_four(a + GROUP * i);
            sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], left, b0);
            sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], left, b1);
        }
    }
    store_rows(c, c_stride, sum, count, rows);
}

static void run_vnni(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    if (rows > 4)
        tile(depth, ROWS, ROWS, rows, a, b, c, c_stride);
    else
        tile(depth, 4, ROWS, rows, a, b, c, c_stride);
}

static void run_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    tile(depth, 1, 1, rows, a, b, c, c_stride);
}

/* ---- int4 weights ---- */

/* 16 steps, each in the low half of 32 bits; the high half is 0. */
static inline __m512i load_steps(const int8_t *from) {
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
    return _mm512_and_si512(wide, _mm512_set1_epi32(0xffff));
}

/* The sums of a slice start at the bias, which cancels the offset of the weights. They fit 16 bits, so that
 * VPDPWSSD multiplies them by the steps and adds them to the totals. */
static inline __attribute__((always_inline)) void tile_slices(int64_t depth, int count, int panel, int rows,
                                                              const int8_t *a, const int32_t *bias,
                                                              const int8_t *b, int32_t *c, int64_t c_stride) {
    enum { ROWS4_MAX = 6 };
    const __m512i fifteen = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    enum { AND_XOR = 0x6a }; /* VPTERNLOG: (a & b) ^ c */
    __m512i total[ROWS4_MAX][2];
#pragma GCC unroll 6
    for (int i = 0; i < count; i++) total[i][0] = total[i][1] = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += panel) {
        __m512i sum[ROWS4_MAX][2];
#pragma GCC unroll 6
        for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = _mm512_set1_epi32(bias[i]);
        prefetch(b, SLICE);
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += panel * GROUP) {
            const __m512i both = _mm512_loadu_si512(b + 64 * g);
            const __m512i low = _mm512_ternarylogic_epi32(both, fifteen, eight, AND_XOR);
            const __m512i high =
                _mm512_ternarylogic_epi32(_mm512_srli_epi16(both, 4), fifteen, eight, AND_XOR);
#pragma GCC unroll 6
            for (int i = 0; i < count; i++) {
                const __m512i left = broadcast_four(a + GROUP * i);
                sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], low, left);
                sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], high, left);
            }
        }
        const __m512i step0 = load_steps(b + COLS * INT4_GROUP / 2);
        const __m512i step1 = load_steps(b + COLS * INT4_GROUP / 2 + 16);
#pragma GCC unroll 6
        for (int i = 0; i < count; i++) {
            total[i][0] = _mm512_dpwssd_epi32(total[i][0], sum[i][0], step0);
            total[i][1] = _mm512_dpwssd_epi32(total[i][1], sum[i][1], step1);
        }
    }
    store_rows(c, c_stride, total, count, rows);
}

static void run4_vnni(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    enum { ROWS4 = 6 };
    const int32_t *bias = micro8_bias(a, ROWS, depth);
    for (; rows > 2; rows -= ROWS4, a += ROWS4 * GROUP, bias += ROWS4, c += ROWS4 * c_stride)
        tile_slices(depth, ROWS4, ROWS, rows, a, bias, b, c, c_stride);
    if (rows > 0) tile_slices(depth, 2, ROWS, rows, a, bias, b, c, c_stride);
}

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    tile_slices(depth, 1, 1, rows, a, micro8_bias(a, 1, depth), b, c, c_stride);
}

#define COMMON                                                                                               \
    .name = "avx512-vnni", .tile = {COLS, GROUP, 64, false}, .tile4 = {COLS, GROUP, 64, false},              \
    .bias_copies = 1, .offset_left = true

static const Micro8 one = {.rows = 1, COMMON, .run = run_row, .run4 = run4_row};

const Micro8 micro8_vnni = {.rows = ROWS, COMMON, .run = run_vnni, .run4 = run4_vnni, .one = &one};

#endif
