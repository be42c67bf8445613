// The rows of experts: sorted, gathered, combined and activated. grouped.c has their linear layers.
//
// Slots are sorted by counting. A warp takes a chunk of them, and its lanes with the same expert find each
// other, so that places follow the order of slots. Slots without an expert count as those of one more expert.
//
// Other kernels access 16 bytes at a time. An index out of range counts as -1.
//
// M rows, E experts, K of them per row, R slots, C and F widths
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"

namespace {

__device__ inline int lane_of() {
    return (int)threadIdx.x % 32;
}

// ---- sorting ----

constexpr int narrow_to = 1024; // experts: up to this many, a block has ...
constexpr int sort_warps = 4;   // ... this many warps, else one
constexpr int scan_threads = 1024, scan_items = EXPERTS_MAX / scan_threads;

struct Slots {
    const int32_t *experts;
    int32_t *place, *slots, *offsets;
    int R, E;
};

__device__ inline int expert_at(const Slots &s, int64_t i, int64_t end) {
    if (i >= end) return -1;
    const int e = s.experts[i];
    return e >= 0 && e < s.E ? e : s.E;
}

// Calls each(i, expert, rank, peers) for slots from..to - 1 in groups of 32, in order. rank: how many of the
// lanes before have the same expert; peers: how many have it. All lanes call it; the expert is -1 past the
// end.
template <typename Each>
__device__ inline void each_slot(const Slots &s, int64_t from, int64_t to, Each each) {
    for (int64_t i = from + lane_of(); i - lane_of() < to; i += 32) {
        const int expert = expert_at(s, i, to);
        const unsigned same = __match_any_sync(full_warp, expert);
        each(i, expert, __popc(same & ((1u << lane_of()) - 1)), __popc(same));
        __syncwarp();
    }
}

// Adds how many slots each expert has; `count` is of E + 1 experts.
__device__ inline void count_slots(int32_t *count, const Slots &s, int64_t from, int64_t to) {
    each_slot(s, from, to, [&](int64_t, int expert, int rank, int peers) {
        if (expert >= 0 && rank == 0) count[expert] += peers;
    });
}

// `next` has the place of the next slot of each expert.
__device__ inline void place_slots(int32_t *next, const Slots &s, int64_t from, int64_t to) {
    each_slot(s, from, to, [&](int64_t i, int expert, int rank, int peers) {
        const int first = expert >= 0 ? next[expert] : 0, at = first + rank;
        __syncwarp();
        if (expert >= 0 && rank == 0) next[expert] = first + peers;
        if (expert < 0) return;
        s.place[i] = expert < s.E ? at : -1;
        s.slots[at] = expert < s.E ? (int32_t)i : -1;
    });
}

// All by one warp.
__global__ void sort_few_kernel(Slots s) {
    extern __shared__ int32_t next[]; // (E + 1)
    chain_next();
    chain_wait();
    for (int e = lane_of(); e <= s.E; e += 32) next[e] = 0;
    __syncwarp();
    count_slots(next, s, 0, s.R);
    const int each = (s.E + 32) / 32, first = min(lane_of() * each, s.E + 1),
              end = min(first + each, s.E + 1);
    int own = 0;
    for (int e = first; e < end; e++) own += next[e];
    int before = own;
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(full_warp, before, step);
        if (lane_of() >= step) before += other;
    }
    before -= own;
    for (int e = first; e < end; e++) {
        const int count = next[e];
        next[e] = s.offsets[e] = before;
        before += count;
    }
    __syncwarp();
    place_slots(next, s, 0, s.R);
}

// The chunk of a warp.
struct Chunks {
    int count, each;
};

