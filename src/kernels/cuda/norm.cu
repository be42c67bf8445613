// Layer norm. A warp keeps its row in registers, or a block does if the row is longer, so that a row is
// read once. P is the number of 16-byte packs per thread. Rows that are longer still, or whose size or
// address does not allow 16-byte accesses, are read again for each step, element by element.
//
// Blocks of backward take many rows each and keep the sums of dgamma and dbeta for their columns in
// registers until the end. Then the warps of a block are added in order, and add_partials adds the blocks;
// the order depends on the shape alone. Because registers are full of these sums, the rows of a warp are in
// shared memory, where the next row is loaded while one is processed.
//
// Backward can also sum the columns of dx and of dres, which are bias gradients of the layers around the
// norm: that takes registers instead of another pass over memory.
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row.cuh"

namespace {

constexpr int block_threads = 256; // threads of a block that shares a row

// ---- forward ----

template <typename T> struct NormOut {
    T *y;
    float *mean, *rstd;
    const T *gamma, *beta;
    int64_t rows, C;
    float eps;
};

// Blocks per multiprocessor, from an estimate of the registers they need: for packs as loaded and as kept,
// plus an empirical remainder.
template <typename T, int P, typename Source> constexpr int forward_blocks() {
    constexpr int packs = P * (1 + (int)sizeof(typename Source::template Raw<pack_size<T>>) / 16);
    constexpr int registers = packs * 4 * 9 / 8 + 36, blocks = 65536 / block_threads / registers;
    return blocks < 4 ? blocks : 4;
}

// Source provides rows: PlainRows or DroppedRows. While a row is processed, the next is being loaded.
template <typename T, int P, int LANES, typename Source>
__global__ void __launch_bounds__(block_threads, forward_blocks<T, P, Source>())
    forward_kernel(NormOut<T> out, Source source) {
    constexpr int N = pack_size<T>, ROWS = block_threads / LANES;
    __shared__ float buffer[2][32];
    const int C = (int)out.C, lane = threadIdx.x % LANES;
    const int64_t step = (int64_t)gridDim.x * ROWS;
    typename Source::template Raw<N> raw[P];
    Pack<T, N> kept[P];
    auto read = [&](int64_t r) {
        auto row = source.row(r, C);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            raw[p] = row.template read<N>(c);
            keep_words(raw[p]);
        }
    };
    int64_t r = blockIdx.x * (int64_t)ROWS + threadIdx.x / LANES;
    source.begin();
    chain_next();
    chain_wait();
    if (r < out.rows) read(r);
    for (; r < out.rows; r += step) {
        auto row = source.row(r, C);
        float total = 0, squares = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            kept[p] = row.template settle<N>(c, raw[p]);
            forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++) total += to_float(kept[p].at[i]);
        }
        if (r + step < out.rows) read(r + step);
        float mean = row_sum<LANES>(total, buffer[0]) / (float)C;
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
        float rstd = 1.0f / sqrtf(row_sum<LANES>(squares, buffer[1]) / (float)C + out.eps);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(out.gamma + c), beta = load_pack<T, N>(out.beta + c);
            float y[N];
            forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float normed = (to_float(kept[p].at[i]) - mean) * rstd;
                y[i] = normed * to_float(gamma.at[i]) + to_float(beta.at[i]);
            }
            store_pack(out.y + r * C + c, pack_of<T>(y));
        }
        if (lane == 0) {
            out.mean[r] = mean;
            out.rstd[r] = rstd;
        }
    }
}

// Any row size and alignment: one block per row.
template <typename T, typename Source>
__global__ void __launch_bounds__(block_threads) forward_any_kernel(NormOut<T> out, Source source) {
    __shared__ float buffer[2][32];
    const int64_t C = out.C;
    source.begin();
    for (int64_t r = blockIdx.x; r < out.rows; r += gridDim.x) {
        auto row = source.row(r, C);
        float total = 0, squares = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads)
            total += to_float(row.template settle<1>(c, row.template read<1>(c)).at[0]);
        float mean = row_sum<block_threads>(total, buffer[0]) / (float)C;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float off = row.again(c) - mean;
            squares += off * off;
        }
        float rstd = 1.0f / sqrtf(row_sum<block_threads>(squares, buffer[1]) / (float)C + out.eps);
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float normed = (row.again(c) - mean) * rstd;
            out.y[r * C + c] = from_float<T>(normed * to_float(out.gamma[c]) + to_float(out.beta[c]));
        }
        if (threadIdx.x == 0) {
            out.mean[r] = mean;
            out.rstd[r] = rstd;
        }
    }
}

