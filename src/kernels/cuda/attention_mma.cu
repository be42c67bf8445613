// Attention forward on tensor cores, for 16-bit types: the scores of a tile of queries and a tile of keys are
// computed, turned into weights with the running maximum and sum of their rows (online softmax), and used
// immediately. Key and value tiles are double-buffered: one is copied while the other is used.
#include "kernels/cuda/attention_mma.cuh"

namespace {

// A warp has 16 M queries; a tile has N keys.
template <int DP> struct Shape {
    static constexpr int M = DP <= 64 ? 2 : 1, N = 64, queries = 16 * M * mma_warps;
    static constexpr size_t bytes = sizeof(__half) * tile_stride<DP> * (queries + 4 * N);
};

// Running softmax of two rows, in base 2: their maxima and the lane's part of their sums.
struct Running {
    float most[2] = {-infinity, -infinity}, total[2] = {};
};

// Turns scores (16 x N) into weights and rescales the earlier sums to the new maximum.
template <int DP, int N>
__device__ inline void weigh(float (&score)[N / 8][4], Running &run, float (&sum)[DP / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = -infinity;
#pragma unroll
        for (int n = 0; n < N / 8; n++) most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(full_warp, most, 1));
        most = fmaxf(most, __shfl_xor_sync(full_warp, most, 2));
        most = fmaxf(most, run.most[half]);
        float base = most == -infinity ? 0.0f : most, shrink = power_of_2(run.most[half] - base), total = 0;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                score[n][i] = power_of_2(score[n][i] - base);
                total += score[n][i];
            }
        run.total[half] = run.total[half] * shrink + total;
        run.most[half] = most;
#pragma unroll
        for (int n = 0; n < DP / 8; n++) {
            sum[n][2 * half] *= shrink;
            sum[n][2 * half + 1] *= shrink;
        }
    }
}

// Multiplies scores by scale and sets those of masked keys to -infinity. `first` is the first key. Each of
// the thread's two rows attends to keys hidden[] .. seen[] - 1. Without WINDOWED, hidden[] is 0.
template <int N, bool WINDOWED>
__device__ inline void mask_scores(float (&score)[N / 8][4], float scale, int first, const int (&seen)[2],
                                   const int (&hidden)[2]) {
    int key = first + threadIdx.x % 4 * 2;
    bool whole = first + N <= seen[0] && first + N <= seen[1];
    if (WINDOWED) whole = whole && first >= hidden[0] && first >= hidden[1];
    if (whole) {
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            for (int i = 0; i < 4; i++) score[n][i] *= scale;
        return;
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = key + n * 8 + i % 2;
            bool sees = at < seen[i / 2] && (!WINDOWED || at >= hidden[i / 2]);
            score[n][i] = sees ? score[n][i] * scale : -infinity;
        }
}

template <int N>
__device__ inline void drop(float (&weight)[N / 8][4], const CudaDropout &dropout, const Place &place,
                            int query, int key) {
    uint32_t kept[2];
    kept_rows(kept, dropout, place, query, key);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(kept[i / 2] >> dropout_bit(key + n * 8 + i % 2) & 1)) weight[n][i] = 0;
}

// Normalizes and stores rows `query` and query + 8.
template <typename T, int DP>
__device__ inline void finish_rows(const CudaAttention &call, const Place &place, int queries, int query,
                                   const float (&sum)[DP / 8][4], const Running &run) {
    T *to[2];
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int at = query + 8 * half;
        float total = run.total[half];
        total += __shfl_xor_sync(full_warp, total, 1);
        total += __shfl_xor_sync(full_warp, total, 2);
        factor[half] = total == 0 ? 0 : (call.dropout.threshold ? call.dropout.scale : 1.0f) / total;
        to[half] = at < queries ? head_rows<T>(call.out, place.b, place.h) + at * call.out.row : nullptr;
        if (call.lse && at < queries && threadIdx.x % 4 == 0)
            call.lse[((int64_t)place.b * call.H + place.h) * call.queries + at] =
                (run.most[half] + log2f(total)) * ln_2;
    }
    store_rows<T, DP>(to[0], to[1], sum, factor[0], factor[1], call.D);
}

