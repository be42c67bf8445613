/* Sweep cases: linear layers, activations, gated ones too, layer norm and dropout. */
#include <math.h>

#include "sweep.h"

/* Added to flags: every third row of w is zero, as after row pruning. */
enum { ZERO_ROWS = 1 << 10 };

static void put_zero_rows(Tensor w, unsigned flags) {
    if (!(flags & ZERO_ROWS)) return;
    for (int64_t i = 0; i < tensor_count(w); i++)
        if (i / tensor_cols(w) % 3 == 1) tensor_put(w, i, 0);
}

/* With and without pre and bias, for each activation. Without an activation, every second y is fp32
 * regardless of x. */
static void linear_forward_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    Act act = args->flags % ZERO_ROWS / 4 % ACT_COUNT;
    Tensor y = kit_take(kit, !act && args->flags & 1 ? shape2(M, N) : typed(kit, shape2(M, N)));
    Tensor x = kit_random(kit, typed(kit, shape2(M, K))), w = kit_random(kit, typed(kit, shape2(N, K)));
    Tensor pre = TENSOR_NONE, b = TENSOR_NONE;
    if (act && args->flags & 1) kit_output(kit, "pre", pre = kit_take(kit, typed(kit, shape2(M, N))));
    if (args->flags & 2) b = kit_random(kit, typed(kit, shape1(N)));
    put_zero_rows(w, args->flags);
    assert_ok(linear_forward(&kit->exec, y, pre, x, w, b, act));
    kit_output(kit, "y", y);
}

void linear_forward_sweep(Sweep *sweep) {
    over_gemms(sweep, linear_forward_case, 4 * ACT_COUNT);
    /* Shapes of generation: few rows and large matrices, whose sizes are not multiples of any tile, and
     * prompts. */
    static const int64_t few[][3] = {{1, 4096, 1024}, {12, 264, 4096}, {16, 776, 768}, {5, 50304, 64},
                                     {9, 27, 2056},   {16, 8201, 40},  {2, 519, 2600}, {8, 96, 1000},
                                     {64, 200, 2100}, {17, 97, 31},    {128, 33, 96},  {81, 103, 1029}};
    enum { FEW = sizeof few / sizeof *few, BIASED = 2, KEPT = 3, GELU = 4 * ACT_GELU_TANH };
    for (unsigned i = 0; i < (test_on_cuda() ? 3 * FEW : FEW); i++) {
        const int64_t *n = few[i % FEW];
        static const unsigned flags[] = {BIASED, KEPT, GELU + KEPT};
        compare(sweep, linear_forward_case,
                (Args){{n[0], n[1], n[2]}, flags[(i % FEW + i / FEW) % 3], norm_wise});
    }
    for (unsigned flags = 0; flags < 4; flags++)
        compare(sweep, linear_forward_case, (Args){{70, 45, 33}, ZERO_ROWS + flags, norm_wise});
    /* Sizes for which a GPU has fused kernels: several tiles, the last ones partly filled. */
    for (unsigned flags = 0; flags < (test_on_cuda() ? 4 * ACT_COUNT : 1); flags++)
        compare(sweep, linear_forward_case, (Args){{300, 520, 584}, flags, norm_wise});
}

/* fp32 or the compute type, but always with values that the compute type represents: a backend may round
 * them. */
static Tensor some_gradient(Kit *kit, Tensor shape, bool wide) {
    Tensor dy = kit_random(kit, typed(kit, shape));
    return wide ? kit_as(kit, dy, DT_F32) : dy;
}

void replace_columns(Tensor sums, Tensor x, double instead) {
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    for (int64_t c = 0; c < cols; c++) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++) total += tensor_get(x, r * cols + c);
        tensor_put(sums, c, tensor_get(sums, c) - total + instead);
    }
}

