/* Rules, filters and beam search produce the tokens, scores and probabilities of transformers. */
#include <math.h>

#include "golden.h"

#include "infer/session.h"

enum { LIST_LIMIT = 512, BIASES = 8, SEQUENCES = 32 };

static json_t *read_cases(const char *name) {
    char path[512];
    json_t *cases = NULL;
    snprintf(path, sizeof path, "%s/golden/cases/%s", WEFT_TEST_DIR, name);
    assert_ok(json_read_file(path, &cases));
    assert_true(json_array_size(cases) > 50);
    return cases;
}

static double number(const json_t *entry, const char *key, double fallback) {
    const json_t *value = json_object_get(entry, key);
    return value ? json_number_value(value) : fallback;
}

static LogitRules rules_of(const json_t *entry, TokenBias biases[BIASES]) {
    const json_t *list = json_object_get(entry, "biases");
    assert_in_range(json_array_size(list), 0, BIASES);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        biases[i].token = (int32_t)json_integer_value(json_array_get(pair, 0));
        biases[i].bias = (float)json_number_value(json_array_get(pair, 1));
    }
    return (LogitRules){
        .repetition_penalty = number(entry, "repetition_penalty", 1),
        .no_repeat_ngram = (int64_t)number(entry, "no_repeat_ngram_size", 0),
        .biases = biases,
        .bias_count = (int64_t)json_array_size(list),
    };
}

/* ---- filters ---- */

static void probabilities_equal_golden(void **state) {
    json_t *cases = read_cases("filters.json");
    const json_t *entry;
    size_t at;
    json_array_foreach(cases, at, entry) {
        const json_t *scores = json_object_get(entry, "scores"), *ids = json_object_get(entry, "ids");
        size_t vocab = json_array_size(scores), count = json_array_size(ids);
        float score[LIST_LIMIT], got[LIST_LIMIT];
        int32_t id[LIST_LIMIT];
        TokenBias biases[BIASES];
        assert_in_range(vocab, 2, LIST_LIMIT);
        for (size_t i = 0; i < vocab; i++) score[i] = (float)json_number_value(json_array_get(scores, i));
        for (size_t i = 0; i < count; i++) id[i] = (int32_t)json_integer_value(json_array_get(ids, i));
        LogitRules rules = rules_of(entry, biases);
        Sampling sampling = {
            .temperature = number(entry, "temperature", 1),
            .top_k = (int64_t)number(entry, "top_k", 0),
            .top_p = number(entry, "top_p", 1),
            .min_p = number(entry, "min_p", 0),
            .typical_p = number(entry, "typical_p", 1),
        };
        CLEANUP(logit_processor_freep) LogitProcessor *processor = NULL;
        CLEANUP(sampler_freep) Sampler *sampler = NULL;
        assert_ok(logit_processor_new(&processor, &rules, (int64_t)vocab));
        assert_ok(sampler_new(&sampler, &sampling, (int64_t)vocab));
        logit_processor_apply(processor, id, (int64_t)count, score);
        assert_ok(sampler_probabilities(sampler, score, got));
        for (size_t i = 0; i < vocab; i++) {
            double wanted = json_number_value(json_array_get(json_object_get(entry, "probabilities"), i));
            if (fabs(got[i] - wanted) >= 1e-6 || (got[i] > 0) != (wanted > 0))
                fail_msg("case %zu, token %zu: %g; expected %g", at, i, (double)got[i], wanted);
        }
    }
    json_decref(cases);
}

