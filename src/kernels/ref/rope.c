/* Rotary position embedding. Backward rotates by the opposite angle. */
#include "kernels/ref/ref.h"

static void rotate(Tensor x, int64_t at, const float *row, int64_t half, double sign) {
    for (int64_t i = 0; i < half; i++) {
        double c = row[i], s = sign * row[half + i];
        double first = tensor_get(x, at + i), second = tensor_get(x, at + half + i);
        tensor_put(x, at + i, first * c - second * s);
        tensor_put(x, at + half + i, second * c + first * s);
    }
}

static Status rope(Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads, double sign) {
    int64_t T = x.dim[1], N = x.dim[2], D = x.dim[3], R = tensor_cols(table);
    int64_t count = heads.count ? heads.count : N;
    for (int64_t i = 0; i < x.dim[0] * T; i++) {
        int64_t at = row_position(positions, origin, T, i / T, i % T, tensor_rows(table));
        for (int64_t h = heads.first; at >= 0 && h < heads.first + count; h++)
            rotate(x, (i * N + h) * D, tensor_f32(table) + at * R, R / 2, sign);
    }
    return OK;
}

Status rope_forward_ref(Stream *stream, Tensor x, Tensor table, Tensor positions, int64_t origin,
                        HeadRange heads) {
    (void)stream;
    return rope(x, table, positions, origin, heads, 1);
}

Status rope_backward_ref(Stream *stream, Tensor dx, Tensor table, Tensor positions, int64_t origin,
                         HeadRange heads) {
    (void)stream;
    return rope(dx, table, positions, origin, heads, -1);
}
