// Large linear layers of up to 16 rows, with the same results as linear_fused.cu but for rounding:
// y = res + act(norm(x) w^T + bias). What counts here is that memory is never idle.
//
// Each multiprocessor has one block with a contiguous part of the columns, which it computes in groups of 16
// (of a gated layer, 8 of gate and 8 of up). Its warps split the inner dimension. A warp copies its weights
// into a ring of stages in shared memory, ahead of its products and across groups. A further warp adds the
// warps' sums of a group and computes its results, while the others continue with the next group. In a chain
// (chain.cuh), a block fills its ring before the previous kernel has finished.
//
// Rows are normalized once per block. The split of the inner dimension depends only on its length and on
// whether there is a norm, and a row's sums do not depend on other rows, so a row has the same bits alone and
// in a batch. Batches that do not fit in shared memory use linear_fused.cu, which rounds differently.
#include <algorithm>

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/linear_fused.cuh"

namespace {

constexpr int group_cols = 16, products_barrier = 1;

// Warps that multiply. A layer with a norm has more, see start_stream.
template <bool NORM> constexpr int warps_for_products = NORM ? 16 : 8;
// Claimed as the largest number of threads, so that the compiler takes up to 64 registers. A quarter of a
// multiprocessor then has registers for 8 warps: up to 5 of a block with a norm and up to 3 of one without.
constexpr int threads_claimed = 1024;

// Inner elements of a stage: 64 bytes of each column, of int4 32.
template <int BITS> constexpr int unit = BITS == 16 ? 32 : 64;
template <int BITS> constexpr int stage_bytes = BITS == 4 ? 512 + 32 : 1024; // int4: weights, then steps
// Stages of a warp. LINES: sets of 8 rows.
template <int BITS, int LINES, bool NORM>
constexpr int stages = LINES == 2 ? (NORM ? 4 : 5) * (BITS == 4 ? 2 : 1)
                       : NORM     ? (BITS == 4 ? 10 : 5)
                                  : (BITS == 4 ? 20 : 12);
// How many of them are being filled while others are multiplied, up to two at a time.
template <int BITS, int LINES, bool NORM> constexpr int ahead = stages<BITS, LINES, NORM> - 2;
template <int LINES> constexpr int in_turn = LINES == 1 ? 4 : 1; // groups whose sums are kept

// Lanes of two rows read at the same time: 64 bytes of each, of int8 layers every other 16 of 128.
__host__ __device__ inline int row_bytes(const CudaFused &call) {
    return call.inner * 2 + (call.bits == 8 ? 16 : 64);
}

// A block's shared memory.
struct StreamMemory {
    char *stages;                // (warps, stages)
    char *rows;                  // (rows, row_bytes): 16-bit elements; int4: see store_slice
    char *gamma, *beta, *factor; // (inner)
    float *part;                 // (in_turn, warps, rows, group_cols + 1): the warps' sums of groups
    float2 *stats;               // (warps, rows): their sums of elements and of squares
    float *power;                // (warps, rows): what their sums are multiplied by
    float *scale, *bias;         // (columns), of gate and up: twice
    char *res;                   // (rows, columns): 16-bit elements
    uint64_t *full, *empty;      // (in_turn): barriers of `part`
    int bytes = 0;
    __host__ __device__ StreamMemory(char *base, const CudaFused &call, int columns, int warps, int ring,
                                     int turns) {
        const int lines = warps * call.rows, line = columns * (call.gated ? 2 : 1) * (int)sizeof(float);
        stages = base + take(warps * ring);
        rows = base + take(call.rows * row_bytes(call));
        gamma = base + take(call.gamma ? call.inner * 2 : 0);
        beta = base + take(call.beta ? call.inner * 2 : 0);
        factor = base + take(call.factor ? call.inner * 4 : 0);
        part = (float *)(base + take(turns * lines * (group_cols + 1) * (int)sizeof(float)));
        stats = (float2 *)(base + take(call.gamma ? lines * (int)sizeof(float2) : 0));
        power = (float *)(base + take(lines * (int)sizeof(float)));
        scale = (float *)(base + take(call.bits == 16 ? 0 : line));
        bias = (float *)(base + take(line)); // always: whether it fits is asked before there is one
        res = base + take(call.res ? call.rows * columns * 2 : 0);
        full = (uint64_t *)(base + take(turns * (int)sizeof(uint64_t)));
        empty = (uint64_t *)(base + take(turns * (int)sizeof(uint64_t)));
    }

