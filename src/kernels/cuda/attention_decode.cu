// Attention over KV caches, and the row sums (delta) for backward.
//
// With one new position, a head's keys are few bytes and memory latency dominates. All warps of a block
// therefore process keys of the same head at once, each with several rows in flight. A row is loaded by LANES
// lanes (N elements each, R times), and each such group keeps a running softmax over its keys. At the end,
// groups, warps and, if a head is split, the splits are combined in a fixed order. The new key and value are
// read from the input, so that no thread waits for them to be written to the cache. In a recording, cached
// rows are on their way to the L2 cache while the previous kernel still runs.
//
// The caches may have a different type than the other tensors: bf16 with fp32, or int8 with a scale after
// each row. Then every group quantizes the new key and value itself.
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/chain.cuh"

namespace {

constexpr int warps = 16, threads = 32 * warps, ahead = 4;

// Running softmax: the maximum score, the sum of exponentials and the weighted sum of values.
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

// Rows of a cache whose type C is not T.
template <typename C, int N, int LANES, int R> struct CacheReader {
    int D, part;
    __device__ void load(float (&to)[R * N], const C *row) const {
        float unit = scale_of(row);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = (r * LANES + part) * N;
            Pack<C, N> pack = d < D ? load_pack<C, N>(row + d) : Pack<C, N>{};
#pragma unroll
            for (int i = 0; i < N; i++) to[r * N + i] = value_of(pack.at[i], unit);
        }
    }
    // Quantizes a row to the cache's type, in place; also writes it to the cache if `store`.
    __device__ void keep(float (&x)[R * N], C *row, bool store) const {
        float unit = 1, finer = 1;
        if constexpr (std::is_same_v<C, int8_t>) find_scale(x, unit, finer);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = (r * LANES + part) * N;
            Pack<C, N> pack;
#pragma unroll
            for (int i = 0; i < N; i++) {
                pack.at[i] = rounded(x[r * N + i], finer);
                x[r * N + i] = value_of(pack.at[i], unit);
            }
            if (store && d < D) store_pack<C, N>(row + d, pack);
        }
        if constexpr (std::is_same_v<C, int8_t>)
            if (store && part == 0) memcpy(row + D, &unit, sizeof unit);
    }

  private:
    // If D is not a multiple of 4, the scale may be unaligned.
    __device__ static float from_bytes(const int8_t *at) {
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++) bits |= (uint32_t)(uint8_t)at[i] << (8 * i);
        return __uint_as_float(bits);
    }
    __device__ float scale_of(const C *row) const {
        if constexpr (!std::is_same_v<C, int8_t>)
            return 1;
        else if constexpr (N % 4 == 0)
            return *reinterpret_cast<const float *>(row + D);
        else
            return from_bytes(row + D);
    }
    __device__ static float value_of(C kept, float unit) {
        if constexpr (std::is_same_v<C, int8_t>)
            return __fmul_rn((float)kept, unit);
        else
            return to_float(kept);
    }
    __device__ static C rounded(float x, float finer) {
        if constexpr (std::is_same_v<C, int8_t>)
            return finer == 0 ? (C)0 : (C)(int)rintf(__fmul_rn(x, finer));
        else
            return from_float<C>(x);
    }
    // As in the reference, a value that is not finite makes the scale NaN.
    __device__ static void find_scale(const float (&x)[R * N], float &unit, float &finer) {
        float largest = 0;
#pragma unroll
        for (int i = 0; i < R * N; i++) {
            float size = fabsf(x[i]);
            largest = size <= 3.402823466e38f ? fmaxf(largest, size) : infinity; // also for NaN
        }
        for (int lane = LANES / 2; lane > 0; lane /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, lane));
        bool finite = largest < infinity;
        unit = finite ? __fdiv_rn(largest, 127.0f) : NAN;
        finer = finite && largest > 0 ? __fdiv_rn(127.0f, largest) : 0.0f;
        if (isinf(finer)) finer = 0; // so small that it is stored as zero
    }
};

// The new key and value: pointers to them or, for a cache of another type, their quantized values.
template <typename T, typename C, int E> struct Fresh { float k[E], v[E]; };
template <typename T, int E> struct Fresh<T, T, E> { const T *k, *v; };