template <int P, int LANES, typename T, typename Source>
cudaError_t start_forward(cudaStream_t stream, const NormOut<T> &out, const Source &source) {
    int64_t needed = (out.rows + block_threads / LANES - 1) / (block_threads / LANES);
    int64_t limit = (int64_t)processors() * forward_blocks<T, P, Source>();
    unsigned blocks = (unsigned)(needed < limit ? needed : limit);
    return launch_chained(stream, forward_kernel<T, P, LANES, Source>, blocks, block_threads, 0, out, source);
}

template <typename T, typename Source>
cudaError_t forward(cudaStream_t stream, const NormOut<T> &out, const Source &source, bool aligned) {
    constexpr int N = pack_size<T>;
    int64_t packs = aligned && out.C % N == 0 ? out.C / N : INT64_MAX;
    if (packs <= 2 * 32) return start_forward<2, 32>(stream, out, source);
    if (packs <= 3 * 32) return start_forward<3, 32>(stream, out, source);
    if (packs <= 4 * 32) return start_forward<4, 32>(stream, out, source);
    if (packs <= 5 * 32) return start_forward<5, 32>(stream, out, source);
    if (packs <= 7 * 32) return start_forward<7, 32>(stream, out, source);
    if (packs <= 2 * block_threads) return start_forward<2, block_threads>(stream, out, source);
    if (packs <= 7 * block_threads) return start_forward<7, block_threads>(stream, out, source);
    forward_any_kernel<<<(unsigned)(out.rows < 1 << 30 ? out.rows : 1 << 30), block_threads, 0, stream>>>(
        out, source);
    return cudaGetLastError();
}

// ---- backward ----

template <typename T> struct NormBackward {
    T *dx;
    const T *dy, *x, *gamma, *dres;
    const float *mean, *rstd;
    int64_t rows, C;
    float *partial; // (blocks, sums, C): dgamma, dbeta, then those of dx and dres
};

// The gradient through the norm for g = dy * gamma and the normalized value n.
__device__ inline float norm_gradient(float g, float n, float mean_g, float mean_gn, float rstd) {
    return rstd * (g - mean_g - n * mean_gn);
}

// A lane's packs of a row in shared memory, LANES apart; it copies and reads only its own.
template <typename T, int P, int LANES> struct SharedRow {
    static constexpr int N = pack_size<T>;
    Pack<T, N> *x, *dy, *dres;
    __device__ SharedRow(Pack<T, N> *at, bool with_dres)
        : x(at), dy(at + P * LANES), dres(with_dres ? at + 2 * P * LANES : nullptr) {}
    __device__ void fetch(const NormBackward<T> &in, int64_t r) const {
        const int C = (int)in.C, lane = threadIdx.x % LANES;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c >= C) continue;
            copy_async16(x + p * LANES, in.x + r * C + c);
            copy_async16(dy + p * LANES, in.dy + r * C + c);
            if (dres) copy_async16(dres + p * LANES, in.dres + r * C + c);
        }
    }
};

// The sums of two values over the threads of a row: a warp, or two of them, which exchange theirs through
// `buffer`. Buffers of consecutive rows must alternate, as those of row_sum do.
template <int LANES> __device__ inline float2 row_sums(float a, float b, float2 *buffer) {
    static_assert(LANES == 32 || LANES == 64, "one warp or two");
    float2 own = make_float2(warp_sum(a), warp_sum(b));
    if constexpr (LANES == 32) return own;
    if (threadIdx.x % 32 == 0) buffer[threadIdx.x / 32] = own;
    asm volatile("bar.sync %0, 64;" ::"r"(1 + threadIdx.x / 64) : "memory");
    float2 first = buffer[threadIdx.x / 64 * 2], second = buffer[threadIdx.x / 64 * 2 + 1];
    return make_float2(first.x + second.x, first.y + second.y);
}

