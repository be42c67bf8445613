// Layer norm and RMS norm with results in fp8 (delayed scaling), as stored and transposed: what the next GEMM
// and the weight gradient read, without a pass in between that reads the norm's output and quantizes it.
//
// Rows are summed in the same order as in layernorm.cu and rmsnorm.cu, so that a recomputed norm has the same
// bits. A warp keeps its row in registers, and the next one is being loaded meanwhile. A block collects the
// quantized bytes of its rows in shared memory and finally stores them transposed. There, the words of 16
// consecutive rows are xored with the same key, so that threads that read the same words of different groups
// of 16 rows have no bank conflicts. Blocks start with the last rows, which are most likely still cached.
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row.cuh"

namespace {

using bf16 = __nv_bfloat16;

constexpr int threads = 256, warps = threads / 32;
constexpr int group_rows = 16;              // a thread stores a column of this many rows with one access
constexpr int max_rows = 64, min_rows = 32; // rows of a block: a power of two in this range
constexpr int row_align = 128;              // bytes of a row in shared memory: a multiple of this

// Rows and C are as norm_fp8_supports says, and pointers 16-byte aligned.
struct NormFp8 {
    uint8_t *plain, *transposed; // (rows,C) and (C,rows) e4m3
    bf16 *y;                     // (rows,C), the norm before quantization; may be NULL
    float *mean, *rstd;          // mean: not used by RMS norms
    const bf16 *gamma, *beta;    // beta: NULL in an RMS norm
    int64_t rows, C;
    float eps;
    const float *given; // the scale
    float *scale;       // receives it
    float *record;      // becomes at least the amax of y; may be NULL
};

constexpr int N = pack_size<bf16>;

template <typename Source> constexpr int inputs = sizeof(typename Source::template Raw<N>) / 16;
__device__ inline const bf16 *input_of(const PlainRows<bf16> &source, int) {
    return source.x;
}
__device__ inline const bf16 *input_of(const DroppedRows<bf16> &source, int i) {
    return i == 0 ? source.res : source.y;
}

// The next row of a warp, on its way to registers.
template <int P, typename Source> struct NextInRegisters {
    using Raw = typename Source::template Raw<N>;
    Raw raw[P];
    __device__ explicit NextInRegisters(void *) {}
    __device__ void fetch(const Source &source, int64_t r, int C) {
        auto row = source.row(r, C);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * 32 + threadIdx.x % 32) * N;
            if (c >= C) continue;
            raw[p] = row.template read<N>(c);
            keep_words(raw[p]);
        }
    }
    __device__ void wait() {}
    __device__ Raw take(int p) const {
        return raw[p];
    }
};

// The same on its way to shared memory. A lane copies and reads only its own packs, 32 apart.
template <int P, typename Source> struct NextInShared {
    using Raw = typename Source::template Raw<N>;
    Pack<bf16, N> *packs;
    __device__ explicit NextInShared(void *shared)
        : packs((Pack<bf16, N> *)shared + threadIdx.x / 32 * inputs<Source> * P * 32 + threadIdx.x % 32) {}
    __device__ void fetch(const Source &source, int64_t r, int C) {
#pragma unroll
        for (int i = 0; i < inputs<Source> * P; i++) {
            int c = (i % P * 32 + threadIdx.x % 32) * N;
            if (c < C) copy_async16(packs + i * 32, input_of(source, i / P) + r * C + c);
        }
        copy_group();
    }
    __device__ void wait() {
        copy_wait<0>();
    }
    __device__ Raw take(int p) const {
        Raw raw;
        Pack<bf16, N> *to = reinterpret_cast<Pack<bf16, N> *>(&raw);
#pragma unroll
        for (int i = 0; i < inputs<Source>; i++) to[i] = packs[(i * P + p) * 32];
        return raw;
    }
};

// Where the next row goes: measured. Shared memory leaves registers for more blocks, or holds fewer.
template <int P, typename Source>
constexpr bool next_in_shared = inputs<Source> == 2 ? P == 3 || P == 4 : P == 4 || P == 5;
template <int P, typename Source>
using Next =
    std::conditional_t<next_in_shared<P, Source>, NextInShared<P, Source>, NextInRegisters<P, Source>>;
template <int P, typename Source>
constexpr int next_bytes = next_in_shared<P, Source> ? warps *inputs<Source> *P * 32 * 16 : 0;

