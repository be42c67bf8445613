// Linear layers of up to 16 rows with 16-bit, int8 or int4 weights, together with the norm before and the
// gated activation or residual after: y = res + act(norm(x) w^T + bias). In generation a kernel takes longer
// to start and to wait for the previous one than to compute, so fewer kernels are faster.
//
// A block computes TILES x 8 columns (of a gated layer, half as many of gate and of up); its warps split the
// inner dimension, as in linear_few.cu. Before that:
//   norm           teams of threads compute the statistics of the rows, in the order of norm.cu and
//                  rmsnorm.cu
//   norm, int8/4   all threads normalize the rows and store them in shared memory, 8 elements per slot of 16
//                  bytes
//   int8/4         they also find the rows' largest magnitudes; then each slot's elements are quantized into
//                  its first 8 bytes
// Every block repeats this, but rows are few and short; a kernel of its own would take longer. Rows of
// 16-bit layers without a norm are read directly.
//
// Sums are the same as those of the separate kernels: in 16 bits because their order is the same, in int8 and
// int4 because integer sums are exact. Every step rounds like the kernel that it replaces. So results have
// the same bits.
//
// In a chain (chain.cuh), the first weights, the norm's parameters, biases and scales are loaded before the
// previous kernel has finished. They are not in the cache: since their last use, all other weights have been
// read.
#include "kernels/cuda/linear_fused.h"

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/skinny.cuh"

namespace {

constexpr int max_rows = CUDA_FUSED_ROWS, tile = 8, slot = 8; // columns per tile, elements per slot
constexpr int deep_from = 2048; // inner dimension from which blocks have 16 warps, as in linear_few.cu
constexpr int default_shared = 48 << 10; // bytes that need no permission
constexpr int slice_inputs = 32, panel_cols = 16, slice_bytes = panel_cols * (slice_inputs / 2 + 1);

// Inner elements that a warp multiplies at a time. Of int8, a lane has 16, which is two mma.
template <int BITS> constexpr int chunk = BITS == 8 ? 64 : 32;

// What a lane loads of a column and chunk. int4: four bytes of a slice and the steps of columns 2t and 2t
// + 1.
template <int BITS> struct Weight { uint4 word; };
template <> struct Weight<4> { uint32_t word, steps; };

__host__ __device__ inline bool is_staged(const CudaFused &call) {
    return call.gamma || call.bits != 16;
}
// Whether a warp or a block of 256 threads computes the statistics of a row, as `forward` of norm.cu and
// rmsnorm.cu do, and whether rows are short enough for that.
__host__ __device__ inline bool uses_warps(const CudaFused &call) {
    return call.inner / slot <= (call.beta ? 7 : 4) * 32;
}
__host__ __device__ inline bool fits_norm(const CudaFused &call) {
    return call.inner / slot <= (call.beta ? 7 : 4) * 256;
}
// Slots between rows. Lanes of two rows read 4 slots each at a time, so that they use different banks.
__host__ __device__ inline int slots_per_row(const CudaFused &call) {
    return call.inner / slot + 4;
}

// A block's shared memory.
struct Shared {
    uint4 *rows;         // (rows, slots_per_row), if staged
    uint4 *gamma, *beta; // (inner / 8), with a norm
    float *bias, *scale; // (width)
    uint32_t *part;      // (warps, rows, width + 1): the warps' sums, fp32 or int32
    float2 *stats;       // (max_rows): mean and rstd
    uint32_t *amax;      // (max_rows): bits of the largest magnitudes
    float *sums;         // (2, 32)
    int bytes = 0;
    __host__ __device__ Shared(char *base, const CudaFused &call, int warps, int width) {
        const int row = call.inner / slot * (int)sizeof(uint4);
        rows = (uint4 *)(base + take(is_staged(call) ? call.rows * slots_per_row(call) * sizeof(uint4) : 0));
        gamma = (uint4 *)(base + take(call.gamma ? row : 0));
        beta = (uint4 *)(base + take(call.beta ? row : 0));
        bias = (float *)(base + take(width * sizeof(float)));
        scale = (float *)(base + take(width * sizeof(float)));
        part = (uint32_t *)(base + take(warps * call.rows * (width + 1) * sizeof(uint32_t)));
        stats = (float2 *)(base + take(max_rows * sizeof(float2)));
        amax = (uint32_t *)(base + take(max_rows * sizeof(uint32_t)));
        sums = (float *)(base + take(2 * 32 * sizeof(float)));
    }

