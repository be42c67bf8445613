// Softmax cross-entropy over rows of logits of any compute type; a block takes a row.
//
// The loss over a whole vocabulary keeps its row in registers, see row_kernel. The other kernels are for
// rows that are too long for it or do not allow 16-byte accesses, and for parts of a vocabulary. In these,
// each thread tracks the largest logit so far and the sum of exponentials relative to it, so the statistics
// take one pass. The gradient is a second pass: over a copy of the row in shared memory if both steps are
// one kernel and two such rows fit a multiprocessor, otherwise over the row itself. Every thread reads back
// only what it wrote, so the copy needs no barrier. Padding columns count as -infinity.
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/ptx.cuh"

namespace {

constexpr int threads = 512;
constexpr float lowest = -INFINITY;

// A part of the vocabulary: V columns, those from `real` on being padding.
struct XentPart {
    int64_t start, valid, V, real;
};

struct Stats {
    float largest, total;
};

// The offset of exponents: if all logits are -infinity, any finite value.
__device__ inline float shift_of(float largest) {
    return largest == lowest ? 0.0f : largest;
}

// The largest logit of a row and the sum of exponentials; a NaN shows up in the sum. `buffers` are 2 x 32
// floats, used alternately, see row_sum of row.cuh.
template <typename T, int N, bool KEEP>
__device__ inline Stats row_stats(const T *row, T *keep, const XentPart &part, float (*buffers)[32]) {
    float largest = lowest, total = 0;
#pragma unroll 4
    for (int64_t v = threadIdx.x * N; v < part.V; v += threads * N) {
        Pack<T, N> pack = load_pack<T, N>(row + v);
        if (KEEP) store_pack(keep + v, pack);
        float x[N], top = lowest;
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = v + i < part.real ? to_float(pack.at[i]) : lowest;
            top = fmaxf(top, x[i]);
        }
        if (top > largest) {
            total *= expf(largest - top);
            largest = top;
        }
        float shift = shift_of(largest);
#pragma unroll
        for (int i = 0; i < N; i++) total += expf(x[i] - shift);
    }
    float all = warp_max(largest);
    if (threadIdx.x % 32 == 0) buffers[0][threadIdx.x / 32] = all;
    __syncthreads();
    all = warp_max(threadIdx.x % 32 < threads / 32 ? buffers[0][threadIdx.x % 32] : lowest);
    total = block_sum<float, threads>(total * expf(largest - shift_of(all)), buffers[1]);
    return {all, total};
}

struct Label {
    int64_t at;   // local column, or -1
    bool counted; // not ignored
};
__device__ inline Label label_of(int32_t label, const XentPart &part) {
    int64_t at = label - part.start;
    return {at >= 0 && at < part.real ? at : -1, label >= 0 && label < part.valid};
}

// row = (softmax - onehot) * scale, from the logits in `from`; 0 for an ignored label.
template <typename T, int N>
__device__ inline void row_gradient(T *row, const T *from, Stats stats, Label label, const XentPart &part,
                                    float scale) {
    float factor = scale / stats.total;
#pragma unroll 4
    for (int64_t v = threadIdx.x * N; v < part.V; v += threads * N) {
        Pack<T, N> pack;
        if (label.counted) pack = load_pack<T, N>(from + v);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float grad = 0;
            if (label.counted && v + i < part.real) {
                float e = expf(to_float(pack.at[i]) - stats.largest);
                if (v + i == label.at) e -= stats.total; // e / total - 1 would cancel
                grad = e * factor;
            }
            pack.at[i] = from_float<T>(grad);
        }
        store_pack(row + v, pack);
    }
}

