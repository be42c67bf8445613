// What linear_fused.cu and attention_fused.cu share: the rows of a linear layer, normalized and quantized in
// shared memory, their products with weights of 16, 8 or 4 bits, and the sums over a block's warps.
//
// Before the products, the rows are brought into shared memory, 8 elements per slot of 16 bytes:
//   norm           a warp reads a row into registers, computes its statistics in the order of norm.cu or
//                  rmsnorm.cu, and normalizes it; for int8/4 it also quantizes it, into the first 8 bytes of
//                  each slot. The rows that those kernels give to a block (BLOCK_NORM) take three passes.
//   int8/4         all threads copy rows and find their largest magnitudes; then they quantize the slots
//   else           asynchronous copies
// Every block repeats this, but rows are few and short; a kernel of its own would take longer.
//
// With few rows, most warps have one pass over straight code, so that its length, and not arithmetic, takes
// the time. Hence the template parameters: each kernel only has the code that it needs.
//
// Sums are the same as those of the separate kernels: in 16 bits because their order is the same, in int8 and
// int4 because integer sums are exact. Every step rounds like the kernel that it replaces. So results have
// the same bits.
//
// In a chain (chain.cuh), the first weights, the norm's parameters, biases and scales are loaded before the
// previous kernel has finished. They are not in the cache: since their last use, all other weights have been
// read.
#ifndef WEFT_KERNELS_CUDA_LINEAR_FUSED_CUH
#define WEFT_KERNELS_CUDA_LINEAR_FUSED_CUH

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/linear_fused.h"
#include "kernels/cuda/skinny.cuh"

namespace {

constexpr int max_rows = CUDA_FUSED_ROWS, tile = 8, slot = 8; // columns per tile, elements per slot
constexpr int slice_inputs = 32, panel_cols = 16, slice_bytes = panel_cols * (slice_inputs / 2 + 1);

// Inner elements that a warp multiplies at a time. Of int8, a lane has 16, which is two mma.
template <int BITS> constexpr int chunk = BITS == 8 ? 64 : 32;

// What a lane loads of a column and chunk. int4: four bytes of a slice and the steps of columns 2t and 2t
// + 1.
template <int BITS> struct Weight { uint4 word; };
template <> struct Weight<4> { uint32_t word, steps; };

// How rows are normalized: not at all; or each by a warp or by a block of 256 threads, as `forward` of
// norm.cu and rmsnorm.cu do. In a short row, a lane has at most 4 packs of 8 elements, else 7.
enum RowNorm { NO_NORM, SHORT_NORM, WARP_NORM, BLOCK_NORM };
template <RowNorm NORM> constexpr int lane_packs = NORM == SHORT_NORM ? 4 : 7;

inline int norm_packs(const CudaFused &call) {
    return call.beta ? 7 : 4;
}
inline RowNorm norm_of(const CudaFused &call) {
    const int packs = call.inner / slot;
    if (!call.gamma) return NO_NORM;
    return packs <= 4 * 32 ? SHORT_NORM : packs <= norm_packs(call) * 32 ? WARP_NORM : BLOCK_NORM;
}
inline bool fits_norm(const CudaFused &call) {
    return call.inner / slot <= norm_packs(call) * 256;
}
// Slots between rows. Lanes of two rows read 4 slots each at a time, so that they use different banks.
__host__ __device__ inline int slots_per_row(const CudaFused &call) {
    return call.inner / slot + 4;
}

// A block's shared memory.
struct Shared {
    uint4 *rows;         // (rows, slots_per_row)
    uint4 *gamma, *beta; // (inner / 8), with a norm
    float *bias, *scale; // (width)
    uint32_t *part;      // (warps, rows, width + 1): the warps' sums, fp32 or int32
    float2 *stats;       // (max_rows): mean and rstd
    uint32_t *amax;      // (max_rows): bits of the largest magnitudes
    float *sums;         // (2, 32)
    int bytes = 0;
    __host__ __device__ Shared(char *base, const CudaFused &call, int warps, int width) {
        const int row = call.inner / slot * (int)sizeof(uint4);
        rows = (uint4 *)(base + take(call.rows * slots_per_row(call) * sizeof(uint4)));
        gamma = (uint4 *)(base + take(call.gamma ? row : 0));
        beta = (uint4 *)(base + take(call.beta ? row : 0));
        bias = (float *)(base + take(width * sizeof(float)));
        scale = (float *)(base + take(width * sizeof(float)));
        part = (uint32_t *)(base + take(warps * call.rows * (width + 1) * sizeof(uint32_t)));
        stats = (float2 *)(base + take(max_rows * sizeof(float2)));
        amax = (uint32_t *)(base + take(max_rows * sizeof(uint32_t)));
        sums = (float *)(base + take(2 * 32 * sizeof(float)));
    }

