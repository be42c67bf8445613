/* Activations on runs of elements, for the act kernels and for the GEMM epilogues of linear layers. */
#ifndef WEFT_KERNELS_CPU_ACT_H
#define WEFT_KERNELS_CPU_ACT_H

#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/cpu/map.h"
#include "kernels/kernels.h"

/* d = 1 + e^(-2u), u = sqrt(2/pi) * (x + 0.044715 x^3): x / d is x/2 * (1 + tanh u). */
static inline VecF gelu_divisor(VecF x) {
    return 1.0f + vec_exp2(x * (-2.30220818f - 0.102943239f * (x * x)));
}
static inline VecF gelu_tanh(VecF x) {
    return x / gelu_divisor(x);
}
static inline VecF gelu_erf(VecF x) {
    VecF density;
    return x * vec_normal(x, &density);
}
static inline VecF silu_divisor(VecF x) {
    return 1.0f + vec_exp2(x * -1.44269504f);
}
static inline VecF silu(VecF x) {
    return x / silu_divisor(x);
}
static inline VecF relu(VecF x) {
    return vec_max(vec_set(0.0f), x);
}

/* dy times the derivative at x. */
static inline VecF gelu_tanh_back(VecF dy, VecF x) {
    VecF s = 1.0f / gelu_divisor(x);
    return dy * (s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x));
}
static inline VecF gelu_erf_back(VecF dy, VecF x) {
    VecF density;
    VecF phi = vec_normal(x, &density);
    return dy * (phi + x * density);
}
static inline VecF silu_back(VecF dy, VecF x) {
    VecF s = 1.0f / silu_divisor(x);
    return dy * (s + x * s * (1.0f - s));
}
static inline VecF relu_back(VecF dy, VecF x) {
    return vec_select(x > 0.0f, dy, vec_set(0.0f));
}

static inline VecF tanh_lanes(VecF x) {
    for (int lane = 0; lane < VEC; lane++) x[lane] = tanhf(x[lane]);
    return x;
}
static inline VecF tanh_back(VecF dy, VecF x) {
    VecF y = tanh_lanes(x);
    return dy * (1.0f - y * y);
}
static inline VecF none_back(VecF dy, VecF x) {
    (void)x;
    return dy;
}

/* y = act(x) over n elements; y may alias x. */
static ALWAYS_INLINE void act_map(DType dtype, void *y, const void *x, int64_t n, Act act) {
    switch (act) {
    case ACT_GELU_TANH: vec_map(dtype, y, x, n, gelu_tanh); break;
    case ACT_GELU_ERF: vec_map(dtype, y, x, n, gelu_erf); break;
    case ACT_RELU: vec_map(dtype, y, x, n, relu); break;
    case ACT_TANH: vec_map(dtype, y, x, n, tanh_lanes); break;
    case ACT_SILU: vec_map(dtype, y, x, n, silu); break;
    default:
        if (y != x) vec_map(dtype, y, x, n, vec_same);
    }
}

/* dx = dy * act'(x); dx may alias dy. */
static ALWAYS_INLINE void act_backward_map(DType dtype, void *dx, const void *dy, const void *x, int64_t n,
                                           Act act) {
    switch (act) {
    case ACT_GELU_TANH: vec_map2(dtype, dx, dy, dtype, x, n, gelu_tanh_back); break;
    case ACT_GELU_ERF: vec_map2(dtype, dx, dy, dtype, x, n, gelu_erf_back); break;
    case ACT_RELU: vec_map2(dtype, dx, dy, dtype, x, n, relu_back); break;
    case ACT_TANH: vec_map2(dtype, dx, dy, dtype, x, n, tanh_back); break;
    case ACT_SILU: vec_map2(dtype, dx, dy, dtype, x, n, silu_back); break;
    default:
        if (dx != dy) vec_map2(dtype, dx, dy, dtype, x, n, none_back);
    }
}

/* The same for fp32. */
static inline void act_run(float *y, const float *x, int64_t n, Act act) {
    act_map(DT_F32, y, x, n, act);
}
static inline void act_backward_run(float *dx, const float *dy, const float *x, int64_t n, Act act) {
    act_backward_map(DT_F32, dx, dy, x, n, act);
}

#endif
