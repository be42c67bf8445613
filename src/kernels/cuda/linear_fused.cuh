// The parts of linear_fused.cu: the rows of a linear layer in shared memory, their products with weights of
// 16, 8 or 4 bits, and the sums over a block's warps.
//
// The norm before a layer is not computed before the products, but from them: with mean m and deviation d,
//   norm(x) w^T = (x gamma) w^T / d - m / d gamma w^T + beta w^T,
// where gamma and beta are multiplied as further rows, for which an mma usually has room. So rows can be
// multiplied as they arrive, each warp needs only its own part of them, and mean and deviation are found
// meanwhile, as further products. int8 and int4 layers with factors multiply gamma and beta by these.
//
// Weights of 8 bits become 16-bit elements, which represent them exactly; scales are applied to the sums.
// Weights of 4 bits are multiplied by their steps, and that is rounded to 16 bits. So rows need not be
// quantized, and weights are converted before the previous kernel has finished.
//
// With few rows, it is not arithmetic that takes the time but its latency: each step waits for the one
// before. Hence sums have several independent parts.
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

// What a lane loads of a column and chunk. int4: four bytes of a slice and its step.
template <int BITS> struct Weight { uint4 word; };
template <> struct Weight<4> {
    uint32_t word;
    int step;
};

// Slots between rows. Lanes of two rows read 4 slots each at a time, so that they use different banks.
__host__ __device__ inline int slots_per_row(const CudaFused &call) {
    return call.inner / slot + 4;
}

// Lines in shared memory: the rows, then what they are multiplied by, if anything, then beta and ones, by
// which gamma and beta are multiplied.
template <int BITS, bool NORM> constexpr bool scaled = NORM || BITS != 16;
__host__ __device__ inline int lines_of(const CudaFused &call) {
    return call.rows + (call.gamma || call.bits != 16) + (call.beta ? 2 : 0);
}
// How many of them are multiplied by the weights.
__host__ __device__ inline int products_of(const CudaFused &call) {
    return call.rows + (call.beta ? 2 : 0);
}

// A block's shared memory.
struct Shared {
    uint4 *lines;        // (lines, slots_per_row)
    float *bias, *scale; // (width)
    float *part;         // (warps, products, width + 1): the warps' sums
    float2 *squares;     // (warps, rows): their sums of elements and of squares
    float2 *stats;       // (rows): mean and rstd
    float *norm;         // (2, width): products of gamma and of beta
    int bytes = 0;
    __host__ __device__ Shared(char *base, const CudaFused &call, int warps, int width) {
        lines = (uint4 *)(base + take(lines_of(call) * slots_per_row(call) * sizeof(uint4)));
        bias = (float *)(base + take(width * sizeof(float)));
        scale = (float *)(base + take(width * sizeof(float)));
        part = (float *)(base + take(warps * products_of(call) * (width + 1) * sizeof(float)));
        squares = (float2 *)(base + take(call.gamma ? warps * call.rows * sizeof(float2) : 0));
        stats = (float2 *)(base + take(call.gamma ? call.rows * sizeof(float2) : 0));
        norm = (float *)(base + take(call.beta ? 2 * width * sizeof(float) : 0));
    }

  private:
    __host__ __device__ int take(size_t size) {
        int from = bytes;
        bytes += (int)((size + 15) / 16 * 16);
        return from;
    }
};

// ---- rows ----

// A warp's part of the inner dimension, in slots.
struct Range {
    int first, count;
};

// Makes the compiler compute a value before it is used, in front of a wait.
__device__ inline void compute_now(int &value) {
    asm volatile("" : "+r"(value));
}

