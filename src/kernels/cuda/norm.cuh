// What layernorm.cu and rmsnorm.cu share: forward, and backward of rows of any length. RMS norms have neither
// a mean nor beta.
//
// A warp keeps its row in registers, or a block does if the row is longer, so that a row is read once. P is
// the number of 16-byte packs per thread. Rows that are longer still, or whose size or address does not allow
// 16-byte accesses, are read again for each step, element by element.
#ifndef WEFT_KERNELS_CUDA_NORM_CUH
#define WEFT_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/row.cuh"

namespace {

constexpr int block_threads = 256; // threads of a block that shares a row

// The rows of a tensor: all, or those of some heads.
struct AllRows {
    int64_t rows, D;
};
// Where row r starts. C is at.D, perhaps in fewer bits.
__device__ inline int64_t row_start(const AllRows &, int64_t r, int64_t C) {
    return r * C;
}
__device__ inline int64_t row_start(const HeadRows &at, int64_t r, int64_t) {
    return (r / at.count * at.heads + at.first + r % at.count) * at.D;
}
// Row r of a source, see row.cuh.
template <typename Source, typename Rows>
__device__ inline auto row_of(const Source &source, const Rows &, int64_t r, int64_t C) {
    return source.row(r, C);
}
template <typename T>
__device__ inline PlainRow<T> row_of(const PlainRows<T> &source, const HeadRows &at, int64_t r, int64_t C) {
    return {source.x + row_start(at, r, C)};
}
template <bool RMS> using NormRows = std::conditional_t<RMS, HeadRows, AllRows>;

// 16-byte packs in a row; INT64_MAX if it does not allow such accesses.
template <typename T> int64_t row_packs(int64_t C, bool aligned) {
    return aligned && C % pack_size<T> == 0 ? C / pack_size<T> : INT64_MAX;
}

// A block per row, or as many as a grid may have.
inline unsigned block_per_row(int64_t rows) {
    return (unsigned)(rows < 1 << 30 ? rows : 1 << 30);
}

// ---- forward ----

template <bool RMS, typename T> struct NormOut {
    T *y;
    float *mean, *rstd;
    const T *gamma, *beta;
    NormRows<RMS> at;
    float eps;
};

// The normalized value of x, times gamma and plus beta.
template <bool RMS>
__device__ inline float norm_value(float x, float mean, float rstd, float gamma, float beta) {
    if (RMS) return x * rstd * gamma;
    float normed = (x - mean) * rstd;
    return normed * gamma + beta;
}

// Blocks per multiprocessor that a kernel is compiled for; 0: the compiler chooses. Of layer norms, from an
// estimate of the registers they need: for packs as loaded and as kept, plus an empirical remainder.
template <bool RMS, typename T, int P, typename Source> constexpr int forward_blocks() {
    if (RMS) return 0;
    constexpr int packs = P * (1 + (int)sizeof(typename Source::template Raw<pack_size<T>>) / 16);
    constexpr int registers = packs * 4 * 9 / 8 + 36, blocks = 65536 / block_threads / registers;
    return blocks < 4 ? blocks : 4;
}

// Source provides rows: see row.cuh. While a row of a layer norm is processed, the next is being loaded; RMS
// norms have more blocks instead. y may alias the source of an RMS norm: a thread reads its elements before
// it writes them.
template <bool RMS, typename T, int P, int LANES, typename Source>
__global__ void __launch_bounds__(block_threads, forward_blocks<RMS, T, P, Source>())
    forward_kernel(NormOut<RMS, T> out, Source source) {
    constexpr int N = pack_size<T>, ROWS = block_threads / LANES;
    constexpr bool ahead = !RMS;
    __shared__ float buffer[2][32];
    const int C = (int)out.at.D, lane = threadIdx.x % LANES;
    const int64_t rows = out.at.rows, step = (int64_t)gridDim.x * ROWS;
    typename Source::template Raw<N> raw[P];
    Pack<T, N> kept[P];
    auto read = [&](int64_t r) {
        auto row = row_of(source, out.at, r, C);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            raw[p] = row.template read<N>(c);
            if (ahead) keep_words(raw[p]);
        }
    };
    int64_t r = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES;
    source.begin();
    chain_next();
    chain_wait();
    if (ahead && r < rows) read(r);
    for (int turn = 0; r < rows; r += step, turn ^= 1) {
        auto row = row_of(source, out.at, r, C);
        float total = 0, squares = 0, mean = 0;
        if (!ahead) read(r);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            kept[p] = row.template settle<N>(c, raw[p]);
            if (ahead) forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                if (RMS)
                    squares += to_float(kept[p].at[i]) * to_float(kept[p].at[i]);
                else
                    total += to_float(kept[p].at[i]);
            }
        }
        if (ahead && r + step < rows) read(r + step);
        if constexpr (!RMS) {
            mean = row_sum<LANES>(total, buffer[0]) / (float)C;
#pragma unroll
            for (int p = 0; p < P; p++) {
                if ((p * LANES + lane) * N >= C) continue;
                forget(kept[p]);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    float off = to_float(kept[p].at[i]) - mean;
                    squares += off * off;
                }
            }
        }
        float rstd = 1.0f / sqrtf(row_sum<LANES>(squares, buffer[RMS ? turn : 1]) / (float)C + out.eps);
        const int64_t start = row_start(out.at, r, C);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(out.gamma + c), beta = {};
            if (!RMS) beta = load_pack<T, N>(out.beta + c);
            float y[N];
            if (ahead) forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++)
                y[i] = norm_value<RMS>(to_float(kept[p].at[i]), mean, rstd, to_float(gamma.at[i]),
                                       to_float(beta.at[i]));
            store_pack(out.y + start + c, pack_of<T>(y));
        }
        if (lane == 0 && !RMS) out.mean[r] = mean;
        if (lane == 0) out.rstd[r] = rstd;
    }
}

