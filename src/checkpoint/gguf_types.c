/* Tensor types of GGUF.
 *
 * A block of Q8_0 is an fp16 scale d and 32 int8 values q with x = d * q, where d is the largest magnitude
 * divided by 127. A block of Q4_0 is an fp16 scale d and 32 values of 4 bits with x = d * (q - 8), where d is
 * the value of largest magnitude divided by -8; byte i has value i in its low and value i + 16 in its high
 * bits. Values are rounded with the scale before it is rounded to fp16.
 */
#include <math.h>
#include <string.h>

#include "checkpoint/gguf.h"

static const struct {
    const char *name;
    GgufType type;
} types[] = {
    {"fp32", GGUF_F32}, {"fp16", GGUF_F16}, {"bf16", GGUF_BF16}, {"q8_0", GGUF_Q8_0}, {"q4_0", GGUF_Q4_0},
};

enum { TYPES = sizeof types / sizeof *types };

bool gguf_type_find(const char *name, GgufType *ret_type) {
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name)) continue;
        *ret_type = types[i].type;
        return true;
    }
    return false;
}

const char *gguf_type_name(GgufType type) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return types[i].name;
    return "unknown";
}

bool gguf_is_path(const char *path) {
    size_t size = strlen(path);
    return size > 5 && !strcmp(path + size - 5, ".gguf");
}

size_t gguf_bytes(GgufType type, int64_t count) {
    size_t n = (size_t)count;
    switch (type) {
    case GGUF_F32: return 4 * n;
    case GGUF_Q8_0: return n / GGUF_BLOCK * (2 + GGUF_BLOCK);
    case GGUF_Q4_0: return n / GGUF_BLOCK * (2 + GGUF_BLOCK / 2);
    default: return 2 * n;
    }
}

/* The value with the largest magnitude; the first of several. */
static float largest_of(const float *values) {
    float largest = 0;
    for (int i = 0; i < GGUF_BLOCK; i++)
        if (fabsf(values[i]) > fabsf(largest)) largest = values[i];
    return largest;
}

static unsigned char *put_scale(unsigned char *out, float scale) {
    uint16_t half = f32_to_f16(scale);
    memcpy(out, &half, sizeof half);
    return out + sizeof half;
}

static unsigned char *put_q8(unsigned char *out, const float *values) {
    float scale = fabsf(largest_of(values)) / 127, inverse = scale != 0 ? 1 / scale : 0;
    out = put_scale(out, scale);
    for (int i = 0; i < GGUF_BLOCK; i++) *out++ = (unsigned char)(int8_t)roundf(values[i] * inverse);
    return out;
}

static unsigned nibble(float value) {
    int rounded = (int)(value + 8.5f);
    return (unsigned)(rounded > 15 ? 15 : rounded < 0 ? 0 : rounded);
}

static unsigned char *put_q4(unsigned char *out, const float *values) {
    float scale = largest_of(values) / -8, inverse = scale != 0 ? 1 / scale : 0;
    out = put_scale(out, scale);
    for (int i = 0; i < GGUF_BLOCK / 2; i++)
        *out++ =
            (unsigned char)(nibble(values[i] * inverse) | nibble(values[i + GGUF_BLOCK / 2] * inverse) << 4);
    return out;
}

void gguf_convert(GgufType type, const float *values, int64_t count, void *ret_data) {
    unsigned char *out = ret_data;
    if (type == GGUF_F32) memcpy(out, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; (type == GGUF_F16 || type == GGUF_BF16) && i < count; i++) {
        uint16_t half = type == GGUF_F16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
    for (int64_t i = 0; type == GGUF_Q8_0 && i < count; i += GGUF_BLOCK) out = put_q8(out, values + i);
    for (int64_t i = 0; type == GGUF_Q4_0 && i < count; i += GGUF_BLOCK) out = put_q4(out, values + i);
}
