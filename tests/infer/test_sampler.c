/* The sampler: its probabilities match transformers, draws follow them, and a draw depends only on the seed,
 * the sequence and the position. */
#include <math.h>

#include "infer/sampler.h"

#include "base/json.h"
#include "test.h"

enum { VOCAB_LIMIT = 512 };

static void probabilities_equal_golden(void **state) {
    json_t *cases = NULL;
    const json_t *entry;
    size_t at;
    assert_ok(json_read_file(WEFT_TEST_DIR "/golden/cases/sampling.json", &cases));
    assert_true(json_array_size(cases) > 5);
    json_array_foreach(cases, at, entry) {
        const json_t *scores = json_object_get(entry, "scores");
        const json_t *expected = json_object_get(entry, "probabilities");
        size_t vocab = json_array_size(scores);
        float score[VOCAB_LIMIT], got[VOCAB_LIMIT];
        assert_in_range(vocab, 2, VOCAB_LIMIT);
        for (size_t i = 0; i < vocab; i++) score[i] = (float)json_number_value(json_array_get(scores, i));
        Sampling sampling = {
            .temperature = json_number_value(json_object_get(entry, "temperature")),
            .top_k = json_integer_value(json_object_get(entry, "top_k")),
            .top_p = json_number_value(json_object_get(entry, "top_p")),
        };
        Sampler *sampler = NULL;
        assert_ok(sampler_new(&sampler, &sampling, (int64_t)vocab));
        assert_ok(sampler_probabilities(sampler, score, got));
        for (size_t i = 0; i < vocab; i++) {
            double wanted = json_number_value(json_array_get(expected, i));
            assert_true(fabs(got[i] - wanted) < 1e-6);
            assert_int_equal(got[i] > 0, wanted > 0);
        }
        sampler_free(sampler);
    }
    json_decref(cases);
}

static Sampler *sampler_of(double temperature, int64_t top_k, double top_p, int64_t vocab) {
    Sampler *sampler = NULL;
    Sampling sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = 3};
    assert_ok(sampler_new(&sampler, &sampling, vocab));
    return sampler;
}

/* Each token's share of many draws is within five standard deviations of its probability. */
static void draws_are_fair(void **state) {
    const float scores[] = {0.5f, -1, 2, 0, -INFINITY, 1, 1, -3};
    static const double settings[][3] = {{1, 0, 1}, {0.7, 5, 1}, {1.5, 0, 0.8}, {2, 4, 0.9}};
    enum { DRAWS = 40000, VOCAB = 8 };
    for (int s = 0; s < 4; s++) {
        Sampler *sampler = sampler_of(settings[s][0], (int64_t)settings[s][1], settings[s][2], VOCAB);
        float expected[VOCAB];
        int count[VOCAB] = {0};
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
        }
        sampler_free(sampler);
    }
}

static void greedy_breaks_ties_by_lowest_id(void **state) {
    const float scores[] = {-1, 3, 2, 3, 3};
    Sampler *sampler = sampler_of(0, 2, 0.5, 5);
    int32_t token = -1;
    float probability[5];
    assert_ok(sampler_pick(sampler, scores, 9, 9, &token));
    assert_int_equal(token, 1);
    assert_ok(sampler_probabilities(sampler, scores, probability));
    assert_true(probability[1] == 1 && probability[3] == 0);
    sampler_free(sampler);
}

static int kept(Sampler *sampler, const float *scores, int64_t vocab) {
    float probability[VOCAB_LIMIT];
    int count = 0;
    assert_ok(sampler_probabilities(sampler, scores, probability));
    for (int64_t i = 0; i < vocab; i++) count += probability[i] > 0;
    sampler_free(sampler);
    return count;
}

static void filters_at_their_limits(void **state) {
    const float equal[] = {1, 1, 1, 1}, scores[] = {0, 1, 1, 3};
    assert_int_equal(kept(sampler_of(1, 2, 1, 4), equal, 4), 4); /* ties with the k-th largest are kept */
    assert_int_equal(kept(sampler_of(1, 2, 1, 4), scores, 4), 3);
    assert_int_equal(kept(sampler_of(1, 4, 1, 4), scores, 4), 4);
    assert_int_equal(kept(sampler_of(1, 1000, 1, 4), scores, 4), 4);
    assert_int_equal(kept(sampler_of(1, 0, 0.5, 4), equal, 4), 2);
    assert_int_equal(kept(sampler_of(1, 0, 1e-9, 4), equal, 4), 1);
    assert_int_equal(kept(sampler_of(1e-300, 0, 1, 4), scores, 4), 1);
    assert_int_equal(kept(sampler_of(1, 1, 1, 4), scores, 4), 1);
}

static void draws_are_reproducible(void **state) {
    float scores[100], other[100];
    for (int i = 0; i < 100; i++) scores[i] = (float)(i % 7) * 0.3f, other[i] = (float)(i % 11);
    Sampler *a = sampler_of(1, 0, 1, 100), *b = sampler_of(1, 0, 1, 100);
    int different = 0;
    for (uint64_t i = 0; i < 50; i++) {
        int32_t first = -1, second = -1, third = -1, unused = -1;
        assert_ok(sampler_pick(a, scores, 4, i, &first));
        assert_ok(sampler_pick(b, other, 1, 49 - i, &unused));
        assert_ok(sampler_pick(b, scores, 4, i, &second));
        assert_ok(sampler_pick(b, scores, 5, i, &third));
        assert_int_equal(first, second);
        different += first != third;
    }
    assert_true(different > 25);
    sampler_free(a);
    sampler_free(b);
}

static void refuses_bad_settings_and_scores(void **state) {
    Sampler *sampler = NULL;
    Sampling good = {.temperature = 1, .top_p = 1}, bad = good;
    bad.temperature = -1;
    assert_fails(sampler_new(&sampler, &bad, 4), 2, "temperature");
    bad.temperature = NAN;
    assert_fails(sampler_new(&sampler, &bad, 4), 2, "temperature");
    bad = good, bad.top_p = 1.5;
    assert_fails(sampler_new(&sampler, &bad, 4), 2, "top-p");
    bad = good, bad.top_k = -1;
    assert_fails(sampler_new(&sampler, &bad, 4), 2, "top-k");
    assert_null(sampler);
    assert_ok(sampler_new(&sampler, &good, 4));
    int32_t token = -5;
    assert_fails(sampler_pick(sampler, (float[]){0, NAN, 1, 2}, 0, 0, &token), 1, "NaN");
    assert_fails(sampler_pick(sampler, (float[]){0, INFINITY, 1, 2}, 0, 0, &token), 1, "infinite");
    assert_int_equal(token, -5);
    sampler_free(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_equal_golden),      cmocka_unit_test(draws_are_fair),
        cmocka_unit_test(greedy_breaks_ties_by_lowest_id), cmocka_unit_test(filters_at_their_limits),
        cmocka_unit_test(draws_are_reproducible),          cmocka_unit_test(refuses_bad_settings_and_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
