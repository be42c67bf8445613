// Barriers between some of a block's warps: mbarriers in shared memory and named barriers.
#ifndef WEFT_KERNELS_CUDA_BARRIER_CUH
#define WEFT_KERNELS_CUDA_BARRIER_CUH

#include "kernels/cuda/ptx.cuh"

// try_wait, which lets a thread sleep, requires Hopper.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WEFT_BARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define WEFT_BARRIER_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#endif

__device__ inline void barrier_init(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}
__device__ inline void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// One arrival per warp, after all its lanes.
__device__ inline void barrier_arrive_warp(uint64_t *barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
// Waits until the phase of this parity has ended.
__device__ inline void barrier_wait(uint64_t *barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred done;\n" WEFT_BARRIER_WAIT " done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}

// Named barrier `id` of `threads` threads.
__device__ inline void sync_threads(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Arrives at it without waiting.
__device__ inline void arrive_threads(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif
