/* Sweep cases: embedding, cross-entropy loss, gather and scatter of rows, elementwise kernels, reductions and
 * AdamW. */
#include <float.h>
#include <math.h>

#include "sweep.h"

enum {
    WITH_POSITIONS = 1,
    WITH_TYPE_TABLE = 2,
    WITH_TYPES = 4,
    WITH_PAST = 8,
    NO_TOKEN_TABLE = 8,
    WITH_EACH = 16
};

/* A part of a vocabulary of 100 tokens: 40 rows starting at 30, of which the last 5 are padding. */
static const VocabPart part_of_100 = {.start = 30, .valid = 65};

static void embedding_forward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], C = args->n[2], P = T + 4;
    unsigned f = args->flags;
    Tensor x = kit_take(kit, typed(kit, shape3(B, T, C))), tokens = kit_index(kit, shape2(B, T), 0, 100);
    Tensor wte = kit_random(kit, typed(kit, shape2(40, C))), wpe = kit_random(kit, typed(kit, shape2(P, C)));
    Tensor wtype = kit_random(kit, typed(kit, shape2(2, C))), types = kit_index(kit, shape2(B, T), 0, 2);
    Tensor past = kit_index(kit, f & WITH_EACH ? shape2(B, T) : shape1(B), 0, 8); /* some exceed the table */
    assert_ok(embedding_forward(
        &kit->exec, x, tokens, f & WITH_TYPES ? types : TENSOR_NONE, f & WITH_PAST ? past : TENSOR_NONE, wte,
        f & WITH_POSITIONS ? wpe : TENSOR_NONE, f & WITH_TYPE_TABLE ? wtype : TENSOR_NONE, part_of_100));
    kit_output(kit, "x", x);
}

void embedding_forward_sweep(Sweep *sweep) {
    over_rows(sweep, embedding_forward_case, 32, norm_wise);
}

static void embedding_backward_case(Kit *kit, const Args *args) {
    int64_t B = args->n[0], T = args->n[1], C = args->n[2];
    unsigned f = args->flags;
    Tensor dx = kit_random(kit, typed(kit, shape3(B, T, C))), tokens = kit_index(kit, shape2(B, T), 0, 100);
    Tensor types = f & WITH_TYPES ? kit_index(kit, shape2(B, T), 0, 2) : TENSOR_NONE;
    Tensor positions = f & WITH_EACH ? kit_index(kit, shape2(B, T), 0, T + 6) : TENSOR_NONE;
    Tensor dwte = TENSOR_NONE, dwpe = TENSOR_NONE, dwtype = TENSOR_NONE;
    bool others = f & (WITH_POSITIONS | WITH_TYPE_TABLE); /* a kernel without any table is not called */
    if (!(f & NO_TOKEN_TABLE) || !others) kit_output(kit, "dwte", dwte = kit_random(kit, shape2(40, C)));
    if (f & WITH_POSITIONS) kit_output(kit, "dwpe", dwpe = kit_random(kit, shape2(T + 4, C)));
    if (f & WITH_TYPE_TABLE) kit_output(kit, "dwtype", dwtype = kit_random(kit, shape2(2, C)));
    assert_ok(embedding_backward(&kit->exec, dwte, dwpe, dwtype, dx, tokens, types, positions, part_of_100));
}

void embedding_backward_sweep(Sweep *sweep) {
    over_rows(sweep, embedding_backward_case, 32, norm_wise);
}

/* The part of the vocabulary in the V columns. Flags: 0 all of it, 1 with padding at the end, 2 a part from
 * the middle, 3 only padding. Labels are inside and outside of it, and negative, which means ignored. */
static VocabPart vocab_of(const Args *args) {
    int64_t V = args->n[2];
    switch (args->flags % 4) {
    case 0: return (VocabPart){0, V};
    case 1: return (VocabPart){0, V - V / 3};
    case 2: return (VocabPart){V, 3 * V};
    default: return (VocabPart){3 * V, 2 * V};
    }
}

static Tensor some_logits(Kit *kit, const Args *args) {
    return kit_uniform(kit, typed(kit, shape2(args->n[0] * args->n[1], args->n[2])), -12, 12);
}

static Tensor some_labels(Kit *kit, const Args *args) {
    VocabPart part = vocab_of(args);
    return kit_index(kit, shape1(args->n[0] * args->n[1]), -part.valid / 4 - 1, part.valid + 2);
}

