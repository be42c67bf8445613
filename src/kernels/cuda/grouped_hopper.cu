// Grouped matmuls on Hopper, for 16-bit types: forward of experts' linear layers, and both of its gradients.
//
// Each product is, for each expert, (rows x inner) times (inner x cols). A block computes tiles of 64 x 256
// of the result. A producer warp loads both operands by TMA into a ring of stages, each with 64 inner
// elements. Two consumer warpgroups take tiles alternately: one stores its tile while the other one
// multiplies the next. This hides the stores, which take long compared with the products if there are few
// inner elements, as for dw of experts with few rows. The grid is persistent: all blocks derive the same list
// of tiles from the offsets, so the host need not know them, and stride over it.
//
// The two blocks of a cluster take tiles one above the other. Each loads half of the right operand for both.
//
// A tile at the end of an expert's rows also reads rows of the next one. In forward and for the gradient of
// inputs, these give rows of the result that are not stored. In the gradient of weights, rows are the inner
// dimension: the consumers clear them in shared memory, because they may not be finite.
//
// The gradient of weights has as many tiles for each expert, whose rows differ in number. If there are few of
// them, the rows are split into chunks. The chunks of a tile are added in order, each waiting for the one
// before, so results are deterministic.
#include <algorithm>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/grouped_hopper.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/gpu_workspace.h"

