/* Sweep cases: fake quantization to int8 and int4 (quantize and dequantize). Results must match exactly,
 * because one quantization step is a large difference. */
#include <math.h>

#include "base/memory.h"
#include "sweep.h"

/* Rows of random values, zeros, tiny and huge values, and rounding ties. Odd flags add NaN and infinity. */
static Tensor some_values(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], K = args->n[2];
    Tensor x = kit_random(kit, typed(kit, shape2(M, K)));
    for (int64_t i = 0; i < M * K; i++) {
        int64_t m = i / K, k = i % K;
        if (m % 7 == 1) tensor_put(x, i, m % 2 ? 0.0 : -0.0);
        if (m % 7 == 2) tensor_put(x, i, tensor_get(x, i) * 1e-40);
        if (m % 7 == 3) tensor_put(x, i, tensor_get(x, i) * 1e4);
        if (m % 7 == 4) tensor_put(x, i, k % 2 ? 127 : (double)(k * 37 % 255 - 127) * 0.5);
        if (args->flags % 2 && m % 7 == 5 && k == K / 2) tensor_put(x, i, m % 2 ? NAN : -NAN);
        if (args->flags % 2 && m % 7 == 6 && k == K / 3) tensor_put(x, i, m % 2 ? INFINITY : -INFINITY);
    }
    return x;
}

static void row_largest_case(Kit *kit, const Args *args) {
    Tensor x = some_values(kit, args), largest = kit_take(kit, shape1(tensor_rows(x)));
    assert_ok(row_largest(&kit->exec, largest, x));
    kit_output(kit, "largest", largest);
}

void row_largest_sweep(Sweep *sweep) {
    over_rows(sweep, row_largest_case, 2, 0);
}

/* Writes to y, or in place. */
static void round_case(Kit *kit, const Args *args, Status (*round_it)(Exec *, Tensor, Tensor, Tensor)) {
    Tensor x = some_values(kit, args), largest = kit_take(kit, shape1(tensor_rows(x))), y = x;
    if (args->n[0] % 2) y = kit_take(kit, typed(kit, shape2(tensor_rows(x), tensor_cols(x))));
    for (int64_t i = 0; i < tensor_count(x); i++) {
        float size = (float)fabs(tensor_get(x, i)), *max = &tensor_f32(largest)[i / tensor_cols(x)];
        if (i % tensor_cols(x) == 0 || size > *max) *max = size > 0 ? size : 0;
    }
    assert_ok(round_it(&kit->exec, y, x, largest));
    kit_output(kit, "y", y);
}

static void round_int8_case(Kit *kit, const Args *args) {
    round_case(kit, args, round_int8);
}

static void round_int4_case(Kit *kit, const Args *args) {
    round_case(kit, args, round_int4);
}

void round_int8_sweep(Sweep *sweep) {
    over_rows(sweep, round_int8_case, 2, 0);
}

void round_int4_sweep(Sweep *sweep) {
    over_rows(sweep, round_int4_case, 2, 0);
}

/* ---- int8 gradients ---- */

/* Several blocks, each of another kind; the last may be short. */
static void quantize_blocks_case(Kit *kit, const Args *args) {
    int64_t N = args->n[0] * args->n[1] * args->n[2];
    Tensor x = kit_random(kit, shape1(N)), left = kit_random(kit, shape1(N)),
           scales = kit_take(kit, shape1(quant_blocks(N))), bytes = kit_take(kit, shape1((N + 3) / 4)),
           q = kit_take(kit, shape1(N));
    for (int64_t i = 0; i < N; i++) {
        int64_t kind = i / QUANT_BLOCK % 6;
        if (kind == 1) tensor_put(x, i, 0);
        if (kind == 2) tensor_put(x, i, tensor_get(x, i) * 1e-40);
        if (kind == 3) tensor_put(x, i, i % 2 ? 127 : (double)(i * 37 % 255 - 127) * 0.5);
        if (args->flags % 2 && kind == 4 && i % 7 == 0) tensor_put(x, i, i % 2 ? NAN : INFINITY);
        tensor_put(left, i, kind > 0 && kind < 4 ? 0 : tensor_get(left, i) / 100);
    }
    assert_ok(quantize_blocks(&kit->exec, tensor_1d(bytes.data, DT_I8, N), scales, left, x));
    assert_ok(stream_sync(kit->exec.stream));
    for (int64_t i = 0; i < N; i++) tensor_put(q, i, ((const int8_t *)bytes.data)[i]);
    kit_output(kit, "q", q);
    kit_output(kit, "scales", scales);
    kit_output(kit, "residual", left);
}

void quantize_blocks_sweep(Sweep *sweep) {
    over_rows(sweep, quantize_blocks_case, 2, 0);
}

/* Odd flags accumulate. */
static void dequantize_blocks_case(Kit *kit, const Args *args) {
    int64_t N = args->n[0] * args->n[1] * args->n[2];
    Tensor scales = kit_random(kit, shape1(quant_blocks(N))), bytes = kit_take(kit, shape1((N + 3) / 4)),
           y = kit_random(kit, shape1(N));
    for (int64_t i = 0; i < N; i++) ((int8_t *)bytes.data)[i] = (int8_t)(i * 37 % 255 - 127);
    if (quant_blocks(N) > 2) tensor_put(scales, 1, NAN);
    assert_ok(dequantize_blocks(&kit->exec, y, tensor_1d(bytes.data, DT_I8, N), scales, args->flags % 2));
    kit_output(kit, "y", y);
}

void dequantize_blocks_sweep(Sweep *sweep) {
    over_rows(sweep, dequantize_blocks_case, 2, 0);
}

/* Every code, by the flag; what is decoded was encoded on the host. The last block is short. */
static void decode_blocks_case(Kit *kit, const Args *args) {
    int64_t N = args->n[0] * args->n[1] * args->n[2];
    BlockCode code = (BlockCode)(1 + args->flags % 3);
    Tensor x = kit_random(kit, shape1(N)), scales = kit_take(kit, shape1(code_blocks(N))),
           bytes = kit_take(kit, shape1((N + 3) / 4)), y = kit_take(kit, typed(kit, shape1(N)));
    CLEANUP(mem_freep) float *values = NULL, *scale = NULL;
    assert_ok(mem_new((size_t)N, sizeof *values, &values));
    assert_ok(mem_new((size_t)code_blocks(N), sizeof *scale, &scale));
    for (int64_t i = 0; i < N; i++) values[i] = (float)tensor_get(x, i);
    blocks_encode(code, bytes.data, scale, values, N);
    for (int64_t i = 0; i < code_blocks(N); i++) tensor_f32(scales)[i] = scale[i];
    Tensor codes = tensor_1d(bytes.data, DT_U8, code_bytes(code, N));
    assert_ok(decode_blocks(&kit->exec, y, codes, scales, code));
    kit_output(kit, "y", y);
}

void decode_blocks_sweep(Sweep *sweep) {
    over_rows(sweep, decode_blocks_case, 3, 0);
}
