/* 16-bit numbers, bf16 and fp16, as vectors and as runs of elements. Work is done in fp32; these are the
 * ways in and out. Going out rounds to nearest, ties to even; NaN stays NaN and what is too large for fp16
 * becomes infinite. */
#ifndef WEFT_KERNELS_CPU_HALF_H
#define WEFT_KERNELS_CPU_HALF_H

#include "kernels/cpu/vec.h"
#include "tensor/dtype.h"

typedef uint16_t VecH __attribute__((vector_size(2 * VEC)));

static inline VecF vec_load_bf16(const uint16_t *from) {
    VecH half;
    memcpy(&half, from, sizeof half);
    return (VecF)(__builtin_convertvector(half, VecU) << 16);
}

static inline void vec_store_bf16(uint16_t *to, VecF v) {
    VecU bits = (VecU)v, nan = (VecU)(v != v);
    VecU rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    VecH half = __builtin_convertvector((nan & ((bits >> 16) | 0x40)) | (~nan & rounded), VecH);
    memcpy(to, &half, sizeof half);
}

static inline VecF vec_load_f16(const uint16_t *from) {
#if defined(__aarch64__)
    return (VecF)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#elif defined(__AVX512F__)
    return (VecF)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__F16C__)
    return (VecF)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
#else
    VecF v;
    for (int lane = 0; lane < VEC; lane++) v[lane] = f16_to_f32(from[lane]);
    return v;
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
    for (int lane = 0; lane < VEC; lane++) to[lane] = f32_to_f16(v[lane]);
#endif
}

/* n elements of any of the three types, from element `at` of `from` on. */
static inline void half_load(float *to, const void *from, DType dtype, int64_t at, int64_t n) {
    const uint16_t *half = (const uint16_t *)from + at;
    int64_t i = 0;
    switch (dtype) {
    case DT_BF16:
        for (; i + VEC <= n; i += VEC) vec_store(to + i, vec_load_bf16(half + i));
        for (; i < n; i++) to[i] = bf16_to_f32(half[i]);
        break;
    case DT_F16:
        for (; i + VEC <= n; i += VEC) vec_store(to + i, vec_load_f16(half + i));
        for (; i < n; i++) to[i] = f16_to_f32(half[i]);
        break;
    default: memmove(to, (const float *)from + at, (size_t)n * sizeof *to);
    }
}

/* n elements, rounded to the type, to element `at` of `to` and on. */
static inline void half_store(void *to, DType dtype, int64_t at, const float *from, int64_t n) {
    uint16_t *half = (uint16_t *)to + at;
    int64_t i = 0;
    switch (dtype) {
    case DT_BF16:
        for (; i + VEC <= n; i += VEC) vec_store_bf16(half + i, vec_load(from + i));
        for (; i < n; i++) half[i] = f32_to_bf16(from[i]);
        break;
    case DT_F16:
        for (; i + VEC <= n; i += VEC) vec_store_f16(half + i, vec_load(from + i));
        for (; i < n; i++) half[i] = f32_to_f16(from[i]);
        break;
    default: memmove((float *)to + at, from, (size_t)n * sizeof *from);
    }
}

#endif
