// Fake quantization. A warp finds the largest magnitude of a row. For int8, a thread processes an element;
// for int4, a warp finds the step of a group, with one lane per weight, as in kernels/int4_round.h. No
// operation may be contracted to an FMA, so that all backends round alike. Int8 gradients follow.
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int group = 32, int4_min = -8, int4_max = 7, steps = 127, tries = 16;
constexpr float first_try = 0.70f, last_try = 1.15f;

template <typename T> __global__ void largest_kernel(float *largest, const T *x, int64_t M, int64_t K) {
    int64_t m = blockIdx.x * (int64_t)warps + threadIdx.x / 32;
    if (m >= M) return; // the whole warp
    float amax = 0;
    for (int64_t k = threadIdx.x % 32; k < K; k += 32) amax = fmaxf(amax, fabsf(to_float(x[m * K + k])));
    amax = warp_max(amax);
    if (threadIdx.x % 32 == 0) largest[m] = amax;
}

template <typename T>
__global__ void int8_kernel(T *y, const T *x, const float *largest, int64_t count, int64_t K) {
    int64_t stride = (int64_t)gridDim.x * threads;
    for (int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x; i < count; i += stride) {
        float size = largest[i / K], inverse = __fdiv_rn(127, size);
        if (isinf(inverse)) inverse = 0;
        y[i] = from_float<T>(__fmul_rn(rintf(__fmul_rn(to_float(x[i]), inverse)), __fdiv_rn(size, 127)));
    }
}

__device__ inline float clamped(float value) {
    value = value < int4_min ? int4_min : value;
    return value > int4_max ? int4_max : value;
}

__device__ inline float scale_of(float largest) {
    float scale = __fdiv_rn(__fmul_rn(__fdiv_rn(largest, -int4_min), last_try), steps);
    return isinf(__fdiv_rn(1, scale)) ? 0.0f : isinf(scale) ? NAN : scale;
}

// The squared error over the weights of all lanes, returned to every lane.
__device__ inline float error_of(float w, float step) {
    float inverse = step == 0 ? 0 : __fdiv_rn(1, step);
    float off = __fsub_rn(__fmul_rn(clamped(rintf(__fmul_rn(w, inverse))), step), w);
    float sum = __fmul_rn(off, off);
    for (int lane = 16; lane > 0; lane /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(full_warp, sum, lane));
    return sum;
}

// The weight of largest magnitude in the group, the first one if several are equal; NaN counts as 0.
__device__ inline float largest_of(float w) {
    float size = isnan(w) ? 0 : fabsf(w), amax = warp_max(size);
    unsigned who = __ballot_sync(full_warp, size == amax);
    return amax == 0 ? 0 : __shfl_sync(full_warp, w, __ffs((int)who) - 1);
}

__device__ inline int step_at(float largest, float scale, int at) {
    float ratio = __fadd_rn(first_try, __fdiv_rn(__fmul_rn(last_try - first_try, (float)at), tries - 1));
    float wanted = rintf(__fmul_rn(__fdiv_rn(__fdiv_rn(largest, int4_min), scale), ratio));
    return (int)(wanted > -steps ? wanted < steps ? wanted : (float)steps : (float)-steps);
}

__device__ inline int best_step(float w, float scale) {
    if (!(scale > 0)) return 0; // the whole warp
    float largest = largest_of(w), smallest = INFINITY;
    int best = 0;
    for (int i = 0; i < tries; i++) {
        int step = step_at(largest, scale, i);
        if (i > 0 && step == best) continue;
        float error = error_of(w, __fmul_rn((float)step, scale));
        if (error < smallest) smallest = error, best = step;
    }
    return best;
}

template <typename T>
__global__ void int4_kernel(T *y, const T *x, const float *largest, int64_t jobs, int64_t K, int64_t groups) {
    int64_t stride = (int64_t)gridDim.x * warps;
    for (int64_t at = blockIdx.x * (int64_t)warps + threadIdx.x / 32; at < jobs; at += stride) {
        int64_t m = at / groups, k = at % groups * group + threadIdx.x % 32;
        float w = k < K ? to_float(x[m * K + k]) : 0.0f, scale = scale_of(largest[m]);
        int step = best_step(w, scale);
        float inverse = step ? __fdiv_rn(1, __fmul_rn((float)step, scale)) : 0;
        float value = __fmul_rn(__fmul_rn(clamped(rintf(__fmul_rn(w, inverse))), (float)step), scale);
        if (k < K) y[m * K + k] = from_float<T>(value);
    }
}

