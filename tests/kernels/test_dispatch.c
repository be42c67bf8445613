/* Tests the dispatch functions of kernels.h: argument checks, profile counters and empty inputs. Anchors the
 * reference kernels with a few independently known values. */
#include <float.h>
#include <math.h>

#include "dispatch.h"

enum { FIELDS = KERNEL_COUNT + 4 }; /* plus the name, int8_tile and, last, what only GPUs have */

_Static_assert(sizeof(KernelTable) == FIELDS * sizeof(void (*)(void)),
               "KernelTable slots and KernelIds must correspond one to one");

static void test_tables(void **state) {
    for (int i = 0; i < 2; i++) {
        const KernelTable *table = NULL;
        assert_ok(kernels_find(backends[i], &table));
        assert_string_equal(table->name, backends[i]);
        void (*slots[FIELDS])(void);
        memcpy(slots, table, sizeof slots);
        for (int s = 0; s < FIELDS - 2; s++) assert_true(slots[s] != NULL);
        assert_null(table->fuses_linear);
        assert_null(table->groups_packed);
    }
    const KernelTable *untouched = NULL;
    assert_fails(kernels_find("gpu", &untouched), STATUS_USAGE, "'gpu'");
    assert_null(untouched);
    for (int a = 0; a < KERNEL_COUNT; a++)
        for (int b = 0; b < a; b++) assert_string_not_equal(kernel_name(a), kernel_name(b));
}

/* Values from PyTorch's activation functions in double precision. */
static void test_known_activations(void **state) {
    Kit *kit = *state;
    static const float in[] = {-3, -1, -0.5f, 0, 0.5f, 1, 3};
    static const struct {
        Act act;
        float out[7];
    } known[] = {
        {ACT_GELU_TANH,
         {-0.003637392f, -0.158808009f, -0.154285988f, 0, 0.345714012f, 0.841191991f, 2.996362608f}},
        {ACT_GELU_ERF,
         {-0.004049694f, -0.158655254f, -0.154268770f, 0, 0.345731230f, 0.841344746f, 2.995950306f}},
        {ACT_RELU, {0, 0, 0, 0, 0.5f, 1, 3}},
        {ACT_TANH,
         {-0.995054754f, -0.761594156f, -0.462117157f, 0, 0.462117157f, 0.761594156f, 0.995054754f}},
        {ACT_SILU,
         {-0.142277620f, -0.268941421f, -0.188770334f, 0, 0.311229666f, 0.731058579f, 2.857722380f}},
    };
    for (int i = 0; i < 5; i++) {
        Tensor x = kit_take(kit, shape1(7)), y = kit_take(kit, shape1(7));
        memcpy(x.data, in, sizeof in);
        assert_ok(act_forward(&kit->exec, y, x, known[i].act));
        for (int j = 0; j < 7; j++) assert_float_equal(tensor_f32(y)[j], known[i].out[j], 1e-6);
    }
}

/* A quarter turn per position of the first pair, an eighth of the second; positions from a tensor. */
static void test_known_rotation(void **state) {
    Kit *kit = *state;
    const float half = 0.70710678f;
    Tensor x = kit_take(kit, shape4(1, 3, 1, 4)), table = kit_take(kit, shape2(2, 4));
    Tensor positions = kit_take(kit, tensor_1d(NULL, DT_I32, 1));
    memcpy(table.data, (float[]){1, 1, 0, 0, 0, half, 1, half}, 8 * sizeof(float));
    for (int i = 0; i < 12; i++) tensor_f32(x)[i] = (float[]){1, 2, 3, 4}[i % 4];
    tensor_i32(positions)[0] = -1;
    assert_ok(rope_forward(&kit->exec, x, table, positions, 1, (HeadRange){0}));
    const float expected[] = {1, 2, 3, 4, -3, half * (2 - 4), 1, half * (4 + 2), 1, 2, 3, 4};
    for (int i = 0; i < 12; i++) assert_float_equal(tensor_f32(x)[i], expected[i], 1e-6);
}

static void test_wrong_shapes_llama(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor x = kit_random(kit, shape4(2, 3, 4, 8)), table = kit_random(kit, shape2(5, 8));
    Tensor rstd = kit_take(kit, shape1(24)), gamma = kit_random(kit, shape1(8));
    assert_fails(rope_forward(e, x, kit_random(kit, shape2(5, 10)), TENSOR_NONE, 0, (HeadRange){0}), 1,
                 "rope_forward: table has 10 columns");
    assert_fails(rope_forward(e, x, table, TENSOR_NONE, 0, (HeadRange){3, 2}), 1, "heads 3 to 4");
    assert_fails(rope_backward(e, x, table, kit_index(kit, shape1(3), 0, 1), 0, (HeadRange){0}), 1,
                 "rope_backward: positions");
    assert_fails(rmsnorm_forward(e, x, rstd, x, gamma, 0, (HeadRange){0, 2}), 1, "rmsnorm_forward: rstd");
    assert_fails(rmsnorm_forward(e, x, rstd, x, table, 0, (HeadRange){0}), 1, "rmsnorm_forward: gamma");
    assert_fails(glu_forward(e, kit_take(kit, shape2(3, 5)), kit_take(kit, shape2(3, 5)), ACT_SILU), 1,
                 "glu_forward: x");
}

