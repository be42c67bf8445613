#include "tensor/dtype.h"

#include <math.h>

static const struct {
    const char *name;
    size_t size;
} types[DT_COUNT] = {
    [DT_F32] = {"fp32", 4},  [DT_BF16] = {"bf16", 2}, [DT_F16] = {"fp16", 2}, [DT_F64] = {"fp64", 8},
    [DT_I32] = {"int32", 4}, [DT_I64] = {"int64", 8}, [DT_U8] = {"uint8", 1},
};

size_t dtype_size(DType dtype) {
    return types[dtype].size;
}
const char *dtype_name(DType dtype) {
    return types[dtype].name;
}

float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ffu;
    uint32_t out;
    if (exponent == 0x1f) {
        out = sign | 0x7f800000u | fraction << 13;
    } else if (exponent) {
        out = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        float tiny = (float)fraction * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    float value;
    memcpy(&value, &out, 4);
    return value;
}

uint16_t f32_to_f16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00; /* rounds past 65504 */
    if (magnitude < 0x38800000u) {                      /* below 2^-14: a multiple of 2^-24 */
        float steps = rintf(fabsf(value) * 0x1p24f);
        return sign | (uint16_t)steps;
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (uint16_t)((rounded >> 13) - (112u << 10));
}

static double load(const void *src, DType type, size_t i) {
    switch (type) {
    case DT_F32: return ((const float *)src)[i];
    case DT_BF16: return bf16_to_f32(((const uint16_t *)src)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)src)[i]);
    default: return ((const double *)src)[i];
    }
}

static void store(void *dst, DType type, size_t i, double value) {
    switch (type) {
    case DT_F32: ((float *)dst)[i] = (float)value; break;
    case DT_BF16: ((uint16_t *)dst)[i] = f32_to_bf16((float)value); break;
    case DT_F16: ((uint16_t *)dst)[i] = f32_to_f16((float)value); break;
    default: ((double *)dst)[i] = value;
    }
}

Status dtype_convert(void *dst, DType dst_type, const void *src, DType src_type, size_t count) {
    if (dst_type > DT_F64 || src_type > DT_F64)
        return FAILED("%s cannot be converted to %s", dtype_name(src_type), dtype_name(dst_type));
    if (dst_type == src_type) {
        memcpy(dst, src, count * dtype_size(src_type));
        return OK;
    }
    for (size_t i = 0; i < count; i++) store(dst, dst_type, i, load(src, src_type, i));
    return OK;
}