// What a lane has of the block's column sums: dgamma, dbeta, then those of dx and of dres.
template <typename T, int P, int SUMS> using LaneSums = float[SUMS][P][pack_size<T>];

// The first pass over a row adds to dgamma and dbeta. Returns the lane's part of the row's sums of dy * gamma
// and of that times the normalized value.
template <typename T, int P, int LANES, int SUMS>
__device__ __forceinline__ float2 first_pass(const NormBackward<T> &in, const SharedRow<T, P, LANES> &row,
                                             float mean, float rstd, LaneSums<T, P, SUMS> &sum) {
    constexpr int N = pack_size<T>;
    const int C = (int)in.C, lane = threadIdx.x % LANES;
    float total_g = 0, total_gn = 0;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int c = (p * LANES + lane) * N;
        if (c >= C) continue;
        Pack<T, N> x = row.x[p * LANES], dy = row.dy[p * LANES], gamma = load_pack<T, N>(in.gamma + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float n = (to_float(x.at[i]) - mean) * rstd, d = to_float(dy.at[i]);
            float g = d * to_float(gamma.at[i]);
            total_g += g;
            total_gn += g * n;
            sum[0][p][i] += d * n;
            sum[1][p][i] += d;
        }
    }
    return make_float2(total_g, total_gn);
}

// The second pass writes row r of dx, with the sums that first_pass returned, now of the whole row.
template <typename T, int P, int LANES, int SUMS>
__device__ __forceinline__ void second_pass(const NormBackward<T> &in, const SharedRow<T, P, LANES> &row,
                                            int64_t r, float mean, float rstd, float2 total,
                                            LaneSums<T, P, SUMS> &sum) {
    constexpr int N = pack_size<T>;
    const int C = (int)in.C, lane = threadIdx.x % LANES;
    const float mean_g = total.x / (float)C, mean_gn = total.y / (float)C;
    const float rest = rstd * mean_g, factor = rstd * rstd * mean_gn;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int c = (p * LANES + lane) * N;
        if (c >= C) continue;
        Pack<T, N> x = row.x[p * LANES], dy = row.dy[p * LANES], gamma = load_pack<T, N>(in.gamma + c);
        Pack<T, N> dres;
        if (in.dres) dres = row.dres[p * LANES];
        float out[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            float g = to_float(dy.at[i]) * to_float(gamma.at[i]);
            float d = fmaf(g, rstd, -rest) - (to_float(x.at[i]) - mean) * factor;
            out[i] = in.dres ? d + to_float(dres.at[i]) : d;
        }
        Pack<T, N> rounded = pack_of<T>(out);
        store_pack(in.dx + r * C + c, rounded);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (SUMS > 2) sum[2][p][i] += to_float(rounded.at[i]);
            if constexpr (SUMS > 3) sum[3][p][i] += to_float(dres.at[i]);
        }
    }
}

// Adds the sums of a block's rows in order, through shared memory, and writes them to in.partial.
template <typename T, int P, int LANES, int SUMS, int THREADS>
__device__ __forceinline__ void add_rows(const NormBackward<T> &in, const LaneSums<T, P, SUMS> &sum,
                                         float *sums) {
    constexpr int N = pack_size<T>, ROWS = THREADS / LANES;
    const int C = (int)in.C, lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * LANES + lane) * N;
            if (c < C) store_pack(sums + (own * SUMS + s) * C + c, pack_of<float>(sum[s][p]));
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SUMS * C; i += THREADS) {
        float total = sums[i];
#pragma unroll
        for (int w = 1; w < ROWS; w++) total += sums[w * SUMS * C + i];
        in.partial[blockIdx.x * SUMS * (int64_t)C + i] = total;
    }
}

