/* Packing of int4 weights; kernels/int4_round.h chooses the group steps. */
#include "compress/int4.h"

#include <math.h>

#include "kernels/int4_round.h"

static int64_t group_size(int64_t cols, int64_t first) {
    return cols - first < INT4_GROUP ? cols - first : INT4_GROUP;
}

void int4_quantize(const float *w, int64_t cols, uint8_t *bytes, int8_t *step, float *ret_scale) {
    float largest = 0;
    for (int64_t k = 0; k < cols; k++)
        if (fabsf(w[k]) > largest) largest = fabsf(w[k]);
    float scale = int4_scale(largest);
    memset(bytes, 0, ((size_t)cols + 1) / 2);
    *ret_scale = scale;
    for (int64_t first = 0; first < cols; first += INT4_GROUP) {
        float group[INT4_GROUP] = {0};
        int64_t count = group_size(cols, first);
        memcpy(group, w + first, (size_t)count * sizeof *group);
        int chosen = int4_step(group, scale);
        step[first / INT4_GROUP] = (int8_t)chosen;
        for (int64_t k = first; k < first + count; k++) {
            int nibble = (int)int4_clamp(rintf(w[k] * int4_inverse_step(chosen, scale))) & 15;
            bytes[k / 2] = (uint8_t)(bytes[k / 2] | nibble << (k % 2 ? 4 : 0));
        }
    }
}

float int4_dequantize(const uint8_t *bytes, const int8_t *step, float scale, int64_t col) {
    int nibble = bytes[col / 2] >> (col % 2 ? 4 : 0) & 15;
    return (float)(((nibble ^ 8) - 8) * step[col / INT4_GROUP]) * scale;
}
