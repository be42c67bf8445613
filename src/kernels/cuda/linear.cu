// What surrounds matrix products: activations after them, slopes after their backward, column sums for the
// gradient of a bias, and a plain tiled product for what cuBLASLt refuses.
//
// Column sums take two passes. A block sums a chunk of rows of 32 or 32 * pack_size columns into a row of
// partial sums; the second pass adds those up in order. How rows are cut into chunks depends on the shape
// alone, and so does the order of every sum, whether or not rows can be read in packs.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256;

// ---- activations ----

template <typename T, CudaAct ACT, int N> __global__ void act_kernel(T *y, const T *x, int64_t count) {
    int64_t first = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (first + N <= count) {
        Pack<T, N> in = load_pack<T, N>(x + first), out;
#pragma unroll
        for (int i = 0; i < N; i++) out.at[i] = from_float<T>(act_value<ACT>(to_float(in.at[i])));
        store_pack(y + first, out);
    } else {
        for (int64_t i = first; i < count; i++) y[i] = from_float<T>(act_value<ACT>(to_float(x[i])));
    }
}

// P is float or T; the product may lie where dx goes.
template <typename T, typename P, CudaAct ACT, int N>
__global__ void slope_kernel(T *dx, const P *product, const T *pre, int64_t count, bool accumulate) {
    int64_t first = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    if (first + N <= count) {
        Pack<P, N> in = load_pack<P, N>(product + first);
        Pack<T, N> at = load_pack<T, N>(pre + first), out;
        if (accumulate) out = load_pack<T, N>(dx + first);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float before = accumulate ? to_float(out.at[i]) : 0.0f;
            out.at[i] = from_float<T>(fmaf(to_float(in.at[i]), act_slope<ACT>(to_float(at.at[i])), before));
        }
        store_pack(dx + first, out);
    } else {
        for (int64_t i = first; i < count; i++) {
            float before = accumulate ? to_float(dx[i]) : 0.0f;
            dx[i] = from_float<T>(fmaf(to_float(product[i]), act_slope<ACT>(to_float(pre[i])), before));
        }
    }
}

template <typename T, typename P>
cudaError_t slope(cudaStream_t stream, T *dx, const P *product, const T *pre, CudaAct act, int64_t count,
                  bool accumulate) {
    return with_act(act, [&](auto tag) {
        constexpr CudaAct ACT = decltype(tag)::act;
        constexpr int wide = pack_size<T>;
        if (aligned_16(dx, product, pre))
            slope_kernel<T, P, ACT, wide><<<blocks_for(count, threads * wide), threads, 0, stream>>>(
                dx, product, pre, count, accumulate);
        else
            slope_kernel<T, P, ACT, 1>
                <<<blocks_for(count, threads), threads, 0, stream>>>(dx, product, pre, count, accumulate);
        return cudaGetLastError();
    });
}

// ---- column sums ----

constexpr int warps = threads / 32;
constexpr int tile_cols = 256;      // of a block in 16 bits; fp32 and single loads take part of it
constexpr int wanted_blocks = 1024; // enough to fill any device
constexpr int least_rows = 64;      // of a chunk

int64_t chunk_count(int64_t rows, int64_t cols) {
    int64_t tiles = (cols + tile_cols - 1) / tile_cols, most = (rows + least_rows - 1) / least_rows;
    int64_t chunks = (wanted_blocks + tiles - 1) / tiles;
    return chunks < most ? chunks : most;
}

// Row blockIdx.y of partial (chunks,cols) = column sums of rows blockIdx.y * each and on. With V above 1,
// cols is a multiple of V.
template <typename T, int V>
__global__ void partial_sums_kernel(float *partial, const T *x, int64_t rows, int64_t cols, int64_t each) {
    __shared__ float room[warps][V * 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t col = (blockIdx.x * (int64_t)32 + lane) * V;
    int64_t first = blockIdx.y * each, last = first + each < rows ? first + each : rows;
    float sum[V] = {};
    if (col < cols) {
#pragma unroll 4
        for (int64_t row = first + warp; row < last; row += warps) {
            Pack<T, V> in = load_pack<T, V>(x + row * cols + col);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += to_float(in.at[v]);
        }
    }
#pragma unroll
    for (int v = 0; v < V; v++) room[warp][v * 32 + lane] = sum[v];
    __syncthreads();
    for (int i = threadIdx.x; i < V * 32; i += threads) {
        int64_t out = (blockIdx.x * (int64_t)32 + i % 32) * V + i / 32;
        if (out >= cols) continue;
        float total = 0;
        for (int w = 0; w < warps; w++) total += room[w][i];
        partial[blockIdx.y * cols + out] = total;
    }
}

// sums (cols) += column sums of partial (chunks,cols). A block has 32 columns and a row of threads for every
// eighth chunk.
__global__ void add_partial_kernel(float *sums, const float *partial, int64_t chunks, int64_t cols) {
    __shared__ float room[warps][32];
    int64_t col = blockIdx.x * (int64_t)32 + threadIdx.x;
    float sum = 0;
    if (col < cols)
        for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += warps) sum += partial[chunk * cols + col];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= cols) return;
    float total = 0;
    for (int w = 0; w < warps; w++) total += room[w][threadIdx.x];
    sums[col] += total;
}