// A lane's share of copying a warp's part of all rows into shared memory: slots of rows `row`, row + rows, ..
struct Share {
    int row, rows, from, to, step, count;
    __device__ Share(const CudaFused &call, Range range) {
        const int lane = (int)threadIdx.x % 32;
        step = range.count <= 16 ? 16 : 32; // lanes for a row
        row = lane / step, rows = 32 / step;
        count = range.count - lane % step;
        from = row * (call.inner / slot) + range.first + lane % step;
        to = row * slots_per_row(call) + range.first + lane % step;
        compute_now(row), compute_now(from), compute_now(to), compute_now(count);
    }
    __device__ void copy(const CudaFused &call, const Shared &at) const {
        int source = from, target = to;
#pragma unroll 1
        for (int r = row; r < call.rows; r += rows) {
#pragma unroll 1
            for (int c = 0; c < count; c += step)
                copy_async16(at.lines + target + c, (const uint4 *)call.x + source + c);
            source += rows * (call.inner / slot), target += rows * slots_per_row(call);
        }
        copy_group();
        copy_wait<0>();
        __syncwarp();
    }
};

template <typename T> __device__ inline void unpack(float (&to)[slot], const uint4 &pack) {
    const uint32_t word[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = pair_values<T>(word[i]);
        to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
}
template <typename T> __device__ inline uint4 pack_of(const float (&x)[slot], float by) {
    return make_uint4(round_pair<T>(x[0] * by, x[1] * by), round_pair<T>(x[2] * by, x[3] * by),
                      round_pair<T>(x[4] * by, x[5] * by), round_pair<T>(x[6] * by, x[7] * by));
}

// A slot of what rows are multiplied by, or of beta; both times the factors.
template <typename T, int BITS>
__device__ inline void load_line(float (&to)[slot], const CudaFused &call, const void *line, int c) {
#pragma unroll
    for (float &one : to) one = 1;
    if (line) unpack<T>(to, ((const uint4 *)line)[c]);
    if (BITS != 16 && call.factor)
#pragma unroll
        for (int i = 0; i < slot; i++) to[i] *= call.factor[c * slot + i];
}

// Stores a warp's part of these lines. Rows of fp16 must neither overflow nor lose digits, so they are
// multiplied by numbers of up to 1, and the warp's sums by the power of two that is returned.
template <typename T, int BITS>
__device__ inline float store_lines(const CudaFused &call, const Shared &at, Range range) {
    const int stride = slots_per_row(call), lane = (int)threadIdx.x % 32, end = range.first + range.count;
    uint4 *gamma = at.lines + call.rows * stride, *beta = gamma + stride;
    float power = 1, line[slot];
    if constexpr (std::is_same_v<T, __half>) {
        float most = 0;
#pragma unroll 1
        for (int c = range.first + lane; c < end; c += 32) {
            load_line<T, BITS>(line, call, call.gamma, c);
#pragma unroll
            for (float one : line) most = fmaxf(most, fabsf(one));
        }
#pragma unroll
        for (int way = 16; way > 0; way /= 2) most = fmaxf(most, __shfl_xor_sync(full_warp, most, way));
        while (power < most && power < 0x1p15f) power *= 2;
        while (power > 2 * most && power > 0x1p-14f) power /= 2;
    }
#pragma unroll 1
    for (int c = range.first + lane; c < end; c += 32) {
        load_line<T, BITS>(line, call, call.gamma, c);
        gamma[c] = pack_of<T>(line, 1 / power);
        if (!call.beta) continue;
        load_line<T, BITS>(line, call, call.beta, c);
        beta[c] = pack_of<T>(line, 1);
        const uint32_t ones = round_pair<T>(1, 1);
        beta[stride + c] = make_uint4(ones, ones, ones, ones);
    }
    __syncwarp();
    return power;
}

// ---- products ----

template <typename T>
using Two = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, __nv_bfloat162, __half2>;

template <typename T> __device__ inline Two<T> two_of(uint32_t bits) {
    Two<T> two;
    memcpy(&two, &bits, sizeof two);
    return two;
}
template <typename T> __device__ inline uint32_t bits_of(Two<T> two) {
    uint32_t bits;
    memcpy(&bits, &two, sizeof bits);
    return bits;
}
template <typename T> __device__ inline uint32_t multiply_pairs(uint32_t a, uint32_t b) {
    return bits_of<T>(__hmul2(two_of<T>(a), two_of<T>(b)));
}

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
    template <typename T> __device__ void scale(const Operand &by) {
#pragma unroll
        for (int i = 0; i < words; i++) word[i] = multiply_pairs<T>(word[i], by.word[i]);
    }
};

