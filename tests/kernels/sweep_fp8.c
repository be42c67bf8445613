/* Sweep cases: FP8 linear layers. Both sides quantize the same values to the same bytes, except where
 * activations differ in their last bits, so the results differ mainly by their accumulation: tensor cores
 * accumulate FP8 products with fewer bits than fp32. All tensors are bf16, whatever the kit's compute type
 * is. */
#include <math.h>

#include "sweep.h"

static const double fp8_tolerance = 4e-3;

static Tensor in_bf16(Tensor shape) {
    shape.dtype = DT_BF16;
    return shape;
}

static Fp8Input empty_input(Kit *kit, int64_t M, int64_t K) {
    return (Fp8Input){.transposed = kit_take(kit, tensor_2d(NULL, DT_E4M3, K, M)),
                      .scale = kit_take(kit, shape1(1))};
}

/* Eight kinds of values: the largest magnitude is a power of two, more than 1.75 times a power of two, or
 * arbitrary; most values underflow relative to the largest; all are tiny or zero; one is infinite or NaN. */
static Tensor some_values(Kit *kit, Tensor shape, unsigned kind) {
    static const double size[] = {1.5, 1, 0x1p-40, 3e4, 0, 1e-30, 1.5, 1.5};
    double max = size[kind % 8];
    Tensor x = kit_uniform(kit, in_bf16(shape), -max, max);
    int64_t count = tensor_count(x);
    if (kind % 8 == 1) tensor_put(x, count / 3, -4);
    if (kind % 8 == 2) tensor_put(x, count - 1, 0x1.c2p-30);
    if (kind % 8 == 6) tensor_put(x, count / 2, -INFINITY);
    if (kind % 8 == 7) tensor_put(x, 0, NAN);
    return x;
}

/* Three ways of scaling: exact, the same while recording amax, delayed. Some amax are there already. */
enum { SCALE_EXACT, SCALE_RECORD, SCALE_DELAYED, SCALE_WAYS };

static Fp8Scale some_scale(Kit *kit, unsigned way, double scale, double before) {
    Fp8Scale how = {0};
    if (way == SCALE_EXACT) return how;
    how.amax = kit_take(kit, shape1(1));
    tensor_put(how.amax, 0, before);
    if (way == SCALE_RECORD) return how;
    how.scale = kit_take(kit, shape1(1));
    tensor_put(how.scale, 0, scale);
    return how;
}

/* Most values fit these scales; those of some kinds are clipped or vanish. */
static Fp8Scales some_scales(Kit *kit, unsigned way) {
    return (Fp8Scales){.input = some_scale(kit, way, 0x1p-7, 0),
                       .weight = some_scale(kit, way, 0x1p-6, 1e4),
                       .gradient = some_scale(kit, way, 0x1p-14, 0.01)};
}

static void output_amax(Kit *kit, const char *name, Fp8Scale how) {
    if (how.amax.data) kit_output(kit, name, how.amax);
}

/* Quantized weights, other than w. */
static Fp8Weight some_weight(Kit *kit, int64_t N, int64_t K) {
    Fp8Weight weight = {.plain = kit_take(kit, tensor_2d(NULL, DT_E4M3, N, K)),
                        .transposed = kit_take(kit, tensor_2d(NULL, DT_E4M3, K, N)),
                        .scale = kit_take(kit, shape1(1))};
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < N * K; i++) {
        double value = 800 * rng_uniform(key, (uint64_t)i) - 400;
        tensor_put(weight.plain, i, value);
        tensor_put(weight.transposed, i % K * N + i / K, value);
    }
    tensor_put(weight.scale, 0, 0x1p-8);
    return weight;
}

