// What ptx.cuh has, for compute capability 7.0 and 7.5. Copies are ordinary ones, which are done when they
// return. 7.5 has the tensor-core instructions for fp16 and int8 in smaller pieces. 7.0 has none that fit
// these layouts, and neither has any for bf16: the dispatch does not choose such kernels there.
#ifndef WEFT_KERNELS_CUDA_PTX_OLD_CUH
#define WEFT_KERNELS_CUDA_PTX_OLD_CUH

template <typename Pack> __device__ inline void copy_now(void *to, const void *from, bool there) {
    *static_cast<Pack *>(to) = there ? *static_cast<const Pack *>(from) : Pack{};
}
__device__ inline void copy_async16(void *to, const void *from) {
    copy_now<uint4>(to, from, true);
}
__device__ inline void copy_async8(void *to, const void *from) {
    copy_now<uint2>(to, from, true);
}
__device__ inline void copy_async16_line(void *to, const void *from) {
    copy_now<uint4>(to, from, true);
}
__device__ inline void copy_async16(void *to, const void *from, bool there) {
    copy_now<uint4>(to, from, there);
}
__device__ inline void copy_async4(void *to, const void *from, bool there) {
    copy_now<uint32_t>(to, from, there);
}
__device__ inline void copy_group() {}
template <int PENDING> __device__ inline void copy_wait() {}

template <typename T>
__device__ inline void multiply_add(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) {
    __trap();
}
#if __CUDA_ARCH__ >= 750
template <>
__device__ inline void multiply_add<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
}
#endif

__device__ inline void multiply_add_int8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
#if __CUDA_ARCH__ >= 750
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(d[i % 2 * 2]), "+r"(d[i % 2 * 2 + 1])
                     : "r"(a[i]), "r"(b[i / 2]));
#else
    // Four bytes at a time: those of a row are in the lanes of its group, those of a column in another's.
    const int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const int left = (int)__shfl_sync(full_warp, a[i], row + t);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int right = (int)__shfl_sync(full_warp, b[i / 2], column + 4 * j + t);
                d[i % 2 * 2 + j] = __dp4a(left, right, d[i % 2 * 2 + j]);
            }
        }
#endif
}

__device__ inline uint32_t warp_largest(uint32_t value) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value = max(value, __shfl_xor_sync(full_warp, value, offset));
    return value;
}
__device__ inline float clamp_30(float x) {
    return x > 30 ? 30 : x < -30 ? -30 : x;
}

#endif
