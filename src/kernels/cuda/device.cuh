// What .cu files share: slots' tensors, loads and stores of every compute type as fp32, warp and block
// reductions, dropout draws, and launches.
#ifndef WEFT_KERNELS_CUDA_DEVICE_CUH
#define WEFT_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdlib.h>
#include <type_traits>

extern "C" {
#include "kernels/cuda/cuda.h"
}

// ---- types ----

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
    return __half2float(x);
}
__device__ inline float to_float(__nv_fp8_e4m3 x) {
    return float(x);
}
__device__ inline float to_float(__nv_fp8_e5m2 x) {
    return float(x);
}
template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) {
    return x;
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ inline __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

// N elements that are loaded and stored with accesses as wide as possible, up to 16 bytes.
template <typename T, int N> struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Pack { T at[N]; };
template <typename T, int N> __device__ inline Pack<T, N> load_pack(const T *from) {
    return *reinterpret_cast<const Pack<T, N> *>(from);
}
template <typename T, int N> __device__ inline void store_pack(T *to, const Pack<T, N> &pack) {
    *reinterpret_cast<Pack<T, N> *>(to) = pack;
}
// N values rounded to T, two at a time if T has 16 bits.
template <typename T, int N> __device__ inline Pack<T, N> pack_of(const float (&x)[N]) {
    Pack<T, N> pack;
    if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            if constexpr (std::is_same_v<T, __half>) {
                __half2 two = __floats2half2_rn(x[i], x[i + 1]);
                pack.at[i] = two.x, pack.at[i + 1] = two.y;
            } else {
                __nv_bfloat162 two = __floats2bfloat162_rn(x[i], x[i + 1]);
                pack.at[i] = two.x, pack.at[i + 1] = two.y;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) pack.at[i] = from_float<T>(x[i]);
    }
    return pack;
}
// Keeps the compiler from caching values computed from a pack, which would take twice the registers or
// more.
template <typename T, int N> __device__ inline void forget(Pack<T, N> &pack) {
    uint32_t *word = reinterpret_cast<uint32_t *>(&pack);
#pragma unroll
    for (int i = 0; i < (int)sizeof pack / 4; i++) asm volatile("" : "+r"(word[i]));
}

// Elements in a 16-byte access.
template <typename T> constexpr int pack_size = 16 / sizeof(T);

// The elements of a tensor; NULL if it is absent.
template <typename T> inline T *data(const Tensor &tensor) {
    return (T *)tensor.data;
}

// Calls body(T{}) with the C++ type of a floating-point DType.
template <typename Body> inline cudaError_t with_type(DType type, Body body) {
    switch (type) {
    case DT_F32: return body(float{});
    case DT_BF16: return body(__nv_bfloat16{});
    case DT_F16: return body(__half{});
    default: return cudaErrorInvalidValue;
    }
}
template <typename T>
constexpr DType dtype_of = std::is_same_v<T, float>    ? DT_F32
                           : std::is_same_v<T, __half> ? DT_F16
                                                       : DT_BF16;
// Calls body(T{}, Int<N>{}) with N elements per access: 16 bytes if rows of `cols` elements are `aligned` and
// consist of such packs, otherwise one element.
template <int I> using Int = std::integral_constant<int, I>;
template <typename Body> inline cudaError_t with_packs(DType type, bool aligned, int64_t cols, Body body) {
    return with_type(type, [&](auto t) {
        constexpr int N = pack_size<decltype(t)>;
        return aligned && cols % N == 0 ? body(t, Int<N>{}) : body(t, Int<1>{});
    });
}

// ---- reductions ----

constexpr unsigned full_warp = 0xffffffffu;

template <typename T> __device__ inline T warp_sum(T value) {
    for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(full_warp, value, lane);
    return value;
}
__device__ inline float warp_max(float value) {
    for (int lane = 16; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(full_warp, value, lane));
    return value;
}
// The sum over a block of THREADS (a multiple of 32, at most 1024), returned to all threads. `buffer` is
// shared memory for 32 T; the caller synchronizes before reusing it.
template <typename T, int THREADS> __device__ inline T block_sum(T value, T *buffer) {
    value = warp_sum(value);
    if (THREADS == 32) return value;
    if (threadIdx.x % 32 == 0) buffer[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < THREADS / 32 ? buffer[threadIdx.x % 32] : T(0);
    return warp_sum(value);
}

// ---- dropout ----

// Draws 8*block .. 8*block+7 of 16 bits, two per word, as rng_u16 of base/rng.h defines them.
__device__ inline uint4 draw_block(RngKey key, uint64_t block) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)key.step, c3 = (uint32_t)(key.step >> 32);
    uint32_t k0 = (uint32_t)key.key, k1 = (uint32_t)(key.key >> 32);
