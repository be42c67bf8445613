// Attention forward on Hopper, for 16-bit types and heads of width 64 or 128.
//
// Warps are specialized. A producer warp loads tiles by TMA; each consumer warpgroup has 64 queries and
// iterates over the keys from the last tile that it sees to the first that it sees. The product q k^T of the
// next tile runs while the weights of the current one are multiplied by v, and the softmax overlaps with
// both. The grid is persistent: blocks stride over the query tiles, longest first within a group of as many
// heads as there are blocks, which balances the load and keeps the keys of these heads in L2.
//
// Dropout draws cost more instructions than the softmax. The remaining producer warps draw masks ahead of the
// consumers into a ring of slots, one word per row and lane t: bit 15 - n tells whether column 8n + 2t is
// kept, bit 31 - n whether column 8n + 2t + 1 is.
#include "kernels/cuda/attention_hopper.cuh"

namespace hopper::forward {

constexpr int keys = 128; // per tile
constexpr int mask_slots = 4;

// D: width of a head. W: consumer warpgroups.
template <int D, int W, bool DROP> struct Forward {
    // All threads start with an equal share of the 64k registers, rounded down to a multiple of 8. After
    // redistribution the total must not exceed that, or setmaxnreg blocks forever. Consumers of wide heads
    // need too many for a second producer warpgroup.
    enum {
        stages = D == 64 ? 3 : 2,
        producers = DROP && D == 64 ? 2 : 1, // warpgroups
        draw_warps = 4 * producers - 1,
        threads = 128 * (W + producers),
        rows = 64 * W,
        consumer_registers = producers == 2 ? 168
                             : W == 3       ? 160
                             : DROP         ? 216
                                            : 240,
        producer_registers = producers == 2 ? 88
                             : W == 3       ? 32
                             : DROP         ? 72
                                            : 24,
    };
    struct Shared {
        alignas(1024) uint16_t q[rows * D];
        alignas(1024) uint16_t k[stages][keys * D];
        alignas(1024) uint16_t v[stages][keys * D];
        uint32_t mask[mask_slots][rows][4];
        uint64_t q_full, q_empty, k_full[stages], k_empty[stages], v_full[stages], v_empty[stages];
        uint64_t mask_full[mask_slots], mask_empty[mask_slots];
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
    int seen = args.call.causal ? min(item.keys, item.first + ROWS) : item.keys;
    item.lowest = is_windowed(args.call) ? first_seen(args.call, span, item.b, item.first) / keys : 0;
    item.blocks = max((seen + keys - 1) / keys - item.lowest, 0);
    return item;
}

template <typename F> __device__ inline void load_tiles(const ForwardArgs &args, typename F::Shared &s) {
    constexpr int D = sizeof s.q / sizeof s.q[0] / F::rows;
    Ring<F::stages> ring;
    uint32_t round = 0;
    for (int index = blockIdx.x; index < args.items; index += gridDim.x) {
        Item item = item_of<F::rows>(args, index);
        if (item.blocks == 0) continue;
        barrier_wait(&s.q_empty, round ^ 1);
        barrier_expect(&s.q_full, sizeof s.q);
        copy_rows<D, F::rows>(s.q, &args.q, &s.q_full, item.first, item.h, item.b);
        round ^= 1;
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

// The mask words of one row, for lanes t = 0 to 3: a Philox block has the draws of eight keys, two per word.
// If only the first 8 * `columns` keys are visible, the others are not drawn.
__device__ inline uint4 draw_row(const ForwardArgs &args, uint64_t index, int columns) {
    const Philox &philox = args.philox;
    uint32_t even[4] = {}, odd[4] = {};
    uint64_t block = index / 8;
    uint32_t low = (uint32_t)block;
    if (__all_sync(full_warp, args.call.dropout.extent[1] % 8 == 0 && low < 0xffffff00u)) {
        PhiloxHigh high = philox_high(philox, (uint32_t)(block >> 32));
        uint64_t product = (uint64_t)philox_factor * low;
#pragma unroll 1
        for (int n = 0; n < columns; n += 4) {
            uint4 made[4];
            uint64_t products[4];
#pragma unroll
            for (int i = 0; i < 4; i++, product += philox_factor) products[i] = product;
            philox_draw(made, philox, high, products);
#pragma unroll
            for (int i = 0; i < 4; i++) append_words(even, odd, made[i], philox);
        }
    } else {
#pragma unroll 1
        for (int n = 0; n < columns; n++) {
#pragma unroll
            for (int t = 0; t < 4; t++) {
                uint64_t at = index + 8 * n + 2 * t;
                append_kept(even[t], draw(args.call.dropout.key, at) << 16, philox);
                append_kept(odd[t], draw(args.call.dropout.key, at + 1) << 16, philox);
            }
        }
    }
    int rest = 16 - columns;
    return make_uint4((odd[0] << 16 | even[0]) << rest, (odd[1] << 16 | even[1]) << rest,
                      (odd[2] << 16 | even[2]) << rest, (odd[3] << 16 | even[3]) << rest);
}

template <typename F> __device__ inline void draw_masks(const ForwardArgs &args, typename F::Shared &s) {
    constexpr int units = F::rows / 32, draw_warps = F::draw_warps; // a unit is 32 rows
    int lane = threadIdx.x % 32, turn = __shfl_sync(full_warp, threadIdx.x / 32, 0) - 1;
    uint32_t extent = (uint32_t)args.call.dropout.extent[1];
    Ring<mask_slots> ring;
    for (int index = blockIdx.x; index < args.items; index += gridDim.x) {
        Item item = item_of<F::rows>(args, index);
        uint64_t head = dropout_scores(args.call.dropout, item.b, item.h, 0);
        for (int j = item.lowest + item.blocks - 1; j >= item.lowest; j--, ring.next()) {
            barrier_wait(&s.mask_empty[ring.slot], ring.parity ^ 1);
#pragma unroll 1
            for (int unit = turn; unit < units; unit += draw_warps) {
                int row = unit * 32 + lane;
                uint64_t from = head + (uint64_t)(item.first + row) * extent + (uint64_t)(j * keys);
                int seen = item.first + unit * 32 + 32 - j * keys;
                int columns = args.call.causal ? min(16, seen / 8) : 16;
                *reinterpret_cast<uint4 *>(&s.mask[ring.slot][row][0]) = draw_row(args, from, columns);
            }
            barrier_arrive_warp(&s.mask_full[ring.slot]);
            // If the units do not divide evenly among the warps, the next tile starts with the next warp.
            turn -= units % draw_warps;
            if (turn < 0) turn += draw_warps;
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

// A pair's AND mask.
__device__ inline uint32_t kept_halves(uint32_t bits, int n) {
    uint32_t halves;
    asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(halves) : "r"(bits << n)); // replicates sign bits
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
    Ring<mask_slots> mask_ring;

    __device__ inline void read_mask(uint32_t (&bits)[2]) {
        if (!DROP) return;
        int row = group * 64 + warp * 16 + lane / 4;
        barrier_wait(&s.mask_full[mask_ring.slot], mask_ring.parity);
        bits[0] = s.mask[mask_ring.slot][row][lane % 4];
        bits[1] = s.mask[mask_ring.slot][row + 8][lane % 4];
        barrier_arrive_warp(&s.mask_empty[mask_ring.slot]);
        mask_ring.next();
    }

    __device__ inline void start_scores(float (&score)[64]) {
        barrier_wait(&s.k_full[k_ring.slot], k_ring.parity);
        products_begin();
        multiply_rows<T, D>(score, s.q, group * 64, s.k[k_ring.slot]);
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

    __device__ inline void finish(const Item &item, int first, const Sum &sum, Running &run) {
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
                      (T *)s.q + (group * 4 + warp) * 16 * width, sum, factor[0], factor[1]);
    }

    __device__ inline void work(const Item &item, uint32_t round) {
        float scale = args.call.scale * log2_e;
        int first = item.first + group * 64 + warp * 16, upper = first + lane / 4;
        int seen[2] = {item.keys, item.keys};
        if (args.call.causal) {
            seen[0] = min(item.keys, upper + 1);
            seen[1] = min(item.keys, upper + 9);
        }
        int all_see = args.call.causal ? min(item.keys, first + 1) : item.keys;
        // Keys from `begin` on are visible, in all rows from `all_begin` on.
        int begin[2] = {0, 0}, all_begin = 0;
        if (is_windowed(args.call)) {
            Span span = span_of(args.call, item.b);
            begin[0] = first_seen(args.call, span, item.b, upper);
            begin[1] = first_seen(args.call, span, item.b, upper + 8);
            all_begin = first_seen(args.call, span, item.b, first + 15);
        }
        Running run;
        float score[64];
        Sum sum;
        uint32_t packed[32], bits[2];
        if (item.blocks == 0) {
#pragma unroll
            for (int i = 0; i < D / 2; i++) sum[i] = 0;
            finish(item, first, sum, run);
            return;
        }
        barrier_wait(&s.q_full, round);
        int from = (item.lowest + item.blocks - 1) * keys, lowest = item.lowest * keys;
        start_scores(score);
        products_wait<0>();
        end_scores(score);
        read_mask(bits);
        if (from + keys > all_see) hide(score, from, seen);
        if (from < all_begin) hide_before(score, from, begin);
        weigh(score, run, scale);
        pack<T, DROP>(packed, score, bits);
        bool add = false;
        for (from -= keys; from >= lowest; from -= keys) {
            start_scores(score);
            start_sum(sum, packed, add);
            add = true;
            products_wait<1>();
            end_scores(score);
            if (from + keys > all_see) hide(score, from, seen);
            if (from < all_begin) hide_before(score, from, begin);
            float2 by = weigh(score, run, scale);
            read_mask(bits);
            products_wait<0>();
            end_sum(sum);
            shrink(sum, by);
            pack<T, DROP>(packed, score, bits);
        }
        start_sum(sum, packed, add);
        products_wait<0>();
        end_sum(sum);
        finish(item, first, sum, run);
        fence_shared();
        barrier_arrive_warp(&s.q_empty);
    }

    __device__ inline void run() {
        uint32_t round = 0;
        for (int index = blockIdx.x; index < args.items; index += gridDim.x) {
            Item item = item_of<F::rows>(args, index);
            work(item, round);
            if (item.blocks) round ^= 1;
        }
    }
};

template <typename T, int D, int W, bool DROP> __device__ inline void forward_block(const ForwardArgs &args) {
    using F = Forward<D, W, DROP>;
    extern __shared__ __align__(1024) unsigned char shared[];
    typename F::Shared &s = *reinterpret_cast<typename F::Shared *>(shared);
    if (threadIdx.x == 0) {
        barrier_init(&s.q_full, 1);
        barrier_init(&s.q_empty, 4 * W);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(&s.k_full[i], 1);
            barrier_init(&s.v_full[i], 1);
            barrier_init(&s.k_empty[i], 4 * W);
            barrier_init(&s.v_empty[i], 4 * W);
        }
        for (int i = 0; i < mask_slots; i++) {
            barrier_init(&s.mask_full[i], F::draw_warps);
            barrier_init(&s.mask_empty[i], 4 * W);
        }
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < 128 * F::producers) {
        registers_down<F::producer_registers>();
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) load_tiles<F>(args, s);
        } else if (DROP) {
            draw_masks<F>(args, s);
        }
    } else {
        registers_up<F::consumer_registers>();
        int thread = threadIdx.x - 128 * F::producers;
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
    if (!map_heads(&args.q, type, call, call.q, call.H, F::rows) ||
        !map_heads(&args.k, type, call, call.k, shared_heads, keys) ||
        !map_heads(&args.v, type, call, call.v, shared_heads, keys))
        return cudaErrorInvalidValue;
    args.tiles = (call.queries + F::rows - 1) / F::rows;
    args.items = call.B * call.H * args.tiles;
    size_t bytes = sizeof(typename F::Shared);
    cudaError_t error = allow_shared(forward_hopper<T, D, W, DROP>, bytes);
    if (error != cudaSuccess) return error;
    int blocks = std::min(args.items, processors());
    forward_hopper<T, D, W, DROP><<<blocks, F::threads, bytes, stream>>>(args);
    return cudaGetLastError();
}

template <typename T> cudaError_t start_forward_of(cudaStream_t stream, ForwardArgs &args, DType type) {
    bool wide = args.call.D == 128;
    if (args.call.dropout.threshold)
        return wide ? start_forward<T, 128, 2, true>(stream, args, type)
                    : start_forward<T, 64, 2, true>(stream, args, type);
    if (wide) return start_forward<T, 128, 2, false>(stream, args, type);
    // Three warpgroups share each key tile, but waste more on the diagonal.
    if (args.call.causal) return start_forward<T, 64, 2, false>(stream, args, type);
    return start_forward<T, 64, 3, false>(stream, args, type);
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
        call->queries != call->keys || !(call->scale > 0))
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

// Looked up at run time, because weft also runs on machines without a driver to link against.
bool map_heads(CUtensorMap *map, DType type, const CudaAttention &call, const CudaHeads &heads, int count,
               int rows) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
        cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                             cudaEnableDefault, &result);
        return error == cudaSuccess && result == cudaDriverEntryPointSuccess
                   ? (PFN_cuTensorMapEncodeTiled_v12000)found
                   : nullptr;
    }();
    cuuint64_t dims[] = {(cuuint64_t)call.D, (cuuint64_t)call.queries, (cuuint64_t)count, (cuuint64_t)call.B};
    cuuint64_t strides[] = {(cuuint64_t)heads.row * 2, (cuuint64_t)heads.head * 2,
                            (cuuint64_t)heads.batch * 2};
    cuuint32_t box[] = {width, (cuuint32_t)rows, 1, 1}, steps[] = {1, 1, 1, 1};
    return encode &&
           encode(map, type == DT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                  4, heads.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace hopper