namespace hopper::grouped {

constexpr int most_experts = 1024, most_turns = GROUPED_TURNS / sizeof(int);
constexpr int tile_rows = 64, tile_cols = 256;
constexpr int depth = 64, stages = 5;                 // inner elements of a stage, and stages of the ring
constexpr int pair = 2, pair_rows = pair * tile_rows; // blocks of a cluster, and rows of their tiles
constexpr int threads = 384, consumers = 256;

template <CudaGroupedKind KIND> constexpr bool is_weight = KIND == GROUPED_WEIGHT;
// Operands that are stored with the inner elements as rows.
template <CudaGroupedKind KIND> constexpr bool left_transposed = is_weight<KIND>;
template <CudaGroupedKind KIND> constexpr bool right_transposed = KIND != GROUPED_FORWARD;

struct Shared {
    alignas(1024) uint16_t left[stages][tile_rows * depth];
    alignas(1024) uint16_t right[stages][tile_cols * depth];
    alignas(1024) unsigned char buffer[consumers / 32][16 * row_bytes];
    uint64_t full[stages], empty[stages];
    uint64_t start[2];           // the turn of a warpgroup to multiply
    int first[most_experts + 1]; // row of each expert
    int unit[most_experts + 1];  // first unit of each expert
};
static_assert(sizeof(Shared) <= 232448, "a block has 227 KiB");

// A unit is a row of tiles of an expert or, for the gradient of weights, all tiles of a chunk of its rows.
struct GroupedArgs {
    CUtensorMap left, right;
    void *out;
    const int32_t *offsets;
    int *turns;       // (E,tiles,pair): how many chunks have been added; only with several of them
    int experts;      //
    int rows, cols;   // of the result of an expert; rows of dw only
    int blocks;       // stages of a tile; not of dw
    int down, across; // clusters' tiles of dw, and per row of tiles
    int each;         // tiles per unit
    int chunk;        // rows of x and dy, about
    bool accumulate;
};

// A tile of the cluster.
struct Item {
    int expert, row, col, end; // rows from `end` on are not stored
    int from, blocks, valid;   // the first inner element, stages, and valid inner elements of the last one
    int part, parts;
    int tile; // number in the expert; only of dw
};

// ---- schedule ----

template <CudaGroupedKind KIND> __device__ inline int units_of(const GroupedArgs &args, int rows) {
    if (!is_weight<KIND>) return (rows + pair_rows - 1) / pair_rows;
    if (rows == 0) return !args.accumulate; // writes zeros
    return max(1, (rows + args.chunk / 2) / args.chunk);
}

// Called by all threads.
template <CudaGroupedKind KIND> __device__ inline void plan(const GroupedArgs &args, Shared &s) {
    for (int e = threadIdx.x; e <= args.experts; e += threads) s.first[e] = args.offsets[e];
    __syncthreads();
    if (threadIdx.x < 32) {
        int lane = threadIdx.x, total = 0;
        for (int begin = 0; begin < args.experts; begin += 32) {
            int e = begin + lane, units = 0;
            if (e < args.experts) units = units_of<KIND>(args, s.first[e + 1] - s.first[e]);
            for (int by = 1; by < 32; by *= 2) {
                int other = __shfl_up_sync(full_warp, units, by);
                if (lane >= by) units += other;
            }
            if (e < args.experts) s.unit[e + 1] = total + units;
            total += __shfl_sync(full_warp, units, 31);
        }
        if (lane == 0) s.unit[0] = 0;
    }
    __syncthreads();
}

// The expert of a unit, which is not before expert `from`. Called by whole warps.
__device__ inline int expert_of(const int *unit, int experts, int from, int number) {
    int lane = threadIdx.x % 32;
    for (;; from += 32) {
        int e = from + lane;
        int ended = __popc(__ballot_sync(full_warp, e < experts && unit[e + 1] <= number));
        if (ended < 32) return from + ended;
    }
}

// Tile `index` of the list; false at the end. `item` is the one before.
template <CudaGroupedKind KIND>
__device__ inline bool item_of(const GroupedArgs &args, const Shared &s, int index, Item &item) {
    int number = index / args.each;
    if (number >= s.unit[args.experts]) return false;
    int e = item.expert = expert_of(s.unit, args.experts, item.expert, number);
    int begin = s.unit[e], units = s.unit[e + 1] - begin, first = s.first[e], end = s.first[e + 1];
    constexpr int band = 8; // rows of tiles that are traversed together
    int within = index - (is_weight<KIND> ? number : begin) * args.each;
    int top = within / (band * args.across) * band;
    int height = min(band, (is_weight<KIND> ? args.down : units) - top);
    within -= top * args.across;
    int row = (top + within % height) * pair_rows + blockIdx.x % pair * tile_rows;
    item.col = within / height * tile_cols;
    if (is_weight<KIND>) {
        item.row = row;
        item.end = args.rows;
        int part = item.part = number - begin, blocks = (end - first + depth - 1) / depth;
        item.parts = units;
        item.from = first + (blocks / units * part + min(part, blocks % units)) * depth;
        item.blocks = blocks / units + (part < blocks % units);
        item.valid = min(depth, end - item.from - (item.blocks - 1) * depth);
        item.tile = index - number * args.each;
    } else {
        item.row = first + row;
        item.end = end;
        item.from = 0;
        item.blocks = args.blocks;
        item.valid = depth;
    }
    return true;
}

// ---- producer ----

__device__ inline void prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Copies a box; BOTH: to the same place in both blocks of the cluster.
template <bool BOTH>
__device__ inline void copy_box(uint16_t *to, const CUtensorMap *map, uint64_t *barrier, int x, int y,
                                int z) {
    if constexpr (BOTH)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
                     "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"((uint16_t)3)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                     "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
                     : "memory");
}

// Loads LINES rows of the left operand or columns of the right one, from `line` on.
template <int LINES, bool TRANSPOSED, bool BOTH>
__device__ inline void load(uint16_t *to, const CUtensorMap *map, uint64_t *barrier, int line, int inner,
                            int matrix) {
    if constexpr (TRANSPOSED)
        for (int i = 0; i < LINES; i += width)
            copy_box<BOTH>(to + i * depth, map, barrier, line + i, inner, matrix);
    else
        copy_box<BOTH>(to, map, barrier, inner, line, matrix);
}

// Fetches the tile of dw that will be added to into the L2 cache.
__device__ inline void prefetch_sums(const GroupedArgs &args, const Item &item) {
    int bytes = min(tile_cols, args.cols - item.col) * (int)sizeof(float);
    int end = min(item.row + tile_rows, item.end);
    if (bytes <= 0) return;
    for (int row = item.row + threadIdx.x; row < end; row += 32)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         (float *)args.out + ((int64_t)item.expert * args.rows + row) * args.cols + item.col),
                     "r"(bytes)
                     : "memory");
}

