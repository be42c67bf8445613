// Linear layers with int8 and int4 weights: quantization of rows, the skinny GEMM, and the epilogue.
// Integer sums are exact and the epilogue rounds in a fixed order, so a row has the same bits whichever
// kernel computes it, alone or in a batch.
//
// A warp computes one output. Its lanes read the weights in turn, 16 bytes at a time: for int8, 16 inputs
// in the order of the row; for int4, a slice of 32 inputs, the first half of which are the low nibbles.
// int4 sums use u = w + 8, from 0 to 15, and then subtract 8 times the sum of the inputs.
//
// In a chain (chain.cuh), the first weights are loaded before the rows are quantized.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/grouped.cuh"

namespace {

constexpr int quantize_threads = 256, dot_warps = 8, max_rows = CUDA_INT8_SKINNY_ROWS;
constexpr int slice_inputs = 32, panel_cols = 16, slice_bytes = panel_cols * (slice_inputs / 2 + 1);

// ---- quantization ----

// Quantizes row blockIdx.x of x.
template <typename T>
__device__ inline void quantize_row(int8_t *to, float *row_scale, const T *x, const float *factor,
                                    float static_amax, int K, int depth) {
    __shared__ float warp_amax[quantize_threads / 32];
    const T *row = x + (int64_t)blockIdx.x * K;
    to += (int64_t)blockIdx.x * depth;
    float amax = 0;
    for (int k = threadIdx.x; k < K; k += quantize_threads) {
        float magnitude = fabsf(factor ? __fmul_rn(to_float(row[k]), factor[k]) : to_float(row[k]));
        amax = magnitude <= 3.402823466e38f ? fmaxf(amax, magnitude) : INFINITY; // also for NaN
        if (isinf(amax)) break;
    }
    amax = warp_max(amax);
    if (threadIdx.x % 32 == 0) warp_amax[threadIdx.x / 32] = amax;
    __syncthreads();
    for (int i = 0; i < quantize_threads / 32; i++) amax = fmaxf(amax, warp_amax[i]);
    if (static_amax > 0 && !isinf(amax)) amax = static_amax;
    float inverse = amax > 0 ? __fdiv_rn(127.0f, amax) : 0.0f;
    if (isinf(inverse)) inverse = 0;
    for (int k = threadIdx.x; k < depth; k += quantize_threads) {
        float value = 0;
        if (k < K && !isinf(amax)) {
            value = factor ? __fmul_rn(to_float(row[k]), factor[k]) : to_float(row[k]);
            value = fminf(fmaxf(value, -amax), amax); // only has an effect with a static amax
            value = rintf(__fmul_rn(value, inverse));
        }
        to[k] = (int8_t)(int)value;
    }
    if (threadIdx.x == 0) row_scale[blockIdx.x] = isinf(amax) ? NAN : __fdiv_rn(amax, 127.0f);
}

template <typename T>
__global__ void __launch_bounds__(quantize_threads)
    quantize_kernel(int8_t *to, float *row_scale, const T *x, const float *factor, float static_amax, int K,
                    int depth) {
    chain_next();
    chain_wait();
    quantize_row(to, row_scale, x, factor, static_amax, K, depth);
}

// ---- epilogue ----

// T: type of x and the bias; U: type of y and pre.
template <typename T, typename U>
__device__ inline void finish(const CudaInt8 &call, int64_t row, int64_t col, int sum) {
    float value = __fmul_rn(__fmul_rn((float)sum, call.row_scale[row]), call.scale[col]);
    if (call.bias) value = __fadd_rn(value, to_float(((const T *)call.bias)[col]));
    int64_t at = row * call.N + col;
    if (call.act != ACT_NONE) {
        if (call.pre) ((U *)call.pre)[at] = from_float<U>(value);
        value = act_of(call.act, value);
    }
    ((U *)call.y)[at] = from_float<U>(value);
}

template <typename T, typename U> __global__ void finish_kernel(CudaInt8 call, CudaInt8Block part) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x, count = part.rows * part.cols;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += stride) {
        int sum = part.low ? 8 * part.sums[i] + part.low[i] : part.sums[i];
        finish<T, U>(call, part.first + i / part.cols, part.from + i % part.cols, sum);
    }
}

// ---- int4 weights as two int8 parts ----

