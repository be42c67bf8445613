/* The cuda backend's table and its per-device state. */
#include "base/memory.h"
#include "kernels/cuda/cuda.h"

#define SLOT_ALL(name) .name = name##_cuda,
#define SLOT_CPU(name)

bool kernels_cuda_fill(KernelTable *table) {
    *table = (KernelTable){
        .int8_tile = int8_tile_cuda,
        .fuses_linear = fuses_linear_cuda,
        .groups_packed = groups_packed_cuda,
#define KERNEL(id, name, phase, work, launches, backends, ...) SLOT_##backends(name)
#include "kernels/ops.def"
    };
    return true;
}

static void kernels_free(void *data) {
    CudaKernels *kernels = data;
    if (kernels->blas) kernels->blas_free(kernels->blas);
    if (kernels->attention) kernels->attention_free(kernels->attention);
    free(kernels);
}

Status cuda_kernels(Stream *stream, CudaKernels **ret_kernels) {
    CudaDevice *device = cuda_device(stream);
    if (!device->kernels) {
        TRY(mem_new(1, sizeof(CudaKernels), &device->kernels));
        device->kernels_free = kernels_free;
    }
    *ret_kernels = device->kernels;
    return OK;
}

CudaDropout cuda_dropout(const Dropout *dropout) {
    CudaDropout converted = {.key = dropout->key};
    if (dropout->p <= 0) return converted;
    converted.threshold = dropout_threshold(dropout->p);
    converted.scale = dropout_scale(dropout->p);
    converted.step = dropout->step.data;
    for (int i = 0; i < 3; i++) converted.origin[i] = dropout->origin[i];
    for (int i = 0; i < 2; i++) converted.extent[i] = dropout->extent[i];
    converted.rows = dropout->rows;
    converted.at = dropout->at;
    return converted;
}
