// Tensors of bf16 rounded to 8 bits, as products take them: as they lie, turned, or both; see kernels.h for
// the unit that they are divided by.
//
// Two kernels, each over all tensors of a call at once, for the small ones would not fill the device. The
// first finds largest magnitudes, of a block's part of a tensor each, and, where they are asked for, the
// column sums of the same numbers (see linear.cu for those). The second takes the largest of them, which is
// quick, and rounds a tile. So nothing has to be set to zero first, and the order of sums depends on shapes
// alone. All blocks of the first go through a tensor together, from its end: there it meets what the kernel
// before has written last, and leaves in the cache what the second reads first. What the second has read, and
// what it turns, which will be read in another order, may leave the cache before all else.
//
// Who made a tensor may have gone through it already (launch_fp8_find): then only the second is left.
//
// A thread of the second has 8 columns of 4 rows, twice. Bytes that lie below each other become words, which
// go through shared memory: `held` has a row of 32 words for each column, where word w lies at w ^ (column /
// 8 * 2), so that neither the writes of a warp (16 groups of columns, 2 words) nor the reads of a quarter of
// it (32 words, four by four) meet in a bank. Four words then lie together, but for the order of pairs.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int strip = 32 * 8;      // columns of a block of the first kernel
constexpr int wanted_blocks = 512; // of it, for a tensor: enough to fill any device, and all run at once
constexpr int most_blocks = 5;     // of it that a multiprocessor should hold
constexpr int least_rows = 64;     // of such a block
constexpr int side = 128;          // of a tile of the second kernel

struct Part {
    const uint16_t *x; // (rows,cols) bf16
    int64_t rows, cols;
    uint8_t *plain, *turned;
    float *unit;
    uint32_t *largest; // (slots), of which (chunks,strips) are in use and the rest 0: bits of fp32
    float *sums;       // (chunks,cols), or NULL
    int slots, chunks, strips, across;
    unsigned first_block, first_tile;
    bool act, gradient;
};

struct Parts {
    Part part[FP8_TENSORS];
    int count;
};

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// ---- the largest magnitude ----

__device__ inline uint32_t larger(uint32_t most, uint4 pack) {
    constexpr uint32_t magnitude = 0x7fff7fffu;
    most = __vmaxu2(most, __vmaxu2(pack.x & magnitude, pack.y & magnitude));
    return __vmaxu2(most, __vmaxu2(pack.z & magnitude, pack.w & magnitude));
}

__device__ inline void add_pack(float *sum, uint4 pack) {
    const uint32_t word[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[2 * i] += __uint_as_float(word[i] << 16);
        sum[2 * i + 1] += __uint_as_float(word[i] & 0xffff0000u);
    }
}

__device__ inline uint32_t block_largest(uint32_t value, uint32_t *room) {
    value = __reduce_max_sync(full_warp, value);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    uint32_t most = room[0];
    for (int i = 1; i < warps; i++) most = max(most, room[i]);
    return most;
}

// `turns` packs from x on backwards, `step` apart, of which four are on their way at a time.
template <bool SUMS>
__device__ inline void go_through(const uint4 *x, int64_t step, unsigned turns, uint32_t &most,
                                  float (&sum)[8]) {
#pragma unroll 1
    for (unsigned turn = 0; turn < turns; turn += 4, x -= 4 * step) {
        uint4 pack[4];
#pragma unroll
        for (int i = 0; i < 4; i++) pack[i] = turn + i < turns ? x[-i * step] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            most = larger(most, pack[i]);
            if (SUMS) add_pack(sum, pack[i]);
        }
    }
}

// What a block of the first kernel has: chunk c has every row group, of a row for each warp, whose number is
// c modulo the number of chunks. A thread goes through packs, backwards.
struct Place {
    int chunk, strip;
    bool there;
    unsigned turns;
    int64_t last, step; // packs
};