/* Each token's share of many draws is within five standard deviations of its probability. */
static void draws_are_fair(void **state) {
    enum { DRAWS = 40000, VOCAB = 8 };
    const float scores[VOCAB] = {0.5f, -1, 2, 0, -INFINITY, 1, 1, -3};
    static const Sampling settings[] = {
        {.temperature = 1, .top_p = 1, .min_p = 0.2},
        {.temperature = 1.5, .top_p = 1, .typical_p = 0.7},
        {.temperature = 1.5, .top_p = 0.95, .top_k = 6, .min_p = 0.1, .typical_p = 0.8},
    };
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        CLEANUP(sampler_freep) Sampler *sampler = NULL;
        float expected[VOCAB];
        int count[VOCAB] = {0}, kept = 0;
        assert_ok(sampler_new(&sampler, &settings[s], VOCAB));
        assert_ok(sampler_probabilities(sampler, scores, expected));
        for (int i = 0; i < DRAWS; i++) {
            int32_t token = -1;
            assert_ok(sampler_pick(sampler, scores, (uint64_t)(i / 200), (uint64_t)(i % 200), &token));
            assert_in_range(token, 0, VOCAB - 1);
            count[token]++;
        }
        for (int i = 0; i < VOCAB; i++) {
            double p = expected[i], deviation = sqrt(p * (1 - p) / DRAWS);
            assert_true(fabs((double)count[i] / DRAWS - p) <= 5 * deviation);
            kept += p > 0;
        }
        assert_in_range(kept, 2, VOCAB - 2);
    }
}

/* ---- greedy decoding and beam search ---- */

static EarlyStopping early_of(const json_t *entry) {
    const json_t *value = json_object_get(entry, "early_stopping");
    return json_is_string(value) ? EARLY_NEVER : json_is_true(value) ? EARLY_TRUE : EARLY_FALSE;
}

/* Storage of a case's spec. */
typedef struct Case {
    GenerateSpec spec;
    Prompt prompts[SEQUENCES];
    int32_t ids[SEQUENCES][GOLDEN_TOKENS];
    TokenBias biases[BIASES];
    int64_t ends[4];
} Case;

static void read_case(const json_t *entry, Case *c) {
    const json_t *prompts = json_object_get(entry, "prompts"), *ends = json_object_get(entry, "ends");
    int64_t returned = (int64_t)number(entry, "num_return_sequences", 1);
    int64_t count = (int64_t)json_array_size(prompts) * returned;
    assert_in_range(count, 1, SEQUENCES);
    *c = (Case){0};
    for (int64_t i = 0; i < count; i++) {
        c->prompts[i].ids = c->ids[i];
        c->prompts[i].count = golden_tokens(json_array_get(prompts, (size_t)(i / returned)), c->ids[i]);
    }
    for (size_t i = 0; i < json_array_size(ends); i++)
        c->ends[i] = json_integer_value(json_array_get(ends, i));
    bool any = json_array_size(ends) > 0;
    c->spec = (GenerateSpec){
        .prompts = c->prompts,
        .count = count,
        .max_tokens = (int64_t)number(entry, "max_new_tokens", 0),
        .end_token = any ? c->ends[0] : -1,
        .more_ends = c->ends + 1,
        .more_end_count = any ? (int)json_array_size(ends) - 1 : 0,
        .sampling = {.top_p = 1},
        .rules = rules_of(entry, c->biases),
        .beam = {.beams = (int64_t)number(entry, "num_beams", 1),
                 .returned = returned,
                 .length_penalty = number(entry, "length_penalty", 1),
                 .early_stopping = early_of(entry)},
    };
}

static void assert_case(const json_t *entry, size_t at, const Generated *generated) {
    const json_t *sequences = json_object_get(entry, "sequences"), *scores = json_object_get(entry, "scores");
    assert_int_equal(generated->count, json_array_size(sequences));
    for (int64_t i = 0; i < generated->count; i++) {
        const Sample *sample = &generated->samples[i];
        int32_t wanted[GOLDEN_TOKENS];
        int64_t count = golden_tokens(json_array_get(sequences, (size_t)i), wanted);
        if (sample->count - sample->prompt_count != count)
            fail_msg("case %zu, sequence %d: wrong length", at, (int)i);
        for (int64_t t = 0; t < count; t++)
            if (sample->ids[sample->prompt_count + t] != wanted[t])
                fail_msg("case %zu, sequence %d: token %d differs", at, (int)i, (int)t);
        if (!json_array_size(scores)) continue;
        double score = json_number_value(json_array_get(scores, (size_t)i));
        assert_true(fabs(sample->score - score) <= 1e-4 * fmax(1, fabs(score)));
    }
}

