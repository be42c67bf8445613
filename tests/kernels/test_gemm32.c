/* Tests fp32 GEMMs that split each number into three of bf16 (micro_split.c): they are as accurate as those
 * with FMA and exact where those are. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/micro16.h"
#include "kit.h"

static void select_split(const char *value) {
    assert_int_equal(setenv("WEFT_CPU_FP32", value, 1), 0);
}

static void skip_without_split(void) {
    select_split("amx");
    if (!micro32_choose()) skip();
}

/* The norm-wise error of x w^T, relative to the result in fp64. */
static double error_of(Tensor y, Tensor x, Tensor w) {
    int64_t M = tensor_rows(x), N = tensor_rows(w), K = tensor_cols(x);
    double error = 0, norm = 0;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)tensor_f32(x)[m * K + k] * (double)tensor_f32(w)[n * K + k];
            double off = (double)tensor_f32(y)[m * N + n] - sum;
            error += off * off;
            norm += sum * sum;
        }
    return sqrt(error / norm);
}

/* Values of very different sizes, so that lower parts matter. */
static Tensor spread(Kit *kit, Tensor shape) {
    Tensor values = kit_random(kit, shape);
    for (int64_t i = 0; i < tensor_count(values); i++)
        tensor_f32(values)[i] *= ldexpf(1, (int)(i * 7 % 21) - 10);
    return values;
}

static void test_accuracy(void **state) {
    skip_without_split();
    static const int64_t sizes[][3] = {{64, 96, 32}, {70, 50, 768}, {33, 64, 5000}};
    for (int size = 0; size < 3; size++)
        for (int wide = 0; wide < 2; wide++) {
            int64_t M = sizes[size][0], N = sizes[size][1], K = sizes[size][2];
            Kit kit;
            kit_init(&kit, "cpu", 2);
            Tensor x = wide ? spread(&kit, shape2(M, K)) : kit_random(&kit, shape2(M, K));
            Tensor w = kit_random(&kit, shape2(N, K));
            Tensor split = kit_take(&kit, shape2(M, N)), plain = kit_take(&kit, shape2(M, N));
            assert_ok(linear_forward(&kit.exec, split, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
            select_split("fma");
            assert_ok(linear_forward(&kit.exec, plain, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
            select_split("amx");
            double error = error_of(split, x, w), expected = error_of(plain, x, w);
            print_message("K %lld: error %.2e, with FMA %.2e\n", (long long)K, error, expected);
            if (!(error <= 1.2 * expected))
                fail_msg("M %lld N %lld K %lld: error %g, with FMA %g", (long long)M, (long long)N,
                         (long long)K, error, expected);
            kit_done(&kit);
        }
}

/* Integers of 9 bits, so that they have two parts. Sums of 100 products are below 2^24, and so exact. */
static Tensor integers(Kit *kit, Tensor shape) {
    Tensor values = kit_uniform(kit, shape, -300, 300);
    for (int64_t i = 0; i < tensor_count(values); i++) tensor_f32(values)[i] = truncf(tensor_f32(values)[i]);
    return values;
}

static void all_gemms(Kit *kit, int64_t M, int64_t N, int64_t K) {
    kit_clear(kit);
    Tensor x = integers(kit, shape2(M, K)), w = integers(kit, shape2(N, K)), b = integers(kit, shape1(N));
    Tensor dy = integers(kit, shape2(M, N)), dx = integers(kit, shape2(M, K)),
           dw = integers(kit, shape2(N, K)), y = kit_take(kit, shape2(M, N));
    assert_ok(linear_forward(&kit->exec, y, TENSOR_NONE, x, w, b, ACT_NONE));
    assert_ok(linear_backward_input(&kit->exec, dx, TENSOR_NONE, dy, w, ACT_NONE, TENSOR_NONE, true));
    assert_ok(linear_backward_weight(&kit->exec, dw, TENSOR_NONE, dy, x, true));
    kit_output(kit, "y", y);
    kit_output(kit, "dx", dx);
    kit_output(kit, "dw", dw);
}

/* Sizes at and beyond the edges of tiles. */
static void test_exact(void **state) {
    skip_without_split();
    static const int64_t sizes[] = {32, 33, 47, 64, 65, 96, 100};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    Kit ref, cpu;
    kit_init(&ref, "ref", 1);
    kit_init(&cpu, "cpu", 3);
    for (int i = 0; i < SIZES * SIZES; i++) {
        int64_t M = sizes[i % SIZES], N = sizes[i / SIZES], K = sizes[(i + i / SIZES) % SIZES];
        all_gemms(&ref, M, N, K);
        all_gemms(&cpu, M, N, K);
        for (int o = 0; o < ref.outputs; o++)
            if (memcmp(ref.output[o].tensor.data, cpu.output[o].tensor.data,
                       tensor_bytes(ref.output[o].tensor)))
                fail_msg("%s differs for M %lld N %lld K %lld", ref.output[o].name, (long long)M,
                         (long long)N, (long long)K);
    }
    kit_done(&ref);
    kit_done(&cpu);
}

/* An unsupported value of WEFT_CPU_FP32 is an error and is not ignored. */
static void test_unknown(void **state) {
    const KernelTable *table;
    select_split("abacus");
    assert_fails(kernels_find("cpu", &table), 1, "WEFT_CPU_FP32 is 'abacus'");
    select_split("fma");
    assert_ok(kernels_find("cpu", &table));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