__device__ inline float loss_of(Stats stats, float label) {
    return logf(stats.total) + (stats.largest - label);
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    partial_kernel(float *stats, const T *logits, const int32_t *labels, int64_t M, XentPart part) {
    __shared__ float buffers[2][32];
    for (int64_t m = blockIdx.x; m < M; m += gridDim.x) {
        const T *row = logits + m * part.V;
        Stats found = row_stats<T, N, false>(row, nullptr, part, buffers);
        if (threadIdx.x != 0) continue;
        Label label = label_of(labels[m], part);
        stats[m * 3] = found.largest;
        stats[m * 3 + 1] = found.total;
        stats[m * 3 + 2] = label.at < 0 ? 0.0f : to_float(row[label.at]);
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(threads)
    finish_kernel(float *losses, T *logits, const float *stats, const int32_t *labels, int64_t M,
                  XentPart part, float scale, bool gradient) {
    for (int64_t m = blockIdx.x; m < M; m += gridDim.x) {
        T *row = logits + m * part.V;
        Stats known = {stats[m * 3], stats[m * 3 + 1]};
        Label label = label_of(labels[m], part);
        if (threadIdx.x == 0) losses[m] = label.counted ? loss_of(known, stats[m * 3 + 2]) : 0.0f;
        if (gradient) row_gradient<T, N>(row, row, known, label, part, scale);
    }
}

template <typename T, int N, bool KEEP>
__global__ void __launch_bounds__(threads)
    loss_kernel(float *losses, float *stats, T *logits, const int32_t *labels, int64_t M, XentPart part,
                float scale, bool gradient) {
    extern __shared__ uint4 shared[];
    __shared__ float buffers[2][32];
    T *keep = (T *)shared;
    for (int64_t m = blockIdx.x; m < M; m += gridDim.x) {
        T *row = logits + m * part.V;
        Label label = label_of(labels[m], part);
        // Read before the barriers of the statistics, after which it is overwritten by the gradient.
        float own = threadIdx.x == 0 && label.at >= 0 ? to_float(row[label.at]) : 0.0f;
        Stats found = row_stats<T, N, KEEP>(row, keep, part, buffers);
        if (threadIdx.x == 0) {
            stats[m * 3] = found.largest;
            stats[m * 3 + 1] = found.total;
            stats[m * 3 + 2] = own;
            losses[m] = label.counted ? loss_of(found, own) : 0.0f;
        }
        if (gradient) row_gradient<T, N>(row, KEEP ? keep : row, found, label, part, scale);
    }
}

// Not unrolled, because nvcc 13.0 miscompiles the unrolled loop (wrong load addresses).
__global__ void combine_kernel(float *stats, const float *parts, int64_t ranks, int64_t M) {
    int64_t m = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (m >= M) return;
    float largest = lowest, total = 0, label = 0;
#pragma unroll 1
    for (int64_t r = 0; r < ranks; r++) largest = fmaxf(largest, parts[(r * M + m) * 3]);
#pragma unroll 1
    for (int64_t r = 0; r < ranks; r++) {
        const float *own = parts + (r * M + m) * 3;
        float rank_largest = own[0], rank_total = own[1], own_label = own[2];
        if (rank_total != 0) total += rank_total * expf(rank_largest - largest);
        label += own_label;
    }
    stats[m * 3] = largest;
    stats[m * 3 + 1] = total;
    stats[m * 3 + 2] = label;
}

__global__ void hits_kernel(float *hits, const float *stats, const int32_t *labels, int64_t M,
                            int64_t valid) {
    int64_t m = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (m >= M) return;
    int32_t label = labels[m];
    hits[m] = label >= 0 && label < valid && stats[m * 3 + 2] >= stats[m * 3] ? 1.0f : 0.0f;
}

// ---- rows in registers ----

constexpr int row_threads = 1024, max_packs = 8;
constexpr float log2e = 1.44269504f;

// The larger of two values; like fmaxf, ignores NaN.
__device__ inline float larger(float a, float b) {
    return fmaxf(a, b);
}
__device__ inline __nv_bfloat162 larger(__nv_bfloat162 a, __nv_bfloat162 b) {
    return __hmax2(a, b);
}
__device__ inline __half2 larger(__half2 a, __half2 b) {
    return __hmax2(a, b);
}
template <typename T> struct PairOf;
template <> struct PairOf<__nv_bfloat16> { using Type = __nv_bfloat162; };
template <> struct PairOf<__half> { using Type = __half2; };

template <typename T, int N> __device__ inline float pack_max(const Pack<T, N> &pack) {
    if constexpr (sizeof(T) == 4) {
        float top = pack.at[0];
#pragma unroll
        for (int i = 1; i < N; i++) top = larger(top, pack.at[i]);
        return top;
    } else {
        using Two = typename PairOf<T>::Type;
        Two top = {pack.at[0], pack.at[1]};
#pragma unroll
        for (int i = 2; i < N; i += 2) top = larger(top, Two{pack.at[i], pack.at[i + 1]});
        return fmaxf(to_float(top.x), to_float(top.y));
    }
}

// The offset of base-2 exponents; rounded here, so that all elements of a row use the same value.
__device__ inline float scaled(float largest) {
    return __fmul_rn(shift_of(largest), log2e);
}

// Combines the statistics of a warp; a thread without logits has maximum -infinity and does not contribute.
__device__ inline Stats joined(Stats own) {
    float largest = warp_max(own.largest);
    return {largest, warp_sum(own.total * power_of_2(__fmul_rn(own.largest, log2e) - scaled(largest)))};
}

// Sets the elements of the pack at column c that are at or past column `real` to `value`.
template <typename T, int N> __device__ inline void pad(Pack<T, N> &pack, int c, int real, float value) {
    if (c + N <= real) return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (c + i >= real) pack.at[i] = from_float<T>(value);
}

__device__ inline void store_fp8(uint8_t *to, const float (&value)[8]) {
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        two[i] =
            __nv_cvt_float2_to_fp8x2(make_float2(value[2 * i], value[2 * i + 1]), __NV_SATFINITE, __NV_E5M2);
    *reinterpret_cast<uint2 *>(to) = make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

// A block of 1024 threads takes rows of up to P packs per thread. A thread reads its packs once and writes
// their gradient. With AHEAD, the block's next row is meanwhile copied to shared memory, so that memory stays
// busy while the block computes; a thread reads only what it copied itself. Otherwise a thread loads the
// packs of the next row as soon as it has written those of this one. Exponentials are powers of two of logits
// times log2e. One barrier per row: a warp is never two rows ahead of another, and the buffers alternate.
// With FP8, the gradient is quantized and goes to `plain`. The exponentials are then kept in place of the
// logits, in 16 bits, which is precise enough for fp8, instead of being computed twice.
template <typename T, int P, bool AHEAD, bool FP8>
__global__ void __launch_bounds__(row_threads, 1)
    row_kernel(float *losses, float *stats, T *logits, const int32_t *labels, int64_t M, XentPart part,
               float scale, bool gradient, uint8_t *plain, const float *fp8_scale) {
    constexpr int N = pack_size<T>;
    extern __shared__ uint4 shared[];
    __shared__ Stats buffers[2][32];
    const int V = (int)part.V, real = (int)part.real, first = (int)threadIdx.x * N;
    Pack<T, N> x[P], *ahead = reinterpret_cast<Pack<T, N> *>(shared) + threadIdx.x;
    int32_t own_label = labels[blockIdx.x];
    const float inverse_scale = FP8 ? 1 / *fp8_scale : 1;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int c = first + p * row_threads * N;
        if (c < V) x[p] = load_pack<T, N>(logits + blockIdx.x * part.V + c);
    }
    int turn = 0;
    for (int64_t m = blockIdx.x; m < M; m += gridDim.x, turn ^= 1) {
        const int64_t next = m + gridDim.x;
        if (AHEAD && next < M) {
#pragma unroll
            for (int p = 0; p < P; p++) {
                int c = first + p * row_threads * N;
                if (c >= V) continue;
                forget(x[p]); // it has been read from where it is replaced now
                copy_async16(ahead + p * row_threads, logits + next * part.V + c);
            }
        }
        Stats own = {lowest, 0};
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = first + p * row_threads * N;
            if (c >= V) continue;
            pad(x[p], c, real, lowest);
            forget(x[p]);
            own.largest = fmaxf(own.largest, pack_max(x[p]));
        }

        // The thread that has the label's logit writes the results of the row; the first thread if none has
        // it.
        const Label label = label_of(own_label, part);
        const int label_element = (int)label.at % N;
        const bool writes = (int)threadIdx.x == (label.at < 0 ? 0 : (int)label.at / N % row_threads);
        const int label_pack = writes && label.at >= 0 ? (int)label.at / N / row_threads : -1;
        float logit = 0, label_grad = 0;
        if (writes) {
#pragma unroll
            for (int p = 0; p < P; p++) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (p == label_pack && i == label_element) logit = to_float(x[p].at[i]);
            }
        }

        const float own_shift = scaled(own.largest);
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (first + p * row_threads * N >= V) continue;
            float e[N];
            forget(x[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                e[i] = power_of_2(fmaf(to_float(x[p].at[i]), log2e, -own_shift));
                own.total += e[i];
            }
            if (FP8) x[p] = pack_of<T>(e);
        }
        own = joined(own);
        if (threadIdx.x % 32 == 0) buffers[turn][threadIdx.x / 32] = own;
        __syncthreads();
        const Stats found = joined(buffers[turn][threadIdx.x % 32]);
        const float factor = scale * inverse_scale / found.total, shift = scaled(found.largest);
        const float own_factor = FP8 ? factor * power_of_2(own_shift - shift) : factor;
        if (writes) {
            // e / total - 1 would cancel
            label_grad = (power_of_2(fmaf(logit, log2e, -shift)) - found.total) * factor;
            stats[m * 3] = found.largest;
            stats[m * 3 + 1] = found.total;
            stats[m * 3 + 2] = logit;
            losses[m] = label.counted ? loss_of(found, logit) : 0.0f;
        }

        if (next < M) own_label = labels[next];
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = first + p * row_threads * N;
            if (c >= V) continue;
            if (gradient) {
                float e[N];
                forget(x[p]);
#pragma unroll
                for (int i = 0; i < N; i++)
                    e[i] =
                        (FP8 ? to_float(x[p].at[i]) : power_of_2(fmaf(to_float(x[p].at[i]), log2e, -shift))) *
                        own_factor;
                if (p == label_pack) {
#pragma unroll
                    for (int i = 0; i < N; i++)
                        if (i == label_element) e[i] = label_grad;
                }
                const int counted = label.counted ? real : 0;
                if (c + N > counted) {
#pragma unroll
                    for (int i = 0; i < N; i++)
                        if (c + i >= counted) e[i] = 0.0f;
                }
                if constexpr (FP8)
                    store_fp8(plain + m * part.V + c, e);
                else
                    store_pack(logits + m * part.V + c, pack_of<T>(e));
            }
            if (!AHEAD && next < M) x[p] = load_pack<T, N>(logits + next * part.V + c);
        }
        if (!AHEAD || next >= M) continue;
        copy_group();
        copy_wait<0>();
#pragma unroll
        for (int p = 0; p < P; p++)
            if (first + p * row_threads * N < V) x[p] = ahead[p * row_threads];
    }
}