static void xent_partial_case(Kit *kit, const Args *args) {
    Tensor logits = some_logits(kit, args), labels = some_labels(kit, args);
    Tensor stats = kit_take(kit, shape2(logits.dim[0], 3)), before = kit_copy(kit, logits);
    assert_ok(xent_partial(&kit->exec, stats, logits, labels, vocab_of(args)));
    assert_memory_equal(before.data, logits.data, tensor_bytes(logits));
    kit_output(kit, "stats", stats);
}

void xent_partial_sweep(Sweep *sweep) {
    over_rows(sweep, xent_partial_case, 4, norm_wise);
    compare(sweep, xent_partial_case, (Args){{2, 3, 50304}, 1, norm_wise});
}

/* Statistics from four ranks; the last has only padding. */
static void xent_combine_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1];
    Tensor stats = kit_take(kit, shape2(M, 3)), parts = kit_uniform(kit, shape3(4, M, 3), 1, 3);
    for (int64_t m = 0; m < M; m++) {
        float *padding = tensor_f32(parts) + (3 * M + m) * 3;
        padding[0] = -INFINITY, padding[1] = padding[2] = 0;
    }
    assert_ok(xent_combine(&kit->exec, stats, parts));
    kit_output(kit, "stats", stats);
}

void xent_combine_sweep(Sweep *sweep) {
    over_rows(sweep, xent_combine_case, 1, norm_wise);
}

/* Statistics as for the full vocabulary: maximum 13 and an arbitrary sum. */
static void xent_finish_case(Kit *kit, const Args *args) {
    Tensor logits = some_logits(kit, args), labels = some_labels(kit, args);
    Tensor losses = kit_take(kit, shape1(logits.dim[0]));
    Tensor stats = kit_uniform(kit, shape2(logits.dim[0], 3), 1, 3);
    for (int64_t m = 0; m < stats.dim[0]; m++) tensor_f32(stats)[m * 3] = 13;
    bool gradient = args->flags / 4;
    assert_ok(xent_finish(&kit->exec, losses, logits, stats, labels, vocab_of(args), 0.125f, gradient));
    kit_output(kit, "losses", losses);
    kit_output(kit, "logits", logits);
}

void xent_finish_sweep(Sweep *sweep) {
    over_rows(sweep, xent_finish_case, 8, norm_wise);
    compare(sweep, xent_finish_case, (Args){{2, 3, 50304}, 5, norm_wise});
}

/* With few columns, logits are scaled down: if the label's probability is nearly 1, its gradient is only
 * rounding error. */
static void xent_loss_case(Kit *kit, const Args *args) {
    Tensor logits = some_logits(kit, args), labels = some_labels(kit, args);
    if (args->n[2] < 100)
        for (int64_t i = 0; i < tensor_count(logits); i++) tensor_put(logits, i, tensor_get(logits, i) / 8);
    Tensor losses = kit_take(kit, shape1(logits.dim[0])), stats = kit_take(kit, shape2(logits.dim[0], 3));
    bool gradient = args->flags / 4;
    assert_ok(xent_loss(&kit->exec, losses, stats, logits, labels, vocab_of(args), 0.125f, gradient));
    kit_output(kit, "losses", losses);
    kit_output(kit, "stats", stats);
    kit_output(kit, "logits", logits);
}

/* Includes rows too long for a GPU's shared memory, and more rows than it processes at once. */
void xent_loss_sweep(Sweep *sweep) {
    over_rows(sweep, xent_loss_case, 8, norm_wise);
    for (unsigned f = 0; f < 8; f++) compare(sweep, xent_loss_case, (Args){{37, 11, 776}, f, norm_wise});
    compare(sweep, xent_loss_case, (Args){{1, 3, 24584}, 5, norm_wise});
    compare(sweep, xent_loss_case, (Args){{1, 3, 65536}, 4, norm_wise});
    for (int i = 0; i < 3; i++) compare(sweep, xent_loss_case, (Args){{2, 3, 50304}, 5, norm_wise});
    for (int i = 0; i < 3; i++) compare(sweep, xent_loss_case, (Args){{1, 2, 128000}, 4, norm_wise});
}

typedef Status (*TargetLoss)(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale,
                             bool gradient);

/* Targets from 0 to 1, some of them ignored; logits so large that exp() of one would overflow. Flags: 1 with
 * gradient. */