// Blocks per multiprocessor: as many as shared memory holds for max_rows rows, or registers for rows with two
// inputs.
template <int P, typename Source> constexpr int resident_blocks() {
    if (next_in_shared<P, Source>) return 2;
    if (inputs<Source> == 2) return P <= 2 ? 3 : P <= 5 ? 2 : 1;
    return P <= 3 ? 4 : P <= 4 ? 3 : 2;
}

struct RowsInBlock {
    int count, groups, key; // rows, groups of 16, and the key of group 1
};

// Stores the rows of a block, which are in shared memory, transposed.
__device__ inline void store_transposed(const NormFp8 &out, const uint32_t *tile, int stride,
                                        RowsInBlock in_block, int64_t row0) {
    const int group = threadIdx.x % in_block.groups, words = (int)out.C / 4;
    const int64_t row = row0 + group * group_rows;
    if (row >= out.rows) return;
    uint8_t *to = out.transposed + row;
    for (int w = threadIdx.x / in_block.groups; w < words; w += threads / in_block.groups) {
        const uint32_t *from = tile + group * group_rows * stride + (w ^ (group * in_block.key));
        uint32_t column[4][4]; // [rows / 4][column]
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t four[4];
#pragma unroll
            for (int k = 0; k < 4; k++) four[k] = from[(i * 4 + k) * stride];
            transpose_bytes(four, column[i]);
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
            __stcs(reinterpret_cast<uint4 *>(to + (int64_t)(w * 4 + c) * out.rows),
                   make_uint4(column[0][c], column[1][c], column[2][c], column[3][c]));
    }
}

template <bool RMS, int P, typename Source>
__global__ void __launch_bounds__(threads, resident_blocks<P, Source>())
    norm_fp8_kernel(const __grid_constant__ NormFp8 out, Source source, RowsInBlock in_block) {
    extern __shared__ __align__(16) uint32_t tile[];
    const int C = (int)out.C, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int stride = (C + row_align - 1) / row_align * (row_align / 4); // words
    const int64_t row0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * in_block.count;
    const int64_t end = row0 + in_block.count < out.rows ? row0 + in_block.count : out.rows;
    Next<P, Source> next(tile + in_block.count * stride);
    Pack<bf16, N> kept[P];
    uint32_t amax = 0;
    int64_t r = row0 + warp;
    source.begin();
    chain_next();
    chain_wait();
    const float inverse_scale = 1 / *out.given;
    if (blockIdx.x == 0 && threadIdx.x == 0) *out.scale = 1 / inverse_scale;
    if (r < end) next.fetch(source, r, C);
    for (; r < end; r += warps) {
        auto row = source.row(r, C);
        float total = 0, squares = 0, mean = 0;
        next.wait();
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * 32 + lane) * N;
            if (c >= C) continue;
            kept[p] = row.template settle<N>(c, next.take(p));
            forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float x = to_float(kept[p].at[i]);
                if (RMS)
                    squares += x * x;
                else
                    total += x;
            }
        }
        if (r + warps < end) next.fetch(source, r + warps, C);
        if (!RMS) {
            mean = warp_sum(total) / (float)C;
#pragma unroll
            for (int p = 0; p < P; p++) {
                if ((p * 32 + lane) * N >= C) continue;
                forget(kept[p]);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    float off = to_float(kept[p].at[i]) - mean;
                    squares += off * off;
                }
            }
        }
        const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)C + out.eps);
        const int at = (int)(r - row0);
        uint32_t *line = tile + at * stride;
        const int key = at / group_rows * in_block.key;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * 32 + lane) * N;
            if (c >= C) continue;
            Pack<bf16, N> gamma = load_pack<bf16, N>(out.gamma + c), beta;
            if (!RMS) beta = load_pack<bf16, N>(out.beta + c);
            float y[N];
            forget(kept[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float x = to_float(kept[p].at[i]);
                y[i] = RMS ? x * rstd * to_float(gamma.at[i])
                           : (x - mean) * rstd * to_float(gamma.at[i]) + to_float(beta.at[i]);
            }
            Pack<bf16, N> rounded = pack_of<bf16>(y);
            uint4 bits = *reinterpret_cast<uint4 *>(&rounded);
            if (out.y) store_pack(out.y + r * C + c, rounded);
            amax = larger(amax, bits);
            uint2 eight = make_uint2(quantize_four<ACT_NONE, __NV_E4M3>(bits.x, bits.y, inverse_scale),
                                     quantize_four<ACT_NONE, __NV_E4M3>(bits.z, bits.w, inverse_scale));
            *reinterpret_cast<uint2 *>(out.plain + r * C + c) = eight;
            *reinterpret_cast<uint2 *>(line + (c / 4 ^ key)) = eight;
        }
        if (lane == 0) {
            if (!RMS) out.mean[r] = mean;
            out.rstd[r] = rstd;
        }
    }
    amax = warp_largest(max(amax & 0xffffu, amax >> 16));
    if (lane == 0 && out.record) record_amax((uint32_t *)out.record, amax);
    __syncthreads();
    store_transposed(out, tile, stride, in_block, row0);
}

