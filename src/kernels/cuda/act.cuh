// Activations and their derivatives in fp32, as in kernels/ref/act.c. They use fast exponentials and
// divisions, whose error of a few ulp disappears when the result is rounded.
#ifndef WEFT_KERNELS_ACT_CUH
#define WEFT_KERNELS_ACT_CUH

#include "kernels/cuda/ptx.cuh"

// 1 / x, accurate to about 1 ulp; 0 for infinity and for results below the normal range.
__device__ inline float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), where u is the argument of tanh in the GELU approximation.
__device__ inline float gelu_gate(float x) {
    float u2 = 1.5957691216057308f * x * fmaf(0.044715f * x, x, 1.0f);
    return reciprocal(1.0f + power_of_2(-1.4426950408889634f * u2));
}

__device__ inline float sigmoid(float x) {
    return reciprocal(1.0f + power_of_2(-1.4426950408889634f * x));
}

// The normal distribution's density, times sqrt(2 pi), and its cumulative probability erfc(-x / sqrt(2)) / 2.
// The tail of the latter is the density times a polynomial in 1 / (1 + 0.297 |x|), fitted for a relative
// error of 3e-6 up to |x| = 6 in fp32. At 0 the tail is exactly 1/2: GELU halves small values, which may then
// be ties when they are rounded. erfcf takes more than twice the time.
struct Normal {
    float density, below;
};
__device__ inline Normal normal_at(float x) {
    float t = reciprocal(fmaf(0.29698485f, fabsf(x), 1.0f));
    float density = power_of_2(x * x * -0.72134751f);
    float p = fmaf(t, 0.0346754566f, -0.158278435f);
    p = fmaf(t, p, 0.217118517f);
    p = fmaf(t, p, -0.062270686f);
    p = fmaf(t, p, 0.132770389f);
    p = fmaf(t, p, 0.0978540182f);
    p = fmaf(t, p, 0.119713247f);
    p = fmaf(t, p, 0.118417494f);
    float tail = p * t * density;
    return {density, x > 0 ? 1.0f - tail : tail};
}

template <Act ACT> __device__ inline float act_value(float x) {
    if (ACT == ACT_GELU_TANH) return x * gelu_gate(x);
    if (ACT == ACT_GELU_ERF) return x * normal_at(x).below;
    if (ACT == ACT_RELU) return x < 0 ? 0 : x; // NaN stays NaN
    if (ACT == ACT_TANH) return tanhf(x);
    if (ACT == ACT_SILU) return x * sigmoid(x);
    return x;
}

// The same for an activation that is only known at run time.
__device__ inline float act_of(Act act, float x) {
    switch (act) {
    case ACT_GELU_TANH: return act_value<ACT_GELU_TANH>(x);
    case ACT_GELU_ERF: return act_value<ACT_GELU_ERF>(x);
    case ACT_RELU: return act_value<ACT_RELU>(x);
    case ACT_TANH: return act_value<ACT_TANH>(x);
    case ACT_SILU: return act_value<ACT_SILU>(x);
    default: return x;
    }
}

template <Act ACT> __device__ inline float act_derivative(float x) {
    if (ACT == ACT_GELU_TANH) {
        x = clamp_30(x); // constant beyond; x * x must not overflow
        float gate = gelu_gate(x);
        float du2 = 1.5957691216057308f * fmaf(3 * 0.044715f * x, x, 1.0f); // derivative of 2u
        return fmaf(x * du2, gate * (1.0f - gate), gate);
    }
    if (ACT == ACT_GELU_ERF) {
        Normal at = normal_at(x);
        return fmaf(0.39894228040143268f * x, at.density, at.below);
    }
    if (ACT == ACT_RELU) return x > 0 ? 1 : 0;
    if (ACT == ACT_TANH) {
        float e = __expf(-2.0f * fabsf(x)), s = reciprocal(1.0f + e);
        return 4.0f * e * s * s; // 1 - tanh^2, without cancellation
    }
    if (ACT == ACT_SILU) {
        float s = sigmoid(x);
        return fmaf(x * s, 1.0f - s, s);
    }
    return 1;
}

// An activation as a type, for template dispatch.
template <Act ACT> struct ActTag { static constexpr Act act = ACT; };

// Calls body(ActTag<act>{}).
template <typename Body> inline cudaError_t with_act(Act act, Body body) {
    switch (act) {
    case ACT_NONE: return body(ActTag<ACT_NONE>{});
    case ACT_GELU_TANH: return body(ActTag<ACT_GELU_TANH>{});
    case ACT_GELU_ERF: return body(ActTag<ACT_GELU_ERF>{});
    case ACT_RELU: return body(ActTag<ACT_RELU>{});
    case ACT_TANH: return body(ActTag<ACT_TANH>{});
    case ACT_SILU: return body(ActTag<ACT_SILU>{});
    default: return cudaErrorInvalidValue;
    }
}

#endif