static void target_loss_case(Kit *kit, const Args *args, TargetLoss loss) {
    int64_t M = args->n[0] * args->n[1], L = args->n[2];
    Tensor logits = kit_uniform(kit, typed(kit, shape2(M, L)), -100, 100);
    Tensor targets = kit_uniform(kit, shape2(M, L), 0, 1), losses = kit_take(kit, targets);
    for (int64_t i = 0; i < M * L; i++) {
        if (i % 2) tensor_put(logits, i, tensor_get(logits, i) / 50);
        if (i % 3 == 0) tensor_put(targets, i, i % 2);
        if (i % 7 == 3) tensor_put(targets, i, NAN);
    }
    assert_ok(loss(&kit->exec, losses, logits, targets, 0.125f, args->flags));
    for (int64_t i = 3; i < M * L; i += 7)
        assert_true(tensor_get(losses, i) == 0 && (!args->flags || tensor_get(logits, i) == 0));
    kit_output(kit, "losses", losses);
    kit_output(kit, "logits", logits);
}

static void mse_loss_case(Kit *kit, const Args *args) {
    target_loss_case(kit, args, mse_loss);
}

static void bce_loss_case(Kit *kit, const Args *args) {
    target_loss_case(kit, args, bce_loss);
}

void mse_loss_sweep(Sweep *sweep) {
    over_rows(sweep, mse_loss_case, 2, norm_wise);
}

void bce_loss_sweep(Sweep *sweep) {
    over_rows(sweep, bce_loss_case, 2, norm_wise);
}

/* Flags: 0 random values, 1 ties including zeros of both signs, 2 a NaN in every other row, 3 infinities: one
 * +inf, or one -inf, or only -inf. */
static Tensor argmax_input(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], C = args->n[2];
    Tensor x = kit_uniform(kit, typed(kit, shape2(M, C)), -12, 12), where = kit_index(kit, shape1(M), 0, C);
    Tensor few = kit_index(kit, shape2(M, C), 0, 3);
    for (int64_t i = 0; i < M * C; i++) {
        static const double equals[] = {-1, -0.0, 0};
        if (args->flags == 1) tensor_put(x, i, equals[tensor_i32(few)[i]]);
        if (args->flags == 3 && i / C % 3 == 0) tensor_put(x, i, -INFINITY);
    }
    for (int64_t m = 0; m < M; m++) {
        int64_t at = m * C + tensor_i32(where)[m];
        if (args->flags == 2 && m % 2 == 0) tensor_put(x, at, m % 4 ? NAN : -NAN);
        if (args->flags == 3 && m % 3) tensor_put(x, at, m % 3 == 1 ? INFINITY : -INFINITY);
    }
    return x;
}

static void argmax_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1];
    Tensor x = argmax_input(kit, args), got = kit_take(kit, shape1(M));
    Tensor index = kit_index(kit, shape1(M), -7, -2);
    assert_ok(argmax(&kit->exec, index, x));
    for (int64_t m = 0; m < M; m++) tensor_put(got, m, tensor_i32(index)[m]);
    kit_output(kit, "index", got);
}

void argmax_sweep(Sweep *sweep) {
    over_rows(sweep, argmax_case, 4, 0);
    for (unsigned f = 0; f < 4; f++) compare(sweep, argmax_case, (Args){{4, 3, 50257}, f, 0});
}

static void argmax_advance_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], R = 2 + args->flags % 2;
    Tensor x = argmax_input(kit, args), chosen = kit_index(kit, shape2(M, R), -7, -2);
    Tensor tokens = kit_index(kit, shape1(M), -7, -2), past = kit_index(kit, shape1(M), 0, 9);
    Tensor got = kit_take(kit, shape1(M * (R + 2)));
    assert_ok(argmax_advance(&kit->exec, chosen, tokens, past, x));
    for (int64_t i = 0; i < M * R; i++) tensor_put(got, i, tensor_i32(chosen)[i]);
    for (int64_t m = 0; m < M; m++) {
        tensor_put(got, M * R + 2 * m, tensor_i32(tokens)[m]);
        tensor_put(got, M * R + 2 * m + 1, tensor_i32(past)[m]);
    }
    kit_output(kit, "results", got);
}

