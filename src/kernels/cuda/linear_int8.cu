// Linear layers with weights of 8 and of 4 bits: rounding of rows, products of few rows, and what comes after
// a sum of integers. Sums are exact, and what is done to them has one order of roundings, so that a row gives
// the same bits by whatever way and in whatever company it is multiplied.
//
// A warp has one output, whose weights its lanes read in turn, 16 bytes at a time: of 8 bits 16 inputs, which
// lie as the row has them; of 4 bits a cut of 32, whose first half are the low halves of the bytes. Sums of
// 4-bit weights are of u = w + 8, from 0 to 15, and 8 times the sum of the inputs is taken off.
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/device.cuh"

namespace {

constexpr int round_threads = 256, dot_warps = 8, most_rows = CUDA_INT8_FEW;
constexpr int cut_inputs = 32, panel_cols = 16, cut_bytes = panel_cols * (cut_inputs / 2 + 1);

// ---- rounding ----

template <typename T>
__global__ void __launch_bounds__(round_threads)
    round_kernel(int8_t *to, float *unit, const T *x, const float *factor, float held, int K, int depth) {
    __shared__ float found[round_threads / 32];
    const T *row = x + (int64_t)blockIdx.x * K;
    to += (int64_t)blockIdx.x * depth;
    float largest = 0;
    for (int k = threadIdx.x; k < K; k += round_threads) {
        float size = fabsf(factor ? __fmul_rn(to_float(row[k]), factor[k]) : to_float(row[k]));
        largest = size <= 3.402823466e38f ? fmaxf(largest, size) : INFINITY; // a NaN, too
        if (isinf(largest)) break;
    }
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int i = 0; i < round_threads / 32; i++) largest = fmaxf(largest, found[i]);
    if (held > 0 && !isinf(largest)) largest = held;
    float finer = largest > 0 ? __fdiv_rn(127.0f, largest) : 0.0f;
    if (isinf(finer)) finer = 0;
    for (int k = threadIdx.x; k < depth; k += round_threads) {
        float value = 0;
        if (k < K && !isinf(largest)) {
            value = factor ? __fmul_rn(to_float(row[k]), factor[k]) : to_float(row[k]);
            value = fminf(fmaxf(value, -largest), largest); // larger ones are there only where it is held
            value = rintf(__fmul_rn(value, finer));
        }
        to[k] = (int8_t)(int)value;
    }
    if (threadIdx.x == 0) unit[blockIdx.x] = isinf(largest) ? NAN : __fdiv_rn(largest, 127.0f);
}

// ---- what comes after the sum ----

// T: of x and the bias; U: of y and pre.
template <typename T, typename U>
__device__ inline void finish(const CudaInt8 &call, int64_t row, int64_t col, int sum) {
    float value = __fmul_rn(__fmul_rn((float)sum, call.unit[row]), call.scale[col]);
    if (call.bias) value = __fadd_rn(value, to_float(((const T *)call.bias)[col]));
    int64_t at = row * call.N + col;
    if (call.act != CUDA_ACT_NONE) {
        if (call.pre) ((U *)call.pre)[at] = from_float<U>(value);
        value = act_of(call.act, value);
    }
    ((U *)call.y)[at] = from_float<U>(value);
}

template <typename T, typename U> __global__ void finish_kernel(CudaInt8 call, CudaInt8Part part) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x, count = part.rows * part.cols;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += stride) {
        int sum = part.low ? 8 * part.sums[i] + part.low[i] : part.sums[i];
        finish<T, U>(call, part.first + i / part.cols, part.from + i % part.cols, sum);
    }
}

// ---- weights of 4 bits as two parts of 8 ----

// A weight times its step, from -1016 to 1016, is 8 * high + low with low from 0 to 7.
__device__ inline void split_weight(int step, int half, int8_t *high, int8_t *low) {
    int value = step * ((half ^ 8) - 8);
    *high = (int8_t)(value >> 3);
    *low = (int8_t)(value & 7);
}

// A thread has a cut of one output: 16 bytes of weights, whose low halves come first.
__global__ void parts_kernel(CudaInt8 call, int64_t from, int64_t cols, int8_t *high, int8_t *low) {
    const int64_t cuts = call.depth / cut_inputs, i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= cols * cuts) return;
    const int64_t n = from + i / cuts, c = i % cuts;
    const int own = (int)(n % panel_cols);
    const int8_t *cut = call.panels + (n / panel_cols * cuts + c) * cut_bytes;
    union {
        uint4 vector;
        uint8_t byte[16];
    } both;
    union {
        uint4 vector[2];
        int8_t byte[cut_inputs];
    } upper, lower;
    both.vector = *(const uint4 *)(cut + own * 16);
    const int step = cut[panel_cols * 16 + own];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        split_weight(step, both.byte[k] & 15, &upper.byte[k], &lower.byte[k]);
        split_weight(step, both.byte[k] >> 4, &upper.byte[16 + k], &lower.byte[16 + k]);
    }
    uint4 *to_high = (uint4 *)(high + i * cut_inputs), *to_low = (uint4 *)(low + i * cut_inputs);
    for (int k = 0; k < 2; k++) {
        to_high[k] = upper.vector[k];
        to_low[k] = lower.vector[k];
    }
}

// ---- few rows ----

__device__ inline int dot16(uint4 a, uint4 b, int sum) {
    sum = __dp4a((int)a.x, (int)b.x, sum);
    sum = __dp4a((int)a.y, (int)b.y, sum);
    sum = __dp4a((int)a.z, (int)b.z, sum);
    return __dp4a((int)a.w, (int)b.w, sum);
}

