/* Activations as separate kernels, which share device code with the linear layers, and gated activations:
 * slots for linear.cu and glu.cu. */
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

Status glu_forward_cuda(Stream *stream, Tensor y, Tensor x, Act act) {
    LAUNCH(launch_glu(cuda_stream(stream), y.dtype, y.data, x.data, (CudaAct)act, tensor_rows(y),
                      tensor_cols(y)));
    return OK;
}

Status glu_backward_cuda(Stream *stream, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    LAUNCH(launch_glu_backward(cuda_stream(stream), dy.dtype, dx.data, y.data, dy.data, x.data, (CudaAct)act,
                               tensor_rows(dy), tensor_cols(dy)));
    return OK;
}
