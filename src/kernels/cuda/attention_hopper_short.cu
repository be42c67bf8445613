// Attention backward on Hopper for sequences of one tile: up to 128 positions, heads of width 64, without
// dropout, windows and shared heads. One kernel does what attention_hopper_backward.cu does in three, with
// the same bits: a block has a whole head, so it needs no sums in global memory, and computes delta itself.
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/chain.cuh"

namespace hopper::brief {

constexpr int positions = HOPPER_KEYS, D = 64, threads = 256;

struct Args {
    CUtensorMap q, k, v, dout;
    CudaAttention call;
};

struct Shared {
    alignas(1024) uint16_t k[positions * D], v[positions * D], q[positions * D], dout[positions * D];
    alignas(1024) uint16_t ds[2][positions * 64]; // keys x 64 queries
    alignas(16) float lse[positions], delta[positions];
    uint64_t scores_full, through_full;
};

using Score = float[positions / 2]; // a warpgroup has 64 keys and all queries
using Packed = uint32_t[positions / 4];

// One head: thread, warp and lane of the warpgroup `group`, which has keys 64 group .. 64 group + 63.
template <typename T> struct Head {
    const CudaAttention &call;
    Shared &s;
    int b, h, keys, group, warp, lane;

    __device__ inline void load(const Args &args) {
        barrier_expect(&s.scores_full, sizeof s.k + sizeof s.q);
        copy_rows<D, positions>(s.k, &args.k, &s.scores_full, 0, h, b);
        copy_rows<D, positions>(s.q, &args.q, &s.scores_full, 0, h, b);
        barrier_expect(&s.through_full, sizeof s.v + sizeof s.dout);
        copy_rows<D, positions>(s.v, &args.v, &s.through_full, 0, h, b);
        copy_rows<D, positions>(s.dout, &args.dout, &s.through_full, 0, h, b);
    }

    __device__ inline void prepare() {
        constexpr int lanes = D / 8;
        int part = threadIdx.x % lanes;
#pragma unroll
        for (int i = 0; i < positions * lanes / threads; i++) {
            int t = i * (threads / lanes) + threadIdx.x / lanes;
            const RowStats row = row_part<T>(call, b, h, t, part);
            const float delta = row_delta<lanes>(row);
            if (part != 0) continue;
            s.lse[t] = row.lse;
            s.delta[t] = delta;
        }
    }

    // Replaces scores by weights P, and g v^T by dS.
    __device__ inline void weigh(Score &score) {
        int row = group * 64 + warp * 16 + lane / 4;
        float scale = call.scale * log2_e;
#pragma unroll
        for (int n = 0; n < positions / 8; n++) {
            int column = 8 * n + lane % 4 * 2;
            float2 lse = *reinterpret_cast<const float2 *>(&s.lse[column]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = row + i / 2 * 8;
                float &x = score[4 * n + i];
                if (key >= keys || (call.causal && key > column + i % 2)) x = -infinity;
                x = power_of_2(x * scale - (i % 2 ? lse.y : lse.x));
            }
        }
    }
    __device__ inline void differentiate(const Score &weight, Score &through) {
#pragma unroll
        for (int n = 0; n < positions / 8; n++) {
            float2 deltas = *reinterpret_cast<const float2 *>(&s.delta[8 * n + lane % 4 * 2]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float w = weight[4 * n + i], &x = through[4 * n + i], off = w * (i % 2 ? deltas.y : deltas.x);
                x = w * x - off;
            }
        }
    }

    __device__ inline void pack(Packed &packed, const Score &from) {
#pragma unroll
        for (int i = 0; i < positions / 4; i++) packed[i] = round_pair<T>(from[2 * i], from[2 * i + 1]);
    }
    __device__ inline void share(const Packed &packed) {
        uint32_t at = matrices_at(s.ds[0], group * 64 + warp * 16);
#pragma unroll
        for (int n = 0; n < positions / 8; n += 2)
            store_matrices((at ^ n % 8 * 16) + n / 8 * sizeof s.ds[0], packed[2 * n], packed[2 * n + 1],
                           packed[2 * n + 2], packed[2 * n + 3]);
    }

    // 64 rows of the warpgroup, through the memory of its rows of v.
    __device__ inline void store(const CudaHeads &heads, const float (&sum)[32], float factor, int valid) {
        int first = group * 64 + warp * 16, upper = first + lane / 4;
        store_sums<T>(head_rows<T>(heads, b, h) + first * heads.row, heads.row, call.queries - first,
                      (T *)s.v + first * width, sum, upper < valid ? factor : 0.0f,
                      upper + 8 < valid ? factor : 0.0f);
    }

    __device__ inline void run() {
        Score score, through;
        Packed packed, packed_ds;
        float dk[32], dv[32], dq[32];
        barrier_wait(&s.scores_full, 0);
        products_begin();
        multiply_rows<T, D>(score, s.k, group * 64, s.q);
        products_commit();
        barrier_wait(&s.through_full, 0);
        products_begin();
        multiply_rows<T, D>(through, s.v, group * 64, s.dout);
        products_commit();
        products_wait<1>();
        hold(score);
        weigh(score);
        hold(score);
        settle(score[0] < 0);
        products_wait<0>();
        hold(through);
        differentiate(score, through);
        pack(packed, score);
        products_begin();
        multiply_packed<T>(dv, packed, s.dout, false);
        products_commit();
        pack(packed_ds, through);
        share(packed_ds);
        products_begin();
        multiply_packed<T>(dk, packed_ds, s.q, false);
        products_commit();
        fence_shared();
        __syncthreads();
        uint64_t from = tile_of(s.ds[group]), by = tile_of(s.k);
        products_begin();
#pragma unroll
        for (int i = 0; i < positions / 16; i++)
            multiply_transposed<T>(dq, from + i * next_rows, by + i * next_rows, i > 0);
        products_commit();
        products_wait<1>();
        hold(dk);
        hold(dv);
        store(call.dv, dv, 1, keys);
        store(call.dk, dk, call.scale, keys);
        products_wait<0>();
        hold(dq);
        store(call.dq, dq, call.scale, positions);
    }

    __device__ inline void store_zeros() {
        constexpr int parts = D / 8;
        for (int i = threadIdx.x; i < call.queries * parts; i += threads)
            for (const CudaHeads *heads : {&call.dq, &call.dk, &call.dv})
                *reinterpret_cast<uint4 *>(head_rows<T>(*heads, b, h) + i / parts * heads->row +
                                           i % parts * 8) = make_uint4(0, 0, 0, 0);
    }
};

template <typename T> __device__ inline void backward_head(const Args &args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Shared &s = *reinterpret_cast<Shared *>(shared);
    if (threadIdx.x == 0) {
        barrier_init(&s.scores_full, 1);
        barrier_init(&s.through_full, 1);
        barriers_ready();
    }
    __syncthreads();
    chain_next();
    chain_wait();
    int b = blockIdx.x / args.call.H, h = blockIdx.x % args.call.H;
    int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    Head<T> head = {args.call, s, b, h, span_of(args.call, b).keys, group, warp, lane};
    if (head.keys == 0) {
        head.store_zeros();
        return;
    }
    if (threadIdx.x == 0) head.load(args);
    head.prepare();
    __syncthreads();
    head.run();
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) backward_short(const __grid_constant__ Args args) {
    if constexpr (is_target) backward_head<T>(args);
}

template <typename T> cudaError_t start(cudaStream_t stream, DType type, const CudaAttention &call) {
    Args args = {};
    args.call = call;
    if (!map_heads(&args.q, type, call, call.q, call.H, call.queries, positions) ||
        !map_heads(&args.k, type, call, call.k, call.H, call.queries, positions) ||
        !map_heads(&args.v, type, call, call.v, call.H, call.queries, positions) ||
        !map_heads(&args.dout, type, call, call.dout, call.H, call.queries, positions))
        return cudaErrorInvalidValue;
    cudaError_t error = allow_shared(backward_short<T>, sizeof(Shared));
    if (error != cudaSuccess) return error;
    return launch_chained(stream, backward_short<T>, call.B * call.H, threads, sizeof(Shared), args);
}

} // namespace hopper::brief

cudaError_t launch_attention_backward_short(cudaStream_t stream, DType type, const CudaAttention *call) {
    if (type == DT_BF16) return hopper::brief::start<__nv_bfloat16>(stream, type, *call);
    return hopper::brief::start<__half>(stream, type, *call);
}
