// RMS norm: forward is in norm.cuh.
//
// Blocks of backward take many rows each and keep the sums of dgamma for their columns in registers until the
// end. Then the warps of a block are added in order, and add_partials adds the blocks; the order depends on
// the shape alone.
#include "kernels/cuda/norm.cuh"

namespace {

constexpr int most_packs = 4; // per thread of a row in registers

template <int P, int LANES, typename T, typename Source>
cudaError_t start(Stream *stream, const NormOut<true, T> &out, const Source &source) {
    return start_forward<P, LANES>(stream, out, source, P == 1 ? 6 : 4);
}

template <typename T, typename Source>
cudaError_t forward(Stream *stream, const NormOut<true, T> &out, const Source &source, bool aligned) {
    const int64_t packs = row_packs<T>(out.at.D, aligned && aligned_16(out.y, out.gamma));
    if (packs <= 32) return start<1, 32>(stream, out, source);
    if (packs <= most_packs * 32) return start<most_packs, 32>(stream, out, source);
    if (packs <= block_threads) return start<1, block_threads>(stream, out, source);
    if (packs <= 2 * block_threads) return start<2, block_threads>(stream, out, source);
    if (packs <= most_packs * block_threads) return start<most_packs, block_threads>(stream, out, source);
    return start_forward_any(stream, out, source);
}

// ---- backward ----

// While a row is processed, the next is being loaded, if there are registers for both.
template <int P> constexpr bool reads_ahead = P < 4;
template <int P> constexpr int backward_blocks = P == 1 ? 3 : 2; // per multiprocessor

// A thread's packs of a row.
template <typename T, int P, int LANES> struct BackwardRow {
    static constexpr int N = pack_size<T>;
    Pack<T, N> x[P], dy[P], dres[P];
    float rstd;
    __device__ void read(const NormBackward<true, T> &in, int64_t r) {
        const int64_t from = row_start(in.at, r, in.at.D);
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
__global__ void __launch_bounds__(block_threads, backward_blocks<P>)
    backward_kernel(NormBackward<true, T> in) {
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
        const int64_t from = row_start(in.at, r, in.at.D);
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

template <int P, int LANES, typename T> int start_backward(Stream *stream, const NormBackward<true, T> &in) {
    constexpr int ROWS = block_threads / LANES, limit = backward_blocks<P> * NORM_WAVE;
    static_assert(2 * backward_blocks<P> <= NORM_PARTIALS, "workspace");
    int64_t needed = (in.at.rows + ROWS - 1) / ROWS;
    int blocks = (int)(needed < limit ? needed : limit);
    size_t shared = LANES == 32 ? ROWS * (size_t)in.at.D * sizeof(float) : 0;
    (void)launch_kernel(stream, backward_kernel<T, P, LANES>, blocks, block_threads, shared, in);
    return blocks;
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(Stream *stream, const NormBackward<true, T> &in) {
    const int64_t packs = row_packs<T>(in.at.D, aligned_16(in.dx, in.dy, in.x, in.gamma, in.dres));
    if (packs <= 32) return start_backward<1, 32>(stream, in);
    if (packs <= 3 * 32) return start_backward<3, 32>(stream, in);
    if (packs <= most_packs * 32) return start_backward<most_packs, 32>(stream, in);
    if (packs <= block_threads) return start_backward<1, block_threads>(stream, in);
    if (packs <= 2 * block_threads) return start_backward<2, block_threads>(stream, in);
    if (packs <= most_packs * block_threads) return start_backward<most_packs, block_threads>(stream, in);
    return start_backward_any(stream, in);
}

} // namespace

Status rmsnorm_forward_cuda(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                            HeadRange heads) {
    const HeadRows at = head_rows(x, heads);
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        NormOut<true, T> out = {data<T>(y), NULL, data<float>(rstd), data<T>(gamma), NULL, at, eps};
        return forward(stream, out, PlainRows<T>{data<T>(x)}, aligned_16(x));
    }));
    return OK;
}

Status dropout_add_rmsnorm_forward_cuda(Stream *stream, Tensor sum, Tensor normed, Tensor rstd, Tensor res,
                                        Tensor y, Tensor gamma, float eps, Dropout dropout) {
    const HeadRows at = head_rows(y, HeadRange{});
    LAUNCH(with_type(y.dtype, [&](auto t) {
        using T = decltype(t);
        NormOut<true, T> out = {data<T>(normed), NULL, data<float>(rstd), data<T>(gamma), NULL, at, eps};
        return forward(stream, out, dropped_rows<T>(sum, res, y, dropout), aligned_16(sum, res, y));
    }));
    return OK;
}

Status rmsnorm_backward_cuda(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                             Tensor gamma, Tensor dres, HeadRange heads) {
    const HeadRows at = head_rows(x, heads);
    int blocks = 0;
    void *workspace;
    TRY(stream_workspace(stream, rmsnorm_backward_bytes(at.D), &workspace));
    float *partial = (float *)workspace;
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        NormBackward<true, T> in = {data<T>(dx), data<T>(dy),       data<T>(x), data<T>(gamma), data<T>(dres),
                                    NULL,        data<float>(rstd), at,         partial};
        blocks = backward(stream, in);
        return cudaGetLastError();
    }));
    LAUNCH(add_partials(stream, Sums{{data<float>(dgamma)}, at.D}, 1, partial, blocks));
    return OK;
}