  private:
    __host__ __device__ int take(size_t size) {
        int from = bytes;
        bytes += (int)((size + 15) / 16 * 16);
        return from;
    }
};

// ---- rows ----

template <typename T, typename Body>
__device__ inline void over_row(const T *row, int C, int lane, int lanes, Body body) {
#pragma unroll 4
    for (int c = lane * slot; c < C; c += lanes * slot) {
        const Pack<T, slot> pack = load_pack<T, slot>(row + c);
#pragma unroll
        for (int i = 0; i < slot; i++) body(to_float(pack.at[i]));
    }
}

// As row_sum of row.cuh, for a block of several teams of 256 threads.
__device__ inline float team_sum(float value, float *buffer) {
    constexpr int team = 8; // warps
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value = warp_sum(value);
    if (lane == 0) buffer[warp] = value;
    __syncthreads();
    return warp_sum(lane < team ? buffer[warp / team * team + lane] : 0.0f);
}

// Mean and rstd of the rows, each computed by a team of 256 threads. All threads call this.
template <typename T, int THREADS>
__device__ inline void find_stats(const CudaFused &call, const Shared &at) {
    constexpr int team = 256, teams = THREADS / team;
    const int C = call.inner, lane = threadIdx.x % team;
    int turn = 0;
    for (int first = 0; first < call.rows; first += teams) {
        const int r = first + (int)threadIdx.x / team;
        const bool there = r < call.rows;
        const T *row = (const T *)call.x + (int64_t)(there ? r : 0) * C;
        float mean = 0, squares = 0;
        if (call.beta) {
            float total = 0;
            over_row(row, C, lane, team, [&](float x) { total += x; });
            mean = team_sum(total, at.sums + 32 * turn) / (float)C;
            turn ^= 1;
            over_row(row, C, lane, team, [&](float x) {
                float off = x - mean;
                squares += off * off;
            });
        } else {
            over_row(row, C, lane, team, [&](float x) { squares += x * x; });
        }
        float rstd = 1.0f / sqrtf(team_sum(squares, at.sums + 32 * turn) / (float)C + call.eps);
        turn ^= 1;
        if (there && lane == 0) at.stats[r] = make_float2(mean, rstd);
    }
}

// Pack c of a row, normalized.
template <typename T>
__device__ inline Pack<T, slot> normalized(const CudaFused &call, const Shared &at, const Pack<T, slot> &x,
                                           float2 stats, int c) {
    const Pack<T, slot> gamma = reinterpret_cast<const Pack<T, slot> *>(at.gamma)[c];
    float y[slot];
    if (call.beta) {
        const Pack<T, slot> beta = reinterpret_cast<const Pack<T, slot> *>(at.beta)[c];
#pragma unroll
        for (int i = 0; i < slot; i++) {
            float normed = (to_float(x.at[i]) - stats.x) * stats.y;
            y[i] = normed * to_float(gamma.at[i]) + to_float(beta.at[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < slot; i++) y[i] = to_float(x.at[i]) * stats.y * to_float(gamma.at[i]);
    }
    return pack_of<T>(y);
}

// The elements of pack c of a row as int8 and int4 layers use them.
template <typename T>
__device__ inline void scaled(float (&to)[slot], const CudaFused &call, const Pack<T, slot> &x, int c) {
#pragma unroll
    for (int i = 0; i < slot; i++) to[i] = to_float(x.at[i]);
    if (!call.factor) return;
#pragma unroll
    for (int i = 0; i < slot; i++) to[i] = __fmul_rn(to[i], call.factor[c * slot + i]);
}

// The largest magnitude; infinite if an element is not finite.
__device__ inline float largest_of(const float (&x)[slot]) {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < slot; i++) {
        float magnitude = fabsf(x[i]);
        amax = magnitude <= 3.402823466e38f ? fmaxf(amax, magnitude) : INFINITY; // also for NaN
    }
    return amax;
}

// The amax that a row is quantized with; infinite if an element is not finite.
__device__ inline float row_amax(const CudaFused &call, uint32_t bits) {
    float amax = __uint_as_float(bits);
    return call.static_amax > 0 && !isinf(amax) ? call.static_amax : amax;
}
// As quantize_kernel of linear_int8.cu: the factor, and a pack.
__device__ inline float inverse_of(float amax) {
    float inverse = amax > 0 ? __fdiv_rn(127.0f, amax) : 0.0f;
    return isinf(inverse) ? 0.0f : inverse;
}
__device__ inline uint2 quantized(const float (&x)[slot], float amax, float inverse) {
    uint32_t word[2] = {};
#pragma unroll
    for (int i = 0; i < slot; i++) {
        float value = fminf(fmaxf(x[i], -amax), amax); // only has an effect with a static amax
        int rounded = isinf(amax) ? 0 : (int)rintf(__fmul_rn(value, inverse));
        word[i / 4] |= (uint32_t)(rounded & 0xff) << (i % 4 * 8);
    }
    return make_uint2(word[0], word[1]);
}

// Normalizes row r, and quantizes it for int8 and int4. A warp calls this. Packs past the row are zero, which
// changes no sum and no maximum.
template <typename T, int BITS, int PACKS>
__device__ inline void normalize_row(const CudaFused &call, const Shared &at, int r) {
    const int packs = call.inner / slot, lane = threadIdx.x % 32;
    const Pack<T, slot> *row = (const Pack<T, slot> *)call.x + (int64_t)r * packs;
    uint4 *to = at.rows + r * slots_per_row(call);
    Pack<T, slot> x[PACKS] = {};
    float total = 0, squares = 0, mean = 0, amax = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
        if (j * 32 + lane < packs) x[j] = load_pack<T, slot>(&row[j * 32 + lane].at[0]);
    if (call.beta) {
#pragma unroll
        for (int i = 0; i < PACKS * slot; i++) total += to_float(x[i / slot].at[i % slot]);
        mean = warp_sum(total) / (float)call.inner;
    }
#pragma unroll
    for (int i = 0; i < PACKS * slot; i++) {
        float off = to_float(x[i / slot].at[i % slot]) - mean;
        off = i / slot * 32 + lane < packs ? off : 0.0f;
        squares += off * off;
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)call.inner + call.eps);
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = j * 32 + lane;
        if (c >= packs) continue;
        x[j] = normalized<T>(call, at, x[j], make_float2(mean, rstd), c);
        if constexpr (BITS == 16) {
            reinterpret_cast<Pack<T, slot> *>(to)[c] = x[j];
        } else {
            float values[slot];
            scaled(values, call, x[j], c);
            amax = fmaxf(amax, largest_of(values));
        }
    }
    if constexpr (BITS != 16) {
        const uint32_t bits = __reduce_max_sync(full_warp, __float_as_uint(amax));
        const float range = row_amax(call, bits), inverse = inverse_of(range);
#pragma unroll
        for (int j = 0; j < PACKS; j++) {
            const int c = j * 32 + lane;
            if (c >= packs) continue;
            float values[slot];
            scaled(values, call, x[j], c);
            *reinterpret_cast<uint2 *>(to + c) = quantized(values, range, inverse);
        }
        if (lane == 0) at.amax[r] = bits;
    }
}

