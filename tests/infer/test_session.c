/* The KV cache: logits of a session, fed in steps of any size, match the blocks' forward pass over the
 * complete sequence. */
#include <math.h>

#include "golden.h"

#include "infer/batch.h"
#include "model/rope.h"

enum { TOKENS = 30, CONTEXT = 32 };

/* What a test feeds to the three sequences, in turn. */
enum { FEEDS = 5 };
typedef int64_t Plan[FEEDS][3];

/* Rotates each token with the frequencies of the length that its sequence has once it is fed. */
static void rotate_as_fed(const ModelConfig *config, const Plan plan, int sequence, Tensor table) {
    int64_t past = 0, D = tensor_cols(table);
    for (int i = 0; i < FEEDS; i++) {
        int64_t count = plan[i][sequence];
        assert_ok(rope_rows(config, past + count, past, count, tensor_f32(table) + past * D));
        past += count;
    }
}

/* Computes the logits (T,V) of every position of one sequence without a cache. */
static void forward(Engine *engine, int32_t *ids, int64_t T, const Plan plan, int sequence, float *logits) {
    const Model *model = engine->model;
    Shape shape = {.B = 1, .T = T, .tp = 1};
    size_t saved = 0, scratch = output_logits_scratch(&model->block[model->count - 1], HEAD_LM, T);
    for (int i = 0; i < model->count - 1; i++) {
        size_t s, w;
        model->block[i].ops->measure(&model->block[i], shape, &s, &w);
        saved = s > saved ? s : saved, scratch = w > scratch ? w : scratch;
    }
    Micro micro = {.B = 1, .T = T, .tokens = tensor_2d(ids, DT_I32, 1, T)};
    Pass pass = {.exec = &engine->exec, .tp = engine->tp, .shape = shape, .micro = &micro};
    Buffer x, y, rope = {0};
    assert_ok(rope_table_new(&model->config, T, engine->device, engine->stream, &rope, &pass.rope));
    if (plan && pass.rope.data) rotate_as_fed(&model->config, plan, sequence, pass.rope);
    size_t wide = (size_t)(T * model->config.hidden) * sizeof(float);
    assert_ok(dev_alloc(engine->device, MEM_ACTIVATIONS, saved, &pass.saved));
    assert_ok(dev_alloc(engine->device, MEM_SCRATCH, scratch, &pass.scratch));
    assert_ok(dev_alloc(engine->device, MEM_ACTIVATIONS, wide, &x));
    assert_ok(dev_alloc(engine->device, MEM_ACTIVATIONS, wide, &y));
    for (int i = 0; i < model->count - 1; i++) {
        const Block *block = &model->block[i];
        pass.param = engine->params->view[i];
        assert_ok(block->ops->forward(block, &pass, tensor_3d(y.data, DT_F32, 1, T, model->config.hidden),
                                      tensor_3d(x.data, DT_F32, 1, T, model->config.hidden)));
        Buffer swap = x;
        x = y, y = swap;
    }
    pass.param = engine->params->view[model->count - 1];
    assert_ok(output_logits(&model->block[model->count - 1], &pass, HEAD_LM,
                            tensor_2d(logits, DT_F32, T, model->config.vocab),
                            tensor_2d(x.data, DT_F32, T, model->config.hidden)));
    dev_free(&pass.saved);
    dev_free(&pass.scratch);
    dev_free(&x);
    dev_free(&y);
    dev_free(&rope);
}

/* Three sequences of one session and their logits without a cache. */
typedef struct Trial {
    Engine *engine;
    int64_t V;
    int32_t ids[3][TOKENS];
    float *plain[3]; /* logits (TOKENS,V) */
    int64_t fed[3];
} Trial;

static void trial_init(Trial *trial, const char *name, const char *kernels, const Plan plan) {
    trial->engine = golden_engine(name, kernels);
    trial->V = trial->engine->model->config.vocab;
    RngKey key = rng_key(5, name, 0);
    for (int b = 0; b < 3; b++) {
        for (int t = 0; t < TOKENS; t++)
            trial->ids[b][t] = (int32_t)rng_below(key, (uint64_t)(b * TOKENS + t), (uint64_t)trial->V);
        trial->plain[b] = malloc((size_t)(TOKENS * trial->V) * sizeof(float));
        assert_non_null(trial->plain[b]);
        forward(trial->engine, trial->ids[b], TOKENS, plan, b, trial->plain[b]);
    }
}

