// Building blocks of the Hopper attention kernels beyond hopper.cuh: copies and results of heads, and dropout
// masks. Rows of heads of width 128 are two tiles, one behind the other: all left halves, then all right
// halves.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include <algorithm>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper.cuh"

namespace hopper {

constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

// ---- host: tensor maps ----

// Describes `count` heads (B, count, length, D) to TMA, to be loaded as tiles of `rows` rows. Rows past the
// length read as 0.
bool map_heads(CUtensorMap *map, DType type, const CudaAttention &call, const CudaHeads &heads, int count,
               int length, int rows);

// ---- dropout ----

// rng_kept of base/rng.h with everything precomputed that all words of a call share. Within a tile only the
// low word of Philox's counter changes, so half of the first two rounds is constant.
struct Philox {
    uint32_t keys[RNG_ROUNDS_DROPOUT][2];
    uint32_t clear[8]; // all ones where a bit of the threshold's upper byte is 0, highest first
    uint32_t low;      // the threshold's lower byte, in the upper byte
    uint32_t groups;   // of 128 keys, per query
};

inline Philox philox_of(const CudaDropout &dropout) {
    Philox made = {};
    uint32_t k0 = (uint32_t)dropout.key.key, k1 = (uint32_t)(dropout.key.key >> 32);
    for (int round = 0; round < RNG_ROUNDS_DROPOUT; round++) {
        made.keys[round][0] = k0 + 0x9E3779B9u * (uint32_t)round;
        made.keys[round][1] = k1 + 0xBB67AE85u * (uint32_t)round;
    }
    for (int i = 0; i < 8; i++) made.clear[i] = dropout.threshold >> (15 - i) & 1 ? 0 : ~0u;
    made.low = dropout.threshold << 24;
    made.groups = (uint32_t)dropout_groups(dropout);
    return made;
}

// The constant parts of the first two rounds, which depend on the step. Kernels keep them in shared memory:
// the step may have to be read, and there are no registers to spare.
struct PhiloxStart {
    uint32_t first0, first2, second0;
};
__device__ inline PhiloxStart philox_start(const Philox &philox, CudaDropout dropout) {
    dropout_begin(dropout);
    uint64_t step = dropout.key.step, product = (uint64_t)0xCD9E8D57u * (uint32_t)step;
    return {(uint32_t)(product >> 32) ^ philox.keys[0][0], (uint32_t)(step >> 32) ^ philox.keys[0][1],
            (uint32_t)product ^ philox.keys[1][0]};
}

// The constants of all blocks with the same high word.
struct PhiloxHigh {
    uint32_t second2, second3;
};
__device__ inline PhiloxHigh philox_high(const Philox &philox, const PhiloxStart &start, uint32_t high) {
    uint64_t product = (uint64_t)0xD2511F53u * (start.first0 ^ high);
    return {(uint32_t)(product >> 32) ^ philox.keys[1][1], (uint32_t)product};
}
// The same draws as draw_block, for N blocks at once: each round depends on the one before, so a single block
// would leave the multiplier idle most of the time. `product` is philox_factor times a block's low word.
constexpr uint32_t philox_factor = 0xD2511F53u;
template <int N>
__device__ inline void philox_draw(uint4 (&made)[N], const Philox &philox, const PhiloxStart &start,
                                   const PhiloxHigh (&high)[N], const uint64_t (&product)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint64_t other = (uint64_t)0xCD9E8D57u * ((uint32_t)(product[i] >> 32) ^ start.first2);
        made[i] = make_uint4((uint32_t)(other >> 32) ^ start.second0, (uint32_t)other,
                             high[i].second2 ^ (uint32_t)product[i], high[i].second3);
    }
#pragma unroll
    for (int round = 2; round < RNG_ROUNDS_DROPOUT; round++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            uint64_t p0 = (uint64_t)philox_factor * made[i].x, p1 = (uint64_t)0xCD9E8D57u * made[i].z;
            made[i] = make_uint4((uint32_t)(p1 >> 32) ^ made[i].y ^ philox.keys[round][0], (uint32_t)p1,
                                 (uint32_t)(p0 >> 32) ^ made[i].w ^ philox.keys[round][1], (uint32_t)p0);
        }
}
__device__ inline uint32_t majority(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t made;
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(made) : "r"(a), "r"(b), "r"(c));
    return made;
}
// The mask made from two blocks.
__device__ inline uint32_t kept_of(const Philox &philox, uint4 a, uint4 b) {
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint32_t kept = (a.x ^ a.y << 8) >= philox.low ? ~0u : 0;
#pragma unroll
    for (int i = 7; i >= 0; i--) kept = majority(words[i], kept, philox.clear[i]);
    return kept;
}
// N masks; `word` are their numbers, as dropout_word returns them.
template <int N>
__device__ inline void kept_words(uint32_t (&kept)[N], const Philox &philox, const PhiloxStart &start,
                                  const uint64_t (&word)[N]) {
    uint4 made[2 * N];
    PhiloxHigh high[2 * N];
    uint64_t product[2 * N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        high[2 * i] = high[2 * i + 1] = philox_high(philox, start, (uint32_t)(word[i] >> 31));
        product[2 * i] = (uint64_t)philox_factor * ((uint32_t)word[i] << 1);
        product[2 * i + 1] = product[2 * i] + philox_factor;
    }
    philox_draw(made, philox, start, high, product);
#pragma unroll
    for (int i = 0; i < N; i++) kept[i] = kept_of(philox, made[2 * i], made[2 * i + 1]);
}

