// AdamW: a thread takes four elements of param, m, v and grad, and writes the compute copy beside them.
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256;

__device__ inline void step_one(float &param, float &m, float &v, float grad, const CudaAdamW &spec) {
    float g = grad * spec.grad_scale;
    m = spec.beta1 * m + spec.rest1 * g;
    v = spec.beta2 * v + spec.rest2 * g * g;
    float step = m * spec.correct1 / (sqrtf(v * spec.correct2) + spec.eps);
    param -= spec.lr * (spec.decay * param + step);
}

// copy may be none.
template <typename T, int N>
__global__ void adamw_kernel(float *param, float *m, float *v, T *copy, const float *grad, int64_t count,
                             CudaAdamW spec) {
    int64_t first = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (first + N <= count) {
        Pack<float, N> p = load_pack<float, N>(param + first), g = load_pack<float, N>(grad + first);
        Pack<float, N> ms = load_pack<float, N>(m + first), vs = load_pack<float, N>(v + first);
        Pack<T, N> out;
#pragma unroll
        for (int i = 0; i < N; i++) {
            step_one(p.at[i], ms.at[i], vs.at[i], g.at[i], spec);
            out.at[i] = from_float<T>(p.at[i]);
        }
        store_pack(param + first, p);
        store_pack(m + first, ms);
        store_pack(v + first, vs);
        if (copy) store_pack(copy + first, out);
    } else {
        for (int64_t i = first; i < count; i++) {
            step_one(param[i], m[i], v[i], grad[i], spec);
            if (copy) copy[i] = from_float<T>(param[i]);
        }
    }
}

} // namespace

cudaError_t launch_adamw(cudaStream_t stream, float *param, float *m, float *v, DType type, void *copy,
                         const float *grad, int64_t count, CudaAdamW spec) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(param, m, v, grad, copy))
            adamw_kernel<T, 4><<<blocks_for(count, threads * 4), threads, 0, stream>>>(param, m, v, (T *)copy,
                                                                                       grad, count, spec);
        else
            adamw_kernel<T, 1><<<blocks_for(count, threads), threads, 0, stream>>>(param, m, v, (T *)copy,
                                                                                   grad, count, spec);
        return cudaGetLastError();
    });
}
