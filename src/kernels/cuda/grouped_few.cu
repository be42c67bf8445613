// Linear layers of experts for few rows in 16 bits, as in generation: skinny GEMMs (skinny.cuh) of up to 16
// rows of an expert. Only the weights of experts with rows are read.
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/skinny.cuh"

namespace {

constexpr int warps = 8; // several blocks per multiprocessor, which find their tiles at different times

// Blocks x are columns, and y are tiles of rows.
template <typename T, int TILES> __global__ void __launch_bounds__(warps * 32) few_kernel(CudaGrouped call) {
    chain_next();
    chain_wait();
    const RowTile tile = find_row_tile(call.offsets, (int)call.E, skinny_rows, (int)blockIdx.y);
    if (!tile.rows) return;
    const int N = (int)call.N, K = (int)call.K;
    const SkinnyBlock<T> block = {(const T *)call.a + (int64_t)tile.first * K,
                                  (const T *)call.b + (int64_t)tile.expert * N * K,
                                  tile.rows,
                                  N,
                                  K,
                                  (int)blockIdx.x * TILES * skinny_tile};
    T *out = (T *)call.out + (int64_t)tile.first * N;
    skinny_block<T, warps, TILES>(
        block, [] {}, [&](int row, int col, float sum) { out[(int64_t)row * N + col] = from_float<T>(sum); });
}

template <typename T, int TILES>
cudaError_t launch(cudaStream_t stream, const CudaGrouped &call, unsigned tiles) {
    return launch_chained(stream, few_kernel<T, TILES>, dim3(blocks_for(call.N, TILES * skinny_tile), tiles),
                          warps * 32, 0, call);
}

} // namespace

// From some rows on, tiles of 16 read an expert's weights too often.
bool grouped_few_serves(const CudaGrouped *call) {
    constexpr int most = 256;
    bool is_16_bit = call->dtype == DT_BF16 || call->dtype == DT_F16;
    return call->kind == GROUPED_FORWARD && is_16_bit && has_mma(call->dtype) && call->rows <= most &&
           call->rows <= skinny_rows * call->E && call->K % 8 == 0 && aligned_16(call->a, call->b);
}

cudaError_t launch_grouped_few(cudaStream_t stream, const CudaGrouped *call) {
    constexpr int wide_from =
        8192; // columns, of all tiles, from which blocks of twice the width fill the device
    const unsigned tiles = (unsigned)most_row_tiles(*call, skinny_rows);
    return with_type(call->dtype, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call->N * tiles > wide_from) return launch<T, 2>(stream, *call, tiles);
            return launch<T, 1>(stream, *call, tiles);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
