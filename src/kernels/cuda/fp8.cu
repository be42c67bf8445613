// Quantizes bf16 tensors to fp8: as stored, transposed, or both. See kernels.h for the scale.
//
// Two kernels, each over all tensors of a call at once, because small tensors alone would not fill the
// device. The first computes partial maxima of magnitudes, one per block, and, if requested, column sums
// (see linear.cu for those). The second reduces the partial maxima, which is quick, and quantizes a tile.
// Nothing has to be zeroed first, and the order of sums depends on shapes alone. The blocks of the first
// kernel pass over a tensor together, from its end: they find what the previous kernel wrote last in the
// cache, and leave there what the second kernel reads first. The second kernel marks its inputs and its
// transposed output, which will be read in another order, as first to be evicted.
//
// If the producer of a tensor has already collected its statistics (launch_fp8_stats), or the scale is given
// (delayed scaling), only the second kernel runs. In the latter case it also finds the amax and computes the
// column sums, per tile, and can multiply by the derivative of an activation first: one pass from the result
// of a GEMM to the operands of the next two.
//
// A thread of the second kernel processes 8 columns of 4 rows. Bytes of a column are combined into words,
// which are transposed through shared memory: `TileWords` has a row of words for each column, with word w at
// w ^ key_of(column), so that neither the writes of a warp (8 groups of columns, 4 words) nor its reads, four
// words at a time, have bank conflicts. Tiles have 128 rows, so that a column of the transposed output is a
// cache line: half lines of tiles that are processed at different times are slow. If no first kernel runs,
// tiles are taken from the end of the tensor, again to find what was written last in the cache.
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/row.cuh"

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int strip = 32 * 8;      // columns of a block of the first kernel
constexpr int wanted_blocks = 512; // blocks of it per tensor: enough to fill any GPU, and all run at once
constexpr int blocks_per_sm = 5;   // blocks of it that a multiprocessor should hold
constexpr int min_rows = 64;       // rows of such a block, at least
constexpr int tile_rows = 128, tile_cols = 64; // of the second kernel
constexpr int sum_rows = FP8_SUM_ROWS;
constexpr int side = 128; // of a tile of transpose_kernel

struct TensorPart {
    const uint16_t *x; // (rows,cols) bf16
    int64_t rows, cols;
    uint8_t *plain, *transposed;
    float *scale;        // output; may be NULL
    const float *given;  // delayed scaling: the scale; else NULL
    uint32_t *record;    // amax as fp32 bits, which the tensor's raises; may be NULL
    const uint16_t *pre; // x *= act'(pre) first; may be NULL
    uint32_t
        *largest; // (slots) partial maxima as fp32 bits; the first (chunks,strips) are used, the rest are 0
    float *sums;  // (chunks,cols) or, if the scale is given, (rows / sum_rows,cols); may be NULL
    int slots, chunks, strips, across;
    unsigned first_block, first_tile;
    bool act, gradient;
};

struct TensorParts {
    TensorPart part[FP8_TENSORS];
    int count;
    unsigned tiles;
    bool backwards;      // take tiles from the last to the first
    CudaDropout dropout; // of the first tensor; threshold 0: none
    int64_t positions;   // rows per sequence
};

// What is done to the first tensor before it is quantized.
enum Before { NOTHING, DERIVATIVE, DROPOUT };
constexpr int tile_blocks[] = {6, 5, 4}; // blocks of the second kernel per multiprocessor

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// ---- the largest magnitude ----

__device__ inline void add_pack(float *sum, uint4 pack) {
    const uint32_t word[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[2 * i] += __uint_as_float(word[i] << 16);
        sum[2 * i + 1] += __uint_as_float(word[i] & 0xffff0000u);
    }
}

__device__ inline uint32_t block_largest(uint32_t value, uint32_t *buffer) {
    value = warp_largest(value);
    if (threadIdx.x % 32 == 0) buffer[threadIdx.x / 32] = value;
    __syncthreads();
    uint32_t amax = buffer[0];
    for (int i = 1; i < warps; i++) amax = max(amax, buffer[i]);
    return amax;
}