// A lane's elements of a key or value, in fp32 or, if it has 16 bytes of a 16-bit type, as loaded, which
// takes half the registers.
template <typename T, typename C, int N>
constexpr bool keeps_words = std::is_same_v<T, C> && sizeof(T) == 2 && N == 8;

// Blocks per multiprocessor that have enough registers.
template <typename T, typename C, int N, int R>
constexpr int blocks_at_once = R == 1 ? 1 + keeps_words<T, C, N> : 1;

template <typename T, int N, int LANES, int R, bool WORDS> struct Row {
    float x[R * N];
    __device__ void load(const Reader<T, N, LANES, R> &reader, const T *row) { reader.load(x, row); }
    __device__ void use() {}
    __device__ float at(int i) const { return x[i]; }
};
template <typename T, int N, int LANES, int R> struct Row<T, N, LANES, R, true> {
    uint32_t word[R * 4];
    __device__ void load(const Reader<T, N, LANES, R> &reader, const T *row) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = (r * LANES + reader.part) * N;
            uint4 all = d < reader.D ? *reinterpret_cast<const uint4 *>(row + d) : make_uint4(0, 0, 0, 0);
            word[4 * r] = all.x, word[4 * r + 1] = all.y, word[4 * r + 2] = all.z, word[4 * r + 3] = all.w;
        }
    }
    // Keeps the compiler from converting the elements earlier.
    __device__ void use() {
#pragma unroll
        for (int i = 0; i < R * 4; i++) asm volatile("" : "+r"(word[i]));
    }
    __device__ float at(int i) const {
        uint16_t bits = (uint16_t)(word[i / 2] >> (i % 2 * 16));
        T value;
        memcpy(&value, &bits, sizeof value);
        return to_float(value);
    }
};

// Adds up to `ahead` keys below `end`, starting at `key` and `step` apart. Key `last` is the new one.
template <typename T, typename C, int N, int LANES, int R>
__device__ inline void add_keys(Mix<R * N> &mix, int D, int part, const float (&query)[R * N],
                                const C *const (&cache)[2], int64_t stride, const Fresh<T, C, R * N> &fresh,
                                int key, int step, int end, int last) {
    Row<T, N, LANES, R, keeps_words<T, C, N>> k[ahead], v[ahead];
    float score[ahead], most = mix.most;
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        int at = min(key + a * step, end - 1);
        int64_t row = at * stride;
        if constexpr (std::is_same_v<T, C>) {
            Reader<T, N, LANES, R> reader = {D, part};
            k[a].load(reader, at == last ? fresh.k : cache[0] + row);
            v[a].load(reader, at == last ? fresh.v : cache[1] + row);
        } else {
            CacheReader<C, N, LANES, R> reader = {D, part};
            reader.load(k[a].x, cache[0] + row);
            reader.load(v[a].x, cache[1] + row);
#pragma unroll
            for (int i = 0; i < R * N; i++) {
                k[a].x[i] = at == last ? fresh.k[i] : k[a].x[i];
                v[a].x[i] = at == last ? fresh.v[i] : v[a].x[i];
            }
        }
    }
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        score[a] = 0;
        k[a].use();
#pragma unroll
        for (int i = 0; i < R * N; i++) score[a] += query[i] * k[a].at(i);
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
        v[a].use();
#pragma unroll
        for (int i = 0; i < R * N; i++) mix.sum[i] += weight * v[a].at(i);
    }
}

// Combines element d of `count` partial softmaxes, `stride` floats apart; each has sum, most and total.
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

// The keys of a split.
struct Keys {
    int begin, end;
};
__device__ inline Keys keys_of(const CudaAttention &call, int keys, int split, int splits) {
    int hidden = call.window ? max(keys - call.window, 0) : 0, each = (keys - hidden + splits - 1) / splits;
    int begin = hidden + split * each;
    return {begin, min(begin + each, keys)};
}

// Copies the rows of a split that are in a cache, of keys or of values, to the L2 cache. This is only a hint,
// so it may run before chain_wait: earlier kernels of a recording do not write these rows, and a count that
// is not up to date is clamped.
template <typename C>
__device__ inline void prefetch_keys(const CudaAttention &call, const CudaHeads &cache, int b, int kv,
                                     int split, int splits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const Keys keys = keys_of(call, min(max(__ldcg(call.past + b), 0), call.keys), split, splits);
    const C *rows = head_rows<const C>(cache, b, kv);
    const uintptr_t begin = ((uintptr_t)(rows + keys.begin * cache.row) + 15) / 16 * 16;
    const uintptr_t end = (uintptr_t)(rows + keys.end * cache.row) / 16 * 16;
    if (begin < end)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"((uint32_t)(end - begin))
                     : "memory");
