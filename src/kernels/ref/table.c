/* The reference backend's table, and conversion to fp32 for its files. */
#include "kernels/ref/ref.h"

const float *ref_f32(Tensor tensor, float **workspace) {
    if (!tensor.data || tensor.dtype == DT_F32) return tensor.data;
    float *copy = *workspace;
    for (int64_t i = 0; i < tensor_count(tensor); i++) copy[i] = (float)tensor_get(tensor, i);
    *workspace += tensor_count(tensor);
    return copy;
}

size_t ref_f32_bytes(size_t count, const Tensor *tensors) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (tensors[i].data && tensors[i].dtype != DT_F32)
            bytes += (size_t)tensor_count(tensors[i]) * sizeof(float);
    return bytes;
}

void kernels_ref_fill(KernelTable *table) {
    *table = (KernelTable){
        .name = "ref",
        .int8_tile = int8_tile_ref,
#define KERNEL(id, name, ...) .name = name##_ref,
#include "kernels/ops.def"
    };
}