#pragma unroll
    for (int round = 0; round < RNG_ROUNDS_DROPOUT; round++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        uint32_t h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}
// To be called before anything is drawn, possibly before chain_wait: no kernel writes the step.
__device__ inline void dropout_begin(CudaDropout &dropout) {
    if (dropout.threshold && dropout.step) dropout.key.step = (uint64_t)__ldg(dropout.step);
}
// The draw index of element (b, t, 0) of a (B,T,C) tensor, as in backend.h.
__device__ inline uint64_t dropout_row(const CudaDropout &d, int64_t b, int64_t t) {
    if (d.rows) {
        int64_t row = t + d.origin[1], at = row % d.rows, before = row / d.rows;
        int64_t position = d.at.turn && at >= d.at.turn ? d.at.second + at - d.at.turn : d.at.first + at;
        return (uint64_t)(((b + before + d.origin[0]) * d.extent[0] + position) * d.extent[1] + d.origin[2]);
    }
    return (uint64_t)(((b + d.origin[0]) * d.extent[0] + t + d.origin[1]) * d.extent[1] + d.origin[2]);
}

// Masks of attention weights, as rng_kept of base/rng.h and dropout_word of backend.h define them.
__device__ inline uint32_t draw_kept(RngKey key, uint64_t word, uint32_t threshold) {
    uint4 a = draw_block(key, 2 * word), b = draw_block(key, 2 * word + 1);
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint32_t kept = (a.x ^ a.y << 8) >> 24 >= (threshold & 0xff) ? ~0u : 0;
#pragma unroll
    for (int i = 7; i >= 0; i--) kept = threshold >> (15 - i) & 1 ? kept & words[i] : kept | words[i];
    return kept;
}
inline __host__ __device__ int64_t dropout_groups(const CudaDropout &d) {
    return (d.extent[1] + 127) / 128;
}
__device__ inline uint64_t dropout_word(const CudaDropout &d, int64_t b, int64_t h, int64_t q, int k) {
    int64_t head = (b + d.origin[0]) * d.extent[0] + h + d.origin[1];
    return (uint64_t)((head * d.extent[1] + q) * dropout_groups(d) + k / 128) * 4 + k % 8 / 2;
}
__device__ inline int dropout_bit(int k) {
    return k % 2 * 8 + k / 8 % 2 * 16 + 7 - k / 16 % 8;
}

// ---- launches ----

// Too many for a launch make it fail.
inline unsigned blocks_for(int64_t count, int each) {
    int64_t blocks = (count + each - 1) / each;
    return blocks < UINT32_MAX ? (unsigned)blocks : UINT32_MAX;
}

// Multiprocessors of the current device. The order of a reduction must not depend on this.
inline int processors() {
    return cuda_limits().processors;
}

// The most shared memory, in bytes, that a block on the current device can have.
inline int shared_limit() {
    return (int)cuda_limits().shared_memory;
}
// Whether a block can have this much dynamic shared memory; the kernel itself and the system use a little.
inline bool fits_shared(size_t bytes) {
    return bytes + 2048 <= (size_t)shared_limit();
}
// Dynamic shared memory beyond 48 KiB is an opt-in.
template <typename Kernel> cudaError_t allow_shared(Kernel kernel, size_t bytes) {
    if (bytes > (size_t)shared_limit()) return cudaErrorInvalidConfiguration;
    if (bytes <= 48 * 1024) return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}
// Whether the tensor cores of the current device have the layouts of mma that device code uses.
inline bool has_mma(DType type) {
    return cuda_limits().capability >= (type == DT_F16 ? 75 : 80);
}

// Whether all pointers, or the data of all tensors, are 16-byte aligned; NULL is.
template <typename... Pointers> inline bool aligned_16(const Pointers *...pointers) {
    return (((uintptr_t)pointers % 16 == 0) && ...);
}
template <typename... Rest> inline bool aligned_16(const Tensor &first, const Rest &...rest) {
    return aligned_16((const void *)first.data, (const void *)rest.data...);
}

#endif
