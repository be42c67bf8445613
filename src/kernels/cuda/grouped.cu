// Linear layers of experts, for any shape. A block computes a tile of the result, in an order that depends on
// shapes alone. Tiles follow each other so that those computed at the same time share rows and columns, which
// then come from the L2 cache.
//
// Rows of 16 bits that are multiples of 16 bytes are multiplied by tensor cores (mma, see attention_mma.cuh
// for the fragments), from a ring of tiles that are copied asynchronously. Everything else takes fp32
// arithmetic.
//
// R rows, E experts, K inputs, N outputs
#include "kernels/cuda/grouped.cuh"
#include "kernels/cuda/ptx.cuh"

namespace {

constexpr int threads = 256;

// A product of one expert: out (rows,cols) = left (rows,inner) right (inner,cols). `left_rows` and
// `right_rows` are the distances of their stored rows; left is stored transposed for dw, and right for y.
template <typename T> struct Product {
    const T *left, *right;
    int64_t out; // its first element
    int64_t left_row, right_row, out_row;
    int rows, cols, inner; // no rows: nothing to do
};

// Which operands are stored with the inner dimension as rows.
template <CudaGroupedKind KIND> constexpr bool left_inner = KIND == GROUPED_WEIGHT;
template <CudaGroupedKind KIND> constexpr bool right_inner = KIND != GROUPED_FORWARD;

// The tile of a block: `across` tiles of columns, and `down` of rows. Bands of a few rows of tiles are
// computed column by column.
struct TilePlace {
    int down, across;
};
__device__ inline TilePlace tile_place(int64_t index, int down, int across) {
    constexpr int band = 8;
    const int64_t each = (int64_t)band * across, first = index / each * band;
    const int height = (int)min((int64_t)band, down - first);
    const int at = (int)(index % each);
    return {(int)first + at % height, at / height};
}

// The product of a block, from the first row and column of its tile on. Tiles have TM x TN elements.
template <typename T, CudaGroupedKind KIND, int TM, int TN>
__device__ inline Product<T> product_of(const CudaGrouped &call, int64_t index, int tiles) {
    const T *a = (const T *)call.a, *b = (const T *)call.b;
    const int N = (int)call.N, K = (int)call.K, width = KIND == GROUPED_FORWARD ? N : K;
    const int across = (width + TN - 1) / TN;
    Product<T> p = {};
    if constexpr (KIND == GROUPED_WEIGHT) {
        const int down = (N + TM - 1) / TM, each = down * across;
        const int64_t e = index / each;
        const TilePlace at = tile_place(index % each, down, across);
        const int n = at.down * TM, k = at.across * TN;
        const int64_t first = call.offsets[e];
        p.inner = call.offsets[e + 1] - (int)first;
        p.left = a + first * N + n, p.right = b + first * K + k;
        p.out = (e * N + n) * K + k;
        p.left_row = N, p.right_row = p.out_row = K;
        p.rows = min(N - n, TM), p.cols = min(K - k, TN);
        if (call.accumulate && p.inner == 0) p.rows = 0;
    } else {
        const TilePlace at = tile_place(index, tiles, across);
        const RowTile tile = find_row_tile(call.offsets, (int)call.E, TM, at.down);
        const int column = at.across * TN;
        const T *matrix = b + (int64_t)tile.expert * N * K;
        p.inner = KIND == GROUPED_FORWARD ? K : N;
        p.left = a + (int64_t)tile.first * p.inner;
        p.right = KIND == GROUPED_FORWARD ? matrix + (int64_t)column * K : matrix + column;
        p.out = (int64_t)tile.first * width + column;
        p.left_row = p.inner, p.right_row = K, p.out_row = width;
        p.rows = tile.rows, p.cols = min(width - column, TN);
    }
    return p;
}

// ---- tensor cores ----

constexpr int depth = 32, tile_cols = 128; // of tiles
constexpr int warps_down = 2, warps_across = 4;

// A tile of an operand in shared memory: rows of `depth` inner elements, or rows of WIDTH elements for each
// inner one. Padding of 16 bytes puts the 8 rows of an ldmatrix in different banks.
template <bool INNER, int WIDTH> struct OperandTile {
    static constexpr int stride = (INNER ? WIDTH : depth) + 8, size = stride * (INNER ? depth : WIDTH);
};

// Starts copying. Elements at or past `width` and `inner` become 0.
template <typename T, bool INNER, int WIDTH>
__device__ inline void copy_tile(T *tile, const T *from, int64_t row, int width, int first, int inner) {
    constexpr int chunks = (INNER ? WIDTH : depth) / 8, lines = INNER ? depth : WIDTH,
                  step = threads / chunks;
    static_assert(threads % chunks == 0 && lines % step == 0, "each thread has the same part of some lines");
    const int line = threadIdx.x / chunks, at = threadIdx.x % chunks * 8;
    T *to = tile + line * OperandTile<INNER, WIDTH>::stride + at;
#pragma unroll
    for (int i = 0; i < lines / step; i++) {
        const int l = line + i * step;
        const bool there = INNER ? first + l < inner && at < width : l < width && first + at < inner;
        const T *source = INNER ? from + (first + l) * row + at : from + l * row + first + at;
        copy_async16(to + i * step * OperandTile<INNER, WIDTH>::stride, there ? source : from, there);
    }
}

// A: 16 rows from `row` on and 16 inner elements.
template <typename T, bool INNER, int WIDTH>
__device__ inline void load_left(uint32_t (&a)[4], const T *tile, int row, int inner) {
    constexpr int stride = OperandTile<INNER, WIDTH>::stride;
    const int lane = threadIdx.x % 32;
    if constexpr (INNER)
        load_matrices_transposed(a,
                                 tile + (inner + lane / 16 * 8 + lane % 8) * stride + row + lane / 8 % 2 * 8);
    else
        load_matrices(a, tile + (row + lane % 16) * stride + inner + lane / 16 * 8);
}
// B: 16 inner elements, and 16 columns from `column` on.
template <typename T, bool INNER, int WIDTH>
__device__ inline void load_right(uint32_t (&b)[4], const T *tile, int column, int inner) {
    constexpr int stride = OperandTile<INNER, WIDTH>::stride;
    const int lane = threadIdx.x % 32;
    if constexpr (INNER)
        load_matrices_transposed(b, tile + (inner + lane % 16) * stride + column + lane / 16 * 8);
    else
        load_matrices(b, tile + (column + lane / 16 * 8 + lane % 8) * stride + inner + lane / 8 % 2 * 8);
}

// Stores two adjacent results.
template <typename T, CudaGroupedKind KIND>
__device__ inline void store_two(const CudaGrouped &call, int64_t at, float low, float high) {
    if constexpr (KIND == GROUPED_WEIGHT) {
        float2 *to = reinterpret_cast<float2 *>((float *)call.out + at);
        const float2 before = call.accumulate ? *to : make_float2(0, 0);
        *to = make_float2(before.x + low, before.y + high);
    } else {
        *reinterpret_cast<uint32_t *>((T *)call.out + at) = round_pair<T>(low, high);
    }
}

// TM x tile_cols elements per block; STAGES tiles of each operand are in the ring.
template <typename T, CudaGroupedKind KIND, int TM, int STAGES>
__global__ void __launch_bounds__(threads, 2) mma_kernel(CudaGrouped call, int tiles) {
    constexpr bool LEFT = left_inner<KIND>, RIGHT = right_inner<KIND>;
    constexpr int left_size = OperandTile<LEFT, TM>::size, right_size = OperandTile<RIGHT, tile_cols>::size;
    constexpr int M = TM / warps_down / 16, N = tile_cols / warps_across / 8; // fragments of a warp
    extern __shared__ __align__(16) unsigned char shared[];
    T *left = (T *)shared, *right = left + STAGES * left_size;
    const Product<T> p = product_of<T, KIND, TM, tile_cols>(call, blockIdx.x, tiles);
    if (p.rows <= 0) return;
    const int warp = warp_number(), row = warp / warps_across * 16 * M, column = warp % warps_across * 8 * N;
    const int steps = (p.inner + depth - 1) / depth;
    auto copy = [&](int step) {
        if (step < steps) {
            const int stage = step % STAGES;
            copy_tile<T, LEFT, TM>(left + stage * left_size, p.left, p.left_row, p.rows, step * depth,
                                   p.inner);
            copy_tile<T, RIGHT, tile_cols>(right + stage * right_size, p.right, p.right_row, p.cols,
                                           step * depth, p.inner);
        }
        copy_group();
    };
    float sum[M][N][4] = {};
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) copy(step);
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        copy(step + STAGES - 1);
        const T *a_tile = left + step % STAGES * left_size, *b_tile = right + step % STAGES * right_size;
#pragma unroll
        for (int d = 0; d < depth; d += 16) {
            uint32_t a[M][4], b[4];
#pragma unroll
            for (int m = 0; m < M; m++) load_left<T, LEFT, TM>(a[m], a_tile, row + m * 16, d);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                load_right<T, RIGHT, tile_cols>(b, b_tile, column + n * 8, d);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    multiply_add<T>(sum[m][n], a[m], b[0], b[1]);
                    multiply_add<T>(sum[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row + m * 16 + half * 8 + g;
            if (r >= p.rows) continue;
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int c = column + n * 8 + 2 * t;
                if (c < p.cols)
                    store_two<T, KIND>(call, p.out + r * p.out_row + c, sum[m][n][2 * half],
                                       sum[m][n][2 * half + 1]);
            }
        }
}

// ---- fp32 arithmetic ----

constexpr int plain_depth = 8, plain_cols = 128, side = 16; // threads: side x side

// A thread's part of the next tile of an operand, as registers: packs of V elements of lines, which are inner
// elements or rows of the result.
template <typename T, bool INNER, int WIDTH, int V> struct PlainTile {
    static constexpr int chunks = (INNER ? WIDTH : plain_depth) / V, lines = INNER ? plain_depth : WIDTH;
    static constexpr int count = (chunks * lines + threads - 1) / threads;
    static constexpr int stride = WIDTH + 4;
    Pack<T, V> pack[count];

    __device__ void load(const T *from, int64_t row, int width, int first, int inner) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int at = threadIdx.x + i * threads, line = at / chunks, c = at % chunks * V;
            const bool there = INNER ? first + line < inner && c < width : line < width && first + c < inner;
#pragma unroll
            for (int v = 0; v < V; v++) pack[i].at[v] = from_float<T>(0);
            if (there && line < lines)
                pack[i] =
                    load_pack<T, V>(INNER ? from + (first + line) * row + c : from + line * row + first + c);
        }
    }
    // tile (plain_depth, stride)
    __device__ void store(float *tile) const {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int at = threadIdx.x + i * threads, line = at / chunks, c = at % chunks * V;
            if (line >= lines) continue;
#pragma unroll
            for (int v = 0; v < V; v++)
                tile[INNER ? line * stride + c + v : (c + v) * stride + line] = to_float(pack[i].at[v]);
        }
    }
};

