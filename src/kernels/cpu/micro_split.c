/* fp32 GEMM on AMX: each operand is the sum of three bf16 numbers of 8 bits, which is exact, and a product is
 * the sum of the six products that matter for fp32. The three that are left out are 2^-25 of it or less. An
 * AMX unit multiplies bf16 16 times as fast as the vector units multiply fp32, so six products still take
 * less than half of the time. A tile adds 32 steps before it rounds to the accumulator, so errors are no
 * larger than with FMA (test_gemm32.c).
 *
 * Panels take 1.5 times as much memory as in fp32, so this is slower than FMA where many cores share the
 * bandwidth of the last-level cache. WEFT_CPU_FP32=amx selects it.
 *
 * Infinite elements give NaN, because their lower parts are NaN. The lower parts of numbers below 2^-110
 * vanish, because AMX treats subnormal numbers as 0.
 *
 * Per 32 steps, a panel has its three parts one after the other, highest first, each like a panel of
 * micro_amx.c. Compiled for AMX and AVX-512 BF16. */
#if defined(__x86_64__)

#include <string.h>

#include "kernels/cpu/pack16_pairs.h"
#include "kernels/cpu/tiles.h"

enum { SIDE = 32, HALF = 16, PARTS = 3, PART = SIDE * SIDE };

#define LOAD_LEFT(part)                                                                                      \
    _tile_loadd(4, a + (part)*PART, 2 * SIDE);                                                               \
    _tile_loadd(5, a + (part)*PART + HALF * SIDE, 2 * SIDE);
#define LOAD_RIGHT(part)                                                                                     \
    _tile_loadd(6, b + (part)*PART, 4 * SIDE);                                                               \
    _tile_loadd(7, b + (part)*PART + SIDE, 4 * SIDE);
#define MULTIPLY                                                                                             \
    _tile_dpbf16ps(0, 4, 6);                                                                                 \
    _tile_dpbf16ps(1, 4, 7);                                                                                 \
    _tile_dpbf16ps(2, 5, 6);                                                                                 \
    _tile_dpbf16ps(3, 5, 7);

/* From one product to the next only one operand is loaded; the largest product comes last. The steps are
 * summed before they are added to c, because short sums have smaller errors. */
static void tile_split(int64_t depth, const void *left_panel, const void *right_panel, float *c,
                       int64_t c_stride, bool add) {
    const uint16_t *a = left_panel, *b = right_panel;
    float sums[SIDE * SIDE];
    tiles_zero();
    for (int64_t k = 0; k < depth; k += SIDE) {
        LOAD_LEFT(0) LOAD_RIGHT(2) MULTIPLY;
        LOAD_RIGHT(1) MULTIPLY;
        LOAD_LEFT(1) MULTIPLY;
        LOAD_RIGHT(0) MULTIPLY;
        LOAD_LEFT(2) MULTIPLY;
        LOAD_LEFT(0) MULTIPLY;
        a += PARTS * PART;
        b += PARTS * PART;
    }
    tiles_store(add ? sums : c, add ? SIDE : c_stride);
    for (int i = 0; add && i < SIDE; i++)
        for (int j = 0; j < SIDE; j += HALF) {
            float *to = c + i * c_stride + j;
            _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(sums + i * SIDE + j)));
        }
}

/* The parts of 32 numbers, in order. */
typedef struct Split {
    __m512i part[PARTS];
} Split;

static inline Split split_of(__m512 low, __m512 high) {
    Split split;
    for (int i = 0; i < PARTS; i++) {
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        split.part[i] = both;
        __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
        __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
        low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(first, 16)));
        high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(second, 16)));
    }
    return split;
}

/* The parts of 16 pairs of numbers, each pair side by side. */
static inline Split split_pairs(__m512 even, __m512 odd) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    Split split;
    for (int i = 0; i < PARTS; i++) {
        __m512i pairs = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
        split.part[i] = pairs;
        even = _mm512_sub_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
        odd = _mm512_sub_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)));
    }
    return split;
}

/* Each of the following packs 32 lines of 32 steps. In across, the steps of a line are contiguous, in along
 * the lines of a step. */
typedef void PackBlock(uint16_t *to, const float *from, int64_t stride);