static void trial_done(Trial *trial) {
    for (int b = 0; b < 3; b++) free(trial->plain[b]);
    engine_free(trial->engine);
}

static void feed_and_compare(Trial *trial, Session *session, const int64_t counts[3]) {
    Feed feed[3];
    for (int b = 0; b < 3; b++) feed[b] = (Feed){trial->ids[b] + trial->fed[b], counts[b]};
    assert_ok(session_feed(session, feed, 3));
    for (int b = 0; b < 3; b++) {
        trial->fed[b] += counts[b];
        assert_int_equal(session_length(session, b), trial->fed[b]);
        if (counts[b] == 0) continue;
        const float *plain = trial->plain[b] + (trial->fed[b] - 1) * trial->V;
        for (int64_t i = 0; i < trial->V; i++)
            assert_true(fabsf(session_logits(session, b)[i] - plain[i]) < 1e-4f);
    }
}

static void cache_equals_forward(void **state) {
    static const char *const backends[] = {"ref", "cpu"};
    static const int64_t chunks[] = {1, 3, 4, CONTEXT};
    /* Before the last one, the first sequence has less context left than the second one will have. */
    static const Plan plan = {{7, 1, 12}, {1, 1, 1}, {1, 0, 5}, {1, 20, 1}, {20, 8, 0}};
    for (int c = 0; c < 2 * GOLDEN_CASES; c++) {
        Trial trial;
        trial_init(&trial, golden_cases[c / 2], backends[c % 2], plan);
        for (int i = 0; i < 4; i++) {
            Session *session = NULL;
            assert_ok(session_new(&session, trial.engine, 3, CONTEXT, chunks[i]));
            memset(trial.fed, 0, sizeof trial.fed);
            for (int f = 0; f < FEEDS; f++) feed_and_compare(&trial, session, plan[f]);
            session_free(session);
        }
        trial_done(&trial);
    }
}

/* ---- prompts in chunks ---- */

enum { LONG_PROMPT = 400 };

/* A small model with random weights, with or without rotary positions, grouped heads and a window. */
static Engine *random_engine(const char *preset, int64_t positions, int64_t window) {
    Engine *engine = NULL;
    ModelConfig config = {0};
    assert_ok(config_preset(preset, &config));
    config.layers = 2;
    config.positions = positions;
    config.window = window;
    config.init_std = 0.1f;
    assert_ok(engine_new_random(&engine, &config, 3, &(EngineOptions){.threads = 1}));
    return engine;
}

/* Logits after a prompt and after one more token. */
static void prompt_logits(Engine *engine, int64_t chunk, float *logits) {
    int64_t V = engine->model->config.vocab;
    int32_t ids[LONG_PROMPT + 1];
    for (int i = 0; i <= LONG_PROMPT; i++)
        ids[i] = (int32_t)rng_below(rng_key(7, "prompt", 0), (uint64_t)i, (uint64_t)V);
    Session *session = NULL;
    assert_ok(session_new(&session, engine, 1, LONG_PROMPT + 1, chunk));
    assert_ok(session_feed(session, &(Feed){ids, LONG_PROMPT}, 1));
    memcpy(logits, session_logits(session, 0), (size_t)V * sizeof *logits);
    assert_ok(session_feed(session, &(Feed){ids + LONG_PROMPT, 1}, 1));
    memcpy(logits + V, session_logits(session, 0), (size_t)V * sizeof *logits);
    session_free(session);
}

static void chunks_equal_one_piece(void **state) {
    static const struct {
        const char *preset;
        int64_t window;
    } models[] = {{"gpt2-tiny", 0}, {"llama-1m", 0}, {"llama-1m", 50}};
    static const int64_t chunks[] = {LONG_PROMPT, 256, 100};
    for (int m = 0; m < 3; m++) {
        Engine *engine = random_engine(models[m].preset, 2 * LONG_PROMPT, models[m].window);
        int64_t count = 2 * engine->model->config.vocab;
        float *whole = malloc((size_t)count * sizeof *whole), *parts = malloc((size_t)count * sizeof *parts);
        assert_true(whole && parts);
        prompt_logits(engine, chunks[0], whole);
        for (int c = 1; c < 3; c++) {
            prompt_logits(engine, chunks[c], parts);
            float largest = 0;
            for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(whole[i]));
            for (int64_t i = 0; i < count; i++) assert_true(fabsf(whole[i] - parts[i]) <= 2e-6f * largest);
        }
        free(whole);
        free(parts);
        engine_free(engine);
    }
}

