/* Packs panels in groups of two steps for x86-64; see micro16.h. Widths are 8 or multiples of 16, and
 * constants at the call sites. Included by files compiled for AVX-512. */
#ifndef WEFT_KERNELS_CPU_PACK16_PAIRS_H
#define WEFT_KERNELS_CPU_PACK16_PAIRS_H

#include <immintrin.h>

#include "kernels/cpu/pack16.h"

static inline __m128i pack16_load(const uint16_t *from) {
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}
static inline void pack16_store(uint16_t *to, __m128i v) {
    _mm_storeu_si128((__m128i *)(void *)to, v);
}

/* Transposes 16 x 16 numbers of 32 bits. */
static inline void pack16_transpose(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* Quarter q of r[4 g + c] has rows 4 g to 4 g + 3 of column 4 q + c. */
    for (int c = 0; c < 4; c++) {
        __m512i low01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        __m512i high01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        __m512i low23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        __m512i high23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        t[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* Packs four lines of four pairs of steps: a 4 x 4 transpose of 32-bit pairs. */
static inline void pairs_across_four(uint16_t *to, int width, const uint16_t *from, int64_t stride) {
    __m128i r0 = pack16_load(from), r1 = pack16_load(from + stride);
    __m128i r2 = pack16_load(from + 2 * stride), r3 = pack16_load(from + 3 * stride);
    __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
    __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
    pack16_store(to, _mm_unpacklo_epi64(low01, low23));
    pack16_store(to + 2 * width, _mm_unpackhi_epi64(low01, low23));
    pack16_store(to + 4 * width, _mm_unpacklo_epi64(high01, high23));
    pack16_store(to + 6 * width, _mm_unpackhi_epi64(high01, high23));
}

static inline void pairs_across(uint16_t *panel, int width, int unit, PackSource s, int64_t panel_stride) {
    int64_t steps = s.depth / 8 * 8, padded = round_up(s.depth, unit);
    for (int64_t first = 0; first < s.lines; first += width, panel += panel_stride) {
        const uint16_t *from = (const uint16_t *)s.from + first * s.stride;
        int64_t lines = s.lines - first, full = lines < width ? lines / 4 * 4 : width;
        for (int64_t k = 0; k < steps; k += 8)
            for (int64_t line = 0; line < full; line += 4)
                pairs_across_four(panel + k * width + 2 * line, width, from + line * s.stride + k, s.stride);
        pack16_edge(panel, width, 2, from, s.stride, 1, lines, s.depth, full, width, 0, steps);
        pack16_edge(panel, width, 2, from, s.stride, 1, lines, s.depth, 0, width, steps, padded);
    }
}

/* One pair of steps of 16 lines. */
static inline __m512i pack16_pair(const uint16_t *from, int64_t stride) {
    __m256i even = _mm256_loadu_si256((const __m256i *)(const void *)from);
    __m256i odd = _mm256_loadu_si256((const __m256i *)(const void *)(from + stride));
    __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even), high);
}
static inline void pairs_along_sixteen(uint16_t *to, const uint16_t *from, int64_t stride) {
    _mm512_storeu_si512(to, pack16_pair(from, stride));
}

/* One pair of steps of 8 lines. */
static inline void pairs_along_eight(uint16_t *to, const uint16_t *from, int64_t stride) {
    __m128i even = pack16_load(from), odd = pack16_load(from + stride);
    pack16_store(to, _mm_unpacklo_epi16(even, odd));
    pack16_store(to + 8, _mm_unpackhi_epi16(even, odd));
}

static inline void pairs_along_panel(uint16_t *to, int width, const uint16_t *from, int64_t stride) {
    if (width == 8)
        pairs_along_eight(to, from, stride);
    else
        for (int i = 0; i < width; i += 16) pairs_along_sixteen(to + 2 * i, from + i, stride);
}

/* One pair of steps over all panels at a time, so that each cache line of the source is read once. */
static inline void pairs_along(uint16_t *panels, int width, int unit, PackSource s, int64_t panel_stride) {
    int64_t padded = round_up(s.depth, unit);
    for (int64_t k = 0; k < padded; k += 2) {
        const uint16_t *from = (const uint16_t *)s.from + k * s.stride;
        uint16_t *to = panels + k * width;
        int64_t line = 0;
        int64_t full = k + 2 <= s.depth ? s.lines / width * width : 0;
        for (; line < full; line += width, to += panel_stride)
            pairs_along_panel(to, width, from + line, s.stride);
        for (; line < s.lines; line += width, to += panel_stride)
            pack16_edge(to, width, 2, from + line, 1, s.stride, s.lines - line, s.depth - k, 0, width, 0, 2);
    }
}

static inline void pairs_pack(uint16_t *panels, int width, int unit, PackSource s, int64_t panel_stride) {
    if (s.across)
        pairs_across(panels, width, unit, s, panel_stride);
    else
        pairs_along(panels, width, unit, s, panel_stride);
}

#endif