  private:
    __host__ __device__ int take(int size) {
        int from = bytes;
        bytes += (size + 15) / 16 * 16;
        return from;
    }
};

// Columns are split in units of these, as evenly as possible. int4 steps are copied in fours.
__host__ __device__ inline int column_unit(const CudaFused &call) {
    return call.bits == 4 ? 4 : 2;
}
// The most columns of a block.
__host__ __device__ inline int columns_of(const CudaFused &call, int blocks) {
    const int unit = column_unit(call), units = (call.cols + unit - 1) / unit;
    return (units + blocks - 1) / blocks * unit;
}

// A block's columns. A gated layer's column is one of gate and one of up.
struct Portion {
    int first, end, in_group, groups;
    __device__ explicit Portion(const CudaFused &call) {
        const int unit = column_unit(call), units = (call.cols + unit - 1) / unit;
        first = edge(units, (int)blockIdx.x) * unit;
        end = min(edge(units, (int)blockIdx.x + 1) * unit, call.cols);
        in_group = call.gated ? group_cols / 2 : group_cols;
        groups = (end - first + in_group - 1) / in_group;
    }
    __device__ static int edge(int units, int block) { return (int)((int64_t)units * block / gridDim.x); }
    // The column of row g of a tile (half of a group).
    __device__ int column(const CudaFused &call, int group, int half, int g) const {
        return first + group * in_group + g + (call.gated ? 0 : half * tile);
    }
};

// A warp's part of the inner dimension, in units.
template <int BITS, int WARPS> __device__ inline Range units_of(const CudaFused &call, int warp) {
    const int units = call.inner / unit<BITS>, first = warp * units / WARPS;
    return {first, (warp + 1) * units / WARPS - first};
}

// ---- weights ----

// Copies a warp's weights into its stages, in the order in which they are multiplied. A lane's copies of a
// stage: 16 bytes of a column of each half of the group; of int4, 16 bytes of either half and 4 steps.
template <int BITS> struct Copies {
    const char *at[2];
    bool there[2];
    int group, left;
    __device__ Copies(const CudaFused &call, const Portion &portion, Range range) {
        group = range.count ? 0 : portion.groups;
        start(call, portion, range);
    }
    __device__ void start(const CudaFused &call, const Portion &portion, Range range) {
        const int lane = (int)threadIdx.x % 32;
        left = range.count;
        if (group >= portion.groups) return;
        if (BITS == 4) {
            set_slice(call, portion, 0, lane / 16, lane % 16 / 2, range.first * 2 + lane % 2);
            set_slice(call, portion, 1, lane / 4, lane % 2 * 4, range.first * 2 + lane / 2 % 2);
            there[1] = there[1] && lane < 8;
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int col = portion.column(call, group, i, lane / 4);
                there[i] = col < portion.end;
                at[i] = (const char *)call.w + weight_row(call, i, col) * call.inner * (BITS / 8) +
                        range.first * 64 + lane % 4 * 16;
            }
        }
    }
    // The lane's 16 bytes of a slice, or 4 of its steps.
    __device__ void set_slice(const CudaFused &call, const Portion &portion, int i, int half, int g,
                              int slice) {
        const int col = portion.column(call, group, half & 1, g);
        const int64_t n = weight_row(call, half & 1, col);
        there[i] = col < portion.end;
        at[i] =
            (const char *)call.w + (n / panel_cols * (call.inner / slice_inputs) + slice) * slice_bytes +
            (i == 0 ? n % panel_cols * (slice_inputs / 2) : panel_cols * slice_inputs / 2 + n % panel_cols);
    }
    __device__ int64_t weight_row(const CudaFused &call, int half, int col) const {
        return (int64_t)col + (call.gated && half ? call.cols : 0);
    }
    __device__ void next(const CudaFused &call, const Portion &portion, Range range, char *stage) {
        const int lane = (int)threadIdx.x % 32;
        if (group < portion.groups) {
            if (BITS == 4) {
                char *to = stage + lane / 16 * 256 + lane % 2 * 128 + lane % 16 / 2 * 16;
                if (there[0]) copy_async16_line(to, at[0]);
                if (there[1]) copy_async4(stage + 512 + lane * 4, at[1], true);
            } else {
                if (there[0]) copy_async16_line(stage + lane * 16, at[0]);
                if (there[1]) copy_async16_line(stage + 512 + lane * 16, at[1]);
            }
            const int step = BITS == 4 ? 2 * slice_bytes : 64;
            at[0] += step, at[1] += step;
            if (--left == 0) group++, start(call, portion, range);
        }
        copy_group();
    }
};

