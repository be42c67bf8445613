// Attention over KV caches for one new position, in 16 bits, with clusters (Hopper and later).
//
// A cluster takes a query head; each of its blocks takes a contiguous part of the cached keys. A key is read
// by LANES lanes, 8 elements each, and each such group keeps a running softmax over its keys. At the end,
// groups, warps and blocks are combined in a fixed order. The new key and value are read from the input and
// added by one group. So with few sequences, too, most of the device reads keys.
//
// In a recording, the first keys and values are loaded before the previous kernel has finished, and the rest
// are on their way to the L2 cache.
#include "kernels/cuda/attention_cluster.h"

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cluster.cuh"

namespace {

constexpr int warps = 8, threads = 32 * warps, ahead = 4, slot = 8; // slot: elements of a lane

struct Mix {
    float most = -infinity, total = 0, sum[slot] = {};
};

__device__ inline void shrink_to(Mix &mix, float most) {
    float shrink = mix.most == -infinity ? 0 : expf(mix.most - most);
    mix.total *= shrink;
#pragma unroll
    for (int i = 0; i < slot; i++) mix.sum[i] *= shrink;
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
    mix.total += weight;
#pragma unroll
    for (int i = 0; i < slot; i++) mix.sum[i] += weight * element<T>(value, i);
}

// The product of a query and a key, returned to the lanes of the group.
template <typename T, int LANES>
__device__ inline float score_of(const float (&query)[slot], const uint4 &key) {
    float score = 0;
#pragma unroll
    for (int i = 0; i < slot; i++) score += query[i] * element<T>(key, i);
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2) score += __shfl_xor_sync(full_warp, score, lane);
    return score;
}

// Where a lane reads.
template <typename T, int LANES> struct Reader {
    static constexpr int step = threads / LANES; // groups of a block
    const T *k, *v;                              // the head's caches, at the lane's elements
    int64_t row;
    int group, end;
    uint4 keys[ahead], values[ahead];
    // Loads the group's keys from `first` on that are below `end`.
    __device__ void load(int first) {
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int at = first + group + a * step;
            keys[a] = values[a] = make_uint4(0, 0, 0, 0);
            if (at < end) {
                keys[a] = *reinterpret_cast<const uint4 *>(k + at * row);
                values[a] = *reinterpret_cast<const uint4 *>(v + at * row);
            }
        }
    }
    __device__ void add(Mix &mix, const float (&query)[slot], int first) const {
        float score[ahead], most = mix.most;
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            score[a] = score_of<T, LANES>(query, keys[a]);
            if (first + group + a * step >= end) score[a] = -infinity;
            most = fmaxf(most, score[a]);
        }
        if (most == -infinity) return;
        shrink_to(mix, most);
#pragma unroll
        for (int a = 0; a < ahead; a++)
            add_key<T>(mix, score[a] == -infinity ? 0.0f : expf(score[a] - most), values[a]);
    }
};

// Combines element d of `count` partial softmaxes; each has D sums, the maximum and the total.
template <int D>
__device__ inline float join(const float *pieces, int count, int d, float *ret_most, float *ret_total) {
    float most = -infinity, total = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < count; i++) most = fmaxf(most, pieces[i * (D + 2) + D]);
#pragma unroll
    for (int i = 0; i < count; i++) {
        const float *piece = pieces + i * (D + 2);
        float shrink = piece[D] == -infinity ? 0.0f : expf(piece[D] - most);
        total += piece[D + 1] * shrink;
        sum += piece[d] * shrink;
    }
    *ret_most = most;
    *ret_total = total;
    return sum;
}

// The cached keys of block `rank`.
struct Keys {
    int begin, end;
};
__device__ inline Keys keys_of(const CudaAttention &call, int past, unsigned rank) {
    const int hidden = call.window ? max(past + 1 - call.window, 0) : 0;
    const int each = (past - hidden + cluster_size - 1) / cluster_size, begin = hidden + (int)rank * each;
    return {begin, min(begin + each, past)};
}

// Only a hint: what a block does not load at once comes to the L2 cache.
template <typename T> __device__ inline void prefetch(const T *rows, int64_t row, int begin, int end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (begin < end)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(rows + begin * row),
                     "r"((uint32_t)((end - begin) * row * sizeof(T)))
                     : "memory");
#endif
}

