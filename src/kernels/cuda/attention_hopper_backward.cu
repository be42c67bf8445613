// Attention backward on Hopper, for 16-bit types and heads of width 64. With P the weights, Z dropout's
// factors, g the gradient of an output row and delta = g . out:
//   dv += (P Z)^T g;  dS = P (Z (g v^T) - delta);  dk += scale dS^T q;  dq += scale dS k
//
// A block owns a key tile and iterates over the query tiles. Scores are computed transposed (keys x queries):
// each of the two consumer warpgroups has 64 keys, and P and dS stay in registers as left operands for dv and
// dk. dS also goes to shared memory, where each warpgroup takes 64 of its queries for dq. A producer warp
// loads tiles by TMA and adds each block's part of dq to fp32 sums in global memory.
//
// Those additions happen in a fixed order, so results are deterministic. The blocks of a head start on the
// diagonal, each at its own query tile, and a tile's sum passes from block to block in the order in which
// they get to it when all start together, so no block waits for long. Blocks number themselves as they start:
// a block only ever waits for blocks that are already running, or will be as soon as earlier heads finish.
//
// Dropout masks are as in attention_hopper.cu, except that the two halves of a word are 64 queries each.
#include "kernels/cuda/attention_hopper.cuh"

namespace hopper::backward {

constexpr int side = 128; // of a tile: keys or queries
constexpr int stages = 2, mask_slots = 4, threads = 384;
// A tile's mask is drawn in units: the 16 queries that lane t reads in half of the tile, for all keys. Three
// producer warps can draw one unit each while the products run; more would stall the consumers, so the rest
// is drawn by a kernel of its own beforehand, unless the masks would take too much memory.
constexpr int units = 8, draw_warps = 3, units_ahead = 5;
constexpr size_t most_mask_bytes = (size_t)1 << 28;

// A block's key tile, and the query tiles that it iterates over.
struct Work {
    int b, h, head, tile, keys, live, count, all;
    bool causal, shifted;
    __device__ inline int query_tile(int i) const {
        if (causal) return tile + i;
        if (!shifted) return i;
        int m = tile + i;
        return m >= all ? m - all : m;
    }
    // How many blocks add to dq of query tile m before this one.
    __device__ inline int turn(int m) const {
        if (!causal && !shifted) return live - 1 - tile;
        return tile <= m ? min(m, live - 1) - tile : m + live - tile;
    }
};

struct Shared {
    alignas(1024) uint16_t k[side * width];
    alignas(1024) uint16_t v[side * width];
    alignas(1024) uint16_t q[stages][side * width];
    alignas(1024) uint16_t dout[stages][side * width];
    alignas(1024) uint16_t ds[2][2][side * width]; // double-buffered; keys x 64 queries, two halves
    alignas(1024) float dq[2][64 * width];         // in register order: 8 times 4 values of 128 lanes
    alignas(16) float lse[stages][side];
    alignas(16) float delta[stages][side];
    alignas(16) uint16_t mask[mask_slots][units][side];
    uint64_t kv_full, q_full[stages], q_empty[stages], dout_full[stages], dout_empty[stages];
    uint64_t dq_full, dq_empty, mask_full[mask_slots], mask_empty[mask_slots];
    Work work;
};

struct BackwardArgs {
    CUtensorMap q, k, v, dout;
    CudaAttention call;
    Philox philox;
    int tiles;    // of queries, and of keys
    bool shifted; // all blocks of a head can run at once, so each starts at its own tile
    float *lse, *delta, *dq;
    int *turns;      // (B,H,tiles): how many blocks have added to dq of a query tile
    int *started;    // blocks so far
    int ahead;       // units in `masks`
    uint16_t *masks; // (B,H,tiles of keys,tiles of queries,ahead,side)
};

inline __host__ __device__ size_t padded_rows(const BackwardArgs &args) {
    return (size_t)args.call.B * args.call.H * args.tiles * side;
}

// The mask of four keys and 16 queries, 16 bits per key. `index` is the draw index of the first key and
// query, `right` the distance from one query to the next.
__device__ inline uint2 draw_quad(const BackwardArgs &args, uint64_t index, uint32_t right) {
    const Philox &philox = args.philox;
    uint64_t block = index / 4;
    uint32_t bits[4] = {}, low = (uint32_t)block, step = right / 4;
    if (__all_sync(full_warp, right % 4 == 0 && low < ~(64 * step))) {
        PhiloxHigh high = philox_high(philox, (uint32_t)(block >> 32));
        uint64_t product = (uint64_t)philox_factor * low, more = (uint64_t)philox_factor * step;
#pragma unroll 1
        for (int n = 0; n < 8; n += 2, product += 16 * more) {
            uint4 made[4];
            const uint64_t products[4] = {product, product + more, product + 8 * more, product + 9 * more};
            philox_draw(made, philox, high, products);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                append_kept(bits[0], made[i].x, philox);
                append_kept(bits[1], made[i].y, philox);
                append_kept(bits[2], made[i].z, philox);
                append_kept(bits[3], made[i].w, philox);
            }
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 16; i++) {
            uint64_t at = index + (uint64_t)(i / 2 * 8 + i % 2) * right;
#pragma unroll
            for (int j = 0; j < 4; j++) append_kept(bits[j], draw(args.call.dropout.key, at + j), philox);
        }
    }
    return make_uint2(bits[1] << 16 | bits[0], bits[3] << 16 | bits[2]);
}