// ---- rows ----

// int4: stores one of four slots (32 inputs), whose elements are exchanged: lane t of the products needs
// inputs 4t to 4t + 3 and 16 + 4t to 16 + 4t + 3, in pairs of even and of odd ones.
__device__ inline void store_slice(char *row, int c, const uint4 &x) {
    const int s = c % 4;
    char *to = row + c / 4 * 64 + s % 2 * 32 + s / 2 * 8;
    *(uint2 *)to = make_uint2(__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632));
    *(uint2 *)(to + 16) = make_uint2(__byte_perm(x.z, x.w, 0x5410), __byte_perm(x.z, x.w, 0x7632));
}

// Copies a warp's part of the norm's parameters and of the factors, which no kernel writes.
template <int BITS>
__device__ inline void copy_lines(const CudaFused &call, const StreamMemory &at, Range slots) {
    for (int c = slots.first + (int)threadIdx.x % 32; c < slots.first + slots.count; c += 32) {
        if (call.gamma) copy_async16(at.gamma + c * 16, (const char *)call.gamma + c * 16);
        if (call.beta) copy_async16(at.beta + c * 16, (const char *)call.beta + c * 16);
        if (BITS != 16 && call.factor)
            for (int i = 0; i < 32; i += 16)
                copy_async16(at.factor + c * 32 + i, (const char *)call.factor + c * 32 + i);
    }
}

__device__ inline void copy_rows(const CudaFused &call, const StreamMemory &at, Range slots) {
    const int lane = (int)threadIdx.x % 32, stride = row_bytes(call);
    for (int r = 0; r < call.rows; r++)
        for (int c = slots.first + lane; c < slots.first + slots.count; c += 32)
            copy_async16(at.rows + r * stride + c * 16,
                         (const char *)call.x + ((int64_t)r * call.inner + c * slot) * 2);
    copy_group();
    copy_wait<0>();
}

// Sums N (1, 2, 4, ..) values of each lane over the warp. Lane l has the sum of value l / (32 / N); each sum
// is added up in the same order, whatever N.
template <int N> __device__ inline float warp_sums(float (&value)[N]) {
    const int lane = (int)threadIdx.x % 32;
    int way = 16;
#pragma unroll
    for (int left = N; left > 1; left /= 2, way /= 2) {
        const bool upper = lane & way;
#pragma unroll
        for (int i = 0; i < left / 2; i++) {
            const float other = upper ? value[i] : value[i + left / 2];
            value[i] = (upper ? value[i + left / 2] : value[i]) + __shfl_xor_sync(full_warp, other, way);
        }
    }
    for (; way > 0; way /= 2) value[0] += __shfl_xor_sync(full_warp, value[0], way);
    return value[0];
}

// A warp's sums of the elements of rows and of their squares, of BATCH rows at a time.
template <typename T, int BATCH>
__device__ inline void sum_rows(const CudaFused &call, const StreamMemory &at, Range slots, int warp) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int r = 0; r < call.rows; r += BATCH) {
        float sum[2 * BATCH] = {};
#pragma unroll 1
        for (int c = slots.first + lane; c < slots.first + slots.count; c += 32)
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                float x[slot];
                unpack<T>(x,
                          *(const uint4 *)(at.rows + min(r + i, call.rows - 1) * row_bytes(call) + c * 16));
#pragma unroll
                for (float one : x) sum[2 * i] += one, sum[2 * i + 1] = fmaf(one, one, sum[2 * i + 1]);
            }
        constexpr int lanes = 16 / BATCH; // that have the same sum
        const float total = warp_sums(sum);
        const int i = lane / lanes;
        if (lane % lanes == 0 && r + i / 2 < call.rows)
            ((float *)(at.stats + warp * call.rows + r))[i] = total;
    }
}

