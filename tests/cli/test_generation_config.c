/* generation_config.json, and the options of `weft generate` for rules and beam search. The model is a golden
 * checkpoint whose tokens are bytes. */
#include "corpus.h"

#define MODEL "$WEFT generate --threads 1 --model model --prompt-ids 40,41,42 --prompt-ids 7 "

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    Ran ran = shell("cp -r '" WEFT_TEST_DIR "/golden/cases/gpt2-generate' model");
    int code = ran.code;
    ran_done(&ran);
    return code;
}

/* The samples that `options` give with generation_config.json as `file`; NULL removes the file. */
static json_t *samples(const char *file, const char *options) {
    char line[2048];
    if (file)
        put_text("model/generation_config.json", file);
    else
        remove(at("model/generation_config.json"));
    snprintf(line, sizeof line, MODEL "--json %s", options);
    Ran ran = shell(line);
    if (ran.code) fail_msg("%s: %s", line, ran.err);
    assert_string_equal(ran.err, "");
    json_t *json = json_loads(ran.out, JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    json_t *list = json_incref(json_object_get(json, "samples"));
    json_decref(json);
    ran_done(&ran);
    return list;
}

static void assert_rejects(const char *file, const char *options, int code, const char *part) {
    char line[2048];
    if (file)
        put_text("model/generation_config.json", file);
    else
        remove(at("model/generation_config.json"));
    snprintf(line, sizeof line, MODEL "%s", options);
    Ran ran = shell(line);
    assert_contains(ran.err, part);
    assert_int_equal(ran.code, code);
    assert_string_equal(ran.out, "");
    assert_ptr_equal(strchr(ran.err, '\n'), ran.err + strlen(ran.err) - 1); /* exactly one line */
    ran_done(&ran);
}

static void assert_same(const char *file, const char *options, const char *other) {
    json_t *a = samples(file, options), *b = samples(NULL, other);
    if (!json_equal(a, b)) fail_msg("%s with %s differs from %s", file, options, other);
    json_decref(a);
    json_decref(b);
}

/* Scores may differ in the last bit: matmuls of other sizes may sum in another order. */
static void assert_same_ids(const char *options, const char *other) {
    json_t *a = samples(NULL, options), *b = samples(NULL, other);
    assert_true(json_array_size(a) > 0);
    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++)
        assert_true(json_equal(json_object_get(json_array_get(a, i), "new_ids"),
                               json_object_get(json_array_get(b, i), "new_ids")));
    json_decref(a);
    json_decref(b);
}