/* Two queries of one head: the first sees one key, the second weights two keys by e^0 : e^1. */
static void test_known_attention(void **state) {
    Kit *kit = *state;
    Tensor out = kit_take(kit, shape4(1, 2, 1, 1)), lse = kit_take(kit, shape3(1, 1, 2));
    Tensor qkv = kit_take(kit, shape_qkv(1, 2, 1, 1));
    memcpy(qkv.data, (float[]){1, 0, 5, 1, 1, 7}, 6 * sizeof(float));
    assert_ok(
        attention_forward(&kit->exec, out, lse, qkv, TENSOR_NONE, (Attention){.causal = true, .scale = 1}));
    assert_float_equal(tensor_f32(out)[0], 5, 1e-6);
    assert_float_equal(tensor_f32(out)[1], (5 + 7 * exp(1)) / (1 + exp(1)), 1e-6);
    assert_float_equal(tensor_f32(lse)[0], 0, 1e-6);
    assert_float_equal(tensor_f32(lse)[1], log(1 + exp(1)), 1e-6);
}

/* Incremental decoding matches a single causal pass. Two query heads share keys and values. */
static void decode_with(Kit *kit, int64_t window) {
    enum { T = 6, H = 2, D = 3, S = 8 };
    Tensor qkv = kit_random(kit, shape4(1, T, H + 2, D)), whole = kit_take(kit, shape4(1, T, H, D));
    Tensor kcache = kit_take(kit, shape4(1, 1, S, D)), vcache = kit_take(kit, shape4(1, 1, S, D));
    Attention spec = {.causal = true, .scale = 0.7f, .kv_heads = 1, .window = window};
    assert_ok(attention_forward(&kit->exec, whole, kit_take(kit, shape3(1, H, T)), qkv, TENSOR_NONE, spec));
    for (int64_t at = 0, count; at < T; at += count) {
        count = at ? 1 : 3; /* a prompt of three tokens, then one at a time */
        int32_t past = (int32_t)at, fresh = (int32_t)count;
        Tensor part = shape4(1, count, H + 2, D), out = kit_take(kit, shape4(1, count, H, D));
        part.data = tensor_f32(qkv) + at * (H + 2) * D;
        assert_ok(attention_decode(&kit->exec, out, kcache, vcache, part, tensor_1d(&past, DT_I32, 1),
                                   tensor_1d(&fresh, DT_I32, 1), spec));
        for (int64_t i = 0; i < count * H * D; i++)
            assert_float_equal(tensor_f32(out)[i], tensor_f32(whole)[at * H * D + i], 1e-6);
    }
}

static void test_decode_matches_attention(void **state) {
    for (int64_t window = 0; window < 5; window += 2) decode_with(*state, window);
}

/* Documents of 2 and 3 positions are independent of one another, and a group of heads equals repeated keys.
 */
static void test_documents_and_groups(void **state) {
    Kit *kit = *state;
    enum { T = 5, G = 2, H = 4, D = 3, N = H + 2 * G };
    Tensor qkv = kit_random(kit, shape4(1, T, N, D)), repeated = kit_take(kit, shape_qkv(1, T, H, D));
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < 3 * H * D; i++) {
            int64_t h = i / D, from = h < H ? h : h < 2 * H ? H + (h - H) / 2 : H + G + (h - 2 * H) / 2;
            tensor_f32(repeated)[t * 3 * H * D + i] = tensor_f32(qkv)[(t * N + from) * D + i % D];
        }
    Tensor starts = kit_index(kit, shape2(1, T), 0, 1), out = kit_take(kit, shape4(1, T, H, D));
    for (int t = 2; t < T; t++) tensor_i32(starts)[t] = 2;
    Attention grouped = {.causal = true, .scale = 0.6f, .kv_heads = G, .starts = starts};
    Attention plain = {.causal = true, .scale = 0.6f};
    Tensor lse = kit_take(kit, shape3(1, H, T));
    assert_ok(attention_forward(&kit->exec, out, lse, qkv, TENSOR_NONE, grouped));
    for (int64_t first = 0, count; first < T; first += count) {
        count = first ? 3 : 2;
        Tensor part = shape_qkv(1, count, H, D), alone = kit_take(kit, shape4(1, count, H, D));
        part.data = tensor_f32(repeated) + first * 3 * H * D;
        assert_ok(attention_forward(&kit->exec, alone, kit_take(kit, shape3(1, H, count)), part, TENSOR_NONE,
                                    plain));
        for (int64_t i = 0; i < count * H * D; i++)
            assert_float_equal(tensor_f32(out)[first * H * D + i], tensor_f32(alone)[i], 1e-6);
    }
}

/* The loss over a part of the vocabulary ignores padding columns. A part that is only padding has maximum
 * -inf and contributes nothing. */
