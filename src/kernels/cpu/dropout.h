/* Dropout on part of a row. The mask is never stored; it is drawn again whenever it is needed. */
#ifndef WEFT_KERNELS_CPU_DROPOUT_H
#define WEFT_KERNELS_CPU_DROPOUT_H

#include "kernels/backend.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/philox.h"

enum { DROPOUT_CHUNK = 256, DROPOUT_BUFFER = PHILOX_BUFFER(DROPOUT_CHUNK) };

/* Applies dropout to VEC elements. */
static inline VecF dropout_vec(VecF y, const Draw *draw, uint32_t threshold, float factor) {
    uint16_t some[VEC];
    memcpy(some, draw, sizeof some);
    VecI kept = (VecI)(vec_load_u16(some) >= threshold);
    return (VecF)(kept & (VecI)(y * factor));
}

/* out = res + dropout(y) over n <= DROPOUT_CHUNK elements. res may be NULL; out may alias res or y. Reads up
 * to one vector of draws past the end. */
static ALWAYS_INLINE void dropout_chunk(DType dtype, void *out, const void *res, const void *y, int64_t n,
                                        const Draw *draw, uint32_t threshold, float factor) {
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        VecF kept = dropout_vec(vec_get(y, dtype, i), draw + i, threshold, factor);
        vec_put(out, dtype, i, res ? vec_get(res, dtype, i) + kept : kept);
    }
    if (i == n) return;
    VecF kept = dropout_vec(vec_get_some(y, dtype, i, n - i), draw + i, threshold, factor);
    if (res) kept += vec_get_some(res, dtype, i, n - i);
    vec_put_some(out, dtype, i, kept, n - i);
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
