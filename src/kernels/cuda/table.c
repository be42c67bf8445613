/* The cuda backend's table and its per-device state. */
#include "base/memory.h"
#include "kernels/cuda/cuda.h"

bool kernels_cuda_fill(KernelTable *table) {
    *table = (KernelTable){
        .linear_forward = linear_forward_cuda,
        .linear_backward_input = linear_backward_input_cuda,
        .linear_backward_weight = linear_backward_weight_cuda,
        .linear_fp8_forward = linear_fp8_forward_cuda,
        .linear_fp8_backward = linear_fp8_backward_cuda,
        .linear_int8_forward = linear_int8_forward_cuda,
        .int8_tile = int8_tile_cuda,
        .attention_forward = attention_forward_cuda,
        .attention_backward = attention_backward_cuda,
        .attention_decode = attention_decode_cuda,
        .row_largest = row_largest_cuda,
        .round_int8 = round_int8_cuda,
        .round_int4 = round_int4_cuda,
        .act_forward = act_forward_cuda,
        .act_backward = act_backward_cuda,
        .layernorm_forward = layernorm_forward_cuda,
        .layernorm_backward = layernorm_backward_cuda,
        .dropout_add_forward = dropout_add_forward_cuda,
        .dropout_backward = dropout_backward_cuda,
        .dropout_add_norm_forward = dropout_add_norm_forward_cuda,
        .embedding_forward = embedding_forward_cuda,
        .embedding_backward = embedding_backward_cuda,
        .xent_partial = xent_partial_cuda,
        .xent_combine = xent_combine_cuda,
        .xent_finish = xent_finish_cuda,
        .xent_loss = xent_loss_cuda,
        .mse_loss = mse_loss_cuda,
        .bce_loss = bce_loss_cuda,
        .argmax = argmax_cuda,
        .xent_hits = xent_hits_cuda,
        .gather_rows = gather_rows_cuda,
        .scatter_add_rows = scatter_add_rows_cuda,
        .transpose = transpose_cuda,
        .fill = fill_cuda,
        .convert = convert_cuda,
        .add = add_cuda,
        .scale = scale_cuda,
        .sum = sum_cuda,
        .sum_squares = sum_squares_cuda,
        .sum_squares_parts = sum_squares_parts_cuda,
        .sketch = sketch_cuda,
        .adamw_step = adamw_step_cuda,
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
    for (int i = 0; i < 3; i++) converted.origin[i] = dropout->origin[i];
    for (int i = 0; i < 2; i++) converted.extent[i] = dropout->extent[i];
    return converted;
}