__device__ inline uint4 halves(uint4 w, int shift) {
    return make_uint4(
        ((w.x >> shift) & 0x0f0f0f0fu) ^ 0x08080808u, ((w.y >> shift) & 0x0f0f0f0fu) ^ 0x08080808u,
        ((w.z >> shift) & 0x0f0f0f0fu) ^ 0x08080808u, ((w.w >> shift) & 0x0f0f0f0fu) ^ 0x08080808u);
}

template <typename T, typename U, int ROWS, int BITS>
__global__ void __launch_bounds__(dot_warps * 32) dot_kernel(CudaInt8 call, int64_t first) {
    const int64_t n = blockIdx.x * (int64_t)dot_warps + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, rows = (int)(call.M - first < ROWS ? call.M - first : ROWS);
    if (n >= call.N) return; // the whole warp
    const int8_t *x = call.rounded + first * call.depth;
    int sum[ROWS] = {};
    if (BITS == 8) {
        const int8_t *w = call.panels + n * call.depth;
        for (int k = lane * 16; k < call.depth; k += 32 * 16) {
            uint4 weights = *(const uint4 *)(w + k);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (r < rows)
                    sum[r] = dot16(weights, *(const uint4 *)(x + r * (int64_t)call.depth + k), sum[r]);
        }
    } else {
        const uint4 ones = make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u);
        const int cuts = call.depth / cut_inputs, own = (int)(n % panel_cols);
        const int8_t *panel = call.panels + n / panel_cols * ((int64_t)cuts * cut_bytes);
        for (int c = lane; c < cuts; c += 32) {
            const int8_t *cut = panel + (int64_t)c * cut_bytes;
            uint4 both = *(const uint4 *)(cut + own * 16);
            uint4 low = halves(both, 0), high = halves(both, 4);
            int step = cut[panel_cols * 16 + own];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= rows) continue;
                const int8_t *in = x + r * (int64_t)call.depth + c * cut_inputs;
                uint4 a = *(const uint4 *)in, b = *(const uint4 *)(in + 16);
                int total = dot16(high, b, dot16(low, a, 0)), inputs = dot16(ones, b, dot16(ones, a, 0));
                sum[r] += step * (total - 8 * inputs);
            }
        }
    }
    int mine = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int total = warp_sum(sum[r]);
        if (lane == r) mine = total;
    }
    if (lane < rows) finish<T, U>(call, first + lane, n, mine);
}

template <typename T, typename U, int BITS>
cudaError_t launch_dot(cudaStream_t stream, const CudaInt8 &call, int64_t first) {
    int64_t rows = call.M - first < most_rows ? call.M - first : most_rows;
    unsigned blocks = blocks_for(call.N, dot_warps);
    if (rows == 1)
        dot_kernel<T, U, 1, BITS><<<blocks, dot_warps * 32, 0, stream>>>(call, first);
    else if (rows <= 4)
        dot_kernel<T, U, 4, BITS><<<blocks, dot_warps * 32, 0, stream>>>(call, first);
    else
        dot_kernel<T, U, most_rows, BITS><<<blocks, dot_warps * 32, 0, stream>>>(call, first);
    return cudaGetLastError();
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
            const int8_t *cut =
                words.panels + (token / panel_cols * (words.depth / cut_inputs) + c / cut_inputs) * cut_bytes;
            int own = (int)(token % panel_cols), at = (int)(c % cut_inputs);
            int half = ((uint8_t)cut[own * 16 + at % 16] >> (at < 16 ? 0 : 4)) & 15;
            value = cut[panel_cols * 16 + own] * ((half ^ 8) - 8);
        }
        float total = has_word ? __fmul_rn(words.scale[token], (float)value) : 0.0f;
        if (wpe) total = __fadd_rn(total, to_float(wpe[c]));
        if (wtype) total = __fadd_rn(total, to_float(wtype[c]));
        x[r * C + c] = from_float<T>(total);
    }
}

} // namespace

cudaError_t launch_int8_round(cudaStream_t stream, const CudaInt8 *call) {
    if (call->M > INT32_MAX) return cudaErrorInvalidValue;
    return with_type(call->type, [&](auto t) {
        using T = decltype(t);
        round_kernel<T><<<(unsigned)call->M, round_threads, 0, stream>>>(
            call->rounded, call->unit, (const T *)call->x, call->factor, call->held, (int)call->K,
            (int)call->depth);
        return cudaGetLastError();
    });
}

cudaError_t launch_int8_few(cudaStream_t stream, const CudaInt8 *call, int64_t first) {
    return with_types(call, [&](auto t, auto u) {
        using T = decltype(t);
        using U = decltype(u);
        return call->bits == 8 ? launch_dot<T, U, 8>(stream, *call, first)
                               : launch_dot<T, U, 4>(stream, *call, first);
    });
}

cudaError_t launch_int4_parts(cudaStream_t stream, const CudaInt8 *call, int64_t from, int64_t cols,
                              int8_t *high, int8_t *low) {
    int64_t blocks = (cols * (call->depth / cut_inputs) + 255) / 256;
    if (blocks > INT32_MAX) return cudaErrorInvalidValue;
    parts_kernel<<<(unsigned)blocks, 256, 0, stream>>>(*call, from, cols, high, low);
    return cudaGetLastError();
}

cudaError_t launch_int8_finish(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Part *part) {
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
        embedding_kernel<T>
            <<<(unsigned)rows, 128, 0, stream>>>((T *)x, tokens, types, past, tables, *words, positions);
        return cudaGetLastError();
    });
}