static void file_sets_defaults(void **state) {
    static const char *const same[][3] = {
        {"{\"do_sample\": false}", "--max-tokens 12", "--max-tokens 12 --greedy"},
        {"{\"do_sample\": true}", "--max-tokens 12 --seed 3", "--max-tokens 12 --seed 3 --top-k 50"},
        {"{\"do_sample\": true, \"top_k\": 0, \"temperature\": 0.7, \"min_p\": 0.1}",
         "--max-tokens 12 --seed 3", "--max-tokens 12 --seed 3 --temperature 0.7 --min-p 0.1"},
        {"{\"typical_p\": 0.5, \"top_p\": 0.9, \"num_return_sequences\": 2}", "--max-tokens 12",
         "--max-tokens 12 --typical-p 0.5 --top-p 0.9 --samples 2"},
        {"{\"repetition_penalty\": 1.5, \"no_repeat_ngram_size\": 2}", "--max-tokens 20 --greedy",
         "--max-tokens 20 --greedy --repetition-penalty 1.5 --no-repeat-ngram 2"},
        {"{\"num_beams\": 3, \"length_penalty\": 2, \"early_stopping\": \"never\"}", "--max-tokens 12",
         "--max-tokens 12 --beams 3 --length-penalty 2 --early-stopping never"},
        {"{\"num_beams\": 3, \"early_stopping\": true, \"num_return_sequences\": 3}", "--max-tokens 12",
         "--max-tokens 12 --beams 3 --early-stopping true --samples 3"},
        {"{\"max_new_tokens\": 5, \"max_length\": 9}", "--greedy", "--max-tokens 5 --greedy"},
        {"{\"temperature\": null, \"num_beams\": null}", "--seed 4", "--seed 4"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) assert_same(same[i][0], same[i][1], same[i][2]);
}

/* max_length counts each prompt, of 3 and 1 tokens, by itself. */
static void lengths_are_independent(void **state) {
    static const char *const options[] = {"--greedy --ignore-end", "--beams 2 --ignore-end",
                                          "--greedy --ignore-end --batch 1", "--seed 3 --ignore-end"};
    static const struct {
        const char *file;
        int length[2];
    } cases[] = {{"{\"max_length\": 9}", {6, 8}}, {"{\"max_length\": 2}", {1, 1}}};
    for (int i = 0; i < 8; i++) {
        CLEANUP(json_decrefp) json_t *both = samples(cases[i % 2].file, options[i / 2]);
        assert_int_equal(json_array_size(both), 2);
        for (size_t k = 0; k < 2; k++) {
            char other[128];
            int length = cases[i % 2].length[k];
            const json_t *ids = json_object_get(json_array_get(both, k), "new_ids");
            assert_int_equal(json_array_size(ids), length);
            snprintf(other, sizeof other, "%s --max-tokens %d", options[i / 2], length);
            CLEANUP(json_decrefp) json_t *given = samples(NULL, other);
            assert_true(json_equal(ids, json_object_get(json_array_get(given, k), "new_ids")));
        }
    }
}

static void options_override_the_file(void **state) {
    static const char file[] = "{\"num_beams\": 3, \"repetition_penalty\": 1.5, \"max_new_tokens\": 8}";
    assert_same(file, "--greedy --repetition-penalty 1", "--greedy --max-tokens 8");
    assert_same(file, "--temperature 0.8 --max-tokens 6",
                "--temperature 0.8 --max-tokens 6 --repetition-penalty 1.5");
    assert_same(file, "--beams 2", "--beams 2 --max-tokens 8 --repetition-penalty 1.5");
    assert_same(file, "--no-generation-config --greedy --max-tokens 8", "--greedy --max-tokens 8");
    assert_same("{\"do_sample\": false}", "--top-k 5 --max-tokens 8", "--top-k 5 --max-tokens 8");
    assert_same("{\"do_sample\": true, \"num_beams\": 4}", "--beams 4 --max-tokens 8",
                "--beams 4 --max-tokens 8");
}

static void refuses_what_changes_the_text(void **state) {
    static const char *const fields[][2] = {
        {"sequence_bias", "[[[5], 1.0]]"},
        {"bad_words_ids", "[[5]]"},
        {"suppress_tokens", "[5]"},
        {"min_length", "4"},
        {"min_new_tokens", "4"},
        {"forced_eos_token_id", "5"},
        {"encoder_repetition_penalty", "1.2"},
        {"guidance_scale", "1.5"},
        {"epsilon_cutoff", "0.01"},
        {"stop_strings", "\"x\""},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char file[128], part[64];
        snprintf(file, sizeof file, "{\"%s\": %s}", fields[i][0], fields[i][1]);
        snprintf(part, sizeof part, "generation_config.json: '%s' is not supported", fields[i][0]);
        assert_rejects(file, "", 1, part);
        assert_same(file, "--no-generation-config", "");
    }
    assert_rejects("{\"num_beams\": 2, \"renormalize_logits\": true}", "", 1, "'renormalize_logits'");
    assert_rejects("{\"num_beams\": 2, \"do_sample\": true}", "", 1, "beam sampling");
    assert_rejects("{\"min_p\": 2}", "", 2, "generation_config.json: min_p");
    assert_rejects("{\"early_stopping\": \"soon\"}", "", 2, "generation_config.json: early_stopping");
    assert_rejects("{\"do_sample\": 3}", "", 1, "'do_sample'");
    /* Values and modes in which a field has no effect */
    assert_same(
        "{\"min_length\": 0, \"bad_words_ids\": [], \"guidance_scale\": 1, \"forced_eos_token_id\": null, "
        "\"renormalize_logits\": true, \"use_cache\": false, \"transformers_version\": \"5.0.0\"}",
        "", "");
    assert_same("{\"epsilon_cutoff\": 0.01, \"top_h\": 0.4}", "--greedy", "--greedy");
}

static void warns_about_unknown_fields(void **state) {
    put_text("model/generation_config.json", "{\"chat_format\": \"x\", \"top_k\": 5, \"max_time\": 3}");
    Ran ran = shell(MODEL "--max-tokens 2 --json");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "warning: ");
    assert_contains(ran.err, "generation_config.json: ignored chat_format, max_time");
    ran_done(&ran);
}

