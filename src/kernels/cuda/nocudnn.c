/* Stub for builds without cuDNN. */
#include "kernels/cuda/cuda.h"

Status attention_cudnn(Stream *stream, void **kept, DType type, const CudaAttention *call, bool backward,
                       bool forced, const char **ret_problem) {
    (void)stream, (void)kept, (void)type, (void)call, (void)backward, (void)forced;
    *ret_problem = "this build has no cuDNN";
    return OK;
}

void attention_cudnn_free(void *kept) {
    (void)kept;
}
