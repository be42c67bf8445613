// Attention backward on Hopper, for 16-bit types and heads of width 64 or 128. With P the weights, Z
// dropout's factors, g the gradient of an output row and delta = g . out:
//   dv += (P Z)^T g;  dS = P (Z (g v^T) - delta);  dk += scale dS^T q;  dq += scale dS k
//
// A block has a key tile and iterates over the query tiles of one head. Scores are computed transposed (keys
// x queries): each of the two consumer warpgroups has 64 keys, and P and dS stay in registers as left
// operands for dv and dk. dS also goes to shared memory, where each warpgroup takes 64 of its queries for dq,
// or 64 of the columns of a wide head. Producer warps load tiles by TMA and add each block's part of dq to
// fp32 sums in global memory. Where heads share keys, dk and dv are added up there too, from head to head.
//
// Those additions happen in a fixed order, so results are deterministic. The blocks of a head start on the
// diagonal, each at its own query tile, and a tile's sum passes from block to block in the order in which
// they get to it when all start together, so no block waits for long. Blocks number themselves as they start:
// a block only ever waits for blocks that are already running, or will be as soon as earlier heads finish.
//
// Dropout masks of the tile after the next are drawn behind dq's products.
#include "kernels/cuda/attention_hopper_backward.cuh"
#include "kernels/cuda/row.cuh"