// Of row `lane`, what elements are multiplied by and what is added: 1 / deviation and -mean / deviation. See
// sum_norm of linear_fused.cuh.
__device__ inline float2 norm_of_row(const CudaFused &call, const StreamMemory &at) {
    const int lane = (int)threadIdx.x % 32;
    float sum = 0, square = 0;
    if (lane < call.rows)
        for (int w = 0; w < warps_for_products<true>; w++) {
            const float2 more = at.stats[w * call.rows + lane];
            sum += more.x, square += more.y;
        }
    const float part = 1.0f / (float)call.inner, mean = call.beta ? sum * part : 0,
                variance = square * part - mean * mean;
    const float rstd = rsqrtf((variance < 0 ? 0 : variance) + call.eps);
    return make_float2(rstd, -mean * rstd);
}

// The power of two by which a warp's part of a row is divided, so that fp16 elements neither overflow nor
// lose digits.
__device__ inline float power_for(float most) {
    float power = 1;
    while (power < most && power < 0x1p30f) power *= 2;
    while (power > 2 * most && power > 0x1p-14f) power /= 2;
    return power;
}

// 8 elements of the norm's parameters and of the factors.
template <typename T, int BITS, bool NORM> struct Line {
    float gamma[slot], beta[slot];
    __device__ Line(const CudaFused &call, const StreamMemory &at, int c) {
#pragma unroll
        for (int i = 0; i < slot; i++) gamma[i] = 1, beta[i] = 0;
        if (NORM) unpack<T>(gamma, *(const uint4 *)(at.gamma + c * 16));
        if (NORM && call.beta) unpack<T>(beta, *(const uint4 *)(at.beta + c * 16));
#pragma unroll
        for (int i = 0; i < (BITS != 16 && call.factor ? slot : 0); i++) {
            const float factor = ((const float *)at.factor)[c * slot + i];
            gamma[i] *= factor, beta[i] *= factor;
        }
    }
    __device__ void apply(float (&x)[slot], float2 norm) const {
#pragma unroll
        for (int i = 0; i < slot; i++)
            x[i] = NORM ? fmaf(fmaf(x[i], norm.x, norm.y), gamma[i], beta[i]) : x[i] * gamma[i];
    }
};

// Normalizes a warp's part of the rows, multiplies it by the factors, and arranges it for the products.
template <typename T, int BITS, bool NORM, int BATCH>
__device__ inline void finish_rows(const CudaFused &call, const StreamMemory &at, Range slots, int warp) {
    const int lane = (int)threadIdx.x % 32, end = slots.first + slots.count;
    const bool has_power = std::is_same_v<T, __half> && BITS != 16 && call.factor;
    const float2 own = NORM ? norm_of_row(call, at) : make_float2(1, 0);
#pragma unroll 1
    for (int r = 0; r < call.rows; r += BATCH) {
        float2 norm[BATCH];
        float less[BATCH];
        char *row[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            row[i] = at.rows + min(r + i, call.rows - 1) * row_bytes(call), less[i] = 1;
            norm[i].x = __shfl_sync(full_warp, own.x, r + i),
            norm[i].y = __shfl_sync(full_warp, own.y, r + i);
        }
        auto value = [&](float(&x)[slot], const Line<T, BITS, NORM> &line, int i, int c) {
            unpack<T>(x, *(const uint4 *)(row[i] + c * 16));
            line.apply(x, norm[i]);
        };
#pragma unroll
        for (int i = 0; i < (has_power ? BATCH : 0); i++) {
            float most = 0, x[slot];
            for (int c = slots.first + lane; c < end; c += 32) {
                value(x, Line<T, BITS, NORM>(call, at, c), i, c);
#pragma unroll
                for (float one : x) most = fmaxf(most, fabsf(one));
            }
            const float power = power_for(warp_max(most));
            if (lane == 0 && r + i < call.rows) at.power[warp * call.rows + r + i] = power;
            less[i] = 1 / power;
        }
#pragma unroll 1
        for (int from = slots.first; from < end; from += 32) {
            const int c = from + lane;
            uint4 pack[BATCH];
            if (c < end) {
                const Line<T, BITS, NORM> line(call, at, c);
#pragma unroll
                for (int i = 0; i < BATCH; i++) {
                    float x[slot];
                    value(x, line, i, c);
                    pack[i] = pack_of<T>(x, less[i]);
                }
            }
            if (BITS == 4) __syncwarp(); // store_slice exchanges elements between lanes
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                if (c >= end || r + i >= call.rows) continue;
                if (BITS == 4)
                    store_slice(row[i], c, pack[i]);
                else
                    *(uint4 *)(row[i] + c * 16) = pack[i];
            }
        }
    }
}

