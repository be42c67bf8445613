// RMS norm. A warp keeps its row in registers, or a block does if the row is longer. P is the number of
// 16-byte packs per thread. Rows that are longer still, or whose size or address does not allow 16-byte
// accesses, are read again for each step, element by element.
//
// Blocks of backward take many rows each and keep the sums of dgamma for their columns in registers until the
// end. Then the warps of a block are added in order, and add_partials adds the blocks; the order depends on
// the shape alone.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/row.cuh"

namespace {

constexpr int block_threads = 256; // threads of a block that shares a row
constexpr int most_packs = 4;      // per thread of a row in registers

__device__ inline int64_t head_row(const CudaHeadRows &at, int64_t r) {
    return (r / at.count * at.heads + at.first + r % at.count) * at.D;
}

// ---- forward ----

template <typename T> struct NormOut {
    T *y;
    float *rstd;
    const T *gamma;
    CudaHeadRows at;
    float eps;
};

// Sources of rows, in the form of row.cuh.
template <typename T> struct HeadSource {
    template <int N> using Raw = typename PlainRow<T>::template Raw<N>;
    const T *x;
    __device__ void begin() {}
    __device__ PlainRow<T> row(const CudaHeadRows &at, int64_t r) const { return {x + head_row(at, r)}; }
};
template <typename T> struct DroppedSource {
    template <int N> using Raw = typename DroppedRows<T>::template Raw<N>;
    DroppedRows<T> rows;
    __device__ void begin() { rows.begin(); }
    __device__ DroppedRow<T, true> row(const CudaHeadRows &at, int64_t r) const { return rows.row(r, at.D); }
};

// y may alias the source: a thread reads its elements before it writes them.
template <typename T, int P, int LANES, typename Source>
__global__ void __launch_bounds__(block_threads) forward_kernel(NormOut<T> out, Source source) {
    constexpr int N = pack_size<T>, ROWS = block_threads / LANES;
    __shared__ float buffer[2][32];
    const int C = (int)out.at.D, lane = threadIdx.x % LANES;
    const int64_t step = (int64_t)gridDim.x * ROWS;
    int turn = 0;
    source.begin();
    chain_next();
    chain_wait();
    for (int64_t r = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES; r < out.at.rows;
         r += step, turn ^= 1) {
        auto row = source.row(out.at, r);
        typename Source::template Raw<N> raw[P];
        Pack<T, N> kept[P];
        float squares = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c < C) raw[p] = row.template read<N>(c);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            kept[p] = row.template settle<N>(c, raw[p]);
#pragma unroll
            for (int i = 0; i < N; i++) squares += to_float(kept[p].at[i]) * to_float(kept[p].at[i]);
        }
        float rstd = 1.0f / sqrtf(row_sum<LANES>(squares, buffer[turn]) / (float)C + out.eps);
        T *y = out.y + head_row(out.at, r);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(out.gamma + c);
            float scaled[N];
#pragma unroll
            for (int i = 0; i < N; i++) scaled[i] = to_float(kept[p].at[i]) * rstd * to_float(gamma.at[i]);
            store_pack(y + c, pack_of<T>(scaled));
        }
        if (lane == 0) out.rstd[r] = rstd;
    }
}

// Any row size and alignment: one block per row.
template <typename T, typename Source>
__global__ void __launch_bounds__(block_threads) forward_any_kernel(NormOut<T> out, Source source) {
    __shared__ float buffer[2][32];
    const int64_t C = out.at.D;
    int turn = 0;
    source.begin();
    for (int64_t r = blockIdx.x; r < out.at.rows; r += gridDim.x, turn ^= 1) {
        auto row = source.row(out.at, r);
        float squares = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float x = to_float(row.template settle<1>(c, row.template read<1>(c)).at[0]);
            squares += x * x;
        }
        float rstd = 1.0f / sqrtf(row_sum<block_threads>(squares, buffer[turn]) / (float)C + out.eps);
        T *y = out.y + head_row(out.at, r);
        for (int64_t c = threadIdx.x; c < C; c += block_threads)
            y[c] = from_float<T>(row.again(c) * rstd * to_float(out.gamma[c]));
        if (threadIdx.x == 0) out.rstd[r] = rstd;
    }
}

