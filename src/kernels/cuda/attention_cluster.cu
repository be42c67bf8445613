// Attention over KV caches for one new position, in 16 bits (Hopper and later).
//
// The cached keys of a query head are split into contiguous parts, one for each rank of four warps.
// A key is read by LANES lanes, 8 elements each, and each such group keeps a running softmax over its keys.
// At the end, groups, warps and ranks are combined in a fixed order. With few heads, a rank is a block, and
// the ranks of a head are a cluster, so that most of the device reads keys. With many, one or two blocks take
// all ranks of a head, two at a time each. All have the same bits: each operation is rounded as written, so
// that the compiler cannot contract them in different ways.
//
// The new key and value are read from the input and added by one group. In a recording, the first keys and
// values are loaded before the previous kernel has finished, and the rest are on their way to the L2 cache.
// From then on, the next keys are loaded before these are added.
#include "kernels/cuda/attention_cluster.h"

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cluster.cuh"

namespace {

constexpr int warps = 4, threads = 32 * warps, ahead = 4, slot = 8; // of a rank; slot: elements of a lane
constexpr float log2_e = 1.44269504f;                               // scores are in units of log 2
constexpr int ranks = cluster_size, newest = 1;                     // newest: the rank of the new key

// How BLOCKS blocks share the ranks of a head: those that a block has at a time, and in all.
template <int BLOCKS> constexpr int at_once = BLOCKS == ranks ? 1 : 2;
template <int BLOCKS> constexpr int own_ranks = ranks / BLOCKS;

struct Mix {
    float most = -infinity, total = 0, sum[slot] = {};
};

__device__ inline void shrink_to(Mix &mix, float most) {
    float shrink = mix.most == -infinity ? 0 : power_of_2(__fsub_rn(mix.most, most));
    mix.total = __fmul_rn(mix.total, shrink);
#pragma unroll
    for (int i = 0; i < slot; i++) mix.sum[i] = __fmul_rn(mix.sum[i], shrink);
    mix.most = most;
}

// A lane's elements, as loaded: converting them late takes fewer registers.
template <typename T> __device__ inline float element(const uint4 &pack, int i) {
    const uint32_t word = i / 2 == 0 ? pack.x : i / 2 == 1 ? pack.y : i / 2 == 2 ? pack.z : pack.w;
    uint16_t bits = (uint16_t)(word >> (i % 2 * 16));
    T value;
    memcpy(&value, &bits, sizeof value);
    return to_float(value);
}

template <typename T> __device__ inline void add_key(Mix &mix, float weight, const uint4 &value) {
    mix.total = __fadd_rn(mix.total, weight);
#pragma unroll
    for (int i = 0; i < slot; i++) mix.sum[i] = __fmaf_rn(weight, element<T>(value, i), mix.sum[i]);
}

// The product of a query and a key, returned to the lanes of the group.
template <typename T, int LANES>
__device__ inline float score_of(const float (&query)[slot], const uint4 &key) {
    float score = 0;
#pragma unroll
    for (int i = 0; i < slot; i++) score = __fmaf_rn(query[i], element<T>(key, i), score);
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2)
        score = __fadd_rn(score, __shfl_xor_sync(full_warp, score, lane));
    return score;
}

// The next keys of a warp: of a rank, from `first` to before `end`.
struct Stage {
    int rank, first, end;
};

template <typename T, int LANES> struct Reader {
    static constexpr int step = threads / LANES; // groups of a rank
    const T *k, *v;                              // the head's caches, at the lane's elements
    int64_t row;
    int group; // of the warp
    struct Rows {
        uint4 keys[ahead], values[ahead];
    };
    __device__ Rows load(const Stage &stage) const {
        Rows rows;
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int at = stage.first + group + a * step;
            rows.keys[a] = rows.values[a] = make_uint4(0, 0, 0, 0);
            if (at < stage.end) {
                rows.keys[a] = *reinterpret_cast<const uint4 *>(k + at * row);
                rows.values[a] = *reinterpret_cast<const uint4 *>(v + at * row);
            }
        }
        return rows;
    }
    __device__ void add(Mix &mix, const float (&query)[slot], const Rows &rows, const Stage &stage) const {
        float score[ahead], most = mix.most;
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            score[a] = score_of<T, LANES>(query, rows.keys[a]);
            if (stage.first + group + a * step >= stage.end) score[a] = -infinity;
            most = fmaxf(most, score[a]);
        }
        if (most == -infinity) return;
        shrink_to(mix, most);
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const float weight = score[a] == -infinity ? 0.0f : power_of_2(__fsub_rn(score[a], most));
            add_key<T>(mix, weight, rows.values[a]);
        }
    }
};

// Combines the groups of a warp, and stores the result: D sums, the maximum and the total.
template <int D> __device__ inline void join_groups(Mix &mix, float *piece) {
    constexpr int lanes = D / slot;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int way = lanes; way < 32; way *= 2) {
        shrink_to(mix, fmaxf(mix.most, __shfl_xor_sync(full_warp, mix.most, way)));
        mix.total = __fadd_rn(mix.total, __shfl_xor_sync(full_warp, mix.total, way));
#pragma unroll
        for (int i = 0; i < slot; i++)
            mix.sum[i] = __fadd_rn(mix.sum[i], __shfl_xor_sync(full_warp, mix.sum[i], way));
    }
    if (lane < lanes) {
#pragma unroll
        for (int i = 0; i < slot; i++) piece[lane * slot + i] = mix.sum[i];
    }
    if (lane == 0) piece[D] = mix.most, piece[D + 1] = mix.total;
}

// Combines element d of COUNT partial softmaxes.
struct Joined {
    float sum, most, total;
};
template <int D, int COUNT> __device__ inline Joined join(const float *pieces, int d) {
    float most = -infinity, total = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) most = fmaxf(most, pieces[i * (D + 2) + D]);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float *piece = pieces + i * (D + 2);
        float shrink = piece[D] == -infinity ? 0.0f : power_of_2(__fsub_rn(piece[D], most));
        total = __fmaf_rn(piece[D + 1], shrink, total);
        sum = __fmaf_rn(piece[d], shrink, sum);
    }
    return {sum, most, total};
}

// Stores a value in the first block of the cluster.
template <int BLOCKS> __device__ inline void store_first(float *to, float value) {
    if (BLOCKS == 1)
        *to = value;
    else
        store_remote(to, 0, __float_as_uint(value));
}

// Combines the warps of each of a block's ranks. All threads of the first block may then read all `parts`.
template <int D, int BLOCKS> __device__ inline void join_warps(const float *pieces, float *parts, int block) {
    constexpr int size = D + 2, here = at_once<BLOCKS>;
    __syncthreads();
    if (BLOCKS > 1) cluster_wait();
    for (int i = threadIdx.x; i < own_ranks<BLOCKS> * D; i += here * threads) {
        const int own = i / D, d = i % D, rank = own / here * here * BLOCKS + block * here + own % here;
        const Joined joined = join<D, warps>(pieces + own * warps * size, d);
        float *to = parts + rank * size;
        store_first<BLOCKS>(to + d, joined.sum);
        if (d == 0) store_first<BLOCKS>(to + D, joined.most);
        if (d == 0) store_first<BLOCKS>(to + D + 1, joined.total);
    }
    if (BLOCKS == 1) __syncthreads();
    if (BLOCKS > 1) cluster_arrive();
    if (BLOCKS > 1) cluster_wait();
}

// A warp's first keys, `shift` after those of its rank. Ranks that do not exist have none.
__device__ inline Stage stage_of(const CudaAttention &call, int past, int rank, int shift) {
    const int hidden = call.window ? max(past + 1 - call.window, 0) : 0;
    const int each = (past - hidden + ranks - 1) / ranks, begin = hidden + rank * each;
    return {rank, begin + shift, min(begin + each, past)};
}

// A hint: fetches what a rank does not load at once into the L2 cache.
template <typename T> __device__ inline void prefetch(const T *rows, int64_t row, int begin, int end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (begin < end)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(rows + begin * row),
                     "r"((uint32_t)((end - begin) * row * sizeof(T)))
                     : "memory");
#endif
}

// The softmax of the new key alone, in the warp's last group. Also appends it to the caches.
template <typename T, int D>
__device__ inline void start_with(Mix &mix, const CudaAttention &call, const CudaHeads &k_new,
                                  const CudaHeads &v_new, const float (&query)[slot], int b, int h,
                                  const Span &span) {
    constexpr int lanes = D / slot;
    const int lane = threadIdx.x % 32, at = lane % lanes * slot, kv = h / call.group;
    const uint4 k = *reinterpret_cast<const uint4 *>(head_rows<const T>(k_new, b, kv) + at);
    const uint4 v = *reinterpret_cast<const uint4 *>(head_rows<const T>(v_new, b, kv) + at);
    const float score = score_of<T, lanes>(query, k);
    if (lane < 32 - lanes) return;
    mix.most = score;
    add_key<T>(mix, 1, v);
    if (!span.queries || h % call.group) return;
    const int64_t to = span.offset * call.k.row + at;
    *reinterpret_cast<uint4 *>(head_rows<T>(call.k, b, kv) + to) = k;
    *reinterpret_cast<uint4 *>(head_rows<T>(call.v, b, kv) + to) = v;
}

