/* VPMADDUBSW, for CPUs without VNNI: a tile of 4 rows x 16 columns, in registers of 8 columns each; see
 * micro8.h. The instruction multiplies unsigned by signed bytes and adds pairs in 16 bits. For int8, it gets
 * the weights' magnitudes and the inputs with the weights' signs; two products of at most 127 x 127 fit. For
 * int4, it gets the weights plus 8, and even the sums of a slice fit, so that VPMADDWD, which adds the pairs
 * in 32 bits, also multiplies them by the steps. For many rows, panels are unpacked first: int8 weights to 16
 * bits, which VPMADDWD multiplies without the instruction for the signs. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/micro8.h"

enum { ROWS = 4, COLS = 16, GROUP = 4, SLICE = COLS * (INT4_GROUP / 2 + 1) };

static inline __m256i load(const int8_t *from) {
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

/* Four bytes, repeated. */
static inline __m256i broadcast(const void *from) {
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

/* With few rows, the weights come from memory. int8 is read best a little ahead, int4 far ahead into the L2
 * cache. */
static inline void prefetch_near(const int8_t *from) {
    __builtin_prefetch(from + 2048, 0, 3);
}
static inline void prefetch_far(const int8_t *from, int bytes) {
    for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + 16384 + line, 0, 2);
}

static inline void store(int32_t *to, __m256i sums) {
    _mm256_storeu_si256((__m256i *)(void *)to, sums);
}

/* The first `rows` of `count` rows, a constant at the call sites. */
static inline __attribute__((always_inline)) void
store_rows(int32_t *c, int64_t c_stride, const __m256i sum[ROWS][2], int count, int rows) {
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        if (i >= rows) break;
        store(c + i * c_stride, sum[i][0]);
        store(c + i * c_stride + 8, sum[i][1]);
    }
}

/* `count` rows, a constant at the call sites, of a left panel of `panel` rows; stores the first `rows`. */
static inline __attribute__((always_inline)) void tile(int64_t depth, int count, int panel, int rows,
                                                       const int8_t *a, const int8_t *b, int32_t *c,
                                                       int64_t c_stride) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[ROWS][2] = {0};
    for (int64_t k = 0; k < depth; k += GROUP, a += panel * GROUP, b += COLS * GROUP) {
        const __m256i w[2] = {load(b), load(b + 32)};
        const __m256i magnitude[2] = {_mm256_abs_epi8(w[0]), _mm256_abs_epi8(w[1])};
        prefetch_near(b);
#pragma GCC unroll 4
        for (int i = 0; i < count; i++) {
            const __m256i left = broadcast(a + GROUP * i);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const __m256i pairs = _mm256_maddubs_epi16(magnitude[j], _mm256_sign_epi8(left, w[j]));
                sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
    store_rows(c, c_stride, sum, count, rows);
}

static void run_avx2(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    if (rows > 2)
        tile(depth, 4, ROWS, rows, a, b, c, c_stride);
    else
        tile(depth, 2, ROWS, rows, a, b, c, c_stride);
}

static void run_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c, int64_t c_stride) {
    tile(depth, 1, 1, rows, a, b, c, c_stride);
}

/* 16 bits: of each group of inputs, a pair has the even ones and the next pair the odd ones, which shifts
 * unpack without exchanging lanes. */
static void unpack8_avx2(int64_t depth, const int8_t *panel, int8_t *to) {
    __m256i *out = (__m256i *)(void *)to;
    for (int64_t k = 0; k < depth; k += GROUP, panel += COLS * GROUP, out += 4)
        for (int j = 0; j < 2; j++) {
            const __m256i w = load(panel + 32 * j);
            _mm256_storeu_si256(out + j, _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
            _mm256_storeu_si256(out + 2 + j, _mm256_srai_epi16(w, 8));
        }
}

static void widen_avx2(int64_t depth, const int8_t *q, int8_t *to) {
    for (int64_t k = 0; k < depth; k += GROUP, to += 2 * GROUP) {
        const int16_t wide[GROUP] = {q[k], q[k + 2], q[k + 1], q[k + 3]};
        memcpy(to, wide, sizeof wide);
    }
}

/* A step is a pair of inputs. */
static void run8_unpacked(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                          int64_t c_stride) {
    enum { PAIR = 4 }; /* bytes */
    __m256i sum[ROWS][2] = {0};
    for (int64_t k = 0; k < depth; k += 2, a += ROWS * PAIR, b += COLS * PAIR) {
        const __m256i w[2] = {load(b), load(b + 32)};
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            const __m256i left = broadcast(a + PAIR * i);
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(w[0], left));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(w[1], left));
        }
    }
    store_rows(c, c_stride, sum, ROWS, rows);
}

/* ---- int4 weights ---- */

/* In 16 bits, separately for the first and the second pair of inputs of each group. */
static void bias_avx2(int32_t *to, const int8_t *inputs) {
    int16_t pair[2] = {0};
    for (int i = 0; i < INT4_GROUP; i++) pair[i / 2 % 2] = (int16_t)(pair[i / 2 % 2] - 8 * inputs[i]);
    memcpy(to, pair, sizeof pair);
}

/* The steps of 8 columns each, twice. Unpacking works within halves, so the middle quarters are exchanged
 * first. */
static inline void load_steps(__m256i steps[2], const int8_t *from) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
    const __m256i ordered = _mm256_permute4x64_epi64(wide, 0xd8);
    steps[0] = _mm256_unpacklo_epi16(ordered, ordered);
    steps[1] = _mm256_unpackhi_epi16(ordered, ordered);
}