// Processes `iterations` packs backwards from x, `step` apart, with four loads in flight.
template <bool SUMS>
__device__ inline void scan_packs(const uint4 *x, int64_t step, unsigned iterations, uint32_t &amax,
                                  float (&sum)[8]) {
#pragma unroll 1
    for (unsigned iteration = 0; iteration < iterations; iteration += 4, x -= 4 * step) {
        uint4 pack[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pack[i] = iteration + i < iterations ? x[-i * step] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            amax = larger(amax, pack[i]);
            if (SUMS) add_pack(sum, pack[i]);
        }
    }
}

// The work of a block of the first kernel. Rows form groups of one row per warp; chunk c has every group
// whose number is c modulo the number of chunks. A thread passes over its packs backwards.
struct BlockWork {
    int chunk, strip;
    bool valid;
    unsigned iterations;
    int64_t last, step; // packs
};

__device__ inline BlockWork block_work(const TensorPart &part, int block) {
    BlockWork work = {block / part.strips, block % part.strips};
    int64_t col = (int64_t)work.strip * strip + threadIdx.x % 32 * 8;
    unsigned groups = (unsigned)(part.rows / warps);
    work.valid = col < part.cols;
    work.iterations = (groups - 1 - work.chunk) / part.chunks + 1;
    int64_t group = work.chunk + (int64_t)(work.iterations - 1) * part.chunks;
    work.last = ((group * warps + threadIdx.x / 32) * part.cols + col) / 8;
    work.step = (int64_t)part.chunks * warps * part.cols / 8;
    return work;
}

// Stores the results of a block.
__device__ inline void store_results(const TensorPart &part, const BlockWork &work, uint32_t amax,
                                     const float (&sum)[8]) {
    __shared__ float buffer[warps][strip];
    __shared__ uint32_t maxima[warps];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot = work.chunk * part.strips + work.strip;
    amax = block_largest(max(amax & 0xffffu, amax >> 16), maxima);
    if (threadIdx.x == 0) part.largest[slot] = amax << 16;
    if (slot == 0)
        for (int i = part.chunks * part.strips + threadIdx.x; i < part.slots; i += threads)
            part.largest[i] = 0;
    if (!part.sums) return;
#pragma unroll
    for (int i = 0; i < 8; i++) buffer[warp][i * 32 + lane] = sum[i];
    __syncthreads();
    int64_t to = (int64_t)work.strip * strip + lane * 8 + warp;
    if (to >= part.cols) return;
    float total = 0;
    for (int i = 0; i < warps; i++) total += buffer[i][threadIdx.x];
    part.sums[work.chunk * part.cols + to] = total;
}

__global__ void __launch_bounds__(threads, blocks_per_sm)
    largest_kernel(const __grid_constant__ TensorParts parts) {
    int which = 0;
    while (which + 1 < parts.count && blockIdx.x >= parts.part[which + 1].first_block) which++;
    const TensorPart &part = parts.part[which];
    const BlockWork work = block_work(part, (int)(blockIdx.x - part.first_block));
    const uint4 *x = reinterpret_cast<const uint4 *>(part.x) + work.last;
    uint32_t amax = 0;
    float sum[8] = {};
    if (work.valid && part.sums)
        scan_packs<true>(x, work.step, work.iterations, amax, sum);
    else if (work.valid)
        scan_packs<false>(x, work.step, work.iterations, amax, sum);
    store_results(part, work, amax, sum);
}

// Two bf16 values times the derivatives at two others, as in linear.cu.
template <Act ACT> __device__ inline uint32_t times_derivatives(uint32_t two, uint32_t at) {
    float low = fmaf(__uint_as_float(two << 16), act_derivative<ACT>(__uint_as_float(at << 16)), 0.0f);
    float high = fmaf(__uint_as_float(two & 0xffff0000u),
                      act_derivative<ACT>(__uint_as_float(at & 0xffff0000u)), 0.0f);
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}

template <Act ACT> __device__ inline uint4 times_derivatives(uint4 pack, uint4 at) {
    return make_uint4(times_derivatives<ACT>(pack.x, at.x), times_derivatives<ACT>(pack.y, at.y),
                      times_derivatives<ACT>(pack.z, at.z), times_derivatives<ACT>(pack.w, at.w));
}