// A whole warp calls this; one lane loads.
template <CudaGroupedKind KIND> __device__ inline void load_tiles(const GroupedArgs &args, Shared &s) {
    Ring<stages> ring;
    Item item = {};
    int step = gridDim.x / pair, half = blockIdx.x % pair * (tile_cols / pair); // of the right operand
    for (int index = blockIdx.x / pair; item_of<KIND>(args, s, index, item); index += step) {
        if (is_weight<KIND> && args.accumulate && item.part == 0) prefetch_sums(args, item);
        if (threadIdx.x != 0) continue;
        int matrix = is_weight<KIND> ? 0 : item.expert;
        for (int i = 0; i < item.blocks; i++, ring.next()) {
            uint64_t *full = &s.full[ring.slot];
            int inner = item.from + i * depth;
            barrier_wait(&s.empty[ring.slot], ring.parity ^ 1);
            barrier_expect(full, sizeof s.left[0] + sizeof s.right[0]);
            load<tile_rows, left_transposed<KIND>, false>(s.left[ring.slot], &args.left, full, item.row,
                                                          inner, 0);
            load<tile_cols / pair, right_transposed<KIND>, true>(
                s.right[ring.slot] + half * depth, &args.right, full, item.col + half, inner, matrix);
        }
    }
    __syncwarp();
}

// ---- consumers ----

