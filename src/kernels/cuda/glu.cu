// Gated activations. A row of x is gate (F), then up (F). A thread processes 16 bytes of each at a time.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 256;

// The row and first column of a thread's elements; `parts` blocks share a row.
struct Place {
    int64_t row, c;
};
template <int N> __device__ inline Place place_of(unsigned parts) {
    return {blockIdx.x / parts, (int64_t)(blockIdx.x % parts * threads + threadIdx.x) * N};
}

template <typename T, int N, Act ACT>
__global__ void __launch_bounds__(threads) forward_kernel(T *y, const T *x, int64_t F, unsigned parts) {
    const Place at = place_of<N>(parts);
    chain_next();
    chain_wait();
    if (at.c >= F) return;
    const T *from = x + at.row * 2 * F + at.c;
    Pack<T, N> gate = load_pack<T, N>(from), up = load_pack<T, N>(from + F);
    float out[N];
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = act_value<ACT>(to_float(gate.at[i])) * to_float(up.at[i]);
    store_pack(y + at.row * F + at.c, pack_of<T>(out));
}

template <typename T, int N, Act ACT>
__global__ void __launch_bounds__(threads)
    backward_kernel(T *dx, T *y, const T *dy, const T *x, int64_t F, unsigned parts) {
    const Place at = place_of<N>(parts);
    if (at.c >= F) return;
    const int64_t from = at.row * 2 * F + at.c;
    Pack<T, N> gate = load_pack<T, N>(x + from), up = load_pack<T, N>(x + from + F);
    Pack<T, N> grad = load_pack<T, N>(dy + at.row * F + at.c);
    float dgate[N], dup[N], out[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        float g = to_float(gate.at[i]), d = to_float(grad.at[i]), value = act_value<ACT>(g);
        dgate[i] = d * to_float(up.at[i]) * act_derivative<ACT>(g);
        dup[i] = d * value;
        out[i] = value * to_float(up.at[i]);
    }
    if (y) store_pack(y + at.row * F + at.c, pack_of<T>(out));
    store_pack(dx + from, pack_of<T>(dgate));
    store_pack(dx + from + F, pack_of<T>(dup));
}

} // namespace

Status glu_forward_cuda(Stream *stream, Tensor y, Tensor x, Act act) {
    const int64_t rows = tensor_rows(y), F = tensor_cols(y);
    cudaError_t error = with_packs(y.dtype, aligned_16(y, x), F, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_act(act, [&](auto tag) {
            unsigned parts = blocks_for(F, threads * N);
            return launch_chained(stream, forward_kernel<T, N, decltype(tag)::act>, (unsigned)rows * parts,
                                  threads, 0, data<T>(y), data<T>(x), F, parts);
        });
    });
    return cuda_status(error, __func__);
}

// y may be absent or dy, and dx may be x.
Status glu_backward_cuda(Stream *stream, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    const int64_t rows = tensor_rows(dy), F = tensor_cols(dy);
    cudaError_t error = with_packs(dy.dtype, aligned_16(dx, y, dy, x), F, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_act(act, [&](auto tag) {
            unsigned parts = blocks_for(F, threads * N);
            return launch_kernel(stream, backward_kernel<T, N, decltype(tag)::act>, (unsigned)rows * parts,
                                 threads, 0, data<T>(dx), data<T>(y), data<T>(dy), data<T>(x), F, parts);
        });
    });
    return cuda_status(error, __func__);
}
