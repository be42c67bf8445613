/* The functions of kernels.h, continued: fake quantization (quantize and dequantize), and int8 gradients. */
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

static Status check_blocks(const char *kernel, Tensor values, Tensor q, Tensor scales) {
    int64_t count = tensor_count(values);
    TRY(check_count(kernel, "values", values, DT_F32, count));
    TRY(check_count(kernel, "q", q, DT_I8, count));
    return check_count(kernel, "scales", scales, DT_F32, quant_blocks(count));
}

Status quantize_blocks(Exec *exec, Tensor q, Tensor scales, Tensor residual, Tensor x) {
    TRY(check_blocks(__func__, x, q, scales));
    TRY(check_like(__func__, "residual", residual, x));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_QUANTIZE_BLOCKS, 5.0 * (double)tensor_count(x), BYTES(q, scales, residual, residual, x),
        quantize_blocks, q, scales, residual, x);
}

Status dequantize_blocks(Exec *exec, Tensor y, Tensor q, Tensor scales, bool accumulate) {
    TRY(check_blocks(__func__, y, q, scales));
    if (tensor_count(y) == 0) return OK;
    RUN(KERNEL_DEQUANTIZE_BLOCKS, 2.0 * (double)tensor_count(y), BYTES(y, q, scales), dequantize_blocks, y, q,
        scales, accumulate);
}

Status decode_blocks(Exec *exec, Tensor y, Tensor codes, Tensor scales, BlockCode code) {
    int64_t count = tensor_count(y);
    CHECK_FLOAT(y);
    CHECK_COUNT(codes, DT_U8, code_bytes(code, count));
    CHECK_COUNT(scales, DT_F32, code_blocks(count));
    if (count == 0) return OK;
    RUN(KERNEL_DECODE_BLOCKS, (double)count, BYTES(y, codes, scales), decode_blocks, y, codes, scales, code);
}
