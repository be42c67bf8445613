// The parts of linear_fused.cu: the rows of a linear layer, normalized in shared memory, their products with
// weights of 16, 8 or 4 bits, and the sums over a block's warps.
//
// Every block copies all rows into shared memory and normalizes them there. Rows are few and short; a kernel
// of its own would take longer. int8 and int4 layers with factors multiply elements by these.
//
// Weights of 8 and 4 bits become 16-bit elements, which represent them exactly; scales are applied to the
// sums. So rows need not be quantized, and weights are converted before the previous kernel has finished.
//
// With few rows, it is not arithmetic that takes the time but its latency: each step waits for the one
// before. Hence sums have several independent parts, and nothing is computed twice to save a barrier.
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
    }

  private:
    __host__ __device__ int take(size_t size) {
        int from = bytes;
        bytes += (int)((size + 15) / 16 * 16);
        return from;
    }
};

// ---- rows ----

template <typename T> __device__ inline void unpack(float (&to)[slot], const uint4 &pack) {
    const uint32_t word[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = pair_values<T>(word[i]);
        to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
}

constexpr int team = 128; // threads that a row is given to

// Copies all rows into shared memory.
template <int WARPS> __device__ inline void copy_rows(const CudaFused &call, const Shared &at) {
    const int packs = call.inner / slot, stride = slots_per_row(call);
#pragma unroll 1
    for (int r = threadIdx.x / team; r < call.rows; r += WARPS * 32 / team)
#pragma unroll 1
        for (int c = threadIdx.x % team; c < packs; c += team)
            copy_async16(at.rows + r * stride + c, (const uint4 *)call.x + r * packs + c);
    copy_group();
    copy_wait<0>();
    __syncthreads();
}

// Mean and rstd of a row, computed by a warp in one pass: it sums the differences from the first element, and
// their squares. That element's squared distance from the mean, which is subtracted at the end, is at most
// the variance times the row's length, so few digits cancel. `part` is 1 / length.
template <typename T> __device__ inline float2 stats_of(const CudaFused &call, const uint4 *row, float part) {
    const int packs = call.inner / slot;
    const float pivot = call.beta ? to_float(*reinterpret_cast<const T *>(row)) : 0.0f;
    float total[2] = {}, squares[2] = {};
#pragma unroll 2
    for (int c = 0; c < packs; c += 32) {
        const int mine = c + (int)threadIdx.x % 32;
        float x[slot];
        unpack<T>(x, row[mine < packs ? mine : 0]);
#pragma unroll
        for (int i = 0; i < slot; i++) {
            const float off = mine < packs ? x[i] - pivot : 0.0f;
            total[i % 2] += off;
            squares[i % 2] += off * off;
        }
    }
    float sum = total[0] + total[1], square = squares[0] + squares[1];
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_xor_sync(full_warp, sum, lane);
        square += __shfl_xor_sync(full_warp, square, lane);
    }
    sum *= part, square *= part;
    if (!call.beta) return make_float2(0, rsqrtf(square + call.eps));
    return make_float2(pivot + sum, rsqrtf(fmaxf(square - sum * sum, 0.0f) + call.eps));
}

// Replaces rows in shared memory by what is multiplied: their norm, and for int8 and int4 layers that times
// the factors.
template <typename T, int BITS, int WARPS, bool NORM>
__device__ inline void change_rows(const CudaFused &call, const Shared &at) {
    const int packs = call.inner / slot, stride = slots_per_row(call);
#pragma unroll 1
    for (int c = threadIdx.x % team; c < packs; c += team) {
        float gamma[slot], beta[slot] = {};
        if (NORM) unpack<T>(gamma, at.gamma[c]);
        if (NORM && call.beta) unpack<T>(beta, at.beta[c]);
#pragma unroll 1
        for (int r = threadIdx.x / team; r < call.rows; r += WARPS * 32 / team) {
            uint4 &pack = at.rows[r * stride + c];
            const float2 stats = NORM ? at.stats[r] : float2();
            float x[slot];
            unpack<T>(x, pack);
            if (NORM)
#pragma unroll
                for (int i = 0; i < slot; i++) x[i] = (x[i] - stats.x) * stats.y * gamma[i] + beta[i];
            if (BITS != 16 && call.factor)
#pragma unroll
                for (int i = 0; i < slot; i++)
                    x[i] = to_float(from_float<T>(x[i])) * call.factor[c * slot + i];
            pack = make_uint4(round_pair<T>(x[0], x[1]), round_pair<T>(x[2], x[3]), round_pair<T>(x[4], x[5]),
                              round_pair<T>(x[6], x[7]));
        }
    }
    __syncthreads();
}

