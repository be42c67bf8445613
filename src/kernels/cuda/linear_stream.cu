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

#include "kernels/cuda/linear_stream.cuh"

namespace {

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
        if (call.act != ACT_NONE) value = act_of(call.act, to_float(from_float<T>(value)));
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
#if __CUDA_ARCH__ >= 800 // see is_streamed in linear_fused.cu
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
#endif
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
