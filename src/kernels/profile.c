#include "kernels/profile.h"

static const char *const names[KERNEL_COUNT] = {
    [KERNEL_LINEAR_FORWARD] = "linear_forward",
    [KERNEL_LINEAR_BACKWARD_INPUT] = "linear_backward_input",
    [KERNEL_LINEAR_BACKWARD_WEIGHT] = "linear_backward_weight",
    [KERNEL_LINEAR_FP8_FORWARD] = "linear_fp8_forward",
    [KERNEL_LINEAR_FP8_BACKWARD] = "linear_fp8_backward",
    [KERNEL_LINEAR_INT8_FORWARD] = "linear_int8_forward",
    [KERNEL_ACT_FORWARD] = "act_forward",
    [KERNEL_ACT_BACKWARD] = "act_backward",
    [KERNEL_LAYERNORM_FORWARD] = "layernorm_forward",
    [KERNEL_LAYERNORM_BACKWARD] = "layernorm_backward",
    [KERNEL_DROPOUT_ADD_FORWARD] = "dropout_add_forward",
    [KERNEL_DROPOUT_BACKWARD] = "dropout_backward",
    [KERNEL_DROPOUT_ADD_NORM_FORWARD] = "dropout_add_norm_forward",
    [KERNEL_ATTENTION_FORWARD] = "attention_forward",
    [KERNEL_ATTENTION_BACKWARD] = "attention_backward",
    [KERNEL_ATTENTION_DECODE] = "attention_decode",
    [KERNEL_EMBEDDING_FORWARD] = "embedding_forward",
    [KERNEL_EMBEDDING_BACKWARD] = "embedding_backward",
    [KERNEL_XENT_PARTIAL] = "xent_partial",
    [KERNEL_XENT_COMBINE] = "xent_combine",
    [KERNEL_XENT_FINISH] = "xent_finish",
    [KERNEL_XENT_LOSS] = "xent_loss",
    [KERNEL_ARGMAX] = "argmax",
    [KERNEL_XENT_HITS] = "xent_hits",
    [KERNEL_GATHER_ROWS] = "gather_rows",
    [KERNEL_SCATTER_ADD_ROWS] = "scatter_add_rows",
    [KERNEL_TRANSPOSE] = "transpose",
    [KERNEL_FILL] = "fill",
    [KERNEL_CONVERT] = "convert",
    [KERNEL_ADD] = "add",
    [KERNEL_SCALE] = "scale",
    [KERNEL_SUM] = "sum",
    [KERNEL_SUM_SQUARES] = "sum_squares",
    [KERNEL_ADAMW_STEP] = "adamw_step",
};

const char *kernel_name(KernelId id) {
    return names[id];
}