// Calls body(row, pack, whether it is there) for all packs of 8 elements, such that the lanes of a warp have
// packs of the same row. A thread has the same packs in every call.
template <int WARPS, typename Body> __device__ inline void over_packs(const CudaFused &call, Body body) {
    const int packs = call.inner / slot, parts = (packs + 31) / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int r = 0, part = threadIdx.x / 32;; part += WARPS) {
        while (part >= parts) part -= parts, r++;
        if (r >= call.rows) return;
        body(r, part * 32 + lane, part * 32 + lane < packs);
    }
}

// Fills the slots with 16-bit elements; for int8 and int4, also finds the largest magnitudes.
template <typename T, int BITS, int WARPS, RowNorm NORM>
__device__ inline void stage_rows(const CudaFused &call, const Shared &at) {
    over_packs<WARPS>(call, [&](int r, int c, bool there) {
        float amax = 0;
        if (there) {
            Pack<T, slot> x = load_pack<T, slot>((const T *)call.x + (int64_t)r * call.inner + c * slot);
            if (NORM == BLOCK_NORM) x = normalized<T>(call, at, x, at.stats[r], c);
            reinterpret_cast<Pack<T, slot> *>(at.rows)[r * slots_per_row(call) + c] = x;
            float values[slot];
            if (BITS != 16) scaled(values, call, x, c);
            if (BITS != 16) amax = largest_of(values);
        }
        if (BITS == 16) return;
        const uint32_t bits = __reduce_max_sync(full_warp, __float_as_uint(amax));
        if (threadIdx.x % 32 == 0) atomicMax(at.amax + r, bits);
    });
}

