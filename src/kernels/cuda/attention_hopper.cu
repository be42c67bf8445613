// Attention forward on Hopper, for 16-bit types and heads of width 64 or 128.
//
// Warps are specialized. A producer warp loads tiles by TMA; each consumer warpgroup has 64 queries and
// iterates over the keys from the last tile that it sees to the first that it sees. The product q k^T of the
// next tile runs while the weights of the current one are multiplied by v, and the softmax overlaps with
// both. The grid is persistent: blocks stride over the query tiles, longest first within a group of as many
// heads as there are blocks, which balances the load and keeps the keys of these heads in L2.
//
// Each lane draws its own dropout masks: a word has the mask of a row's columns 8n + 2t and 8n + 2t + 1,
// which are those that lane t holds.
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/chain.cuh"

namespace hopper::forward {

constexpr int keys = 128; // per tile

// D: width of a head. W: consumer warpgroups.
template <int D, int W, bool DROP> struct Forward {
    // All threads start with an equal share of the 64k registers, rounded down to a multiple of 8. After
    // redistribution the total must not exceed that, or setmaxnreg blocks forever.
    enum {
        stages = D == 64 ? 3 : 2,
        threads = 128 * (W + 1),
        rows = 64 * W,
        consumer_registers = W == 3 ? 160 : 240,
        producer_registers = W == 3 ? 32 : 24,
        // Wide heads have long products: the two warpgroups take turns to start them, and draw masks while q
        // k^T runs. Otherwise the best place for drawing is among the exponentials, which take few of the
        // issue slots.
        draws_first = DROP && D == 128,
        turns = draws_first,
    };
    struct Shared {
        alignas(1024) uint16_t q[2][rows * D];
        alignas(1024) uint16_t k[stages][keys * D];
        alignas(1024) uint16_t v[stages][keys * D];
        uint64_t q_full[2], q_empty[2], k_full[stages], k_empty[stages], v_full[stages], v_empty[stages];
        PhiloxStart start;
    };
};

struct ForwardArgs {
    CUtensorMap q, k, v;
    CudaAttention call;
    Philox philox;
    int tiles, items;
};

// A query tile and the key tiles that it sees: `blocks` of them, from `lowest` on.
struct Item {
    int b, h, first, keys, lowest, blocks;
};
template <int ROWS> __device__ inline Item item_of(const ForwardArgs &args, int index) {
    int group = gridDim.x * args.tiles, heads = args.call.B * args.call.H;
    int begin = index / group * gridDim.x, count = min((int)gridDim.x, heads - begin), within = index % group;
    int head = begin + within % count;
    Item item;
    item.b = head / args.call.H;
    item.h = head % args.call.H;
    item.first = (args.tiles - 1 - within / count) * ROWS;
    Span span = span_of(args.call, item.b);
    item.keys = span.keys;
    int seen = keys_seen(args.call, span, item.first + ROWS - 1);
    item.lowest = is_windowed(args.call) ? first_seen(args.call, span, item.b, item.first) / keys : 0;
    item.blocks = max((seen + keys - 1) / keys - item.lowest, 0);
    return item;
}

template <typename F> __device__ inline void load_tiles(const ForwardArgs &args, typename F::Shared &s) {
    constexpr int D = sizeof s.q[0] / sizeof s.q[0][0] / F::rows;
    Ring<F::stages> ring;
    Ring<2> q_ring;
    for (int index = blockIdx.x; index < args.items; index += gridDim.x) {
        Item item = item_of<F::rows>(args, index);
        if (item.blocks == 0) continue;
        barrier_wait(&s.q_empty[q_ring.slot], q_ring.parity ^ 1);
        barrier_expect(&s.q_full[q_ring.slot], sizeof s.q[0]);
        copy_rows<D, F::rows>(s.q[q_ring.slot], &args.q, &s.q_full[q_ring.slot], item.first, item.h, item.b);
        q_ring.next();
        int shared_head = item.h / args.call.group;
        for (int j = item.lowest + item.blocks - 1; j >= item.lowest; j--, ring.next()) {
            barrier_wait(&s.k_empty[ring.slot], ring.parity ^ 1);
            barrier_expect(&s.k_full[ring.slot], sizeof s.k[0]);
            copy_rows<D, keys>(s.k[ring.slot], &args.k, &s.k_full[ring.slot], j * keys, shared_head, item.b);
            barrier_wait(&s.v_empty[ring.slot], ring.parity ^ 1);
            barrier_expect(&s.v_full[ring.slot], sizeof s.v[0]);
            copy_rows<D, keys>(s.v[ring.slot], &args.v, &s.v_full[ring.slot], j * keys, shared_head, item.b);
        }
    }
}

// The running softmax of the lane's two rows: their maxima, and the lane's part of their sums.
struct Running {
    float most[2] = {-infinity, -infinity}, total[2] = {};
};

// Sets the scores of invisible keys to -infinity.
__device__ inline void hide(float (&score)[64], int first, const int (&seen)[2]) {
    int key = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        if (key + i / 4 * 8 + i % 2 >= seen[i / 2 % 2]) score[i] = -infinity;
}

// The same for keys before the first that a row sees.
__device__ inline void hide_before(float (&score)[64], int first, const int (&begin)[2]) {
    int key = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        if (key + i / 4 * 8 + i % 2 < begin[i / 2 % 2]) score[i] = -infinity;
}

// Turns scores into weights; returns the factors that rescale earlier sums to the new maxima.
__device__ inline float2 weigh(float (&score)[64], Running &run, float scale) {
    float shrinks[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = run.most[half];
#pragma unroll
        for (int n = 0; n < 16; n++)
            most = fmaxf(most, fmaxf(score[4 * n + 2 * half], score[4 * n + 2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(full_warp, most, 1));
        most = fmaxf(most, __shfl_xor_sync(full_warp, most, 2));
        float base = most == -infinity ? 0.0f : most * scale;
        shrinks[half] = power_of_2(run.most[half] * scale - base);
        run.most[half] = most;
        float total[2] = {};
#pragma unroll
        for (int n = 0; n < 16; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &x = score[4 * n + 2 * half + i];
                x = power_of_2(x * scale - base);
                total[i] += x;
            }
        run.total[half] = run.total[half] * shrinks[half] + (total[0] + total[1]);
    }
    return make_float2(shrinks[0], shrinks[1]);
}

template <int N> __device__ inline void shrink(float (&sum)[N], float2 by) {
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] *= i / 2 % 2 ? by.y : by.x;
}

// The AND mask of a pair of weights, in columns 8n + 2t and 8n + 2t + 1.
__device__ inline uint32_t kept_halves(uint32_t bits, int n) {
    uint32_t halves; // replicates the sign bits of two bytes
    if (n % 2)
        asm("prmt.b32 %0, %1, 0, 0xBBAA;" : "=r"(halves) : "r"(bits << n / 2));
    else
        asm("prmt.b32 %0, %1, 0, 0x9988;" : "=r"(halves) : "r"(bits << n / 2));
    return halves;
}

template <typename T, bool DROP>
__device__ inline void pack(uint32_t (&packed)[32], const float (&weight)[64], const uint32_t (&bits)[2]) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
        packed[i] = round_pair<T>(weight[2 * i], weight[2 * i + 1]);
        if (DROP) packed[i] &= kept_halves(bits[i % 2], i / 2);
    }
}

