// Kernels around GEMMs: activations, their backward, column sums for the bias gradient, and a simple tiled
// GEMM for what cuBLASLt does not support.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/columns.cuh"

namespace {

constexpr int threads = 256;

// ---- activations ----

constexpr int act_packs = 2; // per thread, all loaded before the first is used

template <typename T, Act ACT, int N> __global__ void act_kernel(T *y, const T *x, int64_t count) {
    const int64_t first = (blockIdx.x * (int64_t)(threads * act_packs) + threadIdx.x) * N;
    Pack<T, N> in[act_packs];
    chain_next();
    chain_wait();
#pragma unroll
    for (int p = 0; p < act_packs; p++) {
        int64_t at = first + p * threads * N;
        if (at + N <= count) in[p] = load_pack<T, N>(x + at);
    }
#pragma unroll
    for (int p = 0; p < act_packs; p++) {
        int64_t at = first + p * threads * N;
        if (at + N <= count) {
            float out[N];
#pragma unroll
            for (int i = 0; i < N; i++) out[i] = act_value<ACT>(to_float(in[p].at[i]));
            store_pack(y + at, pack_of<T>(out));
        } else {
            for (int64_t i = at; i < count; i++) y[i] = from_float<T>(act_value<ACT>(to_float(x[i])));
        }
    }
}

// P is float or T; dy may alias dx.
template <typename T, typename P, Act ACT, int N>
__global__ void act_backward_kernel(T *dx, const P *dy, const T *pre, int64_t count, bool accumulate) {
    int64_t first = (blockIdx.x * (int64_t)threads + threadIdx.x) * N;
    chain_next();
    chain_wait();
    if (first + N <= count) {
        Pack<P, N> in = load_pack<P, N>(dy + first);
        Pack<T, N> at = load_pack<T, N>(pre + first), out;
        if (accumulate) out = load_pack<T, N>(dx + first);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float before = accumulate ? to_float(out.at[i]) : 0.0f;
            out.at[i] =
                from_float<T>(fmaf(to_float(in.at[i]), act_derivative<ACT>(to_float(at.at[i])), before));
        }
        store_pack(dx + first, out);
    } else {
        for (int64_t i = first; i < count; i++) {
            float before = accumulate ? to_float(dx[i]) : 0.0f;
            dx[i] = from_float<T>(fmaf(to_float(dy[i]), act_derivative<ACT>(to_float(pre[i])), before));
        }
    }
}

// Calls body(P{}) with the type of a gradient, fp32 or T.
template <typename T, typename Body> cudaError_t with_gradient(DType type, Body body) {
    if (type == DT_F32) return body(float{});
    if constexpr (!std::is_same_v<T, float>)
        if (type == dtype_of<T>) return body(T{});
    return cudaErrorInvalidValue;
}

// ---- column sums ----

// dx = dy * act'(pre), which is also stored. dy may alias dx.
template <typename T, typename P, Act ACT> struct Sloped {
    static constexpr int blocks = 4;
    T *dx;
    const P *dy;
    const T *pre;
    template <int V> struct Raw {
        Pack<P, V> dy;
        Pack<T, V> pre;
    };
    __device__ void begin() {}
    template <int V> __device__ Raw<V> read(int64_t at) const {
        return {load_pack<P, V>(dy + at), load_pack<T, V>(pre + at)};
    }
    template <int V> __device__ Pack<T, V> settle(const Cell &cell, const Raw<V> &raw) const {
        float slope[V];
#pragma unroll
        for (int i = 0; i < V; i++)
            slope[i] = to_float(raw.dy.at[i]) * act_derivative<ACT>(to_float(raw.pre.at[i]));
        Pack<T, V> out = pack_of<T>(slope);
        store_whole(dx + cell.at, out);
        return out;
    }
};

// ---- simple GEMM ----

constexpr int tile = 64, depth = 16, own = 4; // a thread computes own x own elements of the tile

struct Sizes {
    int64_t rows, cols, inner, tiles_across;
    bool left_transposed, right_transposed, accumulate;
    const float *left_scale, *right_scale;
};

