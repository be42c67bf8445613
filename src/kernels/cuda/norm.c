/* Layer norm on a GPU: slots for norm.cu. */
#include "kernels/cuda/cuda.h"

Status layernorm_forward_cuda(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                              Tensor beta, float eps) {
    LAUNCH(launch_norm_forward(cuda_stream(stream), x.dtype, y.data, mean.data, rstd.data, x.data, gamma.data,
                               beta.data, tensor_rows(x), tensor_cols(x), eps));
    return OK;
}

Status layernorm_backward_cuda(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                               Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    int64_t C = tensor_cols(x);
    void *partial;
    TRY(stream_workspace(stream, norm_backward_bytes(C), &partial));
    LAUNCH(launch_norm_backward(cuda_stream(stream), x.dtype, dx.data, dgamma.data, dbeta.data, dy.data,
                                x.data, mean.data, rstd.data, gamma.data, dres.data, tensor_rows(x), C,
                                partial));
    return OK;
}
