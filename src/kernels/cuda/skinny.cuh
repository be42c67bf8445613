// What the skinny GEMMs share.
#ifndef WEFT_KERNELS_CUDA_SKINNY_CUH
#define WEFT_KERNELS_CUDA_SKINNY_CUH

#include "kernels/cuda/ptx.cuh"

// Weights are read only once, so they bypass the L1 cache.
__device__ inline uint4 load_once(const void *from) {
    uint4 to;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from));
    return to;
}
__device__ inline uint32_t load_word_once(const void *from) {
    uint32_t to;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(to) : "l"(from));
    return to;
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
