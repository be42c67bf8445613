/* Linear layers in bf16 and fp16, by every way this machine has to multiply bf16, over many sizes.
 *
 * Where there is no activation the inputs are small whole numbers: every type holds them, their sums are
 * exact in fp32, and so each element of the result has one right value whatever the order of the sum, which
 * is what the fp32 reference gives, rounded once. With an activation a result may differ from it by what
 * rounding the activation's input one way or the other explains.
 */
#include <math.h>
#include <stdlib.h>

#include "kit.h"

static const char *const ways[] = {"off", "mmla", "dot", "amx"};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct Case {
    int64_t M, N, K;
    DType dtype;
    bool wide;  /* y, respectively dy, is fp32 */
    bool extra; /* bias, respectively db or what dx holds, is there */
    Act act;
} Case;

typedef struct Bench {
    Kit ref, cpu;
    uint64_t state; /* of the numbers, quick ones: there are many */
} Bench;

static Tensor rounded(Kit *kit, Tensor from, DType dtype) {
    Tensor to = from;
    to.dtype = dtype;
    to = kit_take(kit, to);
    assert_ok(dtype_convert(to.data, dtype, from.data, from.dtype, (size_t)tensor_count(from)));
    return to;
}

/* Numbers that the compute type holds, in fp32 for the reference and in `dtype` for the backend. */
static void numbers(Bench *bench, const Case *c, DType dtype, Tensor shape, Tensor *ret_ref,
                    Tensor *ret_cpu) {
    Tensor values = kit_take(&bench->ref, shape);
    for (int64_t i = 0; i < tensor_count(values); i++) {
        bench->state = bench->state * 6364136223846793005u + 1442695040888963407u;
        float value = (float)(bench->state >> 40) * 0x6p-24f - 3; /* even over [-3, 3) */
        tensor_f32(values)[i] = c->act == ACT_NONE ? truncf(value) : value;
    }
    *ret_cpu = rounded(&bench->cpu, rounded(&bench->ref, values, c->dtype), dtype);
    *ret_ref = rounded(&bench->ref, *ret_cpu, DT_F32);
}

static double unit_of(DType dtype) {
    return dtype == DT_BF16 ? 0x1p-8 : dtype == DT_F16 ? 0x1p-11 : 0x1p-22;
}

/* `want` is fp32. Elements are of the size of sqrt(depth), and so are their errors. */
static void check(Bench *bench, const char *way, const Case *c, const char *name, Tensor got, Tensor want,
                  int64_t depth) {
    Tensor right = rounded(&bench->ref, rounded(&bench->ref, want, got.dtype), DT_F32);
    Tensor here = rounded(&bench->ref, got, DT_F32);
    double unit = c->act == ACT_NONE ? 0 : 4 * unit_of(c->dtype);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double a = tensor_f32(here)[i], b = tensor_f32(right)[i];
        if (!(fabs(a - b) <= unit * (fabs(b) + sqrt((double)depth))))
            fail_msg("%s %s, M %lld N %lld K %lld, act %d, wide %d, extra %d: %s at %lld is %g instead of %g",
                     way, dtype_name(c->dtype), (long long)c->M, (long long)c->N, (long long)c->K, c->act,
                     c->wide, c->extra, name, (long long)i, a, b);
    }
}

