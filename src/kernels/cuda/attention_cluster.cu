// Attention over KV caches for one new position, in 16 bits (Hopper and later).
//
// A block attends with one or more query heads that share keys, so that it reads these only once. The keys
// are split into contiguous parts, one for each rank of four warps. The warps of a rank take its tiles of 16
// keys in turn, and each keeps a running softmax. At the end, the softmaxes of all warps are combined in a
// fixed order. With few heads, a rank is a block, and the ranks of a head are a cluster, so that most of the
// device reads keys. With many, one or two blocks take all ranks of a head, up to two at a time each. All
// have the same bits.
//
// Scores and weighted sums are products by mma: of keys with queries, and of values with weights. A weight is
// the sum of two 16-bit numbers, so that it keeps its precision.
//
// The new key and value are read from the input and put into the tile that they belong to. In a recording,
// each warp's first tiles are copied to shared memory before the previous kernel has finished, and the rest
// are on their way to the L2 cache. From then on, a tile is replaced by the next one as soon as it was used.
#include "kernels/cuda/attention_cluster.h"

#include <algorithm>

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cluster.cuh"

namespace {

constexpr int warps = 4, ranks = cluster_size; // warps of a rank
constexpr int tile = 16, slot = 8;             // keys; elements in 16 bytes
constexpr float log2_e = 1.44269504f;          // scores are in units of log 2

// How blocks share the ranks of a head: BLOCKS blocks with HERE ranks at a time each. A warp has memory for
// STAGES tiles.
template <int BLOCKS, int HERE, int STAGES> struct Plan {
    static constexpr int blocks = BLOCKS, here = HERE, stages = STAGES;
    static constexpr int rank_step = here * blocks, threads = 32 * warps * here;
};

// Query heads of a block: the softmaxes of all ranks must fit in shared memory.
template <int D> constexpr int most_queries = D <= 64 ? 8 : 512 / D;

// ---- tiles ----

// Keys and values of a tile in shared memory: 16 rows each. Slots of a row are permuted, so that the same
// slot of 8 rows is in different banks. Addresses are in bytes, and those of tiles multiples of 512.
template <int D> struct Tile {
    static constexpr int slots = D / slot, row_bytes = 2 * D, half = tile * row_bytes, size = 2 * half;
    static __device__ uint32_t place(int row, int at) {
        return row * row_bytes + 16 * (at ^ (slots < 8 ? row / (8 / slots) % slots : row % 8));
    }
    // From the place of slot 0 or 1 to that of the slot 2 j further.
    static __device__ uint32_t further(uint32_t from, int j) { return from ^ 32 * j; }
};

__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
template <int AFTER> __device__ inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4 + %5];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row), "n"(AFTER)
                 : "memory");
}
template <int AFTER> __device__ inline void copy_16(uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0 + %1], [%2], 16, %3;" ::"r"(to), "n"(AFTER), "l"(from),
                 "r"(bytes)
                 : "memory");
}

// The keys [key, end) of a rank. A warp takes the first 16.
struct Cursor {
    int rank, key, end;
};

// The keys that a query attends to: from `first` to `newest`, which is not in the cache. Each rank has
// `each`.
struct Keys {
    int first, newest, each;
    int newest_rank, newest_warp;
    __device__ Keys(const CudaAttention &call, int past) {
        first = call.window ? max(past + 1 - call.window, 0) : 0;
        newest = past;
        each = (past + 1 - first + ranks - 1) / ranks;
        newest_rank = (past - first) / each;
        newest_warp = (past - first - newest_rank * each) / tile % warps;
        asm volatile("" : "+r"(newest_rank), "+r"(newest_warp)); // now: a division takes long
    }
    // Ranks that do not exist have none.
    __device__ Cursor start(int rank, int warp) const {
        const int begin = first + rank * each;
        return {rank, begin + warp * tile, rank < ranks ? min(begin + each, newest + 1) : 0};
    }
    __device__ Cursor next(const Cursor &at, int warp, int rank_step) const {
        const int key = at.key + warps * tile;
        return key < at.end ? Cursor{at.rank, key, at.end} : start(at.rank + rank_step, warp);
    }
};

