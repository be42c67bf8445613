/* Layer norm over rows of width C. The variance is the biased one and eps lies inside the root. */
#include <math.h>

#include "kernels/ref/ref.h"

static void norm_row(float *y, float *mean, float *rstd, const float *x, const float *gamma,
                     const float *beta, int64_t C, double eps) {
    double total = 0, squares = 0;
    for (int64_t c = 0; c < C; c++) total += x[c];
    double center = total / (double)C;
    for (int64_t c = 0; c < C; c++) squares += (x[c] - center) * (x[c] - center);
    double inverse = 1 / sqrt(squares / (double)C + eps);
    for (int64_t c = 0; c < C; c++) y[c] = (float)((x[c] - center) * inverse * gamma[c] + beta[c]);
    *mean = (float)center;
    *rstd = (float)inverse;
}

Status layernorm_forward_ref(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                             Tensor beta, float eps) {
    (void)stream;
    FP32_ONLY("layernorm_forward", y, mean, rstd, x, gamma, beta);
    int64_t C = tensor_cols(x);
    for (int64_t r = 0; r < tensor_rows(x); r++)
        norm_row(tensor_f32(y) + r * C, tensor_f32(mean) + r, tensor_f32(rstd) + r, tensor_f32(x) + r * C,
                 tensor_f32(gamma), tensor_f32(beta), C, eps);
    return OK;
}

/* With n = (x - mean) * rstd and g = dy * gamma:  dx = rstd * (g - mean(g) - n * mean(g * n)) + dres.
 * Needs: x, mean, rstd. */
Status layernorm_backward_ref(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                              Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    FP32_ONLY("layernorm_backward", dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dres);
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    void *workspace;
    TRY(stream_workspace(stream, 2 * (size_t)C * sizeof(double), &workspace));
    double *gamma_sum = workspace, *beta_sum = gamma_sum + C; /* (C) each */
    for (int64_t c = 0; c < 2 * C; c++) gamma_sum[c] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *in = tensor_f32(x) + r * C, *grad = tensor_f32(dy) + r * C;
        const float *residual = dres.data ? tensor_f32(dres) + r * C : NULL;
        double center = tensor_f32(mean)[r], inverse = tensor_f32(rstd)[r];
        double mean_g = 0, mean_gn = 0;
        for (int64_t c = 0; c < C; c++) {
            double normed = (in[c] - center) * inverse, g = (double)grad[c] * tensor_f32(gamma)[c];
            mean_g += g / (double)C;
            mean_gn += g * normed / (double)C;
            gamma_sum[c] += grad[c] * normed;
            beta_sum[c] += grad[c];
        }
        for (int64_t c = 0; c < C; c++) {
            double normed = (in[c] - center) * inverse, g = (double)grad[c] * tensor_f32(gamma)[c];
            double through = inverse * (g - mean_g - normed * mean_gn);
            tensor_f32(dx)[r * C + c] = (float)(through + (residual ? residual[c] : 0));
        }
    }
    for (int64_t c = 0; c < C; c++) {
        tensor_f32(dgamma)[c] = (float)(tensor_f32(dgamma)[c] + gamma_sum[c]);
        tensor_f32(dbeta)[c] = (float)(tensor_f32(dbeta)[c] + beta_sum[c]);
    }
    return OK;
}

Status dropout_add_norm_forward_ref(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                    Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                    Dropout dropout) {
    TRY(dropout_add_forward_ref(stream, sum, res, y, dropout));
    return layernorm_forward_ref(stream, out, mean, rstd, sum, gamma, beta, eps);
}