/* Flags: kind of values. The way of scaling cycles. */
static void fp8_weight_case(Kit *kit, const Args *args) {
    int64_t N = args->n[0], K = args->n[1];
    Tensor w = some_values(kit, shape2(N, K), args->flags);
    Fp8Scale scale = some_scale(kit, args->flags / 8 % SCALE_WAYS, 0x1p-7, args->flags % 3);
    Fp8Weight weight = {.plain = kit_take(kit, tensor_2d(NULL, DT_E4M3, N, K)),
                        .transposed = kit_take(kit, tensor_2d(NULL, DT_E4M3, K, N)),
                        .scale = kit_take(kit, shape1(1))};
    assert_ok(fp8_weight(&kit->exec, weight, w, scale));
    kit_output(kit, "plain", weight.plain);
    kit_output(kit, "transposed", weight.transposed);
    kit_output(kit, "scale", weight.scale);
    output_amax(kit, "amax", scale);
}

/* An infinity is clipped by a given scale, but not what an activation makes of it, which no kernel defines.
 */
static unsigned kind_of(unsigned kind, unsigned way, Act act) {
    return kind % 8 == 6 && way == SCALE_DELAYED && act != ACT_NONE ? 0 : kind;
}

/* A quantized input as left by norm_fp8_forward, other than x. */
static Fp8Input some_plain(Kit *kit, int64_t M, int64_t K) {
    Fp8Input kept = empty_input(kit, M, K);
    kept.plain = kit_take(kit, tensor_2d(NULL, DT_E4M3, M, K));
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < M * K; i++) tensor_put(kept.plain, i, 800 * rng_uniform(key, (uint64_t)i) - 400);
    tensor_put(kept.scale, 0, 0x1p-8);
    return kept;
}

/* Flags: bias, save the input, activation of the input, kind of values. The way of scaling cycles. Some
 * inputs are quantized already. */
static void linear_fp8_forward_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    Act act = args->flags / 4 % ACT_COUNT;
    Tensor y = kit_take(kit, in_bf16(shape2(M, N))), b = TENSOR_NONE;
    unsigned way = args->flags % 7 % SCALE_WAYS;
    Fp8Scales scales = some_scales(kit, way);
    Tensor x = some_values(kit, shape2(M, K), kind_of(args->flags / 4 / ACT_COUNT, way, act));
    Tensor w = kit_random(kit, in_bf16(shape2(N, K)));
    Fp8Input kept = {0};
    if (args->flags & 1) b = kit_random(kit, in_bf16(shape1(N)));
    bool is_quantized = act == ACT_NONE && args->flags % 3 == 1;
    if (args->flags & 2) kept = empty_input(kit, M, K);
    if (is_quantized) kept = some_plain(kit, M, K);
    Fp8Weight weight = args->flags % 5 == 1 ? some_weight(kit, N, K) : (Fp8Weight){0};
    assert_ok(linear_fp8_forward(&kit->exec, y, kept, x, act, w, weight, b, scales));
    kit_output(kit, "y", y);
    if (!weight.plain.data) output_amax(kit, "amax of w", scales.weight);
    if (is_quantized) return;
    output_amax(kit, "amax of x", scales.input);
    if (!kept.transposed.data) return;
    kit_output(kit, "transposed", kept.transposed);
    kit_output(kit, "scale", kept.scale);
}

/* A saved input as left by the forward pass. */
static Fp8Input some_input(Kit *kit, int64_t M, int64_t K) {
    Fp8Input kept = empty_input(kit, M, K);
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < M * K; i++)
        tensor_put(kept.transposed, i, 800 * rng_uniform(key, (uint64_t)i) - 400);
    tensor_put(kept.scale, 0, 0x1p-8);
    return kept;
}

/* Compares only the maximum of the parts: how a backend distributes magnitudes over them is unspecified. */
static void output_largest(Kit *kit, Tensor peaks) {
    Tensor largest = kit_take(kit, in_bf16(shape1(1)));
    double max = 0;
    for (int64_t i = 0; i < FP8_AMAX_PARTS; i++) {
        double peak = tensor_get(peaks, i);
        assert_true(isnan(peak) || peak >= 0);
        if (!isfinite(peak)) max = NAN;
        if (peak > max) max = peak;
    }
    tensor_put(largest, 0, max);
    kit_output(kit, "amax of dx", largest);
}