void argmax_advance_sweep(Sweep *sweep) {
    over_rows(sweep, argmax_advance_case, 4, 0);
    for (unsigned f = 0; f < 4; f++) compare(sweep, argmax_advance_case, (Args){{4, 3, 50257}, f, 0});
}

/* Correct, wrong and ignored labels. */
static void xent_hits_case(Kit *kit, const Args *args) {
    Tensor labels = some_labels(kit, args);
    int64_t M = labels.dim[0];
    Tensor hits = kit_take(kit, shape1(M)), stats = kit_uniform(kit, shape2(M, 3), 1, 3);
    for (int64_t m = 0; m < M; m += 2) tensor_f32(stats)[m * 3 + 2] = tensor_f32(stats)[m * 3];
    assert_ok(xent_hits(&kit->exec, hits, stats, labels, vocab_of(args).valid));
    kit_output(kit, "hits", hits);
}

void xent_hits_sweep(Sweep *sweep) {
    over_rows(sweep, xent_hits_case, 1, 0);
}

static void gather_rows_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], C = args->n[2];
    Tensor out = kit_take(kit, typed(kit, shape2(M, C))), x = kit_random(kit, typed(kit, shape3(3, 5, C)));
    assert_ok(gather_rows(&kit->exec, out, x, kit_index(kit, shape1(M), 0, 15)));
    kit_output(kit, "out", out);
}

void gather_rows_sweep(Sweep *sweep) {
    over_rows(sweep, gather_rows_case, 1, 0);
}

/* Rows repeat. The order of addition is specified, so results must match exactly. */
static void scatter_add_rows_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0] * args->n[1], C = args->n[2];
    Tensor x = kit_random(kit, typed(kit, shape3(3, 5, C))), y = kit_random(kit, typed(kit, shape2(M, C)));
    assert_ok(scatter_add_rows(&kit->exec, x, y, kit_index(kit, shape1(M), 0, 15)));
    kit_output(kit, "x", x);
}

void scatter_add_rows_sweep(Sweep *sweep) {
    over_rows(sweep, scatter_add_rows_case, 1, 0);
    for (int i = 0; i < 3; i++) compare(sweep, scatter_add_rows_case, (Args){{3000 + i, 1, 24}, 0, 0});
}

static void transpose_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[2];
    Tensor x = kit_random(kit, typed(kit, shape2(M, N))), y = kit_take(kit, typed(kit, shape2(N, M))),
           back = kit_take(kit, y);
    assert_ok(transpose(&kit->exec, y, x));
    for (int64_t i = 0; i < M * N; i++) tensor_put(back, i, tensor_get(x, i % M * N + i / M));
    assert_memory_equal(y.data, back.data, tensor_bytes(y));
    kit_output(kit, "y", y);
}

void transpose_sweep(Sweep *sweep) {
    over_rows(sweep, transpose_case, 1, 0);
    compare(sweep, transpose_case, (Args){{257, 1, 333}, 0, 0});
    compare(sweep, transpose_case, (Args){{1031, 1, 2}, 0, 0});
}

/* (P,B,T,N) to (B,T,P,N), with the parts of `from` in reverse if flag 1 is set, into a part of each row. */
static void copy_blocks_case(Kit *kit, const Args *args) {
    int64_t P = args->n[0], rows = args->n[1], N = args->n[2], odd = args->flags / 2;
    Tensor from = kit_random(kit, typed(kit, shape3(P, rows, N)));
    Tensor to = kit_random(kit, typed(kit, shape3(rows, P, N + odd)));
    Blocks blocks = {.size = N, .count = {P, rows, 1}};
    blocks.to = (BlockSpan){odd, {N + odd, P * (N + odd), 0}};
    blocks.from = (BlockSpan){0, {rows * N, N, 0}};
    if (args->flags & 1) blocks.from = (BlockSpan){(P - 1) * rows * N, {-rows * N, N, 0}};
    Tensor expected = kit_take(kit, to);
    memcpy(expected.data, to.data, tensor_bytes(to));
    for (int64_t i = 0; i < P * rows * N; i++) {
        int64_t p = i / (rows * N), r = i / N % rows, part = args->flags & 1 ? P - 1 - p : p;
        tensor_put(expected, (r * P + p) * (N + odd) + odd + i % N,
                   tensor_get(from, (part * rows + r) * N + i % N));
    }
    assert_ok(copy_blocks(&kit->exec, to, from, blocks));
    assert_memory_equal(to.data, expected.data, tensor_bytes(to));
    kit_output(kit, "to", to);
}