// The first kernel for a single tensor dx, after dx *= act'(pre). While two packs are processed, the next
// two are in flight; if only one is left, it is loaded twice and used once.
template <Act ACT>
__global__ void __launch_bounds__(threads, 4)
    act_backward_largest_kernel(const __grid_constant__ TensorPart part, uint4 *dx, const uint4 *pre) {
    const BlockWork work = block_work(part, (int)blockIdx.x);
    uint32_t amax = 0;
    float sum[8] = {};
    uint4 pack[2], at[2], next_pack[2], next_at[2];
    auto fetch = [&](unsigned iteration) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int64_t from = work.last - (int64_t)min(iteration + i, work.iterations - 1) * work.step;
            next_pack[i] = dx[from];
            next_at[i] = __ldcs(pre + from);
        }
    };
    if (work.valid) fetch(0);
#pragma unroll 1
    for (unsigned iteration = 0; work.valid && iteration < work.iterations; iteration += 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            pack[i] = next_pack[i];
            at[i] = next_at[i];
        }
        if (iteration + 2 < work.iterations) fetch(iteration + 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (iteration + i >= work.iterations) continue;
            pack[i] = times_derivatives<ACT>(pack[i], at[i]);
            dx[work.last - (int64_t)(iteration + i) * work.step] = pack[i];
            amax = larger(amax, pack[i]);
            add_pack(sum, pack[i]);
        }
    }
    store_results(part, work, amax, sum);
}

// ---- quantization ----

// The power of two that multiplies values, from the bf16 bits of the largest magnitude, for a type whose
// largest value is 1.75 * 2^top. Its inverse is the scale; neither is subnormal.
__device__ inline float inverse_scale_for(uint32_t largest, int top) {
    if (largest >= 0x7f80u) return __uint_as_float(0x7fffffffu);
    if (largest == 0) return 1;
    int power = top + 127 - (int)(largest >> 7) - ((largest & 0x7fu) > 0x60u);
    return __uint_as_float((uint32_t)(min(power, 126) + 127) << 23);
}

// Quantizes the 8 columns of each row; the result is in x and y.
template <Act ACT, __nv_fp8_interpretation_t TYPE>
__device__ inline void quantize_rows(uint4 (&row)[4], float inverse_scale) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 in = row[i];
        row[i].x = quantize_four<ACT, TYPE>(in.x, in.y, inverse_scale);
        row[i].y = quantize_four<ACT, TYPE>(in.z, in.w, inverse_scale);
    }
}

// The largest of the elements of this thread; four loads are in flight.
__device__ inline uint32_t largest_of(const uint32_t *largest, int count) {
    uint32_t amax = 0;
    for (int first = threadIdx.x; first < count; first += 4 * threads) {
        uint32_t value[4];
#pragma unroll
        for (int i = 0; i < 4; i++) value[i] = first + i * threads < count ? largest[first + i * threads] : 0;
        amax = max(amax, max(max(value[0], value[1]), max(value[2], value[3])));
    }
    return amax;
}

// A thread has the 4 rows of a line of a tile and the 8 columns of a group.
constexpr int tile_groups = tile_cols / 8, tile_lines = tile_rows / 4;
static_assert(tile_groups * tile_lines == threads, "one for each thread");
using TileWords = uint32_t[tile_cols][tile_lines];

__device__ inline int key_of(int column) {
    return column / 8 * 4 % tile_lines;
}

// What a block finds out about a tile if the scale is given: maxima, and column sums of pairs of lines. `add`
// and `finish` surround a __syncthreads.
struct TileStats {
    uint32_t maxima[warps];
    alignas(16) float sums[tile_lines / 2][tile_cols];
};

__device__ inline void add_stats(TileStats &stats, const TensorPart &part, const uint4 (&in)[4]) {
    const int group = threadIdx.x % tile_groups, line = threadIdx.x / tile_groups;
    uint32_t amax = 0;
    float sum[8] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        amax = larger(amax, in[i]);
        if (part.sums) add_pack(sum, in[i]);
    }
    amax = warp_largest(max(amax & 0xffffu, amax >> 16));
    if (threadIdx.x % 32 == 0) stats.maxima[threadIdx.x / 32] = amax;
    if (!part.sums) return;