static size_t session_bytes(Engine *engine, int64_t context) {
    size_t before = engine->device->mem[MEM_ACTIVATIONS].current;
    Session *session = NULL;
    assert_ok(session_new(&session, engine, 1, context, 32));
    size_t bytes = engine->device->mem[MEM_ACTIVATIONS].current - before;
    session_free(session);
    return bytes - session_cache_bytes(&engine->model->config, context, DT_F32);
}

/* Only the cache grows with the prompt. */
static void chunks_bound_memory(void **state) {
    Engine *engine = random_engine("llama-1m", 2 * LONG_PROMPT, 0);
    assert_int_equal(session_bytes(engine, LONG_PROMPT), session_bytes(engine, 2 * LONG_PROMPT));
    engine_free(engine);
}

/* Chunks are longer in a long context, whatever the prompt. */
static void chunks_follow_the_context(void **state) {
    static const int64_t contexts[][2] = {{512, 256}, {8192, 512}, {1 << 17, 1024}};
    for (int i = 0; i < 3; i++) {
        Engine *engine = random_engine("llama-1m", contexts[i][0], 0);
        assert_int_equal(batch_chunk(engine, &(GenerateSpec){0}, 1), contexts[i][1]);
        engine_free(engine);
    }
}

static void copies_and_resets(void **state) {
    Trial trial;
    trial_init(&trial, "gpt2", "cpu", NULL);
    Session *session = NULL;
    assert_ok(session_new(&session, trial.engine, 3, CONTEXT, 8));
    memset(trial.fed, 0, sizeof trial.fed);
    feed_and_compare(&trial, session, (int64_t[]){9, 3, 5});
    assert_ok(session_copy(session, 2, 0));
    assert_int_equal(session_length(session, 2), 9);
    assert_memory_equal(session_logits(session, 2), session_logits(session, 0),
                        (size_t)trial.V * sizeof(float));
    memcpy(trial.ids[2], trial.ids[0], sizeof trial.ids[0]);
    memcpy(trial.plain[2], trial.plain[0], (size_t)(TOKENS * trial.V) * sizeof(float));
    trial.fed[2] = 9;
    feed_and_compare(&trial, session, (int64_t[]){2, 2, 4});
    session_reset(session);
    memset(trial.fed, 0, sizeof trial.fed);
    feed_and_compare(&trial, session, (int64_t[]){4, 6, 2});
    session_free(session);
    trial_done(&trial);
}

/* The session's argmax is the largest logit, over steps of 3 sequences, then 2, then 3 again. */
static void argmax_is_largest(void **state) {
    Trial trial;
    trial_init(&trial, "gpt2", "cpu", NULL);
    Session *session = NULL;
    assert_ok(session_new(&session, trial.engine, 3, CONTEXT, 8));
    session_enable_argmax(session);
    memset(trial.fed, 0, sizeof trial.fed);
    for (int step = 0; step < 20; step++) {
        Feed feed[3];
        int64_t count = step / 5 == 2 ? 2 : 3;
        for (int b = 0; b < count; b++) {
            feed[b] = (Feed){trial.ids[b] + trial.fed[b], step ? 1 : 3 + b};
            trial.fed[b] += feed[b].count;
        }
        assert_ok(session_feed(session, feed, count));
        for (int b = 0; b < count; b++) {
            const float *plain = trial.plain[b] + (trial.fed[b] - 1) * trial.V;
            int32_t best = session_argmax(session, b);
            assert_in_range(best, 0, trial.V - 1);
            for (int64_t i = 0; i < trial.V; i++) assert_true(plain[i] < plain[best] + 1e-4f);
            assert_ok(session_fetch_logits(session, b));
            for (int64_t i = 0; i < trial.V; i++)
                assert_true(fabsf(session_logits(session, b)[i] - plain[i]) < 1e-4f);
        }
    }
    assert_ok(session_copy(session, 2, 1));
    assert_int_equal(session_argmax(session, 2), session_argmax(session, 1));
    session_free(session);
    trial_done(&trial);
}

