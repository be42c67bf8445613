// Products of few rows in 16 bits, out (rows,cols) = act(left (rows,inner) right (cols,inner)^T + bias): what
// generation is made of. All time goes into reading the weights once, so they are read with 16-byte accesses
// straight into the registers that tensor cores take them from, as many at once as a block's warps can hold.
//
// A block has TILES x 8 columns, whose inner dimension its warps share; a warp's sums wait in shared memory
// and are added in the order of the warps. Products are of 16 rows x 8 columns x 16 inner elements. Lane
// 4g + t holds of row g (and g + 8) the pairs of elements 2t and 2t + 8, and the same of column g. Which
// element of memory is which matters to nobody as long as both sides agree: a chunk of 32 is given out as 8
// neighbours to each t, of which the first four make one product and the others the next.
//
// How the inner dimension is cut depends on its length alone, and a row's sums on no other row: a row gives
// the same bits in whatever company.
//
// In a chain (chain.cuh) the first weights are on their way before the kernel ahead has ended.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/ptx.cuh"

namespace {

constexpr int most_rows = 16, tile = 8, chunk = 32;

struct Few {
    int rows, cols, inner;
    const void *left, *right, *bias;
    void *out, *pre;
    bool wide; // out is fp32
    CudaAct act;
};

// Weights are read once: they need no place in the cache next to the multiprocessor.
__device__ inline uint4 load_once(const void *from) {
    uint4 to;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from));
    return to;
}

template <typename T> __device__ inline void finish(const Few &call, int row, int col, float sum) {
    int64_t at = (int64_t)row * call.cols + col;
    if (call.bias) sum += to_float(((const T *)call.bias)[col]);
    if (call.wide) {
        ((float *)call.out)[at] = sum;
        return;
    }
    T rounded = from_float<T>(sum);
    if (call.act != CUDA_ACT_NONE) {
        if (call.pre) ((T *)call.pre)[at] = rounded;
        rounded = from_float<T>(act_of(call.act, to_float(rounded)));
    }
    ((T *)call.out)[at] = rounded;
}

template <typename T, int WARPS, int TILES>
__global__ void __launch_bounds__(WARPS * 32) few_kernel(Few call) {
    constexpr int ahead = WARPS / 2 / TILES; // chunks whose weights are under way at once
    constexpr int width = TILES * tile;
    __shared__ float part[WARPS][most_rows][width + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int first_col = blockIdx.x * width;
    const int chunks = (call.inner + chunk - 1) / chunk, each = (chunks + WARPS - 1) / WARPS;
    const int first = warp * each, last = min(first + each, chunks);
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const T *low_row = (const T *)call.left + (int64_t)g * call.inner;
    const T *high_row = (const T *)call.left + (int64_t)(g + 8) * call.inner;
    const bool low_there = g < call.rows, high_there = g + 8 < call.rows;
    float sum[TILES][4] = {};
    uint4 weights[ahead][TILES];
    auto load_weights = [&](int at) {
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            int k = (at + a) * chunk + 8 * t;
            bool there = at + a < last && k < call.inner;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                int col = first_col + i * tile + g;
                weights[a][i] = zeros;
                if (there && col < call.cols)
                    weights[a][i] = load_once((const T *)call.right + (int64_t)col * call.inner + k);
            }
        }
    };
    chain_next();
    load_weights(first);
    chain_wait();
    for (int at = first; at < last; at += ahead) {
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            int k = (at + a) * chunk + 8 * t;
            bool there = at + a < last && k < call.inner;
            uint4 low = zeros, high = zeros;
            if (there && low_there) low = *reinterpret_cast<const uint4 *>(low_row + k);
            if (there && high_there) high = *reinterpret_cast<const uint4 *>(high_row + k);
            const uint32_t one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                multiply_add<T>(sum[i], one, weights[a][i].x, weights[a][i].y);
                multiply_add<T>(sum[i], two, weights[a][i].z, weights[a][i].w);
            }
        }
        load_weights(at + ahead);
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

template <typename T, int WARPS> cudaError_t few(cudaStream_t stream, const Few &call) {
    constexpr int many = 8192; // columns that fill the device with blocks of twice the size
    if (call.cols > many)
        return launch_chained(stream, few_kernel<T, WARPS, 2>, blocks_for(call.cols, 2 * tile), WARPS * 32, 0,
                              call);
    return launch_chained(stream, few_kernel<T, WARPS, 1>, blocks_for(call.cols, tile), WARPS * 32, 0, call);
}

} // namespace

bool product_few_suits(const CudaProduct *p) {
    bool halves = p->left_type == DT_BF16 || p->left_type == DT_F16;
    return halves && p->right_type == p->left_type && p->rows <= most_rows && p->inner % 8 == 0 &&
           p->cols <= INT32_MAX / 2 && p->inner <= INT32_MAX / 2 && !p->left_turned && p->right_turned &&
           !p->accumulate && p->epilogue == CUDA_EPILOGUE_NONE && aligned_16(p->left, p->right);
}

cudaError_t launch_product_few(cudaStream_t stream, const CudaProduct *p, CudaAct act, void *pre) {
    constexpr int deep = 2048; // inner elements that are worth twice the warps
    Few call = {(int)p->rows, (int)p->cols, (int)p->inner, p->left, p->right, p->bias, p->out, pre};
    call.wide = p->out_type == DT_F32;
    call.act = act;
    return with_type(p->left_type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call.inner >= deep) return few<T, 16>(stream, call);
            return few<T, 8>(stream, call);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
