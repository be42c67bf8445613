/* The functions of kernels.h, continued: fake quantization (quantize and dequantize). */
#include "kernels/dispatch.h"
#include "kernels/kernels.h"

Status row_largest(Exec *exec, Tensor largest, Tensor x) {
    CHECK_FLOAT(x);
    CHECK_COUNT(largest, DT_F32, tensor_rows(x));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_ROW_LARGEST, (double)tensor_count(x), BYTES(largest, x), row_largest, largest, x);
}

static Status check_fake_quant(const char *kernel, Tensor y, Tensor x, Tensor largest) {
    TRY(check_float(kernel, "x", x));
    TRY(check_like(kernel, "y", y, x));
    return check_count(kernel, "largest", largest, DT_F32, tensor_rows(x));
}

Status round_int8(Exec *exec, Tensor y, Tensor x, Tensor largest) {
    TRY(check_fake_quant(__func__, y, x, largest));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_ROUND_INT8, 3.0 * (double)tensor_count(x), BYTES(y, x, largest), round_int8, y, x, largest);
}

Status round_int4(Exec *exec, Tensor y, Tensor x, Tensor largest) {
    TRY(check_fake_quant(__func__, y, x, largest));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_ROUND_INT4, 128.0 * (double)tensor_count(x), BYTES(y, x, largest), round_int4, y, x, largest);
}
