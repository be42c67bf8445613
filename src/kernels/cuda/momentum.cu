// Lion, SGD with momentum, and the parts of Muon that are not matmuls. As in optim.cu, a thread takes two
// packs of four elements of each array, all loaded before the first is used.
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256, batch = 2; // packs per thread

// One element: p is the parameter and s the state. Both are stored afterwards; each rule changes what it
// owns.
struct LionRule {
    CudaLion spec;
    __device__ void operator()(float &p, float &s, float g) const {
        if (spec.keep_zeros && p == 0) {
            s = 0;
            return;
        }
        g *= spec.grad_scale;
        float direction = spec.beta1 * s + spec.rest1 * g;
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
        s = spec.beta2 * s + spec.rest2 * g;
        p -= spec.lr * (spec.decay * p + sign);
    }
};

struct SgdRule {
    CudaSgd spec;
    __device__ void operator()(float &p, float &s, float g) const {
        if (spec.keep_zeros && p == 0) {
            s = 0;
            return;
        }
        g = g * spec.grad_scale + spec.decay * p;
        s = spec.momentum * s + g;
        p -= spec.lr * (spec.nesterov ? g + spec.momentum * s : s);
    }
};

// Here p is the gradient, which is replaced, s its average and g the parameter.
struct MomentumRule {
    CudaMomentum spec;
    __device__ void operator()(float &p, float &s, float g) const {
        if (spec.keep_zeros && g == 0) {
            p = s = 0;
            return;
        }
        float scaled = p * spec.grad_scale;
        s = spec.beta * s + spec.rest * scaled;
        p = spec.of_average * s + spec.of_gradient * scaled;
    }
};

// copy may be NULL. A block takes threads * batch packs of N.
template <typename T, int N, typename Rule>
__global__ void __launch_bounds__(threads, 4)
    step_kernel(float *param, float *state, T *copy, const float *grad, int64_t count, Rule rule) {
    const int64_t first = (blockIdx.x * (int64_t)(threads * batch) + threadIdx.x) * N;
    Pack<float, N> p[batch], g[batch], s[batch];
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        p[b] = load_pack<float, N>(param + i);
        g[b] = load_pack<float, N>(grad + i);
        s[b] = load_pack<float, N>(state + i);
    }
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) {
            rule(p[b].at[j], s[b].at[j], g[b].at[j]);
            out.at[j] = from_float<T>(p[b].at[j]);
        }
        store_pack(param + i, p[b]);
        store_pack(state + i, s[b]);
        if (copy) store_pack(copy + i, out);
    }
    // The tail: fewer than N elements, one for each of the first threads.
    int64_t i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    rule(param[i], state[i], grad[i]);
    if (copy) copy[i] = from_float<T>(param[i]);
}

template <typename Rule>
cudaError_t launch_step(cudaStream_t stream, float *param, float *state, DType type, void *copy,
                        const float *grad, int64_t count, Rule rule) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(param, state, grad, copy))
            step_kernel<T, 4><<<blocks_for(count, threads * batch * 4), threads, 0, stream>>>(
                param, state, (T *)copy, grad, count, rule);
        else
            step_kernel<T, 1><<<blocks_for(count, threads * batch), threads, 0, stream>>>(
                param, state, (T *)copy, grad, count, rule);
        return cudaGetLastError();
    });
}

// A thread takes one pack of N; the last block also takes the tail.
template <typename T, int N>
__global__ void __launch_bounds__(threads)
    apply_kernel(float *param, T *copy, const float *update, int64_t count, float lr, float decay,
                 bool keep_zeros) {
    int64_t i = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (i + N <= count) {
        Pack<float, N> p = load_pack<float, N>(param + i), u = load_pack<float, N>(update + i);
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (!keep_zeros || p.at[j] != 0) p.at[j] -= lr * (decay * p.at[j] + u.at[j]);
            out.at[j] = from_float<T>(p.at[j]);
        }
        store_pack(param + i, p);
        if (copy) store_pack(copy + i, out);
    }
    i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    if (!keep_zeros || param[i] != 0) param[i] -= lr * (decay * param[i] + update[i]);
    if (copy) copy[i] = from_float<T>(param[i]);
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    normalize_kernel(T *y, const float *x, int64_t count, const double *total, float eps) {
    const float factor = (float)(1 / (sqrt(*total) + (double)eps));
    int64_t i = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (i + N <= count) {
        Pack<float, N> pack = load_pack<float, N>(x + i);
        Pack<T, N> out;
#pragma unroll
        for (int j = 0; j < N; j++) out.at[j] = from_float<T>(pack.at[j] * factor);
        store_pack(y + i, out);
    }
    i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    y[i] = from_float<T>(x[i] * factor);
}

} // namespace

cudaError_t launch_lion(cudaStream_t stream, float *param, float *m, DType type, void *copy,
                        const float *grad, int64_t count, CudaLion spec) {
    return launch_step(stream, param, m, type, copy, grad, count, LionRule{spec});
}

cudaError_t launch_sgd(cudaStream_t stream, float *param, float *m, DType type, void *copy, const float *grad,
                       int64_t count, CudaSgd spec) {
    return launch_step(stream, param, m, type, copy, grad, count, SgdRule{spec});
}

cudaError_t launch_momentum(cudaStream_t stream, float *grad, float *m, const float *param, int64_t count,
                            CudaMomentum spec) {
    return launch_step(stream, grad, m, DT_F32, NULL, param, count, MomentumRule{spec});
}

cudaError_t launch_apply(cudaStream_t stream, float *param, DType type, void *copy, const float *update,
                         int64_t count, float lr, float decay, bool keep_zeros) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(param, update, copy))
            apply_kernel<T, 4><<<blocks_for(count, threads * 4), threads, 0, stream>>>(
                param, (T *)copy, update, count, lr, decay, keep_zeros);
        else
            apply_kernel<T, 1><<<blocks_for(count, threads), threads, 0, stream>>>(
                param, (T *)copy, update, count, lr, decay, keep_zeros);
        return cudaGetLastError();
    });
}

cudaError_t launch_normalize(cudaStream_t stream, DType type, void *y, const float *x, int64_t count,
                             const double *total, float eps) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(x, y))
            normalize_kernel<T, 4>
                <<<blocks_for(count, threads * 4), threads, 0, stream>>>((T *)y, x, count, total, eps);
        else
            normalize_kernel<T, 1>
                <<<blocks_for(count, threads), threads, 0, stream>>>((T *)y, x, count, total, eps);
        return cudaGetLastError();
    });
}
