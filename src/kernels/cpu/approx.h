/* exp and the normal distribution on vectors, to a few units in the last place. The polynomials are
 * least-maximum fits made for these files: exp's remainder on |r| <= ln2 / 2 to 3e-9, the scaled
 * complement of erf to 1.5e-7, both relative.
 */
#ifndef WEFT_KERNELS_CPU_APPROX_H
#define WEFT_KERNELS_CPU_APPROX_H

#include "kernels/cpu/vec.h"

/* e^x for x up to 88.3: 0 below -87.3, NaN for NaN. */
static inline VecF vec_exp(VecF x) {
    const float least = -87.336f, shift = 12582912.0f; /* 1.5 * 2^23: what is added to it is rounded */
    VecF in = vec_max(vec_set(least), x);
    VecF shifted = in * 1.44269504f + shift;
    VecF n = shifted - shift;
    VecF r = in - n * 0.693145752f - n * 1.42860677e-6f;
    VecF p = 0.00138145984f * r + 0.0083687169f;
    p = p * r + 0.0416683881f;
    p = p * r + 0.166665206f;
    p = p * r + 0.499999934f;
    VecF e = p * (r * r) + r + 1.0f;
    VecU value = (VecU)e + ((VecU)shifted << 23);
    return (VecF)(value & ~(VecU)(x < least));
}

/* 1 / (1 + e^-x) */
static inline VecF vec_sigmoid(VecF x) {
    return 1.0f / (1.0f + vec_exp(vec_min(vec_set(88.0f), -x)));
}

/* The normal distribution's Phi(x) and, through ret_density, phi(x) = e^(-x^2/2) / sqrt(2 pi). From
 * erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.425 z), z = |x| / sqrt 2: no cancellation on either side. */
static inline VecF vec_normal(VecF x, VecF *ret_density) {
    VecF z = vec_max(x, -x) * 0.707106781f;
    VecF e = vec_exp(-(z * z));
    VecF t = 1.0f / (1.0f + 0.425f * z);
    VecF p = 0.0714781359f * t - 0.313156486f;
    p = p * t + 0.407617092f;
    p = p * t - 0.103250615f;
    p = p * t + 0.255086452f;
    p = p * t + 0.200706035f;
    p = p * t + 0.241840616f;
    p = p * t + 0.239678621f;
    VecF tail = 0.5f * e * t * p;
    *ret_density = 0.39894228f * e;
    return vec_select(x < 0.0f, tail, 1.0f - tail);
}

#endif