namespace hopper::backward {

constexpr int prepare_threads = 256, prepare_rows = 4; // rows that a lane has in flight

// RowStats with delta / dropout's scale, padded to whole tiles. D / 8 lanes have a row.
template <typename T, int D> __device__ inline void prepare_block(const BackwardArgs &args) {
    constexpr int lanes = D / 8, each = prepare_threads / lanes;
    const CudaAttention &call = args.call;
    const unsigned H = call.H, length = args.rows;
    const int part = threadIdx.x % lanes;
    RowStats stats[prepare_rows];
    int b[prepare_rows], h[prepare_rows], t[prepare_rows];
#pragma unroll
    for (int i = 0; i < prepare_rows; i++) {
        unsigned row = (blockIdx.x * prepare_rows + i) * each + threadIdx.x / lanes;
        h[i] = row % H;
        t[i] = row / H % length;
        b[i] = row / H / length;
        stats[i] = row_part<T>(call, b[i], h[i], b[i] < call.B ? t[i] : call.queries, part);
    }
#pragma unroll
    for (int i = 0; i < prepare_rows; i++) {
        float delta = row_delta<lanes>(stats[i]);
        if (part != 0 || b[i] >= call.B) continue;
        int64_t to = ((int64_t)b[i] * call.H + h[i]) * args.rows + t[i];
        args.lse[to] = stats[i].lse;
        args.delta[to] = call.dropout.threshold ? delta / call.dropout.scale : delta;
        if (args.begin) args.begin[to] = first_seen(call, span_of(call, b[i]), b[i], t[i]);
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(prepare_threads) prepare_hopper(const __grid_constant__ BackwardArgs args) {
    chain_next();
    chain_wait();
    int64_t at = (int64_t)blockIdx.x * prepare_threads + threadIdx.x;
    for (; at <= args.started - args.turns; at += (int64_t)gridDim.x * prepare_threads) args.turns[at] = 0;
    prepare_block<T, D>(args);
}

// Rounds dq. A block has 64 queries and 64 columns: one warpgroup's part of a tile. Tiles whose queries see
// no keys were never stored.
template <typename T, int D> __device__ inline void finish_block(const BackwardArgs &args) {
    constexpr int across = D / 64;
    const CudaAttention &call = args.call;
    __shared__ alignas(16) uint16_t buffer[4][16 * width];
    __shared__ float2 columns[4][32];
    int parts = args.rows / 64 * across, head = blockIdx.x / parts, warp = threadIdx.x / 32;
    int b = head / call.H, h = head % call.H, part = blockIdx.x % parts;
    int first = part / across * 64 + warp * 16;
    float2 own = make_float2(0, 0);
    if (first < call.queries) {
        float sum[32], scale = call.scale * (call.dropout.threshold ? call.dropout.scale : 1.0f);
        const float4 *from = (const float4 *)args.dq + (size_t)blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
        for (int n = 0; n < 8; n++) *reinterpret_cast<float4 *>(sum + 4 * n) = from[n * 128];
        if (args.turns[blockIdx.x * Size<D>::parts / 2] == 0) scale = 0;
        store_sums<T>(head_rows<T>(call.dq, b, h) + first * call.dq.row + part % across * 64, call.dq.row,
                      call.queries - first, (T *)buffer[warp], sum, scale, scale, call.parts);
        if (args.q_columns) own = tile_columns<T>(sum, scale, scale);
    }
    if (!args.q_columns) return;
    columns[warp][threadIdx.x % 32] = own;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    for (int w = 1; w < 4; w++) own.x += columns[w][threadIdx.x].x, own.y += columns[w][threadIdx.x].y;
    int64_t line = (int64_t)b * (args.rows / 64) + part / across;
    float *to = args.q_columns + (line * call.H + h) * D + part % across * 64;
    *reinterpret_cast<float2 *>(to + 2 * threadIdx.x) = own;
}

template <typename T, int D> __global__ void __launch_bounds__(128) finish_hopper(const BackwardArgs args) {
    chain_next();
    chain_wait();
    if constexpr (is_target) finish_block<T, D>(args);
}

template <int D> __device__ inline Work work_of(const BackwardArgs &args, int number) {
    const CudaAttention &call = args.call;
    constexpr int queries = Size<D>::queries;
    Work work;
    work.head = number / args.tiles;
    work.tile = args.tiles - 1 - number % args.tiles;
    work.b = work.head / call.H;
    work.h = work.head % call.H;
    Span span = span_of(call, work.b);
    work.keys = span.keys;
    work.live = (work.keys + keys - 1) / keys;
    work.all = (call.queries + queries - 1) / queries;
    work.causal = call.causal;
    work.shifted = args.shifted;
    int first = work.tile * keys, end = call.queries;
    if (args.begin) end = last_queries(call, span, work.b, min(first + keys, call.keys) - 1, end);
    work.start = (first_query(call, first) + queries - 1) / queries;
    work.count = (end + queries - 1) / queries - work.start;
    bool meets = key_place(call, first) == query_place(call, work.start * queries);
    work.diagonals = work.causal && meets ? Size<D>::ratio : 0;
    if (!work.causal && work.shifted) work.start = work.tile * Size<D>::ratio;
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

template <int D>
__device__ inline void load_queries(const BackwardArgs &args, Shared<D> &s, const Work &work, int i) {
    constexpr int queries = Size<D>::queries;
    int slot = i % stages, m = work.query_tile(i);
    uint32_t parity = i / stages % 2 ^ 1;
    int64_t row = (int64_t)work.head * args.rows + m * queries;
    barrier_wait(&s.q_empty[slot], parity);
    barrier_expect(&s.q_full[slot], sizeof s.q[0] + sizeof s.lse[0] + (args.begin ? sizeof s.begin[0] : 0));
    copy_rows<D, queries>(s.q[slot], &args.q, &s.q_full[slot], m * queries, work.h, work.b);
    copy_bytes(s.lse[slot], args.lse + row, sizeof s.lse[0], &s.q_full[slot]);
    if (args.begin) copy_bytes(s.begin[slot], args.begin + row, sizeof s.begin[0], &s.q_full[slot]);
    barrier_wait(&s.dout_empty[slot], parity);
    barrier_expect(&s.dout_full[slot], sizeof s.dout[0] + sizeof s.delta[0]);
    copy_rows<D, queries>(s.dout[slot], &args.dout, &s.dout_full[slot], m * queries, work.h, work.b);
    copy_bytes(s.delta[slot], args.delta + row, sizeof s.delta[0], &s.dout_full[slot]);
}

// Adds a part of a tile's dq when it is the block's turn; the first block stores it.
template <int D>
__device__ inline void add_dq(const BackwardArgs &args, Shared<D> &s, const Work &work, int part, int i) {
    constexpr int parts = Size<D>::parts, bytes = sizeof s.dq / parts;
    int m = work.query_tile(i), turn = turn_of<D>(args, work, m);
    int64_t at = ((int64_t)work.head * query_tiles<D>(args) + m) * parts + part;
    int *turns = args.turns + at;
    float *to = args.dq + at * (bytes / sizeof(float)), *from = s.dq[part];
    barrier_wait(&s.dq_full[part], i % 2);
    if (turn == 0) {
        store_bytes(to, from, bytes);
    } else {
        while (load_acquire(turns) != turn) {
        }
        fence_all();
        add_floats(to, from, bytes);
    }
    stores_commit();
    stores_read();
    barrier_arrive(&s.dq_empty[part]);
    stores_done();
    fence_all();
    store_release(turns, turn + 1);
}

template <int D> __device__ inline void load_tiles(const BackwardArgs &args, Shared<D> &s, const Work &work) {
    int shared_head = work.h / args.call.group;
    barrier_expect(&s.kv_full, sizeof s.k + sizeof s.v);
    copy_rows<D, keys>(s.k, &args.k, &s.kv_full, work.tile * keys, shared_head, work.b);
    copy_rows<D, keys>(s.v, &args.v, &s.kv_full, work.tile * keys, shared_head, work.b);
    for (int i = 0; i < work.count; i++) load_queries<D>(args, s, work, i);
}

// Where column i of dk, or i - D of dv, is in kv_columns.
template <int D> __device__ inline int64_t columns_at(const BackwardArgs &args, const Work &work, int i) {
    int64_t line = ((int64_t)work.b * args.tiles + work.tile) * 2 + i / D;
    return (line * args.call.H + work.h) * D + i % D;
}

template <typename T, int D, bool DROP> struct Consumer {
    enum { N = Size<D>::scores };
    using Score = float[N];
    using Packed = uint32_t[N / 2];
    using Sum = float[D / 2]; // dk and dv
    const BackwardArgs &args;
    Shared<D> &s;
    const Work &work;
    int group, warp, lane;

    __device__ inline void start_scores(Score &score, int i) {
        barrier_wait(&s.q_full[i % stages], i / stages % 2);
        products_begin();
        multiply_rows<T, D>(score, s.k, group * 64, s.q[i % stages]);
        products_commit();
    }
    __device__ inline void start_through(Score &through, int i) {
        barrier_wait(&s.dout_full[i % stages], i / stages % 2);
        products_begin();
        multiply_rows<T, D>(through, s.v, group * 64, s.dout[i % stages]);
        products_commit();
    }

    // Sets the scores of invisible keys to -infinity. The tile's first query is `ahead` of its first key.
    __device__ inline void hide(Score &score, bool diagonal, int ahead) {
        int row = group * 64 + warp * 16 + lane / 4, column = lane % 4 * 2 + ahead,
            left = work.keys - work.tile * keys;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int key = row + i / 2 % 2 * 8, query = column + i / 4 * 8 + i % 2;
            if (key >= left || (diagonal && key > query)) score[i] = -infinity;
        }
    }
    // The same for keys before the first that a query sees.
    __device__ inline void hide_before(Score &score, int slot) {
        int row = work.tile * keys + group * 64 + warp * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < N / 4; n++) {
            int2 begin = *reinterpret_cast<const int2 *>(&s.begin[slot][8 * n + lane % 4 * 2]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (row + i / 2 * 8 < (i % 2 ? begin.y : begin.x)) score[4 * n + i] = -infinity;
        }
    }

    __device__ inline void weigh(Score &score, int slot) {
        float scale = args.call.scale * log2_e;
#pragma unroll
        for (int n = 0; n < N / 4; n++) {
            float2 lse = *reinterpret_cast<const float2 *>(&s.lse[slot][8 * n + lane % 4 * 2]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[4 * n + i] = power_of_2(score[4 * n + i] * scale - (i % 2 ? lse.y : lse.x));
        }
    }

    // Replaces P by P Z and g v^T by dS, both without dropout's scale. The bits of a byte are tested in
    // order, so that ptxas copies them to predicates at once.
    __device__ inline void differentiate(Score &weight, Score &through, const uint32_t (&bits)[2], int slot) {
#pragma unroll
        for (int n = 0; n < N / 4; n += 4) {
            float2 deltas[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                deltas[i] = *reinterpret_cast<const float2 *>(&s.delta[slot][8 * (n + i) + lane % 4 * 2]);
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int at = 4 * (n + i / 2) + 2 * half + i % 2;
                    float &w = weight[at], &x = through[at],
                          delta = i % 2 ? deltas[i / 2].y : deltas[i / 2].x;
                    float off = w * delta;
                    if (DROP && !(bits[half] & 1u << (2 * n + i))) w = 0;
                    x = w * x - off;
                }
        }
    }

    __device__ inline void pack(Packed &packed, const Score &from) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) packed[i] = round_pair<T>(from[2 * i], from[2 * i + 1]);
    }

    __device__ inline void share_ds(const Packed &packed, int i) {
        uint32_t at = matrices_at(s.ds[i % 2][0], group * 64 + warp * 16);
#pragma unroll
        for (int n = 0; n < N / 4; n += 2)
            store_matrices((at ^ n % 8 * 16) + n / 8 * sizeof s.ds[0][0], packed[2 * n], packed[2 * n + 1],
                           packed[2 * n + 2], packed[2 * n + 3]);
    }

    __device__ inline void start_dq(float (&dq)[32], int i) {
        uint64_t a = tile_of(s.ds[i % 2][D == 64 ? group : 0]);
        uint64_t b = tile_of(D == 64 ? s.k : s.k + group * keys * width);
        products_begin();
#pragma unroll
        for (int k = 0; k < keys / 16; k++)
            multiply_transposed<T>(dq, a + k * next_rows, b + k * next_rows, k > 0);
        products_commit();
    }

    __device__ inline void hand_over_dq(float (&dq)[32], int i) {
        hold(dq);
        constexpr int parts = Size<D>::parts;
        barrier_wait(&s.dq_empty[group % parts], i % 2 ^ 1);
        float4 *to = reinterpret_cast<float4 *>(s.dq[group]) + warp * 32 + lane;
#pragma unroll
        for (int n = 0; n < 8; n++)
            to[n * 128] = make_float4(dq[4 * n], dq[4 * n + 1], dq[4 * n + 2], dq[4 * n + 3]);
        fence_shared();
        barrier_arrive_warp(&s.dq_full[group % parts]);
    }

    // `which`: 0 for dk, 1 for dv.
    __device__ inline void store(const CudaHeads &heads, const Sum &sum, float factor, int which) {
        int first = work.tile * keys + group * 64 + warp * 16, upper = first + lane / 4;
        float factor8 = upper + 8 < work.keys ? factor : 0.0f;
        if (upper >= work.keys) factor = 0;
        T *buffer = (T *)s.v + (group * 4 + warp) * 16 * width;
        store_sums<T>(head_rows<T>(heads, work.b, work.h / args.call.group) + first * heads.row, heads.row,
                      args.call.keys - first, buffer, sum, factor, factor8, args.call.parts);
        if (!args.kv_columns) return;
#pragma unroll
        for (int i = 0; i < D / 64; i++)
            *reinterpret_cast<float2 *>(&s.columns[which][group * 4 + warp][64 * i + 2 * lane]) =
                tile_columns<T>(sum + 32 * i, factor, factor8);
    }

    __device__ inline void store_columns() {
        sync_threads(1, 256);
        for (int i = threadIdx.x - 128; i < 2 * D; i += 256) {
            float total = 0;
            for (int w = 0; w < 8; w++) total += s.columns[i / D][w][i % D];
            args.kv_columns[columns_at<D>(args, work, i)] = total;
        }
    }

    // Adds the sums of the heads before this one that share its keys, and leaves the result to the next one.
    __device__ inline void add_sums(Sum &sum, float4 *at, bool first, bool last) {
        at += (group * (D / 8) * 4 + warp) * 32 + lane;
        if (!first) {
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                float4 more = __ldcg(at + n * 128);
                sum[4 * n] += more.x;
                sum[4 * n + 1] += more.y;
                sum[4 * n + 2] += more.z;
                sum[4 * n + 3] += more.w;
            }
        }
        if (last) return;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            __stcg(at + n * 128, make_float4(sum[4 * n], sum[4 * n + 1], sum[4 * n + 2], sum[4 * n + 3]));
    }

    // Returns whether dv and dk are complete: this head is the last of those that share its keys.
    __device__ inline bool add_heads(Sum &dv, Sum &dk) {
        int size = args.call.group, turn = work.h % size;
        if (size == 1) return true;
        int64_t place = (int64_t)(work.head / size) * args.tiles + work.tile;
        int64_t all = (int64_t)args.call.B * (args.call.H / size) * args.tiles;
        int *turns = args.kv_turns + place;
        if (turn > 0) {
            if (threadIdx.x == 128)
                while (load_acquire(turns) != turn) {
                }
            sync_threads(1, 256);
        }
        float4 *sums = reinterpret_cast<float4 *>(args.sums);
        add_sums(dv, sums + place * (keys * D / 4), turn == 0, turn == size - 1);
        add_sums(dk, sums + (all + place) * (keys * D / 4), turn == 0, turn == size - 1);
        if (turn == size - 1) return true;
        __threadfence();
        sync_threads(1, 256);
        if (threadIdx.x == 128) store_release(turns, turn + 1);
        return false;
    }

    __device__ inline uint32_t draw(int i) {
        return draw_masks<D>(args, s.start, s.mask[i % 2], work, work.query_tile(i), group * 4 + warp);
    }
    __device__ inline void read_masks(uint32_t (&bits)[2], int i) {
        constexpr int masks = Size<D>::masks;
        int row = group * 64 + warp * 16 + lane / 4, t = lane % 4;
        const uint32_t *from = s.mask[i % 2][t * masks / 4];
        bits[0] = from[mask_at(row)] >> (masks == 2 ? t % 2 * 16 : 0);
        bits[1] = from[mask_at(row + 8)] >> (masks == 2 ? t % 2 * 16 : 0);
    }

    __device__ inline void release(int slot) {
        barrier_arrive_warp(&s.q_empty[slot]);
        barrier_arrive_warp(&s.dout_empty[slot]);
    }

    __device__ inline void run() {
        Score score, through;
        Sum dk, dv;
        float dq[32];
        Packed packed, packed_ds;
        uint32_t bits[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;
        bool partial = (work.tile + 1) * keys > work.keys;
        int count = __shfl_sync(full_warp, work.count, 0);
        if (DROP) {
            for (int i = 0; i < min(count, 2); i++) draw(i);
            sync_threads(1, 256);
        }
        barrier_wait(&s.kv_full, 0);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            int slot = i % stages;
            bool diagonal = i < work.diagonals;
            start_scores(score, i);
            start_through(through, i);
            products_wait<1>();
            hold(score);
            if (diagonal || partial) hide(score, diagonal, i * Size<D>::queries);
            if (args.begin && s.begin[slot][Size<D>::queries - 1] > work.tile * keys)
                hide_before(score, slot);
            weigh(score, slot);
            if (DROP) read_masks(bits, i);
            hold(score);
            settle(score[0] < 0);
            products_wait<0>();
            hold(through);
            differentiate(score, through, bits, slot);
            pack(packed, score);
            products_begin();
            multiply_packed<T>(dv, packed, s.dout[slot], true);
            products_commit();
            pack(packed_ds, through);
            share_ds(packed_ds, i);
            products_begin();
            multiply_packed<T>(dk, packed_ds, s.q[slot], true);
            products_commit();
            fence_shared();
            sync_threads(1, 256); // also between a tile's masks and their use
            start_dq(dq, i);
            if (DROP && i + 2 < count) settle(draw(i + 2) == 1);
            products_wait<1>();
            hold(dk);
            hold(dv);
            release(slot);
            products_wait<0>();
            hand_over_dq(dq, i);
        }
        if (!add_heads(dv, dk)) return;
        float factor = DROP ? args.call.dropout.scale : 1.0f;
        store(args.call.dv, dv, factor, 1);
        store(args.call.dk, dk, args.call.scale * factor, 0);
        if (args.kv_columns) store_columns();
    }
};

// The gradients of keys past the end of a sequence. With parts, they are added, so there is nothing to do.
template <typename T, int D> __device__ inline void store_zeros(const BackwardArgs &args, const Work &work) {
    constexpr int parts = D / 8;
    if (work.h % args.call.group || args.call.parts) return;
    int row = work.tile * keys + threadIdx.x / parts, part = threadIdx.x % parts;
    int head = work.h / args.call.group;
    for (int i = threadIdx.x; args.kv_columns && i < 2 * D; i += threads)
        args.kv_columns[columns_at<D>(args, work, i)] = 0;
    for (int end = min(args.call.keys, (work.tile + 1) * keys); row < end; row += threads / parts) {
        uint4 none = make_uint4(0, 0, 0, 0);
        T *dk = head_rows<T>(args.call.dk, work.b, head) + row * args.call.dk.row + part * 8;
        T *dv = head_rows<T>(args.call.dv, work.b, head) + row * args.call.dv.row + part * 8;
        *reinterpret_cast<uint4 *>(dk) = none;
        *reinterpret_cast<uint4 *>(dv) = none;
    }
}

template <int D> __device__ inline void barriers_init(Shared<D> &s) {
    barrier_init(&s.kv_full, 1);
    for (int i = 0; i < stages; i++) {
        barrier_init(&s.q_full[i], 1);
        barrier_init(&s.dout_full[i], 1);
        barrier_init(&s.q_empty[i], 8);
        barrier_init(&s.dout_empty[i], 8);
    }
    for (int i = 0; i < Size<D>::parts; i++) {
        barrier_init(&s.dq_full[i], 8 / Size<D>::parts);
        barrier_init(&s.dq_empty[i], 1);
    }
    barriers_ready();
}

template <typename T, int D, bool DROP> __device__ inline void backward_block(const BackwardArgs &args) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Shared<D> &s = *reinterpret_cast<Shared<D> *>(shared);
    if (threadIdx.x == 0) {
        barriers_init(s);
        if (DROP) s.start = philox_start(args.philox, args.call.dropout);
        s.work = work_of<D>(args, atomicAdd(args.started, 1));
    }
    __syncthreads();
    const Work &work = s.work; // stays in shared memory: the consumers have no registers to spare
    if (work.tile >= work.live || work.count <= 0) {
        store_zeros<T, D>(args, work);
        return;
    }
    if (threadIdx.x < 128) {
        registers_down<24>();
        if (threadIdx.x == 0)
            load_tiles<D>(args, s, work);
        else if (threadIdx.x % 32 == 0 && threadIdx.x / 32 <= Size<D>::parts)
            for (int i = 0; i < work.count; i++) add_dq(args, s, work, threadIdx.x / 32 - 1, i);
    } else {
        registers_up<240>();
        int thread = threadIdx.x - 128;
        Consumer<T, D, DROP>{args, s, work, thread / 128, thread / 32 % 4, thread % 32}.run();
    }
}