  private:
    __host__ __device__ int take(size_t size) {
        int from = bytes;
        bytes += (int)((size + 15) / 16 * 16);
        return from;
    }
};

// ---- rows ----

// As row_sum of row.cuh, for a block of several teams of LANES threads.
template <int LANES> __device__ inline float team_sum(float value, float *buffer) {
    value = warp_sum(value);
    if constexpr (LANES > 32) {
        constexpr int warps = LANES / 32;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0) buffer[warp] = value;
        __syncthreads();
        value = warp_sum(lane < warps ? buffer[warp / warps * warps + lane] : 0.0f);
    }
    return value;
}

template <typename T, typename Body>
__device__ inline void over_row(const T *row, int C, int lane, int lanes, Body body) {
#pragma unroll 4
    for (int c = lane * slot; c < C; c += lanes * slot) {
        const Pack<T, slot> pack = load_pack<T, slot>(row + c);
#pragma unroll
        for (int i = 0; i < slot; i++) body(to_float(pack.at[i]));
    }
}

// Mean and rstd of the rows, each computed by a team of LANES threads. All threads call this.
template <typename T, int THREADS, int LANES>
__device__ inline void find_stats(const CudaFused &call, const Shared &at) {
    constexpr int teams = THREADS / LANES;
    const int C = call.inner, lane = threadIdx.x % LANES;
    int turn = 0;
    for (int first = 0; first < call.rows; first += teams) {
        const int r = first + (int)threadIdx.x / LANES;
        const bool there = r < call.rows;
        if (LANES == 32 && !there) break; // the whole warp
        const T *row = (const T *)call.x + (int64_t)(there ? r : 0) * C;
        float mean = 0, squares = 0;
        if (call.beta) {
            float total = 0;
            over_row(row, C, lane, LANES, [&](float x) { total += x; });
            mean = team_sum<LANES>(total, at.sums + 32 * turn) / (float)C;
            turn ^= 1;
            over_row(row, C, lane, LANES, [&](float x) {
                float off = x - mean;
                squares += off * off;
            });
        } else {
            over_row(row, C, lane, LANES, [&](float x) { squares += x * x; });
        }
        float rstd = 1.0f / sqrtf(team_sum<LANES>(squares, at.sums + 32 * turn) / (float)C + call.eps);
        turn ^= 1;
        if (there && lane == 0) at.stats[r] = make_float2(mean, rstd);
    }
}

