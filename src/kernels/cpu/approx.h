/* exp and the normal distribution to a few units in the last place, as straight-line code that the
 * compiler vectorises inside `omp simd` loops, and exp on vectors. The polynomials are least-maximum fits
 * made for these files: exp's remainder on |r| <= ln2 / 2 to 3e-9, the scaled complement of erf to 1.5e-7,
 * both relative.
 */
#ifndef WEFT_KERNELS_CPU_APPROX_H
#define WEFT_KERNELS_CPU_APPROX_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/vec.h"

static inline float bits_to_float(int32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static inline int32_t float_to_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* For floats and vectors of them: e^r on |r| <= ln2 / 2, and r from x with n = x / ln2 rounded. Adding
 * 1.5 * 2^23 leaves the nearest integer in the low bits of a float. */
#define EXP_POLY(r)                                                                                          \
    (((((0.00138145984f * (r) + 0.0083687169f) * (r) + 0.0416683881f) * (r) + 0.166665206f) * (r) +          \
      0.499999934f) *                                                                                        \
         ((r) * (r)) +                                                                                       \
     (r) + 1.0f)
#define EXP_REST(x, n) ((x) - (n)*0.693145752f - (n)*1.42860677e-6f)
#define EXP_SHIFT      12582912.0f
#define EXP_LEAST      -87.336f
#define EXP_MOST       88.3f
#define LOG2_E         1.44269504f

/* e^x: 0 below -87.3, at most e^88.3, NaN for NaN. */
static inline float approx_exp(float x) {
    float in = x < EXP_LEAST ? EXP_LEAST : x;
    in = in > EXP_MOST ? EXP_MOST : in;
    float shifted = in * LOG2_E + EXP_SHIFT;
    float n = shifted - EXP_SHIFT;
    float r = EXP_REST(in, n);
    float e = EXP_POLY(r);
    float value = bits_to_float(float_to_bits(e) + (int32_t)((uint32_t)float_to_bits(shifted) << 23));
    return x < EXP_LEAST ? 0.0f : value;
}

/* The same on a vector. */
static inline VecF vec_exp(VecF x) {
    VecF in = vec_min(vec_set(EXP_MOST), vec_max(vec_set(EXP_LEAST), x));
    VecF shifted = in * LOG2_E + EXP_SHIFT;
    VecF n = shifted - EXP_SHIFT;
    VecF r = EXP_REST(in, n);
    VecF e = EXP_POLY(r);
    VecU value = (VecU)e + ((VecU)shifted << 23);
    return (VecF)(value & ~(VecU)(x < EXP_LEAST));
}

/* 1 / (1 + e^-x) */
static inline float approx_sigmoid(float x) {
    return 1.0f / (1.0f + approx_exp(-x));
}

/* The normal distribution's Phi(x) and, through ret_density, phi(x) = e^(-x^2/2) / sqrt(2 pi). From
 * erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.425 z), z = |x| / sqrt 2: no cancellation on either side. */
static inline float approx_normal(float x, float *ret_density) {
    float z = (x < 0 ? -x : x) * 0.707106781f;
    float e = approx_exp(-(z * z));
    float t = 1.0f / (1.0f + 0.425f * z);
    float p = 0.0714781359f;
    p = p * t - 0.313156486f;
    p = p * t + 0.407617092f;
    p = p * t - 0.103250615f;
    p = p * t + 0.255086452f;
    p = p * t + 0.200706035f;
    p = p * t + 0.241840616f;
    p = p * t + 0.239678621f;
    float tail = 0.5f * e * t * p;
    *ret_density = 0.39894228f * e;
    return x < 0 ? tail : 1.0f - tail;
}

#endif
