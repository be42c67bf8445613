/* Perplexity of a complete text: sliding windows match transformers, and words are counted as WikiText
 * does. */
#include <math.h>

#include "cli/corpus.h"
#include "cli/weights.h"
#include "data/reader.h"

#define GOLDEN   WEFT_TEST_DIR "/golden/cases"
#define WIKITEXT WEFT_SOURCE_DIR "/../shared/data/wikitext-2/test.txt.gz"

static double number(const json_t *json, const char *name) {
    const json_t *value = json_object_get(json, name);
    if (!json_is_number(value)) fail_msg("key '%s' is missing or not a number", name);
    return json_number_value(value);
}

/* `axis`: an option for two ranks, with context parallelism around a ring; NULL: one rank. */
static json_t *eval(const char *model, const char *data, const char *seq, const char *stride,
                    const char *axis) {
    bool parts = axis && !strcmp(axis, "--cp");
    Ran ran = program_run("eval", "--model", model, "--data", data, "--seq", seq, "--batch", "3", "--json",
                          axis ? axis : "--tp", axis ? "2" : "1", parts ? "--cp-mode" : "--pp",
                          parts ? "ring" : "1", stride ? "--stride" : NULL, stride);
    if (ran.code) fail_msg("%s", ran.err);
    json_t *json = json_loads(ran.out, 0, NULL);
    ran_done(&ran);
    return json;
}

static void test_windows(void **state) {
    CLEANUP(json_decrefp) json_t *golden = NULL;
    uint16_t ids[256];
    size_t i;
    json_t *value;
    assert_ok(json_read_file(GOLDEN "/perplexity.json", &golden));
    json_array_foreach(json_object_get(golden, "ids"), i, value) ids[i] = (uint16_t)json_integer_value(value);
    put_file("text.u16", ids, i * sizeof *ids);
    json_array_foreach(json_object_get(golden, "cases"), i, value) {
        char stride[16];
        snprintf(stride, sizeof stride, "%d", (int)number(value, "stride"));
        CLEANUP(json_decrefp)
        json_t *found = eval(GOLDEN "/gpt2", at("text.u16"), "16", stride,
                             i == 0   ? "--tp"
                             : i == 1 ? "--cp"
                                      : NULL);
        double nll = number(value, "nll"), tokens = number(value, "tokens");
        assert_true(fabs(number(found, "nll") - nll) < 1e-5 * nll);
        assert_true(number(found, "tokens") == tokens);
        assert_true(fabs(number(found, "perplexity") - exp(nll / tokens)) < 1e-3 * exp(nll / tokens));
        assert_true(fabs(number(found, "accuracy") * tokens - number(value, "hits")) < 0.01);
        assert_null(json_object_get(found, "words"));
    }
    assert_refused(2, "--stride 17 is longer than the window of 16", "eval", "--model", GOLDEN "/gpt2",
                   "--data", at("text.u16"), "--seq", "16", "--stride", "17");
}

static void test_words(void **state) {
    const char text[] = " = Title = \n\nThe game , it said , sold well .\n Two  lines\tmore";
    put_file("words.txt", text, sizeof text - 1);
    assert_runs(program_run("train", "--model", "gpt2-tiny", "--data", "self", "--seq", "16", "--steps", "1",
                            "--batch", "1", "--eval-every", "0", "--eval-batches", "1", "--out", at("run"),
                            "--quiet"));
    CLEANUP(json_decrefp) json_t *found = eval(at("run"), at("words.txt"), "16", "8", NULL);
    double nll = number(found, "nll");
    assert_true(number(found, "words") == 15 + 4);
    assert_true(number(found, "bytes") == sizeof text - 1);
    assert_true(number(found, "tokens") == sizeof text - 1); /* all but the first, plus the end token */
    assert_true(fabs(log(number(found, "word_perplexity")) - nll / 19) < 1e-9 * nll);
    assert_true(fabs(number(found, "bits_per_byte") - nll / log(2) / (sizeof text - 1)) < 1e-9 * nll);
    /* Text shorter than a window has a perplexity, too. */
    put_file("short.txt", "Hello", 5);
    CLEANUP(json_decrefp) json_t *brief = eval(at("run"), at("short.txt"), "16", "16", NULL);
    assert_true(number(brief, "tokens") == 5 && number(brief, "perplexity") > 1);
    put_file("letter.txt", "a", 1);
    Ran ran = program_run("eval", at("run"), at("letter.txt"));
    assert_contains(ran.out, " (1 token)\nword-level perplexity");
    ran_done(&ran);
    copy_with_nan(GOLDEN "/gpt2-generate", at("nan"), "transformer.ln_f.weight");
    assert_refused(1, "the loss is NaN; the checkpoint's weights are corrupt or diverged", "eval", at("nan"),
                   at("short.txt"));
}

/* The same tokens give the same figures as a stream and as an example, padded or not. */
static void test_example(void **state) {
    uint16_t ids[12];
    char line[128] = "{\"ids\": [";
    for (int i = 0; i < 12; i++) {
        ids[i] = (uint16_t)(7 * i % 50);
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%d", i ? ", " : "", ids[i]);
    }
    strcat(line, "]}\n");
    put_file("same.u16", ids, sizeof ids);
    put_text("same.jsonl", line);
    CLEANUP(json_decrefp) json_t *stream = eval(GOLDEN "/gpt2", at("same.u16"), "16", NULL, NULL);
    CLEANUP(json_decrefp) json_t *example = eval(GOLDEN "/gpt2", at("same.jsonl"), "16", NULL, NULL);
    static const char *const keys[] = {"loss", "tokens", "nll", "perplexity", "accuracy"};
    assert_true(number(stream, "tokens") == 11);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (fabs(number(stream, keys[i]) - number(example, keys[i])) > 1e-6 * fabs(number(stream, keys[i])))
            fail_msg("%s: %g as a stream, %g as an example", keys[i], number(stream, keys[i]),
                     number(example, keys[i]));
}

/* The published word count of WikiText-2's test set, and the same from small blocks. */
static void test_wikitext(void **state) {
    const char *paths[] = {WIKITEXT};
    if (!path_exists(WIKITEXT)) skip();
    for (size_t block = 0; block < 5000; block += 4999) {
        WordCounts counts;
        ReaderSpec spec = {.paths = paths, .path_count = 1, .block = block};
        assert_ok(corpus_count_words(&spec, &counts));
        assert_int_equal(counts.words + counts.lines, 245569);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows), cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_example), cmocka_unit_test(test_wikitext)};
    return cmocka_run_group_tests(tests, corpus_setup, corpus_teardown);
}