unsigned row_blocks(int64_t M) {
    return M < 1 << 30 ? (unsigned)M : 1u << 30;
}

XentPart part_of(VocabPart part, Tensor logits) {
    const int64_t V = tensor_cols(logits);
    return {part.start, part.valid, V, vocab_columns(part, V)};
}

// What all kernels for losses of whole rows take.
struct Call {
    Tensor losses, stats, logits, labels;
    XentPart part;
    float scale;
    bool gradient;
};

// Launches the row kernel if it supports the call; otherwise *ret_done is false.
template <bool FP8, typename T>
cudaError_t start_rows(Stream *stream, const Call &call, Fp8Gradient fp8, bool *ret_done) {
    const CudaDevice *device = cuda_device(stream);
    const int64_t M = tensor_rows(call.logits), V = call.part.V;
    const int64_t packs = (V / pack_size<T> + row_threads - 1) / row_threads;
    *ret_done = V % pack_size<T> == 0 && aligned_16(call.logits, fp8.plain) && packs <= max_packs;
    if (!*ret_done) return cudaSuccess;
    const unsigned blocks = (unsigned)(M < device->processors ? M : device->processors);
    auto start = [&](auto count) {
        constexpr int P = decltype(count)::value;
        size_t row = (size_t)P * row_threads * sizeof(uint4);
        const bool fits = fits_shared(row);
        auto kernel = fits ? row_kernel<T, P, true, FP8> : row_kernel<T, P, false, FP8>;
        if (!fits) row = 0;
        // If this fails, so does the launch.
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)row);
        return launch_kernel(stream, kernel, blocks, row_threads, row, data<float>(call.losses),
                             data<float>(call.stats), data<T>(call.logits), data<int32_t>(call.labels), M,
                             call.part, call.scale, call.gradient, data<uint8_t>(fp8.plain),
                             data<float>(fp8.scale.scale));
    };
    if (packs <= 1) return start(Int<1>{});
    if (packs <= 2) return start(Int<2>{});
    if (packs <= 4) return start(Int<4>{});
    if (packs <= 7) return start(Int<7>{});
    return start(Int<max_packs>{});
}