/* Partial maxima of |dy|. */
static Tensor some_peaks(Kit *kit, Tensor dy) {
    Tensor peaks = kit_take(kit, shape1(FP8_AMAX_PARTS));
    int64_t count = tensor_count(dy);
    for (int64_t i = 0; i < FP8_AMAX_PARTS; i++) tensor_put(peaks, i, 0);
    for (int64_t i = 0; i < count; i++) {
        double magnitude = fabs(tensor_get(dy, i)), before = tensor_get(peaks, i % 1000);
        if (!(magnitude <= before) && !isnan(before)) tensor_put(peaks, i % 1000, magnitude);
    }
    return peaks;
}

/* What is left about dx: in two ways of scaling its amax, else itself, quantized. */
static Fp8Gradient some_next(Kit *kit, unsigned way, int64_t M, int64_t K, bool sums) {
    Fp8Gradient next = {0};
    if (way == SCALE_DELAYED) {
        next.plain = kit_take(kit, tensor_2d(NULL, DT_E5M2, M, K));
        next.transposed = kit_take(kit, tensor_2d(NULL, DT_E5M2, K, M));
        next.scale = some_scale(kit, way, 0x1p-13, 0);
        kit_output(kit, "quantized dx", next.plain);
        kit_output(kit, "quantized dx, transposed", next.transposed);
    } else {
        next.amax = kit_take(kit, shape1(FP8_AMAX_PARTS));
    }
    if (sums) kit_output(kit, "sums of dx", next.sums = kit_random(kit, shape1(K)));
    return next;
}

/* What is known about dy: in two ways of scaling its amax, else itself, quantized, other than dy. */
static Fp8Gradient some_known(Kit *kit, unsigned way, Tensor dy, bool transposed) {
    int64_t M = dy.dim[0], N = dy.dim[1];
    Fp8Gradient known = {0};
    if (way != SCALE_DELAYED) {
        known.amax = some_peaks(kit, dy);
        return known;
    }
    known.plain = kit_take(kit, tensor_2d(NULL, DT_E5M2, M, N));
    if (transposed) known.transposed = kit_take(kit, tensor_2d(NULL, DT_E5M2, N, M));
    known.scale = some_scale(kit, way, 0x1p-12, 0);
    RngKey key = kit_key(kit);
    for (int64_t i = 0; i < M * N; i++) {
        double value = 2000 * rng_uniform(key, (uint64_t)i) - 1000;
        tensor_put(known.plain, i, value);
        if (known.transposed.data) tensor_put(known.transposed, i % N * M + i / N, value);
    }
    return known;
}

/* Flags: db, saved input, both gradients or only dx or only dw, activation of the input, kind of values in
 * dy. Of every seven cases, three leave something about dx (two of them also its column sums), and two know
 * something about dy. */
static void linear_fp8_backward_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], N = args->n[1], K = args->n[2];
    unsigned which = args->flags / 4 % 3;
    Act act = args->flags / 12 % ACT_COUNT;
    unsigned way = args->flags / 7 % SCALE_WAYS, part = args->flags % 7;
    bool is_known = part == 1 || part == 3, quantized = is_known && way == SCALE_DELAYED;
    Tensor dx = TENSOR_NONE, dw = TENSOR_NONE, db = TENSOR_NONE;
    bool add = act == ACT_NONE && part > 2 && args->flags % 3 == 0;
    if (which != 2) dx = add ? kit_random(kit, in_bf16(shape2(M, K))) : kit_take(kit, in_bf16(shape2(M, K)));
    bool accumulate = args->flags % 5 < 3;
    if (which != 1)
        kit_output(kit, "dw", dw = accumulate ? kit_random(kit, shape2(N, K)) : kit_take(kit, shape2(N, K)));
    if (dw.data && args->flags & 1 && !quantized) kit_output(kit, "db", db = kit_random(kit, shape1(N)));
    Tensor dy = some_values(kit, shape2(M, N), kind_of(args->flags / 12 / ACT_COUNT, way, act));
    Tensor w = kit_random(kit, in_bf16(shape2(N, K))), x = kit_random(kit, in_bf16(shape2(M, K)));
    Fp8Input kept = {0};
    if (args->flags & 2) {
        kept = some_input(kit, M, K);
        if (act == ACT_NONE) x = TENSOR_NONE;
    }
    Fp8Scales scales = some_scales(kit, way);
    Fp8Gradient next = {0}, known = {0};
    if (dx.data && part < 3) next = some_next(kit, way, M, K, part < 2);
    /* Every fourth dy whose scale is given, unless it is known, is dropped out. */
    Dropout dropout = {0};
    if (way == SCALE_DELAYED && !is_known && args->flags / 5 % 4 == 0) {
        dropout = dropout_of(kit, 0.25f, M / 8, N);
        dy = tensor_3d(dy.data, dy.dtype, 8, M / 8, N);
    }
    if (is_known) known = some_known(kit, way, dy, args->flags / 21 % 2);
    Fp8Weight weight = args->flags % 11 == 1 ? some_weight(kit, N, K) : (Fp8Weight){0};
    assert_ok(linear_fp8_backward(&kit->exec, dx, next, dw, db, dy, known, dropout, w, weight, kept, x, act,
                                  add, accumulate, scales));
    if (dx.data && !next.plain.data) kit_output(kit, "dx", dx);
    if (next.amax.data) output_largest(kit, next.amax);
    if (!quantized) output_amax(kit, "amax of dy", scales.gradient);
    if (dx.data && !weight.plain.data) output_amax(kit, "amax of w", scales.weight);
}