// Copies tiles of a head's caches, whose rows are contiguous, to shared memory.
template <typename T, int D> struct Reader {
    static constexpr int slots = D / slot, rows = 32 / slots, rounds = tile / rows; // rows: at a time
    const T *k, *v;
    // Rows that are not in the cache become zero. Always makes one group of copies.
    __device__ void copy(uint32_t to, const Cursor &at, int newest) const {
        const int lane = threadIdx.x % 32, from = lane / slots, end = min(at.end, newest) - at.key - from;
        if (at.key < at.end) {
            const T *keys = k + (int64_t)at.key * D + lane * slot,
                    *values = v + (int64_t)at.key * D + lane * slot;
#pragma unroll
            for (int i = 0; i < rounds; i++) {
                const uint32_t place = to + Tile<D>::place(i * rows + from, lane % slots);
                const int bytes = i * rows < end ? 16 : 0;
                copy_16<0>(place, keys + i * rows * D, bytes);
                copy_16<Tile<D>::half>(place, values + i * rows * D, bytes);
            }
        }
        copy_group();
    }
    // A hint: fetches keys into the L2 cache.
    __device__ void prefetch(int begin, int end) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        if (begin >= end) return;
        const uint32_t bytes = (uint32_t)((end - begin) * D * sizeof(T));
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(k + (int64_t)begin * D), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(v + (int64_t)begin * D), "r"(bytes)
                     : "memory");
#endif
    }
};

// ---- softmax ----

// Transposes an 8 x 8 matrix of 16-bit elements. Lane 4g + t has elements 2t and 2t + 1 of row g.
__device__ inline uint32_t transpose(uint32_t pair) {
    uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}

// Layout of the partial softmaxes of warps: (query, rank, warp, D sums, maximum and total). Their stride
// lets combine read from different banks.
template <int D> struct Piece {
    static constexpr int size = D + 5, count = ranks * warps;
    static __device__ int place(int query, int rank, int warp) {
        return ((query * ranks + rank) * warps + warp) * size;
    }
};

// Stores a value in the first block of the cluster.
template <int BLOCKS> __device__ inline void store_first(float *to, float value) {
    if (BLOCKS == 1)
        *to = value;
    else
        store_remote(to, 0, __float_as_uint(value));
}

