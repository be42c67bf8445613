// The first half of linear_stream.cu: a block's shared memory and columns, the ring of weights, and the rows,
// which are normalized and arranged for the products.
#ifndef WEFT_KERNELS_CUDA_LINEAR_STREAM_CUH
#define WEFT_KERNELS_CUDA_LINEAR_STREAM_CUH

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
        bias = (float *)(base + take(line)); // also without one: linear_fused_runs does not know
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
__host__ __device__ inline int column_units(const CudaFused &call) {
    return (call.cols + column_unit(call) - 1) / column_unit(call);
}
// The most columns of a block.
__host__ __device__ inline int columns_of(const CudaFused &call, int blocks) {
    return (column_units(call) + blocks - 1) / blocks * column_unit(call);
}

// A block's columns. A gated layer's column is one of gate and one of up.
struct Portion {
    int first, end, in_group, groups;
    __device__ explicit Portion(const CudaFused &call) {
        const int unit = column_unit(call), units = column_units(call);
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

} // namespace

#endif
