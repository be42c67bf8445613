// The parts of linear_fused.cu: the rows of a linear layer, normalized in shared memory, their products with
// weights of 16, 8 or 4 bits, and the sums over a block's warps.
//
// Before the products, the rows are brought into shared memory, 8 elements per slot of 16 bytes:
//   norm           a warp reads a row into registers, computes its statistics in the order of norm.cu or
//                  rmsnorm.cu, and normalizes it. The rows that those kernels give to a block (BLOCK_NORM)
//                  take three passes.
//   else           asynchronous copies
// int8 and int4 layers with factors multiply elements by these. Every block repeats all this, but rows are
// few and short; a kernel of its own would take longer.
//
// Weights of 8 and 4 bits become 16-bit elements, which represent them exactly; scales are applied to the
// sums. So rows need not be quantized, and weights are converted before the previous kernel has finished.
//
// With few rows, most warps have one pass over straight code, so that its length, and not arithmetic, takes
// the time. Hence the template parameters: each kernel only has the code that it needs.
//
// 16-bit sums are the same as those of the separate kernels, because their order is the same, and every step
// rounds like the kernel that it replaces. So results have the same bits.
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

// Inner elements that a warp multiplies at a time. A lane has 8 (int8: 16) of a column.
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
    float *part;         // (warps, rows, width + 1): the warps' sums
    float2 *stats;       // (max_rows): mean and rstd
    float *sums;         // (2, 32)
    int bytes = 0;
    __host__ __device__ Shared(char *base, const CudaFused &call, int warps, int width) {
        const int row = call.inner / slot * (int)sizeof(uint4);
        rows = (uint4 *)(base + take(call.rows * slots_per_row(call) * sizeof(uint4)));
        gamma = (uint4 *)(base + take(call.gamma ? row : 0));
        beta = (uint4 *)(base + take(call.beta ? row : 0));
        bias = (float *)(base + take(width * sizeof(float)));
        scale = (float *)(base + take(width * sizeof(float)));
        part = (float *)(base + take(warps * call.rows * (width + 1) * sizeof(float)));
        stats = (float2 *)(base + take(max_rows * sizeof(float2)));
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
template <typename T, int BITS>
__device__ inline Pack<T, slot> balanced(const CudaFused &call, const Pack<T, slot> &x, int c) {
    if constexpr (BITS != 16) {
        if (!call.factor) return x;
        float y[slot];
#pragma unroll
        for (int i = 0; i < slot; i++) y[i] = to_float(x.at[i]) * call.factor[c * slot + i];
        return pack_of<T>(y);
    } else {
        return x;
    }
}

// Normalizes row r. A warp calls this. Packs past the row are zero, which changes no sum.
template <typename T, int BITS, int PACKS>
__device__ inline void normalize_row(const CudaFused &call, const Shared &at, int r) {
    const int packs = call.inner / slot, lane = threadIdx.x % 32;
    const Pack<T, slot> *row = (const Pack<T, slot> *)call.x + (int64_t)r * packs;
    Pack<T, slot> *to = reinterpret_cast<Pack<T, slot> *>(at.rows + r * slots_per_row(call));
    Pack<T, slot> x[PACKS] = {};
    float total = 0, squares = 0, mean = 0;
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
    const float2 stats = make_float2(mean, 1.0f / sqrtf(warp_sum(squares) / (float)call.inner + call.eps));
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
        const int c = j * 32 + lane;
        if (c < packs) to[c] = balanced<T, BITS>(call, normalized<T>(call, at, x[j], stats, c), c);
    }
}

// Brings rows into shared memory that a block normalizes, or nobody.
template <typename T, int BITS, int WARPS, RowNorm NORM>
__device__ inline void stage_rows(const CudaFused &call, const Shared &at) {
    const bool plain = NORM == NO_NORM && (BITS == 16 || !call.factor);
#pragma unroll 1
    for (int r = 0; r < call.rows; r++)
#pragma unroll 1
        for (int c = threadIdx.x; c < call.inner / slot; c += WARPS * 32) {
            const T *from = (const T *)call.x + (int64_t)r * call.inner + c * slot;
            uint4 *to = at.rows + r * slots_per_row(call) + c;
            if (plain) {
                copy_async16(to, from);
                continue;
            }
            Pack<T, slot> x = load_pack<T, slot>(from);
            if (NORM == BLOCK_NORM) x = normalized<T>(call, at, x, at.stats[r], c);
            *reinterpret_cast<Pack<T, slot> *>(to) = balanced<T, BITS>(call, x, c);
        }
    copy_group();
    copy_wait<0>();
}

// Brings all rows into shared memory.
template <typename T, int BITS, int WARPS, RowNorm NORM>
__device__ inline void prepare_rows(const CudaFused &call, const Shared &at) {
    if constexpr (NORM == SHORT_NORM || NORM == WARP_NORM) {
#pragma unroll 1
        for (int r = threadIdx.x / 32; r < call.rows; r += WARPS)
            normalize_row<T, BITS, lane_packs<NORM>>(call, at, r);
    } else {
        if constexpr (NORM == BLOCK_NORM) {
            find_stats<T, WARPS * 32>(call, at);
            __syncthreads();
        }
        stage_rows<T, BITS, WARPS, NORM>(call, at);
    }
    __syncthreads();
}

// ---- products ----

