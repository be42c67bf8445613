/* Activations as separate kernels; they share device code with the linear layers. */
#include "kernels/cuda/cuda.h"

Status act_forward_cuda(Stream *stream, Tensor y, Tensor x, Act act) {
    LAUNCH(launch_act(cuda_stream(stream), x.dtype, y.data, x.data, (CudaAct)act, tensor_count(x)));
    return OK;
}

Status act_backward_cuda(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    LAUNCH(launch_act_backward(cuda_stream(stream), x.dtype, dx.data, dy.dtype, dy.data, x.data, (CudaAct)act,
                               tensor_count(x), false));
    return OK;
}
