// Dropout on (B,T,C) tensors: forward with a residual, and backward, which redraws forward's mask. They
// differ only in the residual. Each warp processes a row. Backward can also sum columns, in the pass of
// columns.cuh.
#include "kernels/cuda/columns.cuh"

namespace {

constexpr int threads = 256, block_rows = threads / 32;

// Two packs per lane are in flight.
template <typename T, int N>
__global__ void dropout_kernel(DroppedRows<T, false> source, int64_t rows, int64_t C) {
    constexpr int width = 32 * N;
    source.begin();
    chain_next();
    chain_wait();
    int64_t step = (int64_t)gridDim.x * block_rows;
    for (int64_t r = blockIdx.x * (int64_t)block_rows + threadIdx.x / 32; r < rows; r += step) {
        DroppedRow<T, false> row = source.row(r, C);
        for (int64_t c = threadIdx.x % 32 * N; c < C; c += 2 * width) {
            typename DroppedRow<T, false>::template Raw<N> first = row.template read<N>(c), second = first;
            if (c + width < C) second = row.template read<N>(c + width);
            row.template settle<N>(c, first);
            if (c + width < C) row.template settle<N>(c + width, second);
        }
    }
}

// dx = dropout(dy), which is also stored, for column sums. dx may alias dy.
template <typename T> struct Dropped {
    static constexpr int blocks = 4; // per multiprocessor
    T *dx;
    const T *dy;
    CudaDropout dropout;
    int64_t positions; // rows per sequence
    template <int V> using Raw = Pack<T, V>;
    __device__ void begin() { dropout_begin(dropout); }
    template <int V> __device__ Raw<V> read(int64_t at) const { return load_pack<T, V>(dy + at); }
    template <int V> __device__ Pack<T, V> settle(const Cell &cell, Raw<V> raw) const {
        uint32_t drawn = ~0u;
        float scale = 1, kept[V];
        if (dropout.threshold) {
            uint64_t index = dropout_row_of(dropout, cell.row, positions) + (uint64_t)cell.col;
            drawn = dropout_kept<V>(dropout, index);
            scale = dropout.scale;
        }
#pragma unroll
        for (int i = 0; i < V; i++) kept[i] = to_float(raw.at[i]) * (drawn >> i & 1 ? scale : 0.0f);
        Pack<T, V> out = pack_of<T>(kept);
        store_whole(dx + cell.at, out);
        return out;
    }
};

} // namespace

cudaError_t launch_dropout_add(cudaStream_t stream, DType type, void *out, const void *res, const void *y,
                               int64_t rows, int64_t C, int64_t positions, CudaDropout dropout) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        constexpr int N = pack_size<T>;
        DroppedRows<T, false> source = {(T *)out, (const T *)res, (const T *)y, dropout, positions};
        unsigned blocks = blocks_for(rows, block_rows);
        if (C % N == 0 && aligned_16(out, res, y))
            return launch_chained(stream, dropout_kernel<T, N>, blocks, threads, 0, source, rows, C);
        return launch_chained(stream, dropout_kernel<T, 1>, blocks, threads, 0, source, rows, C);
    });
}

cudaError_t launch_dropout_sums(cudaStream_t stream, DType type, void *dx, float *sums, const void *dy,
                                int64_t rows, int64_t C, int64_t positions, CudaDropout dropout,
                                float *scratch) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        Dropped<T> source = {(T *)dx, (const T *)dy, dropout, positions};
        if (C % pack_size<T> == 0 && aligned_16(dx, dy))
            return add_columns<pack_size<T>>(stream, sums, source, rows, C, scratch);
        return add_columns<1>(stream, sums, source, rows, C, scratch);
    });
}
