// Merges attention over disjoint sets of keys. A warp has a row of a head: two loads and a store per element.
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int warps = 4;

// out and part are (B,T,H,D), lse and part_lse (B,H,T).
struct Parts {
    void *out;
    const void *part;
    float *lse;
    const float *part_lse;
    int64_t rows, T, H, D;
};

// A weight of 0 makes 0 of anything.
__device__ inline float combined(float weight, float value) {
    return weight == 0 ? 0 : weight * value;
}

template <typename T, typename P, int N>
__global__ void __launch_bounds__(32 * warps) combine_kernel(Parts in) {
    int64_t row = (int64_t)blockIdx.x * warps + threadIdx.x / 32;
    chain_next();
    chain_wait();
    if (row >= in.rows) return;
    int64_t token = row / in.H, at = (token / in.T * in.H + row % in.H) * in.T + token % in.T;
    float a = in.lse[at], b = in.part_lse[at], largest = fmaxf(a, b);
    bool none = largest == -__builtin_huge_valf();
    float total = none ? largest : largest + logf(expf(a - largest) + expf(b - largest));
    float own = none ? 0 : expf(a - total), other = none ? 0 : expf(b - total);
    T *out = (T *)in.out + row * in.D;
    const P *part = (const P *)in.part + row * in.D;
    for (int64_t d = threadIdx.x % 32 * N; d < in.D; d += 32 * N) {
        Pack<T, N> x = load_pack<T, N>(out + d);
        Pack<P, N> y = load_pack<P, N>(part + d);
        float sum[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] = combined(own, to_float(x.at[i])) + combined(other, to_float(y.at[i]));
        store_pack(out + d, pack_of<T>(sum));
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) in.lse[at] = total;
}

} // namespace

Status attention_combine_cuda(Stream *stream, Tensor out, Tensor lse, Tensor part, Tensor part_lse) {
    const Parts parts = {
        .out = out.data,
        .part = part.data,
        .lse = data<float>(lse),
        .part_lse = data<const float>(part_lse),
        .rows = tensor_count(lse),
        .T = out.dim[1],
        .H = out.dim[2],
        .D = out.dim[3],
    };
    bool packed = parts.D % 4 == 0 && aligned_16(out, part);
    cudaError_t error = with_type(out.dtype, [&](auto t) {
        return with_type(part.dtype, [&](auto p) {
            auto kernel = packed ? combine_kernel<decltype(t), decltype(p), 4>
                                 : combine_kernel<decltype(t), decltype(p), 1>;
            return launch_chained(stream, kernel, blocks_for(parts.rows, warps), 32 * warps, 0, parts);
        });
    });
    return cuda_status(error, __func__);
}
