// Row operations: gather, scatter_add, transpose, copies of blocks and argmax. A warp takes a row; in argmax
// a block does or, on Hopper and later, a cluster. An index out of range reads as 0 and is never written.
//
// Rows are added in the order of the index and rounded after each addition. All additions to one row of x
// are therefore made by the warp of its first occurrence.
#include "kernels/cuda/cluster.cuh"

namespace {

constexpr int threads = 128, warps = threads / 32;

__device__ inline int64_t warp_job() {
    return blockIdx.x * (int64_t)warps + threadIdx.x / 32;
}

template <typename T, int N>
__global__ void gather_kernel(T *out, const T *x, const int32_t *index, int64_t M, int64_t C, int64_t rows) {
    int64_t m = warp_job();
    if (m >= M) return;
    int64_t from = index[m];
    bool valid = from >= 0 && from < rows;
    for (int64_t c = threadIdx.x % 32 * N; c < C; c += 32 * N) {
        Pack<T, N> pack;
        if (valid) {
            pack = load_pack<T, N>(x + from * C + c);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) pack.at[i] = from_float<T>(0);
        }
        store_pack(out + m * C + c, pack);
    }
}

// ---- argmax ----

constexpr int argmax_threads = 1024;

// What argmax_advance stores besides the tokens.
struct ArgmaxAdvance {
    int32_t *past, *chosen;
    int32_t columns; // of chosen
};

// A value and its column as one integer that grows with the value and, for equal values, with smaller
// columns; NaN is larger than everything.
__device__ inline unsigned long long rank_of(float x, int64_t c) {
    if (isnan(x)) return ~0ull;
    uint32_t bits = __float_as_uint(x + 0.0f); // makes -0 equal to 0
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (0xffffffffu - (uint32_t)c);
}

__device__ inline unsigned long long warp_max_u64(unsigned long long value) {
    for (int lane = 16; lane > 0; lane /= 2) {
        unsigned long long other = __shfl_xor_sync(full_warp, value, lane);
        value = other > value ? other : value;
    }
    return value;
}

// The largest rank of the columns first, first + step, ..., returned to warp 0.
template <typename T>
__device__ inline unsigned long long largest_rank(const T *row, int64_t first, int64_t step, int64_t C,
                                                  unsigned long long *buffer) {
    unsigned long long largest = 0; // below every value
#pragma unroll 8
    for (int64_t c = first; c < C; c += step) {
        unsigned long long rank = rank_of(to_float(row[c]), c);
        largest = rank > largest ? rank : largest;
    }
    largest = warp_max_u64(largest);
    if (threadIdx.x % 32 == 0) buffer[threadIdx.x / 32] = largest;
    __syncthreads();
    return threadIdx.x < 32 ? warp_max_u64(buffer[threadIdx.x]) : 0;
}

__device__ inline int32_t column_of(unsigned long long largest) {
    uint32_t bits = (uint32_t)(largest >> 32), value = bits >> 31 ? bits & 0x7fffffffu : ~bits;
    bool finite = (value & 0x7f800000u) != 0x7f800000u; // neither infinite nor NaN
    return finite ? (int32_t)(0xffffffffu - (uint32_t)largest) : -1;
}

// Without `past` there is nothing to advance.
__device__ inline void put_index(int32_t *index, int64_t row, int32_t best, const ArgmaxAdvance &advance) {
    if (!advance.past) {
        index[row] = best;
        return;
    }
    const int32_t past = advance.past[row];
    advance.chosen[row * advance.columns + past % advance.columns] = best;
    advance.past[row] = past + 1;
    index[row] = max(best, 0);
}

template <typename T>
__global__ void __launch_bounds__(argmax_threads)
    argmax_kernel(int32_t *index, const T *x, int64_t C, ArgmaxAdvance advance) {
    __shared__ unsigned long long buffer[argmax_threads / 32];
    chain_next();
    chain_wait();
    unsigned long long largest = largest_rank(x + blockIdx.x * C, threadIdx.x, argmax_threads, C, buffer);
    if (threadIdx.x == 0) put_index(index, blockIdx.x, column_of(largest), advance);
}

// The blocks of a cluster read a row in turn; the first one compares their results.
template <typename T>
__global__ void __launch_bounds__(argmax_threads)
    argmax_cluster_kernel(int32_t *index, const T *x, int64_t C, ArgmaxAdvance advance) {
    __shared__ unsigned long long buffer[argmax_threads / 32], best[cluster_size];
    const unsigned rank = cluster_rank();
    const int64_t row = blockIdx.x / cluster_size;
    chain_next();
    cluster_arrive();
    chain_wait();
    unsigned long long largest = largest_rank(x + row * C, rank * argmax_threads + threadIdx.x,
                                              cluster_size * argmax_threads, C, buffer);
    cluster_wait();
    if (threadIdx.x == 0) {
        uint32_t *to = reinterpret_cast<uint32_t *>(&best[rank]);
        store_remote(to, 0, (uint32_t)largest);
        store_remote(to + 1, 0, (uint32_t)(largest >> 32));
    }
    cluster_arrive();
    cluster_wait();
    if (rank > 0 || threadIdx.x > 0) return;
    for (int i = 0; i < cluster_size; i++) largest = best[i] > largest ? best[i] : largest;
    put_index(index, row, column_of(largest), advance);
}

