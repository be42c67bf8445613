/* TextStream, which turns tokens into text: output consists of complete UTF-8 characters, text that may be
 * the start of a stop string is held back, and output ends where a stop string begins. */
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

static void assert_final(const TextStream *stream, const char *text) {
    if (stream->final_size != strlen(text) ||
        memcmp(stream->text ? stream->text : "", text, stream->final_size))
        fail_msg("expected '%s', found '%.*s'", text, (int)stream->final_size, stream->text);
}

static void push_text(TextStream *stream, const char *text) {
    for (const char *at = text; *at; at++) assert_ok(text_stream_push(stream, (unsigned char)*at));
}

/* ---- characters ---- */

static void characters_are_complete(void **state) {
    Tokenizer *tokenizer = bytes_new();
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){0}, true));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){'a', 0xE2}, 2));
    assert_final(&stream, "a");
    assert_ok(text_stream_push(&stream, 0x82));
    assert_final(&stream, "a");
    assert_ok(text_stream_push(&stream, 0xAC));
    assert_final(&stream, "a\xE2\x82\xAC");
    assert_int_equal(stream.prompt_size, 1); /* the byte that completes the prompt's last character is new
                                              * text */
    assert_ok(text_stream_push(&stream, 256));
    assert_ok(text_stream_push(&stream, 300)); /* a padding token: no text */
    assert_ok(text_stream_push(&stream, 0xF0));
    assert_final(&stream, "a\xE2\x82\xAC");
    assert_ok(text_stream_end(&stream));
    assert_final(&stream, "a\xE2\x82\xAC" BROKEN);
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void special_tokens_on_request(void **state) {
    Tokenizer *tokenizer = bytes_new();
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){0}, false));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){256}, 1));
    push_text(&stream, "x");
    assert_final(&stream, "<|endoftext|>x");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

/* ---- stop strings ---- */

/* Text that may be the start of a stop string is held back, and released once it cannot be. */
static void possible_stops_are_held_back(void **state) {
    Tokenizer *tokenizer = bytes_new();
    static const char *const stops[] = {"\n\n", "STOP"};
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 2}, true));
    assert_ok(text_stream_prompt(&stream, (const int32_t[]){'S', 'T', 'O'}, 3));
    push_text(&stream, "P"); /* it began in the prompt, so it is not new text */
    assert_final(&stream, "STOP");
    push_text(&stream, "\n");
    assert_final(&stream, "STOP");
    push_text(&stream, "aST");
    assert_final(&stream, "STOP\na");
    push_text(&stream, "S");
    assert_final(&stream, "STOP\naST");
    push_text(&stream, "TO");
    assert_final(&stream, "STOP\naST");
    assert_int_equal(stream.stop, -1);
    push_text(&stream, "P and more");
    assert_int_equal(stream.stop, 1);
    assert_int_equal(stream.size, 8);
    assert_final(&stream, "STOP\naST");
    assert_ok(text_stream_end(&stream));
    assert_final(&stream, "STOP\naST");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void end_releases_text(void **state) {
    Tokenizer *tokenizer = bytes_new();
    static const char *const stops[] = {"abc", BROKEN};
    TextStream stream;
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 1}, true));
    push_text(&stream, "xab");
    assert_final(&stream, "x");
    assert_ok(text_stream_end(&stream));
    assert_final(&stream, "xab");
    text_stream_done(&stream);
    /* Flushing an incomplete character can complete a stop string. */
    assert_ok(text_stream_init(&stream, tokenizer, &(StopStrings){stops, 2}, true));
    push_text(&stream, "x\xC3");
    assert_ok(text_stream_end(&stream));
    assert_int_equal(stream.stop, 1);
    assert_final(&stream, "x");
    text_stream_done(&stream);
    tokenizer_free(tokenizer);
}

static void first_complete_stop_wins(void **state) {
    static const struct {
        const char *stops[3], *text, *expected;
        int count, which;
    } cases[] = {
        {{"abcd", "bc"}, "xabcd", "xa", 2, 1},
        {{"bc", "abc"}, "xabc", "x", 2, 1}, /* both complete with the same token: the longest wins */
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
        assert_final(&stream, cases[i].expected);
        assert_int_equal(stream.stop, cases[i].which);
        text_stream_done(&stream);
    }
    tokenizer_free(tokenizer);
}

/* Random text over a few letters: final text never changes, is valid UTF-8 after every token and never
 * contains a stop string. */
static void any_tokens(void **state) {
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
            json_t *valid = json_stringn(before, sure); /* fails unless the text is valid UTF-8 */
            assert_non_null(valid);
            for (int s = 0; s < 3; s++) assert_null(strstr(json_string_value(valid), stops[s]));
            json_decref(valid);
        }
        text_stream_done(&stream);
    }
    tokenizer_free(tokenizer);
}

static void refuses_impossible_stops(void **state) {
    const char *stops[] = {"fine", ""};
    assert_fails(stop_strings_check(&(StopStrings){stops, 2}), 2, "stop string 2 is empty");
    stops[1] = "\xC3";
    assert_fails(stop_strings_check(&(StopStrings){stops, 2}), 2, "stop string 2 is not valid UTF-8");
    assert_ok(stop_strings_check(&(StopStrings){stops, 1}));
}

/* ---- a model's tokenizer ---- */

static void byte_tokenizer_by_vocabulary(void **state) {
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
    assert_fails(text_tokenizer(dir, &config, "bytes", &tokenizer), 2, "whose vocabulary has 1281");
    config.vocab = 1280;
    assert_ok(text_tokenizer(dir, &config, "bytes", &tokenizer));
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_complete),      cmocka_unit_test(special_tokens_on_request),
        cmocka_unit_test(possible_stops_are_held_back), cmocka_unit_test(end_releases_text),
        cmocka_unit_test(first_complete_stop_wins),     cmocka_unit_test(any_tokens),
        cmocka_unit_test(refuses_impossible_stops),     cmocka_unit_test(byte_tokenizer_by_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
