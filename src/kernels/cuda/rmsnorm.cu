// RMS norm: forward is in norm.cuh, except that of narrow rows.
//
// Narrow rows, such as heads, have up to one 16-byte pack for each thread of a warp, so several may share a
// warp. A thread loads packs of several rows before it uses the first: one pack does not hide the latency.
//
// Blocks of backward take many rows each and keep the sums of dgamma for their columns in registers until the
// end. Then the warps of a block are added in order, and add_partials adds the blocks; the order depends on
// the shape alone.
#include "kernels/cuda/norm.cuh"

namespace {

constexpr int most_packs = 4; // per thread of a row in registers

// ---- narrow rows ----

// Whether rows are narrow and their numbers fit in 32 bits, whose division is much faster.
inline bool is_narrow(const HeadRows &at, int64_t packs) {
    return packs <= 32 && at.rows <= UINT32_MAX;
}
__device__ inline int64_t narrow_start(const HeadRows &at, int64_t r) {
    const uint32_t token = (uint32_t)r / (uint32_t)at.count;
    return (r + token * (at.heads - at.count) + at.first) * at.D;
}

// Calls body(Int<LANES>{}) with the number of threads that share a narrow row.
template <typename Body> inline auto with_lanes(int64_t packs, Body body) {
    if (packs <= 4) return body(Int<4>{});
    if (packs <= 8) return body(Int<8>{});
    if (packs <= 16) return body(Int<16>{});
    return body(Int<32>{});
}

// Narrow rows that a block has side by side, and how many of them, this far apart, a thread takes at a time.
template <int LANES> constexpr int narrow_lines = block_threads / LANES;
constexpr int forward_each = 4, backward_each = 2;

// A pack as words: the compiler would separate the elements of one that may be 0 where it is loaded, and
// wait for the load there.
template <typename T> __device__ inline uint4 load_words(const T *from) {
    return *reinterpret_cast<const uint4 *>(from);
}
template <typename T> __device__ inline Pack<T, pack_size<T>> pack_in(const uint4 &words) {
    auto pack = *reinterpret_cast<const Pack<T, pack_size<T>> *>(&words);
    forget(pack);
    return pack;
}

// y may alias the source.
template <typename T, int LANES>
__global__ void __launch_bounds__(block_threads)
    narrow_forward_kernel(NormOut<true, T> out, PlainRows<T> source) {
    constexpr int N = pack_size<T>, ROWS = forward_each * narrow_lines<LANES>;
    const int C = (int)out.at.D, column = threadIdx.x % LANES * N;
    const int64_t first = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES;
    const int64_t end = column < C ? out.at.rows : 0; // of the thread's rows
    const float share = 1.0f / (float)C;
    uint4 words[forward_each] = {};
    Pack<T, N> gamma = {};
    chain_next();
    chain_wait();
#pragma unroll
    for (int i = 0; i < forward_each; i++) {
        const int64_t r = first + i * narrow_lines<LANES>;
        if (r < end) words[i] = load_words(source.x + narrow_start(out.at, r) + column);
    }
    if (first < end) gamma = load_pack<T, N>(out.gamma + column);
#pragma unroll
    for (int i = 0; i < forward_each; i++) {
        const int64_t r = first + i * narrow_lines<LANES>;
        float squares = 0, y[N];
        Pack<T, N> x = pack_in<T>(words[i]);
#pragma unroll
        for (int k = 0; k < N; k++) squares += to_float(x.at[k]) * to_float(x.at[k]);
        const float rstd = 1.0f / sqrtf(lanes_sum<LANES>(squares) * share + out.eps);
        if (r >= end) continue;
        forget(x);
#pragma unroll
        for (int k = 0; k < N; k++)
            y[k] = norm_value<true>(to_float(x.at[k]), 0, rstd, to_float(gamma.at[k]), 0);
        store_pack(out.y + narrow_start(out.at, r) + column, pack_of<T>(y));
        if (column == 0) out.rstd[r] = rstd;
    }
}

// A thread's packs of the rows of one turn; 0 past the last row or column.
template <typename T, int LANES> struct NarrowRows {
    uint4 x[backward_each], dy[backward_each];
    float rstd[backward_each];
    __device__ void read(const NormBackward<true, T> &in, int64_t first, int64_t end, int column) {
#pragma unroll
        for (int i = 0; i < backward_each; i++) {
            const int64_t r = first + i * narrow_lines<LANES>;
            x[i] = {}, dy[i] = {}, rstd[i] = 0;
            if (r >= end) continue;
            const int64_t from = narrow_start(in.at, r) + column;
            x[i] = load_words(in.x + from);
            dy[i] = load_words(in.dy + from);
            rstd[i] = in.rstd[r];
        }
    }
};

// Adds the sums of the threads with the same column, in order, and stores them as a line of in.partial.
template <int LANES, typename T, int N>
__device__ inline void narrow_sums(const NormBackward<true, T> &in, float (&gammas)[N], int column) {
    extern __shared__ float sums[]; // (warps, D)
    const int C = (int)in.at.D, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int lane = LANES; lane < 32; lane *= 2) gammas[i] += __shfl_xor_sync(full_warp, gammas[i], lane);
        if (threadIdx.x % 32 < LANES && column < C) sums[warp * C + column + i] = gammas[i];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < C; c += block_threads) {
        float all = sums[c];
        for (int w = 1; w < block_threads / 32; w++) all += sums[w * C + c];
        in.partial[blockIdx.x * (int64_t)C + c] = all;
    }
}