static void forward_case(Bench *bench, const char *way, const Case *c) {
    Tensor x[2], w[2], b[2] = {TENSOR_NONE, TENSOR_NONE}, pre[2] = {TENSOR_NONE, TENSOR_NONE};
    numbers(bench, c, c->dtype, shape2(c->M, c->K), &x[0], &x[1]);
    numbers(bench, c, c->dtype, shape2(c->N, c->K), &w[0], &w[1]);
    if (c->extra) numbers(bench, c, c->dtype, shape1(c->N), &b[0], &b[1]);
    DType type = c->wide && c->act == ACT_NONE ? DT_F32 : c->dtype;
    Tensor y[2] = {kit_take(&bench->ref, shape2(c->M, c->N)),
                   kit_take(&bench->cpu, tensor_2d(NULL, type, c->M, c->N))};
    Tensor before = kit_take(&bench->ref, y[0]);
    if (c->act && c->extra) pre[1] = kit_take(&bench->cpu, y[1]);
    assert_ok(linear_forward(&bench->ref.exec, before, TENSOR_NONE, x[0], w[0], b[0], ACT_NONE));
    pre[0] = rounded(&bench->ref, rounded(&bench->ref, before, type), DT_F32);
    assert_ok(act_forward(&bench->ref.exec, y[0], pre[0], c->act));
    assert_ok(linear_forward(&bench->cpu.exec, y[1], pre[1], x[1], w[1], b[1], c->act));
    check(bench, way, c, "y", y[1], y[0], c->K);
    if (pre[1].data) check(bench, way, c, "pre", pre[1], pre[0], c->K);
}

static void backward_input_case(Bench *bench, const char *way, const Case *c) {
    Tensor dy[2], w[2], dx[2], pre[2] = {TENSOR_NONE, TENSOR_NONE};
    numbers(bench, c, c->wide ? DT_F32 : c->dtype, shape2(c->M, c->N), &dy[0], &dy[1]);
    numbers(bench, c, c->dtype, shape2(c->N, c->K), &w[0], &w[1]);
    numbers(bench, c, c->dtype, shape2(c->M, c->K), &dx[0], &dx[1]);
    if (c->act) numbers(bench, c, c->dtype, shape2(c->M, c->K), &pre[0], &pre[1]);
    assert_ok(linear_backward_input(&bench->ref.exec, dx[0], dy[0], w[0], c->act, pre[0], c->extra));
    assert_ok(linear_backward_input(&bench->cpu.exec, dx[1], dy[1], w[1], c->act, pre[1], c->extra));
    check(bench, way, c, "dx", dx[1], dx[0], c->N);
}

static void backward_weight_case(Bench *bench, const char *way, const Case *c) {
    Tensor dy[2], x[2], dw[2], db[2] = {TENSOR_NONE, TENSOR_NONE};
    numbers(bench, c, c->wide ? DT_F32 : c->dtype, shape2(c->M, c->N), &dy[0], &dy[1]);
    numbers(bench, c, c->dtype, shape2(c->M, c->K), &x[0], &x[1]);
    numbers(bench, c, DT_F32, shape2(c->N, c->K), &dw[0], &dw[1]);
    if (c->extra) numbers(bench, c, DT_F32, shape1(c->N), &db[0], &db[1]);
    assert_ok(linear_backward_weight(&bench->ref.exec, dw[0], db[0], dy[0], x[0]));
    assert_ok(linear_backward_weight(&bench->cpu.exec, dw[1], db[1], dy[1], x[1]));
    check(bench, way, c, "dw", dw[1], dw[0], c->M);
    if (c->extra) check(bench, way, c, "db", db[1], db[0], c->M);
}

/* All three products, through all types and options in turn; which ones depends on `turn` alone. */
static void products(Bench *bench, const char *way, int64_t M, int64_t N, int64_t K, unsigned turn) {
    for (int type = 0; type < 2; type++) {
        Case c = {
            M, N, K, type ? DT_F16 : DT_BF16, turn & 1, turn & 2, turn % 3 ? ACT_NONE : turn / 3 % ACT_COUNT};
        forward_case(bench, way, &c);
        backward_input_case(bench, way, &c);
        c.act = ACT_NONE;
        backward_weight_case(bench, way, &c);
        kit_clear(&bench->ref);
        kit_clear(&bench->cpu);
    }
}