// Draws the lane's four keys of a unit.
__device__ inline void draw_unit(const BackwardArgs &args, uint16_t *to, int b, int h, int key_tile,
                                 int query_tile, int unit) {
    int lane = threadIdx.x % 32, query = query_tile * side + unit % 2 * 64 + unit / 2 * 2;
    uint64_t index = dropout_scores(args.call.dropout, b, h, query) + (uint64_t)(key_tile * side + 4 * lane);
    *reinterpret_cast<uint2 *>(to + 4 * lane) = draw_quad(args, index, (uint32_t)args.call.dropout.extent[1]);
}

// Draws the first units of tile `at`, one warp per tile.
__device__ inline void draw_ahead(const BackwardArgs &args, int64_t at) {
    const CudaAttention &call = args.call;
    int query_tile = at % args.tiles, key_tile = at / args.tiles % args.tiles;
    int64_t head = at / args.tiles / args.tiles;
    int b = head / call.H, h = head % call.H;
    if (b >= call.B || (call.causal && query_tile < key_tile) || key_tile * side >= span_of(call, b).keys)
        return;
#pragma unroll 1
    for (int unit = 0; unit < args.ahead; unit++)
        draw_unit(args, args.masks + (at * args.ahead + unit) * side, b, h, key_tile, query_tile, unit);
}

// lse for base 2 and delta / dropout's scale, padded to whole tiles. 8 lanes have a row.
template <typename T> __device__ inline void prepare_rows(const BackwardArgs &args, int64_t at) {
    const CudaAttention &call = args.call;
    if (at <= (int64_t)call.B * call.H * args.tiles) args.turns[at] = 0;
    int64_t row = at / 8;
    int part = at % 8, h = row % call.H, t = row / call.H % (args.tiles * side);
    int b = row / call.H / (args.tiles * side);
    if (b >= call.B) return;
    float sum = 0, lse = infinity;
    if (t < call.queries) {
        auto out = load_pack<T, 8>(head_rows<T>(call.out, b, h) + t * call.out.row + part * 8);
        auto dout = load_pack<T, 8>(head_rows<T>(call.dout, b, h) + t * call.dout.row + part * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) sum += to_float(out.at[i]) * to_float(dout.at[i]);
        if (part == 0) lse = call.lse[((int64_t)b * call.H + h) * call.queries + t] * log2_e;
    }
    for (int lane = 4; lane > 0; lane /= 2) sum += __shfl_xor_sync(full_warp, sum, lane);
    if (part != 0) return;
    int64_t to = ((int64_t)b * call.H + h) * args.tiles * side + t;
    args.lse[to] = lse;
    args.delta[to] = call.dropout.threshold ? sum / call.dropout.scale : sum;
}

// The first `draws` blocks draw, which is bound by arithmetic; the others, bound by memory, fill in behind
// them.
template <typename T>
__global__ void __launch_bounds__(256) prepare_hopper(const __grid_constant__ BackwardArgs args, int draws) {
    int block = blockIdx.x;
    if (block < draws)
        draw_ahead(args, (int64_t)block * 8 + threadIdx.x / 32);
    else
        prepare_rows<T>(args, (int64_t)(block - draws) * 256 + threadIdx.x);
}