template <int P, int LANES, typename T, typename Source>
cudaError_t start_forward(cudaStream_t stream, const NormOut<T> &out, const Source &source) {
    int64_t needed = (out.at.rows + block_threads / LANES - 1) / (block_threads / LANES);
    int64_t limit = (int64_t)processors() * (P == 1 ? 6 : 4);
    return launch_chained(stream, forward_kernel<T, P, LANES, Source>,
                          (unsigned)(needed < limit ? needed : limit), block_threads, 0, out, source);
}

template <typename T, typename Source>
cudaError_t forward(cudaStream_t stream, const NormOut<T> &out, const Source &source, bool aligned) {
    constexpr int N = pack_size<T>;
    int64_t packs = aligned && out.at.D % N == 0 ? out.at.D / N : INT64_MAX;
    if (packs <= 32) return start_forward<1, 32>(stream, out, source);
    if (packs <= most_packs * 32) return start_forward<most_packs, 32>(stream, out, source);
    if (packs <= block_threads) return start_forward<1, block_threads>(stream, out, source);
    if (packs <= 2 * block_threads) return start_forward<2, block_threads>(stream, out, source);
    if (packs <= most_packs * block_threads)
        return start_forward<most_packs, block_threads>(stream, out, source);
    unsigned blocks = (unsigned)(out.at.rows < 1 << 30 ? out.at.rows : 1 << 30);
    forward_any_kernel<<<blocks, block_threads, 0, stream>>>(out, source);
    return cudaGetLastError();
}

// ---- backward ----

template <typename T> struct NormBackward {
    T *dx;
    const T *dy, *x, *gamma, *dres;
    const float *rstd;
    CudaHeadRows at;
    float *partial; // (blocks, D): dgamma
};

// While a row is processed, the next is being loaded, if there are registers for both.
template <int P> constexpr bool reads_ahead = P < 4;
template <int P> constexpr int backward_blocks = P == 1 ? 3 : 2; // per multiprocessor

// A thread's packs of a row.
template <typename T, int P, int LANES> struct BackwardRow {
    static constexpr int N = pack_size<T>;
    Pack<T, N> x[P], dy[P], dres[P];
    float rstd;
    __device__ void read(const NormBackward<T> &in, int64_t r) {
        const int64_t from = head_row(in.at, r);
        rstd = in.rstd[r];
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + (int)threadIdx.x % LANES) * N;
            if (c >= (int)in.at.D) continue;
            x[p] = load_pack<T, N>(in.x + from + c);
            dy[p] = load_pack<T, N>(in.dy + from + c);
            if (reads_ahead<P> && in.dres) dres[p] = load_pack<T, N>(in.dres + from + c);
        }
    }
};