// A warp's softmax. Lane 4g + t has queries 2t and 2t + 1, elements g and g + 8 of every 16, and the part of
// the totals that is from keys g and g + 8 of every tile.
template <typename T, int D> struct Mix {
    static constexpr int slots = D / slot, some = D / 16 < 4 ? D / 16 : 4; // some: 16 elements, at a time
    float most[2] = {-infinity, -infinity}, total[2] = {}, sum[D / 16][4] = {};

    // `query` is the second operand of an mma. `count`: the keys of the tile. Loads come before what they do
    // not depend on, and products that do not depend on each other follow each other.
    __device__ void add(uint32_t at, const uint32_t (&query)[slots], float scale, int count) {
        const int lane = threadIdx.x % 32;
        const uint32_t keys = at + Tile<D>::place(lane % 16, lane / 16),
                       values = at + Tile<D>::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
        float part[2][4] = {};
        uint32_t rows[some][4];
#pragma unroll
        for (int i = 0; i < D / 16; i += some) {
#pragma unroll
            for (int j = 0; j < some; j++) load_matrices(rows[j], Tile<D>::further(keys, i + j));
#pragma unroll
            for (int j = 0; j < some; j++)
                multiply_add<T>(part[j % 2], rows[j], query[2 * (i + j)], query[2 * (i + j) + 1]);
        }
        auto load_values = [&](int i) {
#pragma unroll
            for (int j = 0; j < some; j++)
                load_matrices_transposed<Tile<D>::half>(rows[j], Tile<D>::further(values, i + j));
        };
        load_values(0);
        uint32_t high[2], low[2];
        weigh(high, low, part, scale, count);
#pragma unroll
        for (int i = 0; i < D / 16; i += some) {
            if (i) load_values(i);
#pragma unroll
            for (int j = 0; j < some; j++) multiply_add<T>(sum[i + j], rows[j], high[0], high[1]);
#pragma unroll
            for (int j = 0; j < some; j++) multiply_add<T>(sum[i + j], rows[j], low[0], low[1]);
        }
    }
    // Stores the softmax of the first `count` queries in the first block.
    template <int BLOCKS> __device__ void store(float *to, int rank, int warp, int count) const {
        const int lane = threadIdx.x % 32, g = lane / 4;
        float all[2] = {total[0], total[1]};
#pragma unroll
        for (int way = 4; way < 32; way *= 2)
#pragma unroll
            for (float &one : all) one = __fadd_rn(one, __shfl_xor_sync(full_warp, one, way));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int query = lane % 4 * 2 + j;
            if (query >= count) continue;
            float *piece = to + Piece<D>::place(query, rank, warp);
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                store_first<BLOCKS>(piece + 16 * i + g, sum[i][j]);
                store_first<BLOCKS>(piece + 16 * i + g + 8, sum[i][2 + j]);
            }
            if (g == 0) store_first<BLOCKS>(piece + D, most[j]);
            if (g == 0) store_first<BLOCKS>(piece + D + 1, all[j]);
        }
    }

  private:
    // The weights of keys g (0, 1) and g + 8 (2, 3), as the second operand of an mma. Adds them to the
    // totals.
    __device__ void weigh(uint32_t (&high)[2], uint32_t (&low)[2], const float (&part)[2][4], float scale,
                          int count) {
        const int g = (int)threadIdx.x % 32 / 4;
        float score[4], now[2], shrink[2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            score[j] = __fmul_rn(__fadd_rn(part[0][j], part[1][j]), scale);
            if (g + j / 2 * 8 >= count) score[j] = -infinity;
        }
#pragma unroll
        for (int j = 0; j < 2; j++) now[j] = fmaxf(most[j], fmaxf(score[j], score[2 + j]));
#pragma unroll
        for (int way = 4; way < 32; way *= 2)
#pragma unroll
            for (float &one : now) one = fmaxf(one, __shfl_xor_sync(full_warp, one, way));
#pragma unroll
        for (int j = 0; j < 4; j++) score[j] = power_of_2(__fsub_rn(score[j], now[j % 2]));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t pair = round_pair<T>(score[2 * j], score[2 * j + 1]);
            const float2 kept = pair_values<T>(pair);
            high[j] = transpose(pair);
            low[j] = transpose(
                round_pair<T>(__fsub_rn(score[2 * j], kept.x), __fsub_rn(score[2 * j + 1], kept.y)));
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            shrink[j] = power_of_2(__fsub_rn(most[j], now[j]));
            total[j] = __fmaf_rn(total[j], shrink[j], __fadd_rn(score[j], score[2 + j]));
            most[j] = now[j];
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum[i][j] = __fmul_rn(sum[i][j], shrink[j % 2]);
    }
};