/* Runs `sweep` by each way that this machine has. */
static void each_way(void (*sweep)(Bench *bench, const char *way), int threads) {
    Bench bench = {0};
    kit_init(&bench.ref, "ref", 1);
    kit_init(&bench.cpu, "cpu", threads);
    for (int way = 0; way < WAYS; way++) {
        assert_int_equal(setenv("WEFT_CPU_BF16", ways[way], 1), 0);
        if (strcmp(kernels_cpu_bf16(), "none")) sweep(&bench, ways[way]);
    }
    assert_int_equal(unsetenv("WEFT_CPU_BF16"), 0);
    kit_done(&bench.ref);
    kit_done(&bench.cpu);
}

/* Each of the three sizes goes from 1 to 70 with the other two scattered over the same sizes. */
static void small_sweep(Bench *bench, const char *way) {
    unsigned turn = 0;
    for (int64_t size = 1; size <= 70; size++)
        for (int64_t round = 0; round < 2; round++, turn += 3) {
            int64_t other = 1 + (size * 37 + round * 11) % 70, third = 1 + (size * 53 + round * 29) % 70;
            products(bench, way, size, other, third, turn);
            products(bench, way, third, size, other, turn + 1);
            products(bench, way, other, third, size, turn + 2);
        }
}

static void test_small(void **state) {
    (void)state;
    each_way(small_sweep, 1);
}

/* Past what a tile, a block, a packed part or a cut of the depth holds, in each direction. */
static void large_sweep(Bench *bench, const char *way) {
    static const int64_t sizes[][3] = {{270, 260, 530}, {97, 4, 1031}, {64, 33, 4500}, {2100, 20, 30},
                                       {33, 8300, 17},  {3, 8300, 17}, {4200, 40, 50}, {30, 4200, 50},
                                       {40, 257, 1100}, {24, 65, 129}, {26, 530, 1030}};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned turn = 0; turn < 4; turn++)
            products(bench, way, sizes[i][0], sizes[i][1], sizes[i][2], i + 3 * turn + 1);
}

static void test_large(void **state) {
    (void)state;
    each_way(large_sweep, 3);
}

/* Numbers of which every sum depends on its order: two threads and three give the bits that one gives. */
static void threads_sweep(Bench *bench, const char *way) {
    (void)way;
    Kit kit[3];
    int64_t M = 150, N = 260, K = 1500;
    for (int i = 0; i < 3; i++) {
        kit_init(&kit[i], "cpu", i + 1);
        Tensor x = rounded(&kit[i], kit_random(&kit[i], shape2(M, K)), DT_BF16);
        Tensor w = rounded(&kit[i], kit_random(&kit[i], shape2(N, K)), DT_BF16);
        Tensor y = kit_take(&kit[i], shape2(M, N)), dw = kit_take(&kit[i], shape2(N, K));
        Tensor dx = kit_take(&kit[i], tensor_2d(NULL, DT_BF16, M, K));
        memset(dw.data, 0, tensor_bytes(dw));
        assert_ok(linear_forward(&kit[i].exec, y, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
        assert_ok(linear_backward_input(&kit[i].exec, dx, y, w, ACT_NONE, TENSOR_NONE, false));
        assert_ok(linear_backward_weight(&kit[i].exec, dw, TENSOR_NONE, y, x));
        kit_output(&kit[i], "y", y);
        kit_output(&kit[i], "dx", dx);
        kit_output(&kit[i], "dw", dw);
    }
    for (int i = 1; i < 3; i++)
        for (int o = 0; o < 3; o++)
            assert_memory_equal(kit[i].output[o].tensor.data, kit[0].output[o].tensor.data,
                                tensor_bytes(kit[0].output[o].tensor));
    for (int i = 0; i < 3; i++) kit_done(&kit[i]);
    (void)bench;
}

static void test_threads(void **state) {
    (void)state;
    each_way(threads_sweep, 1);
}

/* A value that this machine cannot follow is said, not ignored. */
static void test_unknown_way(void **state) {
    (void)state;
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
        cmocka_unit_test(test_unknown_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
