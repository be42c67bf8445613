// Array arithmetic. A thread processes 16 bytes of the wider type at a time; the tail, and arrays that are
// not aligned to that, go element by element.
#include "kernels/cuda/device.cuh"

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
cudaError_t combine(cudaStream_t stream, Y *y, const X *x, int64_t count, Op op) {
    constexpr int N = 16 / (sizeof(Y) > sizeof(X) ? sizeof(Y) : sizeof(X));
    if (aligned(y, N) && aligned(x, N))
        combine_kernel<Y, X, N><<<blocks_for(count, threads * N), threads, 0, stream>>>(y, x, count, op);
    else
        combine_kernel<Y, X, 1><<<blocks_for(count, threads), threads, 0, stream>>>(y, x, count, op);
    return cudaGetLastError();
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

} // namespace

cudaError_t launch_fill(cudaStream_t stream, DType type, void *x, int64_t count, float value) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        unsigned blocks = blocks_for(count, threads);
        if (blocks > 4096) blocks = 4096;
        fill_kernel<<<blocks, threads, 0, stream>>>((T *)x, count, value);
        return cudaGetLastError();
    });
}

cudaError_t launch_convert(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count) {
    if (to == DT_F64 && from == DT_F64)
        return combine(stream, (double *)y, (const double *)x, count, CopyFromDouble{});
    if (to == DT_F64)
        return with_type(from, [&](auto t) {
            return combine(stream, (double *)y, (const decltype(t) *)x, count, CopyToDouble{});
        });
    return with_type(to, [&](auto t) {
        using Y = decltype(t);
        if (from == DT_F64) return combine(stream, (Y *)y, (const double *)x, count, CopyFromDouble{});
        return with_type(
            from, [&](auto u) { return combine(stream, (Y *)y, (const decltype(u) *)x, count, Copy{}); });
    });
}

cudaError_t launch_add(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count) {
    return with_type(to, [&](auto t) {
        using Y = decltype(t);
        return with_type(
            from, [&](auto u) { return combine(stream, (Y *)y, (const decltype(u) *)x, count, Add{}); });
    });
}

cudaError_t launch_scale(cudaStream_t stream, DType type, void *y, int64_t count, float factor) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        return combine(stream, (T *)y, (const T *)y, count, Scale{factor});
    });
}
