// Attention on tensor cores: tiles in shared memory and the fragments of them that a warp multiplies.
//
// An mma is D (16 x 8) += A (16 x 16) B (16 x 8), with fp32 sums. Lane l of a warp holds, with g = l / 4 and
// t = l % 4:
//   of D  rows g and g + 8, columns 2t and 2t + 1                          as d[0..1], d[2..3]
//   of A  the same rows, columns 2t, 2t + 1 and these plus 8               as a[0], a[1] and a[2], a[3]
//   of B  rows 2t, 2t + 1 and these plus 8, column g                       as b[0], b[1]
// so two adjacent results D, rounded, are an A of the next mma.
//
// A tile's rows have DP elements (D, padded with zeros to a supported size) and 16 bytes of padding, so that
// the 8 rows of an ldmatrix are in different banks.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_MMA_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_MMA_CUH

#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

constexpr int mma_warps = 4, mma_threads = 32 * mma_warps;
// Enough for the tiles of every width up to 128; half of it is enough up to 64.
constexpr int most_tile_bytes = 96 << 10;

template <int DP> constexpr int tile_stride = DP + 8;

// Starts copying ROWS rows, from `first` on, into a tile. Rows at or past `limit` become 0.
template <typename T, int ROWS, int DP>
__device__ inline void load_tile(T *tile, const T *from, int64_t row, int first, int limit, int D) {
    constexpr int chunks = DP / 8, step = mma_threads / chunks;
    static_assert(mma_threads % chunks == 0 && ROWS % step == 0,
                  "each thread has the same part of some rows");
    int r = threadIdx.x / chunks, d = threadIdx.x % chunks * 8;
    const T *at = from + (first + r) * row + d;
    T *to = tile + r * tile_stride<DP> + d;
    int left = d < D ? limit - first - r : 0;
#pragma unroll
    for (int i = 0; i < ROWS / step; i++) {
        bool there = i * step < left;
        copy_async16(to + i * step * tile_stride<DP>, there ? at : from, there);
        at += step * row;
    }
}

// A: 16 rows from `row` on, 16 columns from `column` on.
template <typename T, int DP>
__device__ inline void load_a(uint32_t (&a)[4], const T *tile, int row, int column) {
    int lane = threadIdx.x % 32;
    load_matrices(a, tile + (row + lane % 16) * tile_stride<DP> + column + lane / 16 * 8);
}
// Two B fragments of the transposed tile, columns `column` .. + 7 and + 8 .. + 15: its rows are B's columns.
template <typename T, int DP>
__device__ inline void load_b_transposed(uint32_t (&b)[4], const T *tile, int row, int column) {
    int lane = threadIdx.x % 32;
    load_matrices(b, tile + (column + lane / 16 * 8 + lane % 8) * tile_stride<DP> + row + lane / 8 % 2 * 8);
}
// The same two fragments of the tile, not transposed.
template <typename T, int DP>
__device__ inline void load_b(uint32_t (&b)[4], const T *tile, int row, int column) {
    int lane = threadIdx.x % 32;
    load_matrices_transposed(b, tile + (row + lane % 16) * tile_stride<DP> + column + lane / 16 * 8);
}

