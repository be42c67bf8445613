/* Sweep cases: RMS norm. */
#include "sweep.h"

/* Rows: (B,T,C), or with flag 8 heads 1 and 2 of (B,T,4,C). */
enum { SOME_HEADS = 8 };

static Tensor rows_of(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], C = args->n[2];
    return typed(kit, args->flags & SOME_HEADS ? shape4(B, T, 4, C) : shape3(B, T, C));
}

static HeadRange heads_of(const Args *args) {
    return args->flags & SOME_HEADS ? (HeadRange){1, 2} : (HeadRange){0};
}

static Tensor stats_of(const Args *args) {
    return shape1(args->n[0] * args->n[1] * (args->flags & SOME_HEADS ? 2 : 1));
}

/* Flag 1: y aliases x. */
static void rmsnorm_forward_case(Kit *kit, const Args *args) {
    Tensor x = kit_uniform(kit, rows_of(kit, args), -2, 3), rstd = kit_take(kit, stats_of(args));
    Tensor y = args->flags & 1 ? x : kit_random(kit, x);
    Tensor gamma = kit_random(kit, typed(kit, shape1(args->n[2])));
    assert_ok(rmsnorm_forward(&kit->exec, y, rstd, x, gamma, 1e-5f, heads_of(args)));
    kit_output(kit, "y", y);
    kit_output(kit, "rstd", rstd);
}

/* Rows that end within a vector, and rows for each path of a GPU; more rows than it processes at once. */
static void over_norms(Sweep *sweep, Body body, unsigned flags, double tolerance) {
    static const int64_t widths[] = {1,  3,   4,   7,   16,  17,  32,   33,   64,  80,
                                     96, 128, 129, 256, 257, 768, 1000, 1030, 4096};
    static const int64_t many[][2] = {{4300, 256}, {3200, 768}, {700, 4096}, {300, 9000},
                                      {60000, 32}, {15000, 64}, {13000, 96}, {7000, 128}};
    enum { WIDTHS = sizeof widths / sizeof *widths, MANY = sizeof many / sizeof *many };
    unsigned turn = 0;
    for (int w = 0; w < WIDTHS; w++)
        for (unsigned f = 0; f < 6; f++, turn++)
            compare(sweep, body,
                    (Args){{1 + turn % 3, 1 + turn % 13, widths[w]},
                           (turn % flags) | (f % 2 ? SOME_HEADS : 0),
                           tolerance});
    for (unsigned i = 0; test_on_cuda() && i < MANY; i++)
        compare(sweep, body,
                (Args){{1, many[i][0], many[i][1]}, i % flags | (i % 2 ? SOME_HEADS : 0), tolerance});
}

void rmsnorm_forward_sweep(Sweep *sweep) {
    over_norms(sweep, rmsnorm_forward_case, 2, norm_wise);
}

/* Flags as in layernorm_backward_case: 0 without residual, 1 with residual, 2 dx aliases dy, 3 both, 4 dx
 * aliases the residual. */
static void rmsnorm_backward_case(Kit *kit, const Args *args) {
    unsigned flags = args->flags % SOME_HEADS;
    Tensor shape = rows_of(kit, args), dy = kit_random(kit, shape), x = kit_random(kit, shape);
    Tensor gamma = kit_random(kit, typed(kit, shape1(args->n[2]))),
           dgamma = flags == 1 ? TENSOR_NONE : kit_random(kit, shape1(args->n[2]));
    Tensor rstd = kit_uniform(kit, stats_of(args), 0.8, 1.2);
    Tensor dres = flags % 2 || flags == 4 ? kit_random(kit, shape) : TENSOR_NONE;
    Tensor dx = flags == 4 ? dres : flags >= 2 ? dy : kit_random(kit, shape);
    assert_ok(rmsnorm_backward(&kit->exec, dx, dgamma, dy, x, rstd, gamma, dres, heads_of(args)));
    kit_output(kit, "dx", dx);
    if (dgamma.data) kit_output(kit, "dgamma", dgamma);
}

void rmsnorm_backward_sweep(Sweep *sweep) {
    over_norms(sweep, rmsnorm_backward_case, 5, norm_wise);
}

static void dropout_add_rmsnorm_forward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], C = args->n[2];
    Tensor y = kit_random(kit, typed(kit, shape3(B, T, C))), res = kit_uniform(kit, y, -2, 3);
    Tensor total = kit_take(kit, y), out = kit_take(kit, y), rstd = kit_take(kit, shape1(B * T));
    Tensor gamma = kit_random(kit, typed(kit, shape1(C)));
    Dropout dropout = dropout_of(kit, rates[args->flags % 4], T, C);
    assert_ok(dropout_add_rmsnorm_forward(&kit->exec, total, out, rstd, res, y, gamma, 1e-3f, dropout));
    kit_output(kit, "sum", total);
    kit_output(kit, "out", out);
    kit_output(kit, "rstd", rstd);
}

void dropout_add_rmsnorm_forward_sweep(Sweep *sweep) {
    over_norms(sweep, dropout_add_rmsnorm_forward_case, 4, 10 * norm_wise);
}