/* ---- running ahead ---- */

enum { PAIR_BATCH = 5 };

/* Two sessions that are fed the same tokens; the second one runs ahead. */
typedef struct Pair {
    Session *session[2];
    int64_t V;
    int32_t token[PAIR_BATCH]; /* argmax of each sequence */
} Pair;

static void pair_feed(Pair *pair, const Feed *feed, int64_t count) {
    for (int i = 0; i < 2; i++) assert_ok(session_feed(pair->session[i], feed, count));
    for (int64_t b = 0; b < count; b++) {
        assert_int_equal(session_length(pair->session[1], b), session_length(pair->session[0], b));
        if (feed[b].count == 0) continue;
        pair->token[b] = session_argmax(pair->session[0], b);
        assert_int_equal(session_argmax(pair->session[1], b), pair->token[b]);
    }
}

/* Feeds each sequence its argmax, or another token to sequence `other`. */
static void pair_step(Pair *pair, int64_t count, int64_t other) {
    Feed feed[PAIR_BATCH];
    if (other < count) pair->token[other] = (int32_t)((pair->token[other] + 1) % pair->V);
    for (int64_t b = 0; b < count; b++) feed[b] = (Feed){&pair->token[b], 1};
    pair_feed(pair, feed, count);
}

/* Lets full sequences start again. */
static void pair_refill(Pair *pair, int64_t count) {
    static const int32_t ids[] = {4, 2, 7};
    Feed feed[PAIR_BATCH] = {0};
    bool any = false;
    for (int64_t b = 0; b < count; b++) {
        if (session_length(pair->session[0], b) < CONTEXT) continue;
        for (int i = 0; i < 2; i++) session_clear(pair->session[i], b);
        feed[b] = (Feed){ids, 3};
        any = true;
    }
    if (any) pair_feed(pair, feed, count);
}

static void pair_copy(Pair *pair, int64_t to, int64_t from) {
    for (int i = 0; i < 2; i++) {
        assert_ok(session_copy(pair->session[i], to, from));
        assert_int_equal(session_length(pair->session[i], to), session_length(pair->session[i], from));
        assert_int_equal(session_argmax(pair->session[i], to), pair->token[from]);
    }
    pair->token[to] = pair->token[from];
}

static void pair_compare_logits(Pair *pair, int64_t sequence) {
    for (int i = 0; i < 2; i++) assert_ok(session_fetch_logits(pair->session[i], sequence));
    for (int64_t v = 0; v < pair->V; v++)
        assert_true(fabsf(session_logits(pair->session[0], sequence)[v] -
                          session_logits(pair->session[1], sequence)[v]) < 1e-4f);
}

/* One batch that shrinks to nothing. */
static void pair_run(Pair *pair, RngKey key) {
    static const int32_t prompt[] = {3, 14, 15, 9, 26, 5, 35};
    Feed feed[PAIR_BATCH];
    for (int b = 0; b < PAIR_BATCH; b++) feed[b] = (Feed){prompt + b, 7 - b};
    for (int i = 0; i < 2; i++) session_reset(pair->session[i]);
    pair_feed(pair, feed, PAIR_BATCH);
    int64_t count = PAIR_BATCH;
    for (uint64_t step = 0; count > 0; step++) {
        int64_t any = (int64_t)rng_below(key, 3 * step, (uint64_t)count);
        uint64_t event = rng_below(key, 3 * step + 1, 32);
        session_run_ahead(pair->session[1], rng_below(key, 3 * step + 2, 8) > 0);
        pair_refill(pair, count);
        pair_step(pair, count, event == 0 ? any : PAIR_BATCH);
        if (event == 1) pair_compare_logits(pair, any);
        if (event == 2 || event == 3) pair_copy(pair, any, event == 2 ? count - 1 : 0);
        if (event == 2 || event == 4) count--;
    }
}