// sum (16 M x N) = 16 M rows (of DP) of one tile, from `row` on, times the transposed first N rows of
// another.
template <typename T, int DP, int M, int N>
__device__ inline void multiply_rows(float (&sum)[M][N / 8][4], const T *mine, int row, const T *other) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[m][n][i] = 0;
#pragma unroll
    for (int d = 0; d < DP; d += 16) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_a<T, DP>(a[m], mine, row + m * 16, d);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            load_b_transposed<T, DP>(b, other, d, n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<T>(sum[m][n / 8], a[m], b[0], b[1]);
                multiply_add<T>(sum[m][n / 8 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// sum (16 M x DP) += weights (16 M x N), rounded to T, times the first N rows of a tile.
template <typename T, int DP, int M, int N>
__device__ inline void add_weighted_rows(float (&sum)[M][DP / 8][4], const float (&weight)[M][N / 8][4],
                                         const T *other) {
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = weight[m][n / 8 + i / 2] + i % 2 * 2;
                a[m][i] = round_pair<T>(pair[0], pair[1]);
            }
#pragma unroll
        for (int d = 0; d < DP; d += 16) {
            load_b<T, DP>(b, other, n, d);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<T>(sum[m][d / 8], a[m], b[0], b[1]);
                multiply_add<T>(sum[m][d / 8 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Stores or adds rows g and g + 8 of a sum, each times its factor, to `to` and `to8`, unless they are NULL. A
// factor of 0 stores or adds 0 even if the sum is not finite.
template <typename T, int DP>
__device__ inline void store_rows(T *to, T *to8, const float (&sum)[DP / 8][4], float factor, float factor8,
                                  int D, bool add = false) {
    auto store = [&](T *at, float low, float high, float by) {
        if (!at || (add && by == 0)) return;
        uint32_t &pair = *reinterpret_cast<uint32_t *>(at);
        low *= by, high *= by;
        if (add) {
            const float2 more = pair_values<T>(pair);
            low += more.x, high += more.y;
        }
        pair = by == 0 ? 0 : round_pair<T>(low, high);
    };
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < DP / 8; n++) {
        if (n * 8 >= D) continue;
        store(to ? to + n * 8 + column : nullptr, sum[n][0], sum[n][1], factor);
        store(to8 ? to8 + n * 8 + column : nullptr, sum[n][2], sum[n][3], factor8);
    }
}

// Dropout masks of a sum whose rows are queries and columns are keys, for rows `query` and query + 8 and the
// lane's columns of the group of 128 keys that contains `key`, a multiple of 8. See dropout_bit for the bits.
__device__ inline void kept_rows(uint32_t (&kept)[2], const CudaDropout &dropout, const Place &place,
                                 int query, int key) {
    for (int half = 0; half < 2; half++)
        kept[half] = draw_kept(
            dropout.key, dropout_word(dropout, place.b, place.h, query + 8 * half, key + threadIdx.x % 4 * 2),
            dropout.threshold);
}
// The same for a sum whose rows are keys and columns are queries: words with the lane's keys, for queries
// `query` + 2t and query + 2t + 1. Each lane draws one of the words of eight queries and eight keys.
__device__ inline void kept_columns(uint32_t (&kept)[2], const CudaDropout &dropout, const Place &place,
                                    int query, int key) {
    int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
    uint64_t word = dropout_word(dropout, place.b, place.h, query + g, key / 8 * 8 + 2 * t);
    uint32_t drawn = draw_kept(dropout.key, word, dropout.threshold);
    for (int i = 0; i < 2; i++) kept[i] = __shfl_sync(full_warp, drawn, (2 * t + i) * 4 + g / 2);
}

// Whether the tensor-core kernels support the call: a 16-bit type, 16-byte-aligned rows, and tiles whose
// masks of dropout are those of other tiles.
inline bool fits_tiles(DType type, const CudaAttention *call, std::initializer_list<CudaHeads> all) {
    if ((type != DT_BF16 && type != DT_F16) || call->D % 8 || !has_mma(type) ||
        call->D > (shared_limit() < most_tile_bytes ? 64 : 128) ||
        (call->dropout.threshold && !call->aligned))
        return false;
    for (const CudaHeads &heads : all)
        if ((uintptr_t)heads.data % 16 || heads.batch % 8 || heads.head % 8 || heads.row % 8) return false;
    return true;
}

// Calls body with the C++ type and, as a type, the padded width of a supported call.
template <typename Body> cudaError_t with_tile(DType type, int D, Body body) {
    auto with_width = [&](auto t) {
        if (D <= 32) return body(t, std::integral_constant<int, 32>{});
        if (D <= 64) return body(t, std::integral_constant<int, 64>{});
        return body(t, std::integral_constant<int, 128>{});
    };
    return type == DT_BF16 ? with_width(__nv_bfloat16{}) : with_width(__half{});
}

constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

#endif