__device__ inline Place place_of(const Part &part, int block) {
    Place place = {block / part.strips, block % part.strips};
    int64_t col = (int64_t)place.strip * strip + threadIdx.x % 32 * 8;
    unsigned groups = (unsigned)(part.rows / warps);
    place.there = col < part.cols;
    place.turns = (groups - 1 - place.chunk) / part.chunks + 1;
    int64_t group = place.chunk + (int64_t)(place.turns - 1) * part.chunks;
    place.last = ((group * warps + threadIdx.x / 32) * part.cols + col) / 8;
    place.step = (int64_t)part.chunks * warps * part.cols / 8;
    return place;
}

// Puts down what a block has found.
__device__ inline void leave(const Part &part, const Place &place, uint32_t most, const float (&sum)[8]) {
    __shared__ float room[warps][strip];
    __shared__ uint32_t maxima[warps];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot = place.chunk * part.strips + place.strip;
    most = block_largest(max(most & 0xffffu, most >> 16), maxima);
    if (threadIdx.x == 0) part.largest[slot] = most << 16;
    if (slot == 0)
        for (int i = part.chunks * part.strips + threadIdx.x; i < part.slots; i += threads)
            part.largest[i] = 0;
    if (!part.sums) return;
#pragma unroll
    for (int i = 0; i < 8; i++) room[warp][i * 32 + lane] = sum[i];
    __syncthreads();
    int64_t to = (int64_t)place.strip * strip + lane * 8 + warp;
    if (to >= part.cols) return;
    float total = 0;
    for (int i = 0; i < warps; i++) total += room[i][threadIdx.x];
    part.sums[place.chunk * part.cols + to] = total;
}

__global__ void __launch_bounds__(threads, most_blocks) largest_kernel(const __grid_constant__ Parts parts) {
    int which = 0;
    while (which + 1 < parts.count && blockIdx.x >= parts.part[which + 1].first_block) which++;
    const Part &part = parts.part[which];
    const Place place = place_of(part, (int)(blockIdx.x - part.first_block));
    const uint4 *x = reinterpret_cast<const uint4 *>(part.x) + place.last;
    uint32_t most = 0;
    float sum[8] = {};
    if (place.there && part.sums)
        go_through<true>(x, place.step, place.turns, most, sum);
    else if (place.there)
        go_through<false>(x, place.step, place.turns, most, sum);
    leave(part, place, most, sum);
}

// Two numbers of bf16 times the slopes at two others, as linear.cu has it.
template <CudaAct ACT> __device__ inline uint32_t times_slopes(uint32_t two, uint32_t at) {
    float low = fmaf(__uint_as_float(two << 16), act_slope<ACT>(__uint_as_float(at << 16)), 0.0f);
    float high =
        fmaf(__uint_as_float(two & 0xffff0000u), act_slope<ACT>(__uint_as_float(at & 0xffff0000u)), 0.0f);
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}

// The same for one tensor, which is dx, after dx *= act'(pre). While two packs are worked on the next two are
// on their way; where only one is left, it comes twice and counts once.
template <CudaAct ACT>
__global__ void __launch_bounds__(threads, 4)
    slope_largest_kernel(const __grid_constant__ Part part, uint4 *dx, const uint4 *pre) {
    const Place place = place_of(part, (int)blockIdx.x);
    uint32_t most = 0;
    float sum[8] = {};
    uint4 pack[2], at[2], next_pack[2], next_at[2];
    auto fetch = [&](unsigned turn) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int64_t from = place.last - (int64_t)min(turn + i, place.turns - 1) * place.step;
            next_pack[i] = dx[from];
            next_at[i] = __ldcs(pre + from);
        }
    };
    if (place.there) fetch(0);
