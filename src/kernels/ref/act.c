/* Activations and their derivatives. */
#include <math.h>

#include "kernels/ref/ref.h"

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;
static const double inverse_sqrt_2pi = 0.39894228040143267794;

double act_value(Act act, double x) {
    switch (act) {
    case ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * sqrt_half));
    case ACT_RELU: return x < 0 ? 0 : x; /* NaN stays NaN */
    case ACT_TANH: return tanh(x);
    case ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

double act_derivative(Act act, double x) {
    switch (act) {
    case ACT_GELU_TANH: {
        double t = tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * 0.044715 * x * x);
    }
    case ACT_GELU_ERF: return 0.5 * (1 + erf(x * sqrt_half)) + x * inverse_sqrt_2pi * exp(-0.5 * x * x);
    case ACT_RELU: return x > 0 ? 1 : 0;
    case ACT_TANH: return 1 - tanh(x) * tanh(x);
    case ACT_SILU: {
        double s = 1 / (1 + exp(-x));
        return s * (1 + x * (1 - s));
    }
    default: return 1;
    }
}

Status act_forward_ref(Stream *stream, Tensor y, Tensor x, Act act) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_put(y, i, act_value(act, tensor_get(x, i)));
    return OK;
}

/* Reads x, the input of the activation. */
Status act_backward_ref(Stream *stream, Tensor dx, Tensor dy, Tensor x, Act act) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++)
        tensor_put(dx, i, tensor_get(dy, i) * act_derivative(act, tensor_get(x, i)));
    return OK;
}
