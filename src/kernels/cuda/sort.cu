// Sorts row indices, so that sums over rows with the same index have an owner and a fixed order.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/chain.cuh"

namespace {

constexpr int threads = 128;

// Rows outside of [start, start + count) sort last, as row `count`.
__global__ void row_keys_kernel(uint32_t *key, uint32_t *position, const int32_t *index, int64_t M,
                                int64_t start, int64_t count) {
    int64_t m = blockIdx.x * (int64_t)threads + threadIdx.x;
    if (m >= M) return;
    int64_t row = index[m] - start;
    key[m] = (uint32_t)(row >= 0 && row < count ? row : count);
    position[m] = (uint32_t)m;
}

int bits_of(int64_t largest) {
    int bits = 1;
    while (largest >> bits) bits++;
    return bits;
}

} // namespace

Status row_order(Stream *stream, Tensor index, int64_t M, int64_t start, int64_t count, size_t more,
                 RowOrder *ret_order, void **ret_more) {
    if (M > INT32_MAX || count >= UINT32_MAX)
        return FAILED("internal: %s: %lld indices into %lld rows; expected fewer than 2^31", __func__,
                      (long long)M, (long long)count);
    const size_t list = row_list_bytes(M);
    const int bits = bits_of(count);
    size_t sort_bytes = 0;
    uint32_t *none = NULL;
    LAUNCH(cub::DeviceRadixSort::SortPairs(NULL, sort_bytes, none, none, none, none, (uint32_t)M, 0, bits));
    void *workspace;
    TRY(stream_workspace(stream, ROW_LISTS * list + gpu_align(sort_bytes) + more, &workspace));
    char *at = (char *)workspace;
    uint32_t *key = (uint32_t *)at, *position = (uint32_t *)(at + list);
    uint32_t *sorted = (uint32_t *)(at + 2 * list), *from = (uint32_t *)(at + 3 * list);
    at += ROW_LISTS * list;
    LAUNCH(launch_kernel(stream, row_keys_kernel, blocks_for(M, threads), threads, 0, key, position,
                         data<int32_t>(index), M, start, count));
    LAUNCH(cub::DeviceRadixSort::SortPairs(at, sort_bytes, key, sorted, position, from, (uint32_t)M, 0, bits,
                                           cuda_stream(stream)));
    *ret_order = RowOrder{sorted, from};
    *ret_more = at + gpu_align(sort_bytes);
    return OK;
}