static void linear_backward_input_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    Act act = args->flags % ZERO_ROWS / 2 % ACT_COUNT;
    bool accumulate = args->flags & 1;
    Tensor rows = typed(kit, shape2(M, K)), dx = accumulate ? kit_random(kit, rows) : kit_take(kit, rows);
    Tensor dy = some_gradient(kit, shape2(M, N), M % 3 == 0), w = kit_random(kit, typed(kit, shape2(N, K)));
    Tensor pre = act ? kit_random(kit, rows) : TENSOR_NONE;
    put_zero_rows(w, args->flags);
    if ((M + N) % 2) {
        assert_ok(linear_backward_input(&kit->exec, dx, TENSOR_NONE, dy, w, act, pre, accumulate));
    } else {
        Tensor sums = kit_random(kit, shape1(K));
        assert_ok(linear_backward_input(&kit->exec, dx, sums, dy, w, act, pre, accumulate));
        assert_ok(stream_sync(kit->exec.stream));
        replace_columns(sums, dx, (double)M * sqrt((double)N));
        kit_output(kit, "sums", sums);
    }
    kit_output(kit, "dx", dx);
}

void linear_backward_input_sweep(Sweep *sweep) {
    over_gemms(sweep, linear_backward_input_case, 2 * ACT_COUNT);
    for (unsigned flags = 0; flags < 4; flags++)
        compare(sweep, linear_backward_input_case, (Args){{70, 45, 33}, ZERO_ROWS + flags, norm_wise});
    for (unsigned flags = 0; flags < (test_on_cuda() ? 2 * ACT_COUNT : 1); flags++)
        for (int64_t odd = 0; odd < 2; odd++)
            compare(sweep, linear_backward_input_case, (Args){{300 + odd, 584, 520}, flags, norm_wise});
}

/* Flags: 1 with a bias, 2 accumulate; 4: the bias alone. */
static void linear_backward_weight_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    bool accumulate = args->flags & 2;
    if (args->flags == 4) {
        Tensor db = kit_random(kit, shape1(N)), dy = some_gradient(kit, shape2(M, N), M % 3 == 0);
        assert_ok(linear_backward_weight(&kit->exec, TENSOR_NONE, db, dy, TENSOR_NONE, true));
        kit_output(kit, "db", db);
        return;
    }
    Tensor all = shape2(N, K), dw = accumulate ? kit_random(kit, all) : kit_take(kit, all), db = TENSOR_NONE;
    if (args->flags & 1) kit_output(kit, "db", db = kit_random(kit, shape1(N)));
    Tensor dy = some_gradient(kit, shape2(M, N), M % 3 == 0), x = kit_random(kit, typed(kit, shape2(M, K)));
    assert_ok(linear_backward_weight(&kit->exec, dw, db, dy, x, accumulate));
    kit_output(kit, "dw", dw);
}

void linear_backward_weight_sweep(Sweep *sweep) {
    over_gemms(sweep, linear_backward_weight_case, 5);
}

/* Adds values where activations saturate or vanish, and a NaN that must propagate. */
static void put_extremes(Tensor x) {
    static const float extremes[] = {0,  -0.0f, 1e-20f, -1e-20f, 5,   -5,   9,  -9,
                                     12, -12,   40,     -40,     100, -100, NAN};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes && (int64_t)i < tensor_count(x); i++)
        tensor_put(x, (int64_t)i, extremes[i]);
}

static void act_forward_case(Kit *kit, const Args *args) {
    Tensor y = kit_take(kit, typed(kit, shape1(args->n[0]))), x = kit_uniform(kit, y, -6, 6);
    if (args->flags >= ACT_COUNT) put_extremes(x);
    assert_ok(act_forward(&kit->exec, y, x, args->flags % ACT_COUNT));
    kit_output(kit, "y", y);
}

void act_forward_sweep(Sweep *sweep) {
    over_counts(sweep, act_forward_case, 2 * ACT_COUNT, norm_wise);
}