// Any row size and alignment: one block per row.
template <bool RMS, typename T, typename Source>
__global__ void __launch_bounds__(block_threads) forward_any_kernel(NormOut<RMS, T> out, Source source) {
    __shared__ float buffer[2][32];
    const int64_t C = out.at.D;
    int turn = 0;
    source.begin();
    for (int64_t r = blockIdx.x; r < out.at.rows; r += gridDim.x, turn ^= 1) {
        auto row = row_of(source, out.at, r, C);
        float total = 0, squares = 0, mean = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float x = to_float(row.template settle<1>(c, row.template read<1>(c)).at[0]);
            if (RMS)
                squares += x * x;
            else
                total += x;
        }
        if (!RMS) mean = row_sum<block_threads>(total, buffer[0]) / (float)C;
        for (int64_t c = threadIdx.x; c < C && !RMS; c += block_threads) {
            float off = row.again(c) - mean;
            squares += off * off;
        }
        float rstd =
            1.0f / sqrtf(row_sum<block_threads>(squares, buffer[RMS ? turn : 1]) / (float)C + out.eps);
        T *to = out.y + row_start(out.at, r, C);
        for (int64_t c = threadIdx.x; c < C; c += block_threads)
            to[c] = from_float<T>(norm_value<RMS>(row.again(c), mean, rstd, to_float(out.gamma[c]),
                                                  RMS ? 0 : to_float(out.beta[c])));
        if (threadIdx.x == 0 && !RMS) out.mean[r] = mean;
        if (threadIdx.x == 0) out.rstd[r] = rstd;
    }
}

// `resident`: blocks per multiprocessor.
template <int P, int LANES, bool RMS, typename T, typename Source>
cudaError_t start_forward(Stream *stream, const NormOut<RMS, T> &out, const Source &source, int resident) {
    int64_t needed = (out.at.rows + block_threads / LANES - 1) / (block_threads / LANES);
    int64_t limit = (int64_t)processors() * resident;
    unsigned blocks = (unsigned)(needed < limit ? needed : limit);
    return launch_chained(stream, forward_kernel<RMS, T, P, LANES, Source>, blocks, block_threads, 0, out,
                          source);
}

template <bool RMS, typename T, typename Source>
cudaError_t start_forward_any(Stream *stream, const NormOut<RMS, T> &out, const Source &source) {
    return launch_kernel(stream, forward_any_kernel<RMS, T, Source>, block_per_row(out.at.rows),
                         block_threads, 0, out, source);
}

// ---- backward ----

template <bool RMS, typename T> struct NormBackward {
    T *dx;
    const T *dy, *x, *gamma, *dres;
    const float *mean, *rstd;
    NormRows<RMS> at;
    float *partial; // (blocks, sums, D): dgamma, dbeta, then those of dx and dres
};

// The gradient through a layer norm for g = dy * gamma and the normalized value n.
__device__ inline float norm_gradient(float g, float n, float mean_g, float mean_gn, float rstd) {
    return rstd * (g - mean_g - n * mean_gn);
}

// Any row size and alignment, first step: column sums of blockIdx.y's share of the rows.
template <bool RMS, typename T> __global__ void backward_any_sums_kernel(NormBackward<RMS, T> in) {
    constexpr int SUMS = RMS ? 1 : 2;
    __shared__ float buffer[SUMS][partial_lines][partial_columns];
    int64_t share = (in.at.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * share;
    int64_t to = from + share < in.at.rows ? from + share : in.at.rows;
    int64_t C = in.at.D, c = blockIdx.x * (int64_t)partial_columns + threadIdx.x;
    float sum[2] = {};
    for (int64_t r = from + threadIdx.y; c < C && r < to; r += partial_lines) {
        int64_t i = row_start(in.at, r, C) + c;
        float d = to_float(in.dy[i]), x = to_float(in.x[i]);
        sum[0] += d * ((RMS ? x : x - in.mean[r]) * in.rstd[r]);
        sum[1] += d;
    }
    for (int s = 0; s < SUMS; s++) buffer[s][threadIdx.y][threadIdx.x] = sum[s];
    __syncthreads();
    if (threadIdx.y != 0 || c >= C) return;
    for (int s = 0; s < SUMS; s++) {
        for (int line = 1; line < partial_lines; line++) sum[s] += buffer[s][line][threadIdx.x];
        in.partial[(blockIdx.y * SUMS + s) * C + c] = sum[s];
    }
}

// Second step, after the sums because dx may alias dy: dx, one block per row.
template <bool RMS, typename T>
__global__ void __launch_bounds__(block_threads) backward_any_kernel(NormBackward<RMS, T> in) {
    __shared__ float buffer[2][32];
    const int64_t C = in.at.D;
    int turn = 0;
    for (int64_t r = blockIdx.x; r < in.at.rows; r += gridDim.x, turn ^= 1) {
        const int64_t from = row_start(in.at, r, C);
        const T *x = in.x + from, *dy = in.dy + from;
        const float mean = RMS ? 0 : in.mean[r], rstd = in.rstd[r];
        float total_g = 0, total_gn = 0, mean_g = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float d = to_float(dy[c]), gamma = to_float(in.gamma[c]);
            if (RMS) {
                total_gn += d * (to_float(x[c]) * rstd) * gamma;
                continue;
            }
            float g = d * gamma;
            total_g += g;
            total_gn += g * ((to_float(x[c]) - mean) * rstd);
        }
        if (!RMS) mean_g = row_sum<block_threads>(total_g, buffer[0]) / (float)C;
        const float mean_gn = row_sum<block_threads>(total_gn, buffer[RMS ? turn : 1]) / (float)C;
        const float factor = rstd * mean_gn;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float g = to_float(dy[c]) * to_float(in.gamma[c]), n = (to_float(x[c]) - mean) * rstd;
            float d = RMS ? rstd * (g - to_float(x[c]) * factor) : norm_gradient(g, n, mean_g, mean_gn, rstd);
            in.dx[from + c] = from_float<T>(in.dres ? d + to_float(in.dres[from + c]) : d);
        }
    }
}

// Returns how many lines of partial sums there will be. Fixed, so that the order of sums is fixed, too.
template <bool RMS, typename T> int start_backward_any(Stream *stream, const NormBackward<RMS, T> &in) {
    constexpr int any_blocks = 64;
    dim3 shape(partial_columns, partial_lines);
    int64_t needed = (in.at.rows + partial_lines - 1) / partial_lines;
    int blocks = (int)(needed < any_blocks ? needed : any_blocks);
    dim3 grid(blocks_for(in.at.D, partial_columns), (unsigned)blocks);
    (void)launch_kernel(stream, backward_any_sums_kernel<RMS, T>, grid, shape, 0, in);
    (void)launch_kernel(stream, backward_any_kernel<RMS, T>, block_per_row(in.at.rows), block_threads, 0, in);
    return blocks;
}

} // namespace

#endif