__device__ inline void arrive_remote(uint64_t *barrier, int rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(barrier)), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
__device__ inline void add_four(float *to, float4 by) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(by.x), "f"(by.y),
                 "f"(by.z), "f"(by.w)
                 : "memory");
}
__device__ inline int load_acquire(const int *from) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline void store_release(int *to, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

template <typename T, CudaGroupedKind KIND> struct Consumer {
    enum { N = tile_cols / 2 };
    using Sum = float[N];
    const GroupedArgs &args;
    Shared &s;
    int group, warp, lane;
    uint32_t parity; // of the next wait for its turn
    Ring<stages> ring;

    __device__ inline Consumer(const GroupedArgs &args, Shared &s, int thread)
        : args(args), s(s), group(thread / 128), warp(thread / 32 % 4), lane(thread % 32), parity(group ^ 1) {
    }

    // While one warpgroup multiplies its tile, the other one stores its own.
    __device__ inline void begin_turn() {
        barrier_wait(&s.start[group], parity);
        parity ^= 1;
    }
    __device__ inline void end_turn() { barrier_arrive_warp(&s.start[group ^ 1]); }

    // Lets both blocks, which load into a slot, reuse it.
    __device__ inline void release(int slot) {
        __syncwarp();
        if (lane < pair) arrive_remote(&s.empty[slot], lane);
    }
    __device__ inline void sync_group() { sync_threads(1 + group, 128); }

    // Clears the inner elements from `valid` on, which are rows of other experts or of none.
    __device__ inline void clear(int slot, int valid) {
        int count = (depth - valid) * (width / 8); // chunks of a tile of 64 lines
#pragma unroll
        for (int tile = 0; tile <= tile_cols / width; tile++) {
            uint16_t *from = tile ? s.right[slot] + (tile - 1) * width * depth : s.left[slot];
#pragma unroll 1
            for (int i = warp * 32 + lane; i < count; i += 128)
                *reinterpret_cast<uint4 *>(from + valid * width + i * 8) = make_uint4(0, 0, 0, 0);
        }
        fence_shared();
        sync_group();
    }

    __device__ inline void multiply_stage(Sum &sum, int slot, bool add) {
        constexpr int apart = width * row_bytes; // tiles of 64 lines
        constexpr bool LEFT = left_transposed<KIND>, RIGHT = right_transposed<KIND>;
        constexpr uint64_t left_step = LEFT ? next_rows : next_columns,
                           right_step = RIGHT ? next_rows : next_columns;
        uint64_t left = tile_of(s.left[slot], apart), right = tile_of(s.right[slot], apart);
        products_begin();
#pragma unroll
        for (int k = 0; k < depth / 16; k++)
            multiply_stored<T, LEFT, RIGHT>(sum, left + k * left_step, right + k * right_step, add || k > 0);
        products_commit();
    }

    // Puts 16 rows of the result, 128 bytes of each, into the warp's buffer. In a row, 16-byte chunk c is at
    // c ^ chunk_of(row), which avoids bank conflicts.
    __device__ static inline int chunk_of(int row) {
        return is_weight<KIND> ? row % 4 * 2 : row % 8;
    }
    __device__ inline void put(unsigned char *buffer, const float *d) {
        if constexpr (is_weight<KIND>) {
            int row = lane / 4, half = lane / 2 % 2, at = row * row_bytes + lane % 2 * 8;
#pragma unroll
            for (int n = 0; n < 4; n++, d += 4) {
                unsigned char *to = buffer + at + (2 * n + half ^ chunk_of(row)) * 16;
                *reinterpret_cast<float2 *>(to) = make_float2(d[0], d[1]);
                *reinterpret_cast<float2 *>(to + 8 * row_bytes) = make_float2(d[2], d[3]);
            }
        } else {
            uint32_t at = matrices_at(buffer, 0);
#pragma unroll
            for (int n = 0; n < 8; n += 2, d += 8)
                store_matrices(at ^ 16 * n, round_pair<T>(d[0], d[1]), round_pair<T>(d[2], d[3]),
                               round_pair<T>(d[4], d[5]), round_pair<T>(d[6], d[7]));
        }
    }

    // Stores the warp's 16 rows through its buffer.
    __device__ inline void store(const Item &item, const Sum &sum, bool add) {
        using Out = std::conditional_t<is_weight<KIND>, float, T>;
        constexpr int line = row_bytes / sizeof(Out), chunk = 16 / sizeof(Out);
        int row = item.row + warp * 16 + lane / 8, col = item.col + lane % 8 * chunk;
        int64_t before = is_weight<KIND> ? (int64_t)item.expert * args.rows : 0; // rows
        Out *to = (Out *)args.out + (before + row) * args.cols + col;
        unsigned char *buffer = s.buffer[group * 4 + warp];
        if (row - lane / 8 >= item.end) return;
#pragma unroll
        for (int part = 0; part < N; part += line / 2) {
            __syncwarp();
            put(buffer, sum + part);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = i * 4 + lane / 8;
                float4 made =
                    *reinterpret_cast<float4 *>(buffer + r * row_bytes + (lane % 8 ^ chunk_of(r)) * 16);
                Out *place = to + (int64_t)(i * 4) * args.cols + 2 * part;
                if (row + i * 4 >= item.end || col + 2 * part >= args.cols) continue;
                if (is_weight<KIND> && add)
                    add_four((float *)place, made);
                else
                    *reinterpret_cast<float4 *>(place) = made;
            }
        }
    }

    // Stores a chunk when the ones before it have been added.
    __device__ inline void store_part(const Item &item, const Sum &sum) {
        int *turn = args.turns + ((int64_t)item.expert * args.each + item.tile) * pair + blockIdx.x % pair;
        if (item.part > 0) {
            if (warp == 0 && lane == 0)
                while (load_acquire(turn) != item.part) {
                }
            sync_group();
        }
        store(item, sum, args.accumulate || item.part > 0);
        if (item.part + 1 == item.parts) return;
        __threadfence();
        sync_group();
        if (warp == 0 && lane == 0) store_release(turn, item.part + 1);
    }

    // Starts the products of a stage, and returns its slot.
    __device__ inline int start_stage(Sum &sum, const Item &item, int i) {
        int slot = ring.slot;
        barrier_wait(&s.full[slot], ring.parity);
        if (is_weight<KIND> && i + 1 == item.blocks && item.valid < depth) clear(slot, item.valid);
        multiply_stage(sum, slot, i > 0);
        ring.next();
        return slot;
    }

    __device__ inline void multiply(Sum &sum, const Item &item) {
        begin_turn();
        int previous = start_stage(sum, item, 0);
        for (int i = 1; i < item.blocks; i++) {
            int slot = start_stage(sum, item, i);
            products_wait<1>();
            release(previous);
            previous = slot;
        }
        end_turn();
        products_wait<0>();
        hold(sum);
        release(previous);
    }

    // Passes over the stages of a tile without rows or without inner elements.
    __device__ inline void skip(const Item &item) {
        begin_turn();
        for (int i = 0; i < item.blocks; i++, ring.next()) {
            barrier_wait(&s.full[ring.slot], ring.parity);
            release(ring.slot);
        }
        end_turn();
    }

    __device__ inline void work(const Item &item) {
        if (item.row >= item.end) return skip(item);
        Sum sum;
        if (is_weight<KIND> && item.blocks == 0) {
            skip(item);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = 0;
        } else {
            multiply(sum, item);
        }
        if (is_weight<KIND>)
            store_part(item, sum);
        else
            store(item, sum, false);
    }

    __device__ inline void run() {
        Item item = {};
        int step = gridDim.x / pair, next = 0;
        for (int index = blockIdx.x / pair; item_of<KIND>(args, s, index, item); index += step, next ^= 1)
            if (group == next)
                work(item);
            else
                ring.skip(item.blocks);
    }
};