static void fill_case(Kit *kit, const Args *args) {
    Tensor x = kit_take(kit, typed(kit, shape1(args->n[0])));
    assert_ok(fill(&kit->exec, x, 2.3f));
    kit_output(kit, "x", x);
}

void copy_blocks_sweep(Sweep *sweep) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {2, 7, 8}, {4, 33, 64}, {8, 5, 24}, {3, 129, 40}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned flags = 0; flags < 4; flags++)
            compare(sweep, copy_blocks_case, (Args){{sizes[i][0], sizes[i][1], sizes[i][2]}, flags, 0});
}

void fill_sweep(Sweep *sweep) {
    over_counts(sweep, fill_case, 1, 0);
}

/* All pairs of types, with values below, within and above fp16's range, NaN and infinity. */
static void convert_case(Kit *kit, const Args *args) {
    Tensor from = kit_uniform(kit, shape1(args->n[0]), -30, 18);
    for (int64_t i = 0; i < args->n[0]; i++)
        tensor_f32(from)[i] = exp2f(tensor_f32(from)[i]) * (i % 2 ? 1 : -1);
    if (args->n[0] > 2) tensor_f32(from)[1] = NAN, tensor_f32(from)[2] = INFINITY;
    Tensor x = from, y = from;
    x.dtype = args->flags / 4, y.dtype = args->flags % 4;
    x = kit_take(kit, x), y = kit_take(kit, y);
    assert_ok(dtype_convert(x.data, x.dtype, from.data, DT_F32, (size_t)args->n[0]));
    assert_ok(convert(&kit->exec, y, x));
    kit_output(kit, "y", y);
}

void convert_sweep(Sweep *sweep) {
    over_counts(sweep, convert_case, 16, 0);
}

/* Flags: 0 to 2 select the type of x, 3 x aliases y. */
static void add_case(Kit *kit, const Args *args) {
    Tensor y = kit_random(kit, typed(kit, shape1(args->n[0]))), x = y;
    x.dtype = (DType)args->flags;
    assert_ok(add(&kit->exec, y, args->flags == 3 ? y : kit_random(kit, x)));
    kit_output(kit, "y", y);
}

void add_sweep(Sweep *sweep) {
    over_counts(sweep, add_case, 4, 0);
}

static void scale_case(Kit *kit, const Args *args) {
    Tensor y = kit_random(kit, typed(kit, shape1(args->n[0])));
    assert_ok(scale(&kit->exec, y, 0.3f));
    kit_output(kit, "y", y);
}

void scale_sweep(Sweep *sweep) {
    over_counts(sweep, scale_case, 1, 0);
}

static Tensor some_total(Kit *kit) {
    Tensor total = kit_take(kit, tensor_1d(NULL, DT_F64, 1));
    *(double *)total.data = 0.5;
    kit_output(kit, "total", total);
    return total;
}

static void sum_case(Kit *kit, const Args *args) {
    assert_ok(sum(&kit->exec, some_total(kit), kit_uniform(kit, typed(kit, shape1(args->n[0])), 0, 1)));
}

/* Kernels accumulate in fp64, hence the tolerance. */
void sum_sweep(Sweep *sweep) {
    over_counts(sweep, sum_case, 1, 1e-13);
}

/* Flags: 0 random values, 1 only the type's largest value, 2 with infinity, 3 with NaN. */
static void sum_squares_case(Kit *kit, const Args *args) {
    static const double largest[] = {[DT_F32] = FLT_MAX, [DT_BF16] = 0x1.fep127, [DT_F16] = 65504};
    Tensor x = kit_random(kit, typed(kit, shape1(args->n[0]))), total = some_total(kit);
    for (int64_t i = 0; args->flags == 1 && i < args->n[0]; i++) tensor_put(x, i, largest[x.dtype]);
    if (args->flags > 1) tensor_put(x, args->n[0] / 2, args->flags == 2 ? -INFINITY : NAN);
    assert_ok(sum_squares(&kit->exec, total, x));
    assert_true((bool)isfinite(*(double *)total.data) == (args->flags < 2));
}

/* The reference adds in order, which rounds 262147 times. */
void sum_squares_sweep(Sweep *sweep) {
    over_counts(sweep, sum_squares_case, 4, 1e-12);
}

