/* Dropout on part of a row. The mask is never stored; it is drawn again whenever it is needed. */
#ifndef WEFT_KERNELS_CPU_DROPOUT_H
#define WEFT_KERNELS_CPU_DROPOUT_H

#include "kernels/backend.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/philox.h"

enum { DROPOUT_CHUNK = 256, DROPOUT_BUFFER = PHILOX_BUFFER(DROPOUT_CHUNK) };

/* v times the factor where the draw is at least the threshold, else 0. */
static inline VecF dropout_vec(VecF v, VecU draw, uint32_t threshold, float factor) {
#if defined(__AVX512F__)
    __mmask16 kept = _mm512_cmpge_epu32_mask((__m512i)draw, _mm512_set1_epi32((int)threshold));
    return (VecF)_mm512_maskz_mul_ps(kept, (__m512)v, _mm512_set1_ps(factor));
#else
    return (VecF)((VecI)(draw >= threshold) & (VecI)(v * factor));
#endif
}

static inline VecF dropout_some(VecF v, const Draw *draw, uint32_t threshold, float factor) {
    uint16_t some[VEC];
    memcpy(some, draw, sizeof some);
    return dropout_vec(v, vec_load_u16(some), threshold, factor);
}

/* Applies dropout to the elements of a pair. Those of bf16 at even places have the lower halves of words of
 * draws, and those at odd places the upper halves, which the lower ones cannot decide against a threshold of
 * upper halves. */
static ALWAYS_INLINE VecPair dropout_pair(DType dtype, VecPair v, const Draw *draw, uint32_t threshold,
                                          float factor) {
#if defined(__x86_64__)
    if (dtype == DT_BF16) {
        VecU words;
        memcpy(&words, draw, sizeof words);
        return (VecPair){dropout_vec(v.a, words << 16, threshold << 16, factor),
                         dropout_vec(v.b, words, threshold << 16, factor)};
    }
#endif
    (void)dtype;
    return (VecPair){dropout_some(v.a, draw, threshold, factor),
                     dropout_some(v.b, draw + VEC, threshold, factor)};
}

/* out = res + dropout(y) over n <= DROPOUT_CHUNK elements. res may be NULL; out may alias res or y. Reads up
 * to one vector of draws past the end. Prefetches what follows in two chunks: random numbers leave the memory
 * idle. */
static ALWAYS_INLINE void dropout_chunk(DType dtype, void *out, const void *res, const void *y, int64_t n,
                                        const Draw *draw, uint32_t threshold, float factor) {
    enum { AHEAD = 2 * DROPOUT_CHUNK };
    int64_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        prefetch_run(y, dtype, i + AHEAD, PAIR, false);
        if (res) prefetch_run(res, dtype, i + AHEAD, PAIR, false);
        prefetch_run(out, dtype, i + AHEAD, PAIR, true);
        VecPair kept = dropout_pair(dtype, pair_get(y, dtype, i), draw + i, threshold, factor);
        if (res) {
            VecPair from = pair_get(res, dtype, i);
            kept.a += from.a, kept.b += from.b;
        }
        pair_put(out, dtype, i, kept);
    }
    for (; i < n; i += VEC) {
        int64_t some = n - i < VEC ? n - i : VEC;
        VecF kept = dropout_some(vec_get_some(y, dtype, i, some), draw + i, threshold, factor);
        if (res) kept += vec_get_some(res, dtype, i, some);
        vec_put_some(out, dtype, i, kept, some);
    }
}

/* The same for any n, with draw indices from `first`. If p is 0, this is a plain sum or copy. */
static ALWAYS_INLINE void dropout_add_run(DType dtype, void *out, const void *res, const void *y, int64_t n,
                                          const Dropout *dropout, uint64_t first) {
    if (dropout->p == 0 && res) vec_map2(dtype, out, res, dtype, y, n, vec_plus);
    if (dropout->p == 0 && !res && out != y) vec_map(dtype, out, y, n, vec_same);
    if (dropout->p == 0) return;
    uint32_t buffer[DROPOUT_BUFFER];
    uint32_t threshold = dropout_threshold(dropout->p);
    float factor = dropout_scale(dropout->p);
    size_t size = dtype == DT_F32 ? 4 : 2;
    for (int64_t done = 0; done < n; done += DROPOUT_CHUNK) {
        int64_t count = n - done < DROPOUT_CHUNK ? n - done : DROPOUT_CHUNK;
        size_t at = (size_t)done * size;
        const Draw *draw = philox_run(dropout->key, first + (uint64_t)done, count, buffer);
        dropout_chunk(dtype, (char *)out + at, res ? (const char *)res + at : NULL, (const char *)y + at,
                      count, draw, threshold, factor);
    }
}

#endif