template <typename T, int BITS, bool NORM, int BATCH>
__device__ inline void prepare(const CudaFused &call, const StreamMemory &at, Range slots, int warp) {
    if (NORM) {
        sum_rows<T, BATCH>(call, at, slots, warp);
        sync_threads(products_barrier, warps_for_products<true> * 32);
    }
    if (NORM || BITS == 4 || (BITS == 8 && call.factor))
        finish_rows<T, BITS, NORM, BATCH>(call, at, slots, warp);
    __syncwarp();
}

// Copies a warp's part of all rows and makes it ready for the products.
template <typename T, int BITS, int LINES, bool NORM>
__device__ inline void prepare_rows(const CudaFused &call, const StreamMemory &at, Range slots, int warp) {
    copy_rows(call, at, slots);
    if (LINES == 1 && call.rows == 1)
        prepare<T, BITS, NORM, 1>(call, at, slots, warp);
    else
        prepare<T, BITS, NORM, 4>(call, at, slots, warp);
}

// ---- products ----

// Four pairs of int4 weights as 16-bit elements: see store_slice for their order.
template <typename T> struct Nibbles {
    uint32_t pair[4];
    __device__ explicit Nibbles(uint32_t word) {
        constexpr bool brief = std::is_same_v<T, __nv_bfloat16>;
        constexpr uint32_t power = brief ? 0x43084308 : 0x64086408; // 128 or 1024, and the flipped sign
        static constexpr int shift[4] = {0, 8, 4, 12};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t bits = mask_flip(word >> shift[i], 0x000f000f, power);
            pair[i] = bits_of<T>(__hsub2(two_of<T>(bits), two_of<T>(power)));
        }
    }
};

// The sums of a group: of 16 columns and LINES x 8 rows, as an mma has them.
template <typename T, int BITS, int LINES> struct Sums {
    float at[LINES][4] = {};

    __device__ static uint4 load(const char *from) { return *reinterpret_cast<const uint4 *>(from); }

    // x: the lane's first word of the stage's elements of a row of each set.
    __device__ void add(const char *stage, const char *const (&x)[LINES]) {
        if constexpr (BITS == 16)
            add_16(stage, x);
        else if constexpr (BITS == 8)
            add_8(stage, x);
        else
            add_4(stage, x);
    }
    __device__ void add_16(const char *stage, const char *const (&x)[LINES]) {
        const int lane = (int)threadIdx.x % 32;
        const uint4 one = load(stage + lane * 16), two = load(stage + 512 + lane * 16);
        const uint32_t low[4] = {one.x, two.x, one.y, two.y}, high[4] = {one.z, two.z, one.w, two.w};
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            const uint4 row = load(x[l]);
            multiply_add<T>(at[l], low, row.x, row.y);
            multiply_add<T>(at[l], high, row.z, row.w);
        }
    }
    __device__ void add_8(const char *stage, const char *const (&x)[LINES]) {
        const int lane = (int)threadIdx.x % 32;
        const uint4 one = load(stage + lane * 16), two = load(stage + 512 + lane * 16);
        const uint32_t raw[2][4] = {{one.x, one.y, one.z, one.w}, {two.x, two.y, two.z, two.w}};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t quad[2][4];
#pragma unroll
            for (int j = 0; j < 8; j++)
                quad[j / 4][j % 4] = elements_of<T, 8>(raw[j % 2][2 * i + j / 4], j / 2 % 2);
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                const uint4 row = load(x[l] + i * 16);
                multiply_add<T>(at[l], quad[0], row.x, row.y);
                multiply_add<T>(at[l], quad[1], row.z, row.w);
            }
        }
    }
    // Steps are applied to the sums of 32 inputs.
    __device__ void add_4(const char *stage, const char *const (&x)[LINES]) {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Nibbles<T> one(*(const uint32_t *)(stage + i * 128 + lane * 4)),
                two(*(const uint32_t *)(stage + 256 + i * 128 + lane * 4));
            const int8_t *steps = (const int8_t *)(stage + 512 + i * 8 + lane / 4);
            const float step[2] = {(float)steps[0], (float)steps[16]};
            const uint32_t low[4] = {one.pair[0], two.pair[0], one.pair[1], two.pair[1]},
                           high[4] = {one.pair[2], two.pair[2], one.pair[3], two.pair[3]};
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                const uint4 row = load(x[l] + i * 64);
                float sum[4] = {};
                multiply_add<T>(sum, low, row.x, row.y);
                multiply_add<T>(sum, high, row.z, row.w);
#pragma unroll
                for (int j = 0; j < 4; j++) at[l][j] = fmaf(sum[j], step[j / 2], at[l][j]);
            }
        }
    }
    // Stores the warp's sums.
    __device__ void store(const CudaFused &call, float *part, const float *power) const {
        const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < LINES * 4; i++) {
            const int row = i / 4 * 8 + 2 * t + i % 2;
            if (row >= call.rows) continue;
            const float by = power ? power[row] : 1;
            part[row * (group_cols + 1) + g + i % 4 / 2 * tile] = at[i / 4][i % 4] * by;
        }
    }
};