// LANES threads per row, one warp or two, with two rows of inputs in shared memory. dx may alias dy or
// dres: a lane reads the elements it writes before it writes any. SUMS is the number of column sums: 2, 3
// with that of dx, 4 with that of dres, too.
template <typename T, int P, int LANES, int SUMS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) backward_warp_kernel(NormBackward<T> in) {
    constexpr int N = pack_size<T>, ROWS = THREADS / LANES;
    using Row = SharedRow<T, P, LANES>;
    extern __shared__ uint4 shared[];
    __shared__ float2 totals[2][THREADS / 32];
    const int lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
    const int line = (in.dres ? 3 : 2) * P * LANES; // packs per row
    const int64_t step = (int64_t)gridDim.x * ROWS;
    Pack<T, N> *own_rows = reinterpret_cast<Pack<T, N> *>(shared) + own * 2 * line + lane;
    float next_mean = 0, next_rstd = 0;
    LaneSums<T, P, SUMS> sum = {};
    int64_t r = blockIdx.x * (int64_t)ROWS + own;
    chain_next();
    chain_wait();
    if (r < in.rows) {
        Row(own_rows, in.dres).fetch(in, r);
        next_mean = in.mean[r];
        next_rstd = in.rstd[r];
    }
    copy_group();
    for (int turn = 0; r < in.rows; r += step, turn ^= 1) {
        const float mean = next_mean, rstd = next_rstd;
        if (r + step < in.rows) {
            Row(own_rows + (turn ^ 1) * line, in.dres).fetch(in, r + step);
            next_mean = in.mean[r + step];
            next_rstd = in.rstd[r + step];
        }
        copy_group();
        copy_wait<1>();
        const Row row(own_rows + turn * line, in.dres);
        float2 part = first_pass<T, P, LANES, SUMS>(in, row, mean, rstd, sum);
        float2 total = row_sums<LANES>(part.x, part.y, totals[turn]);
        // The second pass reloads its inputs: keeping those of the first pass would take too many
        // registers.
        asm volatile("" ::: "memory");
        second_pass<T, P, LANES, SUMS>(in, row, r, mean, rstd, total, sum);
    }
    // No copy is in flight any more, and the sums of a warp fit its shared memory.
    __syncthreads();
    add_rows<T, P, LANES, SUMS, THREADS>(in, sum, reinterpret_cast<float *>(shared));
}

// One block per row, which it keeps in registers. dx may alias dy or dres, as above.
template <typename T, int P, int BLOCKS>
__global__ void __launch_bounds__(block_threads, BLOCKS) backward_block_kernel(NormBackward<T> in) {
    constexpr int N = pack_size<T>;
    __shared__ float buffer[2][32];
    const int64_t C = in.C;
    float gammas[P][N] = {}, betas[P][N] = {};
    for (int64_t r = blockIdx.x; r < in.rows; r += gridDim.x) {
        Pack<T, N> x[P], dy[P], dres[P];
        float mean = in.mean[r], rstd = in.rstd[r], total_g = 0, total_gn = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * block_threads + threadIdx.x) * N;
            if (c >= C) continue;
            x[p] = load_pack<T, N>(in.x + r * C + c);
            dy[p] = load_pack<T, N>(in.dy + r * C + c);
            if (in.dres) dres[p] = load_pack<T, N>(in.dres + r * C + c);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * block_threads + threadIdx.x) * N;
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
        float mean_g = row_sum<block_threads>(total_g, buffer[0]) / (float)C;
        float mean_gn = row_sum<block_threads>(total_gn, buffer[1]) / (float)C;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int64_t c = (int64_t)(p * block_threads + threadIdx.x) * N;
            if (c >= C) continue;
            Pack<T, N> gamma = load_pack<T, N>(in.gamma + c), out;
            forget(x[p]);
            forget(dy[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float n = (to_float(x[p].at[i]) - mean) * rstd;
                float g = to_float(dy[p].at[i]) * to_float(gamma.at[i]);
                float d = norm_gradient(g, n, mean_g, mean_gn, rstd);
                out.at[i] = from_float<T>(in.dres ? d + to_float(dres[p].at[i]) : d);
            }
            store_pack(in.dx + r * C + c, out);
        }
    }
    float *partial = in.partial + blockIdx.x * 2 * C;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int64_t c = (int64_t)(p * block_threads + threadIdx.x) * N;
        if (c >= C) continue;
#pragma unroll
        for (int i = 0; i < N; i++) {
            partial[c + i] = gammas[p][i];
            partial[C + c + i] = betas[p][i];
        }
    }
}

