// Linear layers of experts for few rows in 16 bits, as in generation: skinny GEMMs (skinny.cuh) of up to 16 rows of
// an expert. Only the weights of experts with rows are read.
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/skinny.cuh"

namespace {

// Blocks x are columns, and y are tiles of rows.
template <typename T, int WARPS, int TILES>
__global__ void __launch_bounds__(WARPS * 32) few_kernel(CudaGrouped call) {
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
    skinny_block<T, WARPS, TILES>(
        block, [] {}, [&](int row, int col, float sum) { out[(int64_t)row * N + col] = from_float<T>(sum); });
}

template <typename T, int WARPS> cudaError_t launch(cudaStream_t stream, const CudaGrouped &call) {
    constexpr int wide_from = 8192; // columns, of all tiles, from which blocks of twice the width fill the device
    const unsigned tiles = (unsigned)most_row_tiles(call, skinny_rows);
    if (call.N * tiles > wide_from)
        return launch_chained(stream, few_kernel<T, WARPS, 2>, dim3(blocks_for(call.N, 2 * skinny_tile), tiles),
                              WARPS * 32, 0, call);
    return launch_chained(stream, few_kernel<T, WARPS, 1>, dim3(blocks_for(call.N, skinny_tile), tiles),
                          WARPS * 32, 0, call);
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
    constexpr int deep_from = 2048; // inner dimension from which twice the warps pay off
    return with_type(call->dtype, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call->K >= deep_from) return launch<T, 16>(stream, *call);
            return launch<T, 8>(stream, *call);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
