// Attention backward on tensor cores, for 16-bit types, without atomics: one kernel owns keys and iterates
// over the queries for dk and dv, another owns queries and iterates over the keys for dq; both recompute the
// scores. With P the weights, Z dropout's factors, g the gradient of an output row and delta = g . out:
//   dv += (P Z)^T g;  dS = P (Z (g v^T) - delta);  dk += scale dS^T q;  dq += scale dS k
// The first kernel computes all of these transposed, so that its results are operands of the next product
// (see attention_mma.cuh). Rows past the end are zero and contribute nothing, so only keys that a query does
// not attend to must be masked.
#include "kernels/cuda/attention_mma.cuh"

namespace {

// A warp owns 16 M rows; a tile has N rows of the other side.
template <int DP> struct KeyShape {
    static constexpr int M = DP <= 64 ? 2 : 1, N = 32, own = 16 * M * mma_warps;
    static constexpr size_t bytes =
        sizeof(__half) * tile_stride<DP> * (2 * own + 4 * N) + sizeof(float) * 4 * N;
};
template <int DP> struct QueryShape {
    static constexpr int M = DP <= 64 ? 2 : 1, N = 32, own = 16 * M * mma_warps;
    static constexpr size_t bytes = sizeof(__half) * tile_stride<DP> * (2 * own + 4 * N);
};

// From a score and g . v: kept = P Z without dropout's scale, and dS.
struct Element {
    float kept, ds;
};
__device__ inline Element element_of(float score, float lse, float through, float delta, bool keep,
                                     float factor) {
    float weight = power_of_2(score - lse);
    return {keep ? weight : 0.0f, weight * ((keep ? through * factor : 0.0f) - delta)};
}

// First kernel: replaces scores and g . v (16 keys x N queries) by P Z and dS. `key` is the lane's first key
// and `query` the first query; lse and delta are those of the N queries.
template <int N, bool WINDOWED>
__device__ inline void weigh_transposed(float (&score)[N / 8][4], float (&through)[N / 8][4],
                                        const float *lse, const float *delta, const CudaAttention &call,
                                        const Span &span, const Place &place, int key, int query) {
    int t = threadIdx.x % 4, g = threadIdx.x % 32 / 4;
    bool whole = !call.causal || (!WINDOWED && key + 8 - g + 7 <= query);
    float scale = call.scale * log2_e, factor = call.dropout.threshold ? call.dropout.scale : 1.0f;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        uint32_t kept[2] = {~0u, ~0u};
        if (call.dropout.threshold)
            kept_columns(kept, call.dropout, place,
                         WINDOWED ? query_place(call, query + n * 8) : query + n * 8,
                         WINDOWED ? key_place(call, key) : key);
        int seen[2], hidden[2]; // keys before and from where the lane's two queries see them
#pragma unroll
        for (int i = 0; WINDOWED && i < 2; i++) {
            seen[i] = keys_seen(call, span, query + n * 8 + 2 * t + i);
            hidden[i] = first_seen(call, span, place.b, query + n * 8 + 2 * t + i);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = n * 8 + 2 * t + i % 2;
            bool keep = kept[i % 2] >> dropout_bit(key + i / 2 * 8) & 1;
            Element e = element_of(score[n][i] * scale, lse[column] * log2_e, through[n][i], delta[column],
                                   keep, factor);
            bool sees = whole || key + i / 2 * 8 <= query + column;
            if (WINDOWED) sees = key + i / 2 * 8 < seen[i % 2] && key + i / 2 * 8 >= hidden[i % 2];
            score[n][i] = sees ? e.kept : 0;
            through[n][i] = sees ? e.ds : 0;
        }
    }
}

// Stores rows `row` and row + 8 of a gradient with `rows` rows; rows at or past `live` are set to 0. With
// parts, adds them.
template <typename T, int DP>
__device__ inline void store_gradient(const CudaAttention &call, const CudaHeads &heads, const Place &place,
                                      int row, int rows, int live, const float (&sum)[DP / 8][4],
                                      float factor) {
    T *to = head_rows<T>(heads, place.b, place.h) + row * heads.row;
    store_rows<T, DP>(row < rows ? to : nullptr, row + 8 < rows ? to + 8 * heads.row : nullptr, sum,
                      row < live ? factor : 0.0f, row + 8 < live ? factor : 0.0f, call.D, call.parts);
}