// Any row size and alignment, first step: column sums of blockIdx.y's share of the rows.
template <typename T> __global__ void backward_any_sums_kernel(NormBackward<T> in) {
    __shared__ float buffer[2][partial_lines][partial_columns];
    int64_t share = (in.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * share;
    int64_t to = from + share < in.rows ? from + share : in.rows;
    int64_t C = in.C, c = blockIdx.x * (int64_t)partial_columns + threadIdx.x;
    float gammas = 0, betas = 0;
    for (int64_t r = from + threadIdx.y; c < C && r < to; r += partial_lines) {
        float d = to_float(in.dy[r * C + c]);
        gammas += d * ((to_float(in.x[r * C + c]) - in.mean[r]) * in.rstd[r]);
        betas += d;
    }
    buffer[0][threadIdx.y][threadIdx.x] = gammas;
    buffer[1][threadIdx.y][threadIdx.x] = betas;
    __syncthreads();
    if (threadIdx.y != 0 || c >= C) return;
    for (int line = 1; line < partial_lines; line++) {
        gammas += buffer[0][line][threadIdx.x];
        betas += buffer[1][line][threadIdx.x];
    }
    in.partial[blockIdx.y * 2 * C + c] = gammas;
    in.partial[blockIdx.y * 2 * C + C + c] = betas;
}

// Second step, after the sums because dx may alias dy: dx, one block per row.
template <typename T>
__global__ void __launch_bounds__(block_threads) backward_any_kernel(NormBackward<T> in) {
    __shared__ float buffer[2][32];
    const int64_t C = in.C;
    for (int64_t r = blockIdx.x; r < in.rows; r += gridDim.x) {
        const T *x = in.x + r * C, *dy = in.dy + r * C;
        float mean = in.mean[r], rstd = in.rstd[r], total_g = 0, total_gn = 0;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float g = to_float(dy[c]) * to_float(in.gamma[c]);
            total_g += g;
            total_gn += g * ((to_float(x[c]) - mean) * rstd);
        }
        float mean_g = row_sum<block_threads>(total_g, buffer[0]) / (float)C;
        float mean_gn = row_sum<block_threads>(total_gn, buffer[1]) / (float)C;
        for (int64_t c = threadIdx.x; c < C; c += block_threads) {
            float g = to_float(dy[c]) * to_float(in.gamma[c]), n = (to_float(x[c]) - mean) * rstd;
            float d = norm_gradient(g, n, mean_g, mean_gn, rstd);
            in.dx[r * C + c] = from_float<T>(in.dres ? d + to_float(in.dres[r * C + c]) : d);
        }
    }
}

// Blocks of backward of rows of any length. Fixed, so that the order of sums is fixed, too.
constexpr int any_blocks = 64;

template <int P, int LANES, int SUMS, int THREADS, int BLOCKS, typename T>
int start_backward_warps(cudaStream_t stream, const NormBackward<T> &in) {
    constexpr int ROWS = THREADS / LANES, limit = BLOCKS * NORM_WAVE;
    static_assert(SUMS * BLOCKS <= (SUMS > 2 ? NORM_SUM_PARTIALS : NORM_PARTIALS), "workspace");
    int64_t needed = (in.rows + ROWS - 1) / ROWS;
    int blocks = (int)(needed < limit ? needed : limit);
    size_t rows = 2 * (in.dres ? 3 : 2) * P * LANES * 16, sums = SUMS * (size_t)in.C * sizeof(float);
    size_t shared = ROWS * (rows > sums ? rows : sums);
    auto kernel = backward_warp_kernel<T, P, LANES, SUMS, THREADS, BLOCKS>;
    // If one of these fails, the error is detected after the launch.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    (void)launch_chained(stream, kernel, blocks, THREADS, shared, in);
    return blocks;
}

template <int P, int BLOCKS, typename T>
int start_backward_blocks(cudaStream_t stream, const NormBackward<T> &in) {
    constexpr int limit = BLOCKS * NORM_WAVE;
    int blocks = (int)(in.rows < limit ? in.rows : limit);
    backward_block_kernel<T, P, BLOCKS><<<blocks, block_threads, 0, stream>>>(in);
    return blocks;
}