// Combines the softmaxes of all warps of a head: `put(query, d, value)` gets each result. Four lanes take a
// quarter of them each. A warp takes 8 elements at a time.
template <int D, int WARPS, typename Put>
__device__ inline void combine(const float *pieces, int queries, Put put) {
    static_assert(Piece<D>::count == 32, "one for each lane");
    constexpr int octets = D / 8, size = Piece<D>::size;
    const int lane = threadIdx.x % 32, quarter = lane % 4, each = (queries * octets + WARPS - 1) / WARPS;
    const int begin = warp_number() * each, end = min(begin + each, queries * octets);
    float factor = 0, share = 0;
    for (int i = begin; i < end; i++) {
        const float *all = pieces + Piece<D>::place(i / octets, 0, 0);
        if (i == begin || i % octets == 0) {
            const float most = all[lane * size + D], total = all[lane * size + D + 1];
            factor = power_of_2(__fsub_rn(most, warp_max(most)));
            share = reciprocal(warp_sum(__fmul_rn(total, factor)));
        }
        const int d = i % octets * 8 + lane / 4;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = __fmaf_rn(all[(quarter * 8 + j) * size + d],
                            __shfl_sync(full_warp, factor, quarter * 8 + j), sum);
        sum = __fadd_rn(sum, __shfl_xor_sync(full_warp, sum, 1));
        sum = __fadd_rn(sum, __shfl_xor_sync(full_warp, sum, 2));
        if (quarter == 0) put(i / octets, d, __fmul_rn(sum, share));
    }
}

// ---- kernel ----

// The query heads of a block: `count` from head h of sequence b on, which share key head kv.
struct Queries {
    int b, kv, h, count;
    __device__ Queries(const CudaAttention &call, int index, int most) {
        const int split = (call.group + most - 1) / most, heads = call.H / call.group;
        const int chunk = index % split, head = index / split, first = chunk * most;
        b = head / heads, kv = head % heads;
        h = kv * call.group + first, count = min(call.group - first, most);
    }
};

// Of a block that has `queries` query heads.
template <int D, typename P> int shared_floats(int queries) {
    return Tile<D>::size / 4 * warps * P::here * P::stages + queries * Piece<D>::count * Piece<D>::size;
}

// A lane's slots of the new key and value.
template <typename T, int D> struct Newest {
    static constexpr int slots = D / slot, count = (2 * slots + 31) / 32;
    uint4 words[count];
    template <typename Body> __device__ void each(Body body) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int at = i * 32 + (int)threadIdx.x % 32;
            if (at < 2 * slots) body(words[i], at / slots, at % slots); // of keys or of values, and which
        }
    }
    __device__ void load(const CudaHeads &k, const CudaHeads &v, int b, int kv) {
        each([&](uint4 &word, int of, int at) {
            word = reinterpret_cast<const uint4 *>(head_rows<const T>(of ? v : k, b, kv))[at];
        });
    }
    __device__ void append(const CudaAttention &call, int b, int kv, int key) {
        each([&](uint4 &word, int of, int at) {
            const CudaHeads &to = of ? call.v : call.k;
            reinterpret_cast<uint4 *>(head_rows<T>(to, b, kv) + key * to.row)[at] = word;
        });
    }
    __device__ void put(uint32_t to, int row) {
        each([&](uint4 &word, int of, int at) {
            asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to + of * Tile<D>::half +
                                                                       Tile<D>::place(row, at)),
                         "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                         : "memory");
        });
    }
};

// A lane's words of the queries, the second operand of an mma. Those that do not exist are zero.
template <typename T, int D>
__device__ inline void load_query(uint32_t (&query)[D / slot], const CudaAttention &call,
                                  const Queries &own) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    const uint32_t *from =
        reinterpret_cast<const uint32_t *>(head_rows<const T>(call.q, own.b, own.h + min(g, own.count - 1)));
#pragma unroll
    for (int i = 0; i < D / slot; i++) query[i] = g < own.count ? from[4 * i + lane % 4] : 0;
}