/* Greedy decoding with rules and beam search, in batches of all sizes. */
static void tokens_equal_golden(void **state) {
    static const char *const kernels[] = {"cpu", "ref"};
    static const int64_t batches[] = {0, 1, 7};
    json_t *cases = read_cases("generation.json");
    for (int m = 0; m < GOLDEN_CASES * 2; m++) {
        Engine *engine = golden_engine(golden_cases[m / 2], kernels[m % 2]);
        const json_t *entry;
        size_t at;
        json_array_foreach(cases, at, entry) {
            if (strcmp(json_string_value(json_object_get(entry, "model")), golden_cases[m / 2])) continue;
            for (int b = 0; b < 3; b++) {
                Case c;
                read_case(entry, &c);
                c.spec.batch = batches[b];
                Generated *generated = NULL;
                assert_ok(generate(engine, &c.spec, &generated));
                assert_case(entry, at, generated);
                generated_free(generated);
            }
        }
        engine_free(engine);
    }
    json_decref(cases);
}

/* Rules without effect leave greedy decoding unchanged, although they copy logits to the host. */
static void neutral_rules_change_nothing(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    const TokenBias none = {.token = 3};
    GenerateSpec spec = golden_spec(&golden);
    spec.rules = (LogitRules){.biases = &none, .bias_count = 1, .no_repeat_ngram = 1000};
    Generated *generated = NULL;
    assert_ok(generate(engine, &spec, &generated));
    for (int i = 0; i < golden.count; i++)
        assert_memory_equal(generated->samples[i].ids + golden.prompt[i].count, golden.continued[i],
                            (size_t)golden.continued_count * sizeof(int32_t));
    generated_free(generated);
    engine_free(engine);
}

/* The sum of the log probabilities of a sample's new tokens, without beams. */
static double log_probability(Session *session, const Sample *sample, int64_t vocab) {
    double total = 0;
    session_reset(session);
    assert_ok(session_feed(session, &(Feed){sample->ids, sample->prompt_count}, 1));
    for (int64_t t = sample->prompt_count; t < sample->count; t++) {
        const float *logits = session_logits(session, 0);
        double sum = 0;
        for (int64_t i = 0; i < vocab; i++) sum += exp(logits[i]);
        total += logits[sample->ids[t]] - log(sum);
        if (t + 1 < sample->count) assert_ok(session_feed(session, &(Feed){sample->ids + t, 1}, 1));
    }
    return total;
}

/* With every type of KV cache, a beam's cache is that of its own tokens: scores are those of the sequence
 * when it is fed alone. */
static void caches_follow_their_beams(void **state) {
    static const char *const caches[] = {"fp32", "bf16", "int8"};
    Golden golden;
    golden_read("gpt2-generate", &golden);
    for (int c = 0; c < 3; c++) {
        char path[512];
        Engine *engine = NULL;
        Session *session = NULL;
        assert_ok(engine_new(&engine, golden_dir("gpt2-generate", path),
                             &(EngineOptions){.cache = caches[c], .threads = 2}));
        assert_ok(session_new(&session, engine, 1, 64, 16));
        Prompt prompts[2 * GOLDEN_PROMPTS];
        for (int i = 0; i < 2 * golden.count; i++) prompts[i] = golden.prompt[i / 2];
        GenerateSpec spec = golden_spec(&golden);
        spec.prompts = prompts, spec.count = 2 * golden.count;
        spec.beam = (BeamSpec){.beams = 5, .returned = 2};
        Generated *generated = NULL;
        assert_ok(generate(engine, &spec, &generated));
        for (int64_t i = 0; i < generated->count; i++) {
            const Sample *sample = &generated->samples[i];
            double alone = log_probability(session, sample, engine->model->config.vocab);
            assert_true(fabs(sample->score - alone) < 1e-3);
        }
        generated_free(generated);
        session_free(session);
        engine_free(engine);
    }
}

typedef struct Watched {
    int32_t token; /* ends a candidate */
    int64_t checks, emitted;
} Watched;

static Status watch(void *context, const int32_t *ids, int64_t prompt_count, int64_t count, bool *ret_stop) {
    Watched *watched = context;
    watched->checks++;
    for (int64_t i = prompt_count; i < count; i++) *ret_stop |= ids[i] == watched->token;
    return OK;
}

static Status take(void *context, int64_t prompt, int32_t token, bool *ret_stop) {
    (void)prompt, (void)token, (void)ret_stop;
    ((Watched *)context)->emitted++;
    return OK;
}