#pragma unroll
    for (int i = 0; i < 8; i++) sum[i] += __shfl_xor_sync(full_warp, sum[i], tile_groups);
    if (line % 2 != 0) return;
    float4 *to = reinterpret_cast<float4 *>(&stats.sums[line / 2][group * 8]);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

// `recorded` is what was in part.record some time before.
__device__ inline void finish_stats(const TileStats &stats, const TensorPart &part, uint32_t recorded,
                                    int64_t row0, int64_t col0) {
    if (threadIdx.x == 0 && part.record) {
        uint32_t amax = 0;
        for (int i = 0; i < warps; i++) amax = max(amax, stats.maxima[i]);
        record_amax(part.record, amax, recorded);
    }
    constexpr int pairs = sum_rows / 8;
    const int c = threadIdx.x % tile_cols, half = threadIdx.x / tile_cols;
    const int64_t row = row0 + half * sum_rows;
    if (!part.sums || half >= tile_rows / sum_rows || row >= part.rows || col0 + c >= part.cols) return;
    float total = 0;
#pragma unroll
    for (int i = 0; i < pairs; i++) total += stats.sums[half * pairs + i][c];
    part.sums[row / sum_rows * part.cols + col0 + c] = total;
}

// The inverse scale of a tensor, which is given (always, if GIVEN) or follows from its amax. Also stores what
// is to be stored.
template <bool GIVEN>
__device__ inline float inverse_scale_of(const TensorPart &part, unsigned tile, uint32_t *maxima) {
    float inverse_scale;
    if (GIVEN || part.given) {
        inverse_scale = 1 / *part.given;
    } else {
        uint32_t amax = block_largest(largest_of(part.largest, part.slots), maxima) >> 16; // all are bf16
        inverse_scale = inverse_scale_for(amax, part.gradient ? 15 : 8);
        if (tile == 0 && threadIdx.x == 0 && part.record) record_amax(part.record, amax, 0);
    }
    if (tile == 0 && threadIdx.x == 0 && part.scale) *part.scale = 1 / inverse_scale;
    return inverse_scale;
}

// The rows of one thread after dropout, rounded like those of dropout_backward.
__device__ inline void drop_rows(uint4 (&pack)[4], const TensorParts &parts, int64_t row, int64_t col) {
    int64_t b = row / parts.positions, t = row % parts.positions;
    CudaDropout dropout = parts.dropout;
    dropout_begin(dropout);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint64_t index = dropout_row(dropout, b, t);
        uint32_t kept = dropout_kept<8>(dropout, index + (uint64_t)col);
        uint32_t *const word[4] = {&pack[k].x, &pack[k].y, &pack[k].z, &pack[k].w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float low = __uint_as_float(*word[i] << 16) * (kept >> (2 * i) & 1 ? dropout.scale : 0.0f);
            float high =
                __uint_as_float(*word[i] & 0xffff0000u) * (kept >> (2 * i + 1) & 1 ? dropout.scale : 0.0f);
            __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
            *word[i] = *reinterpret_cast<uint32_t *>(&both);
        }
        if (++t == parts.positions) b++, t = 0;
    }
}

// Stores the bytes of this thread's rows, and their words for the transposition.
__device__ inline void store_rows(TileWords &words, const TensorPart &part, const uint4 (&in)[4], int64_t row,
                                  int64_t col) {
    uint32_t low[4], high[4], word[8];
    uint8_t *to = part.plain + row * part.cols + col;
#pragma unroll
    for (int i = 0; i < 4; i++, to += part.cols) {
        low[i] = in[i].x;
        high[i] = in[i].y;
        if (part.plain) *reinterpret_cast<uint2 *>(to) = make_uint2(low[i], high[i]);
    }
    if (!part.transposed) return;
    transpose_bytes(low, word);
    transpose_bytes(high, word + 4);
    const int column = threadIdx.x % tile_groups * 8, at = threadIdx.x / tile_groups ^ key_of(column);
#pragma unroll
    for (int j = 0; j < 8; j++) words[column + j][at] = word[j];
}

