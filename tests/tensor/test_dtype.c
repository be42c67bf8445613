/* Tests element types: every bit pattern of the 16-bit and 8-bit floats survives a round trip, and narrowing
 * rounds to nearest even. */
#include <math.h>

#include "tensor/tensor.h"
#include "test.h"

/* Value of an fp16 or bf16 pattern by definition: sign, exponent with this bias, fraction of `fraction_bits`.
 */
static double by_definition(uint16_t pattern, int fraction_bits, int bias) {
    int exponent = (pattern & 0x7fff) >> fraction_bits, top = 0x7fff >> fraction_bits;
    int fraction = pattern & ((1 << fraction_bits) - 1);
    double sign = pattern & 0x8000 ? -1 : 1, unit = ldexp(1, -fraction_bits);
    if (exponent == top) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction * unit, 1 - bias);
    return sign * ldexp(1 + fraction * unit, exponent - bias);
}

static void check_pattern(uint16_t pattern, double value, uint16_t back, double want) {
    if (isnan(want)) {
        assert_true(isnan(value));
        return;
    }
    if (value != want || signbit(value) != signbit(want) || back != pattern)
        fail_msg("pattern %04x decodes to %g, not %g; encoding it again returns %04x", pattern, value, want,
                 back);
}

static void test_all_patterns(void **state) {
    for (unsigned p = 0; p < 65536; p++) {
        uint16_t pattern = (uint16_t)p;
        float half = f16_to_f32(pattern), brain = bf16_to_f32(pattern);
        check_pattern(pattern, half, f32_to_f16(half), by_definition(pattern, 10, 15));
        check_pattern(pattern, brain, f32_to_bf16(brain), by_definition(pattern, 7, 127));
        assert_true(isnan(f16_to_f32(f32_to_f16(half))) == isnan(half));
        assert_true(isnan(bf16_to_f32(f32_to_bf16(brain))) == isnan(brain));
    }
}

/* Between adjacent values, the midpoint rounds to the even one and other values to the nearer one. */
static void check_rounding(uint16_t (*narrow)(float), double low, double high, uint16_t pattern) {
    float middle = (float)((low + high) / 2);
    assert_true(middle == (low + high) / 2); /* exact in fp32 */
    uint16_t even = pattern % 2 ? pattern + 1 : pattern;
    assert_int_equal(narrow(middle), even);
    assert_int_equal(narrow(nextafterf(middle, 0)), pattern);
    assert_int_equal(narrow(nextafterf(middle, INFINITY)), pattern + 1);
    assert_int_equal(narrow(-middle), even | 0x8000);
    assert_int_equal(narrow(-nextafterf(middle, INFINITY)), (pattern + 1) | 0x8000);
}

static uint16_t narrow_bf16(float value) {
    return f32_to_bf16(value);
}

static void test_rounding(void **state) {
    for (uint16_t p = 0; p < 0x7bff; p++)
        check_rounding(f32_to_f16, by_definition(p, 10, 15), by_definition(p + 1, 10, 15), p);
    for (uint16_t p = 0; p < 0x7f7f; p++)
        check_rounding(narrow_bf16, by_definition(p, 7, 127), by_definition(p + 1, 7, 127), p);
}

/* Halves determine the value, and the upper half is the nearest bf16 value; ties round away from zero. */
static void test_halves(void **state) {
    static const uint32_t lower[] = {0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xabcd, 0xffff};
    for (uint32_t upper = 0; upper < 1 << 16; upper++)
        for (size_t i = 0; i < sizeof lower / sizeof *lower; i++) {
            uint32_t bits = upper << 16 | lower[i], again;
            uint16_t rest;
            float value, joined;
            memcpy(&value, &bits, 4);
            uint16_t half = f32_halves(value, &rest);
            joined = f32_from_halves(half, rest);
            memcpy(&again, &joined, 4);
            if (isnan(value)) {
                assert_true(isnan(joined) && isnan(bf16_to_f32(half)));
                continue;
            }
            assert_int_equal(again, bits);
            if (lower[i] != 0x8000)
                assert_int_equal(half, f32_to_bf16(value));
            else
                assert_int_equal(half, upper + 1);
        }
}

static void test_overflow(void **state) {
    assert_int_equal(f32_to_f16(65504), 0x7bff);
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(0x1p-25f), 0); /* half the smallest subnormal rounds to even */
    assert_int_equal(f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(f32_to_bf16(-INFINITY), 0xff80);
}

typedef struct Float8 {
    uint8_t (*narrow)(float);
    float (*widen)(uint8_t);
    int fraction_bits, bias;
    uint8_t largest; /* pattern of the largest finite value */
} Float8;

