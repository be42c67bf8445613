/* Prompts from text and token ids, and the numbering of their sequences. */
#include "infer/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"

#include "test.h"

static char directory[] = "/tmp/weft-prompt-XXXXXX";

static const ModelConfig bytes = {.vocab = 257, .bos_token = -1, .eos_token = 256};

/* A byte-level tokenizer and its encoder. */
typedef struct Encoding {
    Tokenizer *tokenizer;
    Encoder *encoder;
} Encoding;

static Encoding encoding_new(void) {
    Encoding encoding = {0};
    assert_ok(tokenizer_new_bytes(&encoding.tokenizer, false));
    assert_ok(encoder_new(&encoding.encoder, encoding.tokenizer, NULL));
    return encoding;
}

static void encoding_done(Encoding *encoding) {
    encoder_free(encoding->encoder);
    tokenizer_free(encoding->tokenizer);
}

static void text_and_ids(void **state) {
    Encoding encoding = encoding_new();
    PromptList list = {0};
    assert_ok(prompt_list_add_text(&list, encoding.encoder, "a\xFF", 2));
    assert_ok(prompt_list_add_ids(&list, " 7,0, 2147483647 "));
    assert_ok(prompt_list_add_text(&list, encoding.encoder, "", 0));
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
    encoding_done(&encoding);
}

/* Text prompts have the special tokens of the post-processor. */
static void special_tokens(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    PromptList list = {0};
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(prompt_list_add_text(&list, encoder, "a", 1));
    assert_ok(prompt_list_add_ids(&list, "7"));
    list.no_special = true;
    assert_ok(prompt_list_add_text(&list, encoder, "a", 1));
    assert_int_equal(list.count[0], 3);
    assert_int_equal(list.ids[0][0], BYTE_CLS);
    assert_int_equal(list.ids[0][2], BYTE_SEP);
    assert_int_equal(list.count[1], 1);
    assert_int_equal(list.count[2], 1);
    prompt_list_done(&list);
}

/* A sequence's number does not change with more samples or more prompts after it. */
static void sequence_numbers_are_stable(void **state) {
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

/* If the model has no end token, an empty prompt starts from the tokenizer's. */
static void starts_from_the_tokenizers_end(void **state) {
    Encoding encoding = encoding_new();
    ModelConfig config = {.vocab = 257, .bos_token = -1, .eos_token = 50256};
    PromptList list = {0};
    assert_ok(prompt_list_finish(&list, &config, encoding.tokenizer, 1));
    assert_int_equal(list.prompts[0].ids[0], 256);
    prompt_list_done(&list);
    encoding_done(&encoding);
}

static PromptList lines_of(Encoder *encoder, const char *name, const char *text, size_t size) {
    PromptList list = {0};
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(str_format(&path, "%s/%s", directory, name));
    assert_ok(file_replace(path, text, size));
    assert_ok(prompt_list_add_lines(&list, encoder, path));
    assert_ok(prompt_list_finish(&list, &bytes, NULL, 1));
    return list;
}

/* Each line is a prompt, empty ones included. A final newline does not start another one. */
static void lines_of_text(void **state) {
    static const char text[] = "ab\n\n{\"prompt\": 1}\r\nx\0y";
    static const int64_t counts[] = {2, 1, 13, 3};
    Encoding encoding = encoding_new();
    for (size_t extra = 0; extra < 2; extra++) {
        char copy[sizeof text + 1];
        memcpy(copy, text, sizeof text);
        copy[sizeof text - 1] = '\n';
        PromptList list = lines_of(encoding.encoder, "lines.txt", copy, sizeof text - 1 + extra);
        assert_int_equal(list.used, 4);
        for (int i = 0; i < 4; i++) assert_int_equal(list.count[i], counts[i]);
        assert_int_equal(list.ids[1][0], 256);
        assert_int_equal(list.ids[3][1], 0);
        prompt_list_done(&list);
    }
    encoding_done(&encoding);
}

static void lines_of_json(void **state) {
    static const char text[] = "\"a\\nb\"\n[7, 0]\n{\"prompt\": \"c\", \"id\": 3}\n{\"prompt\": [1, 2, 3]}\n";
    static const int64_t counts[] = {3, 2, 1, 3};
    Encoding encoding = encoding_new();
    PromptList list = lines_of(encoding.encoder, "lines.jsonl", text, sizeof text - 1);
    assert_int_equal(list.used, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(list.count[i], counts[i]);
    assert_int_equal(list.ids[0][1], '\n');
    assert_int_equal(list.ids[3][2], 3);
    prompt_list_done(&list);
    /* Token ids need no tokenizer. */
    list = lines_of(NULL, "lines.jsonl", "[1]", 3);
    assert_int_equal(list.used, 1);
    prompt_list_done(&list);
    encoding_done(&encoding);
}

static void refuses_bad_lines(void **state) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"\"a\"\n{", "lines.jsonl, line 2"},
        {"{\"text\": \"a\"}", "line 1: expected a text, a list of token ids"},
        {"\"a\"\n\n\"b\"", "line 2"},
        {"[1, -2]", "line 1: entry 2 is not a token id"},
        {"[2147483648]", "entry 1 is not a token id"},
        {"3", "expected a text"},
    };
    Encoding encoding = encoding_new();
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(str_format(&path, "%s/lines.jsonl", directory));
    PromptList list = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_ok(file_replace(path, bad[i].text, strlen(bad[i].text)));
        CLEANUP(status_freep) Status status = prompt_list_add_lines(&list, encoding.encoder, path);
        assert_non_null(status);
        if (!strstr(status_message(status), bad[i].part)) fail_msg("%s", status_message(status));
    }
    assert_ok(file_replace(path, "\"a\"", 3));
    assert_fails(prompt_list_add_lines(&list, NULL, path), 2, "text needs a tokenizer");
    prompt_list_done(&list);
    encoding_done(&encoding);
}

static int make_directory(void **state) {
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state) {
    assert_ok(dir_remove(directory));
    return 0;
}

static void refuses_invalid_ids(void **state) {
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
        cmocka_unit_test(text_and_ids),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(sequence_numbers_are_stable),
        cmocka_unit_test(starts_without_a_prompt),
        cmocka_unit_test(starts_from_the_tokenizers_end),
        cmocka_unit_test(lines_of_text),
        cmocka_unit_test(lines_of_json),
        cmocka_unit_test(refuses_bad_lines),
        cmocka_unit_test(refuses_invalid_ids),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
