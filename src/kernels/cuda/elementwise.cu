// Array arithmetic. A thread processes 16 bytes of the wider type at a time; the tail, and arrays that are
// not aligned to that, go element by element.
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 256;

template <typename T> __global__ void fill_kernel(T *x, int64_t count, float value) {
    for (int64_t i = blockIdx.x * (int64_t)threads + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * threads)
        x[i] = from_float<T>(value);
}

template <typename T> bool aligned(const T *pointer, int elements) {
    return (uintptr_t)pointer % (sizeof(T) * elements < 16 ? sizeof(T) * elements : 16) == 0;
}

// y[i] = op(y[i], x[i]) for all i.
template <typename Y, typename X, int N, typename Op>
__global__ void combine_kernel(Y *y, const X *x, int64_t count, Op op) {
    int64_t first = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (first + N <= count) {
        Pack<X, N> in = load_pack<X, N>(x + first);
        Pack<Y, N> out = Op::reads ? load_pack<Y, N>(y + first) : Pack<Y, N>{};
#pragma unroll
        for (int i = 0; i < N; i++) out.at[i] = op(out.at[i], in.at[i]);
        store_pack(y + first, out);
    } else {
        for (int64_t i = first; i < count; i++) y[i] = op(y[i], x[i]);
    }
}

template <typename Y, typename X, typename Op>
cudaError_t combine(Stream *stream, Tensor to, Tensor from, Op op) {
    constexpr int N = 16 / (sizeof(Y) > sizeof(X) ? sizeof(Y) : sizeof(X));
    Y *y = data<Y>(to);
    const X *x = data<X>(from);
    const int64_t count = tensor_count(to);
    if (aligned(y, N) && aligned(x, N))
        return launch_kernel(stream, combine_kernel<Y, X, N, Op>, blocks_for(count, threads * N), threads, 0,
                             y, x, count, op);
    return launch_kernel(stream, combine_kernel<Y, X, 1, Op>, blocks_for(count, threads), threads, 0, y, x,
                         count, op);
}

struct Copy {
    static constexpr bool reads = false;
    template <typename Y, typename X> __device__ Y operator()(Y, X x) const {
        return from_float<Y>(to_float(x));
    }
};
struct CopyFromDouble {
    static constexpr bool reads = false;
    template <typename Y> __device__ Y operator()(Y, double x) const { return from_float<Y>((float)x); }
    __device__ double operator()(double, double x) const { return x; }
};
struct CopyToDouble {
    static constexpr bool reads = false;
    template <typename X> __device__ double operator()(double, X x) const { return to_float(x); }
};
struct Add {
    static constexpr bool reads = true;
    template <typename Y, typename X> __device__ Y operator()(Y y, X x) const {
        return from_float<Y>(to_float(y) + to_float(x));
    }
};
struct Scale {
    static constexpr bool reads = false;
    float factor;
    template <typename Y, typename X> __device__ Y operator()(Y, X x) const {
        return from_float<Y>(to_float(x) * factor);
    }
};

// Of y and x of floating-point types.
template <typename Op> cudaError_t combine_all(Stream *stream, Tensor y, Tensor x, Op op) {
    return with_type(y.dtype, [&](auto t) {
        return with_type(x.dtype,
                         [&](auto u) { return combine<decltype(t), decltype(u)>(stream, y, x, op); });
    });
}

cudaError_t convert(Stream *stream, Tensor y, Tensor x) {
    if (y.dtype == DT_F64 && x.dtype == DT_F64)
        return combine<double, double>(stream, y, x, CopyFromDouble{});
    if (y.dtype == DT_F64)
        return with_type(x.dtype,
                         [&](auto t) { return combine<double, decltype(t)>(stream, y, x, CopyToDouble{}); });
    if (x.dtype == DT_F64)
        return with_type(
            y.dtype, [&](auto t) { return combine<decltype(t), double>(stream, y, x, CopyFromDouble{}); });
    return combine_all(stream, y, x, Copy{});
}

} // namespace

Status fill_cuda(Stream *stream, Tensor x, float value) {
    const int64_t count = tensor_count(x);
    const unsigned blocks = blocks_for(count, threads);
    cudaError_t error = with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, fill_kernel<T>, blocks < 4096 ? blocks : 4096, threads, 0, data<T>(x),
                             count, value);
    });
    return cuda_status(error, __func__);
}

Status convert_cuda(Stream *stream, Tensor y, Tensor x) {
    return cuda_status(convert(stream, y, x), __func__);
}

Status add_cuda(Stream *stream, Tensor y, Tensor x) {
    return cuda_status(combine_all(stream, y, x, Add{}), __func__);
}

Status scale_cuda(Stream *stream, Tensor y, float factor) {
    cudaError_t error = with_type(y.dtype, [&](auto t) {
        using T = decltype(t);
        return combine<T, T>(stream, y, y, Scale{factor});
    });
    return cuda_status(error, __func__);
}