static double float8_by_definition(const Float8 *type, uint8_t pattern) {
    int exponent = pattern >> type->fraction_bits, fraction = pattern & ((1 << type->fraction_bits) - 1);
    double unit = ldexp(1, -type->fraction_bits);
    if (exponent == 0) return ldexp(fraction * unit, 1 - type->bias);
    return ldexp(1 + fraction * unit, exponent - type->bias);
}

/* Every value survives a round trip, midpoints round to even, and values out of range saturate. */
static void test_float8(void **state) {
    static const Float8 types[] = {{f32_to_e4m3, e4m3_to_f32, 3, 7, 0x7e},
                                   {f32_to_e5m2, e5m2_to_f32, 2, 15, 0x7b}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const Float8 *type = &types[i];
        for (uint8_t p = 0; p <= type->largest; p++) {
            float value = (float)float8_by_definition(type, p);
            assert_true(type->widen(p) == value && type->widen(p | 0x80) == -value);
            assert_int_equal(type->narrow(value), p);
            assert_int_equal(type->narrow(-value), p | 0x80);
            if (p == type->largest) continue;
            float middle = (value + (float)float8_by_definition(type, p + 1)) / 2;
            assert_int_equal(type->narrow(middle), p % 2 ? p + 1 : p);
            assert_int_equal(type->narrow(nextafterf(middle, 0)), p);
            assert_int_equal(type->narrow(nextafterf(middle, INFINITY)), p + 1);
        }
        float largest = type->widen(type->largest);
        assert_int_equal(type->narrow(nextafterf(largest, INFINITY)), type->largest);
        assert_int_equal(type->narrow(INFINITY), type->largest);
        assert_int_equal(type->narrow(-1e38f), type->largest | 0x80);
        assert_true(isnan(type->widen(type->narrow(NAN))));
        assert_true(isnan(type->widen(0x7f)) && isnan(type->widen(0xff)));
    }
    assert_true(e4m3_to_f32(0x7e) == 448 && e5m2_to_f32(0x7b) == 57344);
    assert_true(isinf(e5m2_to_f32(0x7c)) && e5m2_to_f32(0xfc) < 0);
}

static void test_convert(void **state) {
    const float in[] = {1, -2.5f, 0.333333343f, 1e-3f};
    uint16_t half[4];
    double wide[4];
    float out[4];
    static const DType narrow[] = {DT_BF16, DT_F16};
    static const double worst[] = {0x1p-8, 0x1p-11};
    for (int i = 0; i < 2; i++) {
        assert_ok(dtype_convert(half, narrow[i], in, DT_F32, 4));
        assert_ok(dtype_convert(wide, DT_F64, half, narrow[i], 4));
        assert_ok(dtype_convert(out, DT_F32, wide, DT_F64, 4));
        for (int j = 0; j < 4; j++)
            assert_true(fabs((double)out[j] - in[j]) <= worst[i] * fabs((double)in[j]));
    }
    assert_ok(dtype_convert(out, DT_F32, in, DT_F32, 4));
    assert_memory_equal(out, in, sizeof in);
    assert_fails(dtype_convert(out, DT_F32, in, DT_I32, 4), STATUS_FAILED, "cannot convert int32 to fp32");
}

static void test_names(void **state) {
    static const size_t sizes[DT_COUNT] = {
        [DT_F32] = 4,       [DT_BF16] = 2, [DT_F16] = 2,  [DT_F64] = 8,   [DT_I32] = 4,
        [DT_I64] = 8,       [DT_U8] = 1,   [DT_E4M3] = 1, [DT_E5M2] = 1,  [DT_I8] = 1,
        [DT_F32_LOWER] = 2, [DT_Q8] = 1,   [DT_Q4] = 1,   [DT_SPARSE] = 1};
    for (int i = 0; i < DT_COUNT; i++) {
        assert_int_equal(dtype_size(i), sizes[i]);
        assert_non_null(dtype_name(i));
    }
    assert_string_equal(dtype_name(DT_BF16), "bf16");
}

static void test_views(void **state) {
    float data[24];
    Tensor t = tensor_3d(data, DT_F32, 2, 3, 4);
    assert_int_equal(tensor_count(t), 24);
    assert_int_equal(tensor_bytes(t), 96);
    assert_int_equal(tensor_rows(t), 6);
    assert_int_equal(tensor_cols(t), 4);
    Tensor second = tensor_slice(t, 1, 1);
    assert_ptr_equal(second.data, data + 12);
    assert_int_equal(tensor_count(second), 12);
    assert_int_equal(tensor_matrix(t).dim[0], 6);
    assert_null(tensor_slice(tensor_2d(NULL, DT_F32, 4, 4), 2, 1).data);
    assert_int_equal(tensor_rows(tensor_2d(data, DT_F32, 3, 0)), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_patterns), cmocka_unit_test(test_rounding), cmocka_unit_test(test_halves),
        cmocka_unit_test(test_overflow),     cmocka_unit_test(test_float8),   cmocka_unit_test(test_convert),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