// Stores the columns of a tile.
__device__ inline void store_columns(const TileWords &words, const TensorPart &part, int64_t row0,
                                     int64_t col0) {
    constexpr int quads = tile_lines / 4, columns = threads / quads;
    const int quad = threadIdx.x % quads, first = threadIdx.x / quads; // four words of a column
    const int64_t row = row0 + quad * 16;
    uint8_t *to = part.transposed + (col0 + first) * part.rows + row;
#pragma unroll
    for (int c = first; c < tile_cols; c += columns, to += columns * part.rows) {
        const uint4 four = *reinterpret_cast<const uint4 *>(&words[c][quad * 4 ^ key_of(c)]);
        if (row < part.rows && col0 + c < part.cols) __stcs(reinterpret_cast<uint4 *>(to), four);
    }
}

// ACT is the activation of the tensors that have one. DERIVATIVE: there is one tensor, which is first
// multiplied by the derivative of ACT. Rows come in groups of four and columns in groups of eight, which
// exist entirely or not at all.
template <Act ACT, Before BEFORE>
__global__ void __launch_bounds__(threads, tile_blocks[BEFORE])
    quantize_kernel(const __grid_constant__ TensorParts parts) {
    __shared__ __align__(16) TileWords words;
    __shared__ uint32_t maxima[warps];
    __shared__ TileStats stats;
    const unsigned place = parts.backwards ? parts.tiles - 1 - blockIdx.x : blockIdx.x;
    int which = 0;
    while (which + 1 < parts.count && place >= parts.part[which + 1].first_tile) which++;
    const TensorPart &part = parts.part[which];
    const unsigned tile = place - part.first_tile, down = tile / part.across;
    const int64_t row0 = (int64_t)down * tile_rows, col0 = (int64_t)(tile - down * part.across) * tile_cols;
    const int64_t row = row0 + threadIdx.x / tile_groups * 4, col = col0 + threadIdx.x % tile_groups * 8;
    const bool valid = row < part.rows && col < part.cols;
    uint4 in[4] = {}, at[4] = {};
    uint32_t recorded = 0;
    chain_next();
    chain_wait();
    if (valid) {
        const int64_t from = row * part.cols + col;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            in[i] = __ldcs(reinterpret_cast<const uint4 *>(part.x + from + i * part.cols));
            if (BEFORE == DERIVATIVE)
                at[i] = __ldcs(reinterpret_cast<const uint4 *>(part.pre + from + i * part.cols));
        }
    }
    // After the loads above, which take longer.
    if (threadIdx.x == 0 && part.record) recorded = *(volatile uint32_t *)part.record;
    constexpr bool given = BEFORE == DERIVATIVE;
    const float inverse_scale = inverse_scale_of<given>(part, tile, maxima);
    if (BEFORE == DERIVATIVE) {
#pragma unroll
        for (int i = 0; i < 4; i++) in[i] = times_derivatives<ACT>(in[i], at[i]);
    }
    if (BEFORE == DROPOUT && which == 0) drop_rows(in, parts, row, col);
    if (given || part.given) add_stats(stats, part, in);
    if (BEFORE == DERIVATIVE || part.gradient)
        quantize_rows<ACT_NONE, __NV_E5M2>(in, inverse_scale);
    else if (part.act)
        quantize_rows<ACT, __NV_E4M3>(in, inverse_scale);
    else
        quantize_rows<ACT_NONE, __NV_E4M3>(in, inverse_scale);
    if (valid) store_rows(words, part, in, row, col);
    __syncthreads();
    if (given || part.given) finish_stats(stats, part, recorded, row0, col0);
    if (part.transposed) store_columns(words, part, row0, col0);
}

// ---- transposition of bytes ----