static void test_vocabulary_in_parts(void **state) {
    Kit *kit = *state;
    enum { V = 4 };
    Tensor logits = kit_take(kit, shape2(1, V)), stats = kit_take(kit, shape2(1, 3)),
           loss = kit_take(kit, shape1(1));
    memcpy(logits.data, (float[]){1, 2, 3, 50}, sizeof(float[V]));
    int32_t label = 5;
    Tensor labels = tensor_1d(&label, DT_I32, 1);
    assert_ok(xent_partial(&kit->exec, stats, logits, labels, (VocabPart){.start = 4, .valid = 7}));
    assert_float_equal(tensor_f32(stats)[0], 3, 0);
    assert_float_equal(tensor_f32(stats)[1], 1 + exp(-1) + exp(-2), 1e-6);
    assert_float_equal(tensor_f32(stats)[2], 2, 0);
    assert_ok(
        xent_finish(&kit->exec, loss, logits, stats, labels, (VocabPart){.start = 4, .valid = 7}, 1, true));
    assert_float_equal(tensor_f32(loss)[0], log(exp(1) + exp(2) + exp(3)) - 2, 1e-6);
    assert_true(tensor_f32(logits)[3] == 0);
    assert_ok(xent_partial(&kit->exec, stats, logits, labels, (VocabPart){.start = 8, .valid = 7}));
    assert_true(tensor_f32(stats)[0] == -INFINITY);
    assert_true(tensor_f32(stats)[1] == 0 && tensor_f32(stats)[2] == 0);
}

static void test_wrong_shapes_dense(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor a = kit_random(kit, shape2(4, 6)), b = kit_random(kit, shape2(4, 5)),
           v = kit_random(kit, shape1(6));
    Tensor four = kit_random(kit, shape1(4)), none = TENSOR_NONE;
    Tensor whole = kit_index(kit, shape2(4, 6), 0, 3);
    REJECTS(linear_forward(e, b, none, a, b, none, ACT_NONE), "linear_forward: w is fp32 (4, 5)");
    REJECTS(linear_forward(e, a, none, a, a, none, ACT_NONE),
            "linear_forward: y is fp32 (4, 6); expected fp32 (4, 4)");
    REJECTS(linear_forward(e, none, none, a, a, none, ACT_NONE), "linear_forward: y is absent");
    REJECTS(linear_forward(e, a, none, whole, a, none, ACT_NONE), "linear_forward: x is int32 (4, 6)");
    REJECTS(linear_forward(e, a, none, a, a, none, ACT_COUNT), "linear_forward: unknown activation");
    REJECTS(linear_backward_input(e, b, TENSOR_NONE, a, b, ACT_NONE, none, false),
            "linear_backward_input: w");
    REJECTS(linear_backward_input(e, a, TENSOR_NONE, a, kit_random(kit, shape2(6, 6)), ACT_TANH, none, false),
            "linear_backward_input: pre is absent");
    REJECTS(linear_backward_weight(e, b, none, a, b, true), "linear_backward_weight: dw");
    REJECTS(act_forward(e, b, a, ACT_TANH), "act_forward: y");
    REJECTS(act_backward(e, a, b, a, ACT_TANH), "act_backward: dy");
    REJECTS(layernorm_forward(e, a, four, v, a, v, v, 0), "layernorm_forward: rstd is fp32 (6)");
    REJECTS(layernorm_backward(e, a, v, v, a, a, four, four, v, b, (NormSums){0}),
            "layernorm_backward: dres");
    REJECTS(layernorm_backward(e, a, v, v, a, a, four, four, v, none, (NormSums){.dx = four}),
            "layernorm_backward: sums of dx");
    REJECTS(layernorm_backward(e, a, v, v, a, a, four, four, v, none, (NormSums){.dres = v}),
            "layernorm_backward: sums of dres");
    REJECTS(dropout_add_forward(e, a, b, a, (Dropout){0}), "dropout_add_forward: res");
    REJECTS(dropout_backward(e, b, TENSOR_NONE, a, (Dropout){0}), "dropout_backward: dx");
    REJECTS(dropout_backward(e, a, four, a, (Dropout){0}), "dropout_backward: sums");
    REJECTS(dropout_backward(e, a, TENSOR_NONE, a, (Dropout){.p = 0.5f}),
            "dropout_backward: dropout on fp32 (4, 6)");
    REJECTS(dropout_backward(e, a, TENSOR_NONE, a, (Dropout){.p = 1}), "dropout_backward: dropout of 1");
    REJECTS(dropout_add_norm_forward(e, a, b, four, four, a, a, v, v, 0, (Dropout){0}),
            "dropout_add_norm_forward: out");
    REJECTS(norm_fp8_forward(e, none, none, (Fp8Input){0}, four, four, a, none, v, v, 0, (Dropout){0},
                             (Fp8Scale){0}),
            "norm_fp8_forward: res is fp32");
    Tensor wide = kit_take(kit, tensor_2d(NULL, DT_BF16, 4, 6));
    REJECTS(norm_fp8_forward(e, none, none, (Fp8Input){0}, four, four, wide, none, v, v, 0, (Dropout){0},
                             (Fp8Scale){0}),
            "norm_fp8_forward: quantized.plain is absent");
}