// How many rows a block takes: the number with the shortest sequence of full and partial waves.
int rows_per_block(int64_t rows, int resident) {
    int64_t slots = (int64_t)processors() * resident, best_time = INT64_MAX;
    int best = max_rows;
    for (int each = max_rows; each >= min_rows; each /= 2) {
        int64_t blocks = (rows + each - 1) / each;
        // Blocks of a partial wave that do not share a multiprocessor take less time.
        int64_t time = blocks / slots * resident * each;
        int64_t left = blocks % slots;
        time += (left + processors() - 1) / processors() * each;
        if (time < best_time) best_time = time, best = each;
    }
    return best;
}

template <bool RMS, int P, typename Source>
cudaError_t start(Stream *stream, const NormFp8 &out, const Source &source) {
    auto kernel = norm_fp8_kernel<RMS, P, Source>;
    constexpr int resident = resident_blocks<P, Source>();
    const int rows = rows_per_block(out.rows, resident);
    const size_t line = (size_t)(out.C + row_align - 1) / row_align * row_align,
                 shared = rows * line + next_bytes<P, Source>;
    RowsInBlock in_block = {rows, rows / group_rows, 32 / (rows / group_rows)};
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
    return launch_chained(stream, kernel, blocks_for(out.rows, rows), threads, shared, out, source, in_block);
}

template <bool RMS, typename Source>
cudaError_t start_for(Stream *stream, const NormFp8 &out, const Source &source) {
    const int64_t packs = out.C / pack_size<bf16>;
    if (packs <= 2 * 32) return start<RMS, 2>(stream, out, source);
    if (packs <= 3 * 32) return start<RMS, 3>(stream, out, source);
    if (packs <= 4 * 32) return start<RMS, 4>(stream, out, source);
    if constexpr (!RMS) {
        if (packs <= 5 * 32) return start<RMS, 5>(stream, out, source);
        if (packs <= 7 * 32) return start<RMS, 7>(stream, out, source);
    }
    return cudaErrorInvalidValue;
}

template <typename Source> cudaError_t start_any(Stream *stream, const NormFp8 &out, const Source &source) {
    return out.beta ? start_for<false>(stream, out, source) : start_for<true>(stream, out, source);
}

} // namespace

Status norm_fp8_forward_cuda(Stream *stream, Tensor sum, Tensor normed, Fp8Input quantized, Tensor mean,
                             Tensor rstd, Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                             Dropout dropout, Fp8Scale scale) {
    const NormFp8 out = {.plain = data<uint8_t>(quantized.plain),
                         .transposed = data<uint8_t>(quantized.transposed),
                         .y = data<bf16>(normed),
                         .mean = data<float>(mean),
                         .rstd = data<float>(rstd),
                         .gamma = data<bf16>(gamma),
                         .beta = data<bf16>(beta),
                         .rows = tensor_rows(res),
                         .C = tensor_cols(res),
                         .eps = eps,
                         .given = data<float>(scale.scale),
                         .scale = data<float>(quantized.scale),
                         .record = data<float>(scale.amax)};
    if (out.rows % 16 != 0 || out.C % 16 != 0 ||
        !aligned_16(quantized.plain, quantized.transposed, normed, sum, res, y, gamma, beta))
        LAUNCH(cudaErrorInvalidValue);
    if (y.data)
        LAUNCH(start_any(stream, out, dropped_rows<bf16>(sum, res, y, dropout)));
    else
        LAUNCH(start_any(stream, out, PlainRows<bf16>{data<bf16>(res)}));
    return OK;
}
