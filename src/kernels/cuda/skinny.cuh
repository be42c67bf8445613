// What the skinny GEMMs share, and one of their blocks in 16 bits: out (rows,cols) = left (rows,inner)
// right (cols,inner)^T. It is bound by reading the weights once, so they are read with 16-byte accesses
// directly into the registers that tensor cores use, with as many loads in flight as a block's warps can
// hold.
//
// A block computes TILES x 8 columns; its warps split the inner dimension. The sums of the warps are
// combined in shared memory, in warp order. One mma covers 16 rows x 8 columns x 16 inner elements. Lane 4g
// + t holds, of rows g and g + 8 and of column g, the pairs of elements 2t and 2t + 8. Which element in
// memory is which does not matter as long as both operands agree: of a chunk of 32, each t gets 8 adjacent
// elements, of which the first four are used in one mma and the others in the next.
//
// The split of the inner dimension depends only on its length, and a row's sums do not depend on other
// rows, so a row has the same bits alone and in a batch.
#ifndef WEFT_KERNELS_CUDA_SKINNY_CUH
#define WEFT_KERNELS_CUDA_SKINNY_CUH

#include "kernels/cuda/ptx.cuh"

// Weights are read only once, so they bypass the L1 cache.
__device__ inline uint4 load_once(const void *from) {
    uint4 to;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from));
    return to;
}
__device__ inline uint32_t load_word_once(const void *from) {
    uint32_t to;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(to) : "l"(from));
    return to;
}

constexpr int skinny_rows = 16, skinny_tile = 8, skinny_chunk = 32;

// The operands of a block, and the first of its columns. Rows start at multiples of 16 bytes.
template <typename T> struct SkinnyBlock {
    const T *left, *right;
    int rows, cols, inner, first_col;
};

// Calls begin() before it reads `left`, and finish(row, column, sum) for each result.
template <typename T, int WARPS, int TILES, typename Begin, typename Finish>
__device__ inline void skinny_block(const SkinnyBlock<T> &call, Begin begin, Finish finish) {
    constexpr int in_flight = WARPS / 2 / TILES; // chunks whose weights are in flight
    constexpr int width = TILES * skinny_tile;
    __shared__ float part[WARPS][skinny_rows][width + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int chunks = (call.inner + skinny_chunk - 1) / skinny_chunk;
    const int chunks_per_warp = (chunks + WARPS - 1) / WARPS;
    const int first = warp * chunks_per_warp, last = min(first + chunks_per_warp, chunks);
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const T *low_row = call.left + (int64_t)g * call.inner;
    const T *high_row = call.left + (int64_t)(g + 8) * call.inner;
    const bool has_low = g < call.rows, has_high = g + 8 < call.rows;
    float sum[TILES][4] = {};
    uint4 weights[in_flight][TILES];
    auto load_weights = [&](int at) {
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            int k = (at + a) * skinny_chunk + 8 * t;
            bool valid = at + a < last && k < call.inner;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                int col = call.first_col + i * skinny_tile + g;
                weights[a][i] = zeros;
                if (valid && col < call.cols)
                    weights[a][i] = load_once(call.right + (int64_t)col * call.inner + k);
            }
        }
    };
    load_weights(first);
    begin();
    for (int at = first; at < last; at += in_flight) {
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            int k = (at + a) * skinny_chunk + 8 * t;
            bool valid = at + a < last && k < call.inner;
            uint4 low = zeros, high = zeros;
            if (valid && has_low) low = *reinterpret_cast<const uint4 *>(low_row + k);
            if (valid && has_high) high = *reinterpret_cast<const uint4 *>(high_row + k);
            const uint32_t one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                multiply_add<T>(sum[i], one, weights[a][i].x, weights[a][i].y);
                multiply_add<T>(sum[i], two, weights[a][i].z, weights[a][i].w);
            }
        }
        load_weights(at + in_flight);
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) part[warp][g + j / 2 * 8][i * skinny_tile + 2 * t + j % 2] = sum[i][j];
    __syncthreads();
    for (int i = threadIdx.x; i < call.rows * width; i += WARPS * 32) {
        int row = i / width, col = i % width;
        if (call.first_col + col >= call.cols) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += part[w][row][col];
        finish(row, call.first_col + col, total);
    }
}

#endif
