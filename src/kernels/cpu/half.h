/* bf16 and fp16 as vectors and as runs of elements. Arithmetic is done in fp32; these are the conversions
 * in and out. Stores round to nearest, ties to even; NaN stays NaN, and values too large for fp16 become
 * infinity.
 *
 * vec_get and vec_put take the type as an argument. In functions that are inlined once per type it is a
 * constant, so only the code of that type remains. */
#ifndef WEFT_KERNELS_CPU_HALF_H
#define WEFT_KERNELS_CPU_HALF_H

#include "kernels/cpu/vec.h"
#include "tensor/dtype.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* VEC 16-bit values, zero-extended to 32-bit lanes, and back. */
static inline VecU vec_load_u16(const uint16_t *from) {
#if defined(__aarch64__)
    return (VecU)vmovl_u16(vld1_u16(from));
#elif defined(__AVX512F__)
    return (VecU)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__AVX2__)
    return (VecU)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
#elif defined(__x86_64__)
    __m128i half = _mm_loadl_epi64((const __m128i *)(const void *)from);
    return (VecU)_mm_unpacklo_epi16(half, _mm_setzero_si128());
#else
    VecU v;
    for (int lane = 0; lane < VEC; lane++) v[lane] = from[lane];
    return v;
#endif
}
static inline void vec_store_u16(uint16_t *to, VecU v) {
#if defined(__aarch64__)
    vst1_u16(to, vmovn_u32((uint32x4_t)v));
#elif defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16((__m512i)v));
#elif defined(__AVX2__)
    __m256i packed = _mm256_packus_epi32((__m256i)v, (__m256i)v);
    __m128i half = _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8));
    _mm_storeu_si128((__m128i *)(void *)to, half);
#elif defined(__x86_64__)
    /* SSE2 only has a signed pack, so sign-extend first: then every lane is in range. */
    __m128i wide = _mm_srai_epi32(_mm_slli_epi32((__m128i)v, 16), 16);
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi32(wide, wide));
#else
    for (int lane = 0; lane < VEC; lane++) to[lane] = (uint16_t)v[lane];
#endif
}

static inline VecF vec_load_bf16(const uint16_t *from) {
#if defined(__aarch64__)
    return (VecF)vshll_n_u16(vld1_u16(from), 16);
#else
    return (VecF)(vec_load_u16(from) << 16);
#endif
}

/* Rounds to bf16, in the low halves of lanes. */
static inline VecU vec_round_bf16(VecF v) {
    VecU bits = (VecU)v, nan = (VecU)(v != v);
    VecU rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return ((nan & (bits | 0x400000)) | (~nan & rounded)) >> 16;
}

static inline void vec_store_bf16(uint16_t *to, VecF v) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    bfloat16x8_t half = vcvtq_low_bf16_f32((float32x4_t)v);
    vst1_bf16((bfloat16_t *)(void *)to, vget_low_bf16(half));
#elif defined(__aarch64__)
    uint32x4_t bits = (uint32x4_t)v, odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint16x4_t rounded = vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint16x4_t number = vmovn_u32(vceqq_f32((float32x4_t)v, (float32x4_t)v));
    vst1_u16(to, vorn_u16(rounded, number)); /* all bits of a NaN are set */
#else
    vec_store_u16(to, vec_round_bf16(v));
#endif
}

/* The halves of fp32 values, see f32_halves. */
static inline VecF vec_load_halves(const uint16_t *upper, const uint16_t *rest) {
    VecU low = vec_load_u16(rest);
    return (VecF)(((vec_load_u16(upper) - (low >> 15)) << 16) | low);
}
static inline void vec_store_halves(uint16_t *upper, uint16_t *rest, VecF v) {
    VecU bits = (VecU)v, nan = (VecU)(v != v);
    vec_store_u16(rest, bits & 0xffff);
    vec_store_u16(upper, ((nan & (bits | 0x400000)) | (~nan & (bits + 0x8000))) >> 16);
}

static inline VecF vec_load_f16(const uint16_t *from) {
#if defined(__aarch64__)
    return (VecF)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#elif defined(__AVX512F__)
    return (VecF)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__F16C__)
    return (VecF)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
#else
    /* Interpreted as a float, the shifted bits have an exponent that is too small by 112. A multiplication
     * corrects it, even for subnormal fp16 values. */
    VecU half = vec_load_u16(from), magnitude = half & 0x7fff;
    VecU value = (VecU)((VecF)(magnitude << 13) * 0x1p112f);
    VecU special = (VecU)(magnitude > 0x7bff) & 0x7f800000;
    return (VecF)(value | special | (half & 0x8000) << 16);
#endif
}

static inline void vec_store_f16(uint16_t *to, VecF v) {
#if defined(__aarch64__)
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
#elif defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
    VecU bits = (VecU)v, sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    VecU normal = ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
    /* Below 2^-14, fp16 has a spacing of 2^-24. Adding 0.5 rounds to exactly that. */
    VecU small = (VecU)((VecF)magnitude + 0.5f) - 0x3f000000;
    VecU is_small = (VecU)(magnitude < 0x38800000), is_large = (VecU)(magnitude > 0x477fefff);
    VecU large = 0x7c00 | ((VecU)(magnitude > 0x7f800000) & 0x200);
    VecU value = (is_small & small) | (~is_small & normal);
    vec_store_u16(to, sign | (is_large & large) | (~is_large & value));
#endif
}

