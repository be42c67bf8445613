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

#endif