// Rows in registers. dx may alias dy or dres: a thread reads the elements it writes before it writes any.
template <typename T, int P, int LANES>
__global__ void __launch_bounds__(block_threads, backward_blocks<P>) backward_kernel(NormBackward<T> in) {
    constexpr int N = pack_size<T>, ROWS = block_threads / LANES;
    extern __shared__ float sums[]; // a warp per row: (ROWS, D)
    __shared__ float buffer[2][32];
    const int C = (int)in.at.D, lane = threadIdx.x % LANES, line = threadIdx.x / LANES;
    const int64_t step = (int64_t)gridDim.x * ROWS;
    float gammas[P][N] = {};
    int turn = 0;
    BackwardRow<T, P, LANES> row, next;
    int64_t r = blockIdx.x * (int64_t)ROWS + line;
    if (reads_ahead<P> && r < in.at.rows) next.read(in, r);
    for (; r < in.at.rows; r += step, turn ^= 1) {
        if (reads_ahead<P>)
            row = next;
        else
            row.read(in, r);
        if (reads_ahead<P> && r + step < in.at.rows) next.read(in, r + step);
        const int64_t from = head_row(in.at, r);
        float total = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(in.gamma + c);
            forget(row.x[p]);
            forget(row.dy[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float each = to_float(row.dy[p].at[i]) * (to_float(row.x[p].at[i]) * row.rstd);
                total += each * to_float(gamma.at[i]);
                gammas[p][i] += each;
            }
        }
        const float factor = row.rstd * (row_sum<LANES>(total, buffer[turn]) / (float)C);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(in.gamma + c);
            if (!reads_ahead<P> && in.dres) row.dres[p] = load_pack<T, N>(in.dres + from + c);
            forget(row.x[p]);
            forget(row.dy[p]);
            if (in.dres) forget(row.dres[p]);
            float out[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                float g = to_float(row.dy[p].at[i]) * to_float(gamma.at[i]);
                float d = row.rstd * (g - to_float(row.x[p].at[i]) * factor);
                out[i] = in.dres ? d + to_float(row.dres[p].at[i]) : d;
            }
            store_pack(in.dx + from + c, pack_of<T>(out));
        }
    }
    float *to = LANES == 32 ? sums + line * C : in.partial + blockIdx.x * (int64_t)C;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int c = (p * LANES + lane) * N;
#pragma unroll
        for (int i = 0; i < N && c < C; i++) to[c + i] = gammas[p][i];
    }
    if constexpr (LANES == 32) {
        __syncthreads();
        for (int c = threadIdx.x; c < C; c += block_threads) {
            float all = sums[c];
            for (int w = 1; w < ROWS; w++) all += sums[w * C + c];
            in.partial[blockIdx.x * (int64_t)C + c] = all;
        }
    }
}

// Any row size and alignment, first step: partial sums of dgamma, each block over a share of the rows.
template <typename T> __global__ void backward_any_sums_kernel(NormBackward<T> in) {
    __shared__ float buffer[partial_lines][partial_columns];
    int64_t share = (in.at.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * share;
    int64_t to = from + share < in.at.rows ? from + share : in.at.rows;
    int64_t C = in.at.D, c = blockIdx.x * (int64_t)partial_columns + threadIdx.x;
    float gammas = 0;
    for (int64_t r = from + threadIdx.y; c < C && r < to; r += partial_lines) {
        int64_t i = head_row(in.at, r) + c;
        gammas += to_float(in.dy[i]) * (to_float(in.x[i]) * in.rstd[r]);
    }
    buffer[threadIdx.y][threadIdx.x] = gammas;
    __syncthreads();
    if (threadIdx.y != 0 || c >= C) return;
    for (int line = 1; line < partial_lines; line++) gammas += buffer[line][threadIdx.x];
    in.partial[blockIdx.y * C + c] = gammas;
}

// Second step, after the sums because dx may alias dy: dx, one block per row.
template <typename T>
__global__ void __launch_bounds__(block_threads) backward_any_kernel(NormBackward<T> in) {
    __shared__ float buffer[2][32];
    const int64_t C = in.at.D;
    int turn = 0;
    for (int64_t r = blockIdx.x; r < in.at.rows; r += gridDim.x, turn ^= 1) {
        const int64_t from = head_row(in.at, r);
        const float rstd = in.rstd[r];
        float total = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads)
            total += to_float(in.dy[from + c]) * (to_float(in.x[from + c]) * rstd) * to_float(in.gamma[c]);
        const float factor = rstd * (row_sum<block_threads>(total, buffer[turn]) / (float)C);
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float g = to_float(in.dy[from + c]) * to_float(in.gamma[c]);
            float d = rstd * (g - to_float(in.x[from + c]) * factor);
            in.dx[from + c] = from_float<T>(in.dres ? d + to_float(in.dres[from + c]) : d);
        }
    }
}