#endif
}

template <typename T, typename C, int N, int LANES, int R>
__global__ void __launch_bounds__(threads, blocks_at_once<T, C, N, R>)
    decode_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, int splits, float *parts,
                  bool early) {
    extern __shared__ float pieces[]; // (warps, D + 2)
    constexpr int groups = 32 / LANES;
    int head = blockIdx.x / splits, split = blockIdx.x % splits, b = head / call.H, h = head % call.H;
    int D = call.D, warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / LANES;
    chain_next();
    if (early && threadIdx.x % 32 == 0 && warp < 2 && h % call.group == 0)
        prefetch_keys<C>(call, warp == 0 ? call.k : call.v, b, h / call.group, split, splits);
    chain_wait();
    Span span = span_of(call, b);
    if (!span.queries) return;
    Reader<T, N, LANES, R> reader = {D, lane % LANES};
    const int kv = h / call.group;
    C *const cache[2] = {head_rows<C>(call.k, b, kv), head_rows<C>(call.v, b, kv)};
    const T *k = head_rows<const T>(k_new, b, kv), *v = head_rows<const T>(v_new, b, kv);
    const bool store = split == 0 && warp == 0 && group == 0 && h % call.group == 0;
    const int64_t stride = call.k.row, place = span.offset * stride;
    Fresh<T, C, R * N> fresh;
    if constexpr (std::is_same_v<T, C>) {
        fresh.k = k;
        fresh.v = v;
        if (store) {
            reader.copy(cache[0] + place, k);
            reader.copy(cache[1] + place, v);
        }
    } else {
        CacheReader<C, N, LANES, R> keeper = {D, lane % LANES};
        reader.load(fresh.k, k);
        reader.load(fresh.v, v);
        keeper.keep(fresh.k, cache[0] + place, store);
        keeper.keep(fresh.v, cache[1] + place, store);
    }

    Mix<R * N> mix;
    float query[R * N];
    reader.load(query, head_rows<const T>(call.q, b, h));
    for (int i = 0; i < R * N; i++) query[i] *= call.scale;
    const Keys keys = keys_of(call, span.keys, split, splits);
    const int begin = keys.begin, end = keys.end;
    const C *const rows[2] = {cache[0], cache[1]};
    for (int key = begin + warp * groups * ahead; key < end; key += warps * groups * ahead)
        add_keys<T, C, N, LANES, R>(mix, D, lane % LANES, query, rows, stride, fresh, key + group, groups,
                                    end, span.offset);

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

template <typename T, typename C, int N, int LANES, int R>
cudaError_t start_decode(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v, int splits,
                         float *parts) {
    size_t bytes = sizeof(float) * warps * (call.D + 2);
    unsigned heads = (unsigned)call.B * call.H;
    cudaError_t error = launch_chained(stream, decode_kernel<T, C, N, LANES, R>, heads * splits, threads,
                                       bytes, call, k, v, splits, parts, is_recorded(stream));
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
    Place place = place_of(call.H / call.group, tiles, false);
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

// The same for caches of another type. Each warp processes a row at a time.
template <typename T, typename C>
__global__ void append_rounded_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, int tiles) {
    constexpr int R = 8; // of 32 elements each
    Place place = place_of(call.H / call.group, tiles, false);
    Span span = span_of(call, place.b);
    int first = place.tile * 32, end = min(first + 32, span.queries), lane = threadIdx.x % 32;
    Reader<T, 1, 32, R> reader = {call.D, lane};
    CacheReader<C, 1, 32, R> keeper = {call.D, lane};
    for (int t = first + (int)threadIdx.x / 32; t < end; t += (int)blockDim.x / 32) {
        float x[R];
        int64_t to = (span.offset + t) * call.k.row;
        reader.load(x, head_rows<const T>(k_new, place.b, place.h) + t * k_new.row);
        keeper.keep(x, head_rows<C>(call.k, place.b, place.h) + to, true);
        reader.load(x, head_rows<const T>(v_new, place.b, place.h) + t * v_new.row);
        keeper.keep(x, head_rows<C>(call.v, place.b, place.h) + to, true);
    }
}

// Converts the cached rows that queries may attend to into T: k and v (B,H/group,keys,D).
template <typename T, typename C> __global__ void widen_kernel(CudaAttention call, T *k, T *v, int tiles) {
    constexpr int R = 8;
    Place place = place_of(call.H / call.group, tiles, false);
    Span span = span_of(call, place.b);
    int first = place.tile * 32, end = min(first + 32, span.keys), lane = threadIdx.x % 32;
    CacheReader<C, 1, 32, R> reader = {call.D, lane};
    for (int at = first + (int)threadIdx.x / 32; at < end; at += (int)blockDim.x / 32) {
        float x[2][R];
        int64_t to = ((int64_t)(place.b * (call.H / call.group) + place.h) * call.keys + at) * call.D;
        reader.load(x[0], head_rows<const C>(call.k, place.b, place.h) + at * call.k.row);
        reader.load(x[1], head_rows<const C>(call.v, place.b, place.h) + at * call.v.row);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int d = r * 32 + lane;
            if (d >= call.D) continue;
            k[to + d] = from_float<T>(x[0][r]);
            v[to + d] = from_float<T>(x[1][r]);
        }
    }
}

