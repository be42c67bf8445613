/* Sweep cases: linear layers with int8 and int4 weights. Both sides compute with the same integers, so
 * results differ only by fp32 rounding, and a single value quantized to a different integer would be
 * detected. Every int8 microkernel of this CPU runs some cases, and the fastest runs all. */
#include <math.h>

#include "kernels/int8.h"
#include "sweep.h"

static Tensor some_weights(Kit *kit, int64_t N, int64_t K, bool factors, bool extra) {
    int64_t rows = extra ? N + 5 : N;
    Tensor w = kit_take(kit, tensor_2d(NULL, DT_I8, rows, K)), factor = TENSOR_NONE;
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < rows * K; i++)
        ((int8_t *)w.data)[i] = (int8_t)((int)(kit_draw(key, i) % 255) - 127);
    Tensor scale = kit_uniform(kit, shape1(rows), 0.001, 0.02);
    if (factors) factor = kit_uniform(kit, shape1(K), 0.25, 4);
    size_t bytes;
    assert_ok(int8_bytes(&kit->exec, rows, K, &bytes));
    Tensor packed = kit_take(kit, tensor_1d(NULL, DT_U8, (int64_t)bytes));
    packed = tensor_2d(packed.data, DT_Q8, rows, K);
    assert_ok(int8_pack(&kit->exec, packed, w, scale, factor));
    return tensor_slice(packed, 0, N);
}

static Tensor some_weights4(Kit *kit, int64_t N, int64_t K, bool factors, bool extra) {
    int64_t rows = extra ? N + 5 : N, bytes = (K + 1) / 2, groups = (K + INT4_GROUP - 1) / INT4_GROUP;
    Tensor w = kit_take(kit, tensor_2d(NULL, DT_U8, rows, bytes)), factor = TENSOR_NONE;
    Tensor step = kit_take(kit, tensor_2d(NULL, DT_I8, rows, groups));
    RngKey key = kit_key(kit), other = kit_key(kit);
    for (int64_t i = 0; i < rows * bytes; i++) ((uint8_t *)w.data)[i] = (uint8_t)kit_draw(key, i);
    for (int64_t i = 0; i < rows * groups; i++)
        ((int8_t *)step.data)[i] = (int8_t)((int)(kit_draw(other, i) % 255) - 127);
    Tensor scale = kit_uniform(kit, shape1(rows), 1e-5, 2e-4);
    if (factors) factor = kit_uniform(kit, shape1(K), 0.25, 4);
    size_t size;
    assert_ok(int4_bytes(&kit->exec, rows, K, &size));
    Tensor packed = kit_take(kit, tensor_1d(NULL, DT_U8, (int64_t)size));
    packed = tensor_2d(packed.data, DT_Q4, rows, K);
    assert_ok(int4_pack(&kit->exec, packed, w, step, scale, factor));
    return tensor_slice(packed, 0, N);
}

/* GPUs support all activation types, CPUs only fp32. */
static Tensor in_type(Kit *kit, Tensor shape) {
    return test_on_cuda() ? typed(kit, shape) : shape;
}

/* Rows of several kinds: with an outlier, zero, tiny, huge, with rounding ties, and not finite. */
static Tensor some_rows(Kit *kit, int64_t M, int64_t K) {
    Tensor x = kit_random(kit, in_type(kit, shape2(M, K)));
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) {
            double value = tensor_get(x, m * K + k);
            if (m % 11 == 2) value = 0;
            if (m % 11 == 3) value *= 1e-30;
            if (m % 11 == 4) value *= 1e30;
            if (m % 11 == 5) value *= 1e-43;
            if (m % 11 == 6) value = (double)(k * 37 % 255 - 127) * 0.5;
            tensor_put(x, m * K + k, value);
        }
        if (m % 11 == 1) tensor_put(x, m * K + m % K, 300);
        if (m % 11 == 6) tensor_put(x, m * K + K - 1, 127);
        if (m == 18) tensor_put(x, m * K + K / 2, NAN);
        if (m == 19) tensor_put(x, m * K, -INFINITY);
    }
    return x;
}