/* Flags: few long parts, starting in the middle of one, or many short ones; aligned part length or not. Each
 * total equals sum_squares() of the part's elements, bit for bit. */
static void sum_squares_parts_case(Kit *kit, const Args *args) {
    int64_t count = args->n[0], share = args->flags % 2 ? count / 3 + 1 : count / 40 + 4, part = 0, end;
    if (args->flags / 2) share = share / 4 * 4 + 4;
    int64_t skip = args->flags % 2 ? share + share / 2 : 0, parts = (skip + count - 1) / share + 2;
    Tensor x = kit_random(kit, shape1(count)), totals = kit_take(kit, tensor_1d(NULL, DT_F64, parts));
    Tensor alone = kit_take(kit, totals);
    for (int64_t p = 0; p < parts; p++)
        ((double *)totals.data)[p] = ((double *)alone.data)[p] = 0.25 * (double)p;
    assert_ok(sum_squares_parts(&kit->exec, totals, x, skip, share));
    kit_output(kit, "totals", totals);
    for (int64_t at = 0; at < count; at = end) {
        part = (skip + at) / share;
        end = (part + 1) * share - skip < count ? (part + 1) * share - skip : count;
        assert_ok(sum_squares(&kit->exec, tensor_slice(alone, part, 1), tensor_slice(x, at, end - at)));
    }
    assert_memory_equal(totals.data, alone.data, (size_t)parts * sizeof(double));
}

void sum_squares_parts_sweep(Sweep *sweep) {
    over_counts(sweep, sum_squares_parts_case, 4, 1e-13);
}

/* Flags: one run, or runs of a wider tensor; few or many totals; added or subtracted. */
static void sketch_case(Kit *kit, const Args *args) {
    int64_t run = args->flags & 1 ? 37 : args->n[0], count = (args->n[0] + run - 1) / run * run;
    int64_t size = args->flags & 2 ? 4096 : 64;
    Tensor x = kit_random(kit, shape1(count)), totals = kit_take(kit, tensor_1d(NULL, DT_F64, size));
    for (int64_t i = 0; i < size; i++) ((double *)totals.data)[i] = 0.5 * (double)i;
    assert_ok(sketch(&kit->exec, totals, x,
                     (SketchMap){.key = 77,
                                 .run = run,
                                 .group = args->flags & 1 ? 111 : run + 5,
                                 .start = args->flags & 1 ? 37 : 5,
                                 .subtract = args->flags & 4}));
    kit_output(kit, "totals", totals);
}

void sketch_sweep(Sweep *sweep) {
    over_counts(sweep, sketch_case, 8, 1e-5);
}

/* Part k of several, 16-byte aligned if the count is even. */
static AdamWPart adamw_part(AdamWPart all, int k, int parts) {
    int64_t count = tensor_count(all.param), align = count % 2 ? 1 : 8;
    int64_t from = count * k / parts / align * align;
    int64_t to = k + 1 < parts ? count * (k + 1) / parts / align * align : count;
    Tensor *const tensors[] = {&all.param, &all.m, &all.v, &all.copy, &all.grad};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i]->data) *tensors[i] = tensor_slice(*tensors[i], from, to - from);
    all.lr /= (float)(k + 1);
    all.decay *= (float)(k + 1);
    return all;
}

/* Flags: weight decay, zero gradients and moments, keep_zeros, halves (bf16 only). The copy has the compute
 * type and is absent in fp32. Counts from 1000 to adamw_large have more parts than a kernel takes at once. */
static const int64_t adamw_large = 1 << 20;