#pragma unroll 1
    for (unsigned turn = 0; place.there && turn < place.turns; turn += 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            pack[i] = next_pack[i];
            at[i] = next_at[i];
        }
        if (turn + 2 < place.turns) fetch(turn + 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (turn + i >= place.turns) continue;
            pack[i].x = times_slopes<ACT>(pack[i].x, at[i].x);
            pack[i].y = times_slopes<ACT>(pack[i].y, at[i].y);
            pack[i].z = times_slopes<ACT>(pack[i].z, at[i].z);
            pack[i].w = times_slopes<ACT>(pack[i].w, at[i].w);
            dx[place.last - (int64_t)(turn + i) * place.step] = pack[i];
            most = larger(most, pack[i]);
            add_pack(sum, pack[i]);
        }
    }
    leave(part, place, most, sum);
}

// ---- rounding ----

// The power of two that numbers are multiplied by, from the largest magnitude's bits as bf16, for a type
// whose largest number is 1.75 * 2^top. Its inverse is the unit; neither is subnormal.
__device__ inline float scale_for(uint32_t largest, int top) {
    if (largest >= 0x7f80u) return __uint_as_float(0x7fffffffu);
    if (largest == 0) return 1;
    int power = top + 127 - (int)(largest >> 7) - ((largest & 0x7fu) > 0x60u);
    return __uint_as_float((uint32_t)(min(power, 126) + 127) << 23);
}

// Four numbers as four bytes, the first the lowest.
template <CudaAct ACT, __nv_fp8_interpretation_t TYPE>
__device__ inline uint32_t round_four(uint32_t low, uint32_t high, float scale) {
    float value[4] = {__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u),
                      __uint_as_float(high << 16), __uint_as_float(high & 0xffff0000u)};
#pragma unroll
    for (int i = 0; i < 4; i++) value[i] = act_value<ACT>(value[i]) * scale;
    uint32_t first = __nv_cvt_float2_to_fp8x2(make_float2(value[0], value[1]), __NV_SATFINITE, TYPE);
    uint32_t second = __nv_cvt_float2_to_fp8x2(make_float2(value[2], value[3]), __NV_SATFINITE, TYPE);
    return first | second << 16;
}

// The 8 columns of each row, in the first half of where they were.
template <CudaAct ACT, __nv_fp8_interpretation_t TYPE>
__device__ inline void round_rows(uint4 (&row)[2][4], float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 in = row[half][i];
            row[half][i].x = round_four<ACT, TYPE>(in.x, in.y, scale);
            row[half][i].y = round_four<ACT, TYPE>(in.z, in.w, scale);
        }
}

// The largest of every number that is a thread's; four are on their way at a time.
__device__ inline uint32_t largest_of(const uint32_t *largest, int count) {
    uint32_t most = 0;
    for (int first = threadIdx.x; first < count; first += 4 * threads) {
        uint32_t value[4];
#pragma unroll
        for (int i = 0; i < 4; i++) value[i] = first + i * threads < count ? largest[first + i * threads] : 0;
        most = max(most, max(max(value[0], value[1]), max(value[2], value[3])));
    }
    return most;
}

// Byte j of row i becomes byte i of word j.
__device__ inline void turn(const uint32_t row[4], uint32_t word[4]) {
    uint32_t low01 = __byte_perm(row[0], row[1], 0x5140), low23 = __byte_perm(row[2], row[3], 0x5140);
    uint32_t high01 = __byte_perm(row[0], row[1], 0x7362), high23 = __byte_perm(row[2], row[3], 0x7362);
    word[0] = __byte_perm(low01, low23, 0x5410);
    word[1] = __byte_perm(low01, low23, 0x7632);
    word[2] = __byte_perm(high01, high23, 0x5410);
    word[3] = __byte_perm(high01, high23, 0x7632);
}