__device__ inline void sync_cluster() {
    cluster_arrive();
    cluster_wait();
}

template <typename T, CudaGroupedKind KIND> __device__ inline void grouped_block(const GroupedArgs &args) {
    constexpr int producer_registers = 40, consumer_registers = 232;
    extern __shared__ __align__(1024) unsigned char shared[];
    Shared &s = *reinterpret_cast<Shared *>(shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; i++) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], 128 / 32 * pair); // one arrival per warp that multiplies
        }
        for (uint64_t &start : s.start) barrier_init(&start, 128 / 32);
        barriers_ready();
        prefetch_map(&args.left);
        prefetch_map(&args.right);
    }
    chain_next();
    chain_wait();
    plan<KIND>(args, s);
    sync_cluster(); // before anything arrives at the other block's barriers
    if (threadIdx.x < 128) {
        registers_down<producer_registers>();
        if (threadIdx.x < 32) load_tiles<KIND>(args, s);
    } else {
        registers_up<consumer_registers>();
        Consumer<T, KIND>(args, s, threadIdx.x - 128).run();
    }
    sync_cluster(); // a block's shared memory must outlive what the other one sends to it
}

template <typename T, CudaGroupedKind KIND>
__global__ void __launch_bounds__(threads, 1)
    grouped_hopper_kernel(const __grid_constant__ GroupedArgs args) {
    if constexpr (is_target) grouped_block<T, KIND>(args);
}

// ---- host ----

// Describes matrices (count,rows,cols) whose boxes are `lines` rows of 64 columns.
inline bool map_matrices(CUtensorMap *map, DType type, const void *data, int64_t count, int64_t rows,
                         int64_t cols, int lines) {
    cuuint64_t dims[] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)count};
    cuuint64_t strides[] = {(cuuint64_t)cols * 2, (cuuint64_t)(rows * cols) * 2};
    cuuint32_t box[] = {width, (cuuint32_t)lines, 1};
    return map_boxes(map, type, data, 3, dims, strides, box);
}

template <CudaGroupedKind KIND> bool map_operands(GroupedArgs &args, const CudaGrouped &call) {
    const int left_lines = left_transposed<KIND> ? depth : tile_rows;
    const int right_lines = right_transposed<KIND> ? depth : tile_cols / pair;
    const bool from_weights = !is_weight<KIND>;
    return map_matrices(&args.left, call.dtype, call.a, 1, call.rows,
                        KIND == GROUPED_FORWARD ? call.K : call.N, left_lines) &&
           map_matrices(&args.right, call.dtype, call.b, from_weights ? call.E : 1,
                        from_weights ? call.N : call.rows, call.K, right_lines);
}

inline int divided(int64_t count, int by) {
    return (int)((count + by - 1) / by);
}

// How many clusters of the kernel run at the same time; 0 on failure. Chunks wait for others, so there may be
// no more clusters.
template <typename T, CudaGroupedKind KIND> int resident_clusters() {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = pair;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = processors() / pair * pair;
    config.blockDim = threads;
    config.dynamicSmemBytes = sizeof(Shared);
    config.attrs = &cluster;
    config.numAttrs = 1;
    int count = 0;
    if (cudaOccupancyMaxActiveClusters(&count, grouped_hopper_kernel<T, KIND>, &config) != cudaSuccess)
        return 0;
    return std::min(count, processors() / pair);
}

