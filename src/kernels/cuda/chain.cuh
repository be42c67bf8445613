// Chained kernels (programmatic dependent launch). A chained kernel is launched while the previous one still
// runs, which hides launch latency, and then waits for everything before it. On GPUs older than Hopper, and
// with WEFT_CUDA_CHAIN=off, chained kernels simply run one after the other.
//
// A kernel launched by launch_chained must call chain_wait in every thread before it touches any memory that
// kernels write. It waits for the completion of the previous kernel, which has waited likewise, so nothing
// earlier is still running. A kernel launched by launch_recorded may first read memory that nothing in a
// recording (see stream_record_begin) writes; it is chained in recordings only.
#ifndef WEFT_KERNELS_CUDA_CHAIN_CUH
#define WEFT_KERNELS_CUDA_CHAIN_CUH

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.cuh"

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

// Whether the kernel that runs on this device was compiled for `architecture` or later.
inline bool is_compiled_for(const void *kernel, int architecture) {
    cudaFuncAttributes code;
    if (cudaFuncGetAttributes(&code, kernel) != cudaSuccess) return false;
    return code.ptxVersion >= architecture && code.binaryVersion >= architecture;
}

// Whether the kernel was compiled with the wait instruction. All of weft's kernels are compiled alike, so one
// answer per file is enough.
inline bool has_chains(const void *kernel) {
    static const bool has = [kernel] {
        const char *asked = getenv("WEFT_CUDA_CHAIN");
        return !(asked && !strcmp(asked, "off")) && is_compiled_for(kernel, chain_from);
    }();
    return has;
}

inline bool is_recorded(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

// Where a kernel runs.
struct Where {
    cudaStream_t stream;
    Where(cudaStream_t given) : stream(given) {}
    Where(const Stream *given) : stream(cuda_stream(given)) {}
};

// `extra` is another launch attribute; NULL: none.
template <typename... Params, typename... Args>
inline cudaError_t launch_with(bool chain, const cudaLaunchAttribute *extra, Where at,
                               void (*kernel)(Params...), dim3 blocks, dim3 threads, size_t shared,
                               Args... args) {
    cudaLaunchAttribute attribute[2] = {};
    unsigned count = 0;
    if (extra) attribute[count++] = *extra;
    if (chain && has_chains((const void *)kernel)) {
        attribute[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = at.stream;
    config.attrs = attribute;
    config.numAttrs = count;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

// Not chained.
template <typename... Params, typename... Args>
inline cudaError_t launch_kernel(Where at, void (*kernel)(Params...), dim3 blocks, dim3 threads,
                                 size_t shared, Args... args) {
    return launch_with(false, nullptr, at, kernel, blocks, threads, shared, args...);
}
template <typename... Params, typename... Args>
inline cudaError_t launch_chained(Where at, void (*kernel)(Params...), dim3 blocks, dim3 threads,
                                  size_t shared, Args... args) {
    return launch_with(true, nullptr, at, kernel, blocks, threads, shared, args...);
}
template <typename... Params, typename... Args>
inline cudaError_t launch_recorded(Where at, void (*kernel)(Params...), dim3 blocks, dim3 threads,
                                   size_t shared, Args... args) {
    return launch_with(is_recorded(at.stream), nullptr, at, kernel, blocks, threads, shared, args...);
}

#endif