// A thread of a tile of 128 x 128 has 16 columns of 4 rows. Words as above, at w ^ (column / 16 * 4): a warp
// writes 8 groups of columns and 4 words at a time, without bank conflicts.
__global__ void __launch_bounds__(threads)
    transpose_kernel(uint8_t *out, const uint8_t *in, int64_t rows, int64_t cols, int across) {
    chain_next();
    chain_wait();
    __shared__ __align__(16) uint32_t tile_words[side][side / 4];
    int64_t row0 = (int64_t)(blockIdx.x / across) * side, col0 = (int64_t)(blockIdx.x % across) * side;
    int group = threadIdx.x % 8, line = threadIdx.x / 8;
    int64_t row = row0 + line * 4, col = col0 + group * 16;
    uint4 four[4] = {};
    if (row < rows && col < cols) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            four[i] = __ldcs(reinterpret_cast<const uint4 *>(in + (row + i) * cols + col));
    }
    uint32_t word[16];
    const uint32_t a[4] = {four[0].x, four[1].x, four[2].x, four[3].x};
    const uint32_t b[4] = {four[0].y, four[1].y, four[2].y, four[3].y};
    const uint32_t c[4] = {four[0].z, four[1].z, four[2].z, four[3].z};
    const uint32_t d[4] = {four[0].w, four[1].w, four[2].w, four[3].w};
    transpose_bytes(a, word);
    transpose_bytes(b, word + 4);
    transpose_bytes(c, word + 8);
    transpose_bytes(d, word + 12);
#pragma unroll
    for (int j = 0; j < 16; j++) tile_words[group * 16 + j][line ^ (group * 4)] = word[j];
    __syncthreads();
    int quad = threadIdx.x % 8;
    row = row0 + quad * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = i * (threads / 8) + threadIdx.x / 8;
        uint4 words = *reinterpret_cast<const uint4 *>(&tile_words[at][(quad * 4) ^ (at / 16 * 4)]);
        if (row < rows && col0 + at < cols)
            __stcs(reinterpret_cast<uint4 *>(out + (col0 + at) * rows + row), words);
    }
}

// ---- launches ----

int strips_of(int64_t cols) {
    return (int)ceil_div(cols, strip);
}

int chunks_of(int64_t rows, int64_t cols) {
    int64_t chunks = ceil_div(wanted_blocks, strips_of(cols)), max_chunks = ceil_div(rows, min_rows);
    return (int)(chunks < max_chunks ? chunks : max_chunks);
}

size_t largest_bytes(int64_t rows, int64_t cols) {
    return (size_t)chunks_of(rows, cols) * (size_t)strips_of(cols) * sizeof(uint32_t);
}

size_t sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)chunks_of(rows, cols) * (size_t)cols * sizeof(float);
}

// A part without its outputs.
TensorPart part_of(const void *x, int64_t rows, int64_t cols) {
    TensorPart part = {};
    part.x = (const uint16_t *)x;
    part.rows = rows;
    part.cols = cols;
    part.chunks = chunks_of(rows, cols);
    part.strips = strips_of(cols);
    part.slots = part.chunks * part.strips;
    part.across = (int)ceil_div(cols, tile_cols);
    return part;
}

bool supported(int64_t rows, int64_t cols) {
    return rows % 16 == 0 && cols % 16 == 0;
}

cudaError_t launch_quantize(cudaStream_t stream, const TensorParts &parts, Act act) {
    return with_act(act, [&](auto tag) {
        constexpr Act ACT = decltype(tag)::act;
        if (parts.part[0].pre)
            return launch_chained(stream, quantize_kernel<ACT, DERIVATIVE>, parts.tiles, threads, 0, parts);
        if (parts.dropout.threshold)
            return launch_chained(stream, quantize_kernel<ACT, DROPOUT>, parts.tiles, threads, 0, parts);
        return launch_chained(stream, quantize_kernel<ACT, NOTHING>, parts.tiles, threads, 0, parts);
    });
}

int64_t sum_parts(const CudaFp8Tensor *t) {
    return t->given ? ceil_div(t->rows, sum_rows) : chunks_of(t->rows, t->cols);
}

} // namespace

size_t fp8_quantize_scratch(const CudaFp8Tensor *tensor, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += largest_bytes(tensor[i].rows, tensor[i].cols);
        if (tensor[i].sums) bytes += (size_t)sum_parts(&tensor[i]) * (size_t)tensor[i].cols * sizeof(float);
    }
    return bytes;
}

