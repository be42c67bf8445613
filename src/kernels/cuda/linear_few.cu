// Skinny GEMM in 16 bits: out (rows,cols) = act(left (rows,inner) right (cols,inner)^T + bias), the main
// work of generation, see skinny.cuh.
//
// In a chain (chain.cuh), the first weights are loaded before the previous kernel has finished.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/skinny.cuh"

namespace {

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
    const SkinnyBlock<T> block = {(const T *)call.left,
                                  (const T *)call.right,
                                  call.rows,
                                  call.cols,
                                  call.inner,
                                  (int)blockIdx.x * TILES * skinny_tile};
    chain_next();
    skinny_block<T, WARPS, TILES>(
        block, [] { chain_wait(); }, [&](int row, int col, float sum) { finish<T>(call, row, col, sum); });
}

template <typename T, int WARPS> cudaError_t launch(cudaStream_t stream, const SkinnyGemm &call) {
    constexpr int wide_from = 8192; // number of columns from which blocks of twice the width fill the device
    if (call.cols > wide_from)
        return launch_recorded(stream, skinny_kernel<T, WARPS, 2>, blocks_for(call.cols, 2 * skinny_tile),
                               WARPS * 32, 0, call);
    return launch_recorded(stream, skinny_kernel<T, WARPS, 1>, blocks_for(call.cols, skinny_tile), WARPS * 32,
                           0, call);
}

} // namespace

bool gemm_skinny_supports(const CudaGemm *p) {
    bool is_16_bit = p->left_type == DT_BF16 || p->left_type == DT_F16;
    return is_16_bit && has_mma(p->left_type) && p->right_type == p->left_type && p->rows <= skinny_rows &&
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
