// What row kernels share: dropout factors, sources of rows (a plain tensor, or the sum of a residual and
// dropout), sums over the threads of a row, and the second step of reductions over rows.
//
// Reductions over rows (gradients of norms and of token types) have two steps, so that their order never
// changes: blocks store the sums of their rows in workspace, and add_partials_kernel adds those in order.
#ifndef WEFT_KERNELS_CUDA_ROW_CUH
#define WEFT_KERNELS_CUDA_ROW_CUH

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/device.cuh"

namespace {

// ---- dropout ----

// Which elements of a block of eight are kept, as bits.
__device__ inline uint32_t dropout_kept_block(const CudaDropout &dropout, uint64_t block) {
    uint4 drawn = draw_block(dropout.key, block);
    const uint32_t word[4] = {drawn.x, drawn.y, drawn.z, drawn.w}, high = dropout.threshold << 16;
    uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        kept |= (word[i] << 16 >= high ? 1u : 0u) << 2 * i | (word[i] >= high ? 2u : 0u) << 2 * i;
    return kept;
}
// Which of N elements are kept, as bits, if their draws start at `index`. If they are in two blocks, which is
// rare, both are drawn.
template <int N> __device__ inline uint32_t dropout_kept(const CudaDropout &dropout, uint64_t index) {
    static_assert(N <= 8, "at most one block");
    const int skip = (int)(index % 8);
    uint32_t kept = dropout_kept_block(dropout, index / 8) >> skip;
    if (skip + N > 8) kept |= dropout_kept_block(dropout, index / 8 + 1) << (8 - skip);
    return kept;
}

// The draw index of column 0 of a row, if a sequence has `positions` rows here. Unless a rank has only some
// of them, rows follow each other and nothing is divided.
__device__ inline uint64_t dropout_row_of(const CudaDropout &d, int64_t r, int64_t positions) {
    if (d.rows) return dropout_row(d, 0, r);
    int64_t missing = d.extent[0] == positions ? 0 : r / positions * (d.extent[0] - positions);
    return (uint64_t)((r + missing + d.origin[0] * d.extent[0] + d.origin[1]) * d.extent[1] + d.origin[2]);
}

// ---- rows ----

// To be called on what `read` returned if it is used much later. Otherwise the compiler may separate the
// halves of each word at once, for which it waits for the load.
template <typename R> __device__ inline void keep_words(R &raw) {
    uint32_t *word = reinterpret_cast<uint32_t *>(&raw);
#pragma unroll
    for (int i = 0; i < (int)sizeof raw / 4; i++) asm volatile("" : "+r"(word[i]));
}

// A row is read in two steps, so that all loads are in flight before the first is used.
template <typename T> struct PlainRow {
    const T *x;
    template <int N> using Raw = Pack<T, N>;
    template <int N> __device__ Raw<N> read(int64_t c) const { return load_pack<T, N>(x + c); }
    template <int N> __device__ Pack<T, N> settle(int64_t, const Raw<N> &raw) const { return raw; }
    __device__ float again(int64_t c) const { return to_float(x[c]); }
};

// Sources of rows. A kernel calls `begin` first.
template <typename T> struct PlainRows {
    template <int N> using Raw = typename PlainRow<T>::template Raw<N>;
    const T *x;
    __device__ void begin() {}
    __device__ PlainRow<T> row(int64_t r, int64_t C) const { return {x + r * C}; }
};

// sum = res + dropout(y), stored in `settle`. res may be NULL if HAS_RES is false; sum may alias res or y.
template <typename T, bool HAS_RES> struct DroppedRow {
    T *sum;
    const T *res, *y;
    const CudaDropout &dropout;
    uint64_t index;
    template <int N> struct Raw { Pack<T, N> res, y; };
    template <int N> __device__ Raw<N> read(int64_t c) const {
        Raw<N> raw;
        raw.y = load_pack<T, N>(y + c);
        if (HAS_RES || res) raw.res = load_pack<T, N>(res + c);
        return raw;
    }
    template <int N> __device__ Pack<T, N> settle(int64_t c, Raw<N> raw) const {
        // First, while the loads are in flight.
        uint32_t drawn = dropout.threshold ? dropout_kept<N>(dropout, index + (uint64_t)c) : ~0u;
        float scale = dropout.threshold ? dropout.scale : 1.0f;
        forget(raw.y);
        if (HAS_RES || res) forget(raw.res);
        float total[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            float kept = __fmul_rn(to_float(raw.y.at[i]), drawn >> i & 1 ? scale : 0.0f); // not an FMA
            total[i] = HAS_RES || res ? to_float(raw.res.at[i]) + kept : kept;
        }
        Pack<T, N> out = pack_of<T>(total);
        store_pack(sum + c, out);
        return out;
    }
    __device__ float again(int64_t c) const {
        return to_float(sum[c]);
    }
};

template <typename T, bool HAS_RES = true> struct DroppedRows {
    template <int N> using Raw = typename DroppedRow<T, HAS_RES>::template Raw<N>;
    T *sum;
    const T *res, *y;
    CudaDropout dropout;
    int64_t positions; // rows per sequence
    __device__ void begin() { dropout_begin(dropout); }
    __device__ DroppedRow<T, HAS_RES> row(int64_t r, int64_t C) const {
        uint64_t index = dropout.threshold ? dropout_row_of(dropout, r, positions) : 0;
        return {sum + r * C, HAS_RES || res ? res + r * C : nullptr, y + r * C, dropout, index};
    }
};

// Rows per sequence. Without dropout any shape is allowed, and the value is not used.
inline int64_t positions_of(const Tensor &x, const Dropout &dropout) {
    return dropout.p > 0 ? x.dim[1] : 1;
}
template <typename T, bool HAS_RES = true>
DroppedRows<T, HAS_RES> dropped_rows(const Tensor &sum, const Tensor &res, const Tensor &y,
                                     const Dropout &dropout) {
    return {data<T>(sum), data<T>(res), data<T>(y), cuda_dropout(&dropout), positions_of(y, dropout)};
}

// ---- reductions ----

// The sum over every LANES consecutive threads of a warp.
template <int LANES> __device__ inline float lanes_sum(float value) {
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(full_warp, value, lane);
    return value;
}
// The sum over the LANES threads that share a row: a warp, or the whole block. Consecutive sums in a block
// must alternate between two buffers: by the time a buffer is written again, all threads have passed the
// barrier of the other.
template <int LANES> __device__ inline float row_sum(float value, float *buffer) {
    if constexpr (LANES == 32) return warp_sum(value);
    return block_sum<float, LANES>(value, buffer);
}

constexpr int partial_columns = 32, partial_lines = 8; // shape of blocks that store partial sums
constexpr int adding_lines = 32, adding_batch = 8;     // shape of blocks that add them; loads in flight

// Where to add sums: `each` at every address. NULL: not needed.
struct Sums {
    float *at[4];
    int64_t each;
};

// Adds the sum of partial[b * width + i] over `blocks` lines to element i of `to`.
__global__ void __launch_bounds__(partial_columns *adding_lines)
    add_partials_kernel(Sums to, const float *partial, int64_t width, int blocks) {
    __shared__ float buffer[adding_lines][partial_columns];
    int64_t i = blockIdx.x * (int64_t)partial_columns + threadIdx.x;
    float total = 0;
    chain_next();
    chain_wait();
#pragma unroll 1
    for (int b = threadIdx.y; i < width && b < blocks; b += adding_batch * adding_lines) {
        float each[adding_batch];
#pragma unroll
        for (int k = 0; k < adding_batch; k++) {
            int line = b + k * adding_lines;
            each[k] = line < blocks ? partial[line * width + i] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < adding_batch; k++) total += each[k];
    }
    buffer[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || i >= width) return;
#pragma unroll
    for (int line = 1; line < adding_lines; line++) total += buffer[line][threadIdx.x];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        int64_t at = i - t * to.each;
        if (at >= 0 && at < to.each && to.at[t]) to.at[t][at] += total;
    }
}

// partial (blocks, count, to.each)
inline cudaError_t add_partials(Where at, Sums to, int count, const float *partial, int blocks) {
    dim3 shape(partial_columns, adding_lines);
    int64_t width = count * to.each;
    return launch_chained(at, add_partials_kernel, blocks_for(width, partial_columns), shape, 0, to, partial,
                          width, blocks);
}

} // namespace

#endif