// a & mask ^ flip, as one instruction: the compiler would take two for two constants.
__device__ inline uint32_t mask_flip(uint32_t a, uint32_t mask, uint32_t flip) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(mask), "r"(flip));
    return result;
}

// Bytes 2i and 2i + 1 of a word as 16-bit elements: int8, or int4 in the low half of each byte. A byte in the
// mantissa of a power of two is that power plus its value. bf16 has room for 7 bits, so the sign of an int8
// goes into the subtrahend: 128 or 256.
template <typename T, int BITS> __device__ inline uint32_t elements_of(uint32_t word, int i) {
    constexpr bool brief = std::is_same_v<T, __nv_bfloat16>;
    const uint32_t bytes = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
    uint32_t from, less;
    if constexpr (BITS == 4) {
        from = mask_flip(bytes, 0x000f000f, brief ? 0x43084308 : 0x64086408);
        less = brief ? 0x43084308 : 0x64086408; // 128 + 8, 1024 + 8
    } else if constexpr (brief) {
        from = mask_flip(bytes, 0x007f007f, 0x43004300);
        less = mask_flip(bytes, 0x00800080, 0x43004300);
    } else {
        from = (bytes ^ 0x00800080) | 0x64006400;
        less = 0x64806480; // 1024 + 128
    }
    return bits_of<T>(__hsub2(two_of<T>(from), two_of<T>(less)));
}

// A lane's weights of a column and chunk as 16-bit elements, in the order of Operand. `none` is 0: the
// compiler does not know that, and so cannot leave 16-bit weights in the registers that they were loaded
// into, from which it would have to move them before each mma.
template <typename T, int BITS> struct Values {
    uint32_t word[Operand<BITS>::words];
    __device__ Values(const Weight<BITS> &from, uint32_t none) {
        if constexpr (BITS == 4) {
            const uint32_t step = round_pair<T>((float)from.step, (float)from.step);
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] =
                    multiply_pairs<T>(elements_of<T, 4>(i < 2 ? from.word : from.word >> 4, i % 2), step);
        } else {
            const uint32_t raw[4] = {from.word.x, from.word.y, from.word.z, from.word.w};
#pragma unroll
            for (int i = 0; i < Operand<BITS>::words; i++)
                word[i] = BITS == 8 ? elements_of<T, 8>(raw[i / 2], i % 2) : raw[i] ^ none;
        }
    }
};