// TM x plain_cols elements per block. A thread has TM / side adjacent rows, and four columns of each half.
template <typename T, CudaGroupedKind KIND, int TM, int V>
__global__ void __launch_bounds__(threads, 2) plain_kernel(CudaGrouped call, int tiles) {
    constexpr int M = TM / side, N = 8;
    using Left = PlainTile<T, left_inner<KIND>, TM, V>;
    using Right = PlainTile<T, right_inner<KIND>, plain_cols, V>;
    __shared__ __align__(16) float left[2][plain_depth * Left::stride], right[2][plain_depth * Right::stride];
    const Product<T> p = product_of<T, KIND, TM, plain_cols>(call, blockIdx.x, tiles);
    if (p.rows <= 0) return;
    const int row = threadIdx.x / side * M, column = threadIdx.x % side * 4;
    const int steps = (p.inner + plain_depth - 1) / plain_depth;
    float sum[M][N] = {};
    Left a;
    Right b;
    a.load(p.left, p.left_row, p.rows, 0, p.inner);
    b.load(p.right, p.right_row, p.cols, 0, p.inner);
    for (int step = 0; step < steps; step++) {
        float *a_tile = left[step % 2], *b_tile = right[step % 2];
        a.store(a_tile);
        b.store(b_tile);
        __syncthreads();
        if (step + 1 < steps) {
            a.load(p.left, p.left_row, p.rows, (step + 1) * plain_depth, p.inner);
            b.load(p.right, p.right_row, p.cols, (step + 1) * plain_depth, p.inner);
        }
#pragma unroll
        for (int d = 0; d < plain_depth; d++) {
            constexpr int wide = M < 4 ? M : 4;
            Pack<float, wide> x[M / wide];
            Pack<float, 4> w[N / 4];
#pragma unroll
            for (int i = 0; i < M / wide; i++)
                x[i] = load_pack<float, wide>(a_tile + d * Left::stride + row + i * wide);
#pragma unroll
            for (int i = 0; i < N / 4; i++)
                w[i] = load_pack<float, 4>(b_tile + d * Right::stride + i * 64 + column);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[m][n] = fmaf(x[m / wide].at[m % wide], w[n / 4].at[n % 4], sum[m][n]);
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int r = row + m, c = n / 4 * 64 + column + n % 4;
            const int64_t at = p.out + r * p.out_row + c;
            if (r >= p.rows || c >= p.cols) continue;
            if constexpr (KIND == GROUPED_WEIGHT) {
                float *to = (float *)call.out + at;
                *to = call.accumulate ? *to + sum[m][n] : sum[m][n];
            } else {
                ((T *)call.out)[at] = from_float<T>(sum[m][n]);
            }
        }
}

// ---- launches ----

// Tiles of rows, or of the rows of all matrices for dw; and blocks.
struct Tiling {
    int64_t tiles, blocks;
};

Tiling tiling_of(const CudaGrouped &call, int height, int width) {
    const int64_t cols = call.kind == GROUPED_FORWARD ? call.N : call.K;
    const int64_t across = gpu_tiles(cols, width);
    const int64_t tiles =
        call.kind == GROUPED_WEIGHT ? call.E * gpu_tiles(call.N, height) : most_row_tiles(call, height);
    return {tiles, tiles * across};
}

// Rows per expert, or rows of dw, from which tiles are high.
bool is_high(const CudaGrouped &call, int height) {
    const int64_t rows = call.kind == GROUPED_WEIGHT ? call.N : call.rows / call.E;
    return rows > height / 2;
}

template <typename Kernel>
cudaError_t start(cudaStream_t stream, Kernel kernel, const CudaGrouped &call, Tiling tiling, size_t shared) {
    if (tiling.blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    if (shared > 48 << 10) {
        cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess) return error;
    }
    return launch_kernel(stream, kernel, (unsigned)tiling.blocks, threads, shared, call, (int)tiling.tiles);
}

template <typename T, CudaGroupedKind KIND, int TM, int STAGES>
cudaError_t start_stages(cudaStream_t stream, const CudaGrouped &call) {
    constexpr size_t each =
        OperandTile<left_inner<KIND>, TM>::size + OperandTile<right_inner<KIND>, tile_cols>::size;
    constexpr size_t bytes = STAGES * each * sizeof(T);
    if constexpr (STAGES > 2)
        if (!fits_shared(bytes)) return start_stages<T, KIND, TM, 2>(stream, call);
    return start(stream, mma_kernel<T, KIND, TM, STAGES>, call, tiling_of(call, TM, tile_cols), bytes);
}

template <typename T, CudaGroupedKind KIND>
cudaError_t start_mma(cudaStream_t stream, const CudaGrouped &call) {
    constexpr int stages = 4;
    if (is_high(call, 128)) return start_stages<T, KIND, 128, stages>(stream, call);
    return start_stages<T, KIND, 64, stages>(stream, call);
}

template <typename T, CudaGroupedKind KIND, int V>
cudaError_t start_plain(cudaStream_t stream, const CudaGrouped &call) {
    if (is_high(call, 64))
        return start(stream, plain_kernel<T, KIND, 64, V>, call, tiling_of(call, 64, plain_cols), 0);
    return start(stream, plain_kernel<T, KIND, 32, V>, call, tiling_of(call, 32, plain_cols), 0);
}

template <CudaGroupedKind KIND> cudaError_t start_kind(cudaStream_t stream, const CudaGrouped &call) {
    return with_type(call.dtype, [&](auto t) {
        using T = decltype(t);
        const bool packs =
            aligned_16(call.a, call.b, call.out) && call.N % pack_size<T> == 0 && call.K % pack_size<T> == 0;
        if constexpr (sizeof(T) == 2) {
            if (packs && has_mma(call.dtype)) return start_mma<T, KIND>(stream, call);
        } else {
            if (packs) return start_plain<T, KIND, pack_size<T>>(stream, call);
        }
        return start_plain<T, KIND, 1>(stream, call);
    });
}

} // namespace

cudaError_t launch_grouped(cudaStream_t stream, const CudaGrouped *call) {
    switch (call->kind) {
    case GROUPED_FORWARD: return start_kind<GROUPED_FORWARD>(stream, *call);
    case GROUPED_INPUT: return start_kind<GROUPED_INPUT>(stream, *call);
    case GROUPED_WEIGHT: return start_kind<GROUPED_WEIGHT>(stream, *call);
    }
    return cudaErrorInvalidValue;
}
