/* The text of a sequence: whole characters, held back where a stop text may begin, cut where one came. */
#include "infer/text.h"

#include "base/json.h"
#include "base/rng.h"
#include "test.h"

#define BROKEN "\xEF\xBF\xBD"

static Tokenizer *bytes_new(void) {
    Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, false));
    return tokenizer;
}

static void assert_sure(const TextStream *stream, const char *text) {
    if (stream->final_size != strlen(text) ||
        memcmp(stream->text ? stream->text : "", text, stream->final_size))
        fail_msg("expected '%s', found '%.*s'", text, (int)stream->final_size, stream->text);
}

static void push_text(TextStream *stream, const char *text) {
    for (const char *at = text; *at; at++) assert_ok(text_stream_push(stream, (unsigned char)*at));
}

/* ---- characters ---- */

static void characters_come_whole(void **state) {
    (void)state;
    Tokenizer *tokenizer = bytes_new();
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){0}, true));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){'a', 0xE2}, 2));
    assert_sure(&stream, "a");
    assert_ok(text_stream_push(&stream, 0x82));
    assert_sure(&stream, "a");
    assert_ok(text_stream_push(&stream, 0xAC));
    assert_sure(&stream, "a\xE2\x82\xAC");
    assert_int_equal(stream.prompt_size, 1); /* what the prompt left open is new text */
    assert_ok(text_stream_push(&stream, 256));
    assert_ok(text_stream_push(&stream, 300)); /* a padded vocabulary's: no text */
    assert_ok(text_stream_push(&stream, 0xF0));
    assert_sure(&stream, "a\xE2\x82\xAC");
    assert_ok(text_stream_end(&stream));
    assert_sure(&stream, "a\xE2\x82\xAC" BROKEN);
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void special_tokens_show_when_asked_for(void **state) {
    (void)state;
    Tokenizer *tokenizer = bytes_new();
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){0}, false));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){256}, 1));
    push_text(&stream, "x");
    assert_sure(&stream, "<|endoftext|>x");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

/* ---- stop texts ---- */

/* What may be the beginning of a stop text is held back and comes when it is none after all. */
static void beginnings_are_held_back(void **state) {
    (void)state;
    Tokenizer *tokenizer = bytes_new();
    static const char *const stops[] = {"\n\n", "STOP"};
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 2}, true));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){'S', 'T', 'O'}, 3));
    push_text(&stream, "P"); /* it began in the prompt: not new text */
    assert_sure(&stream, "STOP");
    push_text(&stream, "\n");
    assert_sure(&stream, "STOP");
    push_text(&stream, "aST");
    assert_sure(&stream, "STOP\na");
    push_text(&stream, "S");
    assert_sure(&stream, "STOP\naST");
    push_text(&stream, "TO");
    assert_sure(&stream, "STOP\naST");
    assert_int_equal(stream.stop, -1);
    push_text(&stream, "P and more");
    assert_int_equal(stream.stop, 1);
    assert_int_equal(stream.size, 8);
    assert_sure(&stream, "STOP\naST");
    assert_ok(text_stream_end(&stream));
    assert_sure(&stream, "STOP\naST");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void the_end_lets_go(void **state) {
    (void)state;
    Tokenizer *tokenizer = bytes_new();
    static const char *const stops[] = {"abc", BROKEN};
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 1}, true));
    push_text(&stream, "xab");
    assert_sure(&stream, "x");
    assert_ok(text_stream_end(&stream));
    assert_sure(&stream, "xab");
    text_stream_done(&stream);
    /* A stop text may come from the end itself. */
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 2}, true));
    push_text(&stream, "x\xC3");
    assert_ok(text_stream_end(&stream));
    assert_int_equal(stream.stop, 1);
    assert_sure(&stream, "x");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void the_first_one_complete_counts(void **state) {
    (void)state;
    static const struct {
        const char *stops[3], *text, *expected;
        int count, which;
    } cases[] = {
        {{"abcd", "bc"}, "xabcd", "xa", 2, 1},
        {{"bc", "abc"}, "xabc", "x", 2, 1}, /* both complete at once: the longest */
        {{"aab"}, "aaab", "a", 1, 0},
        {{"abab"}, "ababab", "", 1, 0},
        {{"\xE2\x82\xAC"}, "5\xE2\x82\xAC", "5", 1, 0},
        {{"z", "y", "x"}, "abc", "abc", 3, -1},
    };
    Tokenizer *tokenizer = bytes_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TextStream stream;
        assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){cases[i].stops, cases[i].count}, true));
        push_text(&stream, cases[i].text);
        assert_ok(text_stream_end(&stream));
        assert_sure(&stream, cases[i].expected);
        assert_int_equal(stream.stop, cases[i].which);
        text_stream_done(&stream);
    }
    tokenizer_free(tokenizer);
}