// A lane's weights of TILES columns and a chunk, as an mma takes its first operand: a word of row g and one
// of row g + 8, then the next word of each. Two tiles fill the rows of an mma. A last tile without a partner
// fills both halves itself, and each mma then computes only one useful half: the sums of words 0 and 1 are in
// the first rows of one accumulator, those of words 2 and 3 in the second rows of another one.
template <typename T, int BITS, int TILES> struct Operands {
    static constexpr int words = Operand<BITS>::words, paired = TILES / 2 * 2, sums = TILES + TILES % 2;
    uint32_t quad[TILES * words / 4][4];
    __device__ void set(const Weight<BITS> (&from)[TILES], uint32_t none) {
#pragma unroll
        for (int i = 0; i < paired; i += 2) {
            const Values<T, BITS> one(from[i], none), two(from[i + 1], none);
#pragma unroll
            for (int j = 0; j < words; j++) {
                uint32_t(&to)[4] = quad[i * words / 4 + j / 2];
                to[j % 2 * 2] = one.word[j], to[j % 2 * 2 + 1] = two.word[j];
            }
        }
        if constexpr (TILES % 2) {
            const Values<T, BITS> last(from[TILES - 1], none);
#pragma unroll
            for (int j = 0; j < words; j++)
                quad[paired * words / 4 + j / 4][j % 2 * 2 + j / 2 % 2] = last.word[j];
        }
#pragma unroll
        for (int i = 0; i < TILES * words; i++) asm volatile("" : "+r"(quad[i / 4][i % 4])); // not when used
    }
    // All lines of x and all columns. asm volatile keeps mmas in order, so independent ones come first.
    __device__ void multiply(float (&sum)[sums][4], const Operand<BITS> &x) const {
#pragma unroll
        for (int j = 0; j < words; j += 2) {
#pragma unroll
            for (int i = 0; i < paired; i += 2)
                multiply_add<T>(sum[i + j / 2 % 2], quad[i * words / 4 + j / 2], x.word[j], x.word[j + 1]);
            if (TILES % 2)
                multiply_add<T>(sum[paired + j / 2 % 2], quad[paired * words / 4 + j / 4], x.word[j],
                                x.word[j + 1]);
        }
    }
    // The sum of column g of a tile and line 2t + i.
    static __device__ float sum_of(const float (&sum)[sums][4], int tile, int i) {
        if (tile == paired) return sum[tile][i] + sum[tile + 1][2 + i];
        const int at = tile % 2 * 2 + i;
        return sum[tile / 2 * 2][at] + sum[tile / 2 * 2 + 1][at];
    }
};

// Where a lane's weights of a column are: those of the first chunk, and the bytes to the next one's.
template <int BITS> struct Column {
    static constexpr int step = BITS == 4 ? slice_bytes : 64;
    const char *at;
    int step_at; // int4: from the weights to their step
    // Of the tile that starts at row n of w.
    __device__ Column(const CudaFused &call, int n, int piece, int g, int t) {
        const char *w = (const char *)call.w;
        step_at = 0;
        if (BITS == 4) {
            const int in_panel = n % panel_cols + g;
            at = w + ((int64_t)(n / panel_cols) * (call.inner / slice_inputs) + piece) * slice_bytes +
                 in_panel * (slice_inputs / 2) + 4 * t;
            step_at = panel_cols * slice_inputs / 2 + in_panel - in_panel * (slice_inputs / 2) - 4 * t;
        } else {
            at = w + ((int64_t)n + g) * call.inner * (BITS / 8) + piece * step + 16 * t;
        }
    }
    __device__ Weight<BITS> load(int piece) const {
        const char *from = at + piece * step;
        if constexpr (BITS == 4)
            return {load_word_once(from), *reinterpret_cast<const int8_t *>(from + step_at)};
        else
            return {load_once(from)};
    }
};

// Sums of a row's elements and of their squares, as products of the row with itself and, in the last column,
// with ones. Half of a row's words are in an mma's second rows, and so are their sums.
template <typename T> struct Squares {
    float one[4] = {}, two[4] = {};
    template <int BITS> __device__ void add(const Operand<BITS> &x, bool last) {
        const uint32_t ones = round_pair<T>(1, 1);
#pragma unroll
        for (int i = 0; i < Operand<BITS>::words; i += 4) {
            const uint32_t rows[4] = {x.word[i], x.word[i + 1], x.word[i + 2], x.word[i + 3]};
            multiply_add<T>(one, rows, last ? ones : rows[0], last ? ones : rows[2]);
            multiply_add<T>(two, rows, last ? ones : rows[1], last ? ones : rows[3]);
        }
    }
    // Of row g; the sum is in lane t = 3, the squares in lane t = g / 2.
    __device__ float sum() const {
        return one[1] + two[3];
    }
    __device__ float square(int g) const {
        return g % 2 ? one[1] + two[3] : one[0] + two[2];
    }
};