// ---- results ----

// Loads scales and biases of the block's columns, which no kernel writes, into shared memory.
template <typename T, int BITS>
__device__ inline void load_columns(const CudaFused &call, const StreamMemory &at, const Portion &portion) {
    const int count = portion.end - portion.first, columns = columns_of(call, (int)gridDim.x);
    for (int up = 0; up <= (int)call.gated; up++)
#pragma unroll 4
        for (int i = (int)threadIdx.x % 32; i < count; i += 32) {
            const int n = portion.first + i + up * call.cols;
            if (BITS != 16) at.scale[up * columns + i] = call.scale[n];
            if (call.bias) at.bias[up * columns + i] = to_float(((const T *)call.bias)[n]);
        }
    __syncwarp();
}

// A lane's place in the results of a group: one column, and every other (of a gated layer, every fourth) row.
struct Place {
    int i, row, rows;
    __device__ explicit Place(const Portion &portion) {
        const int lane = (int)threadIdx.x % 32;
        i = lane % portion.in_group, row = lane / portion.in_group, rows = 32 / portion.in_group;
    }
};

// Copies what is added to the results into shared memory. Columns are even in number.
__device__ inline void copy_residuals(const CudaFused &call, const StreamMemory &at, const Portion &portion) {
    const int pairs = (portion.end - portion.first) / 2, columns = columns_of(call, (int)gridDim.x);
    for (int r = 0; r < call.rows; r++)
        for (int i = (int)threadIdx.x % 32; i < pairs; i += 32)
            copy_async4(at.res + (r * columns + 2 * i) * 2,
                        (const char *)call.res + ((int64_t)r * call.cols + portion.first + 2 * i) * 2, true);
    copy_group();
    copy_wait<0>();
    __syncwarp();
}

// The warps' sums of a row, with scale and bias. `from` are those of the first warp, n is the column.
template <int BITS, int WARPS>
__device__ inline float total(const CudaFused &call, const StreamMemory &at, const float *from, int n) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += from[w * call.rows * (group_cols + 1)];
    if (BITS != 16) sum = __fmul_rn(sum, at.scale[n]);
    return call.bias ? __fadd_rn(sum, at.bias[n]) : sum;
}

template <typename T, int BITS, int WARPS>
__device__ inline void store_group(const CudaFused &call, const StreamMemory &at, const Portion &portion,
                                   const Place &place, const float *part, int group) {
    const int column = group * portion.in_group + place.i, columns = columns_of(call, (int)gridDim.x);
    if (portion.first + column >= portion.end) return;
#pragma unroll 4
    for (int r = place.row; r < call.rows; r += place.rows) {
        const float *from = part + r * (group_cols + 1) + place.i;
        float value = total<BITS, WARPS>(call, at, from, column);
        if (call.act != CUDA_ACT_NONE) value = act_of(call.act, to_float(from_float<T>(value)));
        if (call.gated)
            value *= to_float(from_float<T>(total<BITS, WARPS>(call, at, from + tile, columns + column)));
        T out = from_float<T>(value);
        if (call.res)
            out = from_float<T>(to_float(((const T *)at.res)[r * columns + column]) + to_float(out));
        ((T *)call.y)[(int64_t)r * call.cols + portion.first + column] = out;
    }
}