/* Flags: pre, bias, activation, factors, packed weights with more rows than are used. Some sizes use a static
 * amax for all rows. */
static void linear_case(Kit *kit, const Args *args, bool four) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    Act act = args->flags / 4 % ACT_COUNT;
    unsigned rest = args->flags / 4 / ACT_COUNT;
    Tensor w = (four ? some_weights4 : some_weights)(kit, N, K, rest & 1, rest & 2);
    if ((M + N + K) % 3 == 0) assert_ok(int8_set_static_amax(w, 1.25f));
    Tensor x = some_rows(kit, M, K);
    Tensor y = kit_take(kit, in_type(kit, shape2(M, N))), pre = TENSOR_NONE, b = TENSOR_NONE;
    if (act && args->flags & 1) kit_output(kit, "pre", pre = kit_take(kit, in_type(kit, shape2(M, N))));
    if (args->flags & 2) b = kit_random(kit, in_type(kit, shape1(N)));
    assert_ok(linear_forward(&kit->exec, y, pre, x, w, b, act));
    kit_output(kit, "y", y);
}

/* A static amax equal to the row's own maximum produces the same bits as dynamic quantization. */
static void static_amax_case(Kit *kit, const Args *args) {
    int64_t N = args->n[0], K = args->n[1];
    bool factors = args->flags & 1;
    Tensor w = (args->flags & 2 ? some_weights4 : some_weights)(kit, N, K, factors, false);
    Tensor x = kit_random(kit, in_type(kit, shape2(1, K)));
    Tensor dynamic = kit_take(kit, in_type(kit, shape2(1, N))), fixed = kit_take(kit, dynamic);
    assert_ok(linear_forward(&kit->exec, dynamic, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
    float largest = 0;
    for (int64_t k = 0; k < K; k++) {
        float factor = factors ? int8_view(w).factor[k] : 1;
        largest = fmaxf(largest, fabsf((float)tensor_get(x, k) * factor));
    }
    Exec uncounted = kit->exec;
    uncounted.profile = NULL;
    assert_ok(int8_set_static_amax(w, largest));
    assert_ok(linear_forward(&uncounted, fixed, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
    assert_ok(stream_sync(kit->stream));
    assert_memory_equal(fixed.data, dynamic.data, tensor_bytes(dynamic));
    kit_output(kit, "y", fixed);
}

static void linear_int8_forward_case(Kit *kit, const Args *args) {
    linear_case(kit, args, false);
}

static void linear_int4_forward_case(Kit *kit, const Args *args) {
    linear_case(kit, args, true);
}

void linear_int8_forward_sweep(Sweep *sweep) {
    static const char *const microkernels[] = {"", "dotprod", "vnni", "avx2", "amx", "plain"};
    static const int64_t few[][3] = {{1, 2304, 768},  {12, 264, 3072}, {3, 97, 1000}, {2, 5030, 64},
                                     {9, 27, 2056},   {7, 768, 770},   {4, 40, 40},   {5, 31, 129},
                                     {130, 257, 129}, {97, 64, 531}};
    enum { FEW = sizeof few / sizeof *few };
    for (unsigned i = 0; i < (test_on_cuda() ? 1 : sizeof microkernels / sizeof *microkernels); i++) {
        setenv("WEFT_CPU_INT8", microkernels[i], 1);
        if (!strcmp(kernels_cpu_int8(), "none")) continue;
        if (i == 0 && !SANITIZED) over_gemms(sweep, linear_int8_forward_case, 16 * ACT_COUNT);
        for (unsigned f = 0; f < FEW; f++) {
            Args args = {{few[f][0], few[f][1], few[f][2]}, 5 * f, norm_wise};
            compare(sweep, linear_int8_forward_case, args);
            compare(sweep, linear_int4_forward_case, args);
        }
    }
    unsetenv("WEFT_CPU_INT8");
    for (unsigned f = 0; f < 4; f++) compare(sweep, static_amax_case, (Args){{33, 130}, f, norm_wise});
}