// Lanes always process the same columns, so additions to a row need no barrier.
template <typename T, int N> __device__ inline void add_row(T *x, const T *y, int64_t C) {
    for (int64_t c = threadIdx.x % 32 * N; c < C; c += 32 * N) {
        Pack<T, N> sum = load_pack<T, N>(x + c), addend = load_pack<T, N>(y + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum.at[i] = from_float<T>(to_float(sum.at[i]) + to_float(addend.at[i]));
        store_pack(x + c, sum);
    }
}

template <typename T, int N>
__global__ void scatter_scan_kernel(T *x, const T *y, const int32_t *index, int M, int64_t C, int64_t rows) {
    int64_t m = warp_job();
    if (m >= M) return;
    const int lane = threadIdx.x % 32;
    const int32_t row = index[m];
    if (row < 0 || row >= rows) return;
    bool again = false;
    for (int i = lane; i < m; i += 32) again |= index[i] == row;
    if (__any_sync(full_warp, again)) return;
    for (int base = (int)m / 32 * 32; base < M; base += 32) {
        int i = base + lane;
        unsigned same = __ballot_sync(full_warp, i >= m && i < M && index[i] == row);
        for (; same; same &= same - 1)
            add_row<T, N>(x + row * C, y + (int64_t)(base + __ffs(same) - 1) * C, C);
    }
}

template <typename T, int N>
__global__ void scatter_sorted_kernel(T *x, const T *y, RowOrder order, int64_t M, int64_t C, int64_t rows) {
    int64_t m = warp_job();
    if (m >= M) return;
    const uint32_t row = order.sorted[m];
    if (row >= rows || (m > 0 && order.sorted[m - 1] == row)) return;
    for (; m < M && order.sorted[m] == row; m++)
        add_row<T, N>(x + row * C, y + (int64_t)order.from[m] * C, C);
}

constexpr int tile = 32, tile_lines = 8;

// One tile per block, read and written along rows; the odd pitch avoids bank conflicts.
template <typename T> __global__ void transpose_kernel(T *y, const T *x, int64_t M, int64_t N) {
    __shared__ T buffer[tile][tile + 1];
    int64_t across = (N + tile - 1) / tile;
    int64_t m0 = blockIdx.x / across * tile, n0 = blockIdx.x % across * tile;
    for (int line = threadIdx.y; line < tile; line += tile_lines)
        if (m0 + line < M && n0 + threadIdx.x < N)
            buffer[line][threadIdx.x] = x[(m0 + line) * N + n0 + threadIdx.x];
    __syncthreads();
    for (int line = threadIdx.y; line < tile; line += tile_lines)
        if (n0 + line < N && m0 + threadIdx.x < M)
            y[(n0 + line) * M + m0 + threadIdx.x] = buffer[threadIdx.x][line];
}

// Blocks as vectors of V, whose sizes and strides are multiples of it; a thread copies one vector at a time.
template <typename V>
__global__ void copy_blocks_kernel(V *to, const V *from, Blocks blocks, int64_t vectors) {
    const int64_t step = (int64_t)gridDim.x * threads;
    for (int64_t v = (int64_t)blockIdx.x * threads + threadIdx.x; v < vectors; v += step) {
        const int64_t n = v / blocks.size, at = v % blocks.size;
        const int64_t k = n % blocks.count[2], ij = n / blocks.count[2], j = ij % blocks.count[1],
                      i = ij / blocks.count[1];
        const BlockSpan &a = blocks.to, &b = blocks.from;
        to[a.at + i * a.stride[0] + j * a.stride[1] + k * a.stride[2] + at] =
            from[b.at + i * b.stride[0] + j * b.stride[1] + k * b.stride[2] + at];
    }
}

// Whether all sizes are multiples of `width` elements, and then in units of it.
bool in_vectors(Blocks *blocks, int64_t width) {
    int64_t *const sizes[] = {&blocks->size,           &blocks->to.at,          &blocks->to.stride[0],
                              &blocks->to.stride[1],   &blocks->to.stride[2],   &blocks->from.at,
                              &blocks->from.stride[0], &blocks->from.stride[1], &blocks->from.stride[2]};
    for (int64_t *size : sizes)
        if (*size % width) return false;
    for (int64_t *size : sizes) *size /= width;
    return true;
}

template <typename V> cudaError_t copy_vectors(Stream *stream, Tensor to, Tensor from, const Blocks &blocks) {
    constexpr int64_t most = 1 << 16; // of thread blocks
    const int64_t vectors = blocks.size * blocks.count[0] * blocks.count[1] * blocks.count[2];
    const int64_t needed = (vectors + threads - 1) / threads;
    return launch_kernel(stream, copy_blocks_kernel<V>, (unsigned)(needed < most ? needed : most), threads, 0,
                         (V *)to.data, (const V *)from.data, blocks, vectors);
}

cudaError_t largest(Stream *stream, Tensor index, Tensor x, ArgmaxAdvance advance) {
    constexpr int few = 64; // rows; more fill the device with a block each
    const int64_t M = tensor_rows(x), C = tensor_cols(x);
    return with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        if (M <= few && C > argmax_threads && has_clusters())
            return launch_cluster(true, cluster_size, stream, argmax_cluster_kernel<T>,
                                  (unsigned)M * cluster_size, argmax_threads, 0, data<int32_t>(index),
                                  data<T>(x), C, advance);
        return launch_chained(stream, argmax_kernel<T>, blocks_for(M, 1), argmax_threads, 0,
                              data<int32_t>(index), data<T>(x), C, advance);
    });
}

} // namespace