// ACT is that of tensors that have one. Rows come in fours and columns in eights, all of them there or none.
template <CudaAct ACT>
__global__ void __launch_bounds__(threads) round_kernel(const __grid_constant__ Parts parts) {
    __shared__ __align__(16) uint32_t held[side][side / 4];
    __shared__ uint32_t maxima[warps];
    int which = 0;
    while (which + 1 < parts.count && blockIdx.x >= parts.part[which + 1].first_tile) which++;
    const Part &part = parts.part[which];
    unsigned tile = blockIdx.x - part.first_tile;
    int64_t row0 = (int64_t)(tile / part.across) * side, col0 = (int64_t)(tile % part.across) * side;
    int64_t rows = part.rows, cols = part.cols;
    int group = threadIdx.x % 16, line = threadIdx.x / 16;
    int64_t col = col0 + group * 8;
    uint4 in[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t row = row0 + half * (side / 2) + line * 4;
        if (row >= rows || col >= cols) continue;
#pragma unroll
        for (int i = 0; i < 4; i++)
            in[half][i] = __ldcs(reinterpret_cast<const uint4 *>(part.x + (row + i) * cols + col));
    }
    uint32_t most = block_largest(largest_of(part.largest, part.slots), maxima);
    float scale = scale_for(most >> 16, part.gradient ? 15 : 8); // bf16 numbers all
    if (tile == 0 && threadIdx.x == 0) *part.unit = 1 / scale;
    if (part.gradient)
        round_rows<CUDA_ACT_NONE, __NV_E5M2>(in, scale);
    else if (part.act)
        round_rows<ACT, __NV_E4M3>(in, scale);
    else
        round_rows<CUDA_ACT_NONE, __NV_E4M3>(in, scale);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t row = row0 + half * (side / 2) + line * 4;
        if (row >= rows || col >= cols) continue;
        uint32_t low[4], high[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low[i] = in[half][i].x;
            high[i] = in[half][i].y;
            if (part.plain)
                *reinterpret_cast<uint2 *>(part.plain + (row + i) * cols + col) = make_uint2(low[i], high[i]);
        }
        if (!part.turned) continue;
        uint32_t word[8];
        turn(low, word);
        turn(high, word + 4);
        int place = (half * (side / 8) + line) ^ (group * 2);
#pragma unroll
        for (int j = 0; j < 8; j++) held[group * 8 + j][place] = word[j];
    }
    if (!part.turned) return;
    __syncthreads();
    int quad = threadIdx.x % 8; // of the words of a column
    int64_t row = row0 + quad * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int c = i * (threads / 8) + threadIdx.x / 8, key = c / 8 * 2;
        uint4 words = *reinterpret_cast<const uint4 *>(&held[c][quad * 4 ^ (key & ~3)]);
        if (key & 2) words = make_uint4(words.z, words.w, words.x, words.y);
        if (row < rows && col0 + c < cols)
            __stcs(reinterpret_cast<uint4 *>(part.turned + (col0 + c) * rows + row), words);
    }
}

// ---- launches ----

int strips_of(int64_t cols) {
    return (int)ceil_div(cols, strip);
}

int chunks_of(int64_t rows, int64_t cols) {
    int64_t chunks = ceil_div(wanted_blocks, strips_of(cols)), most = ceil_div(rows, least_rows);
    return (int)(chunks < most ? chunks : most);
}

size_t largest_bytes(int64_t rows, int64_t cols) {
    return (size_t)chunks_of(rows, cols) * (size_t)strips_of(cols) * sizeof(uint32_t);
}

size_t sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)chunks_of(rows, cols) * (size_t)cols * sizeof(float);
}

// Without what is found or made of it.
Part part_of(const void *x, int64_t rows, int64_t cols) {
    Part part = {};
    part.x = (const uint16_t *)x;
    part.rows = rows;
    part.cols = cols;
    part.chunks = chunks_of(rows, cols);
    part.strips = strips_of(cols);
    part.slots = part.chunks * part.strips;
    part.across = (int)ceil_div(cols, side);
    return part;
}

bool suits(int64_t rows, int64_t cols) {
    return rows % 16 == 0 && cols % 16 == 0;
}

