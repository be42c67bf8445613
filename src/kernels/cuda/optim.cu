// AdamW: a thread takes two packs of four elements of param, m, v and grad, all loaded before the first is
// used, and also writes the copy in the compute type.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256, batch = 2; // packs per thread

__device__ inline void step_one(float &param, float &m, float &v, float grad, const CudaAdamW &spec) {
    if (spec.keep_zeros && param == 0) {
        m = v = 0;
        return;
    }
    float g = grad * spec.grad_scale;
    m = spec.beta1 * m + spec.rest1 * g;
    v = spec.beta2 * v + spec.rest2 * g * g;
    float step = m * spec.correct1 / (sqrtf(v * spec.correct2) + spec.eps);
    param -= spec.lr * (spec.decay * param + step);
}

// copy may be NULL. A block takes threads * batch packs of N.
template <typename T, int N>
__global__ void __launch_bounds__(threads, 4) adamw_kernel(float *param, float *m, float *v, T *copy,
                                                           const float *grad, int64_t count, CudaAdamW spec) {
    const int64_t first = (blockIdx.x * (int64_t)(threads * batch) + threadIdx.x) * N;
    Pack<float, N> p[batch], g[batch], ms[batch], vs[batch];
    chain_next();
    chain_wait();
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        p[b] = load_pack<float, N>(param + i);
        g[b] = load_pack<float, N>(grad + i);
        ms[b] = load_pack<float, N>(m + i);
        vs[b] = load_pack<float, N>(v + i);
    }
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) {
            step_one(p[b].at[j], ms[b].at[j], vs[b].at[j], g[b].at[j], spec);
            out.at[j] = from_float<T>(p[b].at[j]);
        }
        store_pack(param + i, p[b]);
        store_pack(m + i, ms[b]);
        store_pack(v + i, vs[b]);
        if (copy) store_pack(copy + i, out);
    }
    // The tail: fewer than N elements, one for each of the first threads.
    int64_t i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    step_one(param[i], m[i], v[i], grad[i], spec);
    if (copy) copy[i] = from_float<T>(param[i]);
}

} // namespace

cudaError_t launch_adamw(cudaStream_t stream, float *param, float *m, float *v, DType type, void *copy,
                         const float *grad, int64_t count, CudaAdamW spec) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(param, m, v, grad, copy))
            return launch_chained(stream, adamw_kernel<T, 4>, blocks_for(count, threads * batch * 4), threads,
                                  0, param, m, v, (T *)copy, grad, count, spec);
        return launch_chained(stream, adamw_kernel<T, 1>, blocks_for(count, threads * batch), threads, 0,
                              param, m, v, (T *)copy, grad, count, spec);
    });
}