template <typename T, int D, bool DROP>
__global__ void __launch_bounds__(threads, 1) backward_hopper(const __grid_constant__ BackwardArgs args) {
    chain_next();
    chain_wait();
    if constexpr (is_target) backward_block<T, D, DROP>(args);
}

template <typename T, int D, bool DROP>
cudaError_t start_backward(cudaStream_t stream, BackwardArgs &args, DType type) {
    constexpr int queries = Size<D>::queries;
    const CudaAttention &call = args.call;
    int shared_heads = call.H / call.group;
    if (!map_heads(&args.q, type, call, call.q, call.H, call.queries, queries) ||
        !map_heads(&args.k, type, call, call.k, shared_heads, call.keys, keys) ||
        !map_heads(&args.v, type, call, call.v, shared_heads, call.keys, keys) ||
        !map_heads(&args.dout, type, call, call.dout, call.H, call.queries, queries))
        return cudaErrorInvalidValue;
    cudaError_t error = allow_shared(backward_hopper<T, D, DROP>, sizeof(Shared<D>));
    if (error != cudaSuccess) return error;
    int blocks = call.B * call.H * args.tiles;
    unsigned prepared = blocks_for((int64_t)padded_rows(args) * (D / 8), prepare_threads * prepare_rows);
    error = launch_chained(stream, prepare_hopper<T, D>, prepared, prepare_threads, 0, args);
    if (error != cudaSuccess) return error;
    error = launch_chained(stream, backward_hopper<T, D, DROP>, blocks, threads, sizeof(Shared<D>), args);
    if (error != cudaSuccess) return error;
    int finished = call.B * call.H * (args.rows / 64) * (D / 64);
    error = launch_chained(stream, finish_hopper<T, D>, finished, 128, 0, args);
    if (error != cudaSuccess || !call.sums) return error;
    int64_t line = (int64_t)call.H * D, lines = (int64_t)call.B * args.tiles;
    error = add_partials(stream, Sums{{call.sums}, line}, 1, args.q_columns, (int)(lines * (keys / 64)));
    if (error != cudaSuccess) return error;
    return add_partials(stream, Sums{{call.sums + line}, 2 * line}, 1, args.kv_columns, (int)lines);
}

