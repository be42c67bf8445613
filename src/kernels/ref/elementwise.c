/* Array arithmetic and reductions. */
#include "kernels/ref/ref.h"

Status fill_ref(Stream *stream, Tensor x, float value) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_put(x, i, value);
    return OK;
}

Status convert_ref(Stream *stream, Tensor y, Tensor x) {
    (void)stream;
    return dtype_convert(y.data, y.dtype, x.data, x.dtype, (size_t)tensor_count(x));
}

Status add_ref(Stream *stream, Tensor y, Tensor x) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++) tensor_put(y, i, tensor_get(y, i) + tensor_get(x, i));
    return OK;
}

Status scale_ref(Stream *stream, Tensor y, float factor) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(y); i++) tensor_put(y, i, tensor_get(y, i) * factor);
    return OK;
}

Status sum_ref(Stream *stream, Tensor total, Tensor x) {
    (void)stream;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) sum += tensor_get(x, i);
    *(double *)total.data += sum;
    return OK;
}

Status sum_squares_ref(Stream *stream, Tensor total, Tensor x) {
    (void)stream;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) sum += tensor_get(x, i) * tensor_get(x, i);
    *(double *)total.data += sum;
    return OK;
}

Status sum_squares_parts_ref(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    for (int64_t at = 0, count = tensor_count(x), end; at < count; at = end) {
        int64_t part = (skip + at) / share;
        end = (part + 1) * share - skip < count ? (part + 1) * share - skip : count;
        TRY(sum_squares_ref(stream, tensor_slice(totals, part, 1), tensor_slice(x, at, end - at)));
    }
    return OK;
}