/* Combinations of types that kernels.h does not allow. */
static void test_wrong_types(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor half2 = tensor_2d(NULL, DT_BF16, 6, 6), half1 = tensor_1d(NULL, DT_BF16, 6), none = TENSOR_NONE;
    Tensor a = kit_random(kit, shape2(6, 6)), b = kit_random(kit, half2), h = kit_as(kit, a, DT_F16);
    Tensor v = kit_random(kit, shape1(6)), u = kit_random(kit, half1), labels = kit_index(kit, v, 0, 2);
    assert_ok(act_forward(e, b, b, ACT_TANH));
    REJECTS(act_forward(e, b, h, ACT_TANH), "act_forward: y is bf16 (6, 6); expected 36 elements of fp16");
    REJECTS(linear_forward(e, b, none, b, a, none, ACT_NONE), "linear_forward: w is fp32 (6, 6)");
    REJECTS(linear_forward(e, b, none, a, a, none, ACT_NONE), "linear_forward: y is bf16");
    REJECTS(linear_forward(e, a, none, b, b, none, ACT_RELU), "linear_forward: y is fp32");
    REJECTS(linear_forward(e, b, none, b, b, v, ACT_NONE), "linear_forward: b is fp32");
    REJECTS(linear_backward_input(e, a, TENSOR_NONE, b, b, ACT_NONE, none, false),
            "linear_backward_input: dx is fp32");
    REJECTS(linear_backward_input(e, b, TENSOR_NONE, h, b, ACT_NONE, none, false),
            "linear_backward_input: dy is fp16");
    REJECTS(linear_backward_weight(e, b, none, b, b, true), "linear_backward_weight: dw is bf16");
    REJECTS(linear_backward_weight(e, a, u, b, b, true), "linear_backward_weight: db is bf16");
    REJECTS(layernorm_forward(e, b, u, v, b, u, u, 0), "layernorm_forward: mean is bf16");
    REJECTS(layernorm_forward(e, b, v, v, b, v, u, 0), "layernorm_forward: gamma is fp32");
    REJECTS(layernorm_backward(e, b, v, u, b, b, v, v, u, none, (NormSums){0}),
            "layernorm_backward: dbeta is bf16");
    REJECTS(dropout_add_forward(e, b, a, b, (Dropout){0}), "dropout_add_forward: res is fp32");
    REJECTS(xent_finish(e, u, b, kit_random(kit, shape2(6, 3)), labels, (VocabPart){0, 6}, 1, true),
            "xent_finish: losses is bf16");
    REJECTS(gather_rows(e, b, a, labels), "gather_rows: x is fp32");
    REJECTS(adamw_step(e, &(AdamWPart){v, v, v, labels, v, 0, 0, false}, 1, (AdamW){0}),
            "adamw_step: copy is int32");
    REJECTS(adamw_step(e, &(AdamWPart){u, v, v, none, v, 0, 0, false}, 1, (AdamW){0}),
            "adamw_step: param is bf16");
    Tensor qkv = kit_random(kit, tensor_5d(NULL, DT_F16, 1, 2, 3, 1, 2)),
           past = kit_index(kit, shape1(1), 0, 1);
    Tensor out = kit_take(kit, tensor_4d(NULL, DT_F16, 1, 2, 1, 2)),
           cache = kit_random(kit, shape4(1, 1, 2, 2));
    REJECTS(attention_decode(e, out, cache, cache, qkv, past, past, (Attention){.scale = 1}),
            "attention_decode: kcache is fp32");
}

/* Results are rounded to nearest even; values too large for fp16 become infinite. */
static void test_rounding(void **state) {
    static const struct {
        DType dtype;
        float from, to;
    } known[] = {
        {DT_BF16, 0x1.01p0f, 0x1p0f},      {DT_BF16, 0x1.03p0f, 0x1.04p0f},
        {DT_BF16, 0x1.0101p0f, 0x1.02p0f}, {DT_F16, 0x1.002p0f, 0x1p0f},
        {DT_F16, 0x1.006p0f, 0x1.008p0f},  {DT_F16, 65519, 65504},
        {DT_F16, -65520, -INFINITY},       {DT_F16, 0x1p-25f, 0},
        {DT_F16, 0x1.8p-24f, 0x1p-23f},    {DT_F16, 0x1.004p-14f, 0x1.004p-14f},
        {DT_BF16, 0x1p-133f, 0x1p-133f},   {DT_BF16, FLT_MAX, INFINITY},
    };
    for (int i = 0; i < 2; i++) {
        Kit kit;
        kit_init(&kit, backends[i], 2);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            for (int64_t count = 1; count < 40; count += 19) {
                Tensor y = kit_take(&kit, tensor_1d(NULL, known[k].dtype, count));
                Tensor x = kit_take(&kit, shape1(count));
                assert_ok(fill(&kit.exec, x, known[k].from));
                assert_ok(convert(&kit.exec, y, x));
                for (int64_t e = 0; e < count; e++) assert_true(tensor_get(y, e) == known[k].to);
                assert_ok(fill(&kit.exec, y, known[k].from));
                for (int64_t e = 0; e < count; e++) assert_true(tensor_get(y, e) == known[k].to);
            }
        kit_done(&kit);
    }
}

