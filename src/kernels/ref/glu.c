/* Gated activations: a row of x is gate (F), then up (F). */
#include "kernels/ref/ref.h"

Status glu_forward_ref(Stream *stream, Tensor y, Tensor x, Act act) {
    (void)stream;
    int64_t F = tensor_cols(y);
    for (int64_t i = 0; i < tensor_count(y); i++) {
        int64_t gate = i / F * 2 * F + i % F;
        tensor_put(y, i, act_value(act, tensor_get(x, gate)) * tensor_get(x, gate + F));
    }
    return OK;
}

Status glu_backward_ref(Stream *stream, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    (void)stream;
    int64_t F = tensor_cols(dy);
    for (int64_t i = 0; i < tensor_count(dy); i++) {
        int64_t at = i / F * 2 * F + i % F;
        double gate = tensor_get(x, at), up = tensor_get(x, at + F), grad = tensor_get(dy, i);
        tensor_put(dx, at, grad * up * act_derivative(act, gate));
        tensor_put(dx, at + F, grad * act_value(act, gate));
        if (y.data) tensor_put(y, i, act_value(act, gate) * up);
    }
    return OK;
}