// The part of a block's products that a warp computes: all lines and columns, for a range of the inner
// dimension. `row_of` returns the row of w with which a tile of columns starts.
template <typename T, int BITS, int WARPS, int TILES, bool NORM> struct Products {
    // Chunks whose weights are in flight: up to 8 KB per column of 16-bit weights, or 4 KB with 8 warps.
    static constexpr int in_flight = (WARPS == 8 || NORM ? 4 : 8 / TILES) / (BITS == 8 ? 2 : 1);
    static constexpr int width = TILES * tile;
    static constexpr int lines_at_once = NORM ? 7 : 8; // a norm needs a column of ones
    using Chunk = Operands<T, BITS, TILES>;
    Weight<BITS> weights[in_flight][TILES];
    Chunk chunks[in_flight];
    int first, last, warp, g, t;
    int x_at, by_at; // see set_line
    float power = 1; // of store_lines

    __device__ explicit Products(const CudaFused &call) {
        const int lane = threadIdx.x % 32, chunks = call.inner / chunk<BITS>,
                  each = (chunks + WARPS - 1) / WARPS;
        warp = warp_number(), g = lane / 4, t = lane % 4;
        first = warp * each, last = min(first + each, chunks);
        set_line(call, first, 0);
        compute_now(x_at), compute_now(by_at);
    }
    __device__ Range range() const {
        constexpr int slots = chunk<BITS> / slot;
        return {first * slots, max(last - first, 0) * slots};
    }
    // FULL: all chunks exist. The addresses are those of the first one, so that they take few instructions.
    template <bool FULL, typename RowOf>
    __device__ void load_chunks(const CudaFused &call, RowOf row_of, int from) {
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const Column<BITS> column(call, row_of(i), from, g, t);
#pragma unroll
            for (int a = 0; a < in_flight; a++) {
                if (!FULL) weights[a][i] = {};
                if (FULL || from + a < last) weights[a][i] = column.load(a);
            }
        }
    }
    template <typename RowOf> __device__ void load(const CudaFused &call, RowOf row_of, int from) {
        if (last - from >= in_flight)
            load_chunks<true>(call, row_of, from);
        else
            load_chunks<false>(call, row_of, from);
    }
    __device__ void convert(const CudaFused &call) {
        const uint32_t none = (uint32_t)call.rows >> 8;
#pragma unroll
        for (int a = 0; a < in_flight; a++) chunks[a].set(weights[a], none);
    }
    // Where the lane's elements of a line and of what it is multiplied by are, for the chunk `from`. A line
    // that does not exist is replaced by another; its products are not used.
    __device__ void set_line(const CudaFused &call, int from, int line) {
        const int stride = slots_per_row(call) * (int)sizeof(uint4);
        const int place = from * chunk<BITS> * 2 + t * (BITS == 8 ? 32 : BITS == 4 ? 8 : 16);
        const int own = min(line + g, products_of(call) - 1);
        x_at = own * stride + place;
        by_at = (call.rows + (own < call.rows ? 0 : 2)) * stride + place;
    }
    // Adds the products of the lines from `line` on and the chunks in flight to the warp's sums in shared
    // memory. FULL: all chunks exist. Without branches, the compiler loads the next elements while it
    // multiplies. FIRST: nothing has been added yet.
    template <bool FULL, bool FIRST>
    __device__ void multiply_lines(const CudaFused &call, const Shared &at, int from, int line) {
        const char *row = (const char *)at.lines + x_at, *by = (const char *)at.lines + by_at;
        float sum[Chunk::sums][4] = {};
        Squares<T> squares;
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            if (!FULL && from + a >= last) continue;
            Operand<BITS> x(row + a * chunk<BITS> * 2);
            if (NORM) squares.add(x, g == lines_at_once);
            if (scaled<BITS, NORM>) x.template scale<T>(Operand<BITS>(by + a * chunk<BITS> * 2));
            chunks[a].multiply(sum, x);
        }
        const int lines = products_of(call);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int to = line + 2 * t + i;
            if (2 * t + i >= lines_at_once || to >= lines) continue;
            const float times = std::is_same_v<T, __half> && to <= call.rows ? power : 1;
            float *part = at.part + (warp * lines + to) * (width + 1) + g;