// A weight times its step, from -1016 to 1016, is 8 * high + low with low from 0 to 7.
__device__ inline void split_weight(int step, int nibble, int8_t *high, int8_t *low) {
    int value = step * ((nibble ^ 8) - 8);
    *high = (int8_t)(value >> 3);
    *low = (int8_t)(value & 7);
}

// A thread processes the slice of one output: 16 bytes of weights, low nibbles first.
__global__ void parts_kernel(CudaInt8 call, int64_t from, int64_t cols, int8_t *high, int8_t *low) {
    const int64_t slices = call.depth / slice_inputs, i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= cols * slices) return;
    const int64_t n = from + i / slices, c = i % slices;
    const int lane_col = (int)(n % panel_cols);
    const int8_t *slice = call.panels + (n / panel_cols * slices + c) * slice_bytes;
    union {
        uint4 vector;
        uint8_t byte[16];
    } both;
    union {
        uint4 vector[2];
        int8_t byte[slice_inputs];
    } upper, lower;
    both.vector = *(const uint4 *)(slice + lane_col * 16);
    const int step = slice[panel_cols * 16 + lane_col];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        split_weight(step, both.byte[k] & 15, &upper.byte[k], &lower.byte[k]);
        split_weight(step, both.byte[k] >> 4, &upper.byte[16 + k], &lower.byte[16 + k]);
    }
    uint4 *to_high = (uint4 *)(high + i * slice_inputs), *to_low = (uint4 *)(low + i * slice_inputs);
    for (int k = 0; k < 2; k++) {
        to_high[k] = upper.vector[k];
        to_low[k] = lower.vector[k];
    }
}

// ---- skinny GEMM ----

__device__ inline int dot16(uint4 a, uint4 b, int sum) {
    sum = __dp4a((int)a.x, (int)b.x, sum);
    sum = __dp4a((int)a.y, (int)b.y, sum);
    sum = __dp4a((int)a.z, (int)b.z, sum);
    return __dp4a((int)a.w, (int)b.w, sum);
}

__device__ inline uint4 nibbles(uint4 w, int shift) {
    return make_uint4(
        ((w.x >> shift) & 0x0f0f0f0fu) ^ 0x08080808u, ((w.y >> shift) & 0x0f0f0f0fu) ^ 0x08080808u,
        ((w.z >> shift) & 0x0f0f0f0fu) ^ 0x08080808u, ((w.w >> shift) & 0x0f0f0f0fu) ^ 0x08080808u);
}

// Rows first .. first + ROWS - 1 of call.M. Calls begin() before it reads the rows.
template <typename T, typename U, int ROWS, int BITS, typename Begin>
__device__ inline void dot_rows(const CudaInt8 &call, int64_t first, Begin begin) {
    const int64_t n = blockIdx.x * (int64_t)dot_warps + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, rows = (int)(call.M - first < ROWS ? call.M - first : ROWS);
    const int slices = call.depth / slice_inputs, lane_col = (int)(n % panel_cols);
    // The weights of an output: a row, or its part of a panel's slices.
    const int8_t *w = BITS == 8 ? call.panels + n * call.depth
                                : call.panels + n / panel_cols * ((int64_t)slices * slice_bytes);
    const int64_t offset = BITS == 8 ? 0 : lane_col * 16, each = BITS == 8 ? 16 : slice_bytes;
    const int count = BITS == 8 ? (int)(call.depth / 16) : slices; // accesses per output
    uint4 next = make_uint4(0, 0, 0, 0);
    if (n < call.N && lane < count) next = *(const uint4 *)(w + lane * each + offset);
    begin();
    if (n >= call.N) return; // the whole warp
    const int8_t *x = call.quantized + first * call.depth;
    int sum[ROWS] = {};
    for (int c = lane; c < count; c += 32) {
        const uint4 weights = next;
        if (c + 32 < count) next = *(const uint4 *)(w + (c + 32) * each + offset);
        if (BITS == 8) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (r < rows)
                    sum[r] = dot16(weights, *(const uint4 *)(x + r * (int64_t)call.depth + c * 16), sum[r]);
        } else {
            const uint4 ones = make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u);
            const uint4 low = nibbles(weights, 0), high = nibbles(weights, 4);
            const int step = w[c * each + panel_cols * 16 + lane_col];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= rows) continue;
                const int8_t *in = x + r * (int64_t)call.depth + c * slice_inputs;
                uint4 a = *(const uint4 *)in, b = *(const uint4 *)(in + 16);
                int total = dot16(high, b, dot16(low, a, 0)), inputs = dot16(ones, b, dot16(ones, a, 0));
                sum[r] += step * (total - 8 * inputs);
            }
        }
    }
    int lane_sum = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int total = warp_sum(sum[r]);
        if (lane == r) lane_sum = total;
    }
    if (lane < rows) finish<T, U>(call, first + lane, n, lane_sum);
}

