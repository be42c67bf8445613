// Layer norm. A warp holds its row in registers, a block where the row is longer, so that a row is read once;
// P is the number of 16-byte accesses a thread holds. Rows that are longer still, or whose width or address
// do not allow 16-byte accesses, are read again for each step, element by element.
//
// Backward's blocks take many rows each and keep the sums of dgamma and dbeta for their columns in registers
// until the end; then the warps of a block add up in order, and add_partials the blocks. Both run in an order
// that depends on the shape alone.
#include "kernels/cuda/row.cuh"

namespace {

constexpr int wide = 256; // threads of a block that shares a row

// ---- forward ----

template <typename T> struct NormOut {
    T *y;
    float *mean, *rstd;
    const T *gamma, *beta;
    int64_t rows, C;
    float eps;
};

// Source gives rows: PlainRows or DroppedRows.
template <typename T, int P, int LANES, typename Source>
__global__ void __launch_bounds__(wide) forward_kernel(NormOut<T> out, Source source) {
    constexpr int N = pack_size<T>, ROWS = wide / LANES;
    __shared__ float room[2][32];
    const int64_t C = out.C, step = (int64_t)gridDim.x * ROWS;
    const int lane = threadIdx.x % LANES;
    for (int64_t r = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES; r < out.rows; r += step) {
        auto row = source.row(r, C);
        typename decltype(row)::template Raw<N> raw[P];
        Pack<T, N> held[P];
        float total = 0, squares = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c < C) raw[p] = row.template read<N>(c);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
            held[p] = row.template settle<N>(c, raw[p]);
#pragma unroll
            for (int i = 0; i < N; i++) total += to_float(held[p].at[i]);
        }
        float mean = row_sum<LANES>(total, room[0]) / (float)C;
#pragma unroll
        for (int p = 0; p < P; p++) {
            if ((int64_t)(p * LANES + lane) * N >= C) continue;
#pragma unroll
            for (int i = 0; i < N; i++) {
                float off = to_float(held[p].at[i]) - mean;
                squares += off * off;
            }
        }
        float rstd = 1.0f / sqrtf(row_sum<LANES>(squares, room[1]) / (float)C + out.eps);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(out.gamma + c), beta = load_pack<T, N>(out.beta + c);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float normed = (to_float(held[p].at[i]) - mean) * rstd;
                held[p].at[i] = from_float<T>(normed * to_float(gamma.at[i]) + to_float(beta.at[i]));
            }
            store_pack(out.y + r * C + c, held[p]);
        }
        if (lane == 0) {
            out.mean[r] = mean;
            out.rstd[r] = rstd;
        }
    }
}

// Any width, any alignment: a block for each row.
template <typename T, typename Source>
__global__ void __launch_bounds__(wide) forward_any_kernel(NormOut<T> out, Source source) {
    __shared__ float room[2][32];
    const int64_t C = out.C;
    for (int64_t r = blockIdx.x; r < out.rows; r += gridDim.x) {
        auto row = source.row(r, C);
        float total = 0, squares = 0;
        for (int64_t c = threadIdx.x; c < C; c += wide)
            total += to_float(row.template settle<1>(c, row.template read<1>(c)).at[0]);
        float mean = row_sum<wide>(total, room[0]) / (float)C;
        for (int64_t c = threadIdx.x; c < C; c += wide) {
            float off = row.again(c) - mean;
            squares += off * off;
        }
        float rstd = 1.0f / sqrtf(row_sum<wide>(squares, room[1]) / (float)C + out.eps);
        for (int64_t c = threadIdx.x; c < C; c += wide) {
            float normed = (row.again(c) - mean) * rstd;
            out.y[r * C + c] = from_float<T>(normed * to_float(out.gamma[c]) + to_float(out.beta[c]));
        }
        if (threadIdx.x == 0) {
            out.mean[r] = mean;
            out.rstd[r] = rstd;
        }
    }
}