// While rows are processed, the next are being loaded. dx may alias dy or dres.
template <typename T, int LANES>
__global__ void __launch_bounds__(block_threads, NORM_PARTIALS / 2)
    narrow_backward_kernel(NormBackward<true, T> in) {
    constexpr int N = pack_size<T>, ROWS = backward_each * narrow_lines<LANES>;
    const int C = (int)in.at.D, column = threadIdx.x % LANES * N;
    const int64_t step = (int64_t)gridDim.x * ROWS, end = column < C ? in.at.rows : 0;
    const float share = 1.0f / (float)C;
    float gammas[N] = {};
    Pack<T, N> gamma = {};
    NarrowRows<T, LANES> row, next;
    chain_next();
    chain_wait();
    if (column < C) gamma = load_pack<T, N>(in.gamma + column);
    int64_t base = blockIdx.x * (int64_t)ROWS; // the same for the block, whose threads take part in all sums
    next.read(in, base + threadIdx.x / LANES, end, column);
    for (; base < in.at.rows; base += step) {
        const int64_t first = base + threadIdx.x / LANES;
        row = next;
        next.read(in, first + step, end, column);
#pragma unroll
        for (int i = 0; i < backward_each; i++) {
            const int64_t r = first + i * narrow_lines<LANES>;
            float total = 0, out[N];
            Pack<T, N> x = pack_in<T>(row.x[i]), dy = pack_in<T>(row.dy[i]);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float each = to_float(dy.at[k]) * (to_float(x.at[k]) * row.rstd[i]);
                total += each * to_float(gamma.at[k]);
                gammas[k] += each;
            }
            const float factor = row.rstd[i] * (lanes_sum<LANES>(total) * share);
            if (r >= end) continue;
            const int64_t from = narrow_start(in.at, r) + column;
            Pack<T, N> dres = {};
            if (in.dres) dres = load_pack<T, N>(in.dres + from);
            forget(x);
            forget(dy);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float g = to_float(dy.at[k]) * to_float(gamma.at[k]);
                const float d = row.rstd[i] * (g - to_float(x.at[k]) * factor);
                out[k] = in.dres ? d + to_float(dres.at[k]) : d;
            }
            store_pack(in.dx + from, pack_of<T>(out));
        }
    }
    narrow_sums<LANES>(in, gammas, column);
}

// ---- forward ----

template <int P, int LANES, typename T, typename Source>
cudaError_t start(Stream *stream, const NormOut<true, T> &out, const Source &source) {
    return start_forward<P, LANES>(stream, out, source, P == 1 ? 6 : 4);
}

template <typename T, typename Source>
cudaError_t forward(Stream *stream, const NormOut<true, T> &out, const Source &source, bool aligned) {
    const int64_t packs = row_packs<T>(out.at.D, aligned && aligned_16(out.y, out.gamma));
    if constexpr (std::is_same_v<Source, PlainRows<T>>) {
        if (is_narrow(out.at, packs))
            return with_lanes(packs, [&](auto lanes) {
                constexpr int LANES = decltype(lanes)::value;
                return launch_chained(stream, narrow_forward_kernel<T, LANES>,
                                      blocks_for(out.at.rows, forward_each * narrow_lines<LANES>),
                                      block_threads, 0, out, source);
            });
    } else {
        if (packs <= 32) return start<1, 32>(stream, out, source);
    }
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

template <typename T>
int start_narrow_backward(Stream *stream, const NormBackward<true, T> &in, int64_t packs) {
    return with_lanes(packs, [&](auto lanes) {
        constexpr int LANES = decltype(lanes)::value, limit = NORM_PARTIALS / 2 * NORM_WAVE;
        const int64_t needed = gpu_tiles(in.at.rows, backward_each * narrow_lines<LANES>);
        const int blocks = (int)(needed < limit ? needed : limit);
        const size_t shared = block_threads / 32 * (size_t)in.at.D * sizeof(float);
        (void)launch_chained(stream, narrow_backward_kernel<T, LANES>, blocks, block_threads, shared, in);
        return blocks;
    });
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(Stream *stream, const NormBackward<true, T> &in) {
    const int64_t packs = row_packs<T>(in.at.D, aligned_16(in.dx, in.dy, in.x, in.gamma, in.dres));
    if (is_narrow(in.at, packs)) return start_narrow_backward(stream, in, packs);
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
