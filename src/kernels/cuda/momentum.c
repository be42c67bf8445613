/* Lion, SGD with momentum, and the parts of Muon that are not matmuls, on a GPU: slots for momentum.cu. */
#include "kernels/cuda/cuda.h"

/* As the launches take it. */
static DType type_of(Tensor param, Tensor copy) {
    if (param.dtype == DT_REST) return DT_REST;
    return copy.data ? copy.dtype : DT_F32;
}

Status lion_step_cuda(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    CudaLion step = {.lr = spec.lr,
                     .beta1 = spec.beta1,
                     .beta2 = spec.beta2,
                     .rest1 = (float)(1 - (double)spec.beta1),
                     .rest2 = (float)(1 - (double)spec.beta2),
                     .decay = spec.decay,
                     .grad_scale = spec.grad_scale,
                     .keep_zeros = spec.keep_zeros};
    LAUNCH(launch_lion(cuda_stream(stream), param.data, m.data, type_of(param, copy), copy.data, grad.data,
                       tensor_count(param), step));
    return OK;
}

Status sgd_step_cuda(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    CudaSgd step = {.lr = spec.lr,
                    .momentum = spec.momentum,
                    .decay = spec.decay,
                    .grad_scale = spec.grad_scale,
                    .nesterov = spec.nesterov,
                    .keep_zeros = spec.keep_zeros};
    LAUNCH(launch_sgd(cuda_stream(stream), param.data, m.data, type_of(param, copy), copy.data, grad.data,
                      tensor_count(param), step));
    return OK;
}

Status momentum_step_cuda(Stream *stream, Tensor grad, Tensor m, Tensor param, Tensor copy, Momentum spec) {
    float rest = (float)(1 - (double)spec.beta);
    CudaMomentum step = {.beta = spec.beta,
                         .rest = rest,
                         .of_average = spec.nesterov ? spec.beta : 1,
                         .of_gradient = spec.nesterov ? rest : 0,
                         .grad_scale = spec.grad_scale,
                         .keep_zeros = spec.keep_zeros};
    LAUNCH(launch_momentum(cuda_stream(stream), grad.data, m.data, param.dtype, param.data, copy.data,
                           tensor_count(grad), step));
    return OK;
}

Status apply_step_cuda(Stream *stream, Tensor param, Tensor copy, Tensor update, Apply spec) {
    LAUNCH(launch_apply(cuda_stream(stream), param.data, type_of(param, copy), copy.data, update.data,
                        tensor_count(param), spec.lr, spec.decay, spec.keep_zeros));
    return OK;
}

Status normalize_cuda(Stream *stream, Tensor y, Tensor x, Tensor total, float eps) {
    LAUNCH(launch_normalize(cuda_stream(stream), y.dtype, y.data, x.data, tensor_count(x), total.data, eps));
    return OK;
}