static inline __attribute__((always_inline)) void tile_slices(int64_t depth, int count, int panel, int rows,
                                                              const int8_t *a, const int32_t *bias,
                                                              const int8_t *b, int32_t *c, int64_t c_stride) {
    const __m256i fifteen = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
    __m256i total[ROWS][2] = {0};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += SLICE, bias += panel) {
        __m256i sum[ROWS][2];
#pragma GCC unroll 4
        for (int i = 0; i < count; i++) sum[i][0] = sum[i][1] = broadcast(bias + i);
        if (count == 1) prefetch_far(b, SLICE);
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += panel * GROUP) {
            const __m256i both = load(b + 32 * g), low = _mm256_and_si256(both, fifteen);
            const __m256i high =
                _mm256_xor_si256(_mm256_and_si256(_mm256_srli_epi16(both, 4), fifteen), eight);
#pragma GCC unroll 4
            for (int i = 0; i < count; i++) {
                const __m256i left = broadcast(a + GROUP * i);
                sum[i][0] = _mm256_add_epi16(sum[i][0], _mm256_maddubs_epi16(low, left));
                sum[i][1] = _mm256_add_epi16(sum[i][1], _mm256_maddubs_epi16(high, left));
            }
        }
        __m256i steps[2];
        load_steps(steps, b + COLS * INT4_GROUP / 2);
#pragma GCC unroll 4
        for (int i = 0; i < count; i++) {
            total[i][0] = _mm256_add_epi32(total[i][0], _mm256_madd_epi16(sum[i][0], steps[0]));
            total[i][1] = _mm256_add_epi32(total[i][1], _mm256_madd_epi16(sum[i][1], steps[1]));
        }
    }
    store_rows(c, c_stride, total, count, rows);
}

/* Two rows at a time: the registers do not suffice for the sums and totals of four. */
static void run4_avx2(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    const int32_t *bias = micro8_bias(a, ROWS, depth);
    for (int row = 0; row < rows; row += 2)
        tile_slices(depth, 2, ROWS, rows - row, a + row * GROUP, bias + row, b, c + row * c_stride, c_stride);
}

static void run4_row(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                     int64_t c_stride) {
    tile_slices(depth, 1, 1, rows, a, micro8_bias(a, 1, depth), b, c, c_stride);
}

/* Unpacked slices have the weights plus 8, a byte each, followed by the steps in 16 bits. */
enum { UNPACKED_SLICE = COLS * INT4_GROUP + 2 * 32 };
_Static_assert(UNPACKED_SLICE <= 2 * COLS * INT4_GROUP, "an unpacked slice fits the unpacked bytes");

static void unpack_avx2(int64_t depth, const int8_t *panel, int8_t *to) {
    const __m256i fifteen = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
    for (int64_t k = 0; k < depth; k += INT4_GROUP, panel += SLICE, to += UNPACKED_SLICE) {
        __m256i *out = (__m256i *)(void *)to, steps[2];
        for (int g = 0; g < INT4_GROUP / GROUP; g++) {
            const __m256i both = load(panel + 32 * g);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), fifteen);
            _mm256_storeu_si256(out++, _mm256_and_si256(both, fifteen));
            _mm256_storeu_si256(out++, _mm256_xor_si256(high, eight));
        }
        load_steps(steps, panel + COLS * INT4_GROUP / 2);
        _mm256_storeu_si256(out++, steps[0]);
        _mm256_storeu_si256(out, steps[1]);
    }
}

/* c [+]= the sums of a slice times its steps. */
static inline void add_slice(int32_t *c, __m256i sum, const int8_t *steps, bool add) {
    const __m256i product = _mm256_madd_epi16(sum, load(steps));
    store(c, add ? _mm256_add_epi32(product, load((const int8_t *)c)) : product);
}

/* Four rows at a time: the registers do not suffice for the totals, which are in c. */
static void run4_unpacked(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                          int64_t c_stride) {
    const int32_t *bias = micro8_bias(a, ROWS, depth);
    for (int64_t k = 0; k < depth; k += INT4_GROUP, bias += ROWS) {
        __m256i sum[ROWS][2];
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) sum[i][0] = sum[i][1] = broadcast(bias + i);
        for (int g = 0; g < INT4_GROUP / GROUP; g++, a += ROWS * GROUP, b += COLS * GROUP) {
            const __m256i w[2] = {load(b), load(b + 32)};
#pragma GCC unroll 4
            for (int i = 0; i < ROWS; i++) {
                const __m256i left = broadcast(a + GROUP * i);
                sum[i][0] = _mm256_add_epi16(sum[i][0], _mm256_maddubs_epi16(w[0], left));
                sum[i][1] = _mm256_add_epi16(sum[i][1], _mm256_maddubs_epi16(w[1], left));
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            if (i >= rows) break;
            add_slice(c + i * c_stride, sum[i][0], b, k > 0);
            add_slice(c + i * c_stride + 8, sum[i][1], b + 32, k > 0);
        }
        b += 2 * 32;
    }
}

#define TILES                                                                                                \
    .tile = {COLS, GROUP, 32, false}, .tile4 = {COLS, GROUP, 32, true}, .bias_copies = 1, .bias = bias_avx2

static const Micro8 one = {.name = "avx2", .rows = 1, TILES, .run = run_row, .run4 = run4_row};

const Micro8 micro8_avx2 = {.name = "avx2",
                            .rows = ROWS,
                            TILES,
                            .run = run_avx2,
                            .run4 = run4_avx2,
                            .unpack = unpack8_avx2,
                            .run_unpacked = run8_unpacked,
                            .widen = widen_avx2,
                            .unpack4 = unpack_avx2,
                            .run4_unpacked = run4_unpacked,
                            .unpacked_bytes = 2 * COLS,
                            .one = &one};

#endif