/* Checkpoints of older versions have these settings in config.json. */
static void reads_old_checkpoints(void **state) {
    Ran ran =
        shell("cp -r model old && rm -f old/generation_config.json && "
              "sed 's/^{/{\"repetition_penalty\": 1.5,/' model/config.json >old/config.json && "
              "$WEFT generate --threads 1 --model old --prompt-ids 40,41,42 --greedy --no-stream >a && "
              "rm -f model/generation_config.json && $WEFT generate --threads 1 --model model --prompt-ids "
              "40,41,42 --greedy --no-stream --repetition-penalty 1.5 >b && cmp a b");
    if (ran.code) fail_msg("%s%s", ran.out, ran.err);
    ran_done(&ran);
}

static bool contains(const json_t *list, int token) {
    const json_t *sample, *id;
    size_t i, t;
    bool found = false;
    json_array_foreach(list, i, sample) json_array_foreach(json_object_get(sample, "new_ids"), t, id) found |=
        json_integer_value(id) == token;
    return found;
}

static void biases_logits(void **state) {
    json_t *plain = samples(NULL, "--greedy --max-tokens 8");
    const json_t *first = json_array_get(json_object_get(json_array_get(plain, 0), "new_ids"), 0);
    int token = (int)json_integer_value(first);
    char options[128];
    snprintf(options, sizeof options, "--greedy --max-tokens 8 --logit-bias %d:-inf", token);
    json_t *without = samples(NULL, options);
    assert_false(contains(without, token));
    json_t *only = samples(NULL, "--temperature 3 --max-tokens 8 --logit-bias A:1000 --beams 1");
    assert_true(contains(only, 'A'));
    assert_same(NULL, "--greedy --max-tokens 8 --logit-bias A:1000 --logit-bias '<|endoftext|>:-2'",
                "--greedy --max-tokens 8 --logit-bias 65:1000 --logit-bias 256:-2");
    json_decref(plain);
    json_decref(without);
    json_decref(only);
    assert_rejects(NULL, "--logit-bias A", 2, "expected TOKEN:VALUE");
    assert_rejects(NULL, "--logit-bias A:x", 2, "'x' is not a number");
    assert_rejects(NULL, "--logit-bias A:inf", 2, "'inf' is not a number");
    assert_rejects(NULL, "--logit-bias AB:1", 2, "'AB' is 2 tokens; expected one");
    assert_rejects(NULL, "--logit-bias 257:1", 2, "outside the vocabulary of 257 tokens");
    assert_rejects(NULL, "--logit-bias A:1 --logit-bias 65:2", 2, "token 65 already has a bias");
}

static void searches_with_beams(void **state) {
    json_t *best = samples(NULL, "--beams 4 --samples 4 --max-tokens 10");
    for (size_t i = 0; i < 8; i++) {
        const json_t *sample = json_array_get(best, i);
        assert_true(json_is_real(json_object_get(sample, "score")));
        for (size_t j = i / 4 * 4; j < i; j++) {
            const json_t *better = json_array_get(best, j);
            assert_true(json_real_value(json_object_get(better, "score")) >=
                        json_real_value(json_object_get(sample, "score")));
            assert_false(json_equal(json_object_get(better, "new_ids"), json_object_get(sample, "new_ids")));
        }
    }
    json_decref(best);
    assert_rejects(NULL, "--beams 2 --samples 3", 2, "--samples 3 needs --beams 3 or more");
    assert_rejects(NULL, "--beams 2 --top-k 3", 2, "--beams cannot be combined with --top-k");
    assert_rejects(NULL, "--length-penalty 2", 2, "--length-penalty needs --beams");
    assert_same_ids("--beams 3 --batch 1", "--beams 3 --greedy");
    /* The text before a stop string is a candidate's text. */
    json_t *plain = samples(NULL, "--beams 3 --max-tokens 10");
    const json_t *text = json_object_get(json_array_get(plain, 0), "new_text");
    assert_true(json_string_length(text) > 3);
    json_decref(plain);
    json_t *stopped =
        samples(NULL, "--beams 3 --max-tokens 10 --stop \"$(printf '\\101')\" --logit-bias A:10");
    const json_t *sample = json_array_get(stopped, 0);
    assert_string_equal(json_string_value(json_object_get(sample, "reason")), "stop");
    assert_null(strchr(json_string_value(json_object_get(sample, "new_text")), 'A'));
    assert_true(contains(stopped, 'A'));
    json_decref(stopped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_sets_defaults),
        cmocka_unit_test(lengths_are_independent),
        cmocka_unit_test(options_override_the_file),
        cmocka_unit_test(refuses_what_changes_the_text),
        cmocka_unit_test(warns_about_unknown_fields),
        cmocka_unit_test(reads_old_checkpoints),
        cmocka_unit_test(biases_logits),
        cmocka_unit_test(searches_with_beams),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
