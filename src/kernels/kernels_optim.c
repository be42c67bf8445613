/* The functions of kernels.h, continued: optimizers. */
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

static Status check_copy(const char *kernel, Tensor copy, int64_t count) {
    if (!copy.data) return OK;
    TRY(check_float(kernel, "copy", copy));
    return check_count(kernel, "copy", copy, copy.dtype, count);
}

Status adamw_step(Exec *exec, const AdamWPart *part, int parts, AdamW spec) {
    int64_t all = 0;
    double bytes = 0;
    for (int i = 0; i < parts; i++) {
        Tensor param = part[i].param, m = part[i].m, v = part[i].v, grad = part[i].grad;
        int64_t count = tensor_count(param);
        Tensor like = tensor_1d(NULL, DT_F32, count), copy = part[i].copy;
        bool halves = param.dtype == DT_REST;
        if (halves)
            CHECK_LIKE(copy, tensor_1d(NULL, DT_BF16, count));
        else
            CHECK_LIKE(param, like);
        CHECK_LIKE(m, like);
        CHECK_LIKE(v, like);
        CHECK_LIKE(grad, like);
        TRY(check_copy(__func__, copy, count));
        all += count;
        bytes += BYTES(param, m, v, copy, grad);
    }
    if (all == 0) return OK;
    SIZES(all, parts, 0, 0);
    RUN(KERNEL_ADAMW_STEP, 15.0 * (double)all, bytes, adamw_step, part, parts, spec);
}

Status lion_step(Exec *exec, Tensor param, Tensor m, Tensor copy, Tensor grad, Lion spec) {
    int64_t count = tensor_count(param);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    CHECK_LIKE(param, like);
    CHECK_LIKE(m, like);
    CHECK_LIKE(grad, like);
    TRY(check_copy(__func__, copy, count));
    if (count == 0) return OK;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_LION_STEP, 11.0 * (double)count, BYTES(param, m, copy, grad), lion_step, param, m, copy, grad,
        spec);
}

Status sgd_step(Exec *exec, Tensor param, Tensor m, Tensor copy, Tensor grad, Sgd spec) {
    int64_t count = tensor_count(param);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    CHECK_LIKE(param, like);
    CHECK_LIKE(m, like);
    CHECK_LIKE(grad, like);
    TRY(check_copy(__func__, copy, count));
    if (count == 0) return OK;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_SGD_STEP, 7.0 * (double)count, BYTES(param, m, copy, grad), sgd_step, param, m, copy, grad,
        spec);
}

Status momentum_step(Exec *exec, Tensor grad, Tensor m, Tensor param, Momentum spec) {
    int64_t count = tensor_count(grad);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    CHECK_LIKE(grad, like);
    CHECK_LIKE(m, like);
    CHECK_LIKE(param, like);
    if (count == 0) return OK;
    Tensor read = spec.keep_zeros ? param : TENSOR_NONE;
    SIZES(count, 1, 0, 0);
    RUN(KERNEL_MOMENTUM_STEP, 7.0 * (double)count, BYTES(grad, m, read), momentum_step, grad, m, param, spec);
}

Status apply_step(Exec *exec, Tensor param, Tensor copy, Tensor update, Apply spec) {
    int64_t count = tensor_count(param);
    Tensor like = tensor_1d(NULL, DT_F32, count);
    CHECK_LIKE(param, like);
    CHECK_LIKE(update, like);
    TRY(check_copy(__func__, copy, count));
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