/* Sizes below a tile, across tiles and their edges, tall and wide. On the CPU, where only the reference
 * implements FP8, the first few are enough. */
static void over_sizes(Sweep *sweep, Body body, unsigned flags) {
    static const int64_t sizes[][3] = {
        {16, 16, 16},    {32, 48, 64},    {64, 16, 32},   {16, 144, 32},  {128, 128, 128},
        {144, 112, 272}, {256, 64, 80},   {1040, 32, 48}, {48, 1040, 16}, {32, 16, 1296},
        {400, 208, 96},  {2064, 16, 144}, {112, 384, 96},
    };
    unsigned count = test_on_cuda() ? sizeof sizes / sizeof *sizes : 4;
    for (unsigned f = 0; f < flags; f++) {
        const int64_t *size = sizes[f % count];
        compare(sweep, body, (Args){{size[0], size[1], size[2]}, f, fp8_tolerance});
    }
}

/* Flags: kind of logits. Some labels are ignored, and the last columns are padding. */
static void xent_loss_fp8_case(Kit *kit, const Args *args) {
    int64_t M = args->n[0], V = args->n[1];
    double size = args->flags ? 30 : 3;
    Tensor logits = kit_uniform(kit, in_bf16(shape2(M, V)), -size, size);
    Tensor labels = kit_take(kit, tensor_1d(NULL, DT_I32, M));
    Tensor losses = kit_take(kit, shape1(M)), stats = kit_take(kit, shape2(M, 3));
    RngKey key = kit_key(kit);
    for (int64_t m = 0; m < M; m++)
        tensor_i32(labels)[m] = m % 5 == 4 ? -100 : (int32_t)rng_below(key, (uint64_t)m, (uint64_t)V - 7);
    float scale = 0.03f;
    Fp8Gradient gradient = {.plain = kit_take(kit, tensor_2d(NULL, DT_E5M2, M, V)),
                            .scale = {.scale = kit_take(kit, shape1(1))}};
    tensor_put(gradient.scale.scale, 0, fp8_scale(scale, DT_E5M2));
    assert_ok(
        xent_loss_fp8(&kit->exec, losses, stats, logits, labels, (VocabPart){0, V - 7}, scale, gradient));
    kit_output(kit, "losses", losses);
    kit_output(kit, "stats", stats);
    kit_output(kit, "gradient", gradient.plain);
}

void xent_loss_fp8_sweep(Sweep *sweep) {
    static const int64_t sizes[][2] = {{16, 16},    {32, 48},    {16, 272},   {48, 1040},
                                       {16, 24576}, {16, 50304}, {16, 128000}};
    unsigned count = test_on_cuda() ? 7 : 4;
    for (unsigned i = 0; i < 2 * count; i++)
        compare(sweep, xent_loss_fp8_case, (Args){{sizes[i / 2][0], sizes[i / 2][1]}, i % 2, norm_wise});
}