/* Sums of arbitrary bf16 bit patterns: subnormal, infinite and NaN among them. */
static void test_rounding_of_sums(void **state) {
    enum { COUNT = 1 << 18 };
    for (int i = 0; i < 2; i++) {
        Kit kit;
        kit_init(&kit, backends[i], 2);
        Tensor x = kit_take(&kit, tensor_1d(NULL, DT_BF16, COUNT)), y = kit_take(&kit, x);
        uint16_t *left = x.data, *right = y.data;
        RngKey key = kit_key(&kit);
        for (int64_t e = 0; e < COUNT; e++) {
            left[e] = (uint16_t)kit_draw(key, e);
            /* Sums of close exponents round, and sums of small ones are subnormal. */
            right[e] = (uint16_t)((left[e] & (e % 2 ? 0x7f80 : 0x80)) ^ kit_draw(key, e + COUNT) % 0x400);
        }
        Tensor before = kit_copy(&kit, y);
        assert_ok(add(&kit.exec, y, x));
        for (int64_t e = 0; e < COUNT; e++) {
            float sum = bf16_to_f32(((uint16_t *)before.data)[e]) + bf16_to_f32(left[e]);
            if (isnan(sum))
                assert_true(isnan(bf16_to_f32(right[e])));
            else
                assert_int_equal(right[e], f32_to_bf16(sum));
        }
        kit_done(&kit);
    }
}

/* Masks of a large tensor, where the index of a block of draws exceeds 32 bits from one element to the next.
 */
static void test_dropout_far(void **state) {
    enum { C = 512 };
    static const DType types[] = {DT_F32, DT_BF16};
    for (int i = 0; i < 2; i++)
        for (int type = 0; type < 2; type++) {
            Kit kit;
            kit_init(&kit, backends[i], 1);
            Tensor y = kit_take(&kit, tensor_3d(NULL, types[type], 1, 1, C));
            assert_ok(fill(&kit.exec, y, 1));
            Dropout dropout = {.p = 0.5f,
                               .key = rng_key(3, "far", 7),
                               .origin = {0, 0, (1ll << 35) - C / 2 - 3},
                               .extent = {1, 1ll << 36}};
            assert_ok(dropout_backward(&kit.exec, y, TENSOR_NONE, y, dropout));
            for (int64_t e = 0; e < C; e++) {
                bool kept = rng_u16(dropout.key, (uint64_t)(dropout.origin[2] + e)) >= 0x8000;
                assert_true(tensor_get(y, e) == (kept ? 2 : 0));
            }
            kit_done(&kit);
        }
}

static void test_wrong_shapes_fused(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor x = kit_random(kit, shape2(3, 8)), w = kit_random(kit, shape2(6, 8)),
           y = kit_take(kit, shape2(3, 6));
    Tensor gamma = kit_random(kit, shape1(8)), half = kit_take(kit, shape2(3, 3));
    REJECTS(linear_fused_forward(e, half, x, w, TENSOR_NONE, ACT_NONE, (LinearFusion){0}),
            "linear_fused_forward: y is fp32");
    REJECTS(linear_fused_forward(e, y, x, w, TENSOR_NONE, ACT_SILU, (LinearFusion){.gated = true}),
            "linear_fused_forward: y is fp32");
    REJECTS(linear_fused_forward(e, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE, (LinearFusion){0}),
            "linear_fused_forward: y is absent");
    REJECTS(linear_fused_forward(e, y, y, w, TENSOR_NONE, ACT_NONE, (LinearFusion){0}),
            "linear_fused_forward: w");
    REJECTS(linear_fused_forward(e, y, x, w, gamma, ACT_NONE, (LinearFusion){0}), "linear_fused_forward: b");
    REJECTS(linear_fused_forward(e, y, x, w, TENSOR_NONE, ACT_NONE, (LinearFusion){.beta = gamma}),
            "linear_fused_forward: beta requires gamma");
    REJECTS(linear_fused_forward(e, y, x, w, TENSOR_NONE, ACT_NONE, (LinearFusion){.res = x}),
            "linear_fused_forward: fusion.res");
    REJECTS(linear_fused_forward(e, y, x, w, TENSOR_NONE, ACT_RELU, (LinearFusion){.res = y}),
            "linear_fused_forward: an activation and a residual");
    assert_ok(linear_fused_forward(e, half, x, w, TENSOR_NONE, ACT_SILU, (LinearFusion){.gated = true}));
}

