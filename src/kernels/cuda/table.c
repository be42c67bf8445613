/* The cuda backend's table, and what it keeps with a device. */
#include "base/memory.h"
#include "kernels/cuda/cuda.h"

bool kernels_cuda_fill(KernelTable *table) {
    *table = (KernelTable){
        .linear_forward = linear_forward_cuda,
        .linear_backward_input = linear_backward_input_cuda,
        .linear_backward_weight = linear_backward_weight_cuda,
        .attention_forward = attention_forward_cuda,
        .attention_backward = attention_backward_cuda,
        .attention_decode = attention_decode_cuda,
        .fill = fill_cuda,
        .convert = convert_cuda,
        .add = add_cuda,
        .scale = scale_cuda,
    };
    return true;
}

static void kernels_free(void *kept) {
    CudaKernels *kernels = kept;
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
    CudaDropout made = {.key = dropout->key};
    if (dropout->p <= 0) return made;
    made.threshold = dropout_threshold(dropout->p);
    made.scale = dropout_scale(dropout->p);
    for (int i = 0; i < 3; i++) made.origin[i] = dropout->origin[i];
    for (int i = 0; i < 2; i++) made.extent[i] = dropout->extent[i];
    return made;
}