cudaError_t launch_round(cudaStream_t stream, const Parts &parts, CudaAct act, unsigned tiles) {
    return with_act(act, [&](auto tag) {
        round_kernel<decltype(tag)::act><<<tiles, threads, 0, stream>>>(parts);
        return cudaGetLastError();
    });
}

} // namespace

size_t fp8_round_room(const CudaRounding *tensor, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += largest_bytes(tensor[i].rows, tensor[i].cols);
        if (tensor[i].sums) bytes += sums_bytes(tensor[i].rows, tensor[i].cols);
    }
    return bytes;
}

cudaError_t launch_fp8_round(cudaStream_t stream, const CudaRounding *tensor, int count, void *scratch) {
    Parts parts = {};
    CudaAct act = CUDA_ACT_NONE;
    int64_t blocks = 0, tiles = 0;
    char *at = (char *)scratch;
    if (count < 1 || count > FP8_TENSORS) return cudaErrorInvalidValue;
    for (int i = 0; i < count; i++) {
        const CudaRounding *t = &tensor[i];
        if (!suits(t->rows, t->cols) || !aligned_16(t->x, t->plain, t->turned)) return cudaErrorInvalidValue;
        Part part = part_of(t->x, t->rows, t->cols);
        bool known = t->peaks && !t->sums; // else it is gone through anyway
        part.plain = (uint8_t *)t->plain;
        part.turned = (uint8_t *)t->turned;
        part.unit = t->unit;
        part.act = t->act != CUDA_ACT_NONE;
        part.gradient = t->type == DT_E5M2;
        if (part.act) act = t->act;
        part.first_block = (unsigned)blocks;
        part.first_tile = (unsigned)tiles;
        if (!known) blocks += part.slots;
        tiles += ceil_div(t->rows, side) * part.across;
        part.largest = (uint32_t *)at;
        at += largest_bytes(t->rows, t->cols);
        if (t->sums) {
            part.sums = (float *)at;
            at += sums_bytes(t->rows, t->cols);
        }
        if (known) {
            part.largest = (uint32_t *)t->peaks; // only read
            part.slots = CUDA_FP8_PEAKS;
        }
        parts.part[i] = part;
    }
    if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
    parts.count = count;
    if (blocks > 0) largest_kernel<<<(unsigned)blocks, threads, 0, stream>>>(parts);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = launch_round(stream, parts, act, (unsigned)tiles);
    for (int i = 0; i < count && error == cudaSuccess; i++)
        if (tensor[i].sums)
            error = launch_add_partial(stream, tensor[i].sums, parts.part[i].sums, parts.part[i].chunks,
                                       parts.part[i].cols);
    return error;
}

size_t fp8_find_room(int64_t rows, int64_t cols) {
    return sums_bytes(rows, cols);
}

cudaError_t launch_fp8_find(cudaStream_t stream, const CudaFinding *finding, void *scratch) {
    Part part = part_of(finding->x, finding->rows, finding->cols);
    unsigned blocks = (unsigned)part.slots;
    if (part.slots > CUDA_FP8_PEAKS || !suits(part.rows, part.cols) || !aligned_16(finding->x, finding->pre))
        return cudaErrorInvalidValue;
    part.largest = (uint32_t *)finding->peaks;
    part.slots = CUDA_FP8_PEAKS;
    if (finding->sums) part.sums = (float *)scratch;
    cudaError_t error;
    if (finding->pre) {
        error = with_act(finding->act, [&](auto tag) {
            slope_largest_kernel<decltype(tag)::act>
                <<<blocks, threads, 0, stream>>>(part, (uint4 *)finding->x, (const uint4 *)finding->pre);
            return cudaGetLastError();
        });
    } else {
        Parts parts = {{part}, 1};
        largest_kernel<<<blocks, threads, 0, stream>>>(parts);
        error = cudaGetLastError();
    }
    if (error != cudaSuccess || !finding->sums) return error;
    return launch_add_partial(stream, finding->sums, part.sums, part.chunks, part.cols);
}
