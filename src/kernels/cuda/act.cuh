// Activations and their slopes in fp32, as kernels/ref/act.c has them. The exponentials and divisions are the
// fast ones, whose error of a few units in the last place of fp32 vanishes in the result's own rounding.
#ifndef WEFT_KERNELS_CUDA_ACT_CUH
#define WEFT_KERNELS_CUDA_ACT_CUH

#include "kernels/cuda/launch.h"

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), with the u of GELU's approximation by tanh.
__device__ inline float gelu_gate(float x) {
    float u2 = 1.5957691216057308f * x * fmaf(0.044715f * x, x, 1.0f);
    return __fdividef(1.0f, 1.0f + __expf(-u2));
}

template <CudaAct ACT> __device__ inline float act_value(float x) {
    if (ACT == CUDA_ACT_GELU_TANH) return x * gelu_gate(x);
    if (ACT == CUDA_ACT_GELU_ERF) return 0.5f * x * erfcf(x * -0.70710678118654752f);
    if (ACT == CUDA_ACT_RELU) return x < 0 ? 0 : x; // a NaN stays one
    if (ACT == CUDA_ACT_TANH) return tanhf(x);
    return x;
}

// The same where the activation is known only when it runs.
__device__ inline float act_of(CudaAct act, float x) {
    switch (act) {
    case CUDA_ACT_GELU_TANH: return act_value<CUDA_ACT_GELU_TANH>(x);
    case CUDA_ACT_GELU_ERF: return act_value<CUDA_ACT_GELU_ERF>(x);
    case CUDA_ACT_RELU: return act_value<CUDA_ACT_RELU>(x);
    case CUDA_ACT_TANH: return act_value<CUDA_ACT_TANH>(x);
    default: return x;
    }
}

template <CudaAct ACT> __device__ inline float act_slope(float x) {
    if (ACT == CUDA_ACT_GELU_TANH) {
        x = x > 30.0f ? 30.0f : x < -30.0f ? -30.0f : x; // flat beyond; x * x must not overflow
        float gate = gelu_gate(x);
        float slope = 1.5957691216057308f * fmaf(3 * 0.044715f * x, x, 1.0f); // of 2u
        return fmaf(x * slope, gate * (1.0f - gate), gate);
    }
    if (ACT == CUDA_ACT_GELU_ERF) {
        float below = 0.5f * erfcf(x * -0.70710678118654752f);
        return fmaf(x, 0.39894228040143268f * __expf(-0.5f * x * x), below);
    }
    if (ACT == CUDA_ACT_RELU) return x > 0 ? 1 : 0;
    if (ACT == CUDA_ACT_TANH) {
        float e = __expf(-2.0f * fabsf(x)), s = __fdividef(1.0f, 1.0f + e);
        return 4.0f * e * s * s; // 1 - tanh^2, without cancellation
    }
    return 1;
}

// An activation as an argument from which a template can be chosen.
template <CudaAct ACT> struct ActTag { static constexpr CudaAct act = ACT; };

// Calls body(ActTag<act>{}).
template <typename Body> inline cudaError_t with_act(CudaAct act, Body body) {
    switch (act) {
    case CUDA_ACT_NONE: return body(ActTag<CUDA_ACT_NONE>{});
    case CUDA_ACT_GELU_TANH: return body(ActTag<CUDA_ACT_GELU_TANH>{});
    case CUDA_ACT_GELU_ERF: return body(ActTag<CUDA_ACT_GELU_ERF>{});
    case CUDA_ACT_RELU: return body(ActTag<CUDA_ACT_RELU>{});
    case CUDA_ACT_TANH: return body(ActTag<CUDA_ACT_TANH>{});
    default: return cudaErrorInvalidValue;
    }
}

#endif
