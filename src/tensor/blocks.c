#include "tensor/blocks.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char *const block_code_names[] = {"same", "int8", "int4", "nf4", NULL};

enum { LEVELS = 16 };

const float *code_levels(BlockCode code) {
    static const float nf4[LEVELS] = {-1.0f,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0.0f,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1.0f};
    static const float int4[LEVELS] = {-8.0f / 7, -1.0f,     -6.0f / 7, -5.0f / 7, -4.0f / 7, -3.0f / 7,
                                       -2.0f / 7, -1.0f / 7, 0.0f,      1.0f / 7,  2.0f / 7,  3.0f / 7,
                                       4.0f / 7,  5.0f / 7,  6.0f / 7,  1.0f};
    return code == BLOCKS_NF4 ? nf4 : int4;
}

static int nearest(const float *level, float value) {
    int at = 0;
    while (at + 1 < LEVELS && value > (level[at] + level[at + 1]) / 2) at++;
    return at;
}

static void encode_block(BlockCode code, uint8_t *codes, float scale, const float *values, int64_t count) {
    const float *level = code_levels(code);
    float inverse = scale > 0 ? 1 / scale : 0;
    if (!isfinite(inverse)) inverse = 0;
    memset(codes, 0, (size_t)code_bytes(code, count));
    for (int64_t i = 0; i < count; i++) {
        float value = isfinite(scale) ? values[i] * inverse : 0;
        if (code == BLOCKS_INT8)
            codes[i] = (uint8_t)(int8_t)lrintf(value * 127);
        else
            codes[i / 2] |= (uint8_t)(nearest(level, value) << (i % 2 ? 0 : 4));
    }
}

void blocks_encode(BlockCode code, uint8_t *codes, float *scales, const float *values, int64_t count) {
#pragma omp parallel for schedule(static) if (count > 65536)
    for (int64_t b = 0; b < code_blocks(count); b++) {
        int64_t at = b * CODE_BLOCK, n = count - at < CODE_BLOCK ? count - at : CODE_BLOCK;
        float most = 0;
        for (int64_t i = 0; i < n; i++) /* NaN stays */
            if (!(fabsf(values[at + i]) <= most)) most = fabsf(values[at + i]);
        if (!isfinite(most)) most = NAN;
        scales[b] = most;
        encode_block(code, codes + code_bytes(code, at), most, values + at, n);
    }
}

void blocks_decode(BlockCode code, float *values, const uint8_t *codes, const float *scales, int64_t count) {
    const float *level = code_levels(code);
    for (int64_t i = 0; i < count; i++) {
        float one =
            code == BLOCKS_INT8 ? (float)(int8_t)codes[i] / 127 : level[codes[i / 2] >> (i % 2 ? 0 : 4) & 15];
        values[i] = one * scales[i / CODE_BLOCK];
    }
}
