#include "tensor/dtype.h"

#include <math.h>

static const struct {
    const char *name;
    size_t size;
} types[DT_COUNT] = {
    [DT_F32] = {"fp32", 4},
    [DT_BF16] = {"bf16", 2},
    [DT_F16] = {"fp16", 2},
    [DT_F64] = {"fp64", 8},
    [DT_I32] = {"int32", 4},
    [DT_I64] = {"int64", 8},
    [DT_U8] = {"uint8", 1},
    [DT_E4M3] = {"e4m3", 1},
    [DT_E5M2] = {"e5m2", 1},
    [DT_I8] = {"int8", 1},
    [DT_F32_LOWER] = {"lower half", 2},
    [DT_Q8] = {"int8 weights", 1},
    [DT_Q4] = {"int4 weights", 1},
    [DT_SPARSE] = {"sparse weights", 1},
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
    if (magnitude >= 0x477ff000u) return sign | 0x7c00; /* overflows 65504 after rounding */
    if (magnitude < 0x38800000u) {                      /* subnormal: a multiple of 2^-24 */
        float steps = rintf(fabsf(value) * 0x1p24f);
        return sign | (uint16_t)steps;
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (uint16_t)((rounded >> 13) - (112u << 10));
}

/* An fp8 format: mantissa bits, exponent bias, and the largest finite value as bits and as a float. */
typedef struct Fp8Format {
    int fraction, bias;
    uint8_t largest_bits;
    float largest;
} Fp8Format;

static const Fp8Format e4m3 = {3, 7, 0x7e, 448}, e5m2 = {2, 15, 0x7b, 57344};

static uint8_t to_fp8(float value, Fp8Format type) {
    if (isnan(value)) return 0x7f;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float magnitude = fabsf(value);
    if (magnitude >= type.largest) return sign | type.largest_bits;
    if (magnitude == 0) return sign;
    int exponent = ilogbf(magnitude), least = 1 - type.bias; /* exponent of the smallest normal number */
    if (exponent < least) exponent = least;
    int steps = (int)rintf(ldexpf(magnitude, type.fraction - exponent));
    return sign | (uint8_t)(((exponent + type.bias - 1) << type.fraction) +
                            steps); /* a mantissa carry increments the exponent */
}

static float from_fp8(uint8_t bits, Fp8Format type) {
    int exponent = (bits & 0x7f) >> type.fraction, fraction = bits & ((1 << type.fraction) - 1);
    if (exponent) fraction += 1 << type.fraction;
    float value = ldexpf((float)fraction, (exponent ? exponent : 1) - type.bias - type.fraction);
    return bits & 0x80 ? -value : value;
}

uint8_t f32_to_e4m3(float value) {
    return to_fp8(value, e4m3);
}
uint8_t f32_to_e5m2(float value) {
    return to_fp8(value, e5m2);
}
float e4m3_to_f32(uint8_t bits) {
    return (bits & 0x7f) == 0x7f ? NAN : from_fp8(bits, e4m3);
}
float e5m2_to_f32(uint8_t bits) {
    if ((bits & 0x7f) > 0x7c) return NAN;
    if ((bits & 0x7f) == 0x7c) return bits & 0x80 ? -INFINITY : INFINITY;
    return from_fp8(bits, e5m2);
}

static double load(const void *src, DType type, size_t i) {
    switch (type) {
    case DT_F32: return ((const float *)src)[i];
    case DT_BF16: return bf16_to_f32(((const uint16_t *)src)[i]);
    case DT_F16: return f16_to_f32(((const uint16_t *)src)[i]);
    case DT_E4M3: return e4m3_to_f32(((const uint8_t *)src)[i]);
    case DT_E5M2: return e5m2_to_f32(((const uint8_t *)src)[i]);
    default: return ((const double *)src)[i];
    }
}

static void store(void *dst, DType type, size_t i, double value) {
    switch (type) {
    case DT_F32: ((float *)dst)[i] = (float)value; break;
    case DT_BF16: ((uint16_t *)dst)[i] = f32_to_bf16((float)value); break;
    case DT_F16: ((uint16_t *)dst)[i] = f32_to_f16((float)value); break;
    case DT_E4M3: ((uint8_t *)dst)[i] = f32_to_e4m3((float)value); break;
    case DT_E5M2: ((uint8_t *)dst)[i] = f32_to_e5m2((float)value); break;
    default: ((double *)dst)[i] = value;
    }
}

static bool is_floating(DType dtype) {
    return dtype <= DT_F64 || dtype == DT_E4M3 || dtype == DT_E5M2;
}

Status dtype_convert(void *dst, DType dst_type, const void *src, DType src_type, size_t count) {
    if (!is_floating(dst_type) || !is_floating(src_type))
        return FAILED("cannot convert %s to %s", dtype_name(src_type), dtype_name(dst_type));
    if (dst_type == src_type) {
        memcpy(dst, src, count * dtype_size(src_type));
        return OK;
    }
    for (size_t i = 0; i < count; i++) store(dst, dst_type, i, load(src, src_type, i));
    return OK;
}