// Rounds dq. A block has 64 queries.
template <typename T> __device__ inline void finish_block(const BackwardArgs &args) {
    const CudaAttention &call = args.call;
    __shared__ alignas(16) uint16_t buffer[4][16 * width];
    int head = blockIdx.x / (2 * args.tiles), b = head / call.H, h = head % call.H, warp = threadIdx.x / 32;
    int first = blockIdx.x % (2 * args.tiles) * 64 + warp * 16;
    if (first >= call.queries) return;
    float sum[32], scale = call.scale * (call.dropout.threshold ? call.dropout.scale : 1.0f);
    const float4 *from = (const float4 *)args.dq + (size_t)blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
    for (int n = 0; n < 8; n++) *reinterpret_cast<float4 *>(sum + 4 * n) = from[n * 128];
    if (span_of(call, b).keys == 0) scale = 0;
    store_sums<T>(head_rows<T>(call.dq, b, h) + first * call.dq.row, call.dq.row, call.queries - first,
                  (T *)buffer[warp], sum, scale, scale);
}

template <typename T> __global__ void __launch_bounds__(128) finish_hopper(const BackwardArgs args) {
    if constexpr (is_target) finish_block<T>(args);
}

__device__ inline Work work_of(const BackwardArgs &args, int number) {
    Work work;
    work.head = number / args.tiles;
    work.tile = args.tiles - 1 - number % args.tiles;
    work.b = work.head / args.call.H;
    work.h = work.head % args.call.H;
    work.keys = span_of(args.call, work.b).keys;
    work.live = (work.keys + side - 1) / side;
    work.all = args.tiles;
    work.causal = args.call.causal;
    work.shifted = args.shifted;
    work.count = work.causal ? args.tiles - work.tile : args.tiles;
    return work;
}