/* Whatever is fed after a step was started ahead, and wherever its sequences went. */
static void running_ahead_changes_nothing(void **state) {
    static const char *const names[] = {"gpt2", "llama", "llama-dynamic"};
    for (int c = 0; c < 3; c++) {
        Engine *engine = golden_engine_on_device(names[c]);
        Pair pair = {.V = engine->model->config.vocab};
        for (int i = 0; i < 2; i++) {
            assert_ok(session_new(&pair.session[i], engine, PAIR_BATCH, CONTEXT, 4));
            session_enable_argmax(pair.session[i]);
        }
        for (uint64_t i = 0; i < (SANITIZED ? 3 : 20); i++) pair_run(&pair, rng_key(11, names[c], i));
        for (int i = 0; i < 2; i++) session_free(pair.session[i]);
        engine_free(engine);
    }
}

/* Feeds a prompt, then one token, and returns the logits and the bytes of the weights. */
static void logits_in(DType dtype, float *logits, size_t count, size_t *ret_bytes) {
    char path[512];
    Engine *engine = NULL;
    Session *session = NULL;
    static const int32_t ids[] = {5, 17, 3, 40, 22, 9, 11};
    EngineOptions options = {.threads = 1, .dtype = dtype};
    assert_ok(engine_new(&engine, golden_dir("gpt2", path), &options));
    assert_int_equal(engine->model->config.vocab, count);
    assert_ok(session_new(&session, engine, 1, 10, 4));
    assert_ok(session_feed(session, &(Feed){ids, 6}, 1));
    assert_ok(session_feed(session, &(Feed){ids + 6, 1}, 1));
    memcpy(logits, session_logits(session, 0), count * sizeof *logits);
    *ret_bytes = engine->device->mem[MEM_PARAMS].current;
    session_free(session);
    engine_free(engine);
}

/* 16-bit weights take half the memory. The logits differ by the rounding error of the type: bf16 has 8
 * significand bits, fp16 has 11. */
static void sixteen_bits(void **state) {
    Trial trial;
    trial_init(&trial, "gpt2", "cpu", NULL);
    size_t count = (size_t)trial.V, whole, half;
    trial_done(&trial);
    float *exact = malloc(count * sizeof *exact), *rounded = malloc(count * sizeof *rounded);
    logits_in(DT_F32, exact, count, &whole);
    for (DType dtype = DT_BF16; dtype <= DT_F16; dtype++) {
        logits_in(dtype, rounded, count, &half);
        assert_int_equal(half, whole / 2);
        double error = 0, norm = 0;
        for (size_t i = 0; i < count; i++) {
            error += ((double)rounded[i] - exact[i]) * ((double)rounded[i] - exact[i]);
            norm += (double)exact[i] * exact[i];
        }
        double off = sqrt(error / norm), limit = dtype == DT_BF16 ? 2e-2 : 2.5e-3;
        assert_true(off > 0);
        if (!(off < limit)) fail_msg("%s: logits differ by %g", dtype_name(dtype), off);
    }
    free(exact);
    free(rounded);
}

static void refuses_more_than_the_context(void **state) {
    Engine *engine = golden_engine("gpt2", "cpu");
    Session *session = NULL;
    int32_t ids[41] = {0};
    assert_fails(session_new(&session, engine, 1, 41, 8), 2, "context length is 40");
    assert_fails(session_new(&session, engine, INT64_MAX / 2, 40, 8), 1, "not enough memory");
    assert_null(session);
    assert_ok(session_new(&session, engine, 1, 40, 8));
    assert_fails(session_feed(session, &(Feed){ids, 41}, 1), 1, "context of 40 tokens");
    assert_ok(session_feed(session, &(Feed){ids, 40}, 1));
    assert_fails(session_feed(session, &(Feed){ids, 1}, 1), 1, "1 more token after 40");
    session_free(session);
    engine_free(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_equals_forward),
        cmocka_unit_test(chunks_equal_one_piece),
        cmocka_unit_test(chunks_bound_memory),
        cmocka_unit_test(chunks_follow_the_context),
        cmocka_unit_test(copies_and_resets),
        cmocka_unit_test(argmax_is_largest),
        cmocka_unit_test(running_ahead_changes_nothing),
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(refuses_more_than_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