template <typename T, int DP, bool WINDOWED>
__global__ void __launch_bounds__(mma_threads) forward_mma(CudaAttention call, int tiles) {
    using S = Shape<DP>;
    constexpr int M = S::M, N = S::N, tile = N * tile_stride<DP>;
    extern __shared__ __align__(16) unsigned char shared[];
    T *q_tile = (T *)shared, *k_tile = q_tile + S::queries * tile_stride<DP>, *v_tile = k_tile + 2 * tile;
    Place place = place_of(call.H, tiles, call.causal);
    Span span = span_of(call, place.b);
    int first = place.tile * S::queries;
    if (first >= span.queries) return;
    dropout_begin(call.dropout);
    const int begin = WINDOWED ? first_seen(call, span, place.b, first) / N * N : 0;
    const T *k = head_rows<const T>(call.k, place.b, place.h / call.group);
    const T *v = head_rows<const T>(call.v, place.b, place.h / call.group);
    load_tile<T, S::queries, DP>(q_tile, head_rows<const T>(call.q, place.b, place.h), call.q.row, first,
                                 span.queries, call.D);
    load_tile<T, N, DP>(k_tile, k, call.k.row, begin, span.keys, call.D);
    load_tile<T, N, DP>(v_tile, v, call.v.row, begin, span.keys, call.D);
    copy_group();

    int row = threadIdx.x / 32 * 16 * M, g = threadIdx.x % 32 / 4; // first row of the warp; row of the lane
    float sum[M][DP / 8][4] = {};
    Running run[M];
    int end = keys_seen(call, span, first + S::queries - 1);
    for (int from = begin, stage = 0; from < end; from += N, stage ^= 1) {
        if (from + N < end) {
            int next = (stage ^ 1) * tile;
            load_tile<T, N, DP>(k_tile + next, k, call.k.row, from + N, span.keys, call.D);
            load_tile<T, N, DP>(v_tile + next, v, call.v.row, from + N, span.keys, call.D);
        }
        copy_group();
        copy_wait<1>();
        __syncthreads();
        float score[M][N / 8][4];
        multiply_rows<T, DP, M, N>(score, q_tile, row, k_tile + stage * tile);
#pragma unroll
        for (int m = 0; m < M; m++) {
            int query = first + row + m * 16 + g;
            int seen[2] = {keys_seen(call, span, query), keys_seen(call, span, query + 8)};
            int hidden[2] = {};
            if (WINDOWED) {
                hidden[0] = first_seen(call, span, place.b, query);
                hidden[1] = first_seen(call, span, place.b, query + 8);
            }
            mask_scores<N, WINDOWED>(score[m], call.scale * log2_e, from, seen, hidden);
            weigh<DP, N>(score[m], run[m], sum[m]);
            if (call.dropout.threshold)
                drop<N>(score[m], call.dropout, place, WINDOWED ? query_place(call, query) : query,
                        WINDOWED ? key_place(call, from) : from);
        }
        add_weighted_rows<T, DP, M, N>(sum, score, v_tile + stage * tile);
        __syncthreads();
    }
    copy_wait<0>();
#pragma unroll
    for (int m = 0; m < M; m++)
        finish_rows<T, DP>(call, place, span.queries, first + row + m * 16 + g, sum[m], run[m]);
}

template <typename T, int DP, bool WINDOWED>
cudaError_t start_forward(cudaStream_t stream, const CudaAttention &call) {
    using S = Shape<DP>;
    cudaError_t error = allow_shared(forward_mma<T, DP, WINDOWED>, S::bytes);
    if (error != cudaSuccess) return error;
    int tiles = (call.queries + S::queries - 1) / S::queries;
    int64_t blocks = (int64_t)call.B * call.H * tiles;
    forward_mma<T, DP, WINDOWED><<<(unsigned)blocks, mma_threads, S::bytes, stream>>>(call, tiles);
    return cudaGetLastError();
}

} // namespace

cudaError_t launch_attention_forward(cudaStream_t stream, DType type, const CudaAttention *call) {
    if (!fits_tiles(type, call, {call->q, call->k, call->v, call->out}))
        return launch_attention_forward_plain(stream, type, call);
    return with_tile(type, call->D, [&](auto t, auto width) {
        if (is_windowed(*call) || call->parts)
            return start_forward<decltype(t), width.value, true>(stream, *call);
        return start_forward<decltype(t), width.value, false>(stream, *call);
    });
}
