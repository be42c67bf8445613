/* Time, FLOPs and bytes per kernel, collected by calls whose Exec has a Profile. Timing synchronizes the
 * stream around each call, so it removes overlap. */
#ifndef WEFT_KERNELS_PROFILE_H
#define WEFT_KERNELS_PROFILE_H

#include <stdint.h>

typedef enum {
    KERNEL_LINEAR_FORWARD,
    KERNEL_LINEAR_BACKWARD_INPUT,
    KERNEL_LINEAR_BACKWARD_WEIGHT,
    KERNEL_LINEAR_FP8_FORWARD,
    KERNEL_LINEAR_FP8_BACKWARD,
    KERNEL_LINEAR_INT8_FORWARD,
    KERNEL_LINEAR_SPARSE_FORWARD,
    KERNEL_ROW_LARGEST,
    KERNEL_ROUND_INT8,
    KERNEL_ROUND_INT4,
    KERNEL_ACT_FORWARD,
    KERNEL_ACT_BACKWARD,
    KERNEL_LAYERNORM_FORWARD,
    KERNEL_LAYERNORM_BACKWARD,
    KERNEL_DROPOUT_ADD_FORWARD,
    KERNEL_DROPOUT_BACKWARD,
    KERNEL_DROPOUT_ADD_NORM_FORWARD,
    KERNEL_ATTENTION_FORWARD,
    KERNEL_ATTENTION_BACKWARD,
    KERNEL_ATTENTION_DECODE,
    KERNEL_EMBEDDING_FORWARD,
    KERNEL_EMBEDDING_BACKWARD,
    KERNEL_XENT_PARTIAL,
    KERNEL_XENT_COMBINE,
    KERNEL_XENT_FINISH,
    KERNEL_XENT_LOSS,
    KERNEL_MSE_LOSS,
    KERNEL_BCE_LOSS,
    KERNEL_ARGMAX,
    KERNEL_XENT_HITS,
    KERNEL_GATHER_ROWS,
    KERNEL_SCATTER_ADD_ROWS,
    KERNEL_TRANSPOSE,
    KERNEL_FILL,
    KERNEL_CONVERT,
    KERNEL_ADD,
    KERNEL_SCALE,
    KERNEL_SUM,
    KERNEL_SUM_SQUARES,
    KERNEL_SUM_SQUARES_PARTS,
    KERNEL_SKETCH,
    KERNEL_ADAMW_STEP,
    KERNEL_COUNT,
} KernelId;

typedef struct KernelStat {
    uint64_t calls;
    double seconds;
    double flops; /* FLOPs, counted from the shapes of the calls */
    double bytes; /* minimum memory traffic: each operand read or written once */
} KernelStat;

typedef struct Profile {
    KernelStat kernel[KERNEL_COUNT];
} Profile;

/* The name of the function in kernels.h, which also appears in profiles. */
const char *kernel_name(KernelId id);

#endif
