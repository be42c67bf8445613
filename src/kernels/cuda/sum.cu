// Reductions in fp64: blocks sum strides of the array, and one more block sums the blocks. The number of
// blocks depends on the element count alone; a short array needs only one, which adds to the total itself.
// A thread has several loads in flight. In an array that is split into parts, each part has as many blocks
// as it would have alone, and they add the same elements in the same order.
#define GPU_FUNCTION __host__ __device__ static inline
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256;
constexpr int batch = 4;            // packs that a thread has in flight
constexpr int final_threads = 1024; // threads of the block that sums the blocks

template <bool SQUARES> __device__ inline double term(float x) {
    return SQUARES ? (double)x * x : (double)x;
}

// A thread's part of the sum of one of several blocks.
template <typename T, int N, bool SQUARES>
__device__ inline double sum_strided(const T *x, int64_t count, int block, int blocks) {
    const int64_t full = count / N * N, step = (int64_t)blocks * threads * N;
    int64_t i = (block * (int64_t)threads + threadIdx.x) * N;
    double total = 0;
#pragma unroll 1
    for (; i + (batch - 1) * step < full; i += batch * step) {
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
    for (; i < full; i += step) {
        Pack<T, N> pack = load_pack<T, N>(x + i);
#pragma unroll
        for (int j = 0; j < N; j++) total += term<SQUARES>(to_float(pack.at[j]));
    }
    if (block == 0 && full + threadIdx.x < count) total += term<SQUARES>(to_float(x[full + threadIdx.x]));
    return total;
}

// out (blocks) = the blocks' sums; with `add`, a single block adds to it.
template <typename T, int N, bool SQUARES>
__global__ void __launch_bounds__(threads, 6) sum_kernel(double *out, const T *x, int64_t count, bool add) {
    __shared__ double buffer[32];
    chain_next();
    chain_wait();
    double total = sum_strided<T, N, SQUARES>(x, count, blockIdx.x, gridDim.x);
    total = block_sum<double, threads>(total, buffer);
    if (threadIdx.x == 0) out[blockIdx.x] = add ? out[blockIdx.x] + total : total;
}

__global__ void __launch_bounds__(final_threads)
    sum_blocks_kernel(double *out, const double *partial, int blocks) {
    __shared__ double buffer[32];
    double total = 0;
    chain_next();
    chain_wait();
    for (int i = threadIdx.x; i < blocks; i += final_threads) total += partial[i];
    total = block_sum<double, final_threads>(total, buffer);
    if (threadIdx.x == 0) *out += total;
}

struct Span {
    int64_t from, count;
};

__device__ inline Span span_of(const SumParts &split, int part) {
    int64_t from = part * split.share - split.skip, to = from + split.share;
    if (from < 0) from = 0;
    if (to > split.count) to = split.count;
    return {from, to - from};
}

// partial (parts,each)
__global__ void __launch_bounds__(threads) sum_parts_kernel(double *partial, const float *x, SumParts split) {
    __shared__ double buffer[32];
    const int block = blockIdx.x % split.each;
    const Span span = span_of(split, split.first + (int)(blockIdx.x / split.each));
    const int blocks = sum_blocks(span.count);
    if (block >= blocks) return;
    const float *own = x + span.from;
    double total = (uintptr_t)own % 16 == 0
                       ? sum_strided<float, pack_size<float>, true>(own, span.count, block, blocks)
                       : sum_strided<float, 1, true>(own, span.count, block, blocks);
    total = block_sum<double, threads>(total, buffer);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(final_threads)
    sum_parts_blocks_kernel(double *totals, const double *partial, SumParts split) {
    __shared__ double buffer[32];
    const int part = split.first + blockIdx.x, blocks = sum_blocks(span_of(split, part).count);
    double total = 0;
    for (int i = threadIdx.x; i < blocks; i += final_threads)
        total += partial[(int64_t)blockIdx.x * split.each + i];
    total = block_sum<double, final_threads>(total, buffer);
    if (threadIdx.x == 0) totals[part] += total;
}

template <typename T, int N>
cudaError_t start(cudaStream_t stream, int blocks, double *out, const T *x, int64_t count, bool squares) {
    auto kernel = squares ? sum_kernel<T, N, true> : sum_kernel<T, N, false>;
    return launch_chained(stream, kernel, blocks, threads, 0, out, x, count, blocks == 1);
}

} // namespace

cudaError_t launch_sum(cudaStream_t stream, DType type, double *total, const void *x, int64_t count,
                       bool squares, double *partial) {
    int blocks = sum_blocks(count);
    double *out = blocks == 1 ? total : partial;
    cudaError_t error = with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(x)) return start<T, pack_size<T>>(stream, blocks, out, (const T *)x, count, squares);
        return start<T, 1>(stream, blocks, out, (const T *)x, count, squares);
    });
    if (error != cudaSuccess || blocks == 1) return error;
    return launch_chained(stream, sum_blocks_kernel, 1, final_threads, 0, total, (const double *)partial,
                          blocks);
}

cudaError_t launch_sum_parts(cudaStream_t stream, double *totals, const float *x, int64_t count, int64_t skip,
                             int64_t share, double *partial) {
    SumParts split = sum_parts_of(count, skip, share);
    sum_parts_kernel<<<(unsigned)split.parts *(unsigned)split.each, threads, 0, stream>>>(partial, x, split);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    sum_parts_blocks_kernel<<<split.parts, final_threads, 0, stream>>>(totals, partial, split);
    return cudaGetLastError();
}
