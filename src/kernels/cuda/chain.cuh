// Kernels that follow each other closely. In a recording (see stream_record_begin) a kernel of a chain is
// started while the one ahead of it still runs, which hides what starting costs; it then waits for all that
// came before, except that it may read what nothing in the recording writes. Elsewhere, on GPUs older than
// Hopper, and with WEFT_CUDA_CHAIN=off, a chain is but kernels one after the other.
//
// A kernel that is launched by launch_chained calls chain_wait in every thread before it touches memory.
// Waiting is for the whole of the kernel ahead, which has waited likewise: so nothing earlier runs any more.
#ifndef WEFT_KERNELS_CUDA_CHAIN_CUH
#define WEFT_KERNELS_CUDA_CHAIN_CUH

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

constexpr int chain_from = 90; // the oldest architecture that can

// Lets the next kernel start as soon as all blocks of this one have.
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

// Whether the stream is being recorded, and the kernel's code is one that waits.
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
