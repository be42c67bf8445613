// Attention over caches, and the row sums that backward starts from.
//
// With one new position a head's keys are few bytes and the time goes into waiting for them, so all warps of
// a block take keys of the same head at once, several rows in flight each. LANES lanes have a row (N elements
// each, R times), and every such group keeps a softmax of its own over the keys it met; in the end groups,
// warps and, where a head is cut into parts, parts are put together in a fixed order. The new key and value
// are read from where they came from, so that no one waits for the cache.
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int warps = 16, threads = 32 * warps, ahead = 4;

// The softmax over some keys: its maximum, the sum of the exponentials and the mix of values.
template <int E> struct Mix {
    float most = -infinity, total = 0, sum[E] = {};
};

template <int E> __device__ inline void shrink_to(Mix<E> &mix, float most) {
    float shrink = mix.most == -infinity ? 0 : expf(mix.most - most);
    mix.total *= shrink;
#pragma unroll
    for (int i = 0; i < E; i++) mix.sum[i] *= shrink;
    mix.most = most;
}

template <typename T, int N, int LANES, int R> struct Reader {
    int D, part; // the lane's place in its group
    __device__ void load(float (&to)[R * N], const T *row) const {
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = (r * LANES + part) * N;
            Pack<T, N> pack = d < D ? load_pack<T, N>(row + d) : Pack<T, N>{};
#pragma unroll
            for (int i = 0; i < N; i++) to[r * N + i] = to_float(pack.at[i]);
        }
    }
    __device__ void copy(T *to, const T *from) const {
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = (r * LANES + part) * N;
            if (d < D) store_pack<T, N>(to + d, load_pack<T, N>(from + d));
        }
    }
};

// Adds the keys from `key` on, `step` apart, `ahead` of them, as far as they are below `end`. The row of key
// `last` is the new one.
template <typename T, int N, int LANES, int R>
__device__ inline void add_keys(Mix<R * N> &mix, const Reader<T, N, LANES, R> &reader,
                                const float (&query)[R * N], const T *const (&cache)[2],
                                const T *const (&fresh)[2], int key, int step, int end, int last) {
    float k[ahead][R * N], v[ahead][R * N], score[ahead], most = mix.most;
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        int at = min(key + a * step, end - 1);
        int64_t row = (int64_t)at * reader.D;
        reader.load(k[a], at == last ? fresh[0] : cache[0] + row);
        reader.load(v[a], at == last ? fresh[1] : cache[1] + row);
    }
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        score[a] = 0;
#pragma unroll
        for (int i = 0; i < R * N; i++) score[a] += query[i] * k[a][i];
        for (int lane = LANES / 2; lane > 0; lane /= 2)
            score[a] += __shfl_xor_sync(full_warp, score[a], lane);
        if (key + a * step >= end) score[a] = -infinity;
        most = fmaxf(most, score[a]);
    }
    if (most == -infinity) return;
    shrink_to(mix, most);
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        float weight = key + a * step < end ? expf(score[a] - most) : 0.0f;
        mix.total += weight;
#pragma unroll
        for (int i = 0; i < R * N; i++) mix.sum[i] += weight * v[a][i];
    }
}

// Puts the mixes of `count` pieces, `stride` floats apart (sum, most, total each), together for element d.
__device__ inline float join(const float *pieces, int count, int stride, int D, int d, float *ret_most,
                             float *ret_total) {
    float most = -infinity, total = 0, sum = 0;
    for (int i = 0; i < count; i++) most = fmaxf(most, pieces[i * stride + D]);
    for (int i = 0; i < count; i++) {
        const float *piece = pieces + i * stride;
        if (piece[D] == -infinity) continue;
        float shrink = expf(piece[D] - most);
        total += piece[D + 1] * shrink;
        sum += piece[d] * shrink;
    }
    *ret_most = most;
    *ret_total = total;
    return sum;
}