// A lane's elements of one chunk, of rows g and g + 8: pairs that are multiplied with those of Values.
template <int BITS> struct Operand {
    static constexpr int words = BITS == 8 ? 8 : 4;
    uint32_t low[words], high[words];
    __device__ static void read(uint32_t (&to)[words], const CudaFused &call, const Shared &at, bool there,
                                int row, int piece, int t) {
        const uint4 *from = at.rows + row * slots_per_row(call) + piece * (chunk<BITS> / slot);
#pragma unroll
        for (int i = 0; i < words; i++) to[i] = 0;
        if (!there) return;
        if constexpr (BITS == 4) { // inputs 4t to 4t + 3 of both halves
            const uint2 one = reinterpret_cast<const uint2 *>(from)[t],
                        two = reinterpret_cast<const uint2 *>(from)[t + 4];
            to[0] = one.x, to[1] = one.y, to[2] = two.x, to[3] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < words / 4; i++) {
                const uint4 all = from[words / 4 * t + i];
                to[4 * i] = all.x, to[4 * i + 1] = all.y, to[4 * i + 2] = all.z, to[4 * i + 3] = all.w;
            }
        }
    }
};

// Bytes 2i and 2i + 1 of a word as 16-bit elements: int8, or int4 in the low half of each byte. A byte in the
// mantissa of a power of two is that power plus its value. bf16 has room for 7 bits, so the sign of an int8
// goes into the subtrahend: 128 or 256.
template <typename T, int BITS> __device__ inline uint32_t elements_of(uint32_t word, int i) {
    constexpr bool brief = std::is_same_v<T, __nv_bfloat16>;
    const uint32_t bytes = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
    uint32_t from, less;
    if constexpr (BITS == 4) {
        from = ((bytes & 0x000f000f) ^ 0x00080008) | (brief ? 0x43004300 : 0x64006400);
        less = brief ? 0x43084308 : 0x64086408; // 128 + 8, 1024 + 8
    } else if constexpr (brief) {
        from = (bytes & 0x007f007f) | 0x43004300;
        less = (bytes & 0x00800080) | 0x43004300;
    } else {
        from = (bytes ^ 0x00800080) | 0x64006400;
        less = 0x64806480; // 1024 + 128
    }
    using Two = std::conditional_t<brief, __nv_bfloat162, __half2>;
    Two a, b;
    memcpy(&a, &from, sizeof a);
    memcpy(&b, &less, sizeof b);
    const Two made = __hsub2(a, b);
    uint32_t bits;
    memcpy(&bits, &made, sizeof bits);
    return bits;
}

// A lane's weights of a column and chunk as 16-bit elements, in the order of Operand.
template <typename T, int BITS> struct Values {
    uint32_t word[Operand<BITS>::words];
    uint32_t steps; // int4
    __device__ void set(const Weight<BITS> &from) {
        if constexpr (BITS == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = elements_of<T, 4>(i < 2 ? from.word : from.word >> 4, i % 2);
            steps = from.steps;
        } else {
            const uint32_t raw[4] = {from.word.x, from.word.y, from.word.z, from.word.w};
#pragma unroll
            for (int i = 0; i < Operand<BITS>::words; i++)
                if constexpr (BITS == 8)
                    word[i] = elements_of<T, 8>(raw[i / 2], i % 2);
                else
                    word[i] = raw[i];
        }
    }
};

template <typename T, int BITS>
__device__ inline void multiply(float (&sum)[4], const Operand<BITS> &x, const Values<T, BITS> &w) {
    float slice[4] = {};
    float(&total)[4] = BITS == 4 ? slice : sum;
#pragma unroll
    for (int i = 0; i < Operand<BITS>::words; i += 2) {
        const uint32_t rows[4] = {x.low[i], x.high[i], x.low[i + 1], x.high[i + 1]};
        multiply_add<T>(total, rows, w.word[i], w.word[i + 1]);
    }
    if constexpr (BITS == 4) {
        const float step[2] = {(float)(int8_t)(w.steps & 0xff), (float)(int8_t)(w.steps >> 8)};
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] += step[j % 2] * slice[j];
    }
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
    Weight<BITS> weights[in_flight][TILES];
    Values<T, BITS> values[in_flight][TILES];
    float sum[TILES][4] = {};
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
                Weight<BITS> weight = {};
                if (from + a < last && n >= 0) weight = load_weight<BITS>(call, n, from + a, g, t);
                if constexpr (BITS == 16)
                    values[a][i].set(weight);
                else
                    weights[a][i] = weight;
            }
    }
    __device__ void convert() {
        if constexpr (BITS != 16)
#pragma unroll
            for (int i = 0; i < in_flight * TILES; i++)
                values[i / TILES][i % TILES].set(weights[i / TILES][i % TILES]);
    }
    // The first weights are already loaded and converted.
    template <typename RowOf> __device__ void run(const CudaFused &call, const Shared &at, RowOf row_of) {
#pragma unroll 1
        for (int from = first; from < last; from += in_flight) {
#pragma unroll
            for (int a = 0; a < in_flight; a++) {
                Operand<BITS> x;
                const bool there = from + a < last;
                x.read(x.low, call, at, there && g < call.rows, g, from + a, t);
                x.read(x.high, call, at, there && g + 8 < call.rows, g + 8, from + a, t);
#pragma unroll
                for (int i = 0; i < TILES; i++) multiply<T, BITS>(sum[i], x, values[a][i]);
            }
            if (from + in_flight < last) {
                load(call, row_of, from + in_flight);
                convert();
            }
        }
    }
    __device__ void store(const CudaFused &call, const Shared &at) const {
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int row = g + j / 2 * 8;
                if (row < call.rows)
                    at.part[(warp * call.rows + row) * (width + 1) + i * tile + 2 * t + j % 2] = sum[i][j];
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
    const float *from = at.part + row * (width + 1) + i;
    const int step = call.rows * (width + 1);
    float total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) total += from[w * step];
    if (BITS != 16) total = __fmul_rn(total, at.scale[i]);
    return call.bias ? __fadd_rn(total, at.bias[i]) : total;
}

} // namespace

#endif
