/* Fake quantization: quantize and dequantize. Int8 gradients. */
#include <math.h>
#include <string.h>

#include "kernels/int4_round.h"
#include "kernels/ref/ref.h"

Status row_largest_ref(Stream *stream, Tensor largest, Tensor x) {
    (void)stream;
    int64_t K = tensor_cols(x);
    for (int64_t m = 0; m < tensor_rows(x); m++) {
        float row_amax = 0;
        for (int64_t k = 0; k < K; k++) {
            float magnitude = (float)fabs(tensor_get(x, m * K + k));
            if (magnitude > row_amax) row_amax = magnitude;
        }
        tensor_f32(largest)[m] = row_amax;
    }
    return OK;
}

Status round_int8_ref(Stream *stream, Tensor y, Tensor x, Tensor largest) {
    (void)stream;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        float row_amax = tensor_f32(largest)[i / tensor_cols(x)], inverse = 127 / row_amax;
        if (isinf(inverse)) inverse = 0;
        float q = rintf((float)tensor_get(x, i) * inverse);
        tensor_put(y, i, q * (row_amax / 127));
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
        float inverse = int4_inverse_step(step, scale);
        for (int64_t i = 0; i < count; i++)
            tensor_put(y, at + i, int4_clamp(rintf(w[i] * inverse)) * (float)step * scale);
        at += count;
    }
    return OK;
}

static int64_t block_end(int64_t at, int64_t count) {
    return at + QUANT_BLOCK < count ? at + QUANT_BLOCK : count;
}

Status quantize_blocks_ref(Stream *stream, Tensor q, Tensor scales, Tensor residual, Tensor x) {
    (void)stream;
    int64_t count = tensor_count(x);
    float *left = tensor_f32(residual);
    int8_t *out = q.data;
    for (int64_t at = 0; at < count; at += QUANT_BLOCK) {
        int64_t end = block_end(at, count);
        float amax = 0;
        bool finite = true;
        for (int64_t i = at; i < end; i++) {
            float v = tensor_f32(x)[i] + left[i];
            finite = finite && isfinite(v);
            if (fabsf(v) > amax) amax = fabsf(v);
        }
        float scale = amax / 127, inverse = 127 / amax;
        if (isinf(inverse)) inverse = 0;
        tensor_f32(scales)[at / QUANT_BLOCK] = finite ? scale : NAN;
        for (int64_t i = at; i < end; i++) {
            float v = tensor_f32(x)[i] + left[i], rounded = finite ? rintf(v * inverse) : 0;
            out[i] = (int8_t)rounded;
            if (finite) left[i] = fmaf(-rounded, scale, v);
        }
    }
    return OK;
}

Status dequantize_blocks_ref(Stream *stream, Tensor y, Tensor q, Tensor scales, bool accumulate) {
    (void)stream;
    const int8_t *in = q.data;
    for (int64_t i = 0; i < tensor_count(y); i++) {
        float scale = tensor_f32(scales)[i / QUANT_BLOCK], *to = &tensor_f32(y)[i];
        *to = accumulate ? fmaf(in[i], scale, *to) : (float)in[i] * scale;
    }
    return OK;
}

Status decode_blocks_ref(Stream *stream, Tensor y, Tensor codes, Tensor scales, BlockCode code) {
    (void)stream;
    const uint8_t *from = codes.data;
    int64_t count = tensor_count(y);
    for (int64_t at = 0; at < count; at += CODE_BLOCK) {
        int64_t n = count - at < CODE_BLOCK ? count - at : CODE_BLOCK;
        float values[CODE_BLOCK];
        blocks_decode(code, values, from + code_bytes(code, at), tensor_f32(scales) + at / CODE_BLOCK, n);
        for (int64_t i = 0; i < n; i++) tensor_put(y, at + i, (double)values[i]);
    }
    return OK;
}