template <typename T> cudaError_t start_backward_of(cudaStream_t stream, BackwardArgs &args, DType type) {
    bool wide = args.call.D == 128;
    if (args.call.dropout.threshold)
        return wide ? start_backward<T, 128, true>(stream, args, type)
                    : start_backward<T, 64, true>(stream, args, type);
    return wide ? start_backward<T, 128, false>(stream, args, type)
                : start_backward<T, 64, false>(stream, args, type);
}

// Divides the scratch memory.
void lay_out(BackwardArgs &args, const CudaAttention &call, void *scratch) {
    const HopperCall shape = {call.B,
                              call.H,
                              call.group,
                              call.queries,
                              call.keys,
                              call.D,
                              call.parts,
                              is_windowed(call),
                              call.dropout.threshold != 0,
                              call.sums != nullptr};
    const HopperLayout at = hopper_layout(&shape);
    float *const floats = (float *)scratch;
    int *const ints = (int *)scratch;
    args.call = call;
    args.tiles = (call.keys + keys - 1) / keys;
    args.rows = (call.queries + keys - 1) / keys * keys;
    args.dq = floats + at.dq;
    args.sums = floats + at.sums;
    args.lse = floats + at.lse;
    args.delta = floats + at.delta;
    if (call.sums) {
        args.q_columns = floats + at.q_columns;
        args.kv_columns = floats + at.kv_columns;
    }
    if (is_windowed(call)) args.begin = ints + at.begin;
    args.turns = ints + at.turns;
    args.kv_turns = ints + at.kv_turns;
    args.started = ints + at.started;
}

} // namespace hopper::backward

using namespace hopper::backward;

cudaError_t launch_attention_backward_hopper(cudaStream_t stream, DType type, const CudaAttention *call,
                                             void *scratch) {
    BackwardArgs args = {};
    lay_out(args, *call, scratch);
    args.philox = hopper::philox_of(call->dropout);
    args.shifted = !call->parts && args.tiles <= processors();
    if (type == DT_BF16) return start_backward_of<__nv_bfloat16>(stream, args, type);
    return start_backward_of<__half>(stream, args, type);
}
