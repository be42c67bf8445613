/* Tests linear layers in bf16 and fp16 with every bf16 microkernel of this CPU, over many sizes.
 *
 * Without an activation, inputs are small integers. Every type represents them exactly and their sums are
 * exact in fp32, so the result does not depend on the order of addition and must equal the fp32 reference
 * rounded once. With an activation, results may differ by as much as a different rounding of the activation's
 * input explains.
 */
#include <math.h>
#include <stdlib.h>

#include "kit.h"

static const char *const microkernels[] = {"off", "mmla", "dot", "amx"};
enum { MICROKERNELS = sizeof microkernels / sizeof *microkernels };

typedef struct Case {
    int64_t M, N, K;
    DType dtype;
    bool wide;  /* y (forward) or dy (backward) is fp32 */
    bool extra; /* forward: with bias; backward: with db, or accumulate into dx */
    Act act;
} Case;

typedef struct Bench {
    Kit ref, cpu;
    uint64_t state; /* of a fast generator, because many random values are needed */
} Bench;

/* Selects microkernel i; false if this CPU does not support it. */
static bool select_microkernel(int i) {
    assert_int_equal(setenv("WEFT_CPU_BF16", microkernels[i], 1), 0);
    return strcmp(kernels_cpu_bf16(), "none") != 0;
}

static Tensor rounded(Kit *kit, Tensor from, DType dtype) {
    Tensor to = from;
    to.dtype = dtype;
    to = kit_take(kit, to);
    assert_ok(dtype_convert(to.data, dtype, from.data, from.dtype, (size_t)tensor_count(from)));
    return to;
}

static Tensor copied(Kit *kit, Tensor from) {
    return rounded(kit, from, from.dtype);
}

/* Random values that the compute type represents, as fp32 for the reference and as `dtype` for the backend.
 */
static void random_values(Bench *bench, const Case *c, DType dtype, Tensor shape, Tensor *ret_ref,
                          Tensor *ret_cpu) {
    Tensor values = kit_take(&bench->ref, shape);
    for (int64_t i = 0; i < tensor_count(values); i++) {
        bench->state = bench->state * 6364136223846793005u + 1442695040888963407u;
        float value = (float)(bench->state >> 40) * 0x6p-24f - 3; /* uniform in [-3, 3) */
        tensor_f32(values)[i] = c->act == ACT_NONE ? truncf(value) : value;
    }
    *ret_cpu = rounded(&bench->cpu, rounded(&bench->ref, values, c->dtype), dtype);
    *ret_ref = rounded(&bench->ref, *ret_cpu, DT_F32);
}

static double unit_of(DType dtype) {
    return dtype == DT_BF16 ? 0x1p-8 : dtype == DT_F16 ? 0x1p-11 : 0x1p-22;
}

/* Compares with `want`, which is fp32. Elements, and so their errors, scale with sqrt(depth). */
static void check(Bench *bench, const char *microkernel, const Case *c, const char *name, Tensor got,
                  Tensor want, int64_t depth) {
    Tensor right = rounded(&bench->ref, rounded(&bench->ref, want, got.dtype), DT_F32);
    Tensor here = rounded(&bench->ref, got, DT_F32);
    double unit = c->act == ACT_NONE ? 0 : 4 * unit_of(c->dtype);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double a = tensor_f32(here)[i], b = tensor_f32(right)[i];
        if (!(fabs(a - b) <= unit * (fabs(b) + sqrt((double)depth))))
            fail_msg("%s %s, M %lld N %lld K %lld, act %d, wide %d, extra %d: %s[%lld] is %g; expected %g",
                     microkernel, dtype_name(c->dtype), (long long)c->M, (long long)c->N, (long long)c->K,
                     c->act, c->wide, c->extra, name, (long long)i, a, b);
    }
}

/* For results; an element that stays unwritten is NaN. */
static Tensor unwritten(Kit *kit, DType dtype, int64_t rows, int64_t cols) {
    Tensor to = kit_take(kit, tensor_2d(NULL, dtype, rows, cols));
    memset(to.data, 0xff, tensor_bytes(to));
    return to;
}

static void forward_case(Bench *bench, const Case *c) {
    Tensor x[2], w[2], b[2] = {TENSOR_NONE, TENSOR_NONE};
    random_values(bench, c, c->dtype, shape2(c->M, c->K), &x[0], &x[1]);
    random_values(bench, c, c->dtype, shape2(c->N, c->K), &w[0], &w[1]);
    if (c->extra) random_values(bench, c, c->dtype, shape1(c->N), &b[0], &b[1]);
    DType type = c->wide && c->act == ACT_NONE ? DT_F32 : c->dtype;
    Tensor before = kit_take(&bench->ref, shape2(c->M, c->N)), y = kit_take(&bench->ref, before);
    assert_ok(linear_forward(&bench->ref.exec, before, TENSOR_NONE, x[0], w[0], b[0], ACT_NONE));
    Tensor pre = rounded(&bench->ref, rounded(&bench->ref, before, type), DT_F32);
    assert_ok(act_forward(&bench->ref.exec, y, pre, c->act));
    for (int i = 0; i < MICROKERNELS; i++) {
        if (!select_microkernel(i)) continue;
        Tensor got = unwritten(&bench->cpu, type, c->M, c->N), got_pre = TENSOR_NONE;
        if (c->act && c->extra) got_pre = unwritten(&bench->cpu, type, c->M, c->N);
        assert_ok(linear_forward(&bench->cpu.exec, got, got_pre, x[1], w[1], b[1], c->act));
        check(bench, microkernels[i], c, "y", got, y, c->K);
        if (got_pre.data) check(bench, microkernels[i], c, "pre", got_pre, pre, c->K);
    }
}