template <typename T> int start_backward_any(cudaStream_t stream, const NormBackward<T> &in) {
    dim3 shape(partial_columns, partial_lines);
    int64_t needed = (in.rows + partial_lines - 1) / partial_lines;
    int blocks = (int)(needed < any_blocks ? needed : any_blocks);
    dim3 grid(blocks_for(in.C, partial_columns), (unsigned)blocks);
    backward_any_sums_kernel<<<grid, shape, 0, stream>>>(in);
    unsigned by_block = in.rows < 1 << 30 ? (unsigned)in.rows : 1 << 30;
    backward_any_kernel<<<by_block, block_threads, 0, stream>>>(in);
    return blocks;
}

// 16-byte packs in a row; INT64_MAX if it does not allow such accesses.
template <typename T> int64_t row_packs(const NormBackward<T> &in) {
    bool aligned = aligned_16(in.dx, in.dy, in.x, in.gamma, in.dres);
    return aligned && in.C % pack_size<T> == 0 ? in.C / pack_size<T> : INT64_MAX;
}

// With column sums of dx and, if SUMS is 4, of dres. Returns as `backward`; 0 if rows are too long.
template <int SUMS, typename T> int backward_sums(cudaStream_t stream, const NormBackward<T> &in) {
    const int64_t packs = row_packs(in);
    constexpr int few = SUMS == 4 ? 256 : 384;
    if (packs <= 2 * 32) return start_backward_warps<2, 32, SUMS, 256, 2>(stream, in);
    if (packs <= 3 * 32) return start_backward_warps<3, 32, SUMS, 384, 1>(stream, in);
    if (packs <= 2 * 64) return start_backward_warps<2, 64, SUMS, 256, 2>(stream, in);
    if (packs <= 5 * 32) return start_backward_warps<5, 32, SUMS, few, 1>(stream, in);
    return 0;
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(cudaStream_t stream, const NormBackward<T> &in) {
    const int64_t packs = row_packs(in);
    if (packs <= 1 * 32) return start_backward_warps<1, 32, 2, 256, 3>(stream, in);
    if (packs <= 2 * 32) return start_backward_warps<2, 32, 2, 256, 3>(stream, in);
    if (packs <= 3 * 32) return start_backward_warps<3, 32, 2, 256, 2>(stream, in);
    if (packs <= 2 * 64) return start_backward_warps<2, 64, 2, 256, 3>(stream, in);
    if (packs <= 5 * 32) return start_backward_warps<5, 32, 2, 128, 3>(stream, in);
    if (packs <= 7 * 32) return start_backward_warps<7, 32, 2, 128, 2>(stream, in);
    if (packs <= 2 * block_threads) return start_backward_blocks<2, 2>(stream, in);
    if (packs <= 4 * block_threads) return start_backward_blocks<4, 1>(stream, in);
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

cudaError_t launch_norm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, float *dbeta,
                                 const void *dy, const void *x, const float *mean, const float *rstd,
                                 const void *gamma, const void *dres, int64_t rows, int64_t C,
                                 CudaNormSums sums, float *partial) {
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        NormBackward<T> in = {
            (T *)dx, (const T *)dy, (const T *)x, (const T *)gamma, (const T *)dres, mean, rstd, rows,
            C,       partial};
        int blocks = 0, lines = sums.dres ? 4 : sums.dx ? 3 : 2;
        cudaError_t error = cudaSuccess;
        if (lines == 3) blocks = backward_sums<3>(stream, in);
        if (lines == 4) blocks = backward_sums<4>(stream, in);
        const bool apart = blocks == 0;
        if (apart && sums.dres) // before dx, which may overwrite it
            error = launch_column_sums(stream, sums.dres, type, dres, rows, C, partial);
        if (apart) blocks = backward(stream, in), lines = 2;
        if (error == cudaSuccess) error = cudaGetLastError();
        if (error != cudaSuccess) return error;
        Sums to = {{dgamma, dbeta, sums.dx, sums.dres}, C};
        error = add_partials(stream, to, lines, partial, blocks);
        if (error != cudaSuccess || !apart || !sums.dx) return error;
        return launch_column_sums(stream, sums.dx, type, dx, rows, C, partial);
    });
}
