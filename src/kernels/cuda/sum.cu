// Reductions in fp64: blocks sum strides of the array, and one more block sums the blocks. The number of
// blocks depends on the element count alone; a short array needs only one, which adds to the total itself.
// A thread has several loads in flight. In an array that is split into parts, each part has as many blocks
// as it would have alone, and they add the same elements in the same order.
#define GPU_FUNCTION __host__ __device__ static inline
#include "kernels/cuda/chain.cuh"

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

cudaError_t add_up(Stream *stream, Tensor total, Tensor x, bool squares, double *partial) {
    const int64_t count = tensor_count(x);
    const int blocks = sum_blocks(count);
    double *out = blocks == 1 ? data<double>(total) : partial;
    cudaError_t error = with_packs(x.dtype, aligned_16(x), 0, [&](auto t, auto n) {
        using T = decltype(t);
        auto kernel = squares ? sum_kernel<T, n.value, true> : sum_kernel<T, n.value, false>;
        return launch_chained(stream, kernel, blocks, threads, 0, out, data<T>(x), count, blocks == 1);
    });
    if (error != cudaSuccess || blocks == 1) return error;
    return launch_chained(stream, sum_blocks_kernel, 1, final_threads, 0, data<double>(total), partial,
                          blocks);
}

} // namespace

Status sum_cuda(Stream *stream, Tensor total, Tensor x) {
    void *partial;
    TRY(stream_workspace(stream, sum_partial_bytes(), &partial));
    return cuda_status(add_up(stream, total, x, false, (double *)partial), __func__);
}

Status sum_squares_cuda(Stream *stream, Tensor total, Tensor x) {
    void *partial;
    TRY(stream_workspace(stream, sum_partial_bytes(), &partial));
    return cuda_status(add_up(stream, total, x, true, (double *)partial), __func__);
}

Status sum_squares_parts_cuda(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    void *partial;
    const int64_t count = tensor_count(x);
    const SumParts split = sum_parts_of(count, skip, share);
    TRY(stream_workspace(stream, sum_parts_bytes(count, skip, share), &partial));
    LAUNCH(launch_kernel(stream, sum_parts_kernel, (unsigned)split.parts * (unsigned)split.each, threads, 0,
                         (double *)partial, data<float>(x), split));
    LAUNCH(launch_kernel(stream, sum_parts_blocks_kernel, split.parts, final_threads, 0, data<double>(totals),
                         (double *)partial, split));
    return OK;
}