// ---- copies ----

__device__ inline void copy_box(void *to, const CUtensorMap *map, uint64_t *barrier, int column, int row,
                                int h, int b) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(h), "r"(b)
                 : "memory");
}
// Copies ROWS rows of width D.
template <int D, int ROWS>
__device__ inline void copy_rows(uint16_t (&to)[ROWS * D], const CUtensorMap *map, uint64_t *barrier, int row,
                                 int h, int b) {
    for (int column = 0; column < D; column += width)
        copy_box(to + column * ROWS, map, barrier, column, row, h, b);
}

// ---- results ----

template <typename T> __device__ inline uint4 add_pairs(uint4 a, uint4 b) {
    auto add = [](uint32_t x, uint32_t y) {
        const float2 one = pair_values<T>(x), other = pair_values<T>(y);
        return round_pair<T>(one.x + other.x, one.y + other.y);
    };
    return make_uint4(add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w));
}

// Stores or adds the warp's 16 rows of a product, rows g times `factor` and rows g + 8 times `factor8`,
// through `buffer`: 16 rows of shared memory owned by the warp. Rows at or past `limit` are not stored. A
// factor of 0 stores 0 even if the product is not finite.
template <typename T>
__device__ inline void store_tile(T *to, int64_t stride, int limit, T *buffer, const float *d, float factor,
                                  float factor8, bool add = false) {
    int lane = threadIdx.x % 32;
    uint32_t at = matrices_at(buffer, 0);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        uint32_t pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float by = i % 2 ? factor8 : factor;
            const float *two = d + 4 * (n + i / 2) + i % 2 * 2;
            pair[i] = by == 0 ? 0 : round_pair<T>(two[0] * by, two[1] * by);
        }
        store_matrices(at ^ 16 * n, pair[0], pair[1], pair[2], pair[3]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i * 4 + lane / 8, chunk = lane % 8;
        if (r >= limit) continue;
        uint4 *at = reinterpret_cast<uint4 *>(to + r * stride + chunk * 8);
        uint4 made = *reinterpret_cast<const uint4 *>(buffer + r * width + (chunk ^ r % 8) * 8);
        *at = add ? add_pairs<T>(*at, made) : made;
    }
}
template <typename T, int N>
__device__ inline void store_sums(T *to, int64_t stride, int limit, T *buffer, const float (&d)[N],
                                  float factor, float factor8, bool add = false) {
#pragma unroll
    for (int i = 0; i < N; i += 32)
        store_tile<T>(to + 2 * i, stride, limit, buffer, d + i, factor, factor8, add);
}

// ---- backward ----

// Of 2 * COUNT sums, this lane and the one that is `apart` from it, which has the same columns, keep one half
// each.
template <int COUNT> __device__ inline void halve(float (&sum)[16], int apart) {
    const bool high = threadIdx.x & apart;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float given = high ? sum[i] : sum[i + COUNT], kept = high ? sum[i + COUNT] : sum[i];
        sum[i] = kept + __shfl_xor_sync(full_warp, given, apart);
    }
}

// Sums over the rows of a tile as store_tile stores it: those of columns 2 * lane and 2 * lane + 1.
template <typename T> __device__ inline float2 tile_columns(const float *d, float factor, float factor8) {
    float sum[16]; // of columns 8n + lane % 4 * 2 and the next one
#pragma unroll
    for (int n = 0; n < 8; n++) {
        uint32_t upper = factor == 0 ? 0 : round_pair<T>(d[4 * n] * factor, d[4 * n + 1] * factor);
        uint32_t lower = factor8 == 0 ? 0 : round_pair<T>(d[4 * n + 2] * factor8, d[4 * n + 3] * factor8);
        const float2 a = pair_values<T>(upper), b = pair_values<T>(lower);
        sum[2 * n] = a.x + b.x;
        sum[2 * n + 1] = a.y + b.y;
    }
    halve<8>(sum, 16);
    halve<4>(sum, 8);
    halve<2>(sum, 4);
    return make_float2(sum[0], sum[1]);
}

// What backward needs of a query: lse for base 2, and delta = g . out. lse is infinity for padding and for
// queries without keys, so that their weights are 0.
struct RowStats {
    float lse, delta;
};
// Adjacent lanes have query t, each 8 of its elements: a lane's part of them. Only part 0 has lse.
template <typename T>
__device__ inline RowStats row_part(const CudaAttention &call, int b, int h, int t, int part) {
    RowStats row = {infinity, 0};
    if (t < call.queries) {
        auto out = load_pack<T, 8>(head_rows<T>(call.out, b, h) + t * call.out.row + part * 8);
        auto dout = load_pack<T, 8>(head_rows<T>(call.dout, b, h) + t * call.dout.row + part * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) row.delta += to_float(out.at[i]) * to_float(dout.at[i]);
        if (part == 0) row.lse = call.lse[((int64_t)b * call.H + h) * call.queries + t] * log2_e;
        if (row.lse == -infinity) row.lse = infinity;
    }
    return row;
}
// The sum over LANES lanes. All lanes of the warp must call this.
template <int LANES> __device__ inline float row_delta(RowStats row) {
    for (int lane = LANES / 2; lane > 0; lane /= 2) row.delta += __shfl_xor_sync(full_warp, row.delta, lane);
    return row.delta;
}

} // namespace hopper

#endif
