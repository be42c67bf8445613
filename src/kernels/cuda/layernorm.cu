// Layer norm: forward is in norm.cuh.
//
// Blocks of backward take many rows each and keep the sums of dgamma and dbeta for their columns in
// registers until the end. Then the warps of a block are added in order, and add_partials adds the blocks;
// the order depends on the shape alone. Because registers are full of these sums, the rows of a warp are in
// shared memory, where the next row is loaded while one is processed.
//
// Backward can also sum the columns of dx and of dres, which are bias gradients of the layers around the
// norm: that takes registers instead of another pass over memory.
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/ptx.cuh"

namespace {

template <int P, int LANES, typename T, typename Source>
cudaError_t start(Stream *stream, const NormOut<false, T> &out, const Source &source) {
    return start_forward<P, LANES>(stream, out, source, forward_blocks<false, T, P, Source>());
}

template <typename T, typename Source>
cudaError_t forward(Stream *stream, const NormOut<false, T> &out, const Source &source, bool aligned) {
    const int64_t packs = row_packs<T>(out.at.D, aligned && aligned_16(out.y, out.gamma, out.beta));
    if (packs <= 2 * 32) return start<2, 32>(stream, out, source);
    if (packs <= 3 * 32) return start<3, 32>(stream, out, source);
    if (packs <= 4 * 32) return start<4, 32>(stream, out, source);
    if (packs <= 5 * 32) return start<5, 32>(stream, out, source);
    if (packs <= 7 * 32) return start<7, 32>(stream, out, source);
    if (packs <= 2 * block_threads) return start<2, block_threads>(stream, out, source);
    if (packs <= 7 * block_threads) return start<7, block_threads>(stream, out, source);
    return start_forward_any(stream, out, source);
}

// A lane's packs of a row in shared memory, LANES apart; it copies and reads only its own.
template <typename T, int P, int LANES> struct SharedRow {
    static constexpr int N = pack_size<T>;
    Pack<T, N> *x, *dy, *dres;
    __device__ SharedRow(Pack<T, N> *at, bool with_dres)
        : x(at), dy(at + P * LANES), dres(with_dres ? at + 2 * P * LANES : nullptr) {}
    __device__ void fetch(const NormBackward<false, T> &in, int64_t r) const {
        const int C = (int)in.at.D, lane = threadIdx.x % LANES;
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
__device__ __forceinline__ float2 first_pass(const NormBackward<false, T> &in,
                                             const SharedRow<T, P, LANES> &row, float mean, float rstd,
                                             LaneSums<T, P, SUMS> &sum) {
    constexpr int N = pack_size<T>;
    const int C = (int)in.at.D, lane = threadIdx.x % LANES;
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
__device__ __forceinline__ void second_pass(const NormBackward<false, T> &in,
                                            const SharedRow<T, P, LANES> &row, int64_t r, float mean,
                                            float rstd, float2 total, LaneSums<T, P, SUMS> &sum) {
    constexpr int N = pack_size<T>;
    const int C = (int)in.at.D, lane = threadIdx.x % LANES;
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
__device__ __forceinline__ void add_rows(const NormBackward<false, T> &in, const LaneSums<T, P, SUMS> &sum,
                                         float *sums) {
    constexpr int N = pack_size<T>, ROWS = THREADS / LANES;
    const int C = (int)in.at.D, lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
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
__global__ void __launch_bounds__(THREADS, BLOCKS) backward_warp_kernel(NormBackward<false, T> in) {
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
    if (r < in.at.rows) {
        Row(own_rows, in.dres).fetch(in, r);
        next_mean = in.mean[r];
        next_rstd = in.rstd[r];
    }
    copy_group();
    for (int turn = 0; r < in.at.rows; r += step, turn ^= 1) {
        const float mean = next_mean, rstd = next_rstd;
        if (r + step < in.at.rows) {
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
__global__ void __launch_bounds__(block_threads, BLOCKS) backward_block_kernel(NormBackward<false, T> in) {
    constexpr int N = pack_size<T>;
    __shared__ float buffer[2][32];
    const int64_t C = in.at.D;
    float gammas[P][N] = {}, betas[P][N] = {};
    for (int64_t r = blockIdx.x; r < in.at.rows; r += gridDim.x) {
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

// Returns how many lines of partial sums there will be; 0, without a launch, on a GPU with too little shared
// memory.
template <int P, int LANES, int SUMS, int THREADS, int BLOCKS, typename T>
int start_backward_warps(Stream *stream, const NormBackward<false, T> &in) {
    constexpr int ROWS = THREADS / LANES, limit = BLOCKS * NORM_WAVE;
    static_assert(SUMS * BLOCKS <= (SUMS > 2 ? NORM_SUM_PARTIALS : NORM_PARTIALS), "workspace");
    int64_t needed = (in.at.rows + ROWS - 1) / ROWS;
    int blocks = (int)(needed < limit ? needed : limit);
    size_t rows = 2 * (in.dres ? 3 : 2) * P * LANES * 16, sums = SUMS * (size_t)in.at.D * sizeof(float);
    size_t shared = ROWS * (rows > sums ? rows : sums);
    if (!fits_shared(shared)) return 0;
    auto kernel = backward_warp_kernel<T, P, LANES, SUMS, THREADS, BLOCKS>;
    // If one of these fails, the error is detected after the launch.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    (void)launch_chained(stream, kernel, blocks, THREADS, shared, in);
    return blocks;
}

template <int P, int BLOCKS, typename T>
int start_backward_blocks(Stream *stream, const NormBackward<false, T> &in) {
    constexpr int limit = BLOCKS * NORM_WAVE;
    int blocks = (int)(in.at.rows < limit ? in.at.rows : limit);
    (void)launch_kernel(stream, backward_block_kernel<T, P, BLOCKS>, blocks, block_threads, 0, in);
    return blocks;
}

template <typename T> int64_t packs_of(const NormBackward<false, T> &in) {
    return row_packs<T>(in.at.D, aligned_16(in.dx, in.dy, in.x, in.gamma, in.dres));
}

// With column sums of dx and, if SUMS is 4, of dres. Returns as `backward`; 0 if rows are too long,
// or too long for the GPU's shared memory.
template <int SUMS, typename T> int backward_sums(Stream *stream, const NormBackward<false, T> &in) {
    const int64_t packs = packs_of(in);
    constexpr int few = SUMS == 4 ? 256 : 384;
    if (packs <= 2 * 32) return start_backward_warps<2, 32, SUMS, 256, 2>(stream, in);
    if (packs <= 3 * 32) return start_backward_warps<3, 32, SUMS, 384, 1>(stream, in);
    if (packs <= 2 * 64) return start_backward_warps<2, 64, SUMS, 256, 2>(stream, in);
    if (packs <= 5 * 32) return start_backward_warps<5, 32, SUMS, few, 1>(stream, in);
    return 0;
}

// Returns how many lines of partial sums there will be.
template <typename T> int backward(Stream *stream, const NormBackward<false, T> &in) {
    const int64_t packs = packs_of(in);
    const int lines = packs <= 1 * 32   ? start_backward_warps<1, 32, 2, 256, 3>(stream, in)
                      : packs <= 2 * 32 ? start_backward_warps<2, 32, 2, 256, 3>(stream, in)
                      : packs <= 3 * 32 ? start_backward_warps<3, 32, 2, 256, 2>(stream, in)
                      : packs <= 2 * 64 ? start_backward_warps<2, 64, 2, 256, 3>(stream, in)
                      : packs <= 5 * 32 ? start_backward_warps<5, 32, 2, 128, 3>(stream, in)
                      : packs <= 7 * 32 ? start_backward_warps<7, 32, 2, 128, 2>(stream, in)
                                        : 0;
    if (lines) return lines;
    if (packs <= 2 * block_threads) return start_backward_blocks<2, 2>(stream, in);
    if (packs <= 4 * block_threads) return start_backward_blocks<4, 1>(stream, in);
    return start_backward_any(stream, in);
}

} // namespace

Status layernorm_forward_cuda(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                              Tensor beta, float eps) {
    LAUNCH(with_type(x.dtype, [&](auto t) {
        using T = decltype(t);
        NormOut<false, T> out = {data<T>(y),
                                 data<float>(mean),
                                 data<float>(rstd),
                                 data<T>(gamma),
                                 data<T>(beta),
                                 {tensor_rows(x), tensor_cols(x)},
                                 eps};
        return forward(stream, out, PlainRows<T>{data<T>(x)}, aligned_16(x));
    }));
    return OK;
}

Status dropout_add_norm_forward_cuda(Stream *stream, Tensor sum, Tensor normed, Tensor mean, Tensor rstd,
                                     Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                     Dropout dropout) {
    LAUNCH(with_type(y.dtype, [&](auto t) {
        using T = decltype(t);
        NormOut<false, T> out = {data<T>(normed),
                                 data<float>(mean),
                                 data<float>(rstd),
                                 data<T>(gamma),
                                 data<T>(beta),
                                 {tensor_rows(y), tensor_cols(y)},
                                 eps};
        return forward(stream, out, dropped_rows<T>(sum, res, y, dropout), aligned_16(sum, res, y));
    }));
    return OK;
}

Status layernorm_backward_cuda(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                               Tensor mean, Tensor rstd, Tensor gamma, Tensor dres, NormSums sums) {
    const int64_t rows = tensor_rows(x), C = tensor_cols(x);
    int lines = sums.dres.data ? 4 : sums.dx.data ? 3 : 2, blocks = 0;
    void *workspace;
    TRY(stream_workspace(stream, norm_backward_bytes(rows, C, lines > 2), &workspace));
    float *partial = (float *)workspace;
    auto run = [&] {
        return with_type(x.dtype, [&](auto t) {
            using T = decltype(t);
            NormBackward<false, T> in = {data<T>(dx),       data<T>(dy),   data<T>(x),
                                         data<T>(gamma),    data<T>(dres), data<float>(mean),
                                         data<float>(rstd), {rows, C},     partial};
            blocks = lines == 4   ? backward_sums<4>(stream, in)
                     : lines == 3 ? backward_sums<3>(stream, in)
                                  : backward(stream, in);
            return cudaGetLastError();
        });
    };
    LAUNCH(run());
    const bool apart = blocks == 0; // rows are too long to sum columns as well
    if (apart) {
        // Before dx, which may overwrite it.
        if (sums.dres.data) TRY(column_sums(stream, sums.dres, dres, partial));
        lines = 2;
        LAUNCH(run());
    }
    Sums to = {{data<float>(dgamma), data<float>(dbeta), data<float>(sums.dx), data<float>(sums.dres)}, C};
    LAUNCH(add_partials(stream, to, lines, partial, blocks));
    return apart && sums.dx.data ? column_sums(stream, sums.dx, dx, partial) : OK;
}