// One thread block per block of elements, one thread per element.
__global__ void quantize_kernel(int8_t *q, float *scales, float *left, const float *x, int64_t count) {
    __shared__ float part[warps];
    int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x;
    float v = i < count ? __fadd_rn(x[i], left[i]) : 0.0f, amax = warp_max(isfinite(v) ? fabsf(v) : 0.0f);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = amax;
    bool finite = !__syncthreads_or(!isfinite(v));
    for (int w = 0; w < warps; w++) amax = fmaxf(amax, part[w]);
    float scale = __fdiv_rn(amax, 127), inverse = __fdiv_rn(127, amax);
    if (isinf(inverse)) inverse = 0;
    if (threadIdx.x == 0) scales[blockIdx.x] = finite ? scale : NAN;
    if (i >= count) return;
    float rounded = finite ? rintf(__fmul_rn(v, inverse)) : 0.0f;
    q[i] = (int8_t)rounded;
    if (finite) left[i] = __fmaf_rn(-rounded, scale, v);
}

__global__ void dequantize_kernel(float *y, const int8_t *q, const float *scales, int64_t count, bool adds) {
    int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (i >= count) return;
    y[i] =
        adds ? __fmaf_rn((float)q[i], scales[blockIdx.x], y[i]) : __fmul_rn((float)q[i], scales[blockIdx.x]);
}

struct Levels {
    float value[16];
};

// A thread for each value.
template <typename T>
__global__ void decode_kernel(T *y, const uint8_t *codes, const float *scales, int64_t count, Levels levels,
                              bool bytes) {
    for (int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * threads) {
        float one = bytes ? __fdiv_rn((float)(int8_t)codes[i], 127.0f)
                          : levels.value[codes[i / 2] >> (i % 2 ? 0 : 4) & 15];
        y[i] = from_float<T>(__fmul_rn(one, scales[i / CODE_BLOCK]));
    }
}

unsigned blocks_of(int64_t jobs, int each) {
    int64_t blocks = (jobs + each - 1) / each, enough = (int64_t)processors() * 16;
    return (unsigned)(blocks < enough ? blocks : enough);
}

} // namespace

Status row_largest_cuda(Stream *stream, Tensor largest, Tensor x) {
    const int64_t M = tensor_rows(x);
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, largest_kernel<T>, blocks_for(M, warps), threads, 0,
                             data<float>(largest), data<T>(x), M, tensor_cols(x));
    }));
    return OK;
}

Status round_int8_cuda(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    const int64_t count = tensor_count(x);
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, int8_kernel<T>, blocks_of(count, threads), threads, 0, data<T>(y),
                             data<T>(x), data<float>(largest), count, tensor_cols(x));
    }));
    return OK;
}

Status round_int4_cuda(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    const int64_t K = tensor_cols(x), groups = (K + group - 1) / group, jobs = tensor_rows(x) * groups;
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, int4_kernel<T>, blocks_of(jobs, warps), threads, 0, data<T>(y),
                             data<T>(x), data<float>(largest), jobs, K, groups);
    }));
    return OK;
}

static_assert(threads == QUANT_BLOCK, "a thread for each element of a block");

Status quantize_blocks_cuda(Stream *stream, Tensor q, Tensor scales, Tensor residual, Tensor x) {
    const int64_t count = tensor_count(x);
    LAUNCH(launch_kernel(stream, quantize_kernel, blocks_for(count, threads), threads, 0, data<int8_t>(q),
                         data<float>(scales), data<float>(residual), data<float>(x), count));
    return OK;
}

Status dequantize_blocks_cuda(Stream *stream, Tensor y, Tensor q, Tensor scales, bool accumulate) {
    const int64_t count = tensor_count(y);
    LAUNCH(launch_kernel(stream, dequantize_kernel, blocks_for(count, threads), threads, 0, data<float>(y),
                         data<int8_t>(q), data<float>(scales), count, accumulate));
    return OK;
}

Status decode_blocks_cuda(Stream *stream, Tensor y, Tensor codes, Tensor scales, BlockCode code) {
    const int64_t count = tensor_count(y);
    Levels levels;
    memcpy(levels.value, code_levels(code), sizeof levels.value);
    LAUNCH(with_type(y.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, decode_kernel<T>, blocks_of(count, threads), threads, 0, data<T>(y),
                             data<uint8_t>(codes), data<float>(scales), count, levels, code == BLOCKS_INT8);
    }));
    return OK;
}
