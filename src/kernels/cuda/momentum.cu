// Lion, SGD with momentum, and the parts of Muon that are not matmuls. As in optim.cu, a thread takes two
// packs of four elements of each array, all loaded before the first is used.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/param.cuh"

namespace {

constexpr int threads = 256, batch = 2; // packs per thread

// One element: p is the parameter and s the state. Both are stored afterwards; each rule changes what it
// owns.
struct LionRule {
    Lion spec;
    float rest1, rest2; // 1 - beta
    __device__ void operator()(float &p, float &s, float g) const {
        if (spec.keep_zeros && p == 0) {
            s = 0;
            return;
        }
        g *= spec.grad_scale;
        float direction = spec.beta1 * s + rest1 * g;
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
        s = spec.beta2 * s + rest2 * g;
        p -= spec.lr * (spec.decay * p + sign);
    }
};

struct SgdRule {
    Sgd spec;
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

// Here p is the gradient, which becomes of_average * s + of_gradient * p, s its average and g the parameter.
struct MomentumRule {
    Momentum spec;
    float rest, of_average, of_gradient;
    __device__ void operator()(float &p, float &s, float g) const {
        if (spec.keep_zeros && g == 0) {
            p = s = 0;
            return;
        }
        float scaled = p * spec.grad_scale;
        s = spec.beta * s + rest * scaled;
        p = of_average * s + of_gradient * scaled;
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
cudaError_t launch_step(Stream *stream, Param<X> x, Tensor state, Param<Other> other, bool aligned,
                        Rule rule) {
    const int64_t count = tensor_count(state);
    auto kernel = aligned ? step_kernel<X, Other, 4, Rule> : step_kernel<X, Other, 1, Rule>;
    return launch_kernel(stream, kernel, blocks_for(count, threads * batch * (aligned ? 4 : 1)), threads, 0,
                         x, data<float>(state), other, count, rule);
}

// An update of parameters from gradients.
template <typename Rule>
cudaError_t launch_update(Stream *stream, Tensor param, Tensor state, Tensor copy, Tensor grad, Rule rule) {
    return with_param(param_type(param, copy), [&](auto t) {
        return launch_step(stream, Param<decltype(t)>(param.data, copy.data), state,
                           Param<float>(grad.data, NULL), aligned_16(param, state, grad, copy), rule);
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

// 1 - beta, rounded once.
float rest_of(float beta) {
    return (float)(1 - (double)beta);
}

} // namespace

Status lion_step_cuda(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    LionRule rule = {spec, rest_of(spec.beta1), rest_of(spec.beta2)};
    return cuda_status(launch_update(stream, param, m, copy, grad, rule), __func__);
}

Status sgd_step_cuda(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    return cuda_status(launch_update(stream, param, m, copy, grad, SgdRule{spec}), __func__);
}

Status momentum_step_cuda(Stream *stream, Tensor grad, Tensor m, Tensor param, Tensor copy, Momentum spec) {
    const float rest = rest_of(spec.beta);
    MomentumRule rule = {spec, rest, spec.nesterov ? spec.beta : 1, spec.nesterov ? rest : 0};
    auto run = [&](auto t) {
        return launch_step(stream, Param<float>(grad.data, NULL), m,
                           Param<decltype(t)>(param.data, copy.data), aligned_16(grad, m, param, copy), rule);
    };
    return cuda_status(param.dtype == DT_F32_LOWER ? run(Upper()) : run(float()), __func__);
}

Status apply_step_cuda(Stream *stream, Tensor param, Tensor copy, Tensor update, Apply spec) {
    const int64_t count = tensor_count(param);
    cudaError_t error = with_param(param_type(param, copy), [&](auto t) {
        using T = decltype(t);
        const bool aligned = aligned_16(param, update, copy);
        return launch_kernel(stream, aligned ? apply_kernel<T, 4> : apply_kernel<T, 1>,
                             blocks_for(count, threads * (aligned ? 4 : 1)), threads, 0,
                             Param<T>(param.data, copy.data), data<float>(update), count, spec.lr, spec.decay,
                             spec.keep_zeros);
    });
    return cuda_status(error, __func__);
}

// y = x / (sqrt(*total) + eps)
Status normalize_cuda(Stream *stream, Tensor y, Tensor x, Tensor total, float eps) {
    const int64_t count = tensor_count(x);
    cudaError_t error = with_type(y.dtype, [&](auto t) {
        using T = decltype(t);
        const bool aligned = aligned_16(x, y);
        return launch_kernel(stream, aligned ? normalize_kernel<T, 4> : normalize_kernel<T, 1>,
                             blocks_for(count, threads * (aligned ? 4 : 1)), threads, 0, data<T>(y),
                             data<float>(x), count, data<double>(total), eps);
    });
    return cuda_status(error, __func__);
}