static void test_wrong_shapes_attention(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor qkv = kit_random(kit, shape_qkv(2, 3, 2, 4)), out = kit_random(kit, shape4(2, 3, 2, 4));
    Tensor lse = kit_random(kit, shape3(2, 2, 3)), flat = kit_random(kit, shape2(6, 24));
    Tensor cache = kit_random(kit, shape4(2, 2, 5, 4)), three = kit_index(kit, shape1(3), 0, 2);
    Tensor past = kit_index(kit, shape1(2), 0, 1), fresh = kit_index(kit, shape1(2), 3, 4),
           none = TENSOR_NONE;
    Attention spec = {.scale = 1}, dropped = {.scale = 1, .dropout = {.p = 0.1f, .extent = {2, 2}}};
    REJECTS(attention_forward(e, out, lse, flat, none, spec), "attention_forward: qkv has 2 dims");
    REJECTS(attention_forward(e, qkv, lse, qkv, none, spec), "attention_forward: out");
    REJECTS(attention_forward(e, out, out, qkv, none, spec), "attention_forward: lse");
    REJECTS(attention_forward(e, out, lse, qkv, three, spec), "attention_forward: lens is int32 (3)");
    REJECTS(attention_forward(e, out, lse, qkv, none, dropped),
            "attention_forward: dropout extent of 2 positions");
    REJECTS(attention_backward(e, out, out, out, lse, qkv, none, spec), "attention_backward: dqkv");
    REJECTS(attention_forward(e, out, lse, qkv, none, (Attention){.kv_heads = 4}),
            "attention_forward: 6 heads of qkv cannot have 4 key and value heads");
    REJECTS(attention_forward(e, out, lse, qkv, none, (Attention){.window = 3}),
            "attention_forward: a window of 3");
    REJECTS(attention_forward(e, out, lse, qkv, none, (Attention){.causal = true, .starts = three}),
            "attention_forward: starts");
    REJECTS(attention_decode(e, out, cache, out, qkv, past, fresh, spec), "attention_decode: vcache");
    REJECTS(attention_decode(e, out, cache, cache, qkv, three, fresh, spec), "attention_decode: past");
    for (int i = 0; i < 2; i++) tensor_i32(past)[i] = 3;
    assert_fails(attention_decode(e, out, cache, cache, qkv, past, fresh, spec), STATUS_FAILED,
                 "attention_decode");
}

static void test_wrong_parts(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor qkv = kit_random(kit, shape_qkv(2, 3, 2, 4)), out = kit_random(kit, shape4(2, 3, 2, 4));
    Tensor lse = kit_random(kit, shape3(2, 2, 3)), kv = kit_random(kit, shape4(2, 5, 4, 4)),
           none = TENSOR_NONE;
    Attention spec = {.scale = 1, .queries = {.first = 1}};
    REJECTS(attention_forward(e, out, lse, qkv, none, spec), "attention_forward: positions require kv");
    spec.kv = kit_random(kit, shape4(2, 5, 3, 4));
    REJECTS(attention_forward(e, out, lse, qkv, none, spec), "attention_forward: kv has 3 heads");
    spec.kv = kit_random(kit, shape4(3, 5, 4, 4));
    REJECTS(attention_forward(e, out, lse, qkv, none, spec), "attention_forward: kv is");
    spec.kv = kv;
    spec.keys = (Positions){4, 2, 5};
    REJECTS(attention_forward(e, out, lse, qkv, none, spec), "attention_forward: keys are 5 rows at 4 and");
    spec.keys.second = 6;
    spec.dropout = (Dropout){.p = 0.1f, .extent = {2, 8}}; /* the last key is at 8 */
    REJECTS(attention_forward(e, out, lse, qkv, none, spec),
            "attention_forward: dropout extent of 8 positions; expected at least 9");
    spec.dropout.extent[1] = 9;
    if (!kit->cuda) assert_ok(attention_forward(e, out, lse, qkv, none, spec));
    REJECTS(attention_backward(e, kit_take(kit, qkv), out, out, lse, qkv, none, spec),
            "attention_backward: dkv");
    spec.dkv = kit_take(kit, kv);
    spec.sums = kit_take(kit, shape1(24));
    REJECTS(attention_backward(e, kit_take(kit, qkv), out, out, lse, qkv, none, spec),
            "attention_backward: sums exclude kv");
    REJECTS(attention_combine(e, out, lse, kv, lse), "attention_combine: part");
    REJECTS(attention_combine(e, out, lse, out, out), "attention_combine: part_lse");
}

