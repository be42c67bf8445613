// Column sums for bias gradients, of a tensor or of what another pass stores anyway.
//
// They take two passes. In the first, a block sums a chunk of rows of 32 or 32 * pack_size columns into a row
// of partial sums; the second adds those in order. The chunks depend on the shape alone, and so does the
// order of every sum, whether rows are read in packs or not. Few rows take one pass with narrower columns: a
// second launch would cost more than it saves.
#ifndef WEFT_KERNELS_CUDA_COLUMNS_CUH
#define WEFT_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/row.cuh"

namespace {

constexpr int column_threads = 256, column_warps = column_threads / 32;
constexpr int few_rows = 1024, few_threads = 1024, few_warps = few_threads / 32; // one pass

// The first of V elements to sum.
struct Cell {
    int64_t row, col, at; // at: its index in the tensor
};

// What is summed: the rows of a tensor. A kernel calls `begin` first. Elements are taken in two steps, so
// that the loads of several rows are in flight before the first is used.
template <typename T> struct Plain {
    static constexpr int blocks = 8; // per multiprocessor
    const T *x;
    template <int V> using Raw = Pack<T, V>;
    __device__ void begin() {}
    template <int V> __device__ Raw<V> read(int64_t at) const { return load_pack<T, V>(x + at); }
    template <int V> __device__ Pack<T, V> settle(const Cell &, const Raw<V> &raw) const { return raw; }
};

// One store of up to 16 bytes; the compiler splits that of a Pack in the loops below.
template <typename T, int V> __device__ inline void store_whole(T *to, const Pack<T, V> &pack) {
    if constexpr (sizeof pack == 16) {
        const uint4 words = *reinterpret_cast<const uint4 *>(&pack);
        asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(words.x), "r"(words.y),
                     "r"(words.z), "r"(words.w)
                     : "memory");
    } else {
        store_pack(to, pack);
    }
}

// Adds every `step`th row from `row` to `last` to the sums of columns col .. col + V - 1, in order, with the
// loads of BATCH rows in flight.
template <int V, int BATCH, typename Source>
__device__ inline void sum_rows(float (&sum)[V], const Source &source, int64_t row, int64_t last, int step,
                                int64_t cols, int64_t col) {
    using Raw = typename Source::template Raw<V>;
    auto add = [&](int64_t r, const Raw &raw) {
        auto in = source.template settle<V>(Cell{r, col, r * cols + col}, raw);
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += to_float(in.at[v]);
    };
#pragma unroll 1
    for (; row + (BATCH - 1) * step < last; row += BATCH * step) {
        Raw raw[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) raw[b] = source.template read<V>((row + b * step) * cols + col);
#pragma unroll
        for (int b = 0; b < BATCH; b++) add(row + b * step, raw[b]);
    }
#pragma unroll 1
    for (; row < last; row += step) add(row, source.template read<V>(row * cols + col));
}

// Row blockIdx.y of partial (chunks,cols) = column sums of the `each` rows from blockIdx.y * each. If V >
// 1, cols is a multiple of V.
template <typename Source, int V>
__global__ void __launch_bounds__(column_threads, Source::blocks)
    partial_sums_kernel(float *partial, Source source, int64_t rows, int64_t cols, int64_t each) {
    __shared__ float buffer[column_warps][V * 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t col = (blockIdx.x * (int64_t)32 + lane) * V;
    int64_t first = blockIdx.y * each, last = first + each < rows ? first + each : rows;
    float sum[V] = {};
    source.begin();
    chain_next();
    chain_wait();
    if (col < cols) sum_rows<V, 4>(sum, source, first + warp, last, column_warps, cols, col);
#pragma unroll
    for (int v = 0; v < V; v++) buffer[warp][v * 32 + lane] = sum[v];
    __syncthreads();
    for (int i = threadIdx.x; i < V * 32; i += column_threads) {
        int64_t out = (blockIdx.x * (int64_t)32 + i % 32) * V + i / 32;
        if (out >= cols) continue;
        float total = 0;
        for (int w = 0; w < column_warps; w++) total += buffer[w][i];
        partial[blockIdx.y * cols + out] = total;
    }
}

// sums (cols) += column sums. A block has 32 * V columns, a warp every 32nd row of them.
template <typename Source, int V>
__global__ void __launch_bounds__(few_threads)
    few_sums_kernel(float *sums, Source source, int64_t rows, int64_t cols) {
    __shared__ float buffer[few_warps][V * 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t col = (blockIdx.x * (int64_t)32 + lane) * V;
    float sum[V] = {};
    source.begin();
    chain_next();
    chain_wait();
    if (col < cols) sum_rows<V, 8>(sum, source, warp, rows, few_warps, cols, col);
#pragma unroll
    for (int v = 0; v < V; v++) buffer[warp][lane * V + v] = sum[v];
    __syncthreads();
    int64_t out = blockIdx.x * (int64_t)32 * V + threadIdx.x;
    if (threadIdx.x >= 32 * V || out >= cols) return;
    float total = 0;
#pragma unroll
    for (int w = 0; w < few_warps; w++) total += buffer[w][threadIdx.x];
    sums[out] += total;
}

// sums (cols) += column sums of what `source` provides, V elements at a time.
template <int V, typename Source>
cudaError_t add_columns(Stream *stream, Tensor to, const Source &source, int64_t rows, int64_t cols,
                        void *scratch) {
    float *sums = data<float>(to), *partial = (float *)scratch;
    if (rows <= few_rows) {
        constexpr int few = V < 2 ? V : 2;
        return launch_chained(stream, few_sums_kernel<Source, few>, blocks_for(cols, 32 * few), few_threads,
                              0, sums, source, rows, cols);
    }
    int64_t chunks = column_chunks(rows, cols);
    dim3 grid(blocks_for(cols, 32 * V), (unsigned)chunks);
    cudaError_t error = launch_chained(stream, partial_sums_kernel<Source, V>, grid, column_threads, 0,
                                       partial, source, rows, cols, (rows + chunks - 1) / chunks);
    if (error != cudaSuccess) return error;
    return add_partials(stream, Sums{{sums}, cols}, 1, partial, (int)chunks);
}

} // namespace

#endif
