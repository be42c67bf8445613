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
        .linear_forward = linear_forward_ref,
        .linear_backward_input = linear_backward_input_ref,
        .linear_backward_weight = linear_backward_weight_ref,
        .linear_fp8_forward = linear_fp8_forward_ref,
        .linear_fp8_backward = linear_fp8_backward_ref,
        .linear_int8_forward = linear_int8_forward_ref,
        .int8_tile = int8_tile_ref,
        .linear_sparse_forward = linear_sparse_forward_ref,
        .row_largest = row_largest_ref,
        .round_int8 = round_int8_ref,
        .round_int4 = round_int4_ref,
        .act_forward = act_forward_ref,
        .act_backward = act_backward_ref,
        .layernorm_forward = layernorm_forward_ref,
        .layernorm_backward = layernorm_backward_ref,
        .dropout_add_forward = dropout_add_forward_ref,
        .dropout_backward = dropout_backward_ref,
        .dropout_add_norm_forward = dropout_add_norm_forward_ref,
        .attention_forward = attention_forward_ref,
        .attention_backward = attention_backward_ref,
        .attention_decode = attention_decode_ref,
        .embedding_forward = embedding_forward_ref,
        .embedding_backward = embedding_backward_ref,
        .xent_partial = xent_partial_ref,
        .xent_combine = xent_combine_ref,
        .xent_finish = xent_finish_ref,
        .xent_loss = xent_loss_ref,
        .mse_loss = mse_loss_ref,
        .bce_loss = bce_loss_ref,
        .argmax = argmax_ref,
        .xent_hits = xent_hits_ref,
        .gather_rows = gather_rows_ref,
        .scatter_add_rows = scatter_add_rows_ref,
        .transpose = transpose_ref,
        .fill = fill_ref,
        .convert = convert_ref,
        .add = add_ref,
        .scale = scale_ref,
        .sum = sum_ref,
        .sum_squares = sum_squares_ref,
        .sum_squares_parts = sum_squares_parts_ref,
        .sketch = sketch_ref,
        .adamw_step = adamw_step_ref,
    };
}
