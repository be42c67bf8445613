// What the attention kernels share: which keys a query sees, and where the rows of a head lie.
//
// Blocks are numbered head by head, so that those that read the same keys run at about the same time.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

// Of one sequence: its queries stand at positions offset .. offset + queries - 1 of its `keys` keys.
struct Span {
    int offset, queries, keys;
};

// Numbers found in tensors are brought into range, so that wrong ones cannot reach outside.
__device__ inline Span span_of(const CudaAttention &call, int b) {
    if (call.past) {
        int offset = min(max(call.past[b], 0), call.keys);
        int fresh = min(max(call.fresh[b], 0), min(call.queries, call.keys - offset));
        return {offset, fresh, offset + fresh};
    }
    return {0, call.queries, call.lens ? min(max(call.lens[b], 0), call.keys) : call.keys};
}

// How many keys, from the first, a query sees.
__device__ inline int keys_seen(const CudaAttention &call, const Span &span, int query) {
    return call.causal ? min(span.keys, span.offset + query + 1) : span.keys;
}

template <typename T> __device__ inline T *head_rows(const CudaHeads &heads, int b, int h) {
    return (T *)heads.data + b * heads.batch + h * heads.head;
}

// Which tile of which head a block works on; of the tiles of a head, first or last ones come first.
struct Place {
    int b, h, tile;
};
__device__ inline Place place_of(const CudaAttention &call, int tiles, bool last_first) {
    int head = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    return {head / call.H, head % call.H, last_first ? tiles - 1 - tile : tile};
}

// More shared memory than a kernel gets unasked must be asked for.
template <typename Kernel> cudaError_t allow_shared(Kernel kernel, size_t bytes) {
    if (bytes <= 48 * 1024) return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

constexpr float infinity = __builtin_huge_valf();

#endif