__device__ inline int chunk_of() {
    return (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

// counts (chunks, E + 1)
__global__ void sort_count_kernel(int32_t *counts, Slots s, Chunks chunks) {
    extern __shared__ int32_t shared_counts[];
    const int chunk = chunk_of(), bins = s.E + 1;
    int32_t *count = shared_counts + threadIdx.x / 32 * bins;
    chain_next();
    chain_wait();
    if (chunk >= chunks.count) return;
    for (int e = lane_of(); e < bins; e += 32) count[e] = 0;
    __syncwarp();
    const int64_t from = (int64_t)chunk * chunks.each, to = min(from + chunks.each, (int64_t)s.R);
    count_slots(count, s, from, to);
    for (int e = lane_of(); e < bins; e += 32) counts[(int64_t)chunk * bins + e] = count[e];
}

// Makes counts the place of each chunk's first slot of each expert. With few experts, several groups of
// threads take a part of the chunks each.
__global__ void __launch_bounds__(scan_threads) sort_scan_kernel(int32_t *counts, Slots s, Chunks chunks) {
    using Scan = cub::BlockScan<int, scan_threads>;
    __shared__ typename Scan::TempStorage storage;
    __shared__ int part[EXPERTS_MAX + 1], start[EXPERTS_MAX + 1]; // part: (groups, E + 1)
    const int bins = s.E + 1, width = min(bins, scan_threads), groups = scan_threads / width;
    const int group = threadIdx.x / width, each = (chunks.count + groups - 1) / groups;
    const int from = min(group * each, chunks.count), to = min(from + each, chunks.count);
    const int lane = threadIdx.x % width;
    chain_next();
    chain_wait();
    for (int e = lane; group < groups && e < bins; e += width) {
        int sum = 0;
#pragma unroll 8
        for (int c = from; c < to; c++) sum += counts[(int64_t)c * bins + e];
        part[group * bins + e] = sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < bins; e += scan_threads) {
        int sum = 0;
        for (int g = 0; g < groups; g++) {
            const int own = part[g * bins + e];
            part[g * bins + e] = sum;
            sum += own;
        }
        start[e] = sum;
    }
    __syncthreads();
    int items[scan_items], all;
    for (int i = 0; i < scan_items; i++) {
        const int e = threadIdx.x * scan_items + i;
        items[i] = e < s.E ? start[e] : 0;
    }
    Scan(storage).ExclusiveSum(items, items, all);
    __syncthreads();
    for (int i = 0; i < scan_items; i++) {
        const int e = threadIdx.x * scan_items + i;
        if (e < s.E) start[e] = s.offsets[e] = items[i];
    }
    if (threadIdx.x == 0) start[s.E] = s.offsets[s.E] = all;
    __syncthreads();
    for (int e = lane; group < groups && e < bins; e += width) {
        int at = start[e] + part[group * bins + e];
#pragma unroll 8
        for (int c = from; c < to; c++) {
            const int own = counts[(int64_t)c * bins + e];
            counts[(int64_t)c * bins + e] = at;
            at += own;
        }
    }
}

__global__ void sort_place_kernel(const int32_t *firsts, Slots s, Chunks chunks) {
    extern __shared__ int32_t shared_next[];
    const int chunk = chunk_of(), bins = s.E + 1;
    int32_t *next = shared_next + threadIdx.x / 32 * bins;
    chain_next();
    chain_wait();
    if (chunk >= chunks.count) return;
    for (int e = lane_of(); e < bins; e += 32) next[e] = firsts[(int64_t)chunk * bins + e];
    __syncwarp();
    const int64_t from = (int64_t)chunk * chunks.each, to = min(from + chunks.each, (int64_t)s.R);
    place_slots(next, s, from, to);
}

// ---- gathering and combining ----

constexpr int threads = 256;

// The row and column of pack `at`, where a row has that many.
struct Place {
    int64_t row, column;
};
__device__ inline Place place_of(int64_t at, int64_t each) {
    if (at <= UINT32_MAX && each <= UINT32_MAX) {
        const uint32_t row = (uint32_t)at / (uint32_t)each;
        return {row, (uint32_t)at - row * (uint32_t)each};
    }
    return {at / each, at % each};
}
__device__ inline int64_t thread_of() {
    return blockIdx.x * (int64_t)threads + threadIdx.x;
}

constexpr int at_once = 4; // packs that a thread loads before it uses the first

constexpr int gathered = 32 * at_once; // words of a row that a warp copies

// A row has C words. Those of `out` leave the L2 cache first: it should keep x, which is read K times.
template <typename Word>
__global__ void __launch_bounds__(threads)
    gather_kernel(Word *out, float *out_weights, const Word *x, const float *weights, const int32_t *slots,
                  int64_t R, int64_t M, int64_t C, int K) {
    const int64_t row = thread_of() / 32, first = blockIdx.y * (int64_t)gathered + lane_of();
    chain_next();
    chain_wait();
    if (row >= R) return;
    const int32_t slot = slots[row];
    const bool valid = slot >= 0 && slot < M * K;
    const Word *from = x + (valid ? slot / K : 0) * C + first;
    Word *to = out + row * C + first;
    Word word[at_once] = {};
#pragma unroll
    for (int i = 0; i < at_once; i++)
        if (valid && first + 32 * i < C) word[i] = from[32 * i];
#pragma unroll
    for (int i = 0; i < at_once; i++)
        if (first + 32 * i < C) __stcs(to + 32 * i, word[i]);
    if (out_weights && first == 0) out_weights[row] = valid ? weights[slot] : 0.0f;
}

template <typename T, int N>
__global__ void __launch_bounds__(threads) combine_kernel(T *y, const T *xs, const int32_t *place, int64_t M,
                                                          int64_t C, int64_t R, int K, bool accumulate) {
    const Place at = place_of(thread_of(), C / N);
    const int64_t column = at.column * N;
    chain_next();
    chain_wait();
    if (at.row >= M) return;
    float sum[N] = {};
    T *to = y + at.row * C + column;
    if (accumulate) {
        const Pack<T, N> before = load_pack<T, N>(to);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = to_float(before.at[i]);
    }
    for (int k = 0; k < K; k += at_once) {
        int32_t from[at_once];
        Pack<T, N> one[at_once];
#pragma unroll
        for (int j = 0; j < at_once; j++) from[j] = k + j < K ? place[at.row * K + k + j] : -1;
#pragma unroll
        for (int j = 0; j < at_once; j++) {
            if (from[j] >= R) from[j] = -1;
            if (from[j] >= 0) one[j] = load_pack<T, N>(xs + from[j] * C + column);
        }
#pragma unroll
        for (int j = 0; j < at_once; j++) {
            if (from[j] < 0) continue;
            forget(one[j]);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += to_float(one[j].at[i]);
        }
    }
    store_pack(to, pack_of<T>(sum));
}

// ---- activations ----

constexpr int row_threads = 128;

// weight * act(gate) * up. Products are not contracted, so that backward's are the same.
template <Act ACT> __device__ inline float weighted(float gate, float up, float weight) {
    return __fmul_rn(__fmul_rn(act_value<ACT>(gate), up), weight);
}

// Whether a row belongs to an expert.
__device__ inline bool is_used(const int32_t *offsets, int E, int64_t row) {
    return row >= offsets[0] && row < offsets[E];
}

template <typename T, int N, Act ACT>
__global__ void __launch_bounds__(threads)
    act_forward_kernel(T *y, const T *x, const float *weights, const int32_t *offsets, int E, int64_t R,
                       int64_t F, bool gated) {
    const Place at = place_of(thread_of(), F / N);
    const int64_t column = at.column * N;
    chain_next();
    chain_wait();
    if (at.row >= R || !is_used(offsets, E, at.row)) return;
    const T *from = x + at.row * (gated ? 2 * F : F) + column;
    const float weight = weights ? weights[at.row] : 1.0f;
    const Pack<T, N> gate = load_pack<T, N>(from);
    float out[N];
    if (gated) {
        const Pack<T, N> up = load_pack<T, N>(from + F);
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = weighted<ACT>(to_float(gate.at[i]), to_float(up.at[i]), weight);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = weighted<ACT>(to_float(gate.at[i]), 1.0f, weight);
    }
    store_pack(y + at.row * F + column, pack_of<T>(out));
}

// The arguments of backward; dx may be x, and y may be dy: a thread stores only what it has read.
template <typename T> struct ActBackward {
    T *dx, *y;
    float *dweights;
    const T *dy, *x;
    const float *weights;
    const int32_t *offsets;
    int E;
    int64_t F;
};

// Returns what N columns add to the gradient of the row's weight.
template <typename T, int N, Act ACT, bool GATED>
__device__ inline float act_columns(const ActBackward<T> &call, int64_t row, int64_t column, float weight) {
    const int64_t at = row * call.F + column, from = row * (GATED ? 2 * call.F : call.F) + column;
    const Pack<T, N> grad = load_pack<T, N>(call.dy + at), gate = load_pack<T, N>(call.x + from);
    Pack<T, N> up;
    if constexpr (GATED) up = load_pack<T, N>(call.x + from + call.F);
    float dgate[N], dup[N], out[N], sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float g = to_float(gate.at[i]), d = to_float(grad.at[i]), u = GATED ? to_float(up.at[i]) : 1.0f;
        const float value = act_value<ACT>(g);
        sum += d * (value * u);
        dgate[i] = weight * d * u * act_derivative<ACT>(g);
        dup[i] = weight * d * value;
        out[i] = weighted<ACT>(g, u, weight);
    }
    store_pack(call.dx + from, pack_of<T>(dgate));
    if constexpr (GATED) store_pack(call.dx + from + call.F, pack_of<T>(dup));
    if (call.y) store_pack(call.y + at, pack_of<T>(out));
    return sum;
}

// A block takes a row.
template <typename T, int N, Act ACT>
__global__ void __launch_bounds__(row_threads) act_backward_kernel(ActBackward<T> call, bool gated) {
    __shared__ float buffer[32];
    const int64_t row = blockIdx.x;
    chain_next();
    chain_wait();
    if (!is_used(call.offsets, call.E, row)) return;
    const float weight = call.weights ? call.weights[row] : 1.0f;
    float sum = 0;
    for (int64_t c = (int64_t)threadIdx.x * N; c < call.F; c += row_threads * N)
        sum += gated ? act_columns<T, N, ACT, true>(call, row, c, weight)
                     : act_columns<T, N, ACT, false>(call, row, c, weight);
    if (!call.dweights) return;
    sum = block_sum<float, row_threads>(sum, buffer);
    if (threadIdx.x == 0) call.dweights[row] = sum;
}

// A thread for each pack of N elements.
unsigned blocks_of(int64_t rows, int64_t columns, int N) {
    return blocks_for(rows * (columns / N), threads);
}

} // namespace

