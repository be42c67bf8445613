/* Special token ids are found in the vocabulary files that transformers writes. */
#include "fixture.h"

static void assert_tokens(const Fixture *fixture, int32_t pad, int32_t cls, int32_t sep, int32_t mask) {
    SpecialTokens tokens;
    assert_ok(special_tokens_read(fixture->dir, &tokens));
    assert_int_equal(tokens.pad, pad);
    assert_int_equal(tokens.cls, cls);
    assert_int_equal(tokens.sep, sep);
    assert_int_equal(tokens.mask, mask);
}

static void by_line(void **state) {
    const Fixture *fixture = *state;
    put_file(path_of(fixture, "vocab.txt"), "[UNK]\n[CLS]\n\nx[SEP]\n[PAD]\n[SEP]\n[MASK]");
    assert_tokens(fixture, 4, 1, 5, 6);
    put_file(path_of(fixture, "vocab.txt"), "a\r\n[MASK]\r\n [CLS]\r\n[SEP]\r\n");
    assert_tokens(fixture, -1, -1, 3, 1);
    /* vocab.txt has priority over tokenizer.json. */
    put_file(path_of(fixture, "tokenizer.json"), "{\"added_tokens\": [{\"content\": \"[CLS]\", \"id\": 9}]}");
    assert_tokens(fixture, -1, -1, 3, 1);
    put_file(path_of(fixture, "vocab.txt"), "");
    assert_tokens(fixture, -1, -1, -1, -1);
}

static void by_tokenizer(void **state) {
    const Fixture *fixture = *state;
    put_file(path_of(fixture, "tokenizer.json"),
             "{\"added_tokens\": [{\"id\": 7, \"content\": \"[MASK]\", \"special\": true},"
             "{\"id\": 3, \"content\": \"[CLS]\"}, {\"id\": 8, \"content\": \"other\"}],"
             "\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[PAD]\": 0, \"[CLS]\": 2, \"[SEP]\": 5}}}");
    assert_tokens(fixture, 0, 3, 5, 7);
    put_file(path_of(fixture, "tokenizer.json"), "{\"model\": {\"vocab\": [[\"[CLS]\", -1.5]]}}");
    assert_tokens(fixture, -1, -1, -1, -1);
}

static void without_either(void **state) {
    assert_tokens(*state, -1, -1, -1, -1);
}

static const struct {
    const char *file, *text, *message;
} refused[] = {
    {"tokenizer.json", "[]", "tokenizer.json: expected a JSON object"},
    {"tokenizer.json", "{\"model\"", "tokenizer.json: not valid JSON"},
    {"tokenizer.json", "{\"added_tokens\": {}}", "'added_tokens' must be a list"},
    {"tokenizer.json", "{\"added_tokens\": [7]}", "entry 1 of 'added_tokens' has no 'content'"},
    {"tokenizer.json", "{\"added_tokens\": [{\"content\": \"[SEP]\"}]}", "the id of '[SEP]' must be"},
    {"tokenizer.json", "{\"model\": {\"vocab\": {\"[PAD]\": 2147483648}}}", "the id of '[PAD]' must be"},
    {"tokenizer.json", "{\"model\": {\"vocab\": {\"[PAD]\": -1}}}", "the id of '[PAD]' must be"},
    {"vocab.txt", "a\n[SEP]\n[SEP]\n", "vocab.txt: line 3: duplicate token '[SEP]', first on line 2"},
};

static void refuses_the_rest(void **state) {
    const Fixture *fixture = *state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        SpecialTokens tokens = {1, 2, 3, 4, 5, 6};
        put_file(path_of(fixture, refused[i].file), refused[i].text);
        assert_fails(special_tokens_read(fixture->dir, &tokens), 1, refused[i].message);
        assert_int_equal(tokens.mask, 4);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(by_line),
        TEST(by_tokenizer),
        TEST(without_either),
        TEST(refuses_the_rest),
    };
    return cmocka_run_group_tests_name("checkpoint.special_tokens", tests, NULL, NULL);
}