template <typename T, int D, int W, bool DROP> struct Consumer {
    using F = Forward<D, W, DROP>;
    using Shared = typename F::Shared;
    using Sum = float[D / 2];
    const ForwardArgs &args;
    Shared &s;
    int group, warp, lane;
    Ring<F::stages> k_ring, v_ring;
    Ring<2> q_ring;

    __device__ inline void start_scores(float (&score)[64]) {
        barrier_wait(&s.k_full[k_ring.slot], k_ring.parity);
        products_begin();
        multiply_rows<T, D>(score, s.q[q_ring.slot], group * 64, s.k[k_ring.slot]);
        products_commit();
    }
    __device__ inline void end_scores(float (&score)[64]) {
        hold(score);
        barrier_arrive_warp(&s.k_empty[k_ring.slot]);
        k_ring.next();
    }
    __device__ inline void start_sum(Sum &sum, const uint32_t (&packed)[32], bool add) {
        barrier_wait(&s.v_full[v_ring.slot], v_ring.parity);
        products_begin();
        multiply_packed<T>(sum, packed, s.v[v_ring.slot], add);
        products_commit();
    }
    __device__ inline void end_sum(Sum &sum) {
        hold(sum);
        barrier_arrive_warp(&s.v_empty[v_ring.slot]);
        v_ring.next();
    }
    __device__ inline void await_turn() {
        if (F::turns) sync_threads(1 + group, 256);
    }
    __device__ inline void pass_turn() {
        if (F::turns) arrive_threads(2 - group, 256);
    }

    // The masks of the lane's two rows; `word` has their numbers for the first tile.
    __device__ inline void draw(uint32_t (&bits)[2], const uint64_t (&word)[2], int from) {
        int tile = key_place(args.call, from) / keys;
        const uint64_t at[2] = {word[0] + tile * 4, word[1] + tile * 4};
        kept_words(bits, args.philox, s.start, at);
    }

    __device__ inline void finish(const Item &item, const Sum &sum, Running &run) {
        int first = item.first + group * 64 + warp * 16;
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first + lane / 4 + half * 8;
            float total = run.total[half];
            total += __shfl_xor_sync(full_warp, total, 1);
            total += __shfl_xor_sync(full_warp, total, 2);
            factor[half] = total == 0 ? 0 : (DROP ? args.call.dropout.scale : 1.0f) / total;
            if (args.call.lse && lane % 4 == 0 && query < args.call.queries)
                args.call.lse[((int64_t)item.b * args.call.H + item.h) * args.call.queries + query] =
                    (run.most[half] * (args.call.scale * log2_e) + log2f(total)) * ln_2;
        }
        const CudaHeads &out = args.call.out;
        store_sums<T>(head_rows<T>(out, item.b, item.h) + first * out.row, out.row, args.call.queries - first,
                      (T *)s.q[q_ring.slot] + (group * 4 + warp) * 16 * width, sum, factor[0], factor[1]);
        fence_shared();
        barrier_arrive_warp(&s.q_empty[q_ring.slot]);
    }

    // The results of queries that see no keys.
    __device__ inline void store_zeros(const Item &item) {
        int first = item.first + group * 64 + warp * 16;
        const CudaHeads &out = args.call.out;
        T *to = head_rows<T>(out, item.b, item.h);
        for (int i = lane; i < 16 * (D / 8); i += 32) {
            int query = first + i / (D / 8);
            if (query >= args.call.queries) continue;
            *reinterpret_cast<uint4 *>(to + query * out.row + i % (D / 8) * 8) = make_uint4(0, 0, 0, 0);
            if (args.call.lse && i % (D / 8) == 0)
                args.call.lse[((int64_t)item.b * args.call.H + item.h) * args.call.queries + query] =
                    -infinity;
        }
    }

    __device__ inline void work(const Item &item) {
        float scale = args.call.scale * log2_e;
        int first = item.first + group * 64 + warp * 16, upper = first + lane / 4;
        Span span = {0, args.call.queries, item.keys};
        int seen[2] = {keys_seen(args.call, span, upper), keys_seen(args.call, span, upper + 8)};
        int all_see = keys_seen(args.call, span, first);
        // Keys from `begin` on are visible, in all rows from `all_begin` on.
        int begin[2] = {0, 0}, all_begin = 0;
        if (is_windowed(args.call)) {
            begin[0] = first_seen(args.call, span, item.b, upper);
            begin[1] = first_seen(args.call, span, item.b, upper + 8);
            all_begin = first_seen(args.call, span, item.b, first + 15);
        }
        uint64_t word[2];
        if (DROP)
            for (int half = 0; half < 2; half++)
                word[half] = dropout_word(args.call.dropout, item.b, item.h,
                                          query_place(args.call, upper + half * 8), lane % 4 * 2);
        Running run;
        float score[64];
        Sum sum;
        uint32_t packed[32], bits[2];
        int from = (item.lowest + item.blocks - 1) * keys, lowest = item.lowest * keys;
        barrier_wait(&s.q_full[q_ring.slot], q_ring.parity);
        await_turn();
        start_scores(score);
        pass_turn();
        if (DROP) draw(bits, word, from);
        products_wait<0>();
        end_scores(score);
        if (from + keys > all_see) hide(score, from, seen);
        if (from < all_begin) hide_before(score, from, begin);
        weigh(score, run, scale);
        pack<T, DROP>(packed, score, bits);
        bool add = false;
        for (from -= keys; from >= lowest; from -= keys) {
            await_turn();
            start_scores(score);
            start_sum(sum, packed, add);
            pass_turn();
            add = true;
            if (F::draws_first) {
                draw(bits, word, from);
                settle(bits[0] == 1 && bits[1] == 1);
            }
            products_wait<1>();
            end_scores(score);
            if (from + keys > all_see) hide(score, from, seen);
            if (from < all_begin) hide_before(score, from, begin);
            if (DROP && !F::draws_first) draw(bits, word, from);
            float2 by = weigh(score, run, scale);
            settle((DROP && bits[0] == 1 && bits[1] == 1) || run.total[0] < 0 || run.total[1] < 0);
            products_wait<0>();
            end_sum(sum);
            shrink(sum, by);
            pack<T, DROP>(packed, score, bits);
        }
        await_turn();
        start_sum(sum, packed, add);
        pass_turn();
        products_wait<0>();
        end_sum(sum);
        finish(item, sum, run);
    }

    __device__ inline void run() {
        if (F::turns && group == 1) arrive_threads(1, 256);
        for (int index = blockIdx.x; index < args.items; index += gridDim.x) {
            Item item = item_of<F::rows>(args, index);
            if (item.blocks == 0) {
                store_zeros(item);
                continue;
            }
            work(item);
            q_ring.next();
        }
    }
};

