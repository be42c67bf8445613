/* Two vectors of consecutive elements at a time, in the order that is cheapest to load and store. On x86,
 * bf16 elements at even places are in one vector and those at odd places in the other: both are in the upper
 * halves of lanes after one instruction each, and are rounded together, as 16-bit lanes. That takes about
 * half of the instructions of loading and storing vectors in order. All other types are in order.
 *
 * It suits loops in which each element meets elements at the same place of other runs of the same type, and
 * sums. */
#ifndef WEFT_KERNELS_CPU_PAIRS_H
#define WEFT_KERNELS_CPU_PAIRS_H

#include "kernels/cpu/half.h"

/* Elements of a pair. */
enum { PAIR = 2 * VEC };

typedef struct VecPair {
    VecF a, b;
} VecPair;

/* Elements at even places, then those at odd places. */
static inline VecPair pair_load_bf16(const uint16_t *from) {
    VecU both;
    memcpy(&both, from, sizeof both);
    return (VecPair){(VecF)(both << 16), (VecF)(both & 0xffff0000)};
}

#if defined(__x86_64__)

/* Lanes of 16 bits: the low halves of `even` and the high halves of `odd`. */
static inline VecU pair_halves(VecU even, VecU odd) {
#if defined(__AVX512BW__)
    return (VecU)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)even, (__m512i)odd);
#elif defined(__AVX2__)
    return (VecU)_mm256_blend_epi16((__m256i)even, (__m256i)odd, 0xaa);
#else
    return (even & 0xffff) | (odd & 0xffff0000);
#endif
}

/* Makes every NaN one whose upper half stays that of a NaN if it is rounded up. */
static inline VecU pair_nan(VecF v) {
#if defined(__AVX512F__)
    /* 3 for quiet and signaling NaN: the default NaN; 1 for all others: as they are. */
    const __m512i table = _mm512_set1_epi32(0x11111133);
    return (VecU)_mm512_fixupimm_ps((__m512)v, (__m512)v, table, 0);
#else
    VecU nan = (VecU)(v != v);
    return ((VecU)v | nan) & ~(nan >> 10);
#endif
}

/* (x + y + 1) / 2 of unsigned 16-bit lanes, and x plus the highest bit of y. */
static inline VecU pair_mean(VecU x, VecU y) {
    return (VecU)MM(avg_epu16)((MmI)x, (MmI)y);
}
static inline VecU pair_carry(VecU x, VecU y) {
    typedef uint16_t Halves __attribute__((vector_size(4 * VEC)));
    return (VecU)((Halves)x + ((Halves)y >> 15));
}

/* Rounds up where the lower half, plus 0x7fff, plus 1 if the upper half is odd, carries: half of that sum has
 * the carry as its highest bit. */
static inline void pair_store_bf16(uint16_t *to, VecPair v) {
    VecU even = pair_nan(v.a), odd = pair_nan(v.b);
    VecU high = pair_halves(even >> 16, odd), low = pair_halves(even, odd << 16);
    VecU rounded = pair_carry(high, pair_mean(low, (high & 0x00010001) | 0x7ffe7ffe));
    memcpy(to, &rounded, sizeof rounded);
}

#endif

/* Elements at .. at + PAIR - 1. */
static ALWAYS_INLINE VecPair pair_get(const void *from, DType dtype, int64_t at) {
#if defined(__x86_64__)
    if (dtype == DT_BF16) return pair_load_bf16((const uint16_t *)from + at);
#endif
    return (VecPair){vec_get(from, dtype, at), vec_get(from, dtype, at + VEC)};
}
static ALWAYS_INLINE void pair_put(void *to, DType dtype, int64_t at, VecPair v) {
#if defined(__x86_64__)
    if (dtype == DT_BF16) {
        pair_store_bf16((uint16_t *)to + at, v);
        return;
    }
#endif
    vec_put(to, dtype, at, v.a), vec_put(to, dtype, at + VEC, v.b);
}

static inline VecPair pair_load(const float *from) {
    return (VecPair){vec_load(from), vec_load(from + VEC)};
}
static inline void pair_store(float *to, VecPair v) {
    vec_store(to, v.a), vec_store(to + VEC, v.b);
}

/* Loops that sum take two pairs per iteration, because independent sums hide latency. */
enum { PAIRS = 2, PAIRS_STEP = PAIRS * PAIR };

/* The elements of a run that such a loop takes. */
static inline int64_t paired(int64_t n) {
    return n / PAIRS_STEP * PAIRS_STEP;
}
static inline float pairs_sum(const VecPair sums[PAIRS]) {
    return vec_sum_of((sums[0].a + sums[0].b) + (sums[1].a + sums[1].b));
}

/* Buffers of floats that meet pairs have the elements of each pair as its two vectors, and those past
 * paired(n) in order. This is the place of element i. */
static inline int64_t pairs_place(DType dtype, int64_t i, int64_t n) {
#if defined(__x86_64__)
    if (dtype == DT_BF16 && i < paired(n)) return i / PAIR * PAIR + i % 2 * VEC + i % PAIR / 2;
#endif
    (void)dtype, (void)n;
    return i;
}

/* n elements in the order of pairs_place: fp32 in place, other types in `buffer`. */
static inline const float *pairs_in(const void *from, DType dtype, int64_t n, float *buffer) {
    if (!from || dtype == DT_F32) return from;
    half_load(buffer, from, dtype, 0, n);
    if (dtype == DT_BF16)
        for (int64_t i = 0; i < paired(n); i += PAIR) pair_store(buffer + i, pair_get(from, DT_BF16, i));
    return buffer;
}

/* to (n) += the sum of `count` such buffers, `stride` apart, for elements [from, end). `from` is a multiple
 * of PAIR, and so is `end` unless it is n. */
static inline void pairs_add(float *to, DType dtype, int64_t n, const float *buffers, int count,
                             int64_t stride, int64_t from, int64_t end) {
    for (; from < end && from < paired(n); from += PAIR) {
        VecPair sum = {0};
        float place[PAIR];
        for (int i = 0; i < count; i++) {
            VecPair v = pair_load(buffers + i * stride + from);
            sum.a += v.a, sum.b += v.b;
        }
        pair_store(place, sum);
        for (int64_t i = 0; i < PAIR; i++) to[from + i] += place[pairs_place(dtype, from + i, n) - from];
    }
    for (; from < end; from++) {
        float sum = 0;
        for (int i = 0; i < count; i++) sum += buffers[i * stride + from];
        to[from] += sum;
    }
}

/* Loads elements at .. at + count - 1 into the cache before they are needed, to be read or written. `count`
 * is a constant at the call sites. */
static ALWAYS_INLINE void prefetch_run(const void *x, DType dtype, int64_t at, int64_t count, bool write) {
    int64_t size = dtype == DT_F32 ? 4 : 2;
    const char *from = (const char *)x + at * size;
    for (int64_t byte = 0; byte < count * size; byte += 64)
        if (write)
            __builtin_prefetch(from + byte, 1, 3);
        else
            __builtin_prefetch(from + byte, 0, 3);
}

#endif