// Starts to copy a warp's first tiles. In a recording, also fetches the rest into the L2 cache. Returns the
// first tile that is not being copied.
template <typename P, typename T, int D>
__device__ inline Cursor copy_first(const Reader<T, D> &reader, const Keys &keys, Cursor at, uint32_t ring,
                                    int warp, bool early) {
#pragma unroll 1
    for (int i = 0; i < P::stages; i++) {
        reader.copy(ring + i * Tile<D>::size, at, keys.newest);
        at = keys.next(at, warp, P::rank_step);
    }
    if (early && warp == 0 && threadIdx.x % 32 == 0)
#pragma unroll 1
        for (Cursor rest = at; rest.rank < ranks; rest = keys.start(rest.rank + P::rank_step, 0))
            reader.prefetch(rest.key, min(rest.end, keys.newest));
    return at;
}

// `early`: in a recording, where the counts and the cached keys and values may be read before the previous
// kernel has finished. Within a replay, only this kernel writes to the caches, and only the newest row, which
// it takes from its input. The counts are copied before the first kernel, which waits for that, or written
// after the last attention. Replays do not overlap.
template <typename T, int D, typename P>
__global__ void __launch_bounds__(P::threads, 512 / P::threads)
    cluster_kernel(CudaAttention call, CudaHeads k_new, CudaHeads v_new, int queries, bool early) {
#if __CUDA_ARCH__ >= 900 // see attention_cluster_supports
    constexpr int size = Tile<D>::size;
    extern __shared__ __align__(1024) char memory[];
    const int warp = warp_number() % warps, block = P::blocks == 1 ? 0 : (int)cluster_rank();
    const int rank = block * P::here + warp_number() / warps;
    const Queries own(call, blockIdx.x / P::blocks, queries);
    const uint32_t ring = shared_address(memory) + warp_number() * P::stages * size;
    float *pieces = reinterpret_cast<float *>(memory + P::here * warps * P::stages * size);
    const Reader<T, D> reader = {head_rows<const T>(call.k, own.b, own.kv),
                                 head_rows<const T>(call.v, own.b, own.kv)};
    chain_next();
    if (P::blocks > 1) cluster_arrive();
    if (!early) chain_wait();
    const Span span = span_of(call, own.b);
    const Keys keys(call, span.offset);
    Cursor at = keys.start(rank, warp), ahead = copy_first<P>(reader, keys, at, ring, warp, early);
    if (P::blocks > 1) cluster_wait();
    if (early) chain_wait();

    uint32_t query[D / slot];
    load_query<T, D>(query, call, own);
    const bool has_newest = keys.newest_rank % P::rank_step == rank && keys.newest_warp == warp;
    Newest<T, D> newest;
    if (has_newest) {
        newest.load(k_new, v_new, own.b, own.kv);
        if (span.queries && own.h % call.group == 0) newest.append(call, own.b, own.kv, keys.newest);
    }
    Mix<T, D> mix;
#pragma unroll 1
    for (int stage = 0; at.rank < ranks; stage = stage + 1 < P::stages ? stage + 1 : 0) {
        const uint32_t now = ring + stage * size;
        copy_wait<P::stages - 1>();
        __syncwarp();
        if (at.key < at.end) {
            if (has_newest && at.rank == keys.newest_rank && keys.newest - at.key < tile) {
                newest.put(now, keys.newest - at.key);
                __syncwarp();
            }
            mix.add(now, query, call.scale * log2_e, at.end - at.key);
        }
        __syncwarp();
        reader.copy(now, ahead, keys.newest);
        ahead = keys.next(ahead, warp, P::rank_step);
        const Cursor next = keys.next(at, warp, P::rank_step);
        if (next.rank != at.rank) {
            mix.template store<P::blocks>(pieces, at.rank, warp, own.count);
            mix = Mix<T, D>();
        }
        at = next;
    }
    if (P::blocks == 1) __syncthreads();
    if (P::blocks > 1) cluster_arrive();
    if (P::blocks > 1) cluster_wait();
    if (block > 0 || !span.queries) return;
    combine<D, P::threads / 32>(pieces, own.count, [&](int query, int d, float value) {
        head_rows<T>(call.out, own.b, own.h + query)[d] = from_float<T>(value);
    });
#endif
}