// 8 elements of a row, normalized if there is a norm.
template <typename T>
__device__ inline Pack<T, slot> input_pack(const CudaFused &call, const Shared &at, int r, int c) {
    Pack<T, slot> x = load_pack<T, slot>((const T *)call.x + (int64_t)r * call.inner + c * slot);
    if (!call.gamma) return x;
    const float2 stats = at.stats[r];
    const Pack<T, slot> gamma = reinterpret_cast<const Pack<T, slot> *>(at.gamma)[c];
    float y[slot];
    if (call.beta) {
        const Pack<T, slot> beta = reinterpret_cast<const Pack<T, slot> *>(at.beta)[c];
#pragma unroll
        for (int i = 0; i < slot; i++) {
            float normed = (to_float(x.at[i]) - stats.x) * stats.y;
            y[i] = normed * to_float(gamma.at[i]) + to_float(beta.at[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < slot; i++) y[i] = to_float(x.at[i]) * stats.y * to_float(gamma.at[i]);
    }
    return pack_of<T>(y);
}

__device__ inline float scaled(const CudaFused &call, float x, int c) {
    return call.factor ? __fmul_rn(x, call.factor[c]) : x;
}

// The amax that a row is quantized with; infinite if an element is not finite.
__device__ inline float row_amax(const CudaFused &call, uint32_t bits) {
    float amax = __uint_as_float(bits);
    return call.static_amax > 0 && !isinf(amax) ? call.static_amax : amax;
}

// Calls body(row, pack, whether it is there) for all packs of 8 elements, such that the lanes of a warp have
// packs of the same row. A thread has the same packs in every call.
template <int WARPS, typename Body> __device__ inline void over_packs(const CudaFused &call, Body body) {
    const int packs = call.inner / slot, parts = (packs + 31) / 32;
    for (int task = threadIdx.x / 32; task < call.rows * parts; task += WARPS) {
        const int r = task / parts, c = (task - r * parts) * 32 + (int)threadIdx.x % 32;
        body(r, c, c < packs);
    }
}

// Fills the slots with 16-bit elements; for int8 and int4, also finds the largest magnitudes.
template <typename T, int BITS, int WARPS>
__device__ inline void stage_rows(const CudaFused &call, const Shared &at) {
    over_packs<WARPS>(call, [&](int r, int c, bool there) {
        float amax = 0;
        if (there) {
            const Pack<T, slot> x = input_pack<T>(call, at, r, c);
            reinterpret_cast<Pack<T, slot> *>(at.rows)[r * slots_per_row(call) + c] = x;
#pragma unroll
            for (int i = 0; BITS != 16 && i < slot; i++) {
                float magnitude = fabsf(scaled(call, to_float(x.at[i]), c * slot + i));
                amax = magnitude <= 3.402823466e38f ? fmaxf(amax, magnitude) : INFINITY; // also for NaN
            }
        }
        if (BITS == 16) return;
        const uint32_t bits = __reduce_max_sync(full_warp, __float_as_uint(amax));
        if (threadIdx.x % 32 == 0) atomicMax(at.amax + r, bits);
    });
}

// As quantize_kernel of linear_int8.cu. A thread quantizes the slots that it has filled.
template <typename T, int WARPS>
__device__ inline void quantize_rows(const CudaFused &call, const Shared &at) {
    over_packs<WARPS>(call, [&](int r, int c, bool there) {
        if (!there) return;
        const float amax = row_amax(call, at.amax[r]);
        float inverse = amax > 0 ? __fdiv_rn(127.0f, amax) : 0.0f;
        if (isinf(inverse)) inverse = 0;
        uint4 *to = at.rows + r * slots_per_row(call) + c;
        const Pack<T, slot> x = *reinterpret_cast<const Pack<T, slot> *>(to);
        uint32_t word[2] = {};
#pragma unroll
        for (int i = 0; i < slot; i++) {
            float value = scaled(call, to_float(x.at[i]), c * slot + i);
            value = fminf(fmaxf(value, -amax), amax); // only has an effect with a static amax
            int rounded = isinf(amax) ? 0 : (int)rintf(__fmul_rn(value, inverse));
            word[i / 4] |= (uint32_t)(rounded & 0xff) << (i % 4 * 8);
        }
        *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
    });
}

// ---- products ----

// A lane's operands of one chunk, of rows g and g + 8: pairs of 32-bit words that are multiplied with the
// words of a Weight.
template <typename T, int BITS> struct Operand {
    uint32_t low[4], high[4];
    // Reads row `row` of the staged rows or, without STAGED, of x.
    template <bool STAGED>
    __device__ static void read(uint32_t (&to)[4], const CudaFused &call, const Shared &at, bool there,
                                int row, int piece, int t) {
        const uint4 *staged = at.rows + row * slots_per_row(call);
        to[0] = to[1] = to[2] = to[3] = 0;
        if (!there) return;
        if constexpr (BITS == 16) {
            const int c = piece * (chunk<16> / slot) + t;
            const T *x = (const T *)call.x + (int64_t)row * call.inner + c * slot;
            const uint4 all = STAGED ? staged[c] : *reinterpret_cast<const uint4 *>(x);
            to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
        } else if constexpr (BITS == 8) {
            const uint4 *from = staged + piece * (chunk<8> / slot) + 2 * t;
            const uint2 one = *reinterpret_cast<const uint2 *>(from),
                        two = *reinterpret_cast<const uint2 *>(from + 1);
            to[0] = one.x, to[1] = one.y, to[2] = two.x, to[3] = two.y;
        } else {
            const uint4 *from = staged + piece * (chunk<4> / slot) + t / 2;
            to[0] = reinterpret_cast<const uint32_t *>(from)[t % 2];
            to[1] = reinterpret_cast<const uint32_t *>(from + 2)[t % 2];
        }
    }
};

template <typename T>
__device__ inline void multiply(float (&sum)[4], const Operand<T, 16> &x, const Weight<16> &w) {
    const uint32_t one[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const uint32_t two[4] = {x.low[2], x.high[2], x.low[3], x.high[3]};
    multiply_add<T>(sum, one, w.word.x, w.word.y);
    multiply_add<T>(sum, two, w.word.z, w.word.w);
}
template <typename T>
__device__ inline void multiply(int (&sum)[4], const Operand<T, 8> &x, const Weight<8> &w) {
    const uint32_t one[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const uint32_t two[4] = {x.low[2], x.high[2], x.low[3], x.high[3]};
    multiply_add_int8(sum, one, w.word.x, w.word.y);
    multiply_add_int8(sum, two, w.word.z, w.word.w);
}
// A nibble in the upper half of a byte is 16 times its value; the sum of a slice is divided by 16 again.
template <typename T>
__device__ inline void multiply(int (&sum)[4], const Operand<T, 4> &x, const Weight<4> &w) {
    const uint32_t all[4] = {x.low[0], x.high[0], x.low[1], x.high[1]};
    const int step[2] = {(int8_t)(w.steps & 0xff), (int8_t)(w.steps >> 8)};
    int total[4] = {};
    multiply_add_int8(total, all, w.word << 4 & 0xf0f0f0f0u, w.word & 0xf0f0f0f0u);
#pragma unroll
    for (int j = 0; j < 4; j++) sum[j] += step[j % 2] * (total[j] >> 4);
}

// The weights of `piece`, a chunk of the inner dimension, for the lane's column of the tile that starts at
// row n of w.
template <int BITS>
__device__ inline Weight<BITS> load_weight(const CudaFused &call, int n, int piece, int g, int t) {
    const char *w = (const char *)call.w;
    if constexpr (BITS == 16)
        return {load_once(w + (((int64_t)n + g) * call.inner + piece * chunk<16> + 8 * t) * 2)};
    if constexpr (BITS == 8)
        return {load_once(w + ((int64_t)n + g) * call.inner + piece * chunk<8> + 16 * t)};
    if constexpr (BITS == 4) {
        const int in_panel = n % panel_cols;
        const char *slice =
            w + ((int64_t)(n / panel_cols) * (call.inner / slice_inputs) + piece) * slice_bytes;
        const char *steps = slice + panel_cols * slice_inputs / 2 + in_panel + 2 * t;
        return {load_word_once(slice + (in_panel + g) * (slice_inputs / 2) + 4 * t),
                *reinterpret_cast<const uint16_t *>(steps)};
    }
}

// ---- results ----

// The columns of a block. Tiles from `half` on are those of `up`.
template <int TILES> struct Columns {
    int first, half;
    __device__ explicit Columns(const CudaFused &call) {
        half = call.gated ? TILES / 2 : TILES;
        first = (int)blockIdx.x * half * tile;
    }
    __device__ int width() const { return half * tile; }
    // The row of w with which tile i starts, or -1.
    __device__ int weight_row(const CudaFused &call, int i) const {
        int col = first + (i < half ? i : i - half) * tile;
        return col >= call.cols ? -1 : i < half ? col : col + call.cols;
    }
};

template <typename T, int BITS, int WARPS>
__device__ inline float total_of(const CudaFused &call, const Shared &at, int row, int i, int width) {
    const uint32_t *from = at.part + row * (width + 1) + i;
    const int step = call.rows * (width + 1);
    if constexpr (BITS == 16) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += __uint_as_float(from[w * step]);
        return call.bias ? total + at.bias[i] : total;
    } else {
        int total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += (int)from[w * step];
        const float amax = row_amax(call, at.amax[row]);
        const float unit = isinf(amax) ? NAN : __fdiv_rn(amax, 127.0f);
        float value = __fmul_rn(__fmul_rn((float)total, unit), at.scale[i]);
        return call.bias ? __fadd_rn(value, at.bias[i]) : value;
    }
}

// 16-bit layers round a sum before its activation, int8 and int4 layers do not; see kernels.h.
template <typename T, int BITS> __device__ inline T finished(const CudaFused &call, float value) {
    if (call.act == CUDA_ACT_NONE) return from_float<T>(value);
    if (BITS == 16) value = to_float(from_float<T>(value));
    return from_float<T>(act_of(call.act, value));
}

// Blocks per multiprocessor, so that those of two kernels fit: while one computes, the next loads weights.
template <int BITS, int WARPS, int TILES> constexpr int blocks_at_once() {
    return BITS == 16 && WARPS == 16 && TILES == 2 ? 1 : 2;
}

// STAGED: is_staged(call).
template <typename T, int BITS, int WARPS, int TILES, bool STAGED>
__global__ void __launch_bounds__(WARPS * 32, blocks_at_once<BITS, WARPS, TILES>())
    fused_kernel(CudaFused call) {
    constexpr int threads = WARPS * 32, width = TILES * tile;
    // Chunks whose weights are in flight: up to 8 KB per column of 16-bit weights, or 4 KB with 8 warps.
    constexpr int in_flight = (WARPS == 8 ? 4 : 8 / TILES) / (BITS == 8 ? 2 : 1);
    using Sum = std::conditional_t<BITS == 16, float, int>;
    extern __shared__ uint4 memory[];
    const Shared at(reinterpret_cast<char *>(memory), call, WARPS, width);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int chunks = call.inner / chunk<BITS>, each = (chunks + WARPS - 1) / WARPS;
    const int first = warp * each, last = min(first + each, chunks);
    const Columns<TILES> columns(call);
    Weight<BITS> weights[in_flight][TILES];
    auto load_weights = [&](int from) {
#pragma unroll
        for (int a = 0; a < in_flight; a++)
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                int n = columns.weight_row(call, i);
                weights[a][i] = {};
                if (from + a < last && n >= 0) weights[a][i] = load_weight<BITS>(call, n, from + a, g, t);
            }
    };
    chain_next();
    load_weights(first);
    if (threadIdx.x < width) {
        const int i = threadIdx.x, n = columns.weight_row(call, i / tile);
        const bool there = n >= 0;
        at.bias[i] = there && call.bias ? to_float(((const T *)call.bias)[n + i % tile]) : 0.0f;
        at.scale[i] = there && BITS != 16 ? call.scale[n + i % tile] : 0.0f;
    }
    if (threadIdx.x < max_rows) at.amax[threadIdx.x] = 0;
    for (int c = threadIdx.x; STAGED && call.gamma && c < call.inner / slot; c += threads) {
        at.gamma[c] = ((const uint4 *)call.gamma)[c];
        if (call.beta) at.beta[c] = ((const uint4 *)call.beta)[c];
    }
    __syncthreads();
    chain_wait();

    const int outputs = columns.width(), own_row = (int)threadIdx.x / outputs,
              own_col = (int)threadIdx.x % outputs;
    T own_res = from_float<T>(0);
    if (call.res && own_row < call.rows && columns.first + own_col < call.cols)
        own_res = ((const T *)call.res)[(int64_t)own_row * call.cols + columns.first + own_col];
    if (STAGED && call.gamma) {
        if (uses_warps(call))
            find_stats<T, threads, 32>(call, at);
        else
            find_stats<T, threads, 256>(call, at);
        __syncthreads();
    }
    if (STAGED) {
        stage_rows<T, BITS, WARPS>(call, at);
        __syncthreads();
    }
    if (BITS != 16) {
        quantize_rows<T, WARPS>(call, at);
        __syncthreads();
    }

    Sum sum[TILES][4] = {};
    for (int from = first; from < last; from += in_flight) {
#pragma unroll
        for (int a = 0; a < in_flight; a++) {
            Operand<T, BITS> x;
            const bool there = from + a < last;
            x.template read<STAGED>(x.low, call, at, there && g < call.rows, g, from + a, t);
            x.template read<STAGED>(x.high, call, at, there && g + 8 < call.rows, g + 8, from + a, t);
#pragma unroll
            for (int i = 0; i < TILES; i++) multiply<T>(sum[i], x, weights[a][i]);
        }
        load_weights(from + in_flight);
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = g + j / 2 * 8;
            uint32_t bits;
            memcpy(&bits, &sum[i][j], sizeof bits);
            if (row < call.rows)
                at.part[(warp * call.rows + row) * (width + 1) + i * tile + 2 * t + j % 2] = bits;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < call.rows * outputs; i += threads) {
        const int row = i == (int)threadIdx.x ? own_row : i / outputs, col = i - row * outputs;
        const int64_t to = (int64_t)row * call.cols + columns.first + col;
        if (columns.first + col >= call.cols) continue;
        const float value = total_of<T, BITS, WARPS>(call, at, row, col, width);
        T out;
        if (call.gated) {
            const float up = total_of<T, BITS, WARPS>(call, at, row, outputs + col, width);
            const float gate = act_of(call.act, to_float(from_float<T>(value)));
            out = from_float<T>(gate * to_float(from_float<T>(up)));
        } else {
            out = finished<T, BITS>(call, value);
        }
        if (call.res) {
            const T res = i == (int)threadIdx.x ? own_res : ((const T *)call.res)[to];
            out = from_float<T>(to_float(res) + to_float(out));
        }
        ((T *)call.y)[to] = out;
    }
}

template <typename T, int BITS, int WARPS, int TILES, bool STAGED>
cudaError_t start(cudaStream_t stream, const CudaFused &call) {
    auto kernel = fused_kernel<T, BITS, WARPS, TILES, STAGED>;
    int bytes = Shared(nullptr, call, WARPS, TILES * tile).bytes;
    int columns = (call.gated ? TILES / 2 : TILES) * tile;
    cudaError_t error = cudaSuccess;
    if (bytes > default_shared)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    return launch_recorded(stream, kernel, blocks_for(call.cols, columns), WARPS * 32, (size_t)bytes, call);
}

int warps_for(const CudaFused &call) {
    return call.inner >= deep_from ? 16 : 8;
}

// One block per multiprocessor, if possible: each block prepares all rows, and two kernels should fit.
int tiles_for(const CudaFused &call) {
    const char *requested = getenv("WEFT_CUDA_FUSE_TILES");
    int tiles = call.cols / tile * (call.gated ? 2 : 1), count = (tiles + processors() - 1) / processors();
    int most = is_staged(call) && warps_for(call) == 8 ? 4 : 2;
    if (requested) count = atoi(requested);
    if (call.gated && count % 2) count++;
    return count < 1 ? 1 : count < most ? count : most;
}

template <typename T, int BITS, int WARPS, bool STAGED>
cudaError_t launch_narrow(cudaStream_t stream, const CudaFused &call, int tiles) {
    return tiles == 1 ? start<T, BITS, WARPS, 1, STAGED>(stream, call)
                      : start<T, BITS, WARPS, 2, STAGED>(stream, call);
}

template <typename T, int BITS> cudaError_t launch(cudaStream_t stream, const CudaFused &call) {
    const int warps = warps_for(call), tiles = tiles_for(call);
    if constexpr (BITS == 16) {
        if (!is_staged(call))
            return warps == 16 ? launch_narrow<T, 16, 16, false>(stream, call, tiles)
                               : launch_narrow<T, 16, 8, false>(stream, call, tiles);
    }
    if (warps == 16) return launch_narrow<T, BITS, 16, true>(stream, call, tiles);
    switch (tiles) {
    case 3: return start<T, BITS, 8, 3, true>(stream, call);
    case 4: return start<T, BITS, 8, 4, true>(stream, call);
    default: return launch_narrow<T, BITS, 8, true>(stream, call, tiles);
    }
}

} // namespace

bool linear_fused_runs(const CudaFused *call) {
    int device = 0, shared = 0;
    bool is_16_bit = call->type == DT_BF16 || call->type == DT_F16;
    if (!is_16_bit || call->rows > max_rows || call->inner % 64 != 0 || call->cols % tile != 0 ||
        (call->gamma && !fits_norm(*call)) || !aligned_16(call->x, call->w, call->gamma, call->beta))
        return false;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
        return false;
    return Shared(nullptr, *call, warps_for(*call), tiles_for(*call) * tile).bytes <= shared;
}

cudaError_t launch_linear_fused(cudaStream_t stream, const CudaFused *call) {
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        if constexpr (sizeof(T) == 2) {
            if (call->bits == 8) return launch<T, 8>(stream, *call);
            if (call->bits == 4) return launch<T, 4>(stream, *call);
            return launch<T, 16>(stream, *call);
        } else {
            return cudaErrorInvalidValue;
        }
    });
}