Status expert_sort_cuda(Stream *stream, Tensor place, Tensor slots, Tensor offsets, Tensor experts) {
    const int64_t R = tensor_count(experts), E = tensor_count(offsets) - 1;
    const Slots s = {data<int32_t>(experts),
                     data<int32_t>(place),
                     data<int32_t>(slots),
                     data<int32_t>(offsets),
                     (int)R,
                     (int)E};
    const size_t bins = (size_t)(E + 1) * sizeof(int32_t);
    if (R <= SORT_FEW) {
        LAUNCH(launch_chained(stream, sort_few_kernel, 1, 32, bins, s));
        return OK;
    }
    const int64_t most = sort_chunks(R, E), each = gpu_tiles(gpu_tiles(R, most), 32) * 32;
    const Chunks chunks = {(int)gpu_tiles(R, each), (int)each};
    const int warps = E <= narrow_to ? sort_warps : 1;
    const unsigned blocks = blocks_for(chunks.count, warps);
    void *counts;
    TRY(stream_workspace(stream, expert_sort_bytes(R, E), &counts));
    LAUNCH(launch_chained(stream, sort_count_kernel, blocks, 32 * warps, warps * bins, (int32_t *)counts, s,
                          chunks));
    LAUNCH(launch_chained(stream, sort_scan_kernel, 1, scan_threads, 0, (int32_t *)counts, s, chunks));
    LAUNCH(launch_chained(stream, sort_place_kernel, blocks, 32 * warps, warps * bins,
                          (const int32_t *)counts, s, chunks));
    return OK;
}