/* Random texts of few letters: what was sure stays, all of it is valid UTF-8 at every token, and no stop
 * text is ever in it. */
static void any_tokens(void **state) {
    (void)state;
    static const char *const stops[] = {"ab", "bba\xC3\xA9", "\xC3\xA9\xC3\xA9"};
    static const int32_t alphabet[] = {'a', 'b', 0xC3, 0xA9, 256};
    Tokenizer *tokenizer = bytes_new();
    for (uint64_t round = 0; round < 2000; round++) {
        RngKey key = rng_key(1, "texts", round);
        TextStream stream;
        assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 3}, true));
        char before[64];
        size_t sure = 0;
        for (uint64_t i = 0; i <= 12; i++) {
            if (i < 12)
                assert_ok(text_stream_push(&stream, alphabet[rng_below(key, i, 5)]));
            else
                assert_ok(text_stream_end(&stream));
            assert_true(stream.final_size >= sure && stream.final_size <= stream.size);
            assert_memory_equal(stream.text ? stream.text : "", before, sure);
            sure = stream.final_size;
            if (sure) memcpy(before, stream.text, sure);
            json_t *valid = json_stringn(before, sure); /* takes nothing but UTF-8 */
            assert_non_null(valid);
            for (int s = 0; s < 3; s++) assert_null(strstr(json_string_value(valid), stops[s]));
            json_decref(valid);
        }
        text_stream_done(&stream);
    }
    tokenizer_free(tokenizer);
}

static void refuses_stops_that_never_come(void **state) {
    (void)state;
    const char *stops[] = {"fine", ""};
    assert_fails(stop_strings_check(&(StopStrings){stops, 2}), 2, "stop string 2 is empty");
    stops[1] = "\xC3";
    assert_fails(stop_strings_check(&(StopStrings){stops, 2}), 2, "stop string 2 is not valid UTF-8");
    assert_ok(stop_strings_check(&(StopStrings){stops, 1}));
}

/* ---- the tokenizer of a model ---- */

static void bytes_are_known_by_their_vocabulary(void **state) {
    (void)state;
    static const struct {
        int64_t vocab, end;
        bool bytes;
    } cases[] = {{257, 256, true}, {257, 50256, true}, {512, 256, true},  {513, 256, false},
                 {300, 2, false},  {256, 256, false},  {50257, -1, false}};
    char dir[512];
    snprintf(dir, sizeof dir, "%s/golden/cases/gpt2", WEFT_TEST_DIR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelConfig config = {.vocab = cases[i].vocab, .eos_token = cases[i].end};
        Tokenizer *tokenizer = NULL;
        assert_ok(text_tokenizer(dir, &config, NULL, &tokenizer));
        assert_int_equal(tokenizer != NULL, cases[i].bytes);
        tokenizer_free(tokenizer);
    }
    ModelConfig config = {.vocab = 1281, .eos_token = -1};
    Tokenizer *tokenizer = NULL;
    assert_fails(text_tokenizer(dir, &config, "bytes", &tokenizer), 2,
                 "the tokenizer bytes (257 tokens) does not match the model");
    assert_fails(text_tokenizer(dir, &config, "bytes", &tokenizer), 2, "whose vocabulary is 1281");
    config.vocab = 1280;
    assert_ok(text_tokenizer(dir, &config, "bytes", &tokenizer));
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(special_tokens_show_when_asked_for),
        cmocka_unit_test(beginnings_are_held_back),
        cmocka_unit_test(the_end_lets_go),
        cmocka_unit_test(the_first_one_complete_counts),
        cmocka_unit_test(any_tokens),
        cmocka_unit_test(refuses_stops_that_never_come),
        cmocka_unit_test(bytes_are_known_by_their_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
