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

cudaError_t add_dropped(Stream *stream, Tensor out, Tensor res, Tensor y, const Dropout &dropout) {
    const int64_t rows = tensor_rows(y), C = tensor_cols(y);
    return with_packs(y.dtype, aligned_16(out, res, y), C, [&](auto t, auto n) {
        using T = decltype(t);
        return launch_chained(stream, dropout_kernel<T, n.value>, blocks_for(rows, block_rows), threads, 0,
                              dropped_rows<T, false>(out, res, y, dropout), rows, C);
    });
}

} // namespace

Status dropout_add_forward_cuda(Stream *stream, Tensor out, Tensor res, Tensor y, Dropout dropout) {
    return cuda_status(add_dropped(stream, out, res, y, dropout), __func__);
}

Status dropout_backward_cuda(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    const int64_t rows = tensor_rows(dy), C = tensor_cols(dy);
    void *scratch;
    if (!sums.data) return cuda_status(add_dropped(stream, dx, TENSOR_NONE, dy, dropout), __func__);
    TRY(stream_workspace(stream, column_sums_bytes(rows, C), &scratch));
    LAUNCH(with_packs(dy.dtype, aligned_16(dx, dy), C, [&](auto t, auto n) {
        using T = decltype(t);
        Dropped<T> source = {data<T>(dx), data<T>(dy), cuda_dropout(&dropout), positions_of(dy, dropout)};
        return add_columns<n.value>(stream, sums, source, rows, C, scratch);
    }));
    return OK;
}