Status expert_gather_cuda(Stream *stream, Tensor out, Tensor out_weights, Tensor x, Tensor weights,
                          Tensor slots, int64_t K) {
    const int64_t R = tensor_rows(out), C = tensor_cols(out);
    cudaError_t error = with_packs(out.dtype, aligned_16(out, x), C, [&](auto t, auto n) {
        constexpr size_t bytes = sizeof(t) * n.value;
        using Word =
            std::conditional_t<bytes == 16, uint4, std::conditional_t<bytes == 4, uint32_t, uint16_t>>;
        const int64_t words = C / n.value;
        const dim3 blocks(blocks_for(R, threads / 32), blocks_for(words, gathered));
        return launch_chained(stream, gather_kernel<Word>, blocks, threads, 0, data<Word>(out),
                              data<float>(out_weights), data<Word>(x), data<float>(weights),
                              data<int32_t>(slots), R, tensor_rows(x), words, (int)K);
    });
    return cuda_status(error, __func__);
}

Status expert_combine_cuda(Stream *stream, Tensor y, Tensor xs, Tensor place, bool accumulate) {
    const int64_t M = tensor_rows(y), C = tensor_cols(y), K = tensor_cols(place);
    cudaError_t error = with_packs(y.dtype, aligned_16(y, xs), C, [&](auto t, auto n) {
        using T = decltype(t);
        return launch_chained(stream, combine_kernel<T, n.value>, blocks_of(M, C, n.value), threads, 0,
                              data<T>(y), data<T>(xs), data<int32_t>(place), M, C, tensor_rows(xs), (int)K,
                              accumulate);
    });
    return cuda_status(error, __func__);
}