template <typename T, int DP, bool WINDOWED>
__global__ void __launch_bounds__(mma_threads) backward_kv_mma(CudaAttention call, int tiles) {
    using S = KeyShape<DP>;
    constexpr int M = S::M, N = S::N, tile = N * tile_stride<DP>;
    extern __shared__ __align__(16) unsigned char shared[];
    T *k_tile = (T *)shared, *v_tile = k_tile + S::own * tile_stride<DP>;
    T *q_tile = v_tile + S::own * tile_stride<DP>, *dout_tile = q_tile + 2 * tile;
    float *lse = (float *)(dout_tile + 2 * tile), *delta = lse + 2 * N;
    const Place keys = place_of(call.H / call.group, tiles, false);
    Span span = span_of(call, keys.b);
    dropout_begin(call.dropout);
    auto load_queries = [&](int h, int from, int stage) {
        const T *q = head_rows<const T>(call.q, keys.b, h), *dout = head_rows<const T>(call.dout, keys.b, h);
        load_tile<T, N, DP>(q_tile + stage * tile, q, call.q.row, from, span.queries, call.D);
        load_tile<T, N, DP>(dout_tile + stage * tile, dout, call.dout.row, from, span.queries, call.D);
        int r = threadIdx.x % N, query = from + r;
        float *to = (threadIdx.x < N ? lse : delta) + stage * N + r;
        const float *at =
            (threadIdx.x < N ? call.lse : call.delta) + ((int64_t)keys.b * call.H + h) * call.queries;
        bool there = query < span.queries;
        if (threadIdx.x < 2 * N) copy_async4(to, there ? at + query : at, there);
    };
    int first = keys.tile * S::own, row = threadIdx.x / 32 * 16 * M, g = threadIdx.x % 32 / 4;
    int begin = first_query(call, first) / N * N, end = first < span.keys ? span.queries : 0;
    if (WINDOWED) end = last_queries(call, span, keys.b, min(first + S::own, span.keys) - 1, end);
    load_tile<T, S::own, DP>(k_tile, head_rows<const T>(call.k, keys.b, keys.h), call.k.row, first, span.keys,
                             call.D);
    load_tile<T, S::own, DP>(v_tile, head_rows<const T>(call.v, keys.b, keys.h), call.v.row, first, span.keys,
                             call.D);

    float dk[M][DP / 8][4] = {}, dv[M][DP / 8][4] = {};
    for (int h = keys.h * call.group; h < (keys.h + 1) * call.group; h++) {
        const Place place = {keys.b, h, keys.tile};
        load_queries(h, begin, 0);
        copy_group();
        for (int from = begin, stage = 0; from < end; from += N, stage ^= 1) {
            if (from + N < end) load_queries(h, from + N, stage ^ 1);
            copy_group();
            copy_wait<1>();
            __syncthreads();
            float score[M][N / 8][4], through[M][N / 8][4];
            multiply_rows<T, DP, M, N>(score, k_tile, row, q_tile + stage * tile);
            multiply_rows<T, DP, M, N>(through, v_tile, row, dout_tile + stage * tile);
#pragma unroll
            for (int m = 0; m < M; m++)
                weigh_transposed<N, WINDOWED>(score[m], through[m], lse + stage * N, delta + stage * N, call,
                                              span, place, first + row + m * 16 + g, from);
            add_weighted_rows<T, DP, M, N>(dv, score, dout_tile + stage * tile);
            add_weighted_rows<T, DP, M, N>(dk, through, q_tile + stage * tile);
            __syncthreads();
        }
        copy_wait<0>();
    }
    float factor = call.dropout.threshold ? call.dropout.scale : 1.0f;
#pragma unroll
    for (int m = 0; m < M; m++) {
        int key = first + row + m * 16 + g;
        store_gradient<T, DP>(call, call.dk, keys, key, call.keys, span.keys, dk[m], call.scale);
        store_gradient<T, DP>(call, call.dv, keys, key, call.keys, span.keys, dv[m], factor);
    }
}

// Second kernel: replaces scores (16 queries x N keys) by dS; dq does not need P Z. `query` is the lane's
// first query and `key` the first key; lse, delta, seen and hidden are those of rows g and g + 8.
template <int N, bool WINDOWED>
__device__ inline void weigh_rows(float (&score)[N / 8][4], const float (&through)[N / 8][4],
                                  const float (&lse)[2], const float (&delta)[2], const int (&seen)[2],
                                  const int (&hidden)[2], const CudaAttention &call, const Place &place,
                                  int query, int key) {
    int t = threadIdx.x % 4;
    bool whole = key + N <= seen[0] && key + N <= seen[1];
    if (WINDOWED) whole = whole && key >= hidden[0] && key >= hidden[1];
    float scale = call.scale * log2_e, factor = call.dropout.threshold ? call.dropout.scale : 1.0f;
    uint32_t kept[2] = {~0u, ~0u};
    if (call.dropout.threshold)
        kept_rows(kept, call.dropout, place, WINDOWED ? query_place(call, query) : query,
                  WINDOWED ? key_place(call, key) : key);
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool keep = kept[i / 2] >> dropout_bit(key + n * 8 + i % 2) & 1;
            Element e =
                element_of(score[n][i] * scale, lse[i / 2], through[n][i], delta[i / 2], keep, factor);
            int at = key + n * 8 + 2 * t + i % 2;
            bool sees = whole || (at < seen[i / 2] && (!WINDOWED || at >= hidden[i / 2]));
            score[n][i] = sees ? e.ds : 0;
        }
    }
}

