// Shared by the attention kernels: which keys a query attends to, and where the rows of a head are. Kernels
// that own keys take the query heads that share them one after the other, so that sums have a fixed order.
//
// Blocks are numbered head by head, so that blocks that read the same keys run at about the same time.
#ifndef WEFT_KERNELS_CUDA_ATTENTION_CUH
#define WEFT_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

// The position of a row.
__host__ __device__ inline int place_in(const CudaPlaces &at, int row) {
    return row < at.turn ? at.first + row : at.second + row - at.turn;
}
// How many of `rows` rows are at positions before this one.
__device__ inline int rows_before(const CudaPlaces &at, int rows, int position) {
    return min(max(position - at.first, 0), at.turn) + min(max(position - at.second, 0), rows - at.turn);
}
__device__ inline int query_place(const CudaAttention &call, int query) {
    return call.parts ? place_in(call.query_at, query) : query;
}
__device__ inline int key_place(const CudaAttention &call, int key) {
    return call.parts ? place_in(call.key_at, key) : key;
}

// One sequence: its queries are at positions offset .. offset + queries - 1 of its `keys` keys.
struct Span {
    int offset, queries, keys;
};

// Values read from tensors are clamped, so that invalid ones cannot cause out-of-bounds accesses.
__device__ inline Span span_of(const CudaAttention &call, int b) {
    if (call.past) {
        int offset = min(max(call.past[b], 0), call.keys);
        int fresh = min(max(call.fresh[b], 0), min(call.queries, call.keys - offset));
        return {offset, fresh, offset + fresh};
    }
    if (!call.lens) return {0, call.queries, call.keys};
    int keys = call.parts ? rows_before(call.key_at, call.keys, call.lens[b]) : call.lens[b];
    return {0, call.queries, min(max(keys, 0), call.keys)};
}

// Number of keys, starting with the first, that a query attends to.
__device__ inline int keys_seen(const CudaAttention &call, const Span &span, int query) {
    if (!call.causal) return span.keys;
    int seen = call.parts ? rows_before(call.key_at, call.keys, query_place(call, query) + 1)
                          : span.offset + query + 1;
    return min(span.keys, seen);
}

// The first query that attends to a key, or the end.
__device__ inline int first_query(const CudaAttention &call, int key) {
    if (!call.causal) return 0;
    return call.parts ? rows_before(call.query_at, call.queries, key_place(call, key)) : key;
}

// Whether queries do not see all keys before them.
inline __host__ __device__ bool is_windowed(const CudaAttention &call) {
    return call.window || call.starts;
}

// The first key that a query attends to, as first_key of backend.h. It never decreases from one query to the
// next.
__device__ inline int first_seen(const CudaAttention &call, const Span &span, int b, int query) {
    query = min(query, call.queries - 1);
    int position = span.offset + query_place(call, query),
        first = call.starts ? call.starts[b * (int64_t)call.positions + position] : 0;
    if (call.window) first = max(first, position - call.window + 1);
    first = max(min(first, position), 0);
    return call.parts ? rows_before(call.key_at, call.keys, first) : first;
}

// The first query, up to `end`, from which on no query sees `key` or any key before it.
__device__ inline int last_queries(const CudaAttention &call, const Span &span, int b, int key, int end) {
    int low = first_query(call, key); // queries before that see no key from this one on
    while (low < end) {
        int middle = low + (end - low) / 2;
        if (first_seen(call, span, b, middle) > key)
            end = middle;
        else
            low = middle + 1;
    }
    return end;
}

template <typename T> __device__ inline T *head_rows(const CudaHeads &heads, int b, int h) {
    return (T *)heads.data + b * heads.batch + h * heads.head;
}

// The head and tile of a block. The tiles of a head are in ascending or, with last_first, descending order.
struct Place {
    int b, h, tile;
};
__device__ inline Place place_of(int heads, int tiles, bool last_first) {
    int head = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    return {head / heads, head % heads, last_first ? tiles - 1 - tile : tile};
}

constexpr float infinity = __builtin_huge_valf();

#endif