Status expert_act_forward_cuda(Stream *stream, Tensor y, Tensor x, Tensor weights, Tensor offsets, Act act) {
    const int64_t R = tensor_rows(y), F = tensor_cols(y);
    const bool gated = tensor_count(x) != tensor_count(y);
    cudaError_t error = with_packs(y.dtype, aligned_16(y, x), F, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        return with_act(act, [&](auto tag) {
            return launch_chained(stream, act_forward_kernel<T, N, decltype(tag)::act>, blocks_of(R, F, N),
                                  threads, 0, data<T>(y), data<T>(x), data<float>(weights),
                                  data<int32_t>(offsets), (int)tensor_count(offsets) - 1, R, F, gated);
        });
    });
    return cuda_status(error, __func__);
}

Status expert_act_backward_cuda(Stream *stream, Tensor dx, Tensor y, Tensor dweights, Tensor dy, Tensor x,
                                Tensor weights, Tensor offsets, Act act) {
    const int64_t R = tensor_rows(dy), F = tensor_cols(dy);
    const bool gated = tensor_count(x) != tensor_count(dy);
    cudaError_t error = with_packs(dy.dtype, aligned_16(dx, y, dy, x), F, [&](auto t, auto n) {
        using T = decltype(t);
        constexpr int N = decltype(n)::value;
        const ActBackward<T> call = {data<T>(dx),
                                     data<T>(y),
                                     data<float>(dweights),
                                     data<T>(dy),
                                     data<T>(x),
                                     data<float>(weights),
                                     data<int32_t>(offsets),
                                     (int)tensor_count(offsets) - 1,
                                     F};
        return with_act(act, [&](auto tag) {
            return launch_chained(stream, act_backward_kernel<T, N, decltype(tag)::act>, blocks_for(R, 1),
                                  row_threads, 0, call, gated);
        });
    });
    return cuda_status(error, __func__);
}