// What the last warp does.
template <typename T, int BITS, int LINES, int WARPS>
__device__ inline void store_results(const CudaFused &call, const StreamMemory &at, const Portion &portion) {
    constexpr int turns = in_turn<LINES>;
    const int size = WARPS * call.rows * (group_cols + 1);
    const Place place(portion);
    load_columns<T, BITS>(call, at, portion);
    chain_wait();
    if (call.res) copy_residuals(call, at, portion);
#pragma unroll 1
    for (int group = 0; group < portion.groups; group++) {
        barrier_wait(at.full + group % turns, group / turns % 2);
        store_group<T, BITS, WARPS>(call, at, portion, place, at.part + group % turns * size, group);
        barrier_arrive(at.empty + group % turns);
    }
}

// A warp's products of all groups. The first stages are being filled.
template <typename T, int BITS, int LINES, bool NORM>
__device__ inline void multiply_groups(const CudaFused &call, const StreamMemory &at, const Portion &portion,
                                       Range range, int warp, Copies<BITS> &copies, char *ring) {
    constexpr int count = stages<BITS, LINES, NORM>, size = stage_bytes<BITS>, turns = in_turn<LINES>,
                  before = ahead<BITS, LINES, NORM>, WARPS = warps_for_products<NORM>;
    const int lane = (int)threadIdx.x % 32;
    const bool has_power = std::is_same_v<T, __half> && BITS != 16 && call.factor;
    int now = 0, free = before; // the stages to multiply and to fill next
    auto step = [](int &stage) {
        const int old = stage;
        stage = stage + 1 == count ? 0 : stage + 1;
        return old;
    };
#pragma unroll 1
    for (int group = 0; group < portion.groups; group++) {
        Sums<T, BITS, LINES> sums;
        const char *x[LINES];
#pragma unroll
        for (int l = 0; l < LINES; l++) // rows that do not exist are replaced; their sums are not used
            x[l] = at.rows + min(l * 8 + lane / 4, call.rows - 1) * row_bytes(call) +
                   range.first * unit<BITS> * 2 + lane % 4 * (BITS == 8 ? 32 : 16);
        auto multiply = [&] {
            sums.add(ring + step(now) * size, x);
#pragma unroll
            for (int l = 0; l < LINES; l++) x[l] += unit<BITS> * 2;
        };
        int left = range.count;
#pragma unroll 1
        for (; left >= 2; left -= 2) { // two at a time: their instructions do not wait for each other
            copy_wait<before - 2>();
            if (BITS == 4) __syncwarp(); // lanes multiply what others have copied
            copies.next(call, portion, range, ring + step(free) * size);
            copies.next(call, portion, range, ring + step(free) * size);
            multiply();
            multiply();
        }
        if (left > 0) {
            copy_wait<before - 1>();
            if (BITS == 4) __syncwarp();
            copies.next(call, portion, range, ring + step(free) * size);
            multiply();
        }
        if (group >= turns) barrier_wait(at.empty + group % turns, (group / turns + 1) % 2);
        sums.store(call, at.part + (group % turns * WARPS + warp) * call.rows * (group_cols + 1),
                   has_power ? at.power + warp * call.rows : nullptr);
        barrier_arrive(at.full + group % turns);
    }
}