template <typename T, typename U, int ROWS, int BITS>
__global__ void __launch_bounds__(dot_warps * 32) dot_kernel(CudaInt8 call, int64_t first) {
    chain_next();
    dot_rows<T, U, ROWS, BITS>(call, first, [] { chain_wait(); });
}

// ---- experts ----

__device__ inline const float *moved(const float *from, int64_t bytes) {
    return (const float *)((const char *)from + bytes);
}
// The call with the weights of expert e.
__device__ inline CudaInt8 expert_call(CudaInt8 call, const CudaInt8Experts &experts, int e) {
    const int64_t bytes = e * experts.stride;
    call.panels += bytes;
    call.scale = moved(call.scale, bytes);
    if (call.factor) call.factor = moved(call.factor, bytes);
    return call;
}

template <typename T>
__global__ void __launch_bounds__(quantize_threads)
    quantize_experts_kernel(CudaInt8 call, CudaInt8Experts experts) {
    const int row = (int)blockIdx.x;
    chain_next();
    chain_wait();
    int low = 0, high = (int)experts.E; // offsets[low] <= row < offsets[high]
    if (row < experts.offsets[low] || row >= experts.offsets[high]) return;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (experts.offsets[middle] <= row ? low : high) = middle;
    }
    const CudaInt8 own = expert_call(call, experts, low);
    quantize_row(own.quantized, own.row_scale, (const T *)own.x, own.factor,
                 *moved(experts.amax, low * experts.stride), (int)own.K, (int)own.depth);
}

// Blocks x are outputs, and y are tiles of rows.
template <typename T, int ROWS, int BITS>
__global__ void __launch_bounds__(dot_warps * 32) dot_experts_kernel(CudaInt8 call, CudaInt8Experts experts) {
    chain_next();
    chain_wait();
    const RowTile tile = find_row_tile(experts.offsets, (int)experts.E, ROWS, (int)blockIdx.y);
    if (!tile.rows) return;
    CudaInt8 own = expert_call(call, experts, tile.expert);
    own.M = tile.first + tile.rows;
    dot_rows<T, T, ROWS, BITS>(own, tile.first, [] {});
}

template <typename T, int ROWS>
cudaError_t launch_dot_experts(cudaStream_t stream, const CudaInt8 &call, const CudaInt8Experts &experts) {
    const CudaGrouped rows = {.rows = call.M, .E = experts.E};
    auto kernel = call.bits == 8 ? dot_experts_kernel<T, ROWS, 8> : dot_experts_kernel<T, ROWS, 4>;
    dim3 blocks(blocks_for(call.N, dot_warps), (unsigned)most_row_tiles(rows, ROWS));
    return launch_chained(stream, kernel, blocks, dot_warps * 32, 0, call, experts);
}

// ---- launches ----

template <typename T, typename U, int BITS>
cudaError_t launch_dot(cudaStream_t stream, const CudaInt8 &call, int64_t first) {
    int64_t rows = call.M - first < max_rows ? call.M - first : max_rows;
    unsigned blocks = blocks_for(call.N, dot_warps);
    constexpr int threads = dot_warps * 32;
    if (rows == 1) return launch_recorded(stream, dot_kernel<T, U, 1, BITS>, blocks, threads, 0, call, first);
    if (rows <= 4) return launch_recorded(stream, dot_kernel<T, U, 4, BITS>, blocks, threads, 0, call, first);
    return launch_recorded(stream, dot_kernel<T, U, max_rows, BITS>, blocks, threads, 0, call, first);
}

// Calls body(T{}, U{}) with the types of x and of y, which is T or fp32.
template <typename Body> cudaError_t with_types(const CudaInt8 *call, Body body) {
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        if (call->out == call->type) return body(T{}, T{});
        return call->out == DT_F32 ? body(T{}, float{}) : cudaErrorInvalidValue;
    });
}

// ---- embeddings ----