template <typename T, int N, int LANES, int R>
__global__ void __launch_bounds__(threads)
    decode_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, int splits, float *parts) {
    extern __shared__ float pieces[]; // (warps, D + 2)
    constexpr int groups = 32 / LANES;
    int head = blockIdx.x / splits, split = blockIdx.x % splits, b = head / call.H, h = head % call.H;
    int D = call.D, warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / LANES;
    chain_next();
    chain_wait();
    Span span = span_of(call, b);
    if (!span.queries) return;
    Reader<T, N, LANES, R> reader = {D, lane % LANES};
    T *const cache[2] = {head_rows<T>(call.k, b, h), head_rows<T>(call.v, b, h)};
    const T *const fresh[2] = {head_rows<const T>(k_new, b, h), head_rows<const T>(v_new, b, h)};
    if (split == 0 && warp == 0 && group == 0) {
        reader.copy(cache[0] + (int64_t)span.offset * D, fresh[0]);
        reader.copy(cache[1] + (int64_t)span.offset * D, fresh[1]);
    }

    Mix<R * N> mix;
    float query[R * N];
    reader.load(query, head_rows<const T>(call.q, b, h));
    for (int i = 0; i < R * N; i++) query[i] *= call.scale;
    int each = (span.keys + splits - 1) / splits, begin = split * each, end = min(begin + each, span.keys);
    const T *const rows[2] = {cache[0], cache[1]};
    for (int key = begin + warp * groups * ahead; key < end; key += warps * groups * ahead)
        add_keys(mix, reader, query, rows, fresh, key + group, groups, end, span.offset);

#pragma unroll
    for (int way = LANES; way < 32; way *= 2) {
        float most = fmaxf(mix.most, __shfl_xor_sync(full_warp, mix.most, way));
        shrink_to(mix, most);
        mix.total += __shfl_xor_sync(full_warp, mix.total, way);
        for (int i = 0; i < R * N; i++) mix.sum[i] += __shfl_xor_sync(full_warp, mix.sum[i], way);
    }
    float *piece = pieces + warp * (D + 2);
    for (int i = 0; group == 0 && i < R * N; i++) {
        int d = (i / N * LANES + lane % LANES) * N + i % N;
        if (d < D) piece[d] = mix.sum[i];
    }
    if (lane == 0) {
        piece[D] = mix.most;
        piece[D + 1] = mix.total;
    }
    __syncthreads();
    for (int d = threadIdx.x; d < D; d += threads) {
        float most, total, sum = join(pieces, warps, D + 2, D, d, &most, &total);
        float *part = parts + (int64_t)blockIdx.x * (D + 2);
        if (splits == 1) {
            head_rows<T>(call.out, b, h)[d] = from_float<T>(sum / total);
            continue;
        }
        part[d] = sum;
        if (d > 0) continue;
        part[D] = most;
        part[D + 1] = total;
    }
}

template <typename T> __global__ void join_kernel(CudaAttention call, int splits, const float *parts) {
    int b = blockIdx.x / call.H, h = blockIdx.x % call.H, D = call.D;
    if (!span_of(call, b).queries) return;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float most, total;
        float sum = join(parts + (int64_t)blockIdx.x * splits * (D + 2), splits, D + 2, D, d, &most, &total);
        head_rows<T>(call.out, b, h)[d] = from_float<T>(sum / total);
    }
}

template <typename T, int N, int LANES, int R>
cudaError_t start_decode(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v, int splits,
                         float *parts) {
    size_t bytes = sizeof(float) * warps * (call.D + 2);
    unsigned heads = (unsigned)call.B * call.H;
    cudaError_t error = launch_chained(stream, decode_kernel<T, N, LANES, R>, heads * splits, threads, bytes,
                                       call, k, v, splits, parts);
    if (error != cudaSuccess) return error;
    if (splits > 1) join_kernel<T><<<heads, 128, 0, stream>>>(call, splits, parts);
    return cudaGetLastError();
}

bool rows_aligned(const CudaHeads &heads, int elements, int size) {
    return (uintptr_t)heads.data % (elements * size) == 0 && heads.batch % elements == 0 &&
           heads.head % elements == 0 && heads.row % elements == 0;
}

template <typename T>
__global__ void append_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, int tiles) {
    Place place = place_of(call, tiles, false);
    Span span = span_of(call, place.b);
    int first = place.tile * 32, end = min(first + 32, span.queries);
    const T *k = head_rows<const T>(k_new, place.b, place.h),
            *v = head_rows<const T>(v_new, place.b, place.h);
    T *k_to = head_rows<T>(call.k, place.b, place.h), *v_to = head_rows<T>(call.v, place.b, place.h);
    for (int i = threadIdx.x; i < (end - first) * call.D; i += blockDim.x) {
        int t = first + i / call.D, d = i % call.D;
        k_to[(span.offset + t) * call.k.row + d] = k[t * k_new.row + d];
        v_to[(span.offset + t) * call.v.row + d] = v[t * v_new.row + d];
    }
}

// LANES lanes have a row of dout and out.
template <typename T, int N, int LANES, int R> __global__ void delta_kernel(CudaAttention call) {
    int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / LANES; // of (B, queries, H)
    bool there = row < (int64_t)call.B * call.queries * call.H;
    int h = row % call.H, t = row / call.H % call.queries, b = row / call.H / call.queries;
    Reader<T, N, LANES, R> reader = {call.D, (int)threadIdx.x % LANES};
    float total = 0;
    if (there) {
        float grad[R * N], out[R * N];
        reader.load(grad, head_rows<const T>(call.dout, b, h) + t * call.dout.row);
        reader.load(out, head_rows<const T>(call.out, b, h) + t * call.out.row);
        for (int i = 0; i < R * N; i++) total += grad[i] * out[i];
    }
    for (int lane = LANES / 2; lane > 0; lane /= 2) total += __shfl_xor_sync(full_warp, total, lane);
    if (there && threadIdx.x % LANES == 0) call.delta[((int64_t)b * call.H + h) * call.queries + t] = total;
}

// Calls body<N, LANES, R>, as types, for rows of D elements; `wide` says that they allow 16-byte accesses.
template <int I> using Int = std::integral_constant<int, I>;
template <typename T, typename Body> cudaError_t with_lanes(int D, bool wide, Body body) {
    constexpr int N = pack_size<T>;
    if (D > 256) return cudaErrorInvalidValue;
    if (!wide) return body(Int<1>{}, Int<32>{}, Int<8>{});
    if (D <= 8 * N) return body(Int<N>{}, Int<8>{}, Int<1>{});
    if (D <= 16 * N) return body(Int<N>{}, Int<16>{}, Int<1>{});
    if (D <= 32 * N) return body(Int<N>{}, Int<32>{}, Int<1>{});
    return body(Int<N>{}, Int<32>{}, Int<256 / (32 * N)>{});
}

} // namespace

cudaError_t launch_attention_delta(cudaStream_t stream, DType type, const CudaAttention *call) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        bool wide = call->D % pack_size<T> == 0 && rows_aligned(call->dout, pack_size<T>, sizeof(T)) &&
                    rows_aligned(call->out, pack_size<T>, sizeof(T));
        return with_lanes<T>(call->D, wide, [&](auto n, auto lanes, auto r) {
            int64_t rows = (int64_t)call->B * call->queries * call->H;
            delta_kernel<T, n.value, lanes.value, r.value>
                <<<blocks_for(rows * lanes.value, 256), 256, 0, stream>>>(*call);
            return cudaGetLastError();
        });
    });
}

cudaError_t launch_attention_append(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                    CudaHeads v) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        int tiles = (call->queries + 31) / 32;
        append_kernel<T>
            <<<(unsigned)((int64_t)call->B * call->H * tiles), 256, 0, stream>>>(*call, k, v, tiles);
        return cudaGetLastError();
    });
}

cudaError_t launch_attention_decode(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                    CudaHeads v, int splits, float *parts) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        bool wide = call->D % pack_size<T> == 0;
        for (const CudaHeads &heads : {call->q, call->k, call->v, k, v})
            wide = wide && rows_aligned(heads, pack_size<T>, sizeof(T));
        return with_lanes<T>(call->D, wide, [&](auto n, auto lanes, auto r) {
            return start_decode<T, n.value, lanes.value, r.value>(stream, *call, k, v, splits, parts);
        });
    });
}
