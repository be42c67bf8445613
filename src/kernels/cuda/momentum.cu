// Lion, SGD with momentum, and the parts of Muon that are not matmuls. As in optim.cu, a thread takes two
// packs of four elements of each array, all loaded before the first is used.
#include "kernels/cuda/param.cuh"

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

// A rule changes `x` and `state` and reads `other`. A block takes threads * batch packs of N.
template <typename X, typename Other, int N, typename Rule>
__global__ void __launch_bounds__(threads, 4)
    step_kernel(Param<X> x, float *state, Param<Other> other, int64_t count, Rule rule) {
    const int64_t first = (blockIdx.x * (int64_t)(threads * batch) + threadIdx.x) * N;
    Pack<float, N> p[batch], g[batch], s[batch];
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
        p[b] = x.template load<N>(i);
        g[b] = other.template load<N>(i);
        s[b] = load_pack<float, N>(state + i);
    }
#pragma unroll
    for (int b = 0; b < batch; b++) {
        int64_t i = first + b * threads * N;
        if (i + N > count) continue;
#pragma unroll
        for (int j = 0; j < N; j++) rule(p[b].at[j], s[b].at[j], g[b].at[j]);
        x.put(i, p[b]);
        store_pack(state + i, s[b]);
    }
    // The tail: fewer than N elements, one for each of the first threads.
    int64_t i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    float last = x.get(i);
    rule(last, state[i], other.get(i));
    x.put(i, last);
}

template <typename X, typename Other, typename Rule>
cudaError_t launch_step(cudaStream_t stream, Param<X> x, float *state, Param<Other> other, int64_t count,
                        bool aligned, Rule rule) {
    if (aligned)
        step_kernel<X, Other, 4>
            <<<blocks_for(count, threads * batch * 4), threads, 0, stream>>>(x, state, other, count, rule);
    else
        step_kernel<X, Other, 1>
            <<<blocks_for(count, threads * batch), threads, 0, stream>>>(x, state, other, count, rule);
    return cudaGetLastError();
}

// An update of parameters from gradients.
template <typename Rule>
cudaError_t launch_update(cudaStream_t stream, void *param, float *state, DType type, void *copy,
                          const float *grad, int64_t count, Rule rule) {
    return with_param(type, [&](auto t) {
        return launch_step(stream, Param<decltype(t)>(param, copy), state, Param<float>((void *)grad, NULL),
                           count, aligned_16(param, state, grad, copy), rule);
    });
}

// A thread takes one pack of N; the last block also takes the tail.
template <typename T, int N>
__global__ void __launch_bounds__(threads)
    apply_kernel(Param<T> param, const float *update, int64_t count, float lr, float decay, bool keep_zeros) {
    int64_t i = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (i + N <= count) {
        Pack<float, N> p = param.template load<N>(i), u = load_pack<float, N>(update + i);
#pragma unroll
        for (int j = 0; j < N; j++)
            if (!keep_zeros || p.at[j] != 0) p.at[j] -= lr * (decay * p.at[j] + u.at[j]);
        param.put(i, p);
    }
    i = count / N * N + threadIdx.x;
    if (blockIdx.x != gridDim.x - 1 || i >= count) return;
    float p = param.get(i);
    if (!keep_zeros || p != 0) p -= lr * (decay * p + update[i]);
    param.put(i, p);
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

cudaError_t launch_lion(cudaStream_t stream, void *param, float *m, DType type, void *copy, const float *grad,
                        int64_t count, CudaLion spec) {
    return launch_update(stream, param, m, type, copy, grad, count, LionRule{spec});
}

cudaError_t launch_sgd(cudaStream_t stream, void *param, float *m, DType type, void *copy, const float *grad,
                       int64_t count, CudaSgd spec) {
    return launch_update(stream, param, m, type, copy, grad, count, SgdRule{spec});
}

cudaError_t launch_momentum(cudaStream_t stream, float *grad, float *m, DType type, const void *param,
                            const void *copy, int64_t count, CudaMomentum spec) {
    auto run = [&](auto t) {
        return launch_step(stream, Param<float>(grad, NULL), m,
                           Param<decltype(t)>((void *)param, (void *)copy), count,
                           aligned_16(grad, m, param, copy), MomentumRule{spec});
    };
    return type == DT_REST ? run(Upper()) : run(float());
}

cudaError_t launch_apply(cudaStream_t stream, void *param, DType type, void *copy, const float *update,
                         int64_t count, float lr, float decay, bool keep_zeros) {
    return with_param(type, [&](auto t) {
        using T = decltype(t);
        Param<T> at(param, copy);
        if (aligned_16(param, update, copy))
            apply_kernel<T, 4><<<blocks_for(count, threads * 4), threads, 0, stream>>>(at, update, count, lr,
                                                                                       decay, keep_zeros);
        else
            apply_kernel<T, 1><<<blocks_for(count, threads), threads, 0, stream>>>(at, update, count, lr,
                                                                                   decay, keep_zeros);
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