template <typename T, int BITS, int LINES, bool NORM>
__global__ void __launch_bounds__(threads_claimed, 1) stream_kernel(CudaFused call) {
    constexpr int count = stages<BITS, LINES, NORM>, size = stage_bytes<BITS>,
                  warps = warps_for_products<NORM>;
    extern __shared__ uint4 memory[];
    const StreamMemory at(reinterpret_cast<char *>(memory), call, columns_of(call, (int)gridDim.x), warps,
                          count * size, in_turn<LINES>);
    const Portion portion(call);
    const int warp = warp_number();
    chain_next();
    if (threadIdx.x < in_turn<LINES>) {
        barrier_init(at.full + threadIdx.x, warps * 32);
        barrier_init(at.empty + threadIdx.x, 32);
    }
    __syncthreads();
    if (warp == warps) {
        store_results<T, BITS, LINES, warps>(call, at, portion);
        return;
    }
    const Range range = units_of<BITS, warps>(call, warp),
                slots = {range.first * unit<BITS> / slot, range.count * unit<BITS> / slot};
    char *ring = at.stages + warp * count * size;
    copy_lines<BITS>(call, at, slots);
    Copies<BITS> copies(call, portion, range);
#pragma unroll 1
    for (int s = 0; s < ahead<BITS, LINES, NORM>; s++) copies.next(call, portion, range, ring + s * size);
    chain_wait();
    prepare_rows<T, BITS, LINES, NORM>(call, at, slots, warp);
    multiply_groups<T, BITS, LINES, NORM>(call, at, portion, range, warp, copies, ring);
}

template <int BITS, int LINES, bool NORM> int shared_bytes(const CudaFused &call) {
    const int ring = stages<BITS, LINES, NORM> * stage_bytes<BITS>;
    return StreamMemory(nullptr, call, columns_of(call, processors()), warps_for_products<NORM>, ring,
                        in_turn<LINES>)
        .bytes;
}

// Preferred percentage of a multiprocessor's memory that is shared memory. It changes only while the
// multiprocessor is idle, so there should be room for the next kernel's block. Up to 3 rows leave room for
// it, depending on their width.
int carveout(const CudaFused &call) {
    return call.bits != 16 && call.rows <= 4 ? cudaSharedmemCarveoutMaxShared : cudaSharedmemCarveoutDefault;
}

// Launches one block per multiprocessor. Two of the same kernel must not start on one, because all others
// would wait for them, but there should be room for a block of the next kernel, which then fills its ring
// early. So one of them, that with a norm, takes more than half of the registers, and the other one more than
// half of the shared memory.
template <typename T, int BITS, int LINES, bool NORM>
cudaError_t start_stream(cudaStream_t stream, const CudaFused &call, int shared) {
    constexpr int threads = (warps_for_products<NORM> + 1) * 32, registers = 1 << 16;
    auto kernel = stream_kernel<T, BITS, LINES, NORM>;
    int bytes = shared_bytes<BITS, LINES, NORM>(call);
    cudaFuncAttributes code;
    cudaError_t error = cudaFuncGetAttributes(&code, kernel);
    if (error != cudaSuccess) return error;
    if (2 * threads * ((code.numRegs + 7) / 8 * 8) <= registers) bytes = std::max(bytes, shared / 2 + 1024);
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, carveout(call));
    if (error != cudaSuccess) return error;
    return launch_recorded(stream, kernel, (unsigned)processors(), threads, (size_t)bytes, call);
}

template <typename T, int BITS, bool NORM>
cudaError_t launch(cudaStream_t stream, const CudaFused &call, int shared) {
    if (call.rows <= 8 && shared_bytes<BITS, 1, NORM>(call) <= shared)
        return start_stream<T, BITS, 1, NORM>(stream, call, shared);
    return start_stream<T, BITS, 2, NORM>(stream, call, shared);
}

template <typename T, int BITS>
cudaError_t with_norm(cudaStream_t stream, const CudaFused &call, int shared) {
    return call.gamma ? launch<T, BITS, true>(stream, call, shared)
                      : launch<T, BITS, false>(stream, call, shared);
}

template <int BITS> bool fits(const CudaFused &call, int shared) {
    return (call.gamma ? shared_bytes<BITS, 2, true>(call) : shared_bytes<BITS, 2, false>(call)) <= shared;
}

} // namespace

bool linear_stream_runs(const CudaFused *call, int shared) {
    return call->bits == 4 ? fits<4>(*call, shared) : fits<16>(*call, shared);
}

cudaError_t launch_linear_stream(cudaStream_t stream, const CudaFused *call, int shared) {
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call->bits == 8) return with_norm<T, 8>(stream, *call, shared);
            if (call->bits == 4) return with_norm<T, 4>(stream, *call, shared);
            return with_norm<T, 16>(stream, *call, shared);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
