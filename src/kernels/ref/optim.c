/* AdamW (Loshchilov and Hutter), each element in double. `copy` receives the param after it is rounded to
 * fp32. */
#include <math.h>

#include "kernels/ref/ref.h"

Status adamw_step_ref(Stream *stream, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad,
                      AdamW spec) {
    (void)stream;
    double b1 = spec.beta1, b2 = spec.beta2;
    for (int64_t i = 0; i < tensor_count(param); i++) {
        double g = (double)tensor_f32(grad)[i] * spec.grad_scale, p = tensor_f32(param)[i];
        bool pruned = spec.keep_zeros && p == 0;
        double first = b1 * tensor_f32(m)[i] + (1 - b1) * g;
        double second = b2 * tensor_f32(v)[i] + (1 - b2) * g * g;
        double step = first / spec.correction1 / (sqrt(second / spec.correction2) + spec.eps);
        tensor_f32(m)[i] = pruned ? 0 : (float)first;
        tensor_f32(v)[i] = pruned ? 0 : (float)second;
        tensor_f32(param)[i] = pruned ? 0 : (float)(p - spec.lr * (spec.decay * p + step));
        if (copy.data) tensor_put(copy, i, tensor_f32(param)[i]);
    }
    return OK;
}