// `early`: in a recording, in which nothing writes the counts or these rows of the caches.
template <typename T, int D>
__global__ void __launch_bounds__(threads)
    cluster_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, bool early) {
    constexpr int lanes = D / slot, piece_size = D + 2;
    __shared__ float pieces[warps * piece_size], parts[cluster_size * piece_size];
    const int head = blockIdx.x / cluster_size, b = head / call.H, h = head % call.H, kv = h / call.group;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % lanes;
    const unsigned rank = cluster_rank();
    const T *k_cache = head_rows<const T>(call.k, b, kv), *v_cache = head_rows<const T>(call.v, b, kv);
    Reader<T, lanes> reader = {k_cache + part * slot, v_cache + part * slot, call.k.row,
                               (int)threadIdx.x / lanes};
    Keys keys = {0, 0};
    Span span;
    auto begin = [&] {
        span = span_of(call, b);
        keys = keys_of(call, span.offset, rank);
        reader.end = keys.end;
        reader.load(keys.begin);
    };
    chain_next();
    cluster_arrive();
    if (early) {
        begin();
        const int next = keys.begin + ahead * reader.step;
        if (threadIdx.x == 0) prefetch(k_cache, call.k.row, next, keys.end);
        if (threadIdx.x == 32) prefetch(v_cache, call.v.row, next, keys.end);
    }
    chain_wait();
    if (!early) begin();

    Mix mix;
    float query[slot];
    const uint4 q = *reinterpret_cast<const uint4 *>(head_rows<const T>(call.q, b, h) + part * slot);
    const uint4 k = *reinterpret_cast<const uint4 *>(head_rows<const T>(k_new, b, kv) + part * slot);
    const uint4 v = *reinterpret_cast<const uint4 *>(head_rows<const T>(v_new, b, kv) + part * slot);
#pragma unroll
    for (int i = 0; i < slot; i++) query[i] = element<T>(q, i) * call.scale;
    for (int first = keys.begin;;) {
        reader.add(mix, query, first);
        first += ahead * reader.step;
        if (first >= keys.end) break;
        reader.load(first);
    }
    if (rank == cluster_size - 1 && warp == warps - 1) { // the new key
        const float score = score_of<T, lanes>(query, k);
        if (lane >= 32 - lanes) {
            shrink_to(mix, fmaxf(mix.most, score));
            add_key<T>(mix, expf(score - mix.most), v);
            if (span.queries && h % call.group == 0) {
                const int64_t to = span.offset * call.k.row + part * slot;
                *reinterpret_cast<uint4 *>(head_rows<T>(call.k, b, kv) + to) = k;
                *reinterpret_cast<uint4 *>(head_rows<T>(call.v, b, kv) + to) = v;
            }
        }
    }

#pragma unroll
    for (int way = lanes; way < 32; way *= 2) {
        shrink_to(mix, fmaxf(mix.most, __shfl_xor_sync(full_warp, mix.most, way)));
        mix.total += __shfl_xor_sync(full_warp, mix.total, way);
#pragma unroll
        for (int i = 0; i < slot; i++) mix.sum[i] += __shfl_xor_sync(full_warp, mix.sum[i], way);
    }
    float *piece = pieces + warp * piece_size;
    if (lane < lanes) {
#pragma unroll
        for (int i = 0; i < slot; i++) piece[part * slot + i] = mix.sum[i];
    }
    if (lane == 0) piece[D] = mix.most, piece[D + 1] = mix.total;
    __syncthreads();
    cluster_wait();
    const int d = threadIdx.x;
    float most, total;
    if (d < D) {
        const float sum = join<D>(pieces, warps, d, &most, &total);
        float *to = parts + rank * piece_size;
        store_remote(to + d, 0, __float_as_uint(sum));
        if (d == 0) store_remote(to + D, 0, __float_as_uint(most));
        if (d == 0) store_remote(to + D + 1, 0, __float_as_uint(total));
    }
    cluster_arrive();
    cluster_wait();
    if (rank > 0 || d >= D || !span.queries) return;
    const float sum = join<D>(parts, cluster_size, d, &most, &total);
    head_rows<T>(call.out, b, h)[d] = from_float<T>(sum / total);
}

// Whether rows start at multiples of 16 bytes.
bool is_aligned(const CudaHeads &heads) {
    return (uintptr_t)heads.data % 16 == 0 && heads.batch % slot == 0 && heads.head % slot == 0 &&
           heads.row % slot == 0;
}

template <typename T, int D>
cudaError_t start(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v) {
    const unsigned heads = (unsigned)call.B * call.H;
    return launch_cluster(true, stream, cluster_kernel<T, D>, heads * cluster_size, threads, 0, call, k, v,
                          is_recorded(stream));
}

} // namespace

bool attention_cluster_supports(DType type, DType cache, const CudaAttention *call, CudaHeads k,
                                CudaHeads v) {
    if (type == DT_F32 || cache != type) return false;
    if (call->D != 32 && call->D != 64 && call->D != 128 && call->D != 256) return false;
    return is_aligned(call->q) && is_aligned(call->k) && is_aligned(call->v) && is_aligned(k) &&
           is_aligned(v) && call->k.row == call->v.row &&
           has_clusters((const void *)cluster_kernel<__nv_bfloat16, 64>);
}

cudaError_t launch_attention_cluster(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                     CudaHeads v) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            switch (call->D) {
            case 32: return start<T, 32>(stream, *call, k, v);
            case 64: return start<T, 64>(stream, *call, k, v);
            case 128: return start<T, 128>(stream, *call, k, v);
            default: return start<T, 256>(stream, *call, k, v);
            }
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
