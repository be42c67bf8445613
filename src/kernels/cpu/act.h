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
static inline VecF gelu_tanh_of(VecF x) {
    return x / gelu_divisor(x);
}
static inline VecF gelu_erf_of(VecF x) {
    VecF density;
    return x * vec_normal(x, &density);
}
static inline VecF silu_divisor(VecF x) {
    return 1.0f + vec_exp2(x * -1.44269504f);
}
static inline VecF silu_of(VecF x) {
    return x / silu_divisor(x);
}
static inline VecF relu_of(VecF x) {
    return vec_max(vec_set(0.0f), x);
}

static inline VecF tanh_of(VecF x) {
    for (int lane = 0; lane < VEC; lane++) x[lane] = tanhf(x[lane]);
    return x;
}

/* The value of an activation; *ret_slope is its derivative. */
typedef VecF (*Slope)(VecF x, VecF *ret_slope);

static inline VecF gelu_tanh_slope(VecF x, VecF *ret_slope) {
    VecF s = 1.0f / gelu_divisor(x), y = x * s;
    *ret_slope = s + y * (1.0f - s) * (1.59576912f + 0.214064449f * x * x);
    return y;
}
static inline VecF gelu_erf_slope(VecF x, VecF *ret_slope) {
    VecF density, phi = vec_normal(x, &density);
    *ret_slope = phi + x * density;
    return x * phi;
}
static inline VecF relu_slope(VecF x, VecF *ret_slope) {
    *ret_slope = vec_select(x > 0.0f, vec_set(1.0f), vec_set(0.0f));
    return relu_of(x);
}
static inline VecF tanh_slope(VecF x, VecF *ret_slope) {
    VecF y = tanh_of(x);
    *ret_slope = 1.0f - y * y;
    return y;
}
static inline VecF silu_slope(VecF x, VecF *ret_slope) {
    VecF s = 1.0f / silu_divisor(x), y = x * s;
    *ret_slope = s + y * (1.0f - s);
    return y;
}

/* dy times the derivative at x. */
#define BACK(name)                                                                                           \
    static inline VecF name##_back(VecF dy, VecF x) {                                                        \
        VecF slope;                                                                                          \
        name##_slope(x, &slope);                                                                             \
        return dy * slope;                                                                                   \
    }
BACK(gelu_tanh)
BACK(gelu_erf)
BACK(tanh)
BACK(silu)
#undef BACK
static inline VecF relu_back(VecF dy, VecF x) { /* 0 even if dy is not finite */
    return vec_select(x > 0.0f, dy, vec_set(0.0f));
}
static inline VecF none_back(VecF dy, VecF x) {
    (void)x;
    return dy;
}

/* All but ACT_NONE, with the prefix of their functions. */
#define EACH_ACT(X)                                                                                          \
    X(ACT_GELU_TANH, gelu_tanh)                                                                              \
    X(ACT_GELU_ERF, gelu_erf) X(ACT_RELU, relu) X(ACT_TANH, tanh) X(ACT_SILU, silu)

/* y = act(x) over n elements; y may alias x. */
static ALWAYS_INLINE void act_map(DType dtype, void *y, const void *x, int64_t n, Act act) {
    switch (act) {
#define MAP(act, name)                                                                                       \
    case act: vec_map(dtype, y, x, n, name##_of); break;
        EACH_ACT(MAP)
#undef MAP
    default:
        if (y != x) vec_map(dtype, y, x, n, vec_same);
    }
}

/* dx = dy * act'(x); dx may alias dy. */
static ALWAYS_INLINE void act_backward_map(DType dtype, void *dx, const void *dy, const void *x, int64_t n,
                                           Act act) {
    switch (act) {
#define MAP(act, name)                                                                                       \
    case act: vec_map2(dtype, dx, dy, dtype, x, n, name##_back); break;
        EACH_ACT(MAP)
#undef MAP
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
