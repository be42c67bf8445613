/* Regression and multi-label losses on a GPU: slots for target_loss.cu. */
#include "kernels/cuda/cuda.h"

Status mse_loss_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                     bool gradient) {
    LAUNCH(launch_mse_loss(cuda_stream(stream), logits.dtype, losses.data, logits.data, targets.data,
                           tensor_count(logits), scale, gradient));
    return OK;
}

Status bce_loss_cuda(Stream *stream, Tensor losses, Tensor logits, Tensor targets, float scale,
                     bool gradient) {
    LAUNCH(launch_bce_loss(cuda_stream(stream), logits.dtype, losses.data, logits.data, targets.data,
                           tensor_count(logits), scale, gradient));
    return OK;
}
