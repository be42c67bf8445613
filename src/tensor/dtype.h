/* Element types and the conversions between them. */
#ifndef WEFT_TENSOR_DTYPE_H
#define WEFT_TENSOR_DTYPE_H

#include <stdint.h>
#include <string.h>

#include "base/status.h"

typedef enum {
    DT_F32,
    DT_BF16,
    DT_F16,
    DT_F64,
    DT_I32,
    DT_I64,
    DT_U8,
    DT_E4M3, /* fp8: 4 exponent bits, 3 mantissa bits, up to 448, no infinity */
    DT_E5M2, /* fp8: 5 exponent bits, 2 mantissa bits, up to 57344 */
    DT_I8,
    DT_F32_LOWER, /* the lower half of an fp32 value, see f32_halves */
    DT_Q8,        /* int8 weights with scales, packed by int8_pack; opaque outside kernels */
    DT_Q4,        /* int4 weights with scales, packed by int4_pack */
    DT_SPARSE,    /* sparse weights, packed by sparse_pack */
    DT_COUNT
} DType;

size_t dtype_size(DType dtype);
const char *dtype_name(DType dtype); /* "fp32", "bf16" ... */

static inline float bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* Rounds to nearest even. NaN stays NaN. */
static inline uint16_t f32_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Splits an fp32 value: returns the bf16 value it rounds to (the upper half) and stores its lower 16 bits
 * (the rest). Ties round away from zero: if they rounded to even, two values could have the same halves. The
 * upper half of a NaN is a NaN. */
static inline uint16_t f32_halves(float value, uint16_t *ret_rest) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    *ret_rest = (uint16_t)bits;
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x8000) >> 16);
}
static inline float f32_from_halves(uint16_t upper, uint16_t rest) {
    uint32_t bits = ((uint32_t)upper << 16) + (uint32_t)(int32_t)(int16_t)rest;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
/* Round to nearest even and saturate: overflow and infinity become the largest finite value. NaN stays NaN.
 */
uint8_t f32_to_e4m3(float value);
uint8_t f32_to_e5m2(float value);
float e4m3_to_f32(uint8_t bits);
float e5m2_to_f32(uint8_t bits);

/* Converts `count` elements between floating-point types; other types are an error. */
MUST_USE Status dtype_convert(void *dst, DType dst_type, const void *src, DType src_type, size_t count);

#endif