// A thread quantizes the slots that it has filled.
template <typename T, int WARPS>
__device__ inline void quantize_rows(const CudaFused &call, const Shared &at) {
    over_packs<WARPS>(call, [&](int r, int c, bool there) {
        if (!there) return;
        const float amax = row_amax(call, at.amax[r]);
        uint4 *to = at.rows + r * slots_per_row(call) + c;
        float values[slot];
        scaled(values, call, *reinterpret_cast<const Pack<T, slot> *>(to), c);
        *reinterpret_cast<uint2 *>(to) = quantized(values, amax, inverse_of(amax));
    });
}

// Brings all rows into shared memory.
template <typename T, int BITS, int WARPS, RowNorm NORM>
__device__ inline void prepare_rows(const CudaFused &call, const Shared &at) {
    if constexpr (NORM == SHORT_NORM || NORM == WARP_NORM) {
#pragma unroll 1
        for (int r = threadIdx.x / 32; r < call.rows; r += WARPS)
            normalize_row<T, BITS, lane_packs<NORM>>(call, at, r);
        __syncthreads();
        return;
    }
    if constexpr (NORM == NO_NORM && BITS == 16) {
#pragma unroll 1
        for (int r = 0; r < call.rows; r++)
#pragma unroll 1
            for (int c = threadIdx.x; c < call.inner / slot; c += WARPS * 32)
                copy_async16(at.rows + r * slots_per_row(call) + c,
                             (const T *)call.x + (int64_t)r * call.inner + c * slot);
        copy_group();
        copy_wait<0>();
        __syncthreads();
        return;
    }
    if constexpr (NORM == BLOCK_NORM) {
        find_stats<T, WARPS * 32>(call, at);
        __syncthreads();
    }
    stage_rows<T, BITS, WARPS, NORM>(call, at);
    __syncthreads();
    if (BITS == 16) return;
    quantize_rows<T, WARPS>(call, at);
    __syncthreads();
}

// ---- products ----