template <typename T, int DP, bool WINDOWED>
__global__ void __launch_bounds__(mma_threads) backward_q_mma(CudaAttention call, int tiles) {
    using S = QueryShape<DP>;
    constexpr int M = S::M, N = S::N, tile = N * tile_stride<DP>;
    extern __shared__ __align__(16) unsigned char shared[];
    T *q_tile = (T *)shared, *dout_tile = q_tile + S::own * tile_stride<DP>;
    T *k_tile = dout_tile + S::own * tile_stride<DP>, *v_tile = k_tile + 2 * tile;
    Place place = place_of(call.H, tiles, call.causal);
    Span span = span_of(call, place.b);
    dropout_begin(call.dropout);
    const T *k = head_rows<const T>(call.k, place.b, place.h / call.group);
    const T *v = head_rows<const T>(call.v, place.b, place.h / call.group);
    int first = place.tile * S::own, row = threadIdx.x / 32 * 16 * M, g = threadIdx.x % 32 / 4;
    load_tile<T, S::own, DP>(q_tile, head_rows<const T>(call.q, place.b, place.h), call.q.row, first,
                             span.queries, call.D);
    load_tile<T, S::own, DP>(dout_tile, head_rows<const T>(call.dout, place.b, place.h), call.dout.row, first,
                             span.queries, call.D);
    const int begin = WINDOWED ? first_seen(call, span, place.b, first) / N * N : 0;
    load_tile<T, N, DP>(k_tile, k, call.k.row, begin, span.keys, call.D);
    load_tile<T, N, DP>(v_tile, v, call.v.row, begin, span.keys, call.D);
    copy_group();

    int64_t head = ((int64_t)place.b * call.H + place.h) * call.queries;
    float dq[M][DP / 8][4] = {}, lse[M][2], delta[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int query = first + row + i / 2 * 16 + g + i % 2 * 8;
        lse[i / 2][i % 2] = query < span.queries ? call.lse[head + query] * log2_e : 0;
        delta[i / 2][i % 2] = query < span.queries ? call.delta[head + query] : 0;
    }
    int end = keys_seen(call, span, first + S::own - 1);
    for (int from = begin, stage = 0; from < end; from += N, stage ^= 1) {
        if (from + N < end) {
            int next = (stage ^ 1) * tile;
            load_tile<T, N, DP>(k_tile + next, k, call.k.row, from + N, span.keys, call.D);
            load_tile<T, N, DP>(v_tile + next, v, call.v.row, from + N, span.keys, call.D);
        }
        copy_group();
        copy_wait<1>();
        __syncthreads();
        float score[M][N / 8][4], through[M][N / 8][4];
        multiply_rows<T, DP, M, N>(score, q_tile, row, k_tile + stage * tile);
        multiply_rows<T, DP, M, N>(through, dout_tile, row, v_tile + stage * tile);
#pragma unroll
        for (int m = 0; m < M; m++) {
            int query = first + row + m * 16 + g;
            int seen[2] = {keys_seen(call, span, query), keys_seen(call, span, query + 8)};
            int hidden[2] = {};
            if (WINDOWED) {
                hidden[0] = first_seen(call, span, place.b, query);
                hidden[1] = first_seen(call, span, place.b, query + 8);
            }
            weigh_rows<N, WINDOWED>(score[m], through[m], lse[m], delta[m], seen, hidden, call, place, query,
                                    from);
        }
        add_weighted_rows<T, DP, M, N>(dq, score, k_tile + stage * tile);
        __syncthreads();
    }
    copy_wait<0>();
#pragma unroll
    for (int m = 0; m < M; m++)
        store_gradient<T, DP>(call, call.dq, place, first + row + m * 16 + g, call.queries, call.queries,
                              dq[m], call.scale);
}

template <typename Shape, typename Kernel>
cudaError_t start(Kernel kernel, cudaStream_t stream, const CudaAttention &call, int heads, int side) {
    cudaError_t error = allow_shared(kernel, Shape::bytes);
    if (error != cudaSuccess) return error;
    int tiles = (side + Shape::own - 1) / Shape::own;
    int64_t blocks = (int64_t)call.B * heads * tiles;
    kernel<<<(unsigned)blocks, mma_threads, Shape::bytes, stream>>>(call, tiles);
    return cudaGetLastError();
}

template <typename T, int DP, bool WINDOWED>
cudaError_t start_backward(cudaStream_t stream, const CudaAttention &call) {
    cudaError_t error =
        start<KeyShape<DP>>(backward_kv_mma<T, DP, WINDOWED>, stream, call, call.H / call.group, call.keys);
    if (error != cudaSuccess) return error;
    return start<QueryShape<DP>>(backward_q_mma<T, DP, WINDOWED>, stream, call, call.H, call.queries);
}

} // namespace

cudaError_t launch_attention_backward(cudaStream_t stream, DType type, const CudaAttention *call) {
    cudaError_t error = launch_attention_delta(stream, type, call);
    if (error != cudaSuccess) return error;
    if (!fits_tiles(type, call, {call->q, call->k, call->v, call->dout, call->dq, call->dk, call->dv}))
        return launch_attention_backward_plain(stream, type, call);
    return with_tile(type, call->D, [&](auto t, auto width) {
        if (is_windowed(*call) || call->parts)
            return start_backward<decltype(t), width.value, true>(stream, *call);
        return start_backward<decltype(t), width.value, false>(stream, *call);
    });
}
