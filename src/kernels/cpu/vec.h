/* Vectors of the native width, as compiler vector types: `+ - *` and bitwise operators work on them as on
 * scalars, and a multiplication followed by an addition becomes an FMA. Operations that these types cannot
 * express are written with intrinsics for each instruction set, with a plain loop as the fallback. */
#ifndef WEFT_KERNELS_CPU_VEC_H
#define WEFT_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VEC = 16 };
#elif defined(__AVX2__)
enum { VEC = 8 };
#else
enum { VEC = 4 };
#endif

typedef float VecF __attribute__((vector_size(4 * VEC)));
typedef int32_t VecI __attribute__((vector_size(4 * VEC)));
typedef uint32_t VecU __attribute__((vector_size(4 * VEC)));

/* x86 intrinsics that only differ in the width of the vectors: MM(add_ps) is _mm512_add_ps, _mm256_add_ps or
 * _mm_add_ps. */
#if defined(__AVX512F__)
#define MM(name) _mm512_##name
typedef __m512 MmF;
typedef __m512i MmI;
#elif defined(__AVX2__)
#define MM(name) _mm256_##name
typedef __m256 MmF;
typedef __m256i MmI;
#elif defined(__x86_64__)
#define MM(name) _mm_##name
typedef __m128 MmF;
typedef __m128i MmI;
#endif

static inline VecF vec_load(const float *from) {
    VecF v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline void vec_store(float *to, VecF v) {
    memcpy(to, &v, sizeof v);
}
static inline VecF vec_set(float value) {
    return value - (VecF){0};
}
static inline VecU vec_set_u32(uint32_t value) {
    return value + (VecU){0};
}

/* a where the mask is set, else b. */
static inline VecF vec_select(VecI mask, VecF a, VecF b) {
    return (VecF)((mask & (VecI)a) | (~mask & (VecI)b));
}
/* first, first + 1, ... */
static inline VecI vec_count(int32_t first) {
    VecI v;
    for (int lane = 0; lane < VEC; lane++) v[lane] = first + lane;
    return v;
}

/* Maximum and minimum per lane; NaN if b is NaN. */
static inline VecF vec_max(VecF a, VecF b) {
#if defined(__aarch64__)
    return (VecF)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#elif defined(__x86_64__)
    return (VecF)MM(max_ps)((MmF)a, (MmF)b);
#else
    return vec_select(a > b, a, b);
#endif
}
static inline VecF vec_min(VecF a, VecF b) {
#if defined(__aarch64__)
    return (VecF)vminq_f32((float32x4_t)a, (float32x4_t)b);
#elif defined(__x86_64__)
    return (VecF)MM(min_ps)((MmF)a, (MmF)b);
#else
    return vec_select(a < b, a, b);
#endif
}
static inline VecF vec_sqrt(VecF v) {
#if defined(__aarch64__)
    return (VecF)vsqrtq_f32((float32x4_t)v);
#elif defined(__x86_64__)
    return (VecF)MM(sqrt_ps)((MmF)v);
#else
    for (int lane = 0; lane < VEC; lane++) v[lane] = __builtin_sqrtf(v[lane]);
    return v;
#endif
}
static inline VecU vec_max_u32(VecU a, VecU b) {
#if defined(__aarch64__)
    return (VecU)vmaxq_u32((uint32x4_t)a, (uint32x4_t)b);
#elif defined(__AVX2__)
    return (VecU)MM(max_epu32)((MmI)a, (MmI)b);
#else
    VecU greater = (VecU)(a > b);
    return (greater & a) | (~greater & b);
#endif
}
static inline float vec_max_of(VecF v) {
    float max = v[0];
    for (int lane = 1; lane < VEC; lane++) max = v[lane] > max ? v[lane] : max;
    return max;
}

static inline float vec_sum_of(VecF v) {
#if defined(__aarch64__)
    return vaddvq_f32((float32x4_t)v);
#elif defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float lanes[VEC];
    memcpy(lanes, &v, sizeof lanes);
    for (int half = VEC / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    return lanes[0];
#endif
}

/* to[i] = the horizontal sum of v[i]; the order of additions does not depend on i. On x86, exchanging lanes
 * between vectors takes a third of the instructions of four separate sums. */
static inline void vec_sum_four(float *to, const VecF v[4]) {
#if defined(__aarch64__)
    float32x4_t low = vpaddq_f32((float32x4_t)v[0], (float32x4_t)v[1]);
    float32x4_t high = vpaddq_f32((float32x4_t)v[2], (float32x4_t)v[3]);
    vst1q_f32(to, vpaddq_f32(low, high));
#elif defined(__x86_64__)
    const MmF a = (MmF)v[0], b = (MmF)v[1], c = (MmF)v[2], d = (MmF)v[3];
    const MmF ab = MM(add_ps)(MM(unpacklo_ps)(a, b), MM(unpackhi_ps)(a, b));
    const MmF cd = MM(add_ps)(MM(unpacklo_ps)(c, d), MM(unpackhi_ps)(c, d));
    const MmF low = MM(castpd_ps)(MM(unpacklo_pd)(MM(castps_pd)(ab), MM(castps_pd)(cd)));
    const MmF high = MM(castpd_ps)(MM(unpackhi_pd)(MM(castps_pd)(ab), MM(castps_pd)(cd)));
    const MmF four = MM(add_ps)(low, high);
#if defined(__AVX512F__)
    __m256 two = _mm256_add_ps(_mm512_castps512_ps256(four), _mm512_extractf32x8_ps(four, 1));
#elif defined(__AVX2__)
    __m256 two = four;
#endif
#if defined(__AVX2__)
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1)));
#else
    _mm_storeu_ps(to, four);
#endif
#else
    for (int i = 0; i < 4; i++) to[i] = vec_sum_of(v[i]);
#endif
}

/* 32 x 32 -> 64-bit multiplication: returns the low halves and stores the high halves in *ret_high. */
static inline VecU vec_mul_wide(VecU a, uint32_t b, VecU *ret_high) {
#if defined(__aarch64__)
    uint32x4_t x = (uint32x4_t)a;
    uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(x), b));
    uint32x4_t second = vreinterpretq_u32_u64(vmull_high_n_u32(x, b));
    *ret_high = (VecU)vuzp2q_u32(first, second);
    return (VecU)vuzp1q_u32(first, second);
#elif defined(__AVX512F__)
    __m512i x = (__m512i)a, m = _mm512_set1_epi32((int)b);
    __m512i even = _mm512_mul_epu32(x, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), m);
    *ret_high = (VecU)_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    return (VecU)_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
#elif defined(__AVX2__)
    __m256i x = (__m256i)a, m = _mm256_set1_epi32((int)b);
    __m256i even = _mm256_mul_epu32(x, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
    *ret_high = (VecU)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return (VecU)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
#else
    VecU low;
    for (int lane = 0; lane < VEC; lane++) {
        uint64_t product = (uint64_t)a[lane] * b;
        low[lane] = (uint32_t)product;
        (*ret_high)[lane] = (uint32_t)(product >> 32);
    }
    return low;
#endif
}

/* Stores the blocks {a[lane], b[lane], c[lane], d[lane]} of all lanes. vec_blocks has each block's place
 * among them: on x86 not that of its lane, which would take twice as many shuffles. */
static inline VecU vec_blocks(void) {
    VecU v;
    for (unsigned lane = 0; lane < VEC; lane++)
#if defined(__x86_64__)
        v[lane] = lane % 4 * (VEC / 4) + lane / 4;
#else
        v[lane] = lane;
#endif
    return v;
}
static inline void vec_store_blocks(uint32_t *to, VecU a, VecU b, VecU c, VecU d) {
#if defined(__aarch64__)
    vst4q_u32(to, ((uint32x4x4_t){{(uint32x4_t)a, (uint32x4_t)b, (uint32x4_t)c, (uint32x4_t)d}}));
#elif defined(__x86_64__)
    const MmI ab0 = MM(unpacklo_epi32)((MmI)a, (MmI)b), ab1 = MM(unpackhi_epi32)((MmI)a, (MmI)b);
    const MmI cd0 = MM(unpacklo_epi32)((MmI)c, (MmI)d), cd1 = MM(unpackhi_epi32)((MmI)c, (MmI)d);
    float *out = (float *)(void *)to;
    vec_store(out, (VecF)MM(unpacklo_epi64)(ab0, cd0));
    vec_store(out + VEC, (VecF)MM(unpackhi_epi64)(ab0, cd0));
    vec_store(out + 2 * VEC, (VecF)MM(unpacklo_epi64)(ab1, cd1));
    vec_store(out + 3 * VEC, (VecF)MM(unpackhi_epi64)(ab1, cd1));
#else
    for (int lane = 0; lane < VEC; lane++) {
        to[4 * lane] = a[lane], to[4 * lane + 1] = b[lane];
        to[4 * lane + 2] = c[lane], to[4 * lane + 3] = d[lane];
    }
#endif
}

/* Four floats, whatever the native width. */
typedef float Vec4 __attribute__((vector_size(16)));

static inline Vec4 vec4_load(const float *from) {
    Vec4 v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline void vec4_store(float *to, Vec4 v) {
    memcpy(to, &v, sizeof v);
}

/* to (4,4) = the transpose of four rows; rows of `to` are `stride` apart. */
static inline void vec4_store_transposed(float *to, int64_t stride, Vec4 r0, Vec4 r1, Vec4 r2, Vec4 r3) {
#if defined(__aarch64__)
    float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32((float32x4_t)r0, (float32x4_t)r1)),
                odd01 = vreinterpretq_f64_f32(vtrn2q_f32((float32x4_t)r0, (float32x4_t)r1));
    float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32((float32x4_t)r2, (float32x4_t)r3)),
                odd23 = vreinterpretq_f64_f32(vtrn2q_f32((float32x4_t)r2, (float32x4_t)r3));
    vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(even01, even23)));
    vst1q_f32(to + stride, vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23)));
    vst1q_f32(to + 2 * stride, vreinterpretq_f32_f64(vtrn2q_f64(even01, even23)));
    vst1q_f32(to + 3 * stride, vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23)));
#elif defined(__x86_64__)
    __m128 q0 = (__m128)r0, q1 = (__m128)r1, q2 = (__m128)r2, q3 = (__m128)r3;
    _MM_TRANSPOSE4_PS(q0, q1, q2, q3);
    _mm_storeu_ps(to, q0);
    _mm_storeu_ps(to + stride, q1);
    _mm_storeu_ps(to + 2 * stride, q2);
    _mm_storeu_ps(to + 3 * stride, q3);
#else
    const Vec4 row[4] = {r0, r1, r2, r3};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) to[i * stride + j] = row[j][i];
#endif
}

/* to (4,4) = from (4,4) transposed; strides are between rows. */
static inline void vec4_transpose(float *to, int64_t to_stride, const float *from, int64_t from_stride) {
    vec4_store_transposed(to, to_stride, vec4_load(from), vec4_load(from + from_stride),
                          vec4_load(from + 2 * from_stride), vec4_load(from + 3 * from_stride));
}

#endif