// Whether rows start at multiples of 16 bytes.
bool is_aligned(const CudaHeads &heads) {
    return (uintptr_t)heads.data % 16 == 0 && heads.batch % slot == 0 && heads.head % slot == 0 &&
           heads.row % slot == 0;
}

// Preferred percentage of shared memory, where the driver's default is worse. A multiprocessor divides its
// memory between shared memory and L1 cache anew only while it is idle, so blocks that need another division
// than the kernels around them start late. Measured with the linear layers of linear_fused.cu.
int carveout(int blocks, int queries) {
    return blocks == 4 ? 14 : blocks == 1 && queries > 1 ? 44 : cudaSharedmemCarveoutDefault;
}

template <typename T, int D, typename P>
cudaError_t start_plan(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v,
                       int queries) {
    queries = std::min(std::min(call.group, queries), (int)most_queries<D>);
    const unsigned blocks =
        (unsigned)(call.B * (call.H / call.group) * ((call.group + queries - 1) / queries)) * P::blocks;
    const size_t bytes = shared_floats<D, P>(queries) * sizeof(float);
    const bool early = is_recorded(stream);
    auto kernel = cluster_kernel<T, D, P>;
    cudaError_t error = allow_shared(kernel, bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     carveout(P::blocks, queries));
    if (error != cudaSuccess) return error;
    if (P::blocks == 1)
        return launch_chained(stream, kernel, blocks, P::threads, bytes, call, k, v, queries, early);
    return launch_cluster(true, P::blocks, stream, kernel, blocks, P::threads, bytes, call, k, v, queries,
                          early);
}

// With few heads, or up to `brief` cached keys and a query head per block, a warp has memory for one tile:
// smaller blocks start earlier. Otherwise for two, so that one is copied while the other is used. Blocks with
// wide heads have half as many warps.
template <typename T, int D>
cudaError_t start(cudaStream_t stream, const CudaAttention &call, CudaHeads k, CudaHeads v, int blocks,
                  int queries) {
    constexpr int here = D > 64 ? 1 : 2, brief = 1024;
    if (blocks == 1) return start_plan<T, D, Plan<1, here, 2>>(stream, call, k, v, queries);
    if (blocks == 2 && call.keys <= brief && queries == 1)
        return start_plan<T, D, Plan<2, here, 1>>(stream, call, k, v, queries);
    if (blocks == 2) return start_plan<T, D, Plan<2, here, 2>>(stream, call, k, v, queries);
    if (blocks == 4) return start_plan<T, D, Plan<4, 1, 1>>(stream, call, k, v, queries);
    return start_plan<T, D, Plan<ranks, 1, 1>>(stream, call, k, v, queries);
}

} // namespace

bool attention_cluster_supports(DType type, DType cache, const CudaAttention *call, CudaHeads k,
                                CudaHeads v) {
    constexpr int most_keys = 4096; // beyond, more blocks for a head are faster: see launch_attention_decode
    constexpr int most_shared = 220 << 10; // more than any plan takes; smaller devices have other kernels
    if (shared_limit() < most_shared) return false;
    if (type == DT_F32 || cache != type || call->keys > most_keys) return false;
    if (call->D != 32 && call->D != 64 && call->D != 128 && call->D != 256) return false;
    return is_aligned(call->q) && is_aligned(call->k) && is_aligned(call->v) && is_aligned(k) &&
           is_aligned(v) && call->k.row == call->D && call->v.row == call->D && has_clusters();
}

cudaError_t launch_attention_cluster(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                     CudaHeads v, int blocks, int queries) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            switch (call->D) {
            case 32: return start<T, 32>(stream, *call, k, v, blocks, queries);
            case 64: return start<T, 64>(stream, *call, k, v, blocks, queries);
            case 128: return start<T, 128>(stream, *call, k, v, blocks, queries);
            default: return start<T, 256>(stream, *call, k, v, blocks, queries);
            }
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
