// Attention backward on Hopper: tile sizes, arguments, shared memory, and the dropout masks of a tile.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_HOPPER_BACKWARD_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_HOPPER_BACKWARD_CUH

#include "kernels/cuda/attention_hopper.cuh"

namespace hopper::backward {

constexpr int keys = HOPPER_KEYS; // per tile
constexpr int stages = 2, threads = 384;

// The sizes for heads of width D: accumulators of wide heads leave registers for the scores of 64 queries
// only.
template <int D> struct Size {
    enum {
        queries = D == 64 ? 128 : 64, // per tile
        ratio = keys / queries,       // query tiles per key tile
        scores = queries / 2,         // per lane
        masks = queries / 32,         // words per key; each has the queries of one lane t, or of two
        parts = D / 64,               // of a tile's dq, which are added separately
    };
};

// A block's key tile, and the `count` query tiles that it iterates over, from `start` on, out of `all`. The
// first `diagonals` of these have queries that do not see all of the tile's keys.
struct Work {
    int b, h, head, tile, keys, live, start, count, all, diagonals;
    bool causal, shifted;
    __device__ inline int query_tile(int i) const {
        int m = start + i;
        return m >= all ? m - all : m;
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
    alignas(16) int begin[stages][S::queries];    // the first key that a query sees; only with windows
    alignas(16) uint32_t mask[2][S::masks][keys]; // double-buffered; as draw_masks stores them
    alignas(16) float columns[2][8][D];           // column sums of dk and dv: those of each consumer warp
    uint64_t kv_full, q_full[stages], q_empty[stages], dout_full[stages], dout_empty[stages];
    uint64_t dq_full[S::parts], dq_empty[S::parts];
    Work work;
    PhiloxStart start;
};

struct BackwardArgs {
    CUtensorMap q, k, v, dout;
    CudaAttention call;
    Philox philox;
    int tiles;    // of keys
    int rows;     // queries, padded to whole tiles
    bool shifted; // all blocks of a head can run at once, so each starts at its own tile
    float *lse, *delta, *dq;
    float *q_columns;  // (B,rows / 64,H,D): column sums of dq; NULL: not needed
    float *kv_columns; // (B,tiles,2,H,D): the same of dk and dv
    int *begin;        // (B,H,rows): only with windows
    float *sums;       // dv and dk (2,B,H / group,rows,D) of the heads so far, in register order
    int *turns;        // (B,H,query tiles,parts): how many blocks have added to a part of dq
    int *kv_turns;     // (B,H / group,tiles): how many blocks have added to sums
    int *started;      // blocks so far
};

inline __host__ __device__ size_t padded_rows(const BackwardArgs &args) {
    return (size_t)args.call.B * args.call.H * args.rows;
}
template <int D> __device__ inline int query_tiles(const BackwardArgs &args) {
    return args.rows / Size<D>::queries;
}
// How many blocks add to dq of query tile m before this one.
template <int D> __device__ inline int turn_of(const BackwardArgs &args, const Work &work, int m) {
    if (args.call.parts) {
        if (!work.causal) return work.live - 1 - work.tile;
        int last = min((m + 1) * Size<D>::queries, args.call.queries) - 1;
        return (keys_seen(args.call, {0, args.call.queries, work.keys}, last) - 1) / keys - work.tile;
    }
    if (!work.causal && !work.shifted) return work.live - 1 - work.tile;
    m /= Size<D>::ratio;
    return work.tile <= m ? min(m, work.live - 1) - work.tile : m + work.live - work.tile;
}

// Transposes a 32 x 32 matrix of bits whose row i is lane i's word. Bit j of lane i becomes bit i of lane j.
__device__ inline uint32_t transpose_bits(uint32_t word) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 5; i++) {
        constexpr uint32_t lower[5] = {0x0000ffff, 0x00ff00ff, 0x0f0f0f0f, 0x33333333, 0x55555555};
        int by = 16 >> i;
        bool high = lane & by;
        uint32_t other = __shfl_xor_sync(full_warp, word, by), keep = high ? ~lower[i] : lower[i];
        other = __funnelshift_l(other, other, high ? 32 - by : by); // what wraps around is not taken
        word = (word & keep) | (other & ~keep);
    }
    return word;
}

// Consumer warp `warp` draws an eighth of a tile's masks. A mask has the tile's keys and the 32 queries that
// lane t of a consumer holds, or two such lanes. Each lane draws words of a query, as in forward; transposed,
// they have a bit for each query of a key. Lane i stores those of the keys at bit i of the words. Returns one
// of the words, to be waited for.
template <int D>
__device__ inline uint32_t draw_masks(const BackwardArgs &args, const PhiloxStart &start,
                                      uint32_t (&to)[Size<D>::masks][keys], const Work &work, int query_tile,
                                      int warp) {
    constexpr int queries = Size<D>::queries, masks = Size<D>::masks, words = masks / 2;
    int lane = threadIdx.x % 32, mask = warp * words / 4, first = warp * words % 4;
    int t = mask * (4 / masks) + lane / (queries / 4), at = lane % (queries / 4);
    int query = query_tile * queries + at / 2 * 8 + 2 * t + at % 2;
    uint64_t word = dropout_word(args.call.dropout, work.b, work.h, query_place(args.call, query),
                                 key_place(args.call, work.tile * keys)) +
                    first;
    uint64_t numbers[words];
    uint32_t kept[words];
#pragma unroll
    for (int i = 0; i < words; i++) numbers[i] = word + i;
    kept_words(kept, args.philox, start, numbers);
#pragma unroll
    for (int i = 0; i < words; i++) to[mask][lane * 4 + first + i] = kept[i] = transpose_bits(kept[i]);
    return kept[0];
}
// Where the mask of a key is in what draw_masks stores.
__device__ inline int mask_at(int key) {
    return dropout_bit(key) * 4 + key % 8 / 2;
}

} // namespace hopper::backward

#endif
