/* The functions of kernels.h, continued: layer norm and RMS norm. */
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

Status layernorm_forward(Exec *exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma, Tensor beta,
                         float eps) {
    CHECK_FLOAT(x);
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    CHECK_MATRIX(y, x.dtype, rows, C);
    CHECK_COUNT(mean, DT_F32, rows);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, x.dtype, C);
    CHECK_COUNT(beta, x.dtype, C);
    if (rows == 0) return OK;
    RUN(KERNEL_LAYERNORM_FORWARD, 7.0 * (double)tensor_count(x), BYTES(y, mean, rstd, x, gamma, beta),
        layernorm_forward, y, mean, rstd, x, gamma, beta, eps);
}

Status layernorm_backward(Exec *exec, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                          Tensor mean, Tensor rstd, Tensor gamma, Tensor dres, NormSums sums) {
    CHECK_FLOAT(x);
    int64_t rows = tensor_rows(x), C = tensor_cols(x);
    CHECK_MATRIX(dx, x.dtype, rows, C);
    CHECK_MATRIX(dy, x.dtype, rows, C);
    if (dgamma.data) CHECK_COUNT(dgamma, DT_F32, C);
    if (dbeta.data) CHECK_COUNT(dbeta, DT_F32, C);
    CHECK_COUNT(mean, DT_F32, rows);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, x.dtype, C);
    if (dres.data) CHECK_MATRIX(dres, x.dtype, rows, C);
    if (sums.dx.data) TRY(check_count(__func__, "sums of dx", sums.dx, DT_F32, C));
    if (sums.dres.data) TRY(check_count(__func__, "sums of dres", sums.dres, DT_F32, dres.data ? C : 0));
    if (rows == 0) return OK;
    RUN(KERNEL_LAYERNORM_BACKWARD, 14.0 * (double)tensor_count(x),
        BYTES(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dres), layernorm_backward, dx, dgamma, dbeta, dy,
        x, mean, rstd, gamma, dres, sums);
}

Status dropout_add_norm_forward(Exec *exec, Tensor sum, Tensor out, Tensor mean, Tensor rstd, Tensor res,
                                Tensor y, Tensor gamma, Tensor beta, float eps, Dropout dropout) {
    CHECK_FLOAT(y);
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    CHECK_MATRIX(sum, y.dtype, rows, C);
    CHECK_MATRIX(out, y.dtype, rows, C);
    CHECK_MATRIX(res, y.dtype, rows, C);
    CHECK_COUNT(mean, DT_F32, rows);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, y.dtype, C);
    CHECK_COUNT(beta, y.dtype, C);
    TRY(check_dropout(__func__, &dropout, y));
    if (rows == 0) return OK;
    SIZES(0, 0, 0, dropout.p > 0 ? OP_DROPOUT : 0);
    RUN(KERNEL_DROPOUT_ADD_NORM_FORWARD, 10.0 * (double)tensor_count(y),
        BYTES(sum, out, mean, rstd, res, y, gamma, beta), dropout_add_norm_forward, sum, out, mean, rstd, res,
        y, gamma, beta, eps, dropout);
}

/* The part of a tensor's bytes that a call on some of its heads reads or writes. */
static double part_of(Tensor tensor, int64_t rows) {
    return (double)rows / (double)tensor_rows(tensor);
}

Status rmsnorm_forward(Exec *exec, Tensor y, Tensor rstd, Tensor x, Tensor gamma, float eps,
                       HeadRange heads) {
    CHECK_FLOAT(x);
    int64_t C = tensor_cols(x), rows = 0;
    TRY(check_heads(__func__, x, heads, &rows));
    CHECK_COUNT(y, x.dtype, tensor_count(x));
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, x.dtype, C);
    if (rows == 0 || C == 0) return OK;
    RUN(KERNEL_RMSNORM_FORWARD, 4.0 * (double)(rows * C), part_of(x, rows) * BYTES(y, x) + BYTES(rstd, gamma),
        rmsnorm_forward, y, rstd, x, gamma, eps, heads);
}

Status rmsnorm_backward(Exec *exec, Tensor dx, Tensor dgamma, Tensor dy, Tensor x, Tensor rstd, Tensor gamma,
                        Tensor dres, HeadRange heads) {
    CHECK_FLOAT(x);
    int64_t C = tensor_cols(x), rows = 0;
    TRY(check_heads(__func__, x, heads, &rows));
    CHECK_COUNT(dx, x.dtype, tensor_count(x));
    CHECK_COUNT(dy, x.dtype, tensor_count(x));
    if (dgamma.data) CHECK_COUNT(dgamma, DT_F32, C);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, x.dtype, C);
    if (dres.data) CHECK_COUNT(dres, x.dtype, tensor_count(x));
    if (rows == 0 || C == 0) return OK;
    RUN(KERNEL_RMSNORM_BACKWARD, 10.0 * (double)(rows * C),
        part_of(x, rows) * BYTES(dx, dy, x, dres) + BYTES(dgamma, rstd, gamma), rmsnorm_backward, dx, dgamma,
        dy, x, rstd, gamma, dres, heads);
}

Status dropout_add_rmsnorm_forward(Exec *exec, Tensor sum, Tensor out, Tensor rstd, Tensor res, Tensor y,
                                   Tensor gamma, float eps, Dropout dropout) {
    CHECK_FLOAT(y);
    int64_t rows = tensor_rows(y), C = tensor_cols(y);
    CHECK_MATRIX(sum, y.dtype, rows, C);
    CHECK_MATRIX(out, y.dtype, rows, C);
    CHECK_MATRIX(res, y.dtype, rows, C);
    CHECK_COUNT(rstd, DT_F32, rows);
    CHECK_COUNT(gamma, y.dtype, C);
    TRY(check_dropout(__func__, &dropout, y));
    if (rows == 0) return OK;
    SIZES(0, 0, 0, dropout.p > 0 ? OP_DROPOUT : 0);
    RUN(KERNEL_DROPOUT_ADD_RMSNORM_FORWARD, 7.0 * (double)tensor_count(y),
        BYTES(sum, out, rstd, res, y, gamma), dropout_add_rmsnorm_forward, sum, out, rstd, res, y, gamma, eps,
        dropout);
}
