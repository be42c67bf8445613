// Skinny GEMM in 16 bits: out (rows,cols) = act(left (rows,inner) right (cols,inner)^T + bias), the main
// work of generation. It is bound by reading the weights once, so they are read with 16-byte accesses
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
//
// In a chain (chain.cuh), the first weights are loaded before the previous kernel has finished.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/skinny.cuh"

namespace {

constexpr int max_rows = 16, tile = 8, chunk = 32;

struct SkinnyGemm {
    int rows, cols, inner;
    const void *left, *right, *bias;
    void *out, *pre;
    bool out_fp32; // out is fp32
    Act act;
};

template <typename T> __device__ inline void finish(const SkinnyGemm &call, int row, int col, float sum) {
    int64_t at = (int64_t)row * call.cols + col;
    if (call.bias) sum += to_float(((const T *)call.bias)[col]);
    if (call.out_fp32) {
        ((float *)call.out)[at] = sum;
        return;
    }
    T rounded = from_float<T>(sum);
    if (call.act != ACT_NONE) {
        if (call.pre) ((T *)call.pre)[at] = rounded;
        rounded = from_float<T>(act_of(call.act, to_float(rounded)));
    }
    ((T *)call.out)[at] = rounded;
}

template <typename T, int WARPS, int TILES>
__global__ void __launch_bounds__(WARPS * 32) skinny_kernel(SkinnyGemm call) {
    constexpr int in_flight = WARPS / 2 / TILES; // chunks whose weights are in flight
    constexpr int width = TILES * tile;
    __shared__ float part[WARPS][max_rows][width + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int first_col = blockIdx.x * width;
    const int chunks = (call.inner + chunk - 1) / chunk, chunks_per_warp = (chunks + WARPS - 1) / WARPS;
    const int first = warp * chunks_per_warp, last = min(first + chunks_per_warp, chunks);
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const T *low_row = (const T *)call.left + (int64_t)g * call.inner;
    const T *high_row = (const T *)call.left + (int64_t)(g + 8) * call.inner;
    const bool has_low = g < call.rows, has_high = g + 8 < call.rows;
    float sum[TILES][4] = {};
    uint4 weights[in_flight][TILES];
    auto load_weights = [&](int at) {
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            int k = (at + a) * chunk + 8 * t;
            bool valid = at + a < last && k < call.inner;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                int col = first_col + i * tile + g;
                weights[a][i] = zeros;
                if (valid && col < call.cols)
                    weights[a][i] = load_once((const T *)call.right + (int64_t)col * call.inner + k);
            }
        }
    };
    chain_next();
    load_weights(first);
    chain_wait();
    for (int at = first; at < last; at += in_flight) {
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            int k = (at + a) * chunk + 8 * t;
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
        for (int j = 0; j < 4; j++) part[warp][g + j / 2 * 8][i * tile + 2 * t + j % 2] = sum[i][j];
    __syncthreads();
    for (int i = threadIdx.x; i < call.rows * width; i += WARPS * 32) {
        int row = i / width, col = i % width;
        if (first_col + col >= call.cols) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += part[w][row][col];
        finish<T>(call, row, first_col + col, total);
    }
}

template <typename T, int WARPS> cudaError_t launch(cudaStream_t stream, const SkinnyGemm &call) {
    constexpr int wide_from = 8192; // number of columns from which blocks of twice the width fill the device
    if (call.cols > wide_from)
        return launch_recorded(stream, skinny_kernel<T, WARPS, 2>, blocks_for(call.cols, 2 * tile),
                               WARPS * 32, 0, call);
    return launch_recorded(stream, skinny_kernel<T, WARPS, 1>, blocks_for(call.cols, tile), WARPS * 32, 0,
                           call);
}

} // namespace

bool gemm_skinny_supports(const CudaGemm *p) {
    bool is_16_bit = p->left_type == DT_BF16 || p->left_type == DT_F16;
    return is_16_bit && has_mma(p->left_type) && p->right_type == p->left_type && p->rows <= max_rows &&
           p->inner % 8 == 0 && p->cols <= INT32_MAX / 2 && p->inner <= INT32_MAX / 2 &&
           !p->left_transposed && p->right_transposed && !p->accumulate && !p->slope &&
           aligned_16(p->left, p->right);
}

cudaError_t launch_gemm_skinny(cudaStream_t stream, const CudaGemm *p, Act act, void *pre) {
    constexpr int deep_from = 2048; // inner dimension from which twice the warps pay off
    SkinnyGemm call = {(int)p->rows, (int)p->cols, (int)p->inner, p->left, p->right, p->bias, p->out, pre};
    call.out_fp32 = p->out_type == DT_F32;
    call.act = act;
    return with_type(p->left_type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call.inner >= deep_from) return launch<T, 16>(stream, call);
            return launch<T, 8>(stream, call);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