template <typename T, typename Source>
cudaError_t forward(cudaStream_t stream, NormOut<T> out, Source source, bool aligned) {
    constexpr int N = pack_size<T>;
    int64_t packs = aligned && out.C % N == 0 ? out.C / N : INT64_MAX;
    unsigned by_warp = blocks_for(out.rows, wide / 32), by_block = (unsigned)out.rows;
    if (out.rows > 1 << 30) by_block = 1 << 30;
    if (packs <= 2 * 32)
        forward_kernel<T, 2, 32><<<by_warp, wide, 0, stream>>>(out, source);
    else if (packs <= 4 * 32)
        forward_kernel<T, 4, 32><<<by_warp, wide, 0, stream>>>(out, source);
    else if (packs <= 8 * 32)
        forward_kernel<T, 8, 32><<<by_warp, wide, 0, stream>>>(out, source);
    else if (packs <= 2 * wide)
        forward_kernel<T, 2, wide><<<by_block, wide, 0, stream>>>(out, source);
    else if (packs <= 8 * wide)
        forward_kernel<T, 8, wide><<<by_block, wide, 0, stream>>>(out, source);
    else
        forward_any_kernel<<<by_block, wide, 0, stream>>>(out, source);
    return cudaGetLastError();
}

// ---- backward ----

template <typename T> struct NormBack {
    T *dx;
    const T *dy, *x, *gamma, *dres;
    const float *mean, *rstd;
    int64_t rows, C;
    float *partial; // (blocks, 2, C): dgamma, dbeta
};

// Sums over a block's warps, in their order, into shared (2, C); then out to the block's line of `partial`.
template <int P, int N>
__device__ inline void put_partial(float (&gammas)[P][N], float (&betas)[P][N], float *shared, float *partial,
                                   int64_t C) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int turn = 0; turn < warps; turn++) {
        if (warp == turn) {
#pragma unroll
            for (int p = 0; p < P; p++) {
                int64_t c = (int64_t)(p * 32 + lane) * N;
                if (c >= C) continue;
#pragma unroll
                for (int i = 0; i < N; i++) {
                    shared[c + i] = turn ? shared[c + i] + gammas[p][i] : gammas[p][i];
                    shared[C + c + i] = turn ? shared[C + c + i] + betas[p][i] : betas[p][i];
                }
            }
        }
        __syncthreads();
    }
    for (int64_t i = threadIdx.x; i < 2 * C; i += blockDim.x) partial[i] = shared[i];
}

// The gradient g through a row of which the mean of g, the mean of g * n and rstd are known.
__device__ inline float through(float g, float n, float mean_g, float mean_gn, float rstd) {
    return rstd * (g - mean_g - n * mean_gn);
}

// dx may be dy or dres: a thread reads the elements it writes before it writes any.
template <typename T, int P, int LANES, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) backward_kernel(NormBack<T> in) {
    constexpr int N = pack_size<T>, ROWS = THREADS / LANES;
    extern __shared__ float shared[];
    __shared__ float room[2][32];
    const int64_t C = in.C, step = (int64_t)gridDim.x * ROWS;
    const int lane = threadIdx.x % LANES;
    float gammas[P][N] = {}, betas[P][N] = {};
    for (int64_t r = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES; r < in.rows; r += step) {
        Pack<T, N> x[P], dy[P], dres[P];
        float mean = in.mean[r], rstd = in.rstd[r], total_g = 0, total_gn = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
            x[p] = load_pack<T, N>(in.x + r * C + c);
            dy[p] = load_pack<T, N>(in.dy + r * C + c);
            if (in.dres) dres[p] = load_pack<T, N>(in.dres + r * C + c);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(in.gamma + c);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float n = (to_float(x[p].at[i]) - mean) * rstd, d = to_float(dy[p].at[i]);
                float g = d * to_float(gamma.at[i]);
                total_g += g;
                total_gn += g * n;
                gammas[p][i] += d * n;
                betas[p][i] += d;
            }
        }
        float mean_g = row_sum<LANES>(total_g, room[0]) / (float)C;
        float mean_gn = row_sum<LANES>(total_gn, room[1]) / (float)C;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(in.gamma + c), out;
            forget(x[p]);
            forget(dy[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float n = (to_float(x[p].at[i]) - mean) * rstd;
                float g = to_float(dy[p].at[i]) * to_float(gamma.at[i]);
                float d = through(g, n, mean_g, mean_gn, rstd);
                out.at[i] = from_float<T>(in.dres ? d + to_float(dres[p].at[i]) : d);
            }
            store_pack(in.dx + r * C + c, out);
        }
    }
    float *partial = in.partial + blockIdx.x * 2 * C;
    if constexpr (LANES == 32) {
        put_partial(gammas, betas, shared, partial, C);
    } else {
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * LANES + lane) * N;
            if (c >= C) continue;