__device__ inline int load_acquire(const int *from) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline void store_release(int *to, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline void fence_all() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

template <bool DROP>
__device__ inline void load_queries(const BackwardArgs &args, Shared &s, const Work &work, int i) {
    int slot = i % stages, m = work.query_tile(i);
    uint32_t parity = i / stages % 2 ^ 1;
    int64_t row = ((int64_t)work.head * args.tiles + m) * side;
    barrier_wait(&s.q_empty[slot], parity);
    barrier_expect(&s.q_full[slot], sizeof s.q[0] + sizeof s.lse[0]);
    copy_box(s.q[slot], &args.q, &s.q_full[slot], m * side, work.h, work.b);
    copy_bytes(s.lse[slot], args.lse + row, sizeof s.lse[0], &s.q_full[slot]);
    barrier_wait(&s.dout_empty[slot], parity);
    barrier_expect(&s.dout_full[slot], sizeof s.dout[0] + sizeof s.delta[0]);
    copy_box(s.dout[slot], &args.dout, &s.dout_full[slot], m * side, work.h, work.b);
    copy_bytes(s.delta[slot], args.delta + row, sizeof s.delta[0], &s.dout_full[slot]);
    if (!DROP) return;
    slot = i % mask_slots;
    barrier_wait(&s.mask_empty[slot], i / mask_slots % 2 ^ 1);
    int bytes = args.ahead * (int)sizeof s.mask[0][0];
    barrier_expect(&s.mask_full[slot], bytes);
    int64_t tile = ((int64_t)work.head * args.tiles + work.tile) * args.tiles + m;
    if (bytes) copy_bytes(s.mask[slot], args.masks + tile * args.ahead * side, bytes, &s.mask_full[slot]);
}

// Adds the block's part of dq when it is its turn; the first block stores it.
__device__ inline void add_dq(const BackwardArgs &args, Shared &s, const Work &work, int i) {
    int m = work.query_tile(i), turn = work.turn(m);
    int *turns = args.turns + (int64_t)work.head * args.tiles + m;
    float *to = args.dq + ((int64_t)work.head * args.tiles + m) * side * width;
    barrier_wait(&s.dq_full, i % 2);
    if (turn == 0) {
        store_bytes(to, s.dq, sizeof s.dq);
    } else {
        while (load_acquire(turns) != turn) {
        }
        fence_all();
        add_floats(to, s.dq[0], sizeof s.dq);
    }
    stores_commit();
    stores_read();
    barrier_arrive(&s.dq_empty);
    stores_done();
    fence_all();
    __threadfence();
    store_release(turns, turn + 1);
}

template <bool DROP>
__device__ inline void load_tiles(const BackwardArgs &args, Shared &s, const Work &work) {
    barrier_expect(&s.kv_full, sizeof s.k + sizeof s.v);
    copy_box(s.k, &args.k, &s.kv_full, work.tile * side, work.h, work.b);
    copy_box(s.v, &args.v, &s.kv_full, work.tile * side, work.h, work.b);
    for (int i = 0; i < stages && i < work.count; i++) load_queries<DROP>(args, s, work, i);
    for (int i = 0; i < work.count; i++) {
        if (i + stages < work.count) load_queries<DROP>(args, s, work, i + stages);
        add_dq(args, s, work, i);
    }
}

__device__ inline void draw_masks(const BackwardArgs &args, Shared &s, const Work &work) {
    int first = args.ahead + __shfl_sync(full_warp, threadIdx.x / 32, 0) - 1;
    Ring<mask_slots> ring;
    for (int i = 0; i < work.count; i++, ring.next()) {
        barrier_wait(&s.mask_empty[ring.slot], ring.parity ^ 1);
#pragma unroll 1
        for (int unit = first; unit < units; unit += draw_warps)
            draw_unit(args, s.mask[ring.slot][unit], work.b, work.h, work.tile, work.query_tile(i), unit);
        barrier_arrive_warp(&s.mask_full[ring.slot]);
    }
}

template <typename T, bool DROP> struct Consumer {
    const BackwardArgs &args;
    Shared &s;
    const Work &work;
    int group, warp, lane;

    __device__ inline void start_scores(float (&score)[64], int i) {
        barrier_wait(&s.q_full[i % stages], i / stages % 2);
        products_begin();
        multiply_rows<T>(score, (const T *)s.k + group * 64 * width, (const T *)s.q[i % stages]);
        products_commit();
    }
    __device__ inline void start_through(float (&through)[64], int i) {
        barrier_wait(&s.dout_full[i % stages], i / stages % 2);
        products_begin();
        multiply_rows<T>(through, (const T *)s.v + group * 64 * width, (const T *)s.dout[i % stages]);
        products_commit();
    }

    // Sets the scores of invisible keys to -infinity.
    __device__ inline void hide(float (&score)[64], bool diagonal) {
        int row = group * 64 + warp * 16 + lane / 4, column = lane % 4 * 2,
            left = work.keys - work.tile * side;
#pragma unroll
        for (int i = 0; i < 64; i++) {
            int key = row + i / 2 % 2 * 8, query = column + i / 4 * 8 + i % 2;
            if (key >= left || (diagonal && key > query)) score[i] = -infinity;
        }
    }

    __device__ inline void weigh(float (&score)[64], int slot) {
        float scale = args.call.scale * log2_e;
#pragma unroll
        for (int n = 0; n < 16; n++) {
            float2 lse = *reinterpret_cast<const float2 *>(&s.lse[slot][8 * n + lane % 4 * 2]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[4 * n + i] = power_of_2(score[4 * n + i] * scale - (i % 2 ? lse.y : lse.x));
        }
    }

    // Replaces P by P Z and g v^T by dS, both without dropout's scale.
    __device__ inline void differentiate(float (&weight)[64], float (&through)[64], const uint32_t (&bits)[2],
                                         int slot) {
#pragma unroll
        for (int n = 0; n < 16; n++) {
            float2 deltas = *reinterpret_cast<const float2 *>(&s.delta[slot][8 * n + lane % 4 * 2]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &w = weight[4 * n + i], &x = through[4 * n + i], delta = i % 2 ? deltas.y : deltas.x;
                float off = w * delta;
                if (DROP && !(bits[i / 2] & 1u << (n / 8 * 16 + 15 - 2 * (n % 8) - i % 2))) w = 0;
                x = w * x - off;
            }
        }
    }

    __device__ inline void pack(uint32_t (&packed)[32], const float (&from)[64]) {
#pragma unroll
        for (int i = 0; i < 32; i++) packed[i] = round_pair<T>(from[2 * i], from[2 * i + 1]);
    }

    __device__ inline void share_ds(const uint32_t (&packed)[32], int i) {
        uint32_t at = matrices_at(s.ds[i % 2][0], group * 64 + warp * 16);
#pragma unroll
        for (int n = 0; n < 16; n += 2)
            store_matrices((at ^ n % 8 * 16) + n / 8 * sizeof s.ds[0][0], packed[2 * n], packed[2 * n + 1],
                           packed[2 * n + 2], packed[2 * n + 3]);
    }

    __device__ inline void start_dq(float (&dq)[32], int i) {
        uint64_t a = tile_of(s.ds[i % 2][group]), b = tile_of(s.k);
        products_begin();
#pragma unroll
        for (int k = 0; k < side / 16; k++)
            multiply_64_transposed<T>(dq, a + k * next_rows, b + k * next_rows, k > 0);
        products_commit();
    }

    __device__ inline void hand_over_dq(const float (&dq)[32], int i) {
        barrier_wait(&s.dq_empty, i % 2 ^ 1);
        float4 *to = reinterpret_cast<float4 *>(s.dq[group]) + warp * 32 + lane;
#pragma unroll
        for (int n = 0; n < 8; n++)
            to[n * 128] = make_float4(dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
        fence_shared();
        barrier_arrive_warp(&s.dq_full);
    }

    __device__ inline void store(const CudaHeads &heads, const float (&sum)[32], float factor) {
        int first = work.tile * side + group * 64 + warp * 16, upper = first + lane / 4;
        T *buffer = (T *)s.v + (group * 4 + warp) * 16 * width;
        store_sums<T>(head_rows<T>(heads, work.b, work.h) + first * heads.row, heads.row,
                      args.call.keys - first, buffer, sum, upper < work.keys ? factor : 0.0f,
                      upper + 8 < work.keys ? factor : 0.0f);
    }

    __device__ inline void run() {
        float score[64], through[64], dk[32], dv[32], dq[32];
        uint32_t packed[32], packed_ds[32], bits[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 32; i++) dk[i] = dv[i] = 0;
        Ring<mask_slots> masks;
        bool partial = (work.tile + 1) * side > work.keys;
        int row = group * 64 + warp * 16 + lane / 4;
        barrier_wait(&s.kv_full, 0);
#pragma unroll 1
        for (int i = 0; i < work.count; i++) {
            int slot = i % stages;
            bool diagonal = work.causal && i == 0;
            start_scores(score, i);
            start_through(through, i);
            products_wait<1>();
            hold(score);
            if (diagonal || partial) hide(score, diagonal);
            weigh(score, slot);
            if (DROP) {
                barrier_wait(&s.mask_full[masks.slot], masks.parity);
                auto mask = s.mask[masks.slot] + lane % 4 * 2;
                bits[0] = mask[1][row] << 16 | mask[0][row];
                bits[1] = mask[1][row + 8] << 16 | mask[0][row + 8];
                barrier_arrive_warp(&s.mask_empty[masks.slot]);
                masks.next();
            }
            products_wait<0>();
            hold(through);
            differentiate(score, through, bits, slot);
            pack(packed, score);
            products_begin();
            multiply_packed<T>(dv, packed, (const T *)s.dout[slot], true);
            products_commit();
            pack(packed_ds, through);
            share_ds(packed_ds, i);
            products_begin();
            multiply_packed<T>(dk, packed_ds, (const T *)s.q[slot], true);
            products_commit();
            fence_shared();
            sync_threads(1, 256);
            start_dq(dq, i);
            products_wait<1>();
            hold(dk);
            hold(dv);
            barrier_arrive_warp(&s.q_empty[slot]);
            barrier_arrive_warp(&s.dout_empty[slot]);
            products_wait<0>();
            hold(dq);
            hand_over_dq(dq, i);
        }
        float factor = DROP ? args.call.dropout.scale : 1.0f;
        store(args.call.dv, dv, factor);
        store(args.call.dk, dk, args.call.scale * factor);
    }
};

// The gradients of keys past the end of a sequence.
template <typename T> __device__ inline void store_zeros(const BackwardArgs &args, const Work &work) {
    int row = work.tile * side + threadIdx.x / 8, part = threadIdx.x % 8;
    for (int end = min(args.call.keys, (work.tile + 1) * side); row < end; row += threads / 8) {
        uint4 none = make_uint4(0, 0, 0, 0);
        T *dk = head_rows<T>(args.call.dk, work.b, work.h) + row * args.call.dk.row + part * 8;
        T *dv = head_rows<T>(args.call.dv, work.b, work.h) + row * args.call.dv.row + part * 8;
        *reinterpret_cast<uint4 *>(dk) = none;
        *reinterpret_cast<uint4 *>(dv) = none;
    }
}

__device__ inline void barriers_init(Shared &s) {
    barrier_init(&s.kv_full, 1);
    for (int i = 0; i < stages; i++) {
        barrier_init(&s.q_full[i], 1);
        barrier_init(&s.dout_full[i], 1);
        barrier_init(&s.q_empty[i], 8);
        barrier_init(&s.dout_empty[i], 8);
    }
    barrier_init(&s.dq_full, 8);
    barrier_init(&s.dq_empty, 1);
    for (int i = 0; i < mask_slots; i++) {
        barrier_init(&s.mask_full[i], draw_warps + 1);
        barrier_init(&s.mask_empty[i], 8);
    }
    barriers_ready();
}

template <typename T, bool DROP> __device__ inline void backward_block(const BackwardArgs &args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Shared &s = *reinterpret_cast<Shared *>(shared);
    if (threadIdx.x == 0) {
        barriers_init(s);
        s.work = work_of(args, atomicAdd(args.started, 1));
    }
    __syncthreads();
    const Work &work = s.work; // stays in shared memory: the consumers have no registers to spare
    if (work.tile >= work.live) {
        store_zeros<T>(args, work);
        return;
    }
    if (threadIdx.x < 128) {
        registers_down<DROP ? 56 : 24>();
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) load_tiles<DROP>(args, s, work);
        } else if (DROP) {
            draw_masks(args, s, work);
        }
    } else {
        registers_up<DROP ? 224 : 240>();
        int thread = threadIdx.x - 128;
        Consumer<T, DROP>{args, s, work, thread / 128, thread / 32 % 4, thread % 32}.run();
    }
}

template <typename T, bool DROP>
__global__ void __launch_bounds__(threads, 1) backward_hopper(const __grid_constant__ BackwardArgs args) {
    if constexpr (is_target) backward_block<T, DROP>(args);
}

template <typename T, bool DROP> cudaError_t start_backward(cudaStream_t stream, const BackwardArgs &args) {
    const CudaAttention &call = args.call;
    cudaError_t error = allow_shared(backward_hopper<T, DROP>, sizeof(Shared));
    if (error != cudaSuccess) return error;
    int blocks = call.B * call.H * args.tiles;
    unsigned rows = blocks_for((int64_t)padded_rows(args) * 8, 256);
    unsigned draws = args.ahead ? blocks_for((int64_t)blocks * args.tiles, 8) : 0;
    prepare_hopper<T><<<rows + draws, 256, 0, stream>>>(args, (int)draws);
    backward_hopper<T, DROP><<<blocks, threads, sizeof(Shared), stream>>>(args);
    finish_hopper<T><<<2 * blocks, 128, 0, stream>>>(args);
    return cudaGetLastError();
}

template <typename T> cudaError_t start_backward_of(cudaStream_t stream, const BackwardArgs &args) {
    if (args.call.dropout.threshold) return start_backward<T, true>(stream, args);
    return start_backward<T, false>(stream, args);
}

BackwardArgs args_of(const CudaAttention &call, void *scratch) {
    BackwardArgs args = {};
    args.call = call;
    args.tiles = (call.keys + side - 1) / side;
    size_t rows = padded_rows(args);
    args.dq = (float *)scratch;
    args.lse = args.dq + rows * width;
    args.delta = args.lse + rows;
    args.masks = (uint16_t *)(args.delta + rows);
    size_t mask_bytes = rows * (size_t)args.tiles * units_ahead * sizeof *args.masks;
    if (call.dropout.threshold && mask_bytes <= most_mask_bytes) args.ahead = units_ahead;
    args.turns = (int *)(args.masks + rows * (size_t)args.tiles * (size_t)args.ahead);
    args.started = args.turns + rows / side;
    return args;
}

} // namespace hopper::backward

using namespace hopper::backward;

size_t attention_hopper_scratch(const CudaAttention *call) {
    BackwardArgs args = args_of(*call, nullptr);
    return (size_t)((char *)(args.started + 1) - (char *)nullptr);
}

cudaError_t launch_attention_backward_hopper(cudaStream_t stream, DType type, const CudaAttention *call,
                                             void *scratch) {
    BackwardArgs args = args_of(*call, scratch);
    args.philox = hopper::philox_of(call->dropout);
    args.shifted = args.tiles <= processors();
    if (!hopper::map_heads(&args.q, type, *call, call->q, side) ||
        !hopper::map_heads(&args.k, type, *call, call->k, side) ||
        !hopper::map_heads(&args.v, type, *call, call->v, side) ||
        !hopper::map_heads(&args.dout, type, *call, call->dout, side))
        return cudaErrorInvalidValue;
    if (type == DT_BF16) return start_backward_of<__nv_bfloat16>(stream, args);
    return start_backward_of<__half>(stream, args);
}