// Brings all rows into shared memory as they are multiplied.
template <typename T, int BITS, int WARPS, bool NORM>
__device__ inline void prepare_rows(const CudaFused &call, const Shared &at, float part) {
    copy_rows<WARPS>(call, at);
    if constexpr (NORM) {
#pragma unroll 1
        for (int r = warp_number(); r < call.rows; r += WARPS) {
            const float2 found = stats_of<T>(call, at.rows + r * slots_per_row(call), part);
            if (threadIdx.x % 32 == 0) at.stats[r] = found;
        }
        __syncthreads();
    }
    if (NORM || (BITS != 16 && call.factor)) change_rows<T, BITS, WARPS, NORM>(call, at);
}

// ---- products ----

// A lane's elements of one chunk of a row: 8, of int8 layers 16.
template <int BITS> struct Operand {
    static constexpr int words = BITS == 8 ? 8 : 4;
    uint32_t word[words];
    __device__ explicit Operand(const char *from) {
        if constexpr (BITS == 4) { // inputs 4t to 4t + 3 of both halves
            const uint2 one = *reinterpret_cast<const uint2 *>(from),
                        two = *reinterpret_cast<const uint2 *>(from + 32);
            word[0] = one.x, word[1] = one.y, word[2] = two.x, word[3] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < words / 4; i++) {
                const uint4 all = reinterpret_cast<const uint4 *>(from)[i];
                word[4 * i] = all.x, word[4 * i + 1] = all.y, word[4 * i + 2] = all.z,
                         word[4 * i + 3] = all.w;
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

// A lane's weights of a column and chunk as 16-bit elements. Of four words of Operand, these multiply the
// first, third, second and fourth.
template <typename T, int BITS> struct Values {
    uint32_t word[Operand<BITS>::words];
    __device__ void set(const Weight<BITS> &from) {
        constexpr int order[4] = {0, 2, 1, 3};
        if constexpr (BITS == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = order[i];
                word[i] = elements_of<T, 4>(k < 2 ? from.word : from.word >> 4, k % 2);
            }
        } else {
            const uint32_t raw[4] = {from.word.x, from.word.y, from.word.z, from.word.w};
#pragma unroll
            for (int i = 0; i < Operand<BITS>::words; i++) {
                const int k = i / 4 * 4 + order[i % 4];
                if constexpr (BITS == 8)
                    word[i] = elements_of<T, 8>(raw[k / 2], k % 2);
                else
                    word[i] = raw[k];
            }
        }
#pragma unroll
        for (int i = 0; i < Operand<BITS>::words; i++) asm volatile("" : "+r"(word[i])); // now, not when used
    }
};

// Products with one row per lane group g, although an mma has two. Its second row gets what the lane has
// next, so that four words need no rearrangement and take two independent mmas: the sums of words 0 and 2 are
// in the first row of `one`, those of words 1 and 3 in the second row of `two`. The rest is not used.
template <typename T, int BITS>
__device__ inline void multiply(float (&one)[4], float (&two)[4], const Operand<BITS> &x,
                                const Values<T, BITS> &w) {
#pragma unroll
    for (int i = 0; i < Operand<BITS>::words; i += 4) {
        const uint32_t rows[4] = {x.word[i], x.word[i + 1], x.word[i + 2], x.word[i + 3]};
        multiply_add<T>(one, rows, w.word[i], w.word[i + 1]);
        multiply_add<T>(two, rows, w.word[i + 2], w.word[i + 3]);
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
    uint32_t steps[BITS == 4 ? (in_flight * TILES + 1) / 2 : 1]; // int4: two bytes for each of `values`
    int first, last, warp, g, t;

    __device__ explicit Products(const CudaFused &call) {
        const int lane = threadIdx.x % 32, chunks = call.inner / chunk<BITS>,
                  each = (chunks + WARPS - 1) / WARPS;
        warp = warp_number(), g = lane / 4, t = lane % 4;
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
        if constexpr (BITS == 4)
#pragma unroll
            for (int i = 0; i < in_flight * TILES; i++) {
                const uint32_t two = weights[i / TILES][i % TILES].steps;
                steps[i / 2] = i % 2 ? steps[i / 2] | two << 16 : two;
            }
    }
    // Adds the products of row g + 8 HALF, the chunks in flight and COUNT tiles to the warp's sums in shared
    // memory. FULL: all chunks exist. Without branches, the compiler loads the next elements while it
    // multiplies.
    template <int HALF, bool FULL, int COUNT>
    __device__ void multiply_tiles(const CudaFused &call, const Shared &at, int from, int tiles) {
        // A row that does not exist is replaced by another; its products are not used.
        const char *row = (const char *)(at.rows + min(g + 8 * HALF, call.rows - 1) * slots_per_row(call)) +
                          from * chunk<BITS> * 2 +
                          t * (BITS == 8   ? 32
                               : BITS == 4 ? 8
                                           : 16);
        float one[COUNT][4] = {}, two[COUNT][4] = {}, sum[COUNT][2] = {};
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            if (!FULL && from + a >= last) continue;
            const Operand<BITS> x(row + a * chunk<BITS> * 2);
#pragma unroll
            for (int i = 0; i < COUNT; i++) multiply<T, BITS>(one[i], two[i], x, values[a][tiles + i]);
            if constexpr (BITS == 4)
#pragma unroll
                for (int i = 0; i < COUNT; i++) add_slice(sum[i], one[i], two[i], a * TILES + tiles + i);
        }
        if (BITS != 4)
#pragma unroll
            for (int i = 0; i < COUNT * 2; i++) sum[i / 2][i % 2] = one[i / 2][i % 2] + two[i / 2][2 + i % 2];
        float *to = at.part + (warp * call.rows + g + 8 * HALF) * (width + 1) + tiles * tile + 2 * t;
        if (g + 8 * HALF >= call.rows) return;
        if (from > first)
#pragma unroll
            for (int i = 0; i < COUNT * 2; i++) sum[i / 2][i % 2] += to[i / 2 * tile + i % 2];
#pragma unroll
        for (int i = 0; i < COUNT * 2; i++) to[i / 2 * tile + i % 2] = sum[i / 2][i % 2];
    }
    // int4 takes one tile at a time: sums of slices need more registers.
    template <int HALF, bool FULL>
    __device__ void multiply_row(const CudaFused &call, const Shared &at, int from) {
        constexpr int count = BITS == 4 ? 1 : TILES;
#pragma unroll
        for (int i = 0; i < TILES; i += count) multiply_tiles<HALF, FULL, count>(call, at, from, i);
    }
    // Adds the sums of a slice, times its steps, and clears them.
    __device__ void add_slice(float (&sum)[2], float (&one)[4], float (&two)[4], int i) const {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float step = (float)(int8_t)(steps[i / 2] >> (i % 2 * 16 + j * 8));
            sum[j] += step * (one[j] + two[2 + j]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) one[j] = two[j] = 0;
    }
    template <int HALF> __device__ void multiply_rows(const CudaFused &call, const Shared &at, int from) {
        if (last - from >= in_flight)
            multiply_row<HALF, true>(call, at, from);
        else
            multiply_row<HALF, false>(call, at, from);
    }
    // The first weights are already loaded and converted. A warp without inputs leaves zeros.
    template <typename RowOf> __device__ void run(const CudaFused &call, const Shared &at, RowOf row_of) {
        int from = first;
#pragma unroll 1
        do {
            multiply_rows<0>(call, at, from);
            if (call.rows > 8) multiply_rows<1>(call, at, from);
            from += in_flight;
            if (from < last) {
                load(call, row_of, from);
                convert();
            }
        } while (from < last);
    }
};

// ---- blocks ----

// Loads what does not depend on other kernels into shared memory: biases, scales and the norm's parameters.
template <typename T, int BITS, int WARPS, int TILES, bool NORM, typename RowOf>
__device__ inline void load_constants(const CudaFused &call, const Shared &at, RowOf row_of) {
    const int i = threadIdx.x;
    if (i < TILES * tile) {
        const int n = row_of(i / tile);
        const bool there = n >= 0;
        at.bias[i] = there && call.bias ? to_float(((const T *)call.bias)[n + i % tile]) : 0.0f;
        at.scale[i] = there && BITS != 16 ? call.scale[n + i % tile] : 0.0f;
    }
#pragma unroll 1
    for (int c = i; NORM && c < call.inner / slot; c += WARPS * 32) {
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