cudaError_t start_any(Stream *stream, const Call &call) {
    const int64_t M = tensor_rows(call.logits), V = call.part.V;
    return with_packs(call.logits.dtype, aligned_16(call.logits), V, [&](auto t, auto n) {
        using T = decltype(t);
        const size_t other = 2048; // used by the kernel itself and the system
        size_t row = (size_t)V * sizeof(T);
        const bool keep = call.gradient && 2 * (row + other) <= cuda_device(stream)->shared_memory;
        auto kernel = keep ? loss_kernel<T, n.value, true> : loss_kernel<T, n.value, false>;
        cudaError_t error = cudaSuccess;
        if (!keep) row = 0;
        if (keep) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)row);
        if (keep && error == cudaSuccess)
            error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);
        if (error != cudaSuccess) return error;
        return launch_kernel(stream, kernel, row_blocks(M), threads, row, data<float>(call.losses),
                             data<float>(call.stats), data<T>(call.logits), data<int32_t>(call.labels), M,
                             call.part, call.scale, call.gradient);
    });
}

} // namespace

Status xent_partial_cuda(Stream *stream, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    const int64_t M = tensor_rows(logits);
    LAUNCH(with_packs(logits.dtype, aligned_16(logits), tensor_cols(logits), [&](auto t, auto n) {
        using T = decltype(t);
        return launch_kernel(stream, partial_kernel<T, n.value>, row_blocks(M), threads, 0,
                             data<float>(stats), data<T>(logits), data<int32_t>(labels), M,
                             part_of(part, logits));
    }));
    return OK;
}