#pragma unroll
            for (int i = 0; i < N; i++) {
                partial[c + i] = gammas[p][i];
                partial[C + c + i] = betas[p][i];
            }
        }
    }
}

// Any width, any alignment, first step: column sums of blockIdx.y's share of the rows.
template <typename T> __global__ void backward_any_sums_kernel(NormBack<T> in) {
    __shared__ float room[2][partial_lines][partial_columns];
    int64_t share = (in.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * share;
    int64_t to = from + share < in.rows ? from + share : in.rows;
    int64_t C = in.C, c = blockIdx.x * (int64_t)partial_columns + threadIdx.x;
    float gammas = 0, betas = 0;
    for (int64_t r = from + threadIdx.y; c < C && r < to; r += partial_lines) {
        float d = to_float(in.dy[r * C + c]);
        gammas += d * ((to_float(in.x[r * C + c]) - in.mean[r]) * in.rstd[r]);
        betas += d;
    }
    room[0][threadIdx.y][threadIdx.x] = gammas;
    room[1][threadIdx.y][threadIdx.x] = betas;
    __syncthreads();
    if (threadIdx.y != 0 || c >= C) return;
    for (int line = 1; line < partial_lines; line++) {
        gammas += room[0][line][threadIdx.x];
        betas += room[1][line][threadIdx.x];
    }
    in.partial[blockIdx.y * 2 * C + c] = gammas;
    in.partial[blockIdx.y * 2 * C + C + c] = betas;
}

// Second step, after the sums since dx may be dy: dx, a block for each row.
template <typename T> __global__ void __launch_bounds__(wide) backward_any_kernel(NormBack<T> in) {
    __shared__ float room[2][32];
    const int64_t C = in.C;
    for (int64_t r = blockIdx.x; r < in.rows; r += gridDim.x) {
        const T *x = in.x + r * C, *dy = in.dy + r * C;
        float mean = in.mean[r], rstd = in.rstd[r], total_g = 0, total_gn = 0;
        for (int64_t c = threadIdx.x; c < C; c += wide) {
            float g = to_float(dy[c]) * to_float(in.gamma[c]);
            total_g += g;
            total_gn += g * ((to_float(x[c]) - mean) * rstd);
        }
        float mean_g = row_sum<wide>(total_g, room[0]) / (float)C;
        float mean_gn = row_sum<wide>(total_gn, room[1]) / (float)C;
        for (int64_t c = threadIdx.x; c < C; c += wide) {
            float g = to_float(dy[c]) * to_float(in.gamma[c]), n = (to_float(x[c]) - mean) * rstd;
            float d = through(g, n, mean_g, mean_gn, rstd);
            in.dx[r * C + c] = from_float<T>(in.dres ? d + to_float(in.dres[r * C + c]) : d);
        }
    }
}

// Blocks of backward, a multiple of what an H100 or H200 runs at once; fixed, so that sums are.
constexpr int most_blocks = 3 * 132, any_blocks = 64;

template <int P, int LANES, int THREADS, int BLOCKS, typename T>
int start_backward(cudaStream_t stream, const NormBack<T> &in) {
    int64_t needed = (in.rows + THREADS / LANES - 1) / (THREADS / LANES);
    int blocks = (int)(needed < BLOCKS * 132 ? needed : BLOCKS * 132);
    size_t shared = LANES == 32 ? 2 * (size_t)in.C * sizeof(float) : 0;
    backward_kernel<T, P, LANES, THREADS, BLOCKS><<<blocks, THREADS, shared, stream>>>(in);
    return blocks;
}

template <typename T> int start_backward_any(cudaStream_t stream, const NormBack<T> &in) {
    dim3 shape(partial_columns, partial_lines);
    int64_t needed = (in.rows + partial_lines - 1) / partial_lines;
    int blocks = (int)(needed < any_blocks ? needed : any_blocks);
    dim3 grid(blocks_for(in.C, partial_columns), (unsigned)blocks);
    backward_any_sums_kernel<<<grid, shape, 0, stream>>>(in);
    unsigned by_block = in.rows < 1 << 30 ? (unsigned)in.rows : 1 << 30;
    backward_any_kernel<<<by_block, wide, 0, stream>>>(in);
    return blocks;
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(cudaStream_t stream, const NormBack<T> &in, bool aligned) {
    constexpr int N = pack_size<T>;
    int64_t packs = aligned && in.C % N == 0 ? in.C / N : INT64_MAX;
    if (packs <= 1 * 32) return start_backward<1, 32, 128, 3>(stream, in);
    if (packs <= 2 * 32) return start_backward<2, 32, 128, 3>(stream, in);
    if (packs <= 3 * 32) return start_backward<3, 32, 128, 3>(stream, in);
    if (packs <= 4 * 32) return start_backward<4, 32, 128, 3>(stream, in);
    if (packs <= 5 * 32) return start_backward<5, 32, 128, 2>(stream, in);
    if (packs <= 7 * 32) return start_backward<7, 32, 128, 2>(stream, in);
    if (packs <= 2 * wide) return start_backward<2, wide, wide, 2>(stream, in);
    if (packs <= 4 * wide) return start_backward<4, wide, wide, 1>(stream, in);
    return start_backward_any(stream, in);
}

} // namespace

cudaError_t launch_norm_forward(cudaStream_t stream, DType type, void *y, float *mean, float *rstd,
                                const void *x, const void *gamma, const void *beta, int64_t rows, int64_t C,
                                float eps) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormOut<T> out = {(T *)y, mean, rstd, (const T *)gamma, (const T *)beta, rows, C, eps};
        return forward(stream, out, PlainRows<T>{(const T *)x}, aligned_16(y, x, gamma, beta));
    });
}

