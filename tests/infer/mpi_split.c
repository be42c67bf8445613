/* Generation with the KV cache split over ranks: the tokens and logits of one rank, in 1/N of the memory.
 *
 * Ranks: 2 3 4 */
#include "ranks.h"

#include <math.h>

#include "golden.h"
#include "infer/session.h"
#include "model/cache_split.h"

enum { LONG = 330, TINY_CHUNK = 16 };

static Engine *golden_split(const char *name, Group *cp) {
    char path[512];
    Engine *engine = NULL;
    EngineOptions options = {.threads = 1, .cp = cp};
    assert_ok(engine_new(&engine, golden_dir(name, path), &options));
    return engine;
}

static void same_samples(const Generated *a, const Generated *b, const char *what) {
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const Sample *one = &a->samples[i], *other = &b->samples[i];
        if (one->count != other->count || memcmp(one->ids, other->ids, (size_t)one->count * sizeof *one->ids))
            fail_msg("%s: prompt %d differs", what, (int)i);
    }
}

/* Greedily, sampling and with beams; a chunk on a rank has 3 tokens, a block of the cache at most as many. */
static void tokens_of_one_rank(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int c = 0; c < GOLDEN_CASES; c++) {
        Golden golden;
        golden_read(golden_cases[c], &golden);
        Engine *one = golden_split(golden_cases[c], NULL), *split = golden_split(golden_cases[c], world);
        for (int kind = 0; kind < 3; kind++) {
            Generated *expected = NULL, *got = NULL;
            GenerateSpec spec = golden_spec(&golden);
            spec.chunk = 3;
            if (kind == 1) spec.sampling = (Sampling){.temperature = 0.8, .top_p = 0.9, .seed = 7};
            if (kind == 2) spec.beam = (BeamSpec){.beams = 3, .length_penalty = 1};
            assert_ok(generate(one, &spec, &expected));
            assert_ok(generate(split, &spec, &got));
            same_samples(expected, got, golden_cases[c]);
            generated_free(expected);
            generated_free(got);
        }
        engine_free(one);
        engine_free(split);
    }
}

/* ---- logits ---- */

typedef struct Case {
    const char *preset, *cache;
    DType dtype;
    int64_t window;
    float limit; /* of differences, relative to the largest logit */
} Case;

static Engine *random_split(const Case *c, Group *cp) {
    Engine *engine = NULL;
    ModelConfig config = {0};
    assert_ok(config_preset(c->preset, &config));
    config.layers = 2;
    config.positions = 2048;
    config.window = c->window;
    config.init_std = 0.1f;
    EngineOptions options = {.threads = 1, .dtype = c->dtype, .cache = c->cache, .cp = cp};
    assert_ok(engine_new_random(&engine, &config, 3, &options));
    return engine;
}

/* Feeds two sequences a part of their tokens each and compares their logits. */
static void feed_both(Session *session[2], const int32_t *ids, const int64_t counts[2], int64_t V,
                      float limit) {
    Feed feed[2];
    for (int b = 0; b < 2; b++) feed[b] = (Feed){ids + b * LONG + session_length(session[0], b), counts[b]};
    for (int i = 0; i < 2; i++) assert_ok(session_feed(session[i], feed, 2));
    for (int b = 0; b < 2; b++) {
        if (counts[b] == 0) continue;
        const float *one = session_logits(session[0], b), *split = session_logits(session[1], b);
        float largest = 0;
        for (int64_t v = 0; v < V; v++) largest = fmaxf(largest, fabsf(one[v]));
        for (int64_t v = 0; v < V; v++)
            if (!(fabsf(one[v] - split[v]) <= limit * largest))
                fail_msg("logits %g and %g of %g", (double)one[v], (double)split[v], (double)largest);
    }
}

static void logits_of_one_rank(void **state) {
    /* A prompt over several rounds, steps, one that continues within a round, one that ends with it. */
    static const int64_t plan[][2] = {{201, 7}, {1, 1}, {1, 0}, {70, 91}, {1, 1}, {0, 60}, {50, 1}};
    static const Case cases[] = {
        {"gpt2-tiny", NULL, DT_F32, 0, 4e-6f},   {"llama-1m", NULL, DT_F32, 0, 4e-6f},
        {"llama-1m", NULL, DT_F32, 37, 4e-6f},   {"llama-1m", "int8", DT_F32, 0, 1e-2f},
        {"llama-1m", "bf16", DT_F32, 37, 1e-2f}, {"llama-1m", NULL, DT_BF16, 0, 5e-2f}};
    Group *world = ((Ranks *)*state)->world;
    int32_t ids[2 * LONG];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Engine *engine[2] = {random_split(&cases[c], NULL), random_split(&cases[c], world)};
        Session *session[2];
        int64_t V = engine[0]->model->config.vocab;
        for (int i = 0; i < 2 * LONG; i++)
            ids[i] = (int32_t)rng_below(rng_key(9, "ids", 0), (uint64_t)i, (uint64_t)V);
        for (int i = 0; i < 2; i++) assert_ok(session_new(&session[i], engine[i], 2, LONG, TINY_CHUNK));
        for (size_t f = 0; f < sizeof plan / sizeof *plan; f++)
            feed_both(session, ids, plan[f], V, cases[c].limit);
        for (int i = 0; i < 2; i++) assert_ok(session_copy(session[i], 1, 0));
        memcpy(ids + LONG, ids, LONG * sizeof *ids);
        feed_both(session, ids, (int64_t[]){1, 2}, V, cases[c].limit);
        for (int i = 0; i < 2; i++) {
            session_free(session[i]);
            engine_free(engine[i]);
        }
    }
}

/* ---- memory ---- */

static size_t session_bytes(Engine *engine, int64_t context) {
    size_t before = engine->device->mem[MEM_ACTIVATIONS].current;
    Session *session = NULL;
    assert_ok(session_new(&session, engine, 1, context, TINY_CHUNK));
    size_t bytes = engine->device->mem[MEM_ACTIVATIONS].current - before;
    session_free(session);
    return bytes;
}

static void memory_is_split(void **state) {
    Group *world = ((Ranks *)*state)->world;
    const int64_t context = 12 * TINY_CHUNK; /* divisible by all numbers of ranks */
    Engine *engine = random_split(&(Case){"llama-1m", NULL, DT_F32, 0, 0}, world);
    size_t cache = session_cache_bytes(&engine->model->config, context, DT_F32);
    assert_int_equal(session_bytes(engine, 2 * context) - session_bytes(engine, context),
                     cache / (size_t)world->size);
    engine_free(engine);
    /* Whatever the context, a rank has at most a position per round more than its share. */
    for (int64_t S = 1; S < 700; S++) {
        CachePart part = cache_part(world, S, TINY_CHUNK);
        int64_t rows = cache_rows_before(&part, S), share = (S + world->size - 1) / world->size;
        int64_t rounds = (S + part.block * part.ranks - 1) / (part.block * part.ranks), sum = rows;
        assert_true(rows <= share + rounds && part.block <= TINY_CHUNK);
        assert_ok(host_reduce(world, &sum, 1, DT_I64, REDUCE_SUM));
        assert_int_equal(sum, S);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_of_one_rank),
                                          cmocka_unit_test(logits_of_one_rank),
                                          cmocka_unit_test(memory_is_split)};

RANKS_MAIN(tests)