static void test_wrong_shapes_rows(void **state) {
    Kit *kit = *state;
    Exec *e = &kit->exec;
    Tensor x = kit_random(kit, shape3(2, 3, 4)), tokens = kit_index(kit, shape2(2, 3), 0, 5),
           none = TENSOR_NONE;
    Tensor wte = kit_random(kit, shape2(5, 4)), thin = kit_random(kit, shape2(5, 3)),
           two = kit_random(kit, shape2(2, 4));
    Tensor logits = kit_random(kit, shape2(6, 5)), stats = kit_random(kit, shape2(6, 3)),
           six = kit_random(kit, shape1(6));
    VocabPart part = {0, 5};
    REJECTS(embedding_forward(e, wte, tokens, none, none, wte, none, none, part),
            "embedding_forward: x has 2");
    REJECTS(embedding_forward(e, x, six, none, none, wte, none, none, part),
            "embedding_forward: tokens is fp32");
    REJECTS(embedding_forward(e, x, tokens, none, none, thin, none, none, part), "embedding_forward: wte");
    REJECTS(embedding_forward(e, x, tokens, none, none, wte, two, none, part),
            "embedding_forward: wpe has 2 rows");
    REJECTS(embedding_forward(e, x, tokens, none, two, wte, none, none, part),
            "embedding_forward: positions is fp32");
    REJECTS(embedding_backward(e, thin, none, none, x, tokens, none, none, part), "embedding_backward: dwte");
    REJECTS(embedding_backward(e, wte, none, none, x, tokens, none, kit_index(kit, shape1(2), 0, 2), part),
            "embedding_backward: positions");
    REJECTS(xent_partial(e, six, logits, tokens, part), "xent_partial: stats");
    REJECTS(xent_finish(e, wte, logits, stats, tokens, part, 1, true), "xent_finish: losses");
    REJECTS(mse_loss(e, six, wte, wte, 1, true), "mse_loss: losses");
    REJECTS(bce_loss(e, wte, wte, tokens, 1, true), "bce_loss: targets");
    REJECTS(gather_rows(e, two, wte, tokens), "gather_rows: index");
    REJECTS(scatter_add_rows(e, thin, two, tokens), "scatter_add_rows: x");
    REJECTS(transpose(e, wte, wte), "transpose: y is fp32 (5, 4); expected fp32 (4, 5)");
    REJECTS(fill(e, tokens, 1), "fill: x is int32");
    REJECTS(convert(e, six, wte), "convert: y");
    REJECTS(add(e, six, wte), "add: y");
    REJECTS(scale(e, none, 1), "scale: y is absent");
    REJECTS(sum(e, six, wte), "sum: total");
    REJECTS(sum_squares(e, stats, wte), "sum_squares: total");
    REJECTS(sum_squares_parts(e, six, six, 0, 6), "sum_squares_parts: totals");
    REJECTS(sketch(e, six, six, (SketchMap){.run = 6, .group = 6}), "sketch: totals");
    REJECTS(adamw_step(e, &(AdamWPart){six, six, six, none, wte, 0, 0, false}, 1, (AdamW){0}),
            "adamw_step: grad");
}

/* The dispatch functions cannot see index values in device memory, so backends check them. */
static void test_rows_out_of_range(void **state) {
    for (int i = 0; i < 2; i++) {
        Kit kit;
        kit_init(&kit, backends[i], 2);
        Tensor x = kit_random(&kit, shape2(4, 8)), y = kit_random(&kit, shape2(2, 8));
        Tensor high = kit_index(&kit, shape1(2), 4, 5), low = kit_index(&kit, shape1(2), -1, 0);
        assert_fails(gather_rows(&kit.exec, y, x, high), STATUS_FAILED, "gather_rows");
        assert_fails(gather_rows(&kit.exec, y, x, low), STATUS_FAILED, "gather_rows");
        assert_fails(scatter_add_rows(&kit.exec, x, y, high), STATUS_FAILED, "scatter_add_rows");
        Tensor tokens = kit_index(&kit, shape2(1, 2), 0, 4), types = kit_index(&kit, shape2(1, 2), 2, 3);
        assert_fails(embedding_forward(&kit.exec, kit_take(&kit, shape3(1, 2, 8)), tokens, types, TENSOR_NONE,
                                       x, TENSOR_NONE, y, (VocabPart){0, 4}),
                     STATUS_FAILED, "embedding_forward");
        kit_done(&kit);
    }
}

/* A batch without masked tokens has no rows; this is not an error. */
static void test_empty_inputs(void **state) {
    Kit *kit = *state;
    Tensor empty = {.dtype = DT_F32, .ndim = 2, .dim = {0, 6}},
           index = {.dtype = DT_I32, .ndim = 1, .dim = {0}};
    Tensor w = kit_random(kit, shape2(6, 6)), kept = kit_copy(kit, w);
    assert_ok(linear_forward(&kit->exec, empty, TENSOR_NONE, empty, w, TENSOR_NONE, ACT_NONE));
    assert_ok(linear_backward_weight(&kit->exec, w, TENSOR_NONE, empty, empty, true));
    assert_ok(gather_rows(&kit->exec, empty, w, index));
    assert_ok(scatter_add_rows(&kit->exec, w, empty, index));
    assert_ok(act_forward(&kit->exec, empty, empty, ACT_TANH));
    assert_memory_equal(w.data, kept.data, tensor_bytes(w));
    /* A gradient that is not added to is then 0. */
    assert_ok(linear_backward_weight(&kit->exec, w, TENSOR_NONE, empty, empty, false));
    assert_ok(stream_sync(kit->exec.stream));
    for (int64_t i = 0; i < tensor_count(w); i++) assert_float_equal(tensor_get(w, i), 0, 0);
    Tensor offsets = kit_index(kit, shape1(3), 5, 6), dw = kit_random(kit, shape3(2, 6, 6));
    assert_ok(expert_sort(&kit->exec, index, index, offsets, index));
    for (int i = 0; i < 3; i++) assert_int_equal(tensor_i32(offsets)[i], 0);
    assert_ok(grouped_forward(&kit->exec, empty, empty, dw, offsets));
    assert_ok(grouped_backward_weight(&kit->exec, dw, empty, empty, offsets, false));
    for (int64_t i = 0; i < tensor_count(dw); i++) assert_float_equal(tensor_get(dw, i), 0, 0);
}