cudaError_t launch_dropout_add_norm(cudaStream_t stream, DType type, void *sum, void *y, float *mean,
                                    float *rstd, const void *res, const void *x, const void *gamma,
                                    const void *beta, int64_t rows, int64_t C, float eps, int64_t positions,
                                    CudaDropout dropout) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormOut<T> out = {(T *)y, mean, rstd, (const T *)gamma, (const T *)beta, rows, C, eps};
        DroppedRows<T> source = {(T *)sum, (const T *)res, (const T *)x, dropout, positions};
        return forward(stream, out, source, aligned_16(sum, y, res, x) && aligned_16(gamma, beta));
    });
}

size_t norm_backward_bytes(int64_t C) {
    return (size_t)most_blocks * 2 * (size_t)C * sizeof(float);
}

cudaError_t launch_norm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, float *dbeta,
                                 const void *dy, const void *x, const float *mean, const float *rstd,
                                 const void *gamma, const void *dres, int64_t rows, int64_t C,
                                 float *partial) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormBack<T> in = {
            (T *)dx, (const T *)dy, (const T *)x, (const T *)gamma, (const T *)dres, mean, rstd, rows,
            C,       partial};
        int blocks = backward(stream, in, aligned_16(dx, dy, x, gamma, dres));
        cudaError_t error = cudaGetLastError();
        if (error != cudaSuccess) return error;
        return add_partials(stream, dgamma, C, dbeta, partial, 2 * C, blocks);
    });
}