/* Flags: RMS norm, a residual, out in bf16, dropout, a scale that clips, recorded amax. One row may contain
 * an infinity. */
static void norm_fp8_forward_case(Kit *kit, const Args *args) {
    int64_t B = 16, T = args->n[0] / B, C = args->n[1], M = B * T;
    unsigned f = C > 1024 ? args->flags & ~1u : args->flags; /* no wide RMS norms */
    Tensor res = kit_uniform(kit, in_bf16(shape3(B, T, C)), -3, 4), y = TENSOR_NONE, sum = TENSOR_NONE;
    Tensor out = TENSOR_NONE, mean = TENSOR_NONE, beta = TENSOR_NONE, rstd = kit_take(kit, shape1(M));
    Dropout dropout = {0};
    if (f & 2) {
        y = kit_random(kit, res);
        kit_output(kit, "sum", sum = kit_take(kit, res));
        dropout = dropout_of(kit, f & 8 ? 0.25f : 0, T, C);
    }
    if (f & 4) kit_output(kit, "out", out = kit_take(kit, res));
    Tensor gamma = kit_random(kit, in_bf16(shape1(C)));
    if (!(f & 1)) {
        beta = kit_random(kit, in_bf16(shape1(C)));
        kit_output(kit, "mean", mean = kit_take(kit, shape1(M)));
    }
    if (f % 7 == 3) tensor_put(res, C + 5, INFINITY);
    Fp8Input quantized = empty_input(kit, M, C);
    quantized.plain = kit_take(kit, tensor_2d(NULL, DT_E4M3, M, C));
    Fp8Scale scale = some_scale(kit, SCALE_DELAYED, f & 16 ? 0x1p-9 : 0x1p-6, f & 32 ? 100 : 0.01);
    if (f % 5 == 2) scale.amax = TENSOR_NONE;
    assert_ok(norm_fp8_forward(&kit->exec, sum, out, quantized, mean, rstd, res, y, gamma, beta, 1e-3f,
                               dropout, scale));
    kit_output(kit, "plain", quantized.plain);
    kit_output(kit, "transposed", quantized.transposed);
    kit_output(kit, "rstd", rstd);
    kit_output(kit, "scale", quantized.scale);
    if (!scale.amax.data) return;
    Tensor amax = kit_take(kit, in_bf16(shape1(1))); /* a norm may be rounded differently */
    tensor_put(amax, 0, tensor_get(scale.amax, 0));
    kit_output(kit, "amax", amax);
}

void norm_fp8_forward_sweep(Sweep *sweep) {
    static const int64_t sizes[][2] = {{16, 16},    {32, 48},   {48, 272},   {80, 528},
                                       {16, 768},   {144, 768}, {208, 1024}, {112, 1280},
                                       {320, 1040}, {64, 1792}, {96, 1552}};
    unsigned count = test_on_cuda() ? 11 : 4;
    for (unsigned f = 0; f < 64 * (test_on_cuda() ? 3 : 1); f++)
        compare(sweep, norm_fp8_forward_case,
                (Args){{sizes[f % count][0], sizes[f % count][1]}, f % 64, 10 * norm_wise});
}

void fp8_weight_sweep(Sweep *sweep) {
    static const int64_t sizes[][2] = {{16, 16}, {48, 32}, {16, 400}, {144, 272}, {1040, 128}};
    for (unsigned f = 0; f < 8 * SCALE_WAYS; f++)
        compare(sweep, fp8_weight_case, (Args){{sizes[f % 5][0], sizes[f % 5][1]}, f, 1e-5});
}

void linear_fp8_forward_sweep(Sweep *sweep) {
    over_sizes(sweep, linear_fp8_forward_case, 4 * ACT_COUNT * 8);
}

void linear_fp8_backward_sweep(Sweep *sweep) {
    over_sizes(sweep, linear_fp8_backward_case, 12 * ACT_COUNT * 8);
}