template <typename T, CudaGroupedKind KIND>
cudaError_t start(cudaStream_t stream, const CudaGrouped &call, int *turns) {
    GroupedArgs args = {};
    if (!map_operands<KIND>(args, call)) return cudaErrorInvalidValue;
    args.out = call.out;
    args.offsets = call.offsets;
    args.experts = (int)call.E;
    args.accumulate = call.accumulate;
    args.cols = (int)(KIND == GROUPED_FORWARD ? call.N : call.K);
    args.across = divided(args.cols, tile_cols);
    args.each = args.across;
    cudaError_t error = allow_shared(grouped_hopper_kernel<T, KIND>, sizeof(Shared));
    if (error != cudaSuccess) return error;
    static const int clusters = resident_clusters<T, KIND>();
    if (clusters == 0) return cudaErrorInvalidConfiguration;
    int64_t most; // tiles of clusters
    if (is_weight<KIND>) {
        args.rows = (int)call.N;
        args.down = divided(call.N, pair_rows);
        args.each *= args.down;
        // Chunks of at most a quarter of what each cluster has to do.
        int64_t counters = call.E * args.each * pair, chunk = call.rows * args.each / (clusters * 4);
        chunk = std::max<int64_t>(chunk, 1024);
        if (!turns || counters > most_turns) chunk = call.rows;
        args.chunk = divided(std::min(chunk, call.rows), depth) * depth;
        args.turns = turns;
        most = (divided(call.rows, args.chunk) + call.E) * args.each;
        if (args.chunk < call.rows) {
            error = cudaMemsetAsync(turns, 0, counters * sizeof(int), stream);
            if (error != cudaSuccess) return error;
        }
    } else {
        args.blocks = divided(KIND == GROUPED_FORWARD ? call.K : call.N, depth);
        most = (divided(call.rows, pair_rows) + call.E) * args.each;
    }
    const int blocks = (int)std::min<int64_t>(most, clusters) * pair;
    return launch_cluster(true, pair, stream, grouped_hopper_kernel<T, KIND>, blocks, threads, sizeof(Shared),
                          args);
}

} // namespace hopper::grouped

using namespace hopper::grouped;

template <typename T>
static cudaError_t start_type(cudaStream_t stream, const CudaGrouped &call, int *turns) {
    switch (call.kind) {
    case GROUPED_FORWARD: return start<T, GROUPED_FORWARD>(stream, call, turns);
    case GROUPED_INPUT: return start<T, GROUPED_INPUT>(stream, call, turns);
    case GROUPED_WEIGHT: return start<T, GROUPED_WEIGHT>(stream, call, turns);
    }
    return cudaErrorInvalidValue;
}

// Compiled for any target other than sm_90a, the kernel is empty and takes hardly any registers.
static bool is_compiled(void) {
    static const bool is = [] {
        cudaFuncAttributes attributes;
        cudaError_t error =
            cudaFuncGetAttributes(&attributes, grouped_hopper_kernel<__nv_bfloat16, GROUPED_FORWARD>);
        cudaGetLastError(); // not an error of the next launch
        return error == cudaSuccess && attributes.numRegs > 64;
    }();
    return is;
}

bool grouped_hopper_serves(const CudaGrouped *call) {
    constexpr int64_t least_work = (int64_t)1 << 30, most = 1 << 30;
    if (cuda_limits().capability != 90 || (call->dtype != DT_BF16 && call->dtype != DT_F16)) return false;
    if (call->E > most_experts || call->N % 8 || call->K % 8 || !aligned_16(call->out, call->a, call->b))
        return false;
    if (call->rows > most || call->N > most || call->K > most ||
        call->rows * call->N > least_work * most / call->K)
        return false;
    return call->rows * call->N * call->K >= least_work && is_compiled();
}

cudaError_t grouped_hopper(cudaStream_t stream, const CudaGrouped *call, void *workspace) {
    if (call->dtype == DT_BF16) return start_type<__nv_bfloat16>(stream, *call, (int *)workspace);
    return start_type<__half>(stream, *call, (int *)workspace);
}