static void adamw_step_case(Kit *kit, const Args *args) {
    Tensor param = kit_random(kit, shape1(args->n[0])), grad = kit_random(kit, param);
    Tensor m = kit_random(kit, param), v = kit_uniform(kit, param, 0, 2);
    if (args->flags & 2)
        for (int64_t i = 0; i < args->n[0]; i += 3)
            tensor_f32(grad)[i] = tensor_f32(m)[i] = tensor_f32(v)[i] = 0;
    for (int64_t i = 0; args->flags & 4 && i < args->n[0]; i += 2)
        tensor_f32(param)[i] = i % 4 ? 0.0f : -0.0f;
    AdamW spec = {.beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .eps = 1e-8f,
                  .correction1 = 0.19f,
                  .correction2 = 0.002f,
                  .grad_scale = 0.7f};
    Tensor copy = kit->compute == DT_F32 ? TENSOR_NONE : kit_take(kit, typed(kit, param));
    bool halves = args->flags & 8 && kit->compute == DT_BF16;
    Tensor rest = kit_take(kit, tensor_1d(NULL, DT_F32_LOWER, args->n[0]));
    if (halves) exchange_halves(param, copy, rest, false);
    AdamWPart part[70],
        all = {halves ? rest : param, m, v, copy, grad, 1e-2f, args->flags & 1 ? 0.1f : 0, args->flags & 4};
    int parts = args->n[0] > 1000 && args->n[0] < adamw_large ? 70 : 1 + (int)args->flags % 3;
    for (int k = 0; k < parts; k++) part[k] = adamw_part(all, k, parts);
    assert_ok(adamw_step(&kit->exec, part, parts, spec));
    if (halves) exchange_halves(param, copy, rest, true);
    for (int64_t i = 0; copy.data && !halves && i < args->n[0]; i++) {
        Tensor one = tensor_1d(&(double){0}, copy.dtype, 1);
        tensor_put(one, 0, tensor_get(param, i));
        assert_true(tensor_get(copy, i) == tensor_get(one, 0));
    }
    for (int64_t i = 0; args->flags & 4 && i < args->n[0]; i++) {
        bool zero = tensor_f32(param)[i] == 0 && tensor_f32(m)[i] == 0 && tensor_f32(v)[i] == 0;
        assert_true(i % 2 ? tensor_f32(m)[i] != 0 || args->flags & 2 : zero);
    }
    kit_output(kit, "param", param);
    kit_output(kit, "m", m);
    kit_output(kit, "v", v);
}

/* Without gradients, moments and decay, halves stay as they are, and a NaN stays one. */
static void adamw_bits_case(Kit *kit, const Args *args) {
    static const uint32_t bits[] = {0,          0x80000000, 1,          0x80000001, 0x00007fff,
                                    0x00008000, 0x007fffff, 0x3f807fff, 0x3f808000, 0x3f808001,
                                    0x3f818000, 0xbf818000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000,
                                    0x7fc00000, 0x7f800001, 0x7fffffff, 0xffffffff};
    int64_t count = args->n[0];
    Tensor shape = shape1(count), m = kit_take(kit, shape), v = kit_take(kit, shape),
           grad = kit_take(kit, shape);
    Tensor upper = kit_take(kit, tensor_1d(NULL, DT_BF16, count)),
           rest = kit_take(kit, tensor_1d(NULL, DT_F32_LOWER, count));
    float value[64];
    assert_true(count <= 64);
    for (int64_t i = 0; i < count; i++) {
        memcpy(&value[i], &bits[(size_t)i % (sizeof bits / sizeof *bits)], 4);
        tensor_f32(m)[i] = tensor_f32(v)[i] = tensor_f32(grad)[i] = 0;
        ((uint16_t *)upper.data)[i] = f32_halves(value[i], (uint16_t *)rest.data + i);
    }
    AdamWPart part = {rest, m, v, upper, grad, 1e-2f, 0, args->flags & 1};
    AdamW spec = {0.9f, 0.999f, 1e-8f, 0.1f, 0.001f, 1};
    assert_ok(adamw_step(&kit->exec, &part, 1, spec));
    for (int64_t i = 0; i < count; i++) {
        uint16_t low, high = f32_halves(value[i], &low), found = ((uint16_t *)upper.data)[i];
        float joined = f32_from_halves(found, ((uint16_t *)rest.data)[i]);
        if (isnan(value[i])) {
            assert_true(isnan(joined) && isnan(bf16_to_f32(found)));
            continue;
        }
        bool zero = args->flags & 1 && value[i] == 0; /* of any sign */
        assert_true(zero ? joined == 0 : found == high && !memcmp(&joined, &value[i], sizeof joined));
    }
    kit_output(kit, "m", m);
}

void adamw_step_sweep(Sweep *sweep) {
    for (int flags = 0; flags < 2; flags++)
        for (int64_t count = 21; count <= 63; count += 42)
            compare(sweep, adamw_bits_case, (Args){{count}, (unsigned)flags, 0});
    over_counts(sweep, adamw_step_case, 16, 1e-6);
    for (int i = 0; i < 3 && !SANITIZED; i++)
        compare(sweep, adamw_step_case, (Args){{adamw_large + 45 + i}, 8, 1e-6});
}