template <typename T, int V>
void partial_sums(cudaStream_t stream, float *partial, const T *x, int64_t rows, int64_t cols,
                  int64_t chunks) {
    dim3 grid(blocks_for(cols, 32 * V), (unsigned)chunks);
    partial_sums_kernel<T, V>
        <<<grid, threads, 0, stream>>>(partial, x, rows, cols, (rows + chunks - 1) / chunks);
}

// ---- a plain product ----

constexpr int tile = 64, depth = 16, own = 4; // a thread has own x own of the tile

struct Sizes {
    int64_t rows, cols, inner, tiles_across;
    bool left_turned, right_turned, accumulate;
    const float *left_unit, *right_unit;
};

template <typename L, typename R, typename D>
__global__ void product_kernel(D *out, const L *left, const R *right, const D *bias, Sizes s) {
    __shared__ float a[depth][tile + 1], b[depth][tile + 1];
    int64_t row0 = blockIdx.x / s.tiles_across * tile, col0 = blockIdx.x % s.tiles_across * tile;
    int tx = threadIdx.x % (tile / own), ty = threadIdx.x / (tile / own);
    float sum[own][own] = {};
    for (int64_t from = 0; from < s.inner; from += depth) {
        // Neighbouring threads read neighbouring elements, whichever way the operand is stored.
        for (int i = threadIdx.x; i < tile * depth; i += threads) {
            int r = s.left_turned ? i % tile : i / depth, k = s.left_turned ? i / tile : i % depth;
            int64_t row = row0 + r, at = from + k;
            bool there = row < s.rows && at < s.inner;
            a[k][r] = there ? to_float(left[s.left_turned ? at * s.rows + row : row * s.inner + at]) : 0.0f;
        }
        for (int i = threadIdx.x; i < tile * depth; i += threads) {
            int c = s.right_turned ? i / depth : i % tile, k = s.right_turned ? i % depth : i / tile;
            int64_t col = col0 + c, at = from + k;
            bool there = col < s.cols && at < s.inner;
            b[k][c] = there ? to_float(right[s.right_turned ? col * s.inner + at : at * s.cols + col]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < depth; k++)
#pragma unroll
            for (int i = 0; i < own; i++)
#pragma unroll
                for (int j = 0; j < own; j++)
                    sum[i][j] = fmaf(a[k][ty * own + i], b[k][tx * own + j], sum[i][j]);
        __syncthreads();
    }
    float unit = (s.left_unit ? *s.left_unit : 1.0f) * (s.right_unit ? *s.right_unit : 1.0f);
#pragma unroll
    for (int i = 0; i < own; i++)
#pragma unroll
        for (int j = 0; j < own; j++) {
            int64_t row = row0 + ty * own + i, col = col0 + tx * own + j;
            if (row >= s.rows || col >= s.cols) continue;
            D *to = out + row * s.cols + col;
            float value = sum[i][j] * unit + (bias ? to_float(bias[col]) : 0.0f);
            *to = from_float<D>(s.accumulate ? to_float(*to) + value : value);
        }
}

template <typename L, typename R, typename D>
cudaError_t plain_product(cudaStream_t stream, const CudaProduct *p) {
    static_assert(tile / own * (tile / own) == threads, "a thread for each part of the tile");
    Sizes sizes = {p->rows,        p->cols,         p->inner,      (p->cols + tile - 1) / tile,
                   p->left_turned, p->right_turned, p->accumulate, p->left_unit,
                   p->right_unit};
    int64_t blocks = (p->rows + tile - 1) / tile * sizes.tiles_across;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    product_kernel<L, R, D><<<(unsigned)blocks, threads, 0, stream>>>(
        (D *)p->out, (const L *)p->left, (const R *)p->right, (const D *)p->bias, sizes);
    return cudaGetLastError();
}

// The right one of two operands of 8 bits is never a gradient.
template <typename L> cudaError_t eight_product(cudaStream_t stream, const CudaProduct *p) {
    if (p->right_type != DT_E4M3) return cudaErrorInvalidValue;
    if (p->out_type == DT_F32) return plain_product<L, __nv_fp8_e4m3, float>(stream, p);
    if (p->out_type != DT_BF16) return cudaErrorInvalidValue;
    return plain_product<L, __nv_fp8_e4m3, __nv_bfloat16>(stream, p);
}

__global__ void bias_kernel(float *out, const float *bias, int64_t rows, int64_t cols) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
        for (int64_t col = threadIdx.x; col < cols; col += threads) out[row * cols + col] += bias[col];
}

} // namespace

