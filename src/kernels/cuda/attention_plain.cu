// Attention in fp32 without tensor cores, for any D up to 256 and any type.
//
// A warp owns 4 rows (queries; keys in the kernel for dk and dv) and iterates over the other side's rows, 32
// at a time: for the scores each lane has one of them, and for the sums D is distributed over the lanes. Rows
// are in shared memory as fp32, an odd number of words apart, so that lanes reading a column have no bank
// conflicts. Each backward kernel recomputes the scores, so that every sum belongs to one warp and has a
// fixed order.
#include <type_traits>

#include "kernels/cuda/attention.cuh"

namespace {

constexpr int warps = 4, threads = 32 * warps, own = 4, rows = warps * own, others = 32, widest = 256;

int stride_of(int D) {
    return D | 1;
}

// Copies `count` rows, from `first` on, to shared memory; rows at or past `limit` become 0.
template <typename T>
__device__ void load_rows(float *to, const T *from, int64_t row, int first, int count, int limit, int D,
                          int stride) {
    for (int i = threadIdx.x; i < count * D; i += threads) {
        int r = i / D, d = i % D;
        to[r * stride + d] = first + r < limit ? to_float(from[(first + r) * row + d]) : 0.0f;
    }
}

// ret[i] = dot product of the warp's row i and the lane's row of the other side.
__device__ void dots(float (&ret)[own], const float *mine, const float *other, int D, int stride) {
    const float *theirs = other + threadIdx.x % 32 * stride;
    for (int i = 0; i < own; i++) ret[i] = 0;
    for (int d = 0; d < D; d++) {
        float value = theirs[d];
#pragma unroll
        for (int i = 0; i < own; i++) ret[i] += mine[i * stride + d] * value;
    }
}

// sum[i][j] += sum over the 32 other rows o of (lane o's weight[i]) * (element 32 * j + lane of row o).
template <int J>
__device__ void add_weighted(float (&sum)[own][J], const float (&weight)[own], const float *other, int D,
                             int stride) {
    int lane = threadIdx.x % 32;
    for (int o = 0; o < others; o++) {
        float all[own];
#pragma unroll
        for (int i = 0; i < own; i++) all[i] = __shfl_sync(full_warp, weight[i], o);
#pragma unroll
        for (int j = 0; j < J; j++) {
            if (j * 32 + lane >= D) continue;
            float value = other[o * stride + j * 32 + lane];
#pragma unroll
            for (int i = 0; i < own; i++) sum[i][j] += all[i] * value;
        }
    }
}

template <typename T, int J>
__device__ void store_row(T *to, const float (&sum)[J], float factor, int D, bool add = false) {
#pragma unroll
    for (int j = 0; j < J; j++) {
        int d = j * 32 + threadIdx.x % 32;
        if (d >= D) continue;
        to[d] = from_float<T>(add ? to_float(to[d]) + sum[j] * factor : sum[j] * factor);
    }
}

// The dropout factor of one weight, for rows at any positions.
__device__ inline float factor_of(const CudaAttention &call, int b, int h, int query, int key) {
    int at = key_place(call, key);
    uint64_t word = dropout_word(call.dropout, b, h, query_place(call, query), at);
    uint32_t kept = draw_kept(call.dropout.key, word, call.dropout.threshold);
    return kept >> dropout_bit(at) & 1 ? call.dropout.scale : 0.0f;
}

// Dropout factors of the warp's four queries, from `query` on, and the lane's key, one of 32 from `key` on.
// There are 16 words, so each is drawn by two lanes.
__device__ inline void factors_of(float (&factor)[own], const CudaAttention &call, const Place &place,
                                  int query, int key) {
    static_assert(own == 4);
    const CudaDropout &dropout = call.dropout;
    int lane = threadIdx.x % 32;
    for (int i = 0; i < own; i++) factor[i] = 1;
    if (!dropout.threshold) return;
    for (int i = 0; call.parts && i < own; i++)
        factor[i] = factor_of(call, place.b, place.h, query + i, key + lane);
    if (call.parts) return;
    uint64_t word = dropout_word(dropout, place.b, place.h, query + lane / 4 % 4, key + lane % 4 * 2);
    uint32_t drawn = draw_kept(dropout.key, word, dropout.threshold);
    for (int i = 0; i < own; i++) {
        uint32_t kept = __shfl_sync(full_warp, drawn, i * 4 + lane % 8 / 2);
        factor[i] = kept >> dropout_bit(key + lane) & 1 ? dropout.scale : 0.0f;
    }
}
// The same for the warp's four keys, from `key` on, and the lane's query.
__device__ inline void factors_of_keys(float (&factor)[own], const CudaAttention &call, int b, int h,
                                       int query, int key) {
    const CudaDropout &dropout = call.dropout;
    for (int i = 0; i < own; i++) factor[i] = 1;
    if (!dropout.threshold) return;
    for (int i = 0; call.parts && i < own; i++) factor[i] = factor_of(call, b, h, query, key + i);
    if (call.parts) return;
    for (int i = 0; i < own; i += 2) {
        uint32_t kept =
            draw_kept(dropout.key, dropout_word(dropout, b, h, query, key + i), dropout.threshold);
        factor[i] = kept >> dropout_bit(key + i) & 1 ? dropout.scale : 0.0f;
        factor[i + 1] = kept >> dropout_bit(key + i + 1) & 1 ? dropout.scale : 0.0f;
    }
}

template <typename T, int J>
__global__ void __launch_bounds__(threads) forward_plain(CudaAttention call, int tiles, int stride) {
    extern __shared__ float shared[];
    float *q = shared, *k = q + rows * stride, *v = k + others * stride;
    Place place = place_of(call.H, tiles, true);
    Span span = span_of(call, place.b);
    dropout_begin(call.dropout);
    int first = place.tile * rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (first >= span.queries) return;
    load_rows(q, head_rows<const T>(call.q, place.b, place.h), call.q.row, first, rows, span.queries, call.D,
              stride);
    float sum[own][J] = {}, most[own], total[own] = {};
    int seen[own], hidden[own], shared_head = place.h / call.group;
    const bool windowed = is_windowed(call);
    for (int i = 0; i < own; i++) {
        most[i] = -infinity;
        seen[i] = keys_seen(call, span, first + warp * own + i);
        hidden[i] = windowed ? first_seen(call, span, place.b, first + warp * own + i) : 0;
    }
    int end = keys_seen(call, span, first + rows - 1);
    int begin = windowed ? first_seen(call, span, place.b, first) / others * others : 0;
    for (int from = begin; from < end; from += others) {
        __syncthreads();
        load_rows(k, head_rows<const T>(call.k, place.b, shared_head), call.k.row, from, others, span.keys,
                  call.D, stride);
        load_rows(v, head_rows<const T>(call.v, place.b, shared_head), call.v.row, from, others, span.keys,
                  call.D, stride);
        __syncthreads();
        float weight[own], factor[own];
        dots(weight, q + warp * own * stride, k, call.D, stride);
        factors_of(factor, call, place, first + warp * own, from);
#pragma unroll
        for (int i = 0; i < own; i++) {
            bool sees = from + lane < seen[i] && from + lane >= hidden[i];
            float score = sees ? weight[i] * call.scale : -infinity;
            float now = fmaxf(most[i], warp_max(score));
            float base = now == -infinity ? 0 : now, shrink = expf(most[i] - base);
            weight[i] = expf(score - base);
            total[i] = total[i] * shrink + warp_sum(weight[i]);
            most[i] = now;
            if (sees) weight[i] *= factor[i];
#pragma unroll
            for (int j = 0; j < J; j++) sum[i][j] *= shrink;
        }
        add_weighted(sum, weight, v, call.D, stride);
    }
    for (int i = 0; i < own; i++) {
        int query = first + warp * own + i;
        if (query >= span.queries) break;
        store_row(head_rows<T>(call.out, place.b, place.h) + query * call.out.row, sum[i],
                  total[i] == 0 ? 0 : 1 / total[i], call.D);
        if (call.lse && lane == 0)
            call.lse[((int64_t)place.b * call.H + place.h) * call.queries + query] = most[i] + logf(total[i]);
    }
}

// With P the weights and Z dropout's factors: from a score and g . v, the product P Z and
// dS = P (Z g.v - delta).
struct Weights {
    float kept, ds;
};
__device__ inline Weights weights_of(const CudaAttention &call, float dot, float lse, float through,
                                     float delta, float factor) {
    float weight = expf(dot * call.scale - lse);
    return {weight * factor, weight * (factor * through - delta)};
}

template <typename T, int J>
__global__ void __launch_bounds__(threads) backward_q_plain(CudaAttention call, int tiles, int stride) {
    extern __shared__ float shared[];
    float *q = shared, *dout = q + rows * stride, *k = dout + rows * stride, *v = k + others * stride;
    Place place = place_of(call.H, tiles, true);
    Span span = span_of(call, place.b);
    dropout_begin(call.dropout);
    int first = place.tile * rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load_rows(q, head_rows<const T>(call.q, place.b, place.h), call.q.row, first, rows, span.queries, call.D,
              stride);
    load_rows(dout, head_rows<const T>(call.dout, place.b, place.h), call.dout.row, first, rows, span.queries,
              call.D, stride);
    int64_t head = ((int64_t)place.b * call.H + place.h) * call.queries;
    float sum[own][J] = {}, lse[own], delta[own];
    int seen[own], hidden[own], shared_head = place.h / call.group;
    const bool windowed = is_windowed(call);
    for (int i = 0; i < own; i++) {
        int query = first + warp * own + i;
        lse[i] = query < span.queries ? call.lse[head + query] : 0;
        delta[i] = query < span.queries ? call.delta[head + query] : 0;
        seen[i] = query < span.queries ? keys_seen(call, span, query) : 0;
        hidden[i] = windowed ? first_seen(call, span, place.b, query) : 0;
    }
    int end = keys_seen(call, span, first + rows - 1);
    int begin = windowed ? first_seen(call, span, place.b, first) / others * others : 0;
    for (int from = begin; from < end; from += others) {
        __syncthreads();
        load_rows(k, head_rows<const T>(call.k, place.b, shared_head), call.k.row, from, others, span.keys,
                  call.D, stride);
        load_rows(v, head_rows<const T>(call.v, place.b, shared_head), call.v.row, from, others, span.keys,
                  call.D, stride);
        __syncthreads();
        float dot[own], through[own], factor[own];
        dots(dot, q + warp * own * stride, k, call.D, stride);
        dots(through, dout + warp * own * stride, v, call.D, stride);
        factors_of(factor, call, place, first + warp * own, from);
#pragma unroll
        for (int i = 0; i < own; i++) {
            Weights w = weights_of(call, dot[i], lse[i], through[i], delta[i], factor[i]);
            dot[i] = from + lane < seen[i] && from + lane >= hidden[i] ? w.ds : 0;
        }
        add_weighted(sum, dot, k, call.D, stride);
    }
    for (int i = 0; i < own; i++) {
        int query = first + warp * own + i;
        if (query >= span.queries) break;
        store_row(head_rows<T>(call.dq, place.b, place.h) + query * call.dq.row, sum[i], call.scale, call.D,
                  call.parts);
    }
}

template <typename T, int J>
__global__ void __launch_bounds__(threads) backward_kv_plain(CudaAttention call, int tiles, int stride) {
    extern __shared__ float shared[];
    float *k = shared, *v = k + rows * stride, *q = v + rows * stride, *dout = q + others * stride;
    Place place = place_of(call.H / call.group, tiles, false);
    Span span = span_of(call, place.b);
    dropout_begin(call.dropout);
    int first = place.tile * rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load_rows(k, head_rows<const T>(call.k, place.b, place.h), call.k.row, first, rows, span.keys, call.D,
              stride);
    load_rows(v, head_rows<const T>(call.v, place.b, place.h), call.v.row, first, rows, span.keys, call.D,
              stride);
    float dk[own][J] = {}, dv[own][J] = {};
    const bool windowed = is_windowed(call);
    int begin = first_query(call, first) / others * others, end = first < span.keys ? span.queries : 0;
    if (windowed) end = last_queries(call, span, place.b, min(first + rows, span.keys) - 1, end);
    for (int h = place.h * call.group; h < (place.h + 1) * call.group; h++) {
        int64_t head = ((int64_t)place.b * call.H + h) * call.queries;
        for (int from = begin; from < end; from += others) {
            __syncthreads();
            load_rows(q, head_rows<const T>(call.q, place.b, h), call.q.row, from, others, span.queries,
                      call.D, stride);
            load_rows(dout, head_rows<const T>(call.dout, place.b, h), call.dout.row, from, others,
                      span.queries, call.D, stride);
            __syncthreads();
            float dot[own], through[own], factor[own];
            dots(dot, k + warp * own * stride, q, call.D, stride);
            dots(through, v + warp * own * stride, dout, call.D, stride);
            int query = from + lane;
            bool there = query < span.queries;
            float lse = there ? call.lse[head + query] : 0, delta = there ? call.delta[head + query] : 0;
            int seen = keys_seen(call, span, query);
            int hidden = windowed ? first_seen(call, span, place.b, query) : 0;
            factors_of_keys(factor, call, place.b, h, query, first + warp * own);
#pragma unroll
            for (int i = 0; i < own; i++) {
                int key = first + warp * own + i;
                Weights w = weights_of(call, dot[i], lse, through[i], delta, factor[i]);
                bool sees = there && key < seen && key >= hidden;
                dot[i] = sees ? w.kept : 0;
                through[i] = sees ? w.ds : 0;
            }
            add_weighted(dv, dot, dout, call.D, stride);
            add_weighted(dk, through, q, call.D, stride);
        }
    }
    for (int i = 0; i < own; i++) {
        int key = first + warp * own + i;
        if (key >= call.keys) break;
        store_row(head_rows<T>(call.dk, place.b, place.h) + key * call.dk.row, dk[i], call.scale, call.D,
                  call.parts);
        store_row(head_rows<T>(call.dv, place.b, place.h) + key * call.dv.row, dv[i], 1, call.D, call.parts);
    }
}

// Calls body with the number of registers, as a type, that a lane needs for its share of D.
template <typename Body> cudaError_t with_registers(int D, Body body) {
    if (D <= 32) return body(std::integral_constant<int, 1>{});
    if (D <= 64) return body(std::integral_constant<int, 2>{});
    if (D <= 128) return body(std::integral_constant<int, 4>{});
    if (D <= widest) return body(std::integral_constant<int, 8>{});
    return cudaErrorInvalidValue;
}

template <typename Kernel>
cudaError_t start(Kernel kernel, cudaStream_t stream, const CudaAttention &call, int heads, int side,
                  int held) {
    int tiles = (side + rows - 1) / rows, stride = stride_of(call.D);
    size_t bytes = (size_t)held * stride * sizeof(float);
    cudaError_t error = allow_shared(kernel, bytes);
    if (error != cudaSuccess) return error;
    int64_t blocks = (int64_t)call.B * heads * tiles;
    kernel<<<(unsigned)blocks, threads, bytes, stream>>>(call, tiles, stride);
    return cudaGetLastError();
}

} // namespace

cudaError_t launch_attention_forward_plain(cudaStream_t stream, DType type, const CudaAttention *call) {
    return with_type(type, [&](auto t) {
        return with_registers(call->D, [&](auto registers) {
            return start(forward_plain<decltype(t), registers.value>, stream, *call, call->H, call->queries,
                         rows + 2 * others);
        });
    });
}

cudaError_t launch_attention_backward_plain(cudaStream_t stream, DType type, const CudaAttention *call) {
    return with_type(type, [&](auto t) {
        return with_registers(call->D, [&](auto registers) {
            cudaError_t error = start(backward_kv_plain<decltype(t), registers.value>, stream, *call,
                                      call->H / call->group, call->keys, 2 * rows + 2 * others);
            if (error != cudaSuccess) return error;
            return start(backward_q_plain<decltype(t), registers.value>, stream, *call, call->H,
                         call->queries, 2 * rows + 2 * others);
        });
    });
}
