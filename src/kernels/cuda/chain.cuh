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

// Whether kernels were compiled with the wait instruction.
inline bool has_chains() {
    static const bool off = [] {
        const char *asked = getenv("WEFT_CUDA_CHAIN");
        return asked && !strcmp(asked, "off");
    }();
    return !off && cuda_limits().capability >= chain_from;
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
    if (shared > cuda_limits().shared_memory) return cudaErrorInvalidConfiguration; // as on an older GPU
    if (extra) attribute[count++] = *extra;
    if (chain && has_chains()) {
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