// Blocks of backward of rows of any length. Fixed, so that the order of sums is fixed, too.
constexpr int any_blocks = 64;

template <int P, int LANES, typename T> int start_backward(cudaStream_t stream, const NormBackward<T> &in) {
    constexpr int ROWS = block_threads / LANES, limit = backward_blocks<P> * NORM_WAVE;
    static_assert(2 * backward_blocks<P> <= NORM_PARTIALS, "workspace");
    int64_t needed = (in.at.rows + ROWS - 1) / ROWS;
    int blocks = (int)(needed < limit ? needed : limit);
    size_t shared = LANES == 32 ? ROWS * (size_t)in.at.D * sizeof(float) : 0;
    backward_kernel<T, P, LANES><<<blocks, block_threads, shared, stream>>>(in);
    return blocks;
}

template <typename T> int start_backward_any(cudaStream_t stream, const NormBackward<T> &in) {
    int64_t needed = (in.at.rows + partial_lines - 1) / partial_lines;
    int blocks = (int)(needed < any_blocks ? needed : any_blocks);
    dim3 shape(partial_columns, partial_lines), grid(blocks_for(in.at.D, partial_columns), (unsigned)blocks);
    backward_any_sums_kernel<<<grid, shape, 0, stream>>>(in);
    unsigned by_row = in.at.rows < 1 << 30 ? (unsigned)in.at.rows : 1 << 30;
    backward_any_kernel<<<by_row, block_threads, 0, stream>>>(in);
    return blocks;
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(cudaStream_t stream, const NormBackward<T> &in, bool aligned) {
    constexpr int N = pack_size<T>;
    int64_t packs = aligned && in.at.D % N == 0 ? in.at.D / N : INT64_MAX;
    if (packs <= 32) return start_backward<1, 32>(stream, in);
    if (packs <= 3 * 32) return start_backward<3, 32>(stream, in);
    if (packs <= most_packs * 32) return start_backward<most_packs, 32>(stream, in);
    if (packs <= block_threads) return start_backward<1, block_threads>(stream, in);
    if (packs <= 2 * block_threads) return start_backward<2, block_threads>(stream, in);
    if (packs <= most_packs * block_threads) return start_backward<most_packs, block_threads>(stream, in);
    return start_backward_any(stream, in);
}

} // namespace

cudaError_t launch_rmsnorm_forward(cudaStream_t stream, DType type, void *y, float *rstd, const void *x,
                                   const void *gamma, CudaHeadRows at, float eps) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormOut<T> out = {(T *)y, rstd, (const T *)gamma, at, eps};
        return forward(stream, out, HeadSource<T>{(const T *)x}, aligned_16(y, x, gamma));
    });
}

cudaError_t launch_dropout_add_rmsnorm(cudaStream_t stream, DType type, void *sum, void *y, float *rstd,
                                       const void *res, const void *x, const void *gamma, int64_t rows,
                                       int64_t C, float eps, int64_t positions, CudaDropout dropout) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormOut<T> out = {(T *)y, rstd, (const T *)gamma, {1, 0, 1, C, rows}, eps};
        DroppedSource<T> source = {{(T *)sum, (const T *)res, (const T *)x, dropout, positions}};
        return forward(stream, out, source, aligned_16(sum, y, res, x, gamma));
    });
}

cudaError_t launch_rmsnorm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, const void *dy,
                                    const void *x, const float *rstd, const void *gamma, const void *dres,
                                    CudaHeadRows at, float *partial) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormBackward<T> in = {(T *)dx,         (const T *)dy, (const T *)x, (const T *)gamma,
                              (const T *)dres, rstd,          at,           partial};
        int blocks = backward(stream, in, aligned_16(dx, dy, x, gamma, dres));
        cudaError_t error = cudaGetLastError();
        if (error != cudaSuccess) return error;
        return add_partials(stream, Sums{{dgamma}, at.D}, 1, partial, blocks);
    });
}