Status xent_combine_cuda(Stream *stream, Tensor stats, Tensor parts) {
    const int64_t M = tensor_rows(stats);
    LAUNCH(launch_kernel(stream, combine_kernel, blocks_for(M, threads), threads, 0, data<float>(stats),
                         data<float>(parts), parts.dim[0], M));
    return OK;
}

Status xent_finish_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                        VocabPart part, float scale, bool gradient) {
    const int64_t M = tensor_rows(logits);
    LAUNCH(with_packs(logits.dtype, aligned_16(logits), tensor_cols(logits), [&](auto t, auto n) {
        using T = decltype(t);
        return launch_kernel(stream, finish_kernel<T, n.value>, row_blocks(M), threads, 0,
                             data<float>(losses), data<T>(logits), data<float>(stats), data<int32_t>(labels),
                             M, part_of(part, logits), scale, gradient);
    }));
    return OK;
}

Status xent_loss_cuda(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                      VocabPart part, float scale, bool gradient) {
    const Call call = {losses, stats, logits, labels, part_of(part, logits), scale, gradient};
    bool done = false;
    LAUNCH(with_type(logits.dtype, [&](auto t) {
        return start_rows<false, decltype(t)>(stream, call, Fp8Gradient{}, &done);
    }));
    if (!done) LAUNCH(start_any(stream, call));
    return OK;
}

// The gradient is quantized. In two steps if rows are too long for one.
Status xent_loss_fp8_cuda(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                          VocabPart part, float scale, Fp8Gradient gradient) {
    const Call call = {losses, stats, logits, labels, part_of(part, logits), scale, true};
    bool done = false;
    LAUNCH((start_rows<true, __nv_bfloat16>(stream, call, gradient, &done)));
    if (done) return OK;
    TRY(xent_loss_cuda(stream, losses, stats, logits, labels, part, scale, true));
    const CudaFp8Tensor tensor = {.x = logits.data,
                                  .rows = tensor_rows(logits),
                                  .cols = tensor_cols(logits),
                                  .type = DT_E5M2,
                                  .plain = gradient.plain.data,
                                  .given = data<float>(gradient.scale.scale)};
    LAUNCH(launch_fp8_quantize(cuda_stream(stream), &tensor, 1, NULL));
    return OK;
}

Status xent_hits_cuda(Stream *stream, Tensor hits, Tensor stats, Tensor labels, int64_t valid) {
    const int64_t M = tensor_rows(stats);
    LAUNCH(launch_kernel(stream, hits_kernel, blocks_for(M, threads), threads, 0, data<float>(hits),
                         data<float>(stats), data<int32_t>(labels), M, valid));
    return OK;
}
