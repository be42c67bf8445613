// Routing to experts. A warp takes a row and reads its logits from the L1 cache as often as it needs them.
//
// Experts are chosen by comparing integers that are ordered as the keys. Keys without a bias and groups are
// the logits, so that choices are those of every backend; others are computed in fp64, as the reference does.
// Everything else is in fp32.
//
// M rows, E experts, K of them per row
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/ptx.cuh"

namespace {

constexpr int most_warps = 4;
constexpr int wide_from = 512; // experts from which a block has one row at a time, for its shared memory

struct Routing {
    int64_t M, T;
    int E, K;
    RouteScore score;
    bool normalize;
    float scale;
    int groups, top_groups;
    const float *bias; // NULL: none
};

Routing routing_of(Tensor logits, Tensor experts, const Route &spec) {
    const int64_t T = logits.ndim == 3 ? logits.dim[1] : 1;
    return {tensor_rows(logits),
            T,
            (int)tensor_cols(logits),
            (int)tensor_cols(experts),
            spec.score,
            spec.normalize,
            spec.scale == 0 ? 1.0f : spec.scale,
            spec.groups,
            spec.top_groups,
            data<float>(spec.bias)};
}

int warps_for(int64_t E) {
    return E <= wide_from ? most_warps : 1;
}

__device__ inline int lane_of() {
    return (int)threadIdx.x % 32;
}

// The row of a warp, or one past the last.
__device__ inline int64_t warp_row() {
    return blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
}

// ---- choosing ----

constexpr uint32_t taken = 0, worst = 1; // worst: NaN

__device__ inline uint32_t order_of(float key) {
    if (isnan(key)) return worst;
    const uint32_t bits = __float_as_uint(key + 0.0f); // -0 becomes 0
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float key_of(uint32_t order) {
    if (order == worst) return __uint_as_float(0x7fffffffu);
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// The index of the first of the largest, which is then taken. A warp calls this with the same array.
__device__ inline int take_best(uint32_t *order, int count) {
    uint32_t best = taken, place = 0;
    for (int i = lane_of(); i < count; i += 32)
        if (order[i] > best) best = order[i], place = (uint32_t)i;
    const uint32_t largest = warp_largest(best);
    const uint32_t first = ~warp_largest(best == largest ? ~place : 0u);
    if (first % 32 == (uint32_t)lane_of()) order[first] = taken;
    __syncwarp();
    return (int)first;
}

// The sum of the two best keys of a group.
__device__ inline float group_sum(const uint32_t *order, int size) {
    uint32_t best = taken, second = taken;
    for (int i = 0; i < size; i++) {
        const uint32_t own = order[i];
        second = max(second, min(best, own));
        best = max(best, own);
    }
    return second == taken ? key_of(best) : key_of(best) + key_of(second);
}

// Takes the experts of all groups but the best. `sums` has room for E values.
__device__ inline void take_groups(uint32_t *order, uint32_t *sums, const Routing &route) {
    const int size = route.E / route.groups;
    for (int g = lane_of(); g < route.groups; g += 32) sums[g] = order_of(group_sum(order + g * size, size));
    __syncwarp();
    for (int i = 0; i < route.top_groups; i++) take_best(sums, route.groups);
    for (int e = lane_of(); e < route.E; e += 32)
        if (sums[e / size] != taken) order[e] = taken;
    __syncwarp();
}

__device__ inline double warp_max_fp64(double value) {
    for (int lane = 16; lane > 0; lane /= 2) value = fmax(value, __shfl_xor_sync(full_warp, value, lane));
    return value;
}

// The keys of a row as order (E); `sums` as in take_groups.
__device__ inline void order_keys(uint32_t *order, uint32_t *sums, const float *logits,
                                  const Routing &route) {
    const bool softmax = route.score == ROUTE_SOFTMAX;
    if (!route.bias && !route.groups) {
        for (int e = lane_of(); e < route.E; e += 32) order[e] = order_of(logits[e]);
        __syncwarp();
        return;
    }
    double largest = -INFINITY, sum = 0;
    for (int e = lane_of(); softmax && e < route.E; e += 32) largest = fmax(largest, (double)logits[e]);
    largest = warp_max_fp64(largest);
    for (int e = lane_of(); softmax && e < route.E; e += 32) sum += exp((double)logits[e] - largest);
    sum = warp_sum(sum);
    for (int e = lane_of(); e < route.E; e += 32) {
        const double x = logits[e], score = softmax ? exp(x - largest) / sum : 1 / (1 + exp(-x));
        float key = (float)score;
        if (route.bias) key += route.bias[e];
        order[e] = order_of(key);
    }
    __syncwarp();
    if (route.groups) take_groups(order, sums, route);
}

// ---- scores ----

__device__ inline float sigmoid_of(float x) {
    return 1.0f / (1.0f + expf(-x));
}

// What all scores of a row depend on.
struct Spread {
    float max, sum; // of logits; of e^(logit - max)
    float sigmoids; // their sum, plus 1e-20
};

__device__ inline Spread spread_of(const float *logits, int E, bool sigmoids) {
    Spread s = {-INFINITY, 0, 0};
    for (int e = lane_of(); e < E; e += 32) s.max = fmaxf(s.max, logits[e]);
    s.max = warp_max(s.max);
    for (int e = lane_of(); e < E; e += 32) {
        s.sum += expf(logits[e] - s.max);
        if (sigmoids) s.sigmoids += sigmoid_of(logits[e]);
    }
    s.sum = warp_sum(s.sum);
    if (sigmoids) s.sigmoids = warp_sum(s.sigmoids) + 1e-20f;
    return s;
}

__device__ inline float softmax_of(const Spread &s, float x) {
    return expf(x - s.max) / s.sum;
}
__device__ inline float log_sum_of(const Spread &s) {
    return s.max + logf(s.sum);
}

// The statistics by which the weights of the chosen experts are divided, before they are scaled: max and sum
// of the chosen ones if they are normalized.
__device__ inline Spread shares_of(const float *logits, const int32_t *chosen, const Spread &all,
                                   const Routing &route) {
    Spread s = all;
    if (!route.normalize) return s;
    s.max = -INFINITY, s.sum = 0, s.sigmoids = 0;
    for (int k = lane_of(); k < route.K; k += 32) s.max = fmaxf(s.max, logits[chosen[k]]);
    s.max = warp_max(s.max);
    for (int k = lane_of(); k < route.K; k += 32) {
        const float x = logits[chosen[k]];
        s.sum += expf(x - s.max);
        s.sigmoids += sigmoid_of(x);
    }
    s.sum = warp_sum(s.sum);
    s.sigmoids = warp_sum(s.sigmoids) + 1e-20f;
    return s;
}

__device__ inline float share_of(const Spread &shares, float x, const Routing &route) {
    if (route.score == ROUTE_SOFTMAX) return softmax_of(shares, x);
    return route.normalize ? sigmoid_of(x) / shares.sigmoids : sigmoid_of(x);
}

// ---- forward ----

__device__ inline int64_t position_at(const Positions &at, int64_t row) {
    return at.turn && row >= at.turn ? at.second + row - at.turn : at.first + row;
}

__global__ void route_forward_kernel(float *weights, int32_t *experts, const float *logits,
                                     const int32_t *lens, Positions at, Routing route) {
    extern __shared__ uint32_t keys[]; // per warp: order (E), and with groups their sums (E)
    const int64_t m = warp_row();
    chain_next();
    chain_wait();
    if (m >= route.M) return;
    uint32_t *order = keys + (size_t)(threadIdx.x / 32) * (route.groups ? 2 : 1) * route.E;
    const float *row = logits + m * route.E;
    int32_t *chosen = experts + m * route.K;
    float *weight = weights + m * route.K;
    const bool padding = lens && position_at(at, m % route.T) >= lens[m / route.T];
    if (padding) {
        for (int k = lane_of(); k < route.K; k += 32) chosen[k] = -1, weight[k] = 0;
        return;
    }
    order_keys(order, order + route.E, row, route);
    for (int k = 0; k < route.K; k++) {
        const int best = take_best(order, route.E);
        if (lane_of() == 0) chosen[k] = best;
    }
    __syncwarp();
    Spread all = {};
    if (route.score == ROUTE_SOFTMAX && !route.normalize) all = spread_of(row, route.E, false);
    const Spread shares = shares_of(row, chosen, all, route);
    for (int k = lane_of(); k < route.K; k += 32)
        weight[k] = route.scale * share_of(shares, row[chosen[k]], route);
}

// ---- backward ----

// Whether a row has experts, all in range.
__device__ inline bool has_experts(const int32_t *chosen, const Routing &route) {
    bool valid = true;
    for (int k = lane_of(); k < route.K; k += 32) valid &= chosen[k] >= 0 && chosen[k] < route.E;
    return __all_sync(full_warp, valid);
}

// The sum of load_e p_e, or 0 without a load.
__device__ inline float load_of(const float *logits, const float *load, const Spread &s,
                                const Routing &route) {
    float sum = 0;
    if (!load) return 0;
    for (int e = lane_of(); e < route.E; e += 32)
        sum += load[e] *
               (route.score == ROUTE_SOFTMAX ? softmax_of(s, logits[e]) : sigmoid_of(logits[e]) / s.sigmoids);
    return warp_sum(sum);
}

struct Losses {
    const float *load; // NULL: no balancing
    float balance, z;
};

// The gradient of the losses and of `common` times the sum of softmax scores at logit e.
__device__ inline float loss_gradient(float x, int e, float mean, float common, const Spread &s,
                                      const Losses &loss, const Routing &route) {
    const bool softmax = route.score == ROUTE_SOFTMAX;
    const float score = softmax ? softmax_of(s, x) : sigmoid_of(x);
    float grad = 0;
    if (loss.load) {
        const float slope = softmax ? score : score / s.sigmoids * (1.0f - score);
        grad = slope * (loss.balance * (loss.load[e] - mean));
    }
    if (loss.z != 0) grad += loss.z * 2 * log_sum_of(s) * (softmax ? score : softmax_of(s, x));
    if (softmax) grad += common * score;
    return grad;
}

__device__ inline float place_gradient(const float *dweights, int32_t place, int64_t R) {
    return place >= 0 && place < R ? dweights[place] : 0.0f;
}

// dlogits may be logits: gradients are complete in shared memory before the first is stored.
__global__ void route_backward_kernel(float *dlogits, const float *dweights, const int32_t *place,
                                      const float *logits, const int32_t *experts, Losses loss,
                                      Routing route) {
    extern __shared__ float gradients[]; // (E) per warp
    const int64_t m = warp_row(), R = route.M * route.K;
    chain_next();
    chain_wait();
    if (m >= route.M) return;
    float *grad = gradients + (size_t)(threadIdx.x / 32) * route.E;
    const float *row = logits + m * route.E;
    float *out = dlogits + m * route.E;
    const int32_t *chosen = experts + m * route.K, *places = place + m * route.K;
    if (!has_experts(chosen, route)) {
        for (int e = lane_of(); e < route.E; e += 32) out[e] = 0;
        return;
    }
    const bool softmax = route.score == ROUTE_SOFTMAX;
    const Spread all = spread_of(row, route.E, !softmax), shares = shares_of(row, chosen, all, route);
    float mean = 0;
    for (int k = lane_of(); k < route.K; k += 32)
        mean += share_of(shares, row[chosen[k]], route) * place_gradient(dweights, places[k], R);
    mean = warp_sum(mean);
    const float load = load_of(row, loss.load, all, route);
    const float common = softmax && !route.normalize ? -route.scale * mean : 0.0f;
    for (int e = lane_of(); e < route.E; e += 32)
        grad[e] = loss_gradient(row[e], e, load, common, all, loss, route);
    __syncwarp();
    for (int k = lane_of(); k < route.K; k += 32) {
        const float x = row[chosen[k]], slope = softmax ? 1.0f : 1.0f - sigmoid_of(x);
        const float own = place_gradient(dweights, places[k], R) - (route.normalize ? mean : 0.0f);
        grad[chosen[k]] += route.scale * share_of(shares, x, route) * slope * own;
    }
    __syncwarp();
    for (int e = lane_of(); e < route.E; e += 32) out[e] = grad[e];
}

// ---- statistics ----

constexpr int count_warps = 8, final_threads = 256;

// A lane's part of -sum_e p_e log p_e.
__device__ inline float entropy_of(const float *logits, const Spread &s, const Routing &route) {
    float sum = 0;
    for (int e = lane_of(); e < route.E; e += 32) {
        const float x = logits[e];
        float p, log_p;
        if (route.score == ROUTE_SOFTMAX) {
            p = softmax_of(s, x);
            log_p = x - log_sum_of(s);
        } else {
            p = sigmoid_of(x) / s.sigmoids;
            log_p = fminf(0.0f, x) - log1pf(expf(-fabsf(x))) - logf(s.sigmoids);
        }
        sum -= p * fmaxf(-200.0f, log_p); // where p is 0
    }
    return warp_sum(sum);
}

// partial (blocks,3) = the totals of the rows that each block takes; counts += their experts.
__global__ void __launch_bounds__(32 * count_warps)
    route_count_kernel(unsigned long long *counts, double *partial, const float *logits,
                       const int32_t *experts, const float *load, Routing route) {
    extern __shared__ uint32_t count[]; // (E)
    __shared__ double sums[count_warps][ROUTE_TOTALS];
    chain_next();
    chain_wait();
    for (int e = threadIdx.x; e < route.E; e += 32 * count_warps) count[e] = 0;
    __syncthreads();
    double total[ROUTE_TOTALS] = {};
    const int64_t step = gridDim.x * (int64_t)count_warps;
    for (int64_t m = warp_row(); m < route.M; m += step) {
        const float *row = logits + m * route.E;
        const int32_t *chosen = experts + m * route.K;
        if (!has_experts(chosen, route)) continue;
        for (int k = lane_of(); k < route.K; k += 32) atomicAdd(&count[chosen[k]], 1u);
        const Spread s = spread_of(row, route.E, route.score == ROUTE_SIGMOID);
        const float log_sum = log_sum_of(s);
        total[0] += (double)load_of(row, load, s, route);
        total[1] += (double)log_sum * (double)log_sum;
        total[2] += (double)entropy_of(row, s, route);
    }
    if (lane_of() == 0)
        for (int i = 0; i < ROUTE_TOTALS; i++) sums[threadIdx.x / 32][i] = total[i];
    __syncthreads();
    for (int e = threadIdx.x; e < route.E; e += 32 * count_warps)
        if (count[e]) atomicAdd(&counts[e], (unsigned long long)count[e]);
    if (threadIdx.x >= ROUTE_TOTALS) return;
    double all = 0;
    for (int warp = 0; warp < count_warps; warp++) all += sums[warp][threadIdx.x];
    partial[blockIdx.x * (int64_t)ROUTE_TOTALS + threadIdx.x] = all;
}

__global__ void __launch_bounds__(final_threads)
    route_totals_kernel(double *totals, const double *partial, int blocks) {
    __shared__ double buffer[ROUTE_TOTALS][32];
    chain_next();
    chain_wait();
    for (int i = 0; i < ROUTE_TOTALS; i++) {
        double total = 0;
        for (int b = threadIdx.x; b < blocks; b += final_threads) total += partial[b * ROUTE_TOTALS + i];
        total = block_sum<double, final_threads>(total, buffer[i]);
        if (threadIdx.x == 0) totals[i] += total;
    }
}

} // namespace

Status route_forward_cuda(Stream *stream, Tensor weights, Tensor experts, Tensor logits, Tensor lens,
                          Positions at, Route spec) {
    const Routing route = routing_of(logits, experts, spec);
    const int warps = warps_for(route.E);
    const size_t shared = (size_t)(warps * route.E) * (route.groups ? 2 : 1) * sizeof(uint32_t);
    LAUNCH(launch_chained(stream, route_forward_kernel, blocks_for(route.M, warps), 32 * warps, shared,
                          data<float>(weights), data<int32_t>(experts), data<float>(logits),
                          data<int32_t>(lens), at, route));
    return OK;
}

Status route_backward_cuda(Stream *stream, Tensor dlogits, Tensor dweights, Tensor place, Tensor logits,
                           Tensor experts, RouteLoss loss, Route spec) {
    const Routing route = routing_of(logits, experts, spec);
    const Losses losses = {data<float>(loss.load), loss.balance, loss.z};
    const int warps = warps_for(route.E);
    const size_t shared = (size_t)(warps * route.E) * sizeof(float);
    LAUNCH(launch_chained(stream, route_backward_kernel, blocks_for(route.M, warps), 32 * warps, shared,
                          data<float>(dlogits), data<float>(dweights), data<int32_t>(place),
                          data<float>(logits), data<int32_t>(experts), losses, route));
    return OK;
}

// The number of blocks, and so the order of sums, depends on the number of rows alone.
Status route_count_cuda(Stream *stream, Tensor counts, Tensor totals, Tensor logits, Tensor experts,
                        Tensor load, Route spec) {
    const Routing route = routing_of(logits, experts, spec);
    const int blocks = route_count_blocks(route.M);
    void *partial;
    TRY(stream_workspace(stream, route_count_bytes(route.M), &partial));
    LAUNCH(launch_chained(stream, route_count_kernel, blocks, 32 * count_warps, route.E * sizeof(uint32_t),
                          data<unsigned long long>(counts), (double *)partial, data<float>(logits),
                          data<int32_t>(experts), data<float>(load), route));
    LAUNCH(launch_chained(stream, route_totals_kernel, 1, final_threads, 0, data<double>(totals),
                          (double *)partial, blocks));
    return OK;
}
