/* Activations on a run of elements, for the act kernels and for what linear does to its output. */
#ifndef WEFT_KERNELS_CPU_ACT_H
#define WEFT_KERNELS_CPU_ACT_H

#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/kernels.h"

/* x * sigmoid(2u) is x/2 * (1 + tanh u); u = sqrt(2/pi) * (x + 0.044715 x^3). */
static inline VecF gelu_tanh(VecF x) {
    return x * vec_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
}
static inline VecF gelu_erf(VecF x) {
    VecF density;
    return x * vec_normal(x, &density);
}
static inline VecF relu(VecF x) {
    return vec_max(vec_set(0.0f), x);
}

/* dy times the slope at x. */
static inline VecF gelu_tanh_back(VecF dy, VecF x) {
    VecF s = vec_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
    return dy * (s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x));
}
static inline VecF gelu_erf_back(VecF dy, VecF x) {
    VecF density;
    VecF phi = vec_normal(x, &density);
    return dy * (phi + x * density);
}
static inline VecF relu_back(VecF dy, VecF x) {
    return vec_select(x > 0.0f, dy, vec_set(0.0f));
}

/* y = act(x); y may be x. */
static inline void act_run(float *y, const float *x, int64_t n, Act act) {
    switch (act) {
    case ACT_GELU_TANH: vec_map(y, x, n, gelu_tanh); break;
    case ACT_GELU_ERF: vec_map(y, x, n, gelu_erf); break;
    case ACT_RELU: vec_map(y, x, n, relu); break;
    case ACT_TANH:
        for (int64_t i = 0; i < n; i++) y[i] = tanhf(x[i]);
        break;
    default:
        if (y != x) memcpy(y, x, (size_t)n * sizeof *y);
    }
}

/* dx = dy * act'(x); dx may be dy. */
static inline void act_slope_run(float *dx, const float *dy, const float *x, int64_t n, Act act) {
    switch (act) {
    case ACT_GELU_TANH: vec_map2(dx, dy, x, n, gelu_tanh_back); break;
    case ACT_GELU_ERF: vec_map2(dx, dy, x, n, gelu_erf_back); break;
    case ACT_RELU: vec_map2(dx, dy, x, n, relu_back); break;
    case ACT_TANH:
        for (int64_t i = 0; i < n; i++) {
            float y = tanhf(x[i]);
            dx[i] = dy[i] * (1.0f - y * y);
        }
        break;
    default:
        if (dx != dy) memmove(dx, dy, (size_t)n * sizeof *dx);
    }
}

#endif