Status argmax_cuda(Stream *stream, Tensor index, Tensor x) {
    return cuda_status(largest(stream, index, x, ArgmaxAdvance{}), __func__);
}

Status argmax_advance_cuda(Stream *stream, Tensor chosen, Tensor tokens, Tensor past, Tensor x) {
    ArgmaxAdvance advance = {data<int32_t>(past), data<int32_t>(chosen), (int32_t)tensor_cols(chosen)};
    return cuda_status(largest(stream, tokens, x, advance), __func__);
}

Status gather_rows_cuda(Stream *stream, Tensor out, Tensor x, Tensor index) {
    const int64_t M = tensor_rows(out), C = tensor_cols(out);
    cudaError_t error = with_packs(out.dtype, aligned_16(out, x), C, [&](auto t, auto n) {
        using T = decltype(t);
        return launch_kernel(stream, gather_kernel<T, n.value>, blocks_for(M, warps), threads, 0,
                             data<T>(out), data<T>(x), data<int32_t>(index), M, C, tensor_rows(x));
    });
    return cuda_status(error, __func__);
}

// With few rows, the kernel scans the index for duplicates; many rows are sorted first.
Status scatter_add_rows_cuda(Stream *stream, Tensor x, Tensor y, Tensor index) {
    constexpr int scan_max_rows = 2048;
    const int64_t M = tensor_rows(y), C = tensor_cols(y), rows = tensor_rows(x);
    RowOrder order = {};
    void *no_more;
    if (M > scan_max_rows) TRY(row_order(stream, index, M, 0, rows, 0, &order, &no_more));
    cudaError_t error = with_packs(y.dtype, aligned_16(x, y), C, [&](auto t, auto n) {
        using T = decltype(t);
        if (M > scan_max_rows)
            return launch_kernel(stream, scatter_sorted_kernel<T, n.value>, blocks_for(M, warps), threads, 0,
                                 data<T>(x), data<T>(y), order, M, C, rows);
        return launch_kernel(stream, scatter_scan_kernel<T, n.value>, blocks_for(M, warps), threads, 0,
                             data<T>(x), data<T>(y), data<int32_t>(index), (int)M, C, rows);
    });
    return cuda_status(error, __func__);
}

Status copy_blocks_cuda(Stream *stream, Tensor to, Tensor from, Blocks blocks) {
    const int64_t size = (int64_t)dtype_size(to.dtype);
    cudaError_t error = aligned_16(to, from) && in_vectors(&blocks, 16 / size)
                            ? copy_vectors<uint4>(stream, to, from, blocks)
                        : size == 2 ? copy_vectors<uint16_t>(stream, to, from, blocks)
                                    : copy_vectors<uint32_t>(stream, to, from, blocks);
    return cuda_status(error, __func__);
}

Status transpose_cuda(Stream *stream, Tensor y, Tensor x) {
    const int64_t M = tensor_rows(x), N = tensor_cols(x);
    const unsigned tiles = (unsigned)((M + tile - 1) / tile * ((N + tile - 1) / tile));
    cudaError_t error = with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        return launch_kernel(stream, transpose_kernel<T>, tiles, dim3(tile, tile_lines), 0, data<T>(y),
                             data<T>(x), M, N);
    });
    return cuda_status(error, __func__);
}
