/* Context parallelism in heads mode has the bits of one rank: after the swap, a rank attends over whole
 * sequences with some of the heads, and each head is computed on its own.
 *
 * Equal bit for bit are attention's outputs and the gradients of keys and values. Those of queries are sums
 * over blocks of keys, which backward splits into more parts the fewer heads a rank has
 * (attention_backward.c), so that they have equal bits only while sequences are too short to split. Losses
 * and gradients of a whole model need not be equal: ranks add up the terms of their own positions first.
 *
 * Ranks: 2 */
#include "ranks.h"

#include <math.h>

#include "tiny.h"

#include "model/parts/context.h"

enum { B = 2, SHORT = 96, LONG = 1000, H = 4, D = 16 };

typedef struct Case {
    const char *name;
    const Family *family;
    unsigned head;
    int64_t kv_heads, window, T;
    float dropout;
    bool padded;
} Case;

/* Attention of all positions, or of a rank's. */
typedef struct Attended {
    Tensor qkv, att, lse, datt, dqkv;
} Attended;

static Tensor new_tensor(Tensor like) {
    float *values = NULL;
    assert_ok(mem_new((size_t)tensor_count(like), sizeof *values, &values));
    like.data = values;
    return like;
}

static Attended attended_new(const Case *c, int64_t T) {
    Tensor heads = tensor_5d(NULL, DT_F32, B, T, 3, H, D);
    if (c->kv_heads) heads = tensor_4d(NULL, DT_F32, B, T, H + 2 * c->kv_heads, D);
    Tensor out = tensor_4d(NULL, DT_F32, B, T, H, D);
    return (Attended){.qkv = new_tensor(heads),
                      .att = new_tensor(out),
                      .lse = new_tensor(tensor_3d(NULL, DT_F32, B, H, T)),
                      .datt = new_tensor(out),
                      .dqkv = new_tensor(heads)};
}

static void attended_done(Attended *a) {
    Tensor *const all[] = {&a->qkv, &a->att, &a->lse, &a->datt, &a->dqkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
}

static void randomize(Tensor t, const char *site) {
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t.data)[i] = rng_normal(rng_key(4, site, 0), (uint64_t)i);
}

/* Elements of a sequence's position. */
static int64_t row_of(Tensor t) {
    return tensor_count(t) / (t.dim[0] * t.dim[1]);
}

static float *row_at(Tensor t, int64_t b, int64_t position) {
    return (float *)t.data + (b * t.dim[1] + position) * row_of(t);
}

static void take_part(Tensor part, Tensor whole, const Positions *at) {
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < part.dim[1]; t++)
            memcpy(row_at(part, b, t), row_at(whole, b, position_of(at, t)),
                   (size_t)row_of(part) * sizeof(float));
}

/* Elements [from, from + count) of each row have the bits of one rank or, unless `exact`, nearly its values.
 */
static void compare(const Case *c, const char *what, Tensor part, Tensor whole, const Positions *at,
                    int64_t from, int64_t count, bool exact) {
    for (int64_t i = 0; i < B * part.dim[1]; i++) {
        int64_t b = i / part.dim[1], t = i % part.dim[1], position = position_of(at, t);
        const float *found = row_at(part, b, t) + from, *expected = row_at(whole, b, position) + from;
        bool same = !memcmp(found, expected, (size_t)count * sizeof *found);
        for (int64_t k = 0; k < count && !exact; k++) same |= fabsf(found[k] - expected[k]) <= 1e-5f;
        if (!same)
            fail_msg("%s: %s of sequence %d, position %d differ from one rank", c->name, what, (int)b,
                     (int)position);
    }
}

static void check(const Ranks *ranks, const Case *c) {
    Group *world = ranks->world;
    ModelConfig config = tiny_config(c->family, c->head, TINY_COUNTED);
    Exec exec = {.stream = ranks->stream};
    int32_t lens[B] = {(int32_t)c->T, (int32_t)(c->T / 2 + 3)};
    Micro micro = {.B = B, .T = c->T / world->size};
    if (c->padded) micro.lens = tensor_1d(lens, DT_I32, B);
    Shape shape = {.B = B,
                   .T = micro.T,
                   .tp = 1,
                   .cp = world->size,
                   .cp_mode = CONTEXT_HEADS,
                   .cp_heads = world->size,
                   .train = true};
    Attention spec = {.causal = config_causal(&config),
                      .scale = 0.25f,
                      .kv_heads = c->kv_heads,
                      .window = c->window,
                      .dropout = {.p = c->dropout, .key = rng_key(9, "dropout", 1), .extent = {H, c->T}}};
    assert_ok(kernels_find(test_kernels(), &exec.table));
    CLEANUP(attended_done) Attended whole = attended_new(c, c->T), part = attended_new(c, shape.T);
    randomize(whole.qkv, "qkv");
    randomize(whole.datt, "datt");
    assert_ok(attention_forward(&exec, whole.att, whole.lse, whole.qkv, micro.lens, spec));
    assert_ok(
        attention_backward(&exec, whole.dqkv, whole.datt, whole.att, whole.lse, whole.qkv, micro.lens, spec));

    Block block = {.config = &config};
    Pass pass = {.exec = &exec, .cp = world, .swap = world, .shape = shape, .micro = &micro};
    pass.at = context_positions(&config, shape, world->rank);
    Bump counted = {0};
    context_saved(&config, shape, part.qkv, part.att, &counted, &counted);
    CLEANUP(mem_freep) uint8_t *memory = NULL;
    assert_ok(mem_new(counted.used, 1, &memory));
    Bump bump = {.base = memory, .size = counted.used};
    ContextSaved saved = context_saved(&config, shape, part.qkv, part.att, &bump, &bump);
    assert_ok(bump_check(&bump, "attention"));
    take_part(part.qkv, whole.qkv, &pass.at);
    take_part(part.datt, whole.datt, &pass.at);
    assert_ok(context_attend(&block, &pass, &saved, part.att, part.qkv, spec));
    assert_ok(context_attend_back(&block, &pass, &saved, part.dqkv, part.datt, part.att, part.qkv, spec));
    assert_ok(stream_sync(ranks->stream));

    int64_t queries = H * D, keys = row_of(part.qkv) - queries;
    compare(c, "outputs", part.att, whole.att, &pass.at, 0, queries, true);
    compare(c, "gradients of keys and values", part.dqkv, whole.dqkv, &pass.at, queries, keys, true);
    compare(c, "gradients of queries", part.dqkv, whole.dqkv, &pass.at, 0, queries, c->T == SHORT);
}

static void heads_have_bits_of_one_rank(void **state) {
    static const Case cases[] = {
        {"causal", &family_gpt2, OUTPUT_LM, .T = SHORT, .dropout = 0.1f},
        {"causal, long", &family_gpt2, OUTPUT_LM, .T = LONG},
        {"grouped", &family_llama, OUTPUT_LM, .kv_heads = 2, .T = SHORT},
        {"grouped, window, long", &family_mistral, OUTPUT_LM, .kv_heads = 2, .window = 100, .T = LONG},
        {"both directions", &family_bert, OUTPUT_MLM, .T = SHORT, .dropout = 0.1f, .padded = true},
        {"both directions, long", &family_bert, OUTPUT_MLM, .T = LONG, .padded = true},
    };
    if (test_on_cuda()) skip(); /* whose kernels choose an algorithm by the number of heads */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(*state, &cases[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(heads_have_bits_of_one_rank)};

RANKS_MAIN(tests)