cudaError_t launch_fp8_quantize(cudaStream_t stream, const CudaFp8Tensor *tensor, int count, void *scratch) {
    TensorParts parts = {};
    parts.backwards = true;
    Act act = ACT_NONE;
    int64_t blocks = 0, tiles = 0;
    char *at = (char *)scratch;
    if (count < 1 || count > FP8_TENSORS) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++) {
        const CudaFp8Tensor *t = &tensor[i];
        if (!supported(t->rows, t->cols) || !aligned_16(t->x, t->plain, t->transposed) ||
            !aligned_16(t->pre) || (t->pre && (count > 1 || !t->given)))
            return cudaErrorInvalidValue;
        TensorPart part = part_of(t->x, t->rows, t->cols);
        bool known = t->amax && !t->sums; // otherwise the tensor is read anyway
        if (t->dropout && (i > 0 || !t->given)) return cudaErrorInvalidValue;
        if (t->dropout) {
            parts.dropout = *t->dropout;
            parts.positions = t->positions;
        }
        part.given = t->given;
        part.record = (uint32_t *)t->record;
        part.pre = (const uint16_t *)t->pre;
        part.plain = (uint8_t *)t->plain;
        part.transposed = (uint8_t *)t->transposed;
        part.scale = t->scale;
        part.act = t->act != ACT_NONE;
        part.gradient = t->type == DT_E5M2;
        if (part.act) act = t->act;
        part.first_block = (unsigned)blocks;
        part.first_tile = (unsigned)tiles;
        if (!known && !t->given) blocks += part.slots;
        if (!t->given) parts.backwards = false;
        tiles += ceil_div(t->rows, tile_rows) * part.across;
        part.largest = (uint32_t *)at;
        at += largest_bytes(t->rows, t->cols);
        if (t->sums) {
            part.sums = (float *)at;
            at += (size_t)sum_parts(t) * (size_t)t->cols * sizeof(float);
        }
        if (known) {
            part.largest = (uint32_t *)t->amax; // not modified
            part.slots = CUDA_FP8_AMAX_PARTS;
        }
        parts.part[i] = part;
    }
    if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
    parts.count = count;
    parts.tiles = (unsigned)tiles;
    if (blocks > 0) largest_kernel<<<(unsigned)blocks, threads, 0, stream>>>(parts);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = launch_quantize(stream, parts, act);
    for (int i = 0; i < count && error == cudaSuccess; i++)
        if (tensor[i].sums)
            error = add_partials(stream, Sums{{tensor[i].sums}, parts.part[i].cols}, 1, parts.part[i].sums,
                                 (int)sum_parts(&tensor[i]));
    return error;
}

cudaError_t launch_fp8_transpose(cudaStream_t stream, void *out, const void *in, int64_t rows, int64_t cols) {
    int64_t across = ceil_div(cols, side), tiles = ceil_div(rows, side) * across;
    if (!supported(rows, cols) || !aligned_16(out, in)) return cudaErrorInvalidValue;
    if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
    return launch_chained(stream, transpose_kernel, (unsigned)tiles, threads, 0, (uint8_t *)out,
                          (const uint8_t *)in, rows, cols, (int)across);
}

size_t fp8_stats_scratch(int64_t rows, int64_t cols) {
    return sums_bytes(rows, cols);
}

cudaError_t launch_fp8_stats(cudaStream_t stream, const CudaFp8Stats *stats, void *scratch) {
    TensorPart part = part_of(stats->x, stats->rows, stats->cols);
    unsigned blocks = (unsigned)part.slots;
    if (part.slots > CUDA_FP8_AMAX_PARTS || !supported(part.rows, part.cols) ||
        !aligned_16(stats->x, stats->pre))
        return cudaErrorInvalidValue;
    part.largest = (uint32_t *)stats->amax;
    part.slots = CUDA_FP8_AMAX_PARTS;
    if (stats->sums) part.sums = (float *)scratch;
    cudaError_t error;
    if (stats->pre) {
        error = with_act(stats->act, [&](auto tag) {
            act_backward_largest_kernel<decltype(tag)::act>
                <<<blocks, threads, 0, stream>>>(part, (uint4 *)stats->x, (const uint4 *)stats->pre);
            return cudaGetLastError();
        });
    } else {
        TensorParts parts = {};
        parts.part[0] = part;
        parts.count = 1;
        largest_kernel<<<blocks, threads, 0, stream>>>(parts);
        error = cudaGetLastError();
    }
    if (error != cudaSuccess || !stats->sums) return error;
    return add_partials(stream, Sums{{stats->sums}, part.cols}, 1, part.sums, part.chunks);
}