static void backward_input_case(Bench *bench, const Case *c) {
    Tensor dy[2], w[2], dx[2], pre[2] = {TENSOR_NONE, TENSOR_NONE};
    random_values(bench, c, c->wide ? DT_F32 : c->dtype, shape2(c->M, c->N), &dy[0], &dy[1]);
    random_values(bench, c, c->dtype, shape2(c->N, c->K), &w[0], &w[1]);
    random_values(bench, c, c->dtype, shape2(c->M, c->K), &dx[0], &dx[1]);
    if (c->act) random_values(bench, c, c->dtype, shape2(c->M, c->K), &pre[0], &pre[1]);
    assert_ok(
        linear_backward_input(&bench->ref.exec, dx[0], TENSOR_NONE, dy[0], w[0], c->act, pre[0], c->extra));
    for (int i = 0; i < MICROKERNELS; i++) {
        if (!select_microkernel(i)) continue;
        Tensor got = copied(&bench->cpu, dx[1]);
        assert_ok(
            linear_backward_input(&bench->cpu.exec, got, TENSOR_NONE, dy[1], w[1], c->act, pre[1], c->extra));
        check(bench, microkernels[i], c, "dx", got, dx[0], c->N);
    }
}

static void backward_weight_case(Bench *bench, const Case *c) {
    Tensor dy[2], x[2], dw[2], db[2] = {TENSOR_NONE, TENSOR_NONE};
    random_values(bench, c, c->wide ? DT_F32 : c->dtype, shape2(c->M, c->N), &dy[0], &dy[1]);
    random_values(bench, c, c->dtype, shape2(c->M, c->K), &x[0], &x[1]);
    random_values(bench, c, DT_F32, shape2(c->N, c->K), &dw[0], &dw[1]);
    if (c->extra) random_values(bench, c, DT_F32, shape1(c->N), &db[0], &db[1]);
    assert_ok(linear_backward_weight(&bench->ref.exec, dw[0], db[0], dy[0], x[0], true));
    for (int i = 0; i < MICROKERNELS; i++) {
        if (!select_microkernel(i)) continue;
        Tensor got = copied(&bench->cpu, dw[1]), sums = c->extra ? copied(&bench->cpu, db[1]) : TENSOR_NONE;
        assert_ok(linear_backward_weight(&bench->cpu.exec, got, sums, dy[1], x[1], true));
        check(bench, microkernels[i], c, "dw", got, dw[0], c->M);
        if (c->extra) check(bench, microkernels[i], c, "db", sums, db[0], c->M);
    }
}

/* Runs all three GEMMs of a linear layer in both types and with every microkernel; `turn` selects the
 * options. */
static void all_gemms(Bench *bench, int64_t M, int64_t N, int64_t K, unsigned turn) {
    for (int type = 0; type < 2; type++) {
        Case c = {
            M, N, K, type ? DT_F16 : DT_BF16, turn & 1, turn & 2, turn % 3 ? ACT_NONE : turn / 3 % ACT_COUNT};
        forward_case(bench, &c);
        backward_input_case(bench, &c);
        c.act = ACT_NONE;
        backward_weight_case(bench, &c);
        kit_clear(&bench->ref);
        kit_clear(&bench->cpu);
    }
}

static void bench_init(Bench *bench, int threads) {
    *bench = (Bench){0};
    kit_init(&bench->ref, "ref", 1);
    kit_init(&bench->cpu, "cpu", threads);
}

static void bench_done(Bench *bench) {
    assert_int_equal(unsetenv("WEFT_CPU_BF16"), 0);
    kit_done(&bench->ref);
    kit_done(&bench->cpu);
}

/* Each dimension runs from 1 to 70, with the other two spread over the same range. */
static void test_small(void **state) {
    Bench bench;
    unsigned turn = 0;
    bench_init(&bench, 1);
    for (int64_t size = 1; size <= 70; size++)
        for (int64_t round = 0; round < 2; round++, turn += 3) {
            int64_t other = 1 + (size * 37 + round * 11) % 70, third = 1 + (size * 53 + round * 29) % 70;
            all_gemms(&bench, size, other, third, turn);
            all_gemms(&bench, third, size, other, turn + 1);
            all_gemms(&bench, other, third, size, turn + 2);
        }
    bench_done(&bench);
}

