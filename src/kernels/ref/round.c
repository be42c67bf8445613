/* Rounding to a few bits and back. */
#include <math.h>
#include <string.h>

#include "kernels/int4_round.h"
#include "kernels/ref/ref.h"

Status row_largest_ref(Stream *stream, Tensor largest, Tensor x) {
    (void)stream;
    int64_t K = tensor_cols(x);
    for (int64_t m = 0; m < tensor_rows(x); m++) {
        float most = 0;
        for (int64_t k = 0; k < K; k++) {
            float size = (float)fabs(tensor_get(x, m * K + k));
            if (size > most) most = size;
        }
        tensor_f32(largest)[m] = most;
    }
    return OK;
}

Status round_int8_ref(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        float most = tensor_f32(largest)[i / tensor_cols(x)], finer = 127 / most;
        if (isinf(finer)) finer = 0;
        float steps = rintf((float)tensor_get(x, i) * finer);
        tensor_put(y, i, steps * (most / 127));
    }
    return OK;
}

Status round_int4_ref(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    (void)stream;
    int64_t K = tensor_cols(x);
    for (int64_t at = 0; at < tensor_count(x);) {
        float w[INT4_GROUP] = {0}, scale = int4_scale(tensor_f32(largest)[at / K]);
        int64_t count = K - at % K < INT4_GROUP ? K - at % K : INT4_GROUP;
        for (int64_t i = 0; i < count; i++) w[i] = (float)tensor_get(x, at + i);
        int step = int4_step(w, scale);
        float finer = int4_finer(step, scale);
        for (int64_t i = 0; i < count; i++)
            tensor_put(y, at + i, int4_clamp(rintf(w[i] * finer)) * (float)step * scale);
        at += count;
    }
    return OK;
}
