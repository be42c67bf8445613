/* RMS norm over rows of C elements; eps is inside the square root. */
#include <math.h>

#include "kernels/ref/ref.h"

Status rmsnorm_forward_ref(Stream *stream, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                           HeadRange heads) {
    (void)stream;
    HeadRows at = head_rows(x, heads);
    for (int64_t r = 0; r < at.rows; r++) {
        int64_t from = head_row(&at, r);
        double squares = 0;
        for (int64_t c = 0; c < at.D; c++) squares += tensor_get(x, from + c) * tensor_get(x, from + c);
        double inverse = 1 / sqrt(squares / (double)at.D + eps);
        for (int64_t c = 0; c < at.D; c++)
            tensor_put(y, from + c, tensor_get(x, from + c) * inverse * tensor_get(gamma, c));
        tensor_put(rstd, r, inverse);
    }
    return OK;
}

/* With n = x * rstd and g = dy * gamma:  dx = rstd * (g - n * mean(g * n)) + dres. */
Status rmsnorm_backward_ref(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd,
                            Tensor gamma, Tensor dres, HeadRange heads) {
    HeadRows at = head_rows(x, heads);
    void *workspace;
    TRY(stream_workspace(stream, (size_t)at.D * sizeof(double), &workspace));
    double *sums = workspace; /* (D) */
    for (int64_t c = 0; c < at.D; c++) sums[c] = 0;
    for (int64_t r = 0; r < at.rows; r++) {
        int64_t from = head_row(&at, r);
        double inverse = tensor_f32(rstd)[r], mean_gn = 0;
        for (int64_t c = 0; c < at.D; c++) {
            double normed = tensor_get(x, from + c) * inverse, grad = tensor_get(dy, from + c);
            mean_gn += grad * tensor_get(gamma, c) * normed / (double)at.D;
            sums[c] += grad * normed;
        }
        for (int64_t c = 0; c < at.D; c++) {
            double normed = tensor_get(x, from + c) * inverse;
            double g = tensor_get(dy, from + c) * tensor_get(gamma, c);
            double dnorm = inverse * (g - normed * mean_gn);
            tensor_put(dx, from + c, dnorm + (dres.data ? tensor_get(dres, from + c) : 0));
        }
    }
    for (int64_t c = 0; dgamma.data && c < at.D; c++)
        tensor_f32(dgamma)[c] = (float)(tensor_f32(dgamma)[c] + sums[c]);
    return OK;
}

Status dropout_add_rmsnorm_forward_ref(Stream *stream, Tensor sum, Tensor out, Tensor rstd, Tensor res,
                                       Tensor y, Tensor gamma, float eps, Dropout dropout) {
    TRY(dropout_add_forward_ref(stream, sum, res, y, dropout));
    return rmsnorm_forward_ref(stream, out, rstd, sum, gamma, eps, (HeadRange){0});
}