/* Sizes beyond a tile, a block, a packed panel and a split of the depth, in each dimension. */
static void test_large(void **state) {
    static const int64_t sizes[][3] = {{270, 260, 530}, {97, 4, 1031}, {64, 33, 4500},  {2100, 20, 30},
                                       {33, 8300, 17},  {3, 8300, 17}, {4200, 40, 50},  {30, 4200, 50},
                                       {40, 257, 1100}, {24, 65, 129}, {26, 530, 1030}, {64, 100, 96},
                                       {128, 33, 1056}, {17, 16, 32},  {81, 210, 2080}};
    Bench bench;
    bench_init(&bench, 3);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned turn = 0; turn < 4; turn++)
            all_gemms(&bench, sizes[i][0], sizes[i][1], sizes[i][2], i + 3 * turn + 1);
    bench_done(&bench);
}

/* Two and three threads produce the same bits as one, on values whose sums depend on the order of addition.
 */
static void threads_case(int64_t M, int64_t N, int64_t K) {
    Kit kit[3];
    for (int i = 0; i < 3; i++) {
        kit_init(&kit[i], "cpu", i + 1);
        Tensor x = rounded(&kit[i], kit_random(&kit[i], shape2(M, K)), DT_BF16);
        Tensor w = rounded(&kit[i], kit_random(&kit[i], shape2(N, K)), DT_BF16);
        Tensor y = kit_take(&kit[i], shape2(M, N)), dw = kit_take(&kit[i], shape2(N, K));
        Tensor dx = kit_take(&kit[i], tensor_2d(NULL, DT_BF16, M, K));
        memset(dw.data, 0, tensor_bytes(dw));
        assert_ok(linear_forward(&kit[i].exec, y, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
        assert_ok(linear_backward_input(&kit[i].exec, dx, TENSOR_NONE, y, w, ACT_NONE, TENSOR_NONE, false));
        assert_ok(linear_backward_weight(&kit[i].exec, dw, TENSOR_NONE, y, x, true));
        kit_output(&kit[i], "y", y);
        kit_output(&kit[i], "dx", dx);
        kit_output(&kit[i], "dw", dw);
    }
    for (int i = 1; i < 3; i++)
        for (int o = 0; o < 3; o++)
            assert_memory_equal(kit[i].output[o].tensor.data, kit[0].output[o].tensor.data,
                                tensor_bytes(kit[0].output[o].tensor));
    for (int i = 0; i < 3; i++) kit_done(&kit[i]);
}

static void test_threads(void **state) {
    for (int i = 0; i < MICROKERNELS; i++) {
        if (!select_microkernel(i)) continue;
        threads_case(150, 260, 1500);
        threads_case(64, 260, 1536);
    }
    assert_int_equal(unsetenv("WEFT_CPU_BF16"), 0);
}

/* The rows of a prompt get the same bits, whatever rows follow. */
static void rows_case(Kit *kit) {
    enum { M = 100, FEWER = 37, N = 210, K = 1120 };
    for (DType dtype = DT_F32; dtype <= DT_BF16; dtype++) {
        Tensor x = rounded(kit, kit_random(kit, shape2(M, K)), dtype);
        Tensor w = rounded(kit, kit_random(kit, shape2(N, K)), dtype);
        Tensor all = kit_take(kit, shape2(M, N)), some = kit_take(kit, shape2(FEWER, N));
        assert_ok(linear_forward(&kit->exec, all, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
        assert_ok(linear_forward(&kit->exec, some, TENSOR_NONE, tensor_slice(x, 0, FEWER), w, TENSOR_NONE,
                                 ACT_NONE));
        assert_memory_equal(all.data, some.data, tensor_bytes(some));
    }
    kit_clear(kit);
}

static void test_rows(void **state) {
    Bench bench;
    bench_init(&bench, 2);
    for (int i = 0; i < MICROKERNELS; i++)
        if (select_microkernel(i)) rows_case(&bench.cpu);
    bench_done(&bench);
}

/* An unsupported value of WEFT_CPU_BF16 is an error and is not ignored. */
static void test_unknown_microkernel(void **state) {
    Kit kit;
    kit_init(&kit, "cpu", 1);
    Tensor x = rounded(&kit, kit_random(&kit, shape2(40, 40)), DT_BF16), y = kit_take(&kit, x);
    assert_int_equal(setenv("WEFT_CPU_BF16", "abacus", 1), 0);
    assert_string_equal(kernels_cpu_bf16(), "none");
    assert_fails(linear_forward(&kit.exec, y, TENSOR_NONE, x, x, TENSOR_NONE, ACT_NONE), 1,
                 "WEFT_CPU_BF16 is 'abacus'");
    assert_int_equal(unsetenv("WEFT_CPU_BF16"), 0);
    assert_ok(linear_forward(&kit.exec, y, TENSOR_NONE, x, x, TENSOR_NONE, ACT_NONE));
    kit_done(&kit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_unknown_microkernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