template <typename L, typename R, typename D>
__global__ void gemm_kernel(D *out, const L *left, const R *right, const D *bias, Sizes s) {
    __shared__ float a[depth][tile + 1], b[depth][tile + 1];
    int64_t row0 = blockIdx.x / s.tiles_across * tile, col0 = blockIdx.x % s.tiles_across * tile;
    int tx = threadIdx.x % (tile / own), ty = threadIdx.x / (tile / own);
    float sum[own][own] = {};
    for (int64_t from = 0; from < s.inner; from += depth) {
        // Adjacent threads read adjacent elements, whichever way the operand is stored.
        for (int i = threadIdx.x; i < tile * depth; i += threads) {
            int r = s.left_transposed ? i % tile : i / depth, k = s.left_transposed ? i / tile : i % depth;
            int64_t row = row0 + r, at = from + k;
            bool valid = row < s.rows && at < s.inner;
            a[k][r] =
                valid ? to_float(left[s.left_transposed ? at * s.rows + row : row * s.inner + at]) : 0.0f;
        }
        for (int i = threadIdx.x; i < tile * depth; i += threads) {
            int c = s.right_transposed ? i / depth : i % tile, k = s.right_transposed ? i % depth : i / tile;
            int64_t col = col0 + c, at = from + k;
            bool valid = col < s.cols && at < s.inner;
            b[k][c] =
                valid ? to_float(right[s.right_transposed ? col * s.inner + at : at * s.cols + col]) : 0.0f;
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
    float scale = (s.left_scale ? *s.left_scale : 1.0f) * (s.right_scale ? *s.right_scale : 1.0f);
#pragma unroll
    for (int i = 0; i < own; i++)
#pragma unroll
        for (int j = 0; j < own; j++) {
            int64_t row = row0 + ty * own + i, col = col0 + tx * own + j;
            if (row >= s.rows || col >= s.cols) continue;
            D *to = out + row * s.cols + col;
            float value = sum[i][j] * scale + (bias ? to_float(bias[col]) : 0.0f);
            *to = from_float<D>(s.accumulate ? to_float(*to) + value : value);
        }
}

template <typename L, typename R, typename D>
cudaError_t simple_gemm(cudaStream_t stream, const CudaGemm *p) {
    static_assert(tile / own * (tile / own) == threads, "a thread for each part of the tile");
    Sizes sizes = {p->rows,
                   p->cols,
                   p->inner,
                   (p->cols + tile - 1) / tile,
                   p->left_transposed,
                   p->right_transposed,
                   p->accumulate,
                   p->left_scale,
                   p->right_scale};
    int64_t blocks = (p->rows + tile - 1) / tile * sizes.tiles_across;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    gemm_kernel<L, R, D><<<(unsigned)blocks, threads, 0, stream>>>(
        (D *)p->out, (const L *)p->left, (const R *)p->right, (const D *)p->bias, sizes);
    return cudaGetLastError();
}

// The right one of two fp8 operands is never a gradient.
template <typename L> cudaError_t fp8_gemm(cudaStream_t stream, const CudaGemm *p) {
    if (p->right_type != DT_E4M3) return cudaErrorInvalidValue;
    if (p->out_type == DT_F32) return simple_gemm<L, __nv_fp8_e4m3, float>(stream, p);
    if (p->out_type != DT_BF16) return cudaErrorInvalidValue;
    return simple_gemm<L, __nv_fp8_e4m3, __nv_bfloat16>(stream, p);
}

__global__ void bias_kernel(float *out, const float *bias, int64_t rows, int64_t cols) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
        for (int64_t col = threadIdx.x; col < cols; col += threads) out[row * cols + col] += bias[col];
}

} // namespace

cudaError_t launch_gemm(cudaStream_t stream, const CudaGemm *gemm) {
    if (gemm->slope) return cudaErrorInvalidValue;
    if (gemm->left_type == DT_E4M3) return fp8_gemm<__nv_fp8_e4m3>(stream, gemm);
    if (gemm->left_type == DT_E5M2) return fp8_gemm<__nv_fp8_e5m2>(stream, gemm);
    if (gemm->left_type != gemm->right_type) return cudaErrorInvalidValue;
    return with_type(gemm->left_type, [&](auto t) {
        using T = decltype(t);
        if (gemm->out_type == DT_F32) return simple_gemm<T, T, float>(stream, gemm);
        if (gemm->out_type != gemm->left_type) return cudaErrorInvalidValue;
        return simple_gemm<T, T, T>(stream, gemm);
    });
}

cudaError_t launch_bias(cudaStream_t stream, float *out, const float *bias, int64_t rows, int64_t cols) {
    unsigned blocks = (unsigned)(rows > 65536 ? 65536 : rows);
    bias_kernel<<<blocks, threads, 0, stream>>>(out, bias, rows, cols);
    return cudaGetLastError();
}

Status act_forward_cuda(Stream *stream, Tensor y, Tensor x, Act act) {
    const int64_t count = tensor_count(x);
    cudaError_t error = with_packs(x.dtype, aligned_16(y, x), 0, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_act(act, [&](auto tag) {
            return launch_chained(stream, act_kernel<T, decltype(tag)::act, N>,
                                  blocks_for(count, threads * act_packs * N), threads, 0, data<T>(y),
                                  data<T>(x), count);
        });
    });
    return cuda_status(error, __func__);
}

Status act_backward_onto(Stream *stream, Tensor dx, Tensor dy, Tensor pre, Act act, bool accumulate) {
    const int64_t count = tensor_count(dx);
    cudaError_t error = with_packs(dx.dtype, aligned_16(dx, dy, pre), 0, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_gradient<T>(dy.dtype, [&](auto p) {
            using P = decltype(p);
            return with_act(act, [&](auto tag) {
                return launch_chained(stream, act_backward_kernel<T, P, decltype(tag)::act, N>,
                                      blocks_for(count, threads * N), threads, 0, data<T>(dx), data<P>(dy),
                                      data<T>(pre), count, accumulate);
            });
        });
    });
    return cuda_status(error, __func__);
}

Status act_backward_cuda(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    return act_backward_onto(stream, dx, dy, x, act, false);
}

Status act_backward_sums(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor pre, Act act,
                         void *scratch) {
    const int64_t rows = tensor_rows(dx), cols = tensor_cols(dx);
    cudaError_t error = with_packs(dx.dtype, aligned_16(dx, dy, pre), cols, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_gradient<T>(dy.dtype, [&](auto p) {
            using P = decltype(p);
            return with_act(act, [&](auto tag) {
                Sloped<T, P, decltype(tag)::act> source = {data<T>(dx), data<P>(dy), data<T>(pre)};
                return add_columns<N>(stream, sums, source, rows, cols, scratch);
            });
        });
    });
    return cuda_status(error, __func__);
}

Status column_sums(Stream *stream, Tensor sums, Tensor x, void *scratch) {
    const int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    cudaError_t error = with_packs(x.dtype, aligned_16(x), cols, [&](auto t, auto n) {
        Plain<decltype(t)> source = {data<decltype(t)>(x)};
        return add_columns<decltype(n)::value>(stream, sums, source, rows, cols, scratch);
    });
    return cuda_status(error, __func__);
}