template <typename T, int D, int W, bool DROP> __device__ inline void forward_block(const ForwardArgs &args) {
    using F = Forward<D, W, DROP>;
    extern __shared__ __align__(1024) unsigned char shared[];
    typename F::Shared &s = *reinterpret_cast<typename F::Shared *>(shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s.q_full[i], 1);
            barrier_init(&s.q_empty[i], 4 * W);
        }
        for (int i = 0; i < F::stages; i++) {
            barrier_init(&s.k_full[i], 1);
            barrier_init(&s.v_full[i], 1);
            barrier_init(&s.k_empty[i], 4 * W);
            barrier_init(&s.v_empty[i], 4 * W);
        }
        barriers_ready();
        if (DROP) s.start = philox_start(args.philox, args.call.dropout);
    }
    __syncthreads();
    chain_next();
    chain_wait();
    if (threadIdx.x < 128) {
        registers_down<F::producer_registers>();
        if (threadIdx.x == 0) load_tiles<F>(args, s);
    } else {
        registers_up<F::consumer_registers>();
        int thread = threadIdx.x - 128;
        Consumer<T, D, W, DROP>{args, s, thread / 128, thread / 32 % 4, thread % 32}.run();
    }
}

template <typename T, int D, int W, bool DROP>
__global__ void __launch_bounds__(Forward<D, W, DROP>::threads, 1)
    forward_hopper(const __grid_constant__ ForwardArgs args) {
    if constexpr (is_target) forward_block<T, D, W, DROP>(args);
}

