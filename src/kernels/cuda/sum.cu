// Totals in fp64: blocks sum strides of the array, one more block sums the blocks. How many blocks there are
// depends on the count alone; a short array needs but one, which adds to the total itself. A thread has
// several loads under way before it uses the first.
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256, most_blocks = 6 * 132, block_elements = 8192;
constexpr int batch = 4;            // packs a thread loads at once
constexpr int final_threads = 1024; // of the block that sums the blocks

template <bool SQUARES> __device__ inline double term(float x) {
    return SQUARES ? (double)x * x : (double)x;
}

// `out` (blocks) receives the blocks' sums; with `add`, the only block adds to it.
template <typename T, int N, bool SQUARES>
__global__ void __launch_bounds__(threads, 6) sum_kernel(double *out, const T *x, int64_t count, bool add) {
    __shared__ double room[32];
    const int64_t whole = count / N * N, step = (int64_t)gridDim.x * threads * N;
    int64_t i = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    double total = 0;
#pragma unroll 1
    for (; i + (batch - 1) * step < whole; i += batch * step) {
        Pack<T, N> pack[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) pack[b] = load_pack<T, N>(x + i + b * step);
#pragma unroll
        for (int b = 0; b < batch; b++) {
            forget(pack[b]);
#pragma unroll
            for (int j = 0; j < N; j++) total += term<SQUARES>(to_float(pack[b].at[j]));
        }
    }
#pragma unroll 1
    for (; i < whole; i += step) {
        Pack<T, N> pack = load_pack<T, N>(x + i);
#pragma unroll
        for (int j = 0; j < N; j++) total += term<SQUARES>(to_float(pack.at[j]));
    }
    if (blockIdx.x == 0 && whole + threadIdx.x < count)
        total += term<SQUARES>(to_float(x[whole + threadIdx.x]));
    total = block_sum<double, threads>(total, room);
    if (threadIdx.x == 0) out[blockIdx.x] = add ? out[blockIdx.x] + total : total;
}

__global__ void __launch_bounds__(final_threads)
    sum_blocks_kernel(double *out, const double *partial, int blocks) {
    __shared__ double room[32];
    double total = 0;
    for (int i = threadIdx.x; i < blocks; i += final_threads) total += partial[i];
    total = block_sum<double, final_threads>(total, room);
    if (threadIdx.x == 0) *out += total;
}

template <typename T, int N>
void start(cudaStream_t stream, int blocks, double *out, const T *x, int64_t count, bool squares) {
    if (squares)
        sum_kernel<T, N, true><<<blocks, threads, 0, stream>>>(out, x, count, blocks == 1);
    else
        sum_kernel<T, N, false><<<blocks, threads, 0, stream>>>(out, x, count, blocks == 1);
}

} // namespace

size_t sum_partial_bytes(void) {
    return most_blocks * sizeof(double);
}

cudaError_t launch_sum(cudaStream_t stream, DType type, double *total, const void *x, int64_t count,
                       bool squares, double *partial) {
    int64_t needed = (count + block_elements - 1) / block_elements;
    int blocks = (int)(needed < most_blocks ? needed : most_blocks);
    double *out = blocks == 1 ? total : partial;
    cudaError_t error = with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(x))
            start<T, pack_size<T>>(stream, blocks, out, (const T *)x, count, squares);
        else
            start<T, 1>(stream, blocks, out, (const T *)x, count, squares);
        return cudaGetLastError();
    });
    if (error != cudaSuccess || blocks == 1) return error;
    sum_blocks_kernel<<<1, final_threads, 0, stream>>>(total, partial, blocks);
    return cudaGetLastError();
}