/* The derivative of tanh cancels where it saturates, so a few elements must not all be there. */
static void act_backward_case(Kit *kit, const Args *args) {
    double range = args->n[0] < 8 ? 2 : 6;
    Tensor dy = kit_random(kit, typed(kit, shape1(args->n[0]))), x = kit_uniform(kit, dy, -range, range);
    Tensor dx = args->flags & 1 ? dy : kit_take(kit, dy);
    if (args->flags / 2 >= ACT_COUNT) put_extremes(x);
    assert_ok(act_backward(&kit->exec, dx, dy, x, args->flags / 2 % ACT_COUNT));
    kit_output(kit, "dx", dx);
}

void act_backward_sweep(Sweep *sweep) {
    over_counts(sweep, act_backward_case, 4 * ACT_COUNT, norm_wise);
}

/* Cases (rows, F). */
static void over_gates(Sweep *sweep, Body body, unsigned flags) {
    static const int64_t widths[] = {1, 3, 4, 8, 15, 16, 17, 33, 64, 100, 257, 1024};
    unsigned turn = 0;
    for (int w = 0; w < 12; w++)
        for (unsigned f = 0; f < flags; f++, turn++)
            compare(sweep, body, (Args){{1 + turn % 7, widths[w]}, f, norm_wise});
    for (unsigned f = 0; f < flags; f++) compare(sweep, body, (Args){{f % 2 ? 1 : 19, 4099}, f, norm_wise});
}

static void glu_forward_case(Kit *kit, const Args *args) {
    Tensor y = kit_take(kit, typed(kit, shape2(args->n[0], args->n[1])));
    Tensor x = kit_uniform(kit, typed(kit, shape3(args->n[0], 2, args->n[1])), -6, 6);
    assert_ok(glu_forward(&kit->exec, y, x, args->flags));
    kit_output(kit, "y", y);
}

void glu_forward_sweep(Sweep *sweep) {
    over_gates(sweep, glu_forward_case, ACT_COUNT);
}

/* Odd flags: dx aliases x. flags / 2 % 3: y is absent, aliases dy, or is a tensor of its own. */
static void glu_backward_case(Kit *kit, const Args *args) {
    unsigned where = args->flags / 2 % 3;
    Tensor dy = kit_random(kit, typed(kit, shape2(args->n[0], args->n[1])));
    Tensor x = kit_uniform(kit, typed(kit, shape3(args->n[0], 2, args->n[1])), -6, 6);
    Tensor dx = args->flags % 2 ? x : kit_take(kit, x);
    Tensor y = where == 0 ? TENSOR_NONE : where == 1 ? dy : kit_take(kit, dy);
    Tensor forward = kit_take(kit, dy);
    assert_ok(glu_forward(&kit->exec, forward, x, args->flags / 6));
    assert_ok(glu_backward(&kit->exec, dx, y, dy, x, args->flags / 6));
    kit_output(kit, "dx", dx);
    if (where == 0) return;
    kit_output(kit, "y", y);
    assert_memory_equal(y.data, forward.data, tensor_bytes(y));
}

void glu_backward_sweep(Sweep *sweep) {
    over_gates(sweep, glu_backward_case, 6 * ACT_COUNT);
}

/* Half of the rows are far from zero, where a naive variance cancels. No row has a mean near 0, which would
 * have a large relative error. */
static Tensor norm_input(Kit *kit, Tensor shape) {
    Tensor x = kit_uniform(kit, shape, -1, 2);
    for (int64_t i = 0; i < tensor_count(x); i++)
        if (i / tensor_cols(x) % 2) tensor_put(x, i, tensor_get(x, i) + 5);
    return x;
}

/* More rows than a GPU processes at once, for each of its code paths. */
static void many_rows(Sweep *sweep, Body body, unsigned first, unsigned flags, double tolerance) {
    static const int64_t sizes[][2] = {{4300, 256}, {3200, 768}, {2200, 1024}, {1100, 1600}, {300, 3072}};
    for (unsigned i = 0; test_on_cuda() && i < sizeof sizes / sizeof *sizes; i++)
        compare(sweep, body, (Args){{1, sizes[i][0], sizes[i][1]}, (first + i) % flags, tolerance});
}