/* A candidate with a stop string is complete, like one with an end token. */
static void stop_strings_end_beams(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    GenerateSpec spec = golden_spec(&golden);
    spec.count = 2;
    spec.beam = (BeamSpec){.beams = 3, .length_penalty = 0, .early_stopping = EARLY_TRUE};
    int32_t token = golden.continued[0][1];
    Generated *ended = NULL, *stopped = NULL;
    spec.end_token = token;
    assert_ok(generate(engine, &spec, &ended));
    Watched watched = {.token = token};
    spec.end_token = -1;
    spec.beam.check = watch, spec.sink = take, spec.context = &watched;
    assert_ok(generate(engine, &spec, &stopped));
    assert_true(watched.checks > 6);
    assert_int_equal(watched.emitted, stopped->new_tokens);
    int stops = 0;
    for (int i = 0; i < 2; i++) {
        const Sample *a = &ended->samples[i], *b = &stopped->samples[i];
        assert_int_equal(a->count, b->count);
        assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
        assert_int_equal(b->ended, a->ended == ENDED_END ? ENDED_STOP : ENDED_LENGTH);
        stops += b->ended == ENDED_STOP;
    }
    assert_true(stops > 0);
    generated_free(ended);
    generated_free(stopped);
    engine_free(engine);
}

/* ---- errors ---- */

static void refuses_bad_settings(void **state) {
    const struct {
        LogitRules rules;
        const char *part;
    } bad[] = {
        {{.repetition_penalty = -1}, "repetition-penalty"},
        {{.repetition_penalty = NAN}, "repetition-penalty"},
        {{.no_repeat_ngram = -1}, "no-repeat-ngram"},
        {{.biases = &(TokenBias){.token = 9}, .bias_count = 1}, "outside the vocabulary of 9 tokens"},
        {{.biases = &(TokenBias){.token = 1, .bias = INFINITY}, .bias_count = 1}, "-inf"},
    };
    LogitProcessor *processor = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(logit_processor_new(&processor, &bad[i].rules, 9), 2, bad[i].part);
    Sampler *sampler = NULL;
    assert_fails(sampler_new(&sampler, &(Sampling){.temperature = 1, .top_p = 1, .min_p = 1.5}, 9), 2,
                 "min-p");
    assert_fails(sampler_new(&sampler, &(Sampling){.temperature = 1, .top_p = 1, .typical_p = -1}, 9), 2,
                 "typical-p");
    BeamSearch *search = NULL;
    BeamOptions options = {.beams = 2, .max_tokens = 3, .vocab = 9, .length_penalty = NAN};
    assert_fails(beam_search_new(&search, &options, (int32_t[]){1}, 1), 2, "length-penalty");
    options.beams = 0;
    assert_fails(beam_search_new(&search, &options, (int32_t[]){1}, 1), 2, "beams");
}

static void reports_exhausted_vocabulary(void **state) {
    Golden golden;
    golden_read("gpt2", &golden);
    Engine *engine = golden_engine("gpt2", "cpu");
    TokenBias biases[96];
    for (int i = 0; i < 96; i++) biases[i] = (TokenBias){.token = i, .bias = -INFINITY};
    GenerateSpec spec = golden_spec(&golden);
    spec.rules = (LogitRules){.biases = biases, .bias_count = 96};
    Generated *generated = NULL;
    assert_fails(generate(engine, &spec, &generated), 1, "no token is left");
    spec.beam = (BeamSpec){.beams = 2, .length_penalty = 1};
    assert_fails(generate(engine, &spec, &generated), 1, "no token is left");
    spec.rules = (LogitRules){0};
    spec.beam.returned = 3;
    assert_fails(generate(engine, &spec, &generated), 2, "3 samples need at least as many beams");
    engine_free(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_equal_golden),   cmocka_unit_test(draws_are_fair),
        cmocka_unit_test(tokens_equal_golden),          cmocka_unit_test(caches_follow_their_beams),
        cmocka_unit_test(neutral_rules_change_nothing), cmocka_unit_test(stop_strings_end_beams),
        cmocka_unit_test(refuses_bad_settings),         cmocka_unit_test(reports_exhausted_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
