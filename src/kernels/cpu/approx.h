/* exp and the normal distribution on vectors, accurate to a few ulp. The polynomials are minimax fits
 * computed for this file. Maximum relative errors: 3e-9 for the remainder of exp on |r| <= ln2 / 2, 9e-8
 * for 2^t on |r| <= 1/2, 1.5e-7 for the scaled complementary error function. */
#ifndef WEFT_KERNELS_CPU_APPROX_H
#define WEFT_KERNELS_CPU_APPROX_H

#include "kernels/cpu/vec.h"

/* e^x for x up to 88.3: 0 below -87.3, NaN for NaN. */
static inline VecF vec_exp(VecF x) {
    const float least = -87.336f, shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
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

/* 2^t for t in [-127, 127], exactly 0 for -127. Cheaper than vec_exp, because it does not compensate for the
 * rounding error of t itself. The polynomial is split into pairs of terms that can be evaluated in parallel.
 */
static inline VecF vec_exp2_within(VecF t) {
    const float shift = 12582912.0f;
    VecF shifted = t + shift;
    VecF r = t - (shifted - shift), r2 = r * r;
    VecF low = 0.693147f * r + 1.0f, middle = 0.055507336f * r + 0.24022242f;
    VecF high = 0.0013264727f * r + 0.009671513f;
    VecF e = (high * r2 + middle) * r2 + low;
    return (VecF)((VecU)e + ((VecU)shifted << 23));
}

/* 2^t, with t clamped to [-126, 126]. */
static inline VecF vec_exp2(VecF t) {
    return vec_exp2_within(vec_min(vec_set(126.0f), vec_max(vec_set(-126.0f), t)));
}

/* Phi(x), the cumulative distribution function of the standard normal, and *ret_density = phi(x) =
 * e^(-x^2/2) / sqrt(2 pi). Computed from erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + 0.425 z), z = |x| / sqrt
 * 2, which avoids cancellation on both sides. */
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
