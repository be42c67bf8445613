/* Array arithmetic and sums. */
#include "kernels/ref/ref.h"

Status fill_ref(Stream *stream, Tensor x, float value) {
    (void)stream;
    FP32_ONLY("fill", x);
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_f32(x)[i] = value;
    return OK;
}

Status convert_ref(Stream *stream, Tensor y, Tensor x) {
    (void)stream;
    return dtype_convert(y.data, y.dtype, x.data, x.dtype, (size_t)tensor_count(x));
}

Status add_ref(Stream *stream, Tensor y, Tensor x) {
    (void)stream;
    FP32_ONLY("add", y, x);
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_f32(y)[i] += tensor_f32(x)[i];
    return OK;
}

Status scale_ref(Stream *stream, Tensor y, float factor) {
    (void)stream;
    FP32_ONLY("scale", y);
    for (int64_t i = 0; i < tensor_count(y); i++) tensor_f32(y)[i] *= factor;
    return OK;
}

Status sum_ref(Stream *stream, Tensor total, Tensor x) {
    (void)stream;
    FP32_ONLY("sum", x);
    double here = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) here += tensor_f32(x)[i];
    *(double *)total.data += here;
    return OK;
}

Status sum_squares_ref(Stream *stream, Tensor total, Tensor x) {
    (void)stream;
    FP32_ONLY("sum_squares", x);
    double here = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) here += (double)tensor_f32(x)[i] * tensor_f32(x)[i];
    *(double *)total.data += here;
    return OK;
}
