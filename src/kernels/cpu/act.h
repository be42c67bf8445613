/* Activations on a run of elements, for the act kernels and for what linear does to its output. */
#ifndef WEFT_KERNELS_CPU_ACT_H
#define WEFT_KERNELS_CPU_ACT_H

#include <math.h>

#include "kernels/cpu/approx.h"
#include "kernels/kernels.h"

/* x * sigmoid(2u) is x/2 * (1 + tanh u); u = sqrt(2/pi) * (x + 0.044715 x^3). */
static inline float gelu_tanh(float x) {
    return x * approx_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
}
static inline float gelu_tanh_slope(float x) {
    float s = approx_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
    return s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x);
}
static inline float gelu_erf(float x) {
    float density;
    return x * approx_normal(x, &density);
}
static inline float gelu_erf_slope(float x) {
    float density;
    float phi = approx_normal(x, &density);
    return phi + x * density;
}

/* y = act(x); y may be x. */
static inline void act_run(float *y, const float *x, int64_t n, Act act) {
    switch (act) {
    case ACT_GELU_TANH:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = gelu_tanh(x[i]);
        break;
    case ACT_GELU_ERF:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = gelu_erf(x[i]);
        break;
    case ACT_RELU:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
        break;
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
    case ACT_GELU_TANH:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * gelu_tanh_slope(x[i]);
        break;
    case ACT_GELU_ERF:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * gelu_erf_slope(x[i]);
        break;
    case ACT_RELU:
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
        break;
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