template <typename T, int D, int W, bool DROP>
cudaError_t start_forward(cudaStream_t stream, ForwardArgs &args, DType type) {
    using F = Forward<D, W, DROP>;
    const CudaAttention &call = args.call;
    int shared_heads = call.H / call.group;
    if (!map_heads(&args.q, type, call, call.q, call.H, call.queries, F::rows) ||
        !map_heads(&args.k, type, call, call.k, shared_heads, call.keys, keys) ||
        !map_heads(&args.v, type, call, call.v, shared_heads, call.keys, keys))
        return cudaErrorInvalidValue;
    args.tiles = (call.queries + F::rows - 1) / F::rows;
    args.items = call.B * call.H * args.tiles;
    size_t bytes = sizeof(typename F::Shared);
    cudaError_t error = allow_shared(forward_hopper<T, D, W, DROP>, bytes);
    if (error != cudaSuccess) return error;
    int blocks = std::min(args.items, processors());
    return launch_chained(stream, forward_hopper<T, D, W, DROP>, blocks, F::threads, bytes, args);
}

template <typename T> cudaError_t start_forward_of(cudaStream_t stream, ForwardArgs &args, DType type) {
    bool wide = args.call.D == 128;
    bool drop = args.call.dropout.threshold;
    if (wide)
        return drop ? start_forward<T, 128, 2, true>(stream, args, type)
                    : start_forward<T, 128, 2, false>(stream, args, type);
    // Three warpgroups share each key tile, but waste more on the diagonal, and have few registers for masks.
    if (args.call.causal || args.call.parts || (drop && args.call.queries > 384))
        return drop ? start_forward<T, 64, 2, true>(stream, args, type)
                    : start_forward<T, 64, 2, false>(stream, args, type);
    return drop ? start_forward<T, 64, 3, true>(stream, args, type)
                : start_forward<T, 64, 3, false>(stream, args, type);
}

} // namespace hopper::forward

