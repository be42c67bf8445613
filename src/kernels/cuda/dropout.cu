// Dropout on (B,T,C) tensors: forward with a residual, and backward, which redraws forward's mask. They
// differ only in the residual. Each warp processes a row.
#include "kernels/cuda/row.cuh"

namespace {

constexpr int threads = 256, block_rows = threads / 32;

template <typename T, int N>
__global__ void dropout_kernel(DroppedRows<T, false> source, int64_t rows, int64_t C) {
    chain_next();
    chain_wait();
    int64_t step = (int64_t)gridDim.x * block_rows;
    for (int64_t r = blockIdx.x * (int64_t)block_rows + threadIdx.x / 32; r < rows; r += step) {
        DroppedRow<T, false> row = source.row(r, C);
        for (int64_t c = threadIdx.x % 32 * N; c < C; c += 32 * N)
            row.template settle<N>(c, row.template read<N>(c));
    }
}

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