// LANES lanes process a row of dout and out.
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

// Calls body(T{}, C{}) with the types of the rows and of the caches.
template <typename Body> cudaError_t with_cache(DType type, DType cache, Body body) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (cache == type) return body(T{}, T{});
        if (cache == DT_I8) return body(T{}, int8_t{});
        if constexpr (std::is_same_v<T, float>)
            if (cache == DT_BF16) return body(T{}, __nv_bfloat16{});
        return cudaErrorInvalidValue;
    });
}

// Calls body with N, LANES and R as types, for rows of D elements. `wide`: 16-byte accesses are possible.
template <int I> using Int = std::integral_constant<int, I>;
template <int N, typename Body> cudaError_t with_lanes(int D, bool wide, Body body) {
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
        return with_lanes<pack_size<T>>(call->D, wide, [&](auto n, auto lanes, auto r) {
            int64_t rows = (int64_t)call->B * call->queries * call->H;
            delta_kernel<T, n.value, lanes.value, r.value>
                <<<blocks_for(rows * lanes.value, 256), 256, 0, stream>>>(*call);
            return cudaGetLastError();
        });
    });
}

cudaError_t launch_attention_append(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v) {
    return with_cache(type, cache, [&](auto t, auto c) {
        using T = decltype(t);
        using C = decltype(c);
        int tiles = (call->queries + 31) / 32;
        unsigned blocks = (unsigned)((int64_t)call->B * (call->H / call->group) * tiles);
        if constexpr (std::is_same_v<T, C>)
            append_kernel<T><<<blocks, 256, 0, stream>>>(*call, k, v, tiles);
        else
            append_rounded_kernel<T, C><<<blocks, 256, 0, stream>>>(*call, k, v, tiles);
        return cudaGetLastError();
    });
}

cudaError_t launch_attention_widen(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                   void *k, void *v) {
    return with_cache(type, cache, [&](auto t, auto c) {
        using T = decltype(t);
        using C = decltype(c);
        int tiles = (call->keys + 31) / 32;
        unsigned blocks = (unsigned)((int64_t)call->B * (call->H / call->group) * tiles);
        if constexpr (std::is_same_v<T, C>)
            return cudaErrorInvalidValue;
        else
            widen_kernel<T, C><<<blocks, 256, 0, stream>>>(*call, (T *)k, (T *)v, tiles);
        return cudaGetLastError();
    });
}

cudaError_t launch_attention_decode(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v, int splits, float *parts) {
    return with_cache(type, cache, [&](auto t, auto c) {
        using T = decltype(t);
        using C = decltype(c);
        constexpr int N = sizeof(C) == 1 ? 4 : pack_size<T>;
        bool wide = call->D % N == 0;
        for (const CudaHeads &heads : {call->q, k, v}) wide = wide && rows_aligned(heads, N, sizeof(T));
        for (const CudaHeads &heads : {call->k, call->v}) wide = wide && rows_aligned(heads, N, sizeof(C));
        return with_lanes<N>(call->D, wide, [&](auto n, auto lanes, auto r) {
            return start_decode<T, C, n.value, lanes.value, r.value>(stream, *call, k, v, splits, parts);
        });
    });
}