template <typename T>
__global__ void embedding_kernel(T *x, const int32_t *tokens, const int32_t *types, const int32_t *past,
                                 EmbeddingTables tables, CudaInt8 words, int64_t positions) {
    chain_next();
    chain_wait();
    int64_t r = blockIdx.x, C = words.K;
    int64_t token = tokens[r] - tables.start, type = types ? types[r] : 0;
    int64_t position = r % positions + (past ? past[r / positions] : 0);
    const bool has_word = token >= 0 && token < tables.tokens;
    const T *wpe =
        position >= 0 && position < tables.positions ? (const T *)tables.wpe + position * C : nullptr;
    const T *wtype = type >= 0 && type < tables.types ? (const T *)tables.wtype + type * C : nullptr;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
        int value = 0;
        if (has_word && words.bits == 8) value = words.panels[token * words.depth + c];
        if (has_word && words.bits == 4) {
            const int8_t *slice =
                words.panels +
                (token / panel_cols * (words.depth / slice_inputs) + c / slice_inputs) * slice_bytes;
            int lane_col = (int)(token % panel_cols), at = (int)(c % slice_inputs);
            int nibble = ((uint8_t)slice[lane_col * 16 + at % 16] >> (at < 16 ? 0 : 4)) & 15;
            value = slice[panel_cols * 16 + lane_col] * ((nibble ^ 8) - 8);
        }
        float total = has_word ? __fmul_rn(words.scale[token], (float)value) : 0.0f;
        if (wpe) total = __fadd_rn(total, to_float(wpe[c]));
        if (wtype) total = __fadd_rn(total, to_float(wtype[c]));
        x[r * C + c] = from_float<T>(total);
    }
}

} // namespace

cudaError_t launch_int8_quantize(cudaStream_t stream, const CudaInt8 *call) {
    if (call->M > INT32_MAX) return cudaErrorInvalidValue;
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        return launch_chained(stream, quantize_kernel<T>, (unsigned)call->M, quantize_threads, 0,
                              call->quantized, call->row_scale, (const T *)call->x, call->factor,
                              call->static_amax, (int)call->K, (int)call->depth);
    });
}

cudaError_t launch_int8_skinny(cudaStream_t stream, const CudaInt8 *call, int64_t first) {
    return with_types(call, [&](auto t, auto u) {
        using T = decltype(t);
        using U = decltype(u);
        return call->bits == 8 ? launch_dot<T, U, 8>(stream, *call, first)
                               : launch_dot<T, U, 4>(stream, *call, first);
    });
}

// Of few rows, each expert has a few.
cudaError_t launch_int8_experts(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Experts *experts) {
    constexpr int few = 64;
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        cudaError_t error = launch_chained(stream, quantize_experts_kernel<T>, (unsigned)call->M,
                                           quantize_threads, 0, *call, *experts);
        if (error != cudaSuccess) return error;
        return call->M <= few ? launch_dot_experts<T, 4>(stream, *call, *experts)
                              : launch_dot_experts<T, max_rows>(stream, *call, *experts);
    });
}

cudaError_t launch_int4_parts(cudaStream_t stream, const CudaInt8 *call, int64_t from, int64_t cols,
                              int8_t *high, int8_t *low) {
    int64_t blocks = (cols * (call->depth / slice_inputs) + 255) / 256;
    if (blocks > INT32_MAX) return cudaErrorInvalidValue;
    parts_kernel<<<(unsigned)blocks, 256, 0, stream>>>(*call, from, cols, high, low);
    return cudaGetLastError();
}

cudaError_t launch_int8_finish(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Block *part) {
    return with_types(call, [&](auto t, auto u) {
        using T = decltype(t);
        using U = decltype(u);
        int64_t blocks = (part->rows * part->cols + 255) / 256, enough = (int64_t)processors() * 16;
        finish_kernel<T, U><<<(unsigned)(blocks < enough ? blocks : enough), 256, 0, stream>>>(*call, *part);
        return cudaGetLastError();
    });
}

cudaError_t launch_embedding_int8(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                  const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                  const CudaInt8 *words, int64_t rows, int64_t positions) {
    if (rows > INT32_MAX) return cudaErrorInvalidValue;
    return with_type(type, [&](auto t) {
        using T = decltype(t);
        return launch_chained(stream, embedding_kernel<T>, (unsigned)rows, 128, 0, (T *)x, tokens, types,
                              past, tables, *words, positions);
    });
}