// `early`: in a recording, in which nothing writes the counts or these rows of the caches.
template <typename T, int D, int BLOCKS>
__global__ void __launch_bounds__(at_once<BLOCKS> *threads, BLOCKS == ranks ? 1 : 2)
    cluster_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, bool early) {
    constexpr int lanes = D / slot, groups = 32 / lanes, size = D + 2, here = at_once<BLOCKS>;
    __shared__ float pieces[own_ranks<BLOCKS> * warps * size], parts[ranks * size];
    const int head = blockIdx.x / BLOCKS, b = head / call.H, h = head % call.H;
    const int kv = h / call.group, warp = warp_number() % warps, part = threadIdx.x % lanes;
    const int block = BLOCKS == 1 ? 0 : (int)cluster_rank(), rank = block * here + warp_number() / warps;
    const T *k_cache = head_rows<const T>(call.k, b, kv), *v_cache = head_rows<const T>(call.v, b, kv);
    const Reader<T, lanes> reader = {k_cache + part * slot, v_cache + part * slot, call.k.row,
                                     (int)threadIdx.x % 32 / lanes};
    chain_next();
    if (BLOCKS > 1) cluster_arrive();
    if (!early) chain_wait();
    const Span span = span_of(call, b);
    Stage stage = stage_of(call, span.offset, rank, warp * groups);
    auto rows = reader.load(stage);
    if (early) {
        const int next = stage.first + ahead * reader.step, end = BLOCKS == ranks ? stage.end : span.offset;
        const bool fetches = BLOCKS == ranks || block == 0;
        if (fetches && threadIdx.x == 0) prefetch(k_cache, call.k.row, next, end);
        if (fetches && threadIdx.x == 32) prefetch(v_cache, call.v.row, next, end);
        chain_wait();
    }

    Mix mix;
    float query[slot];
    const uint4 q = *reinterpret_cast<const uint4 *>(head_rows<const T>(call.q, b, h) + part * slot);
#pragma unroll
    for (int i = 0; i < slot; i++) query[i] = __fmul_rn(element<T>(q, i), call.scale * log2_e);
    if (rank == newest && warp == warps - 1) start_with<T, D>(mix, call, k_new, v_new, query, b, h, span);
    while (stage.rank < ranks) {
        Stage next = {stage.rank, stage.first + ahead * reader.step, stage.end};
        if (next.first >= next.end)
            next = stage_of(call, span.offset, stage.rank + here * BLOCKS, warp * groups);
        const auto next_rows = reader.load(next);
        if (stage.first < stage.end) reader.add(mix, query, rows, stage);
        if (next.rank != stage.rank) {
            const int own = stage.rank / (here * BLOCKS) * here + warp_number() / warps;
            join_groups<D>(mix, pieces + (own * warps + warp) * size);
            mix = Mix();
        }
        stage = next;
        rows = next_rows;
    }
    join_warps<D, BLOCKS>(pieces, parts, block);
    if (block > 0 || !span.queries) return;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        const Joined joined = join<D, ranks>(parts, d);
        head_rows<T>(call.out, b, h)[d] = from_float<T>(joined.sum * reciprocal(joined.total));
    }
}

// Whether rows start at multiples of 16 bytes.
bool is_aligned(const CudaHeads &heads) {
    return (uintptr_t)heads.data % 16 == 0 && heads.batch % slot == 0 && heads.head % slot == 0 &&
           heads.row % slot == 0;
}

template <typename T, int D, int BLOCKS>
cudaError_t start_with_blocks(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v) {
    const unsigned blocks = (unsigned)(call.B * call.H) * BLOCKS;
    const bool early = is_recorded(stream);
    auto kernel = cluster_kernel<T, D, BLOCKS>;
    if (BLOCKS == 1)
        return launch_chained(stream, kernel, blocks, at_once<1> * threads, 0, call, k, v, early);
    return launch_cluster(true, BLOCKS, stream, kernel, blocks, at_once<BLOCKS> * threads, 0, call, k, v,
                          early);
}

template <typename T, int D>
cudaError_t start(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v, int blocks) {
    if (blocks == 1) return start_with_blocks<T, D, 1>(stream, call, k, v);
    if (blocks == 2) return start_with_blocks<T, D, 2>(stream, call, k, v);
    return start_with_blocks<T, D, ranks>(stream, call, k, v);
}

} // namespace

bool attention_cluster_supports(DType type, DType cache, const CudaAttention *call, CudaHeads k,
                                CudaHeads v) {
    constexpr int most_keys = 4096; // beyond, more blocks for a head are faster: see launch_attention_decode
    if (type == DT_F32 || cache != type || call->keys > most_keys) return false;
    if (call->D != 32 && call->D != 64 && call->D != 128 && call->D != 256) return false;
    return is_aligned(call->q) && is_aligned(call->k) && is_aligned(call->v) && is_aligned(k) &&
           is_aligned(v) && call->k.row == call->v.row &&
           has_clusters((const void *)cluster_kernel<__nv_bfloat16, 64, ranks>);
}

cudaError_t launch_attention_cluster(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                     CudaHeads v, int blocks) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            switch (call->D) {
            case 32: return start<T, 32>(stream, *call, k, v, blocks);
            case 64: return start<T, 64>(stream, *call, k, v, blocks);
            case 128: return start<T, 128>(stream, *call, k, v, blocks);
            default: return start<T, 256>(stream, *call, k, v, blocks);
            }
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
