/* The functions of kernels.h, continued: what Llama, Mistral and Qwen need beyond GPT-2 and BERT, that is,
 * RMS norm, rotary position embedding and gated activations. */
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

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

/* FLOPs and bytes of a rotation; *ret_work is false if there is nothing to rotate. */
static Status check_rope(const char *kernel, Tensor x, Tensor table, Tensor positions, HeadRange heads,
                         double *ret_flops, double *ret_bytes, bool *ret_work) {
    TRY(check_float(kernel, "x", x));
    if (x.ndim != 4) return FAILED("internal: %s: x has %d dims; expected (B, T, N, D)", kernel, x.ndim);
    int64_t B = x.dim[0], T = x.dim[1], D = x.dim[3], R = tensor_cols(table), rows = 0;
    TRY(check_heads(kernel, x, heads, &rows));
    TRY(check_matrix(kernel, "table", table, DT_F32, tensor_rows(table), R));
    if (R % 2 || R > D)
        return FAILED("internal: %s: table has %lld columns; expected an even number up to %lld", kernel,
                      (long long)R, (long long)D);
    if (positions.data && positions.ndim != 1 && positions.ndim != 2)
        return FAILED("internal: %s: positions has %d dims; expected (B) or (B, T)", kernel, positions.ndim);
    if (positions.data) TRY(check_index(kernel, "positions", positions, positions.ndim == 1 ? B : B * T));
    *ret_flops = 3.0 * (double)rows * (double)R;
    *ret_bytes = (double)(rows * R) * (double)dtype_size(x.dtype) + 4.0 * (double)(B * T * R);
    *ret_work = rows > 0 && R > 0;
    return OK;
}

Status rope_forward(Exec *exec, Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads) {
    double flops = 0, bytes = 0;
    bool work = false;
    TRY(check_rope(__func__, x, table, positions, heads, &flops, &bytes, &work));
    if (!work) return OK;
    RUN(KERNEL_ROPE_FORWARD, flops, bytes, rope_forward, x, table, positions, origin, heads);
}

Status rope_backward(Exec *exec, Tensor dx, Tensor table, Tensor positions, int64_t origin, HeadRange heads) {
    double flops = 0, bytes = 0;
    bool work = false;
    TRY(check_rope(__func__, dx, table, positions, heads, &flops, &bytes, &work));
    if (!work) return OK;
    RUN(KERNEL_ROPE_BACKWARD, flops, bytes, rope_backward, dx, table, positions, origin, heads);
}

Status glu_forward(Exec *exec, Tensor y, Tensor x, Act act) {
    CHECK_FLOAT(y);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(y);
    CHECK_COUNT(x, y.dtype, 2 * count);
    if (count == 0) return OK;
    RUN(KERNEL_GLU_FORWARD, (1 + act_forward_flops[act]) * (double)count, BYTES(y, x), glu_forward, y, x,
        act);
}

Status glu_backward(Exec *exec, Tensor dx, Tensor y, Tensor dy, Tensor x, Act act) {
    CHECK_FLOAT(dy);
    TRY(check_act(__func__, act));
    int64_t count = tensor_count(dy);
    CHECK_COUNT(x, dy.dtype, 2 * count);
    CHECK_COUNT(dx, dy.dtype, 2 * count);
    if (y.data) CHECK_LIKE(y, dy);
    if (count == 0) return OK;
    RUN(KERNEL_GLU_BACKWARD, (2 + act_forward_flops[act] + act_backward_flops[act]) * (double)count,
        BYTES(dx, y, dy, x), glu_backward, dx, y, dy, x, act);
}