static void left_across(uint16_t *to, const float *from, int64_t stride) {
    for (int line = 0; line < SIDE; line++, from += stride) {
        Split split = split_of(_mm512_loadu_ps(from), _mm512_loadu_ps(from + HALF));
        for (int i = 0; i < PARTS; i++) _mm512_storeu_si512(to + i * PART + line * SIDE, split.part[i]);
    }
}

static void left_along(uint16_t *to, const float *from, int64_t stride) {
    for (int half = 0; half < SIDE; half += HALF) {
        __m512i first[HALF], second[HALF];
        for (int i = 0; i < HALF; i++) {
            first[i] = _mm512_loadu_si512(from + i * stride + half);
            second[i] = _mm512_loadu_si512(from + (HALF + i) * stride + half);
        }
        pack16_transpose(first);
        pack16_transpose(second);
        for (int line = 0; line < HALF; line++) {
            Split split = split_of(_mm512_castsi512_ps(first[line]), _mm512_castsi512_ps(second[line]));
            for (int i = 0; i < PARTS; i++)
                _mm512_storeu_si512(to + i * PART + (half + line) * SIDE, split.part[i]);
        }
    }
}

static void right_across(uint16_t *to, const float *from, int64_t stride) {
    for (int half = 0; half < SIDE; half += HALF) {
        __m512i pairs[PARTS][HALF];
        for (int line = 0; line < HALF; line++) {
            const float *at = from + (half + line) * stride;
            Split split = split_of(_mm512_loadu_ps(at), _mm512_loadu_ps(at + HALF));
            for (int i = 0; i < PARTS; i++) pairs[i][line] = split.part[i];
        }
        for (int i = 0; i < PARTS; i++) {
            pack16_transpose(pairs[i]);
            for (int pair = 0; pair < HALF; pair++)
                _mm512_storeu_si512(to + i * PART + pair * 2 * SIDE + 2 * half, pairs[i][pair]);
        }
    }
}

static void right_along(uint16_t *to, const float *from, int64_t stride) {
    for (int step = 0; step < SIDE; step += 2, from += 2 * stride)
        for (int half = 0; half < SIDE; half += HALF) {
            Split split = split_pairs(_mm512_loadu_ps(from + half), _mm512_loadu_ps(from + stride + half));
            for (int i = 0; i < PARTS; i++)
                _mm512_storeu_si512(to + i * PART + step * SIDE + 2 * half, split.part[i]);
        }
}

/* Blocks at the edges are copied and padded with zeros. Blocks go in the order of the source. */
static void pack_split(void *panels, bool left, PackSource s, int64_t panel_stride) {
    PackBlock *const blocks[2][2] = {{right_along, right_across}, {left_along, left_across}};
    int64_t deep = (s.depth + SIDE - 1) / SIDE, wide = (s.lines + SIDE - 1) / SIDE;
    for (int64_t at = 0; at < deep * wide; at++) {
        int64_t k = (s.across ? at % deep : at / wide) * SIDE,
                line = (s.across ? at / deep : at % wide) * SIDE;
        int64_t lines = s.lines - line, steps = s.depth - k, stride = s.stride;
        const float *from = (const float *)s.from + (s.across ? line * stride + k : k * stride + line);
        float edge[SIDE * SIDE];
        if (lines < SIDE || steps < SIDE) {
            int64_t rows = s.across ? lines : steps, cols = s.across ? steps : lines;
            memset(edge, 0, sizeof edge);
            for (int64_t row = 0; row < rows && row < SIDE; row++)
                memcpy(edge + row * SIDE, from + row * stride,
                       (size_t)(cols < SIDE ? cols : SIDE) * sizeof *edge);
            from = edge;
            stride = SIDE;
        }
        blocks[left][s.across]((uint16_t *)panels + (line / SIDE * panel_stride + k * SIDE) * PARTS, from,
                               stride);
    }
}

const Micro micro32_split = {
    .name = "amx",
    .dtype = DT_F32,
    .size = PARTS * sizeof(uint16_t),
    .rows = SIDE,
    .cols = SIDE,
    .unit = SIDE,
    .depth = 256,
    .begin = tiles_begin,
    .end = tiles_end,
    .tile = tile_split,
    .pack = pack_split,
};

#endif
