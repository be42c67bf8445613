/* The AdamW update on a GPU: slot for optim.cu. */
#include "kernels/cuda/cuda.h"

Status adamw_step_cuda(Stream *stream, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad,
                       AdamW spec) {
    CudaAdamW step = {.lr = spec.lr,
                      .beta1 = spec.beta1,
                      .beta2 = spec.beta2,
                      .rest1 = (float)(1 - (double)spec.beta1),
                      .rest2 = (float)(1 - (double)spec.beta2),
                      .eps = spec.eps,
                      .decay = spec.decay,
                      .correct1 = (float)(1 / (double)spec.correction1),
                      .correct2 = (float)(1 / (double)spec.correction2),
                      .grad_scale = spec.grad_scale,
                      .keep_zeros = spec.keep_zeros};
    LAUNCH(launch_adamw(cuda_stream(stream), param.data, m.data, v.data, copy.data ? copy.dtype : DT_F32,
                        copy.data, grad.data, tensor_count(param), step));
    return OK;
}