cudaError_t launch_product(cudaStream_t stream, const CudaProduct *product) {
    if (product->epilogue != CUDA_EPILOGUE_NONE) return cudaErrorInvalidValue;
    if (product->left_type == DT_E4M3) return eight_product<__nv_fp8_e4m3>(stream, product);
    if (product->left_type == DT_E5M2) return eight_product<__nv_fp8_e5m2>(stream, product);
    if (product->left_type != product->right_type) return cudaErrorInvalidValue;
    return with_type(product->left_type, [&](auto t) {
        using T = decltype(t);
        if (product->out_type == DT_F32) return plain_product<T, T, float>(stream, product);
        if (product->out_type != product->left_type) return cudaErrorInvalidValue;
        return plain_product<T, T, T>(stream, product);
    });
}

cudaError_t launch_bias(cudaStream_t stream, float *out, const float *bias, int64_t rows, int64_t cols) {
    unsigned blocks = (unsigned)(rows > 65536 ? 65536 : rows);
    bias_kernel<<<blocks, threads, 0, stream>>>(out, bias, rows, cols);
    return cudaGetLastError();
}

cudaError_t launch_act(cudaStream_t stream, DType type, void *y, const void *x, CudaAct act, int64_t count) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        return with_act(act, [&](auto tag) {
            constexpr CudaAct ACT = decltype(tag)::act;
            constexpr int wide = pack_size<T>;
            if (aligned_16(y, x))
                act_kernel<T, ACT, wide>
                    <<<blocks_for(count, threads * wide), threads, 0, stream>>>((T *)y, (const T *)x, count);
            else
                act_kernel<T, ACT, 1>
                    <<<blocks_for(count, threads), threads, 0, stream>>>((T *)y, (const T *)x, count);
            return cudaGetLastError();
        });
    });
}

cudaError_t launch_slope(cudaStream_t stream, DType type, void *dx, DType product_type, const void *product,
                         const void *pre, CudaAct act, int64_t count, bool accumulate) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        if (product_type == DT_F32)
            return slope(stream, (T *)dx, (const float *)product, (const T *)pre, act, count, accumulate);
        if (product_type != type) return cudaErrorInvalidValue;
        return slope(stream, (T *)dx, (const T *)product, (const T *)pre, act, count, accumulate);
    });
}

size_t column_sums_room(int64_t rows, int64_t cols) {
    return (size_t)(chunk_count(rows, cols) * cols) * sizeof(float);
}

cudaError_t launch_column_sums(cudaStream_t stream, float *sums, DType type, const void *x, int64_t rows,
                               int64_t cols, float *scratch) {
    int64_t chunks = chunk_count(rows, cols);
    cudaError_t error = with_type(type, [&](auto t) {
        using T = decltype(t);
        if (aligned_16(x) && cols % pack_size<T> == 0)
            partial_sums<T, pack_size<T>>(stream, scratch, (const T *)x, rows, cols, chunks);
        else
            partial_sums<T, 1>(stream, scratch, (const T *)x, rows, cols, chunks);
        return cudaGetLastError();
    });
    if (error != cudaSuccess) return error;
    return launch_add_partial(stream, sums, scratch, chunks, cols);
}

cudaError_t launch_add_partial(cudaStream_t stream, float *sums, const float *partial, int64_t chunks,
                               int64_t cols) {
    add_partial_kernel<<<blocks_for(cols, 32), dim3(32, warps), 0, stream>>>(sums, partial, chunks, cols);
    return cudaGetLastError();
}
