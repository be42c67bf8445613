/* Sweep cases: linear layers with int8 and int4 weights, and fused linear layers of generation. Both sides
 * compute with the same integers, so results differ only by fp32 rounding, and a single value quantized to a
 * different integer would be detected. Every int8 microkernel of this CPU runs some cases, and the fastest
 * runs all. */
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
static Tensor some_rows(Kit *kit, Tensor shape) {
    Tensor x = kit_random(kit, shape);
    int64_t M = tensor_rows(x), K = tensor_cols(x);
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
    Tensor x = some_rows(kit, in_type(kit, shape2(M, K)));
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

/* ---- fused linear layers ----
 *
 * A GPU has them for 16-bit types only. */

static DType instead_of_fp32 = DT_F32; /* the same for all kits */

static Tensor in_16_bits(Kit *kit, Tensor shape) {
    shape = typed(kit, shape);
    if (shape.dtype == DT_F32) shape.dtype = instead_of_fp32;
    return shape;
}

typedef struct FusedCase {
    Tensor y, x, w, b;
    Act act;
    LinearFusion fusion;
} FusedCase;

/* The result of the last row does not depend on the others. */
static void run_last_alone(Kit *kit, FusedCase c) {
    int64_t last = tensor_rows(c.x) - 1;
    Exec exec = kit->exec;
    exec.profile = NULL;
    Tensor row = tensor_slice(c.y, last, 1);
    c.y = kit_take(kit, row);
    c.x = tensor_slice(c.x, last, 1);
    if (c.fusion.res.data) c.fusion.res = tensor_slice(c.fusion.res, last, 1);
    assert_ok(linear_fused_forward(&exec, c.y, c.x, c.w, c.b, c.act, c.fusion));
    assert_ok(stream_sync(kit->stream));
    assert_memory_equal(c.y.data, row.data, tensor_bytes(row));
}

/* Flags: three kinds of weights, three norms, four kinds of result, and biases. */
static void linear_fused_forward_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    unsigned bits = args->flags % 3, norm = args->flags / 3 % 3, result = args->flags / 9 % 4;
    FusedCase c = {.fusion = {.eps = 1e-3f, .gated = result == 2}};
    int64_t rows = c.fusion.gated ? 2 * N : N;
    bool factors = (M + norm) % 2, more = N % 16;
    if (bits == 0) c.w = kit_random(kit, in_16_bits(kit, shape2(rows, K)));
    if (bits == 1) c.w = some_weights(kit, rows, K, factors, more);
    if (bits == 2) c.w = some_weights4(kit, rows, K, factors, more);
    c.x = kit_random(kit, in_16_bits(kit, shape2(M, K)));
    for (int64_t i = 0; norm && i < K; i++)
        tensor_put(c.x, i, tensor_get(c.x, i) + 0.5); /* a mean other than 0 */
    if (M > 9) tensor_put(c.x, 9 * K + K / 2, NAN);
    if (norm) c.fusion.gamma = kit_random(kit, in_16_bits(kit, shape1(K)));
    if (norm == 1) c.fusion.beta = kit_random(kit, in_16_bits(kit, shape1(K)));
    if (args->flags / 36) c.b = kit_random(kit, in_16_bits(kit, shape1(rows)));
    c.act = result == 1 ? ACT_GELU_TANH : result == 2 ? ACT_SILU : ACT_NONE;
    if (result == 3) c.fusion.res = kit_random(kit, in_16_bits(kit, shape2(M, N)));
    c.y = kit_take(kit, in_16_bits(kit, shape2(M, N)));
    /* GPUs before Ampere serve fewer sizes, and the oldest none: of the others nothing is tested there. */
    Exec exec = kit->exec;
    bool served = !kit->cuda || linear_fused_supports(&exec, c.y, c.x, c.w, c.fusion);
    assert_true(served || !kit_has_bf16(kit));
    if (!served) assert_ok(kernels_find("ref", &exec.table));
    assert_ok(linear_fused_forward(&exec, c.y, c.x, c.w, c.b, c.act, c.fusion));
    kit_output(kit, "y", c.y);
    if (kit->cuda && served) run_last_alone(kit, c);
}

/* Sizes for all block widths of the GPU's kernels, short and long rows, and 8 and 16 warps; half of them also
 * for the kernel for large layers. CPUs use the reference, so a few cases are enough. */
void linear_fused_forward_sweep(Sweep *sweep) {
    if (test_on_cuda()) {
        Kit kit;
        kit_init(&kit, test_kernels(), 1);
        instead_of_fp32 = kit_has_bf16(&kit) ? DT_BF16 : DT_F16;
        kit_done(&kit);
    }
    static const int64_t size[][3] = {
        {1, 264, 768},  {12, 96, 1024},  {16, 64, 2048}, {9, 40, 4096}, {3, 1200, 64},  {8, 128, 1600},
        {2, 24, 2304},  {5, 72, 1856},   {7, 2400, 128}, {4, 3400, 64}, {15, 16, 1088}, {1, 8, 64},
        {16, 520, 320}, {6, 1072, 2112}, {13, 4360, 64}, {10, 8, 5632}, {2, 8712, 64}};
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
        for (unsigned f = i % 3; f < 72; f += test_on_cuda() ? 1 : 29) {
            Args args = {{size[i][0], size[i][1], size[i][2]}, f, norm_wise};
            compare(sweep, linear_fused_forward_case, args);
            if (!test_on_cuda() || f % 2 != i % 2) continue;
            setenv("WEFT_CUDA_FUSE", "stream", 1);
            compare(sweep, linear_fused_forward_case, args);
            unsetenv("WEFT_CUDA_FUSE");
        }
}
