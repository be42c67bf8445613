// Attention backward on Hopper: tile sizes, arguments, shared memory, and the dropout masks of a tile.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_HOPPER_BACKWARD_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_HOPPER_BACKWARD_CUH

#include "kernels/cuda/attention_hopper.cuh"

namespace hopper::backward {

constexpr int keys = 128; // per tile
constexpr int stages = 2, mask_slots = 4, threads = 384;
// A tile's mask is drawn in units: the 16 queries out of 64 that lane t reads, for all keys. Three producer
// warps can draw two units each while the products run; more would stall the consumers, so the rest is drawn
// by a kernel of its own beforehand, unless the masks would take too much memory.
constexpr int draw_warps = 3;
constexpr size_t most_mask_bytes = (size_t)1 << 28;

// The sizes for heads of width D: accumulators of wide heads leave registers for the scores of 64 queries
// only.
template <int D> struct Size {
    enum {
        queries = D == 64 ? 128 : 64, // per tile
        ratio = keys / queries,       // query tiles per key tile
        units = queries / 16,
        units_ahead = units > 2 * draw_warps ? units - 2 * draw_warps : 0,
        scores = queries / 2, // per lane
    };
};

// A block's key tile, and the `count` query tiles that it iterates over out of `all`.
struct Work {
    int b, h, head, tile, keys, live, count, all, ratio;
    bool causal, shifted;
    __device__ inline int query_tile(int i) const {
        if (!causal && !shifted) return i;
        int m = tile * ratio + i;
        return m >= all ? m - all : m;
    }
    // How many blocks add to dq of query tile m before this one.
    __device__ inline int turn(int m) const {
        if (!causal && !shifted) return live - 1 - tile;
        m /= ratio;
        return tile <= m ? min(m, live - 1) - tile : m + live - tile;
    }
};

template <int D> struct Shared {
    using S = Size<D>;
    alignas(1024) uint16_t k[keys * D];
    alignas(1024) uint16_t v[keys * D];
    alignas(1024) uint16_t q[stages][S::queries * D];
    alignas(1024) uint16_t dout[stages][S::queries * D];
    alignas(1024) uint16_t ds[2][S::queries / 64][keys * 64]; // double-buffered; keys x 64 queries
    alignas(1024) float dq[2][64 * 64]; // of each warpgroup, in register order: 8 times 4 values of 128 lanes
    alignas(16) float lse[stages][S::queries];
    alignas(16) float delta[stages][S::queries];
    alignas(16) int begin[stages][S::queries]; // the first key that a query sees; only with windows
    alignas(16) uint16_t mask[mask_slots][S::units][keys];
    uint64_t kv_full, q_full[stages], q_empty[stages], dout_full[stages], dout_empty[stages];
    uint64_t dq_full, dq_empty, mask_full[mask_slots], mask_empty[mask_slots];
    Work work;
};

struct BackwardArgs {
    CUtensorMap q, k, v, dout;
    CudaAttention call;
    Philox philox;
    int tiles;    // of keys
    bool shifted; // all blocks of a head can run at once, so each starts at its own tile
    float *lse, *delta, *dq;
    int *begin;      // (B,H,rows): only with windows
    float *sums;     // dv and dk (2,B,H / group,rows,D) of the heads so far, in register order
    int *turns;      // (B,H,query tiles): how many blocks have added to dq
    int *kv_turns;   // (B,H / group,tiles): how many blocks have added to sums
    int *started;    // blocks so far
    int ahead;       // units in `masks`
    uint16_t *masks; // (B,H,tiles,query tiles,ahead,keys)
};

inline __host__ __device__ int padded(const BackwardArgs &args) {
    return args.tiles * keys;
}
inline __host__ __device__ size_t padded_rows(const BackwardArgs &args) {
    return (size_t)args.call.B * args.call.H * padded(args);
}
template <int D> __device__ inline int query_tiles(const BackwardArgs &args) {
    return args.tiles * Size<D>::ratio;
}

// The mask of eight keys and eight queries, 8 bits per key; four keys per word. `index` is the draw index of
// the first key and query, `right` the distance from one query to the next.
__device__ inline uint2 draw_octet(const BackwardArgs &args, uint64_t index, uint32_t right) {
    const Philox &philox = args.philox;
    uint64_t block = index / 8;
    uint32_t even[4] = {}, odd[4] = {}, low = (uint32_t)block, step = right / 8;
    if (__all_sync(full_warp, right % 8 == 0 && low < ~(32 * step))) {
        PhiloxHigh high = philox_high(philox, (uint32_t)(block >> 32));
        uint64_t product = (uint64_t)philox_factor * low, more = (uint64_t)philox_factor * step;
#pragma unroll 1
        for (int n = 0; n < 4; n += 2, product += 16 * more) {
            uint4 made[4];
            const uint64_t products[4] = {product, product + more, product + 8 * more, product + 9 * more};
            philox_draw(made, philox, high, products);
#pragma unroll
            for (int i = 0; i < 4; i++) append_words(even, odd, made[i], philox);
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            uint64_t at = index + (uint64_t)(i / 2 * 8 + i % 2) * right;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                append_kept(even[j], draw(args.call.dropout.key, at + 2 * j) << 16, philox);
                append_kept(odd[j], draw(args.call.dropout.key, at + 2 * j + 1) << 16, philox);
            }
        }
    }
    return make_uint2(even[0] | odd[0] << 8 | even[1] << 16 | odd[1] << 24,
                      even[2] | odd[2] << 8 | even[3] << 16 | odd[3] << 24);
}

// Draws a unit: two lanes share eight keys, each with half of the queries. They exchange half of their keys,
// so that each stores four keys, with the first queries in the upper bytes.
template <int D>
__device__ inline void draw_unit(const BackwardArgs &args, uint16_t *to, int b, int h, int key_tile,
                                 int query_tile, int unit) {
    constexpr int halves = Size<D>::queries / 64;
    int lane = threadIdx.x % 32, key = lane % 16 * 8, half = lane / 16;
    int query = query_tile * Size<D>::queries + unit % halves * 64 + unit / halves * 2 + half * 32;
    uint64_t index = dropout_scores(args.call.dropout, b, h, query) + (uint64_t)(key_tile * keys + key);
    uint2 drawn = draw_octet(args, index, (uint32_t)args.call.dropout.extent[1]);
    uint32_t other = __shfl_xor_sync(full_warp, half ? drawn.x : drawn.y, 16);
    uint32_t upper = half ? other : drawn.x, lower = half ? drawn.y : other;
    *reinterpret_cast<uint2 *>(to + key + 4 * half) =
        make_uint2(__byte_perm(lower, upper, 0x5140), __byte_perm(lower, upper, 0x7362));
}

// Draws the first units of tile `at`, one warp per tile.
template <int D> __device__ inline void draw_ahead(const BackwardArgs &args, int64_t at) {
    const CudaAttention &call = args.call;
    int all = query_tiles<D>(args), query_tile = at % all, key_tile = at / all % args.tiles;
    int64_t head = at / all / args.tiles;
    int b = head / call.H, h = head % call.H;
    if (b >= call.B || (call.causal && query_tile < key_tile * Size<D>::ratio) ||
        key_tile * keys >= span_of(call, b).keys)
        return;
#pragma unroll 1
    for (int unit = 0; unit < args.ahead; unit++)
        draw_unit<D>(args, args.masks + (at * args.ahead + unit) * keys, b, h, key_tile, query_tile, unit);
}

} // namespace hopper::backward

#endif