/* Times of calls that run ahead arrive later, in the order of the calls, however many there are. */
static void test_profile_ahead(void **state) {
    Kit *kit = *state;
    enum { CALLS = 2 * PROFILE_AHEAD + 3 };
    OpLog op_log = {0};
    kit->profile = (Profile){.ahead = true};
    kit->stream->device->op_log = &op_log;
    const KernelStat *stat = &kit->profile.kernel[KERNEL_FILL];
    Tensor x = kit_take(kit, shape1(4096));
    for (int i = 0; i < CALLS; i++) assert_ok(fill(&kit->exec, x, 1));
    assert_int_equal(op_log.count, CALLS);
    assert_true(op_log.record[0].seconds > 0 && op_log.record[CALLS - 1].seconds == 0);
    assert_ok(profile_finish(&kit->exec));
    kit->stream->device->op_log = NULL;
    double sum = 0;
    for (int i = 0; i < CALLS; i++) {
        assert_true(op_log.record[i].seconds > 0);
        sum += op_log.record[i].seconds;
    }
    assert_int_equal(stat->calls, CALLS);
    assert_float_equal(stat->seconds, sum, 1e-9);
    op_log_done(&op_log);
    kit->profile = (Profile){0};
}

static void test_profile(void **state) {
    Kit *kit = *state;
    kit->profile = (Profile){0};
    const KernelStat *stat = &kit->profile.kernel[KERNEL_LINEAR_FORWARD];
    Tensor x = kit_random(kit, shape3(2, 4, 5)), w = kit_random(kit, shape2(3, 5)),
           y = kit_take(kit, shape2(8, 3));
    for (int i = 0; i < 2; i++)
        assert_ok(linear_forward(&kit->exec, y, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
    assert_int_equal(stat->calls, 2);
    assert_float_equal(stat->flops, 2 * 2.0 * 8 * 3 * 5, 0);
    assert_float_equal(stat->bytes, 2 * 4.0 * (8 * 5 + 3 * 5 + 8 * 3), 0);
    assert_true(stat->seconds > 0);
    Tensor dw = kit_random(kit, w), dx = kit_take(kit, x);
    assert_ok(linear_backward_weight(&kit->exec, dw, TENSOR_NONE, y, x, true));
    assert_ok(linear_backward_input(&kit->exec, dx, TENSOR_NONE, y, w, ACT_NONE, TENSOR_NONE, false));
    assert_float_equal(kit->profile.kernel[KERNEL_LINEAR_BACKWARD_WEIGHT].flops, 2.0 * 8 * 3 * 5, 0);
    assert_float_equal(kit->profile.kernel[KERNEL_LINEAR_BACKWARD_INPUT].flops, 2.0 * 8 * 3 * 5, 0);
    /* Failed calls, and calls without a profile, are not counted. */
    assert_fails(linear_forward(&kit->exec, x, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE), STATUS_FAILED,
                 "y is");
    kit->exec.profile = NULL;
    assert_ok(linear_forward(&kit->exec, y, TENSOR_NONE, x, w, TENSOR_NONE, ACT_NONE));
    kit->exec.profile = &kit->profile;
    assert_int_equal(stat->calls, 2);
}

static void test_profile_attention(void **state) {
    Kit *kit = *state;
    kit->profile = (Profile){0};
    Tensor qkv = kit_random(kit, shape_qkv(2, 7, 3, 4)), out = kit_take(kit, shape4(2, 7, 3, 4));
    Tensor lse = kit_take(kit, shape3(2, 3, 7));
    Attention spec = {.scale = 1};
    assert_ok(attention_forward(&kit->exec, out, lse, qkv, TENSOR_NONE, spec));
    assert_float_equal(kit->profile.kernel[KERNEL_ATTENTION_FORWARD].flops, 4.0 * 2 * 3 * 7 * 7 * 4, 0);
    spec.causal = true;
    assert_ok(attention_backward(&kit->exec, kit_take(kit, qkv), out, out, lse, qkv, TENSOR_NONE, spec));
    assert_float_equal(kit->profile.kernel[KERNEL_ATTENTION_BACKWARD].flops, 10.0 * 2 * 3 * 28 * 4, 0);
}

static int setup(void **state) {
    static Kit kit;
    kit_init(&kit, "ref", 1);
    *state = &kit;
    return 0;
}

static int teardown(void **state) {
    kit_done(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_known_activations),
        cmocka_unit_test(test_known_attention),
        cmocka_unit_test(test_known_rotation),
        cmocka_unit_test(test_wrong_shapes_llama),
        cmocka_unit_test(test_decode_matches_attention),
        cmocka_unit_test(test_documents_and_groups),
        cmocka_unit_test(test_vocabulary_in_parts),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_rounding_of_sums),
        cmocka_unit_test(test_dropout_far),
        cmocka_unit_test(test_wrong_shapes_dense),
        cmocka_unit_test(test_wrong_shapes_fused),
        cmocka_unit_test(test_wrong_shapes_attention),
        cmocka_unit_test(test_wrong_parts),
        cmocka_unit_test(test_wrong_shapes_rows),
        cmocka_unit_test(test_wrong_experts),
        cmocka_unit_test(test_rows_out_of_range),
        cmocka_unit_test(test_experts_out_of_range),
        cmocka_unit_test(test_grouped_dryrun),
        cmocka_unit_test(test_empty_inputs),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_profile_ahead),
        cmocka_unit_test(test_profile_attention),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
