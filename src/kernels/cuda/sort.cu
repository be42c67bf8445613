// Sorts row indices, so that sums over rows with the same index have an owner and a fixed order.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/device.cuh"

static int bits_of(int64_t largest) {
    int bits = 1;
    while (largest >> bits) bits++;
    return bits;
}

cudaError_t launch_sort_bytes(int64_t count, int64_t largest, size_t *ret_bytes) {
    return cub::DeviceRadixSort::SortPairs(nullptr, *ret_bytes, (const uint32_t *)nullptr,
                                           (uint32_t *)nullptr, (const uint32_t *)nullptr,
                                           (uint32_t *)nullptr, (uint32_t)count, 0, bits_of(largest));
}

cudaError_t launch_sort(cudaStream_t stream, RowOrder order, int64_t count, int64_t largest) {
    return cub::DeviceRadixSort::SortPairs(order.scratch, order.scratch_bytes, order.key, order.sorted,
                                           order.position, order.from, (uint32_t)count, 0, bits_of(largest),
                                           stream);
}