#pragma unroll
            for (int n = 0; n < TILES; n++) add_to<FIRST>(part[n * tile], Chunk::sum_of(sum, n, i) * times);
        }
        if (!NORM || line + g >= call.rows || g == lines_at_once) return;
        float2 &sums = at.squares[warp * call.rows + line + g];
        if (t == 3) add_to<FIRST>(sums.x, squares.sum());
        if (t == g / 2) add_to<FIRST>(sums.y, squares.square(g));
    }
    template <bool FIRST> __device__ void add_to(float &sum, float more) const {
        sum = FIRST ? more : sum + more;
    }
    template <bool FIRST> __device__ void multiply(const CudaFused &call, const Shared &at, int from) {
#pragma unroll 1
        for (int line = 0; line < products_of(call); line += lines_at_once) {
            if (!FIRST || line > 0) set_line(call, from, line);
            if (last - from >= in_flight)
                multiply_lines<true, FIRST>(call, at, from, line);
            else
                multiply_lines<false, FIRST>(call, at, from, line);
        }
    }
    // The first weights are already loaded and converted, and the first line is set. A warp without inputs
    // leaves zeros.
    template <typename RowOf> __device__ void run(const CudaFused &call, const Shared &at, RowOf row_of) {
        multiply<true>(call, at, first);
#pragma unroll 1
        for (int from = first + in_flight; from < last; from += in_flight) {
            load(call, row_of, from);
            convert(call);
            multiply<false>(call, at, from);
        }
    }
};

// ---- blocks ----

// Loads what does not depend on other kernels into shared memory: biases and scales.
template <typename T, int BITS, int TILES, typename RowOf>
__device__ inline void load_constants(const CudaFused &call, const Shared &at, RowOf row_of) {
    const int i = threadIdx.x;
    if (i >= TILES * tile) return;
    const int n = row_of(i / tile) + i % tile;
    if (call.bias) at.bias[i] = to_float(((const T *)call.bias)[n]);
    if (BITS != 16) at.scale[i] = call.scale[n];
}

// The sum of column i of the block for a line, over all warps.
template <int WARPS>
__device__ inline float sum_of(const CudaFused &call, const Shared &at, int line, int i, int width) {
    const float *from = at.part + line * (width + 1) + i;
    const int step = products_of(call) * (width + 1);
    float total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) total += from[w * step];
    return total;
}

// Sums over all warps what norms need. `part` is 1 / inner. The mean is subtracted only here: elements have
// at most 11 bits, so in fp32 squares cancel no earlier than differences from the mean. NaN stays NaN.
template <int WARPS>
__device__ inline void sum_norm(const CudaFused &call, const Shared &at, float part, int width) {
    const int line = (int)threadIdx.x / 32, i = (int)threadIdx.x % 32;
    if (line < 2 && call.beta && i < width)
        at.norm[line * width + i] = sum_of<WARPS>(call, at, call.rows + line, i, width);
    if (line == 2 && i < call.rows) {
        float sum = 0, square = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float2 more = at.squares[w * call.rows + i];
            sum += more.x, square += more.y;
        }
        const float mean = call.beta ? sum * part : 0, variance = square * part - mean * mean;
        at.stats[i] = make_float2(mean, rsqrtf((variance < 0 ? 0 : variance) + call.eps));
    }
    __syncthreads();
}

// Column i of the block for a row, with scale and bias.
template <typename T, int BITS, int WARPS, bool NORM>
__device__ inline float total_of(const CudaFused &call, const Shared &at, int row, int i, int width) {
    float total = sum_of<WARPS>(call, at, row, i, width);
    if (NORM) {
        const float2 stats = at.stats[row];
        total = call.beta ? (total - stats.x * at.norm[i]) * stats.y + at.norm[width + i] : total * stats.y;
    }
    if (BITS != 16) total = __fmul_rn(total, at.scale[i]);
    return call.bias ? __fadd_rn(total, at.bias[i]) : total;
}

} // namespace

#endif
