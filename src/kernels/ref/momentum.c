/* Lion (Chen et al.), SGD with momentum, and the parts of Muon that are not matmuls, each element in double.
 */
#include <math.h>

#include "kernels/ref/ref.h"

Status lion_step_ref(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    (void)stream;
    double b1 = spec.beta1, b2 = spec.beta2;
    for (int64_t i = 0; i < tensor_count(param); i++) {
        double g = (double)tensor_f32(grad)[i] * spec.grad_scale, p = ref_param(param, copy, i);
        double was = tensor_f32(m)[i], direction = b1 * was + (1 - b1) * g;
        bool pruned = spec.keep_zeros && p == 0;
        double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
        tensor_f32(m)[i] = pruned ? 0 : (float)(b2 * was + (1 - b2) * g);
        ref_put_param(param, copy, i, pruned ? 0 : (float)(p - spec.lr * (spec.decay * p + sign)));
    }
    return OK;
}

Status sgd_step_ref(Stream *stream, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    (void)stream;
    double momentum = spec.momentum;
    for (int64_t i = 0; i < tensor_count(param); i++) {
        double p = ref_param(param, copy, i),
               g = (double)tensor_f32(grad)[i] * spec.grad_scale + spec.decay * p;
        double next = momentum * tensor_f32(m)[i] + g, update = spec.nesterov ? g + momentum * next : next;
        bool pruned = spec.keep_zeros && p == 0;
        tensor_f32(m)[i] = pruned ? 0 : (float)next;
        ref_put_param(param, copy, i, pruned ? 0 : (float)(p - spec.lr * update));
    }
    return OK;
}

Status momentum_step_ref(Stream *stream, Tensor grad, Tensor m, Tensor param, Tensor copy, Momentum spec) {
    (void)stream;
    double beta = spec.beta;
    for (int64_t i = 0; i < tensor_count(grad); i++) {
        double g = (double)tensor_f32(grad)[i] * spec.grad_scale;
        double next = beta * tensor_f32(m)[i] + (1 - beta) * g;
        bool pruned = spec.keep_zeros && ref_param(param, copy, i) == 0;
        tensor_f32(m)[i] = pruned ? 0 : (float)next;
        tensor_f32(grad)[i] = pruned ? 0 : (float)(spec.nesterov ? beta * next + (1 - beta) * g : next);
    }
    return OK;
}

Status apply_step_ref(Stream *stream, Tensor param, Tensor copy, Tensor update, Apply spec) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(param); i++) {
        double p = ref_param(param, copy, i);
        bool pruned = spec.keep_zeros && p == 0;
        ref_put_param(param, copy, i,
                      pruned ? 0 : (float)(p - spec.lr * (spec.decay * p + tensor_f32(update)[i])));
    }
    return OK;
}

Status normalize_ref(Stream *stream, Tensor y, Tensor x, Tensor total, float eps) {
    (void)stream;
    double norm = sqrt(*(const double *)total.data) + eps;
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_put(y, i, tensor_f32(x)[i] / norm);
    return OK;
}
