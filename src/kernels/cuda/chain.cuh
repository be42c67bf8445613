// Chained kernels (programmatic dependent launch). In a recording (see stream_record_begin), a chained
// kernel is launched while the previous one still runs, which hides launch latency. It then waits for
// everything before it, but may first read memory that nothing in the recording writes. Outside of
// recordings, on GPUs older than Hopper, and with WEFT_CUDA_CHAIN=off, chained kernels simply run one after
// the other.
//
// A kernel launched by launch_chained must call chain_wait in every thread before it touches any other
// memory. It waits for the completion of the previous kernel, which has waited likewise, so nothing earlier
// is still running.
#ifndef WEFT_KERNELS_CUDA_CHAIN_CUH
#define WEFT_KERNELS_CUDA_CHAIN_CUH

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

constexpr int chain_from = 90; // oldest architecture that supports it

// Lets the next kernel start once all blocks of this one have called this.
__device__ inline void chain_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void chain_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the stream is being recorded and the kernel was compiled with the wait instruction.
template <typename... Params> inline bool can_chain(cudaStream_t stream, void (*kernel)(Params...)) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaFuncAttributes code;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return false;
    if (status != cudaStreamCaptureStatusActive) return false;
    const char *asked = getenv("WEFT_CUDA_CHAIN");
    if (asked && !strcmp(asked, "off")) return false;
    if (cudaFuncGetAttributes(&code, (const void *)kernel) != cudaSuccess) return false;
    return code.ptxVersion >= chain_from && code.binaryVersion >= chain_from;
}

template <typename... Params, typename... Args>
inline cudaError_t launch_chained(cudaStream_t stream, void (*kernel)(Params...), unsigned blocks,
                                  unsigned threads, size_t shared, Args... args) {
    cudaLaunchAttribute chained = {};
    chained.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    chained.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &chained;
    config.numAttrs = can_chain(stream, kernel) ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

#endif