/* Elements at .. at + VEC - 1. */
static ALWAYS_INLINE VecF vec_get(const void *from, DType dtype, int64_t at) {
    switch (dtype) {
    case DT_BF16: return vec_load_bf16((const uint16_t *)from + at);
    case DT_F16: return vec_load_f16((const uint16_t *)from + at);
    default: return vec_load((const float *)from + at);
    }
}
static ALWAYS_INLINE void vec_put(void *to, DType dtype, int64_t at, VecF v) {
    switch (dtype) {
    case DT_BF16: vec_store_bf16((uint16_t *)to + at, v); break;
    case DT_F16: vec_store_f16((uint16_t *)to + at, v); break;
    default: vec_store((float *)to + at, v);
    }
}

/* Four elements. */
static ALWAYS_INLINE Vec4 vec4_get(const void *from, DType dtype, int64_t at) {
    if (dtype == DT_F32) return vec4_load((const float *)from + at);
#if defined(__AVX2__)
    __m128i half = _mm_loadl_epi64((const __m128i *)(const void *)((const uint16_t *)from + at));
    if (dtype == DT_F16) return (Vec4)_mm_cvtph_ps(half);
    return (Vec4)_mm_unpacklo_epi16(_mm_setzero_si128(), half);
#else
    return vec_get(from, dtype, at);
#endif
}

/* One element. */
static ALWAYS_INLINE float half_get(const void *from, DType dtype, int64_t at) {
    switch (dtype) {
    case DT_BF16: return bf16_to_f32(((const uint16_t *)from)[at]);
    case DT_F16: return f16_to_f32(((const uint16_t *)from)[at]);
    default: return ((const float *)from)[at];
    }
}
static ALWAYS_INLINE void half_put(void *to, DType dtype, int64_t at, float value) {
    switch (dtype) {
    case DT_BF16: ((uint16_t *)to)[at] = f32_to_bf16(value); break;
    case DT_F16: ((uint16_t *)to)[at] = f32_to_f16(value); break;
    default: ((float *)to)[at] = value;
    }
}

/* The first n of VEC elements. Loads set the other lanes to 0; stores leave the other elements unchanged. */
static ALWAYS_INLINE VecF vec_get_some(const void *from, DType dtype, int64_t at, int64_t n) {
    size_t size = dtype == DT_F32 ? 4 : 2;
    float buffer[VEC] = {0};
    memcpy(buffer, (const char *)from + (size_t)at * size, (size_t)n * size);
    return vec_get(buffer, dtype, 0);
}
static ALWAYS_INLINE void vec_put_some(void *to, DType dtype, int64_t at, VecF v, int64_t n) {
    size_t size = dtype == DT_F32 ? 4 : 2;
    float buffer[VEC];
    vec_put(buffer, dtype, 0, v);
    memcpy((char *)to + (size_t)at * size, buffer, (size_t)n * size);
}

/* Copies n elements, converting between types. Four vectors per iteration, so that loads do not wait for
 * stores. */
static ALWAYS_INLINE void half_copy(void *to, DType to_type, const void *from, DType from_type, int64_t n) {
    int64_t i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC) {
        VecF v0 = vec_get(from, from_type, i), v1 = vec_get(from, from_type, i + VEC);
        VecF v2 = vec_get(from, from_type, i + 2 * VEC), v3 = vec_get(from, from_type, i + 3 * VEC);
        vec_put(to, to_type, i, v0), vec_put(to, to_type, i + VEC, v1);
        vec_put(to, to_type, i + 2 * VEC, v2), vec_put(to, to_type, i + 3 * VEC, v3);
    }
    for (; i < n; i++) half_put(to, to_type, i, half_get(from, from_type, i));
}

/* Calls f(type, ...) with the type as a constant. */
#define BY_TYPE(type, f, ...)                                                                                \
    do {                                                                                                     \
        if ((type) == DT_F32)                                                                                \
            f(DT_F32, __VA_ARGS__);                                                                          \
        else if ((type) == DT_BF16)                                                                          \
            f(DT_BF16, __VA_ARGS__);                                                                         \
        else                                                                                                 \
            f(DT_F16, __VA_ARGS__);                                                                          \
    } while (0)

/* to (n) = elements of `from` starting at `at`, as fp32. */
static inline void half_load(float *to, const void *from, DType dtype, int64_t at, int64_t n) {
    const uint16_t *half = (const uint16_t *)from + at;
    switch (dtype) {
    case DT_BF16: half_copy(to, DT_F32, half, DT_BF16, n); break;
    case DT_F16: half_copy(to, DT_F32, half, DT_F16, n); break;
    default: memmove(to, (const float *)from + at, (size_t)n * sizeof *to);
    }
}

/* Rounds n elements to the type and stores them in `to` starting at element `at`. */
static inline void half_store(void *to, DType dtype, int64_t at, const float *from, int64_t n) {
    uint16_t *half = (uint16_t *)to + at;
    switch (dtype) {
    case DT_BF16: half_copy(half, DT_BF16, from, DT_F32, n); break;
    case DT_F16: half_copy(half, DT_F16, from, DT_F32, n); break;
    default: memmove((float *)to + at, from, (size_t)n * sizeof *from);
    }
}

#endif
