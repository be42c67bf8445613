/* rows.cu: argmax at the end of a greedy decode step. */
#ifndef WEFT_KERNELS_CUDA_ARGMAX_H
#define WEFT_KERNELS_CUDA_ARGMAX_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What argmax_advance stores besides the tokens. */
typedef struct ArgmaxAdvance {
    int32_t *past, *chosen;
    int32_t columns; /* of chosen */
} ArgmaxAdvance;
/* As launch_argmax; an index of -1 is stored in `tokens` as 0. */
cudaError_t launch_argmax_advance(cudaStream_t stream, DType type, int32_t *tokens, const void *x, int64_t M,
                                  int64_t C, ArgmaxAdvance advance);

#ifdef __cplusplus
}
#endif

#endif
