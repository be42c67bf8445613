// PTX instructions without a C++ equivalent: asynchronous copies to shared memory, ldmatrix, mma, and ex2.
#ifndef WEFT_KERNELS_CUDA_PTX_CUH
#define WEFT_KERNELS_CUDA_PTX_CUH

#include "kernels/cuda/device.cuh"

// The number of a thread's warp in its block. The compiler knows that this is the same for all lanes, as it
// does not for threadIdx.x / 32; in a branch or loop that depends on the latter, each shuffle takes a dozen
// instructions more.
__device__ inline int warp_number() {
    return __shfl_sync(full_warp, (int)threadIdx.x / 32, 0);
}

__device__ inline uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// Loads four 8 x 8 matrices; lanes 8m .. 8m + 7 pass the addresses of the rows of matrix m.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
__device__ inline void load_matrices(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
#else // the dispatch chooses no kernel with them
__device__ inline void load_matrices(uint32_t (&)[4], const void *) {
    __trap();
}
__device__ inline void load_matrices_transposed(uint32_t (&)[4], const void *) {
    __trap();
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#include "kernels/cuda/ptx_old.cuh"
#else
__device__ inline void copy_async16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ inline void copy_async8(void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// 16 bytes; makes the L2 cache read all 128 bytes of the line.
__device__ inline void copy_async16_line(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
}
// Copies 16 (or 4) bytes, or zero-fills if `there` is false.
__device__ inline void copy_async16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_async4(void *to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 4 : 0)
                 : "memory");
}
// Commits a group of copies; copy_wait waits until at most the PENDING latest groups are in flight.
__device__ inline void copy_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

template <typename T>
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                   uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The largest value of a warp's lanes.
__device__ inline uint32_t warp_largest(uint32_t value) {
    return __reduce_max_sync(full_warp, value);
}
// x limited to [-30, 30]; NaN stays NaN. Comparisons would take twice as many instructions.
__device__ inline float clamp_30(float x) {
    float result;
    asm("min.NaN.f32 %0, %1, 0f41F00000;\n\tmax.NaN.f32 %0, %0, 0fC1F00000;" : "=f"(result) : "f"(x));
    return result;
}
// Integer mma of 16 rows x 8 columns x 32 inner elements. Lane 4g + t holds, of rows g and g + 8 and of
// column g, the bytes 4t to 4t + 3 and 4t + 16 to 4t + 19.
__device__ inline void multiply_add_int8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// Two values rounded to T, the first in the low half.
template <typename T> __device__ inline uint32_t round_pair(float low, float high);
template <> __device__ inline uint32_t round_pair<__nv_bfloat16>(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
template <> __device__ inline uint32_t round_pair<__half>(float low, float high) {
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

template <typename T> __device__ inline float2 pair_values(uint32_t pair);
template <> __device__ inline float2 pair_values<__nv_bfloat16>(uint32_t pair) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&pair));
}
template <> __device__ inline float2 pair_values<__half>(uint32_t pair) {
    return __half22float2(*reinterpret_cast<__half2 *>(&pair));
}

// 2^x, accurate to about 2 ulp; 0 for -infinity.
__device__ inline float power_of_2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif
