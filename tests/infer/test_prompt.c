/* Prompts from texts and numbers, and how their sequences are numbered. */
#include "infer/prompt.h"

#include "test.h"

static const ModelConfig bytes = {.vocab = 257, .bos_token = -1, .eos_token = 256};

/* An encoder of the bytes. */
typedef struct Reading {
    Tokenizer *tokenizer;
    Encoder *encoder;
} Reading;

static Reading reading_new(void) {
    Reading reading = {0};
    assert_ok(tokenizer_new_bytes(&reading.tokenizer, false));
    assert_ok(encoder_new(&reading.encoder, reading.tokenizer, NULL));
    return reading;
}

static void reading_done(Reading *reading) {
    encoder_free(reading->encoder);
    tokenizer_free(reading->tokenizer);
}

static void texts_and_numbers(void **state) {
    (void)state;
    Reading reading = reading_new();
    PromptList list = {0};
    assert_ok(prompt_list_add_text(&list, reading.encoder, "a\xFF", 2));
    assert_ok(prompt_list_add_ids(&list, " 7,0, 2147483647 "));
    assert_ok(prompt_list_add_text(&list, reading.encoder, "", 0));
    assert_ok(prompt_list_add_ids(&list, ""));
    assert_ok(prompt_list_finish(&list, &bytes, NULL, 1));
    assert_int_equal(list.used, 4);
    assert_int_equal(list.prompts[0].count, 2);
    assert_int_equal(list.prompts[0].ids[1], 255);
    assert_int_equal(list.prompts[1].count, 3);
    assert_int_equal(list.prompts[1].ids[2], INT32_MAX);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(list.prompts[i].count, 1);
        assert_int_equal(list.prompts[i].ids[0], 256);
    }
    prompt_list_done(&list);
    reading_done(&reading);
}

/* More samples, or more prompts behind it, leave a sequence's number as it is. */
static void numbers_stay(void **state) {
    (void)state;
    uint64_t few[2][2], many[3][5];
    for (int64_t prompts = 2; prompts <= 3; prompts++) {
        int64_t samples = prompts == 2 ? 2 : 5;
        PromptList list = {0};
        for (int64_t i = 0; i < prompts; i++) assert_ok(prompt_list_add_ids(&list, "1,2"));
        assert_ok(prompt_list_finish(&list, &bytes, NULL, samples));
        for (int64_t i = 0; i < prompts * samples; i++)
            *(prompts == 2 ? &few[i / 2][i % 2] : &many[i / 5][i % 5]) = list.prompts[i].sequence;
        prompt_list_done(&list);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(few[i / 2][i % 2], many[i / 2][i % 2]);
    for (int i = 0; i < 15; i++)
        for (int j = 0; j < i; j++) assert_int_not_equal(many[i / 5][i % 5], many[j / 5][j % 5]);
}

static void starts_without_a_prompt(void **state) {
    (void)state;
    static const int64_t tokens[][3] = {
        {-1, 256, 256}, {3, 256, 3}, {50256, 4, 4}, {-1, -1, -1}, {50256, 50256, -1}};
    for (int i = 0; i < 5; i++) {
        ModelConfig config = bytes;
        config.bos_token = tokens[i][0], config.eos_token = tokens[i][1];
        PromptList list = {0};
        if (tokens[i][2] < 0) {
            assert_fails(prompt_list_finish(&list, &config, NULL, 1), 2,
                         "no end token to start an empty prompt from");
        } else {
            assert_ok(prompt_list_finish(&list, &config, NULL, 1));
            assert_int_equal(list.used, 1);
            assert_int_equal(list.prompts[0].ids[0], tokens[i][2]);
        }
        prompt_list_done(&list);
    }
}

/* A model that names no end token starts from its tokenizer's. */
static void starts_from_the_tokenizers_end(void **state) {
    (void)state;
    Reading reading = reading_new();
    ModelConfig config = {.vocab = 257, .bos_token = -1, .eos_token = 50256};
    PromptList list = {0};
    assert_ok(prompt_list_finish(&list, &config, reading.tokenizer, 1));
    assert_int_equal(list.prompts[0].ids[0], 256);
    prompt_list_done(&list);
    reading_done(&reading);
}

static void refuses_what_is_no_number(void **state) {
    (void)state;
    static const char *const bad[] = {"x",   "1,x", "1;2", "-1", "2147483648", "99999999999999999999",
                                      "1.5", ","};
    PromptList list = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(prompt_list_add_ids(&list, bad[i]), 2, "token ids separated by commas");
    assert_int_equal(list.used, 0);
    prompt_list_done(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_numbers),         cmocka_unit_test(numbers_stay),
        cmocka_unit_test(starts_without_a_prompt),   cmocka_unit_test(starts_from_the_tokenizers_end),
        cmocka_unit_test(refuses_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