static void over_many_rows(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    many_rows(sweep, body, 1, flags, tolerance);
}

static void layernorm_forward_case(Kit *kit, const Args *args) {
    int64_t rows = args->n[0] * args->n[1], C = args->n[2];
    Tensor y = kit_take(kit, typed(kit, shape3(args->n[0], args->n[1], C)));
    Tensor mean = kit_take(kit, shape1(rows)), rstd = kit_take(kit, shape1(rows));
    Tensor x = norm_input(kit, y), width = typed(kit, shape1(C));
    Tensor gamma = kit_random(kit, width), beta = kit_random(kit, width);
    assert_ok(layernorm_forward(&kit->exec, y, mean, rstd, x, gamma, beta, 1e-5f));
    kit_output(kit, "y", y);
    kit_output(kit, "mean", mean);
    kit_output(kit, "rstd", rstd);
}

void layernorm_forward_sweep(Sweep *sweep) {
    over_rows(sweep, layernorm_forward_case, 1, norm_wise);
    over_many_rows(sweep, layernorm_forward_case, 1, norm_wise);
}

/* Flags: 0 without residual, 1 with residual, 2 dx aliases dy, 3 dx aliases dy, with residual, 4 dx aliases
 * the residual; plus 5 with column sums of dx, plus 10 also with those of the residual, if there is one. */
static void layernorm_backward_case(Kit *kit, const Args *args) {
    int64_t rows = args->n[0] * args->n[1], C = args->n[2];
    Tensor shape = typed(kit, shape3(args->n[0], args->n[1], C));
    Tensor dy = kit_random(kit, shape), x = kit_random(kit, shape);
    Tensor gamma = kit_random(kit, typed(kit, shape1(C)));
    Tensor dgamma = args->flags == 11 ? TENSOR_NONE : kit_random(kit, shape1(C));
    Tensor dbeta = args->flags == 12 ? TENSOR_NONE : kit_random(kit, shape1(C));
    Tensor mean = kit_uniform(kit, shape1(rows), -0.2, 0.2), rstd = kit_uniform(kit, shape1(rows), 0.8, 1.2);
    unsigned alias = args->flags % 5, summed = args->flags / 5;
    Tensor dres = alias % 2 || alias == 4 ? kit_random(kit, shape) : TENSOR_NONE;
    Tensor dx = alias == 4 ? dres : alias >= 2 ? dy : kit_take(kit, shape);
    NormSums sums = {0};
    if (summed) sums.dx = kit_random(kit, shape1(C));
    if (summed > 1 && dres.data) kit_output(kit, "sums of dres", sums.dres = kit_random(kit, shape1(C)));
    assert_ok(layernorm_backward(&kit->exec, dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dres, sums));
    if (summed) {
        assert_ok(stream_sync(kit->exec.stream));
        replace_columns(sums.dx, dx, (double)rows);
        kit_output(kit, "sums of dx", sums.dx);
    }
    kit_output(kit, "dx", dx);
    if (dgamma.data) kit_output(kit, "dgamma", dgamma);
    if (dbeta.data) kit_output(kit, "dbeta", dbeta);
}

void layernorm_backward_sweep(Sweep *sweep) {
    over_rows(sweep, layernorm_backward_case, 15, norm_wise);
    for (unsigned first = 0; first < 15; first += 5)
        many_rows(sweep, layernorm_backward_case, first, 15, norm_wise);
}

/* Compares which elements are 0, that is, the dropout mask. */
static void kit_output_mask(Kit *kit, Tensor of) {
    Tensor mask = kit_take(kit, shape1(tensor_count(of)));
    for (int64_t i = 0; i < tensor_count(of); i++) tensor_put(mask, i, tensor_get(of, i) == 0 ? 1e6 : 1);
    kit_output(kit, "mask", mask);
}