using namespace hopper::forward;

// Compiled for any target other than sm_90a, the kernel is empty and takes hardly any registers.
bool attention_hopper_runs(void) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, forward_hopper<__nv_bfloat16, 64, 2, true>);
    cudaGetLastError(); // not an error of the next launch
    return error == cudaSuccess && attributes.numRegs > 64;
}

bool attention_hopper_supports(DType type, const CudaAttention *call) {
    if ((type != DT_BF16 && type != DT_F16) || (call->D != 64 && call->D != 128) || call->past ||
        (!call->parts && call->queries != call->keys) || !call->aligned || !(call->scale > 0))
        return false;
    for (const CudaHeads *heads :
         {&call->q, &call->k, &call->v, &call->out, &call->dout, &call->dq, &call->dk, &call->dv})
        if ((uintptr_t)heads->data % 16 || heads->batch % 8 || heads->head % 8 || heads->row % 8)
            return false;
    return true;
}

cudaError_t launch_attention_forward_hopper(cudaStream_t stream, DType type, const CudaAttention *call) {
    ForwardArgs args = {};
    args.call = *call;
    args.philox = hopper::philox_of(call->dropout);
    if (type == DT_BF16) return start_forward_of<__nv_bfloat16>(stream, args, type);
    return start_forward_of<__half>(stream, args, type);
}

namespace hopper {

bool map_heads(CUtensorMap *map, DType type, const CudaAttention &call, const CudaHeads &heads, int count,
               int length, int rows) {
    cuuint64_t dims[] = {(cuuint64_t)call.D, (cuuint64_t)length, (cuuint64_t)count, (cuuint64_t)call.B};
    cuuint64_t strides[] = {(cuuint64_t)heads.row * 2, (cuuint64_t)heads.head * 2,
                            (cuuint64_t)heads.batch * 2};
    cuuint32_t box[] = {width, (cuuint32_t)rows, 1, 1};
    return map_boxes(map, type, heads.data, 4, dims, strides, box);
}

} // namespace hopper
