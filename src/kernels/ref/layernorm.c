/* Layer norm over rows of C elements. The variance is the biased one, and eps is inside the square root. */
#include <math.h>

#include "kernels/ref/ref.h"

static double square(double value) {
    return value * value;
}

Status layernorm_forward_ref(Stream *stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                             Tensor beta, float eps) {
    (void)stream;
    int64_t C = tensor_cols(x);
    for (int64_t r = 0; r < tensor_rows(x); r++) {
        double total = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) total += tensor_get(x, r * C + c);
        double center = total / (double)C;
        for (int64_t c = 0; c < C; c++) squares += square(tensor_get(x, r * C + c) - center);
        double inverse = 1 / sqrt(squares / (double)C + eps);
        for (int64_t c = 0; c < C; c++) {
            double normed = (tensor_get(x, r * C + c) - center) * inverse;
            tensor_put(y, r * C + c, normed * tensor_get(gamma, c) + tensor_get(beta, c));
        }
        tensor_put(mean, r, center);
        tensor_put(rstd, r, inverse);
    }
    return OK;
}

/* With n = (x - mean) * rstd and g = dy * gamma:  dx = rstd * (g - mean(g) - n * mean(g * n)) + dres. */
Status layernorm_backward_ref(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                              Tensor mean, Tensor rstd, Tensor gamma, Tensor dres, NormSums sums) {
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    void *workspace;
    TRY(stream_workspace(stream, 2 * (size_t)C * sizeof(double), &workspace));
    double *gamma_sum = workspace, *beta_sum = gamma_sum + C; /* (C) each */
    for (int64_t c = 0; c < 2 * C; c++) gamma_sum[c] = 0;
    add_column_sums(sums.dres, dres); /* before dx, which may overwrite it */
    for (int64_t r = 0; r < rows; r++) {
        double center = tensor_f32(mean)[r], inverse = tensor_f32(rstd)[r];
        double mean_g = 0, mean_gn = 0;
        for (int64_t c = 0; c < C; c++) {
            double normed = (tensor_get(x, r * C + c) - center) * inverse;
            double grad = tensor_get(dy, r * C + c), g = grad * tensor_get(gamma, c);
            mean_g += g / (double)C;
            mean_gn += g * normed / (double)C;
            gamma_sum[c] += grad * normed;
            beta_sum[c] += grad;
        }
        for (int64_t c = 0; c < C; c++) {
            double normed = (tensor_get(x, r * C + c) - center) * inverse;
            double g = tensor_get(dy, r * C + c) * tensor_get(gamma, c);
            double dnorm = inverse * (g - mean_g - normed * mean_gn);
            tensor_put(dx, r * C + c, dnorm + (dres.data ? tensor_get(dres, r * C + c) : 0));
        }
    }
    for (int64_t c = 0; c < C; c++) {
        if (dgamma.data) tensor_f32(dgamma)[c] = (float)(tensor_f32(dgamma)[c] + gamma_sum[c]);
        if (dbeta.data) tensor_f32(dbeta)[c] = (float)(tensor_f32(dbeta)[c] + beta_sum[c]);
    }
    add_column_sums(sums.dx, dx);
    return OK;
}

Status dropout_add_norm_forward_ref(Stream *stream, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                    Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                    Dropout dropout) {
    TRY(dropout_add_forward_ref(stream, sum, res, y, dropout));
    return layernorm_forward_ref(stream, out, mean, rstd, sum, gamma, beta, eps);
}
