/* The functions of kernels.h, continued: optimizers. */
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

/* Flat fp32 with an optional copy of any compute type, or halves. */
static Status check_param(const char *kernel, Tensor param, Tensor copy) {
    int64_t count = tensor_count(param);
    if (param.dtype == DT_F32_LOWER) return check_like(kernel, "copy", copy, tensor_1d(NULL, DT_BF16, count));
    TRY(check_like(kernel, "param", param, tensor_1d(NULL, DT_F32, count)));
    if (!copy.data) return OK;
    TRY(check_float(kernel, "copy", copy));
    return check_count(kernel, "copy", copy, copy.dtype, count);
}

/* The same with an average and a gradient of param's size. */
static Status check_update(const char *kernel, Tensor param, Tensor copy, Tensor m, Tensor grad) {
    Tensor like = tensor_1d(NULL, DT_F32, tensor_count(param));
    TRY(check_param(kernel, param, copy));
    TRY(check_like(kernel, "m", m, like));
    return check_like(kernel, "grad", grad, like);
}

Status adamw_step(Exec *exec, const AdamWPart *part, int parts, AdamW spec) {
    int64_t all = 0;
    double bytes = 0;
    for (int i = 0; i < parts; i++) {
        Tensor param = part[i].param, m = part[i].m, v = part[i].v, grad = part[i].grad;
        int64_t count = tensor_count(param);
        Tensor like = tensor_1d(NULL, DT_F32, count), copy = part[i].copy;
        TRY(check_param(__func__, param, copy));
        CHECK_LIKE(m, like);
        CHECK_LIKE(v, like);
        CHECK_LIKE(grad, like);
        all += count;
        bytes += BYTES(param, m, v, copy, grad);
    }
    if (all == 0) return OK;
    SIZES(all, parts, 0, 0);
    RUN(KERNEL_ADAMW_STEP, 15.0 * (double)all, bytes, adamw_step, part, parts, spec);
}

Status lion_step(Exec *exec, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    int64_t count = tensor_count(param);
    TRY(check_update(__func__, param, copy, m, grad));
    if (count == 0) return OK;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_LION_STEP, 11.0 * (double)count, BYTES(param, m, copy, grad), lion_step, param, m, copy, grad,
        spec);
}

Status sgd_step(Exec *exec, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    int64_t count = tensor_count(param);
    TRY(check_update(__func__, param, copy, m, grad));
    if (count == 0) return OK;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_SGD_STEP, 7.0 * (double)count, BYTES(param, m, copy, grad), sgd_step, param, m, copy, grad,
        spec);
}

Status momentum_step(Exec *exec, Tensor grad, Tensor m, Tensor param, Tensor copy, Momentum spec) {
    int64_t count = tensor_count(grad);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    TRY(check_param(__func__, param, copy));
    CHECK_COUNT(param, param.dtype, count);
    CHECK_LIKE(grad, like);
    CHECK_LIKE(m, like);
    if (count == 0) return OK;
    double read = spec.keep_zeros ? 4.0 * (double)count : 0;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_MOMENTUM_STEP, 7.0 * (double)count, BYTES(grad, m) + read, momentum_step, grad, m, param, copy,
        spec);
}

Status apply_step(Exec *exec, Tensor param, Tensor copy, Tensor update, Apply spec) {
    int64_t count = tensor_count(param);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    TRY(check_param(__func__, param, copy));
    CHECK_LIKE(update, like);
    if (count == 0) return OK;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_APPLY_STEP, 4.0 * (double)count, BYTES(param, copy, update), apply_step, param, copy, update,
        spec);
}

Status normalize(Exec *exec, Tensor y, Tensor x, Tensor total, float eps) {
    int64_t count = tensor_count(x);
    CHECK_FLOAT(y);
    CHECK_COUNT(y, y.dtype, count);
    CHECK_COUNT(x, DT_F32, count);
    CHECK_LIKE(total, tensor_1d(NULL, DT_F64, 1));
    if (count == 0) return OK;
    RUN(KERNEL_NORMALIZE, (double)count, BYTES(y, x, total), normalize, y, x, total, eps);
}
