/* Row operations: gather, its backward scatter_add, transpose and argmax. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

Status argmax_ref(Stream *stream, Tensor index, Tensor x) {
    (void)stream;
    int64_t C = tensor_cols(x);
    for (int64_t m = 0; m < tensor_rows(x); m++) {
        int64_t best = 0;
        float largest = tensor_get(x, m * C);
        bool has_nan = isnan(largest);
        for (int64_t c = 1; c < C; c++) {
            float value = tensor_get(x, m * C + c);
            has_nan |= isnan(value);
            if (value > largest) largest = value, best = c;
        }
        tensor_i32(index)[m] = has_nan || isinf(largest) ? -1 : (int32_t)best;
    }
    return OK;
}

void advance_tokens(Tensor chosen, Tensor tokens, Tensor past) {
    int64_t R = tensor_cols(chosen);
    for (int64_t m = 0; m < tensor_count(tokens); m++) {
        int32_t *token = tensor_i32(tokens) + m, *position = tensor_i32(past) + m;
        tensor_i32(chosen)[m * R + (*position)++ % R] = *token;
        if (*token < 0) *token = 0;
    }
}

Status argmax_advance_ref(Stream *stream, Tensor chosen, Tensor tokens, Tensor past, Tensor x) {
    TRY(argmax_ref(stream, tokens, x));
    advance_tokens(chosen, tokens, past);
    return OK;
}

Status gather_rows_ref(Stream *stream, Tensor out, Tensor x, Tensor index) {
    (void)stream;
    TRY(kernels_check_rows("gather_rows", "index", index, x));
    size_t row = (size_t)tensor_cols(x) * dtype_size(x.dtype);
    for (int64_t m = 0; m < tensor_rows(out); m++)
        memcpy((char *)out.data + (size_t)m * row, (char *)x.data + (size_t)tensor_i32(index)[m] * row, row);
    return OK;
}

Status scatter_add_rows_ref(Stream *stream, Tensor x, Tensor y, Tensor index) {
    (void)stream;
    TRY(kernels_check_rows("scatter_add_rows", "index", index, x));
    int64_t C = tensor_cols(x);
    for (int64_t m = 0; m < tensor_rows(y); m++)
        for (int64_t c = 0; c < C; c++) {
            int64_t at = tensor_i32(index)[m] * C + c;
            tensor_put(x, at, tensor_get(x, at) + tensor_get(y, m * C + c));
        }
    return OK;
}

Status copy_blocks_ref(Stream *stream, Tensor to, Tensor from, Blocks blocks) {
    (void)stream;
    size_t element = dtype_size(to.dtype), bytes = (size_t)blocks.size * element;
    for (int64_t i = 0; i < blocks.count[0]; i++)
        for (int64_t j = 0; j < blocks.count[1]; j++)
            for (int64_t k = 0; k < blocks.count[2]; k++)
                memcpy((char *)to.data + (size_t)block_at(&blocks.to, i, j, k) * element,
                       (char *)from.data + (size_t)block_at(&blocks.from, i, j, k) * element, bytes);
    return OK;
}

Status transpose_ref(Stream *stream, Tensor y, Tensor x) {
    (void)stream;
    int64_t M = tensor_rows(x), N = tensor_cols(x);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) tensor_put(y, n * M + m, tensor_get(x, m * N + n));
    return OK;
}