/* Flags: rate, then 0 no alias, 1 out aliases res, 2 out aliases y, 3 without res, 4 without res, out aliases
 * y. */
static void dropout_add_forward_case(Kit *kit, const Args *args) {
    unsigned alias = args->flags / 4;
    Tensor y = kit_uniform(kit, typed(kit, shape3(args->n[0], args->n[1], args->n[2])), 0.5, 1.5);
    Tensor res = alias < 3 ? kit_random(kit, y) : TENSOR_NONE;
    Tensor out = alias == 1 ? res : alias == 2 || alias == 4 ? y : kit_take(kit, y);
    Dropout dropout = dropout_of(kit, rates[args->flags % 4], args->n[1], args->n[2]);
    assert_ok(dropout_add_forward(&kit->exec, out, res, y, dropout));
    kit_output(kit, "out", out);
    if (!res.data) kit_output_mask(kit, out);
}

void dropout_add_forward_sweep(Sweep *sweep) {
    over_rows(sweep, dropout_add_forward_case, 4 * 5, norm_wise);
}

/* Flags: rate, then 1 dx aliases dy, 2 with column sums. */
static void dropout_backward_case(Kit *kit, const Args *args) {
    Tensor dy = kit_uniform(kit, typed(kit, shape3(args->n[0], args->n[1], args->n[2])), 0.5, 1.5);
    Tensor dx = args->flags / 4 % 2 ? dy : kit_take(kit, dy), sums = TENSOR_NONE;
    if (args->flags / 8) sums = kit_random(kit, shape1(args->n[2]));
    Dropout dropout = dropout_of(kit, rates[args->flags % 4], args->n[1], args->n[2]);
    assert_ok(dropout_backward(&kit->exec, dx, sums, dy, dropout));
    if (sums.data) {
        assert_ok(stream_sync(kit->exec.stream));
        replace_columns(sums, dx, (double)tensor_rows(dx));
        kit_output(kit, "sums", sums);
    }
    kit_output(kit, "dx", dx);
    kit_output_mask(kit, dx);
}

void dropout_backward_sweep(Sweep *sweep) {
    over_rows(sweep, dropout_backward_case, 4 * 4, norm_wise);
    for (unsigned first = 8; first < 16; first += 4)
        many_rows(sweep, dropout_backward_case, first, 4 * 4, norm_wise);
}

static void dropout_add_norm_forward_case(Kit *kit, const Args *args) {
    int64_t rows = args->n[0] * args->n[1], C = args->n[2];
    Tensor y = kit_random(kit, typed(kit, shape3(args->n[0], args->n[1], C))), res = norm_input(kit, y);
    Tensor total = kit_take(kit, y), out = kit_take(kit, y);
    Tensor mean = kit_take(kit, shape1(rows)), rstd = kit_take(kit, shape1(rows));
    Tensor gamma = kit_random(kit, typed(kit, shape1(C))), beta = kit_random(kit, gamma);
    Dropout dropout = dropout_of(kit, rates[args->flags], args->n[1], C);
    assert_ok(
        dropout_add_norm_forward(&kit->exec, total, out, mean, rstd, res, y, gamma, beta, 1e-3f, dropout));
    kit_output(kit, "sum", total);
    kit_output(kit, "out", out);
    kit_output(kit, "mean", mean);
    kit_output(kit, "rstd", rstd);
}

/* A different rounding of the sum changes the normalized row by more than one ulp, hence the tolerance. */
void dropout_add_norm_forward_sweep(Sweep *sweep) {
    over_rows(sweep, dropout_add_norm_forward_case, 4, 10 * norm_wise);
    over_many_rows(sweep, dropout_add_norm_forward_case, 4, 10 * norm_wise);
}