// A lane's operands of one chunk, of rows g and g + 8: pairs of 32-bit words that are multiplied with the
// words of a Weight.
template <typename T, int BITS> struct Operand {
    uint32_t low[4], high[4];
    __device__ static void read(uint32_t (&to)[4], const CudaFused &call, const Shared &at, bool there,
                                int row, int piece, int t) {
        const uint4 *from = at.rows + row * slots_per_row(call);
        to[0] = to[1] = to[2] = to[3] = 0;
        if (!there) return;
        if constexpr (BITS == 16) {
            const uint4 all = from[piece * (chunk<16> / slot) + t];
            to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
        } else if constexpr (BITS == 8) {
            from += piece * (chunk<8> / slot) + 2 * t;
            const uint2 one = *reinterpret_cast<const uint2 *>(from),
                        two = *reinterpret_cast<const uint2 *>(from + 1);
            to[0] = one.x, to[1] = one.y, to[2] = two.x, to[3] = two.y;
        } else {
            from += piece * (chunk<4> / slot) + t / 2;
            to[0] = reinterpret_cast<const uint32_t *>(from)[t % 2];
            to[1] = reinterpret_cast<const uint32_t *>(from + 2)[t % 2];
        }
    }
};

template <typename T>
__device__ inline void multiply(float (&sum)[4], const Operand<T, 16> &x, const Weight<16> &w) {
    const uint32_t one[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const uint32_t two[4] = {x.low[2], x.high[2], x.low[3], x.high[3]};
    multiply_add<T>(sum, one, w.word.x, w.word.y);
    multiply_add<T>(sum, two, w.word.z, w.word.w);
}
template <typename T>
__device__ inline void multiply(int (&sum)[4], const Operand<T, 8> &x, const Weight<8> &w) {
    const uint32_t one[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const uint32_t two[4] = {x.low[2], x.high[2], x.low[3], x.high[3]};
    multiply_add_int8(sum, one, w.word.x, w.word.y);
    multiply_add_int8(sum, two, w.word.z, w.word.w);
}
// A nibble in the upper half of a byte is 16 times its value; the sum of a slice is divided by 16 again.
template <typename T>
__device__ inline void multiply(int (&sum)[4], const Operand<T, 4> &x, const Weight<4> &w) {
    const uint32_t all[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const int step[2] = {(int8_t)(w.steps & 0xff), (int8_t)(w.steps >> 8)};
    int total[4] = {};
    multiply_add_int8(total, all, w.word << 4 & 0xf0f0f0f0u, w.word & 0xf0f0f0f0u);
#pragma unroll
    for (int j = 0; j < 4; j++) sum[j] += step[j % 2] * (total[j] >> 4);
}

// The weights of `piece`, a chunk of the inner dimension, for the lane's column of the tile that starts at
// row n of w.
template <int BITS>
__device__ inline Weight<BITS> load_weight(const CudaFused &call, int n, int piece, int g, int t) {
    const char *w = (const char *)call.w;
    if constexpr (BITS == 16)
        return {load_once(w + (((int64_t)n + g) * call.inner + piece * chunk<16> + 8 * t) * 2)};
    if constexpr (BITS == 8)
        return {load_once(w + ((int64_t)n + g) * call.inner + piece * chunk<8> + 16 * t)};
    if constexpr (BITS == 4) {
        const int in_panel = n % panel_cols;
        const char *slice =
            w + ((int64_t)(n / panel_cols) * (call.inner / slice_inputs) + piece) * slice_bytes;
        const char *steps = slice + panel_cols * slice_inputs / 2 + in_panel + 2 * t;
        return {load_word_once(slice + (in_panel + g) * (slice_inputs / 2) + 4 * t),
                *reinterpret_cast<const uint16_t *>(steps)};
    }
}

// The part of a block's products that a warp computes: all rows and columns, for a range of the inner
// dimension. ROW_OF returns the row of w with which a tile of columns starts, or -1.
template <typename T, int BITS, int WARPS, int TILES> struct Products {
    // Chunks whose weights are in flight: up to 8 KB per column of 16-bit weights, or 4 KB with 8 warps.
    static constexpr int in_flight = (WARPS == 8 ? 4 : 8 / TILES) / (BITS == 8 ? 2 : 1);
    static constexpr int width = TILES * tile;
    using Sum = std::conditional_t<BITS == 16, float, int>;
    Weight<BITS> weights[in_flight][TILES];
    Sum sum[TILES][4] = {};
    int first, last, warp, g, t;

    __device__ explicit Products(const CudaFused &call) {
        const int lane = threadIdx.x % 32, chunks = call.inner / chunk<BITS>,
                  each = (chunks + WARPS - 1) / WARPS;
        warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        first = warp * each, last = min(first + each, chunks);
    }
    template <typename RowOf> __device__ void load(const CudaFused &call, RowOf row_of, int from) {
#pragma unroll
        for (int a = 0; a < in_flight; a++)
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const int n = row_of(i);
                weights[a][i] = {};
                if (from + a < last && n >= 0) weights[a][i] = load_weight<BITS>(call, n, from + a, g, t);
            }
    }
    // The first weights are already loaded.
    template <typename RowOf> __device__ void run(const CudaFused &call, const Shared &at, RowOf row_of) {
#pragma unroll 1
        for (int from = first; from < last; from += in_flight) {
#pragma unroll
            for (int a = 0; a < in_flight; a++) {
                Operand<T, BITS> x;
                const bool there = from + a < last;
                x.read(x.low, call, at, there && g < call.rows, g, from + a, t);
                x.read(x.high, call, at, there && g + 8 < call.rows, g + 8, from + a, t);
#pragma unroll
                for (int i = 0; i < TILES; i++) multiply<T>(sum[i], x, weights[a][i]);
            }
            if (from + in_flight < last) load(call, row_of, from + in_flight);
        }
    }
    __device__ void store(const CudaFused &call, const Shared &at) const {
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int row = g + j / 2 * 8;
                uint32_t bits;
                memcpy(&bits, &sum[i][j], sizeof bits);
                if (row < call.rows)
                    at.part[(warp * call.rows + row) * (width + 1) + i * tile + 2 * t + j % 2] = bits;
            }
    }
};

// ---- blocks ----

// Loads what does not depend on other kernels into shared memory: biases, scales and the norm's parameters.
template <typename T, int BITS, int WARPS, int TILES, RowNorm NORM, typename RowOf>
__device__ inline void load_constants(const CudaFused &call, const Shared &at, RowOf row_of) {
    const int i = threadIdx.x;
    if (i < TILES * tile) {
        const int n = row_of(i / tile);
        const bool there = n >= 0;
        at.bias[i] = there && call.bias ? to_float(((const T *)call.bias)[n + i % tile]) : 0.0f;
        at.scale[i] = there && BITS != 16 ? call.scale[n + i % tile] : 0.0f;
    }
    if (i < max_rows) at.amax[i] = 0;
#pragma unroll 1
    for (int c = i; NORM != NO_NORM && c < call.inner / slot; c += WARPS * 32) {
        copy_async16(at.gamma + c, (const uint4 *)call.gamma + c);
        if (call.beta) copy_async16(at.beta + c, (const uint4 *)call.beta + c);
    }
    copy_group();
    copy_wait<0>();
}

// The sum of column i of the block for a row, over all warps and with the bias.
template <typename T, int BITS, int WARPS>
__device__ inline float total_of(const CudaFused &call, const Shared &at, int row, int i, int width) {
    const uint32_t *from = at.part + row * (width + 1) + i;
    const int step = call.rows * (width + 1);
    if constexpr (BITS == 16) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += __uint_as_float(from[w * step]);
        return call.bias ? total + at.bias[i] : total;
    } else {
        int total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += (int)from[w * step];
        const float amax = row_amax(call, at.amax[row]);
        const float unit = isinf(amax) ? NAN : __fdiv_rn(amax, 127.0f);
        float value = __fmul_rn(__fmul_rn((float)total, unit), at.scale[i]);
        return call.bias ? __fadd_rn(value, at.bias[i]) : value;
    }
}

} // namespace

#endif
