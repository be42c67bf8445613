/* WordPiece files: what is read from them, what is refused and with which message, and that saved files load
 * as the same tokenizer. */
#include "base/folder.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#define GOLDEN WEFT_TEST_DIR "/tokenizer/golden/"
#define BASE   "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static void put(Folder *folder, const char *name, const char *text, size_t size) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(path_join(&path, folder->dir, name));
    assert_ok(file_replace(path, text, size));
}

static void put_text(Folder *folder, const char *name, const char *text) {
    put(folder, name, text, strlen(text));
}

static void assert_encodes(const Tokenizer *tokenizer, const char *text, const char *expected) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    TokenList list = {0};
    assert_ok(encoder_add(encoder, text, strlen(text), &list));
    char found[256] = "";
    for (size_t i = 0; i < list.count; i++) {
        size_t size;
        const char *token = tokenizer_token(tokenizer, list.ids[i], &size);
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%.*s", i ? " " : "", (int)size,
                 token);
    }
    assert_string_equal(found, expected);
    token_list_done(&list);
}

static void assert_dir_encodes(Folder *folder, const char *text, const char *expected) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load(&tokenizer, folder->dir));
    assert_encodes(tokenizer, text, expected);
}

/* ---- settings ---- */

static void case_without_config(void **state) {
    put_text(*state, "vocab.txt", BASE "ecole\n##s\nthe\n");
    assert_dir_encodes(*state, "École The THE x", "ecole the the [UNK]");
    /* A single entry with an upper-case letter makes the vocabulary cased. Entries in brackets do not
     * count. */
    put_text(*state, "vocab.txt",
             BASE "[Unused]\necole\n\xC3\x89"
                  "cole\nthe\n");
    assert_dir_encodes(*state, "École ecole The the", "École ecole [UNK] the");
    put_text(*state, "vocab.txt", BASE "\xD0\x96\nthe\n");
    assert_dir_encodes(*state, "the THE", "the [UNK]");
}

static void settings_from_config(void **state) {
    Folder *folder = *state;
    put_text(folder, "vocab.txt",
             BASE "Ecole\necole\n\xC3\xA9"
                  "cole\n\xE7\xB9\x94\n##\xE7\xB9\x94\n<c>\n<u>\n");
    put_text(folder, "tokenizer_config.json", "{\"do_lower_case\": false}");
    assert_dir_encodes(folder, "École Ecole 織織", "[UNK] Ecole 織 織");
    put_text(folder, "tokenizer_config.json", "{\"do_lower_case\": false, \"strip_accents\": true}");
    assert_dir_encodes(folder, "École", "Ecole");
    put_text(folder, "tokenizer_config.json",
             "{\"strip_accents\": false, \"tokenize_chinese_chars\": false}");
    assert_dir_encodes(folder, "École 織織",
                       "\xC3\xA9"
                       "cole 織 ##織");
    put_text(folder, "tokenizer_config.json",
             "{\"strip_accents\": null, \"cls_token\": {\"content\": \"<c>\"}, \"unk_token\": \"<u>\"}");
    assert_dir_encodes(folder, "École x<c>", "ecole <u> <c>");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load(&tokenizer, folder->dir));
    const SpecialTokens special = tokenizer_special(tokenizer);
    assert_int_equal(special.cls, 10);
    assert_int_equal(special.unk, 11);
    assert_int_equal(special.sep, 3);
    assert_int_equal(special.end, -1);
}

/* Added tokens in the format of transformers 4. */
static void added_tokens_from_config(void **state) {
    Folder *folder = *state;
    put_text(folder, "vocab.txt", BASE "the\n");
    put_text(
        folder, "tokenizer_config.json",
        "{\"added_tokens_decoder\": {\"4\": {\"content\": \"[MASK]\", \"special\": true}, "
        "\"6\": {\"content\": \"[New]\", \"special\": true}}, \"additional_special_tokens\": [\"[New]\"]}");
    assert_dir_encodes(folder, "the[New] [new]", "the [New] [UNK] [UNK] [UNK]");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL, *again = NULL;
    assert_ok(tokenizer_load(&tokenizer, folder->dir));
    assert_int_equal(tokenizer_vocab(tokenizer), 7);
    const char *copy = folder_path(folder, "copy");
    assert_ok(tokenizer_save(tokenizer, copy));
    assert_ok(tokenizer_load(&again, copy));
    assert_true(tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(again));
    assert_encodes(again, "the[New] [new]", "the [New] [UNK] [UNK] [UNK]");
}

/* The older format: the tokens that the configuration names are special. */
static void added_tokens_in_old_format(void **state) {
    Folder *folder = *state;
    put_text(folder, "vocab.txt", BASE "the\n");
    put_text(folder, "added_tokens.json", "{\"[New]\": 7, \"Loom\": 6}");
    assert_dir_encodes(folder, "THE LOOM the[New] [new]", "the Loom the [New] [New]");
    put_text(folder, "tokenizer_config.json", "{\"additional_special_tokens\": [\"[New]\"]}");
    assert_dir_encodes(folder, "loom the[New] [new]", "Loom the [New] [UNK] [UNK] [UNK]");
}

static void both_line_endings(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *unix_lines = NULL, *dos_lines = NULL;
    put_text(*state, "a.txt", "[UNK]\nthe\n##m");
    put_text(*state, "b.txt", "[UNK]\r\nthe\r\n##m\r\n");
    assert_ok(tokenizer_load(&unix_lines, folder_path(*state, "a.txt")));
    assert_ok(tokenizer_load(&dos_lines, folder_path(*state, "b.txt")));
    assert_encodes(dos_lines, "them", "the ##m");
    assert_true(tokenizer_fingerprint(unix_lines) == tokenizer_fingerprint(dos_lines));
    const SpecialTokens special = tokenizer_special(dos_lines);
    assert_int_equal(special.unk, 0);
    assert_int_equal(special.mask, -1);
}

/* ---- errors ---- */

#define JSON_START                                                                                           \
    "{\"added_tokens\": [], \"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 1}"
#define BERT                                                                                                 \
    ", \"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}"

static const struct {
    const char *file, *text, *message;
} refused[] = {
    {"vocab.txt", "", "vocab.txt: the vocabulary is empty"},
    {"vocab.txt", "[UNK]\na\nb\na\n", "vocab.txt: line 4: duplicate token 'a', first on line 2"},
    {"vocab.txt", "[UNK]\na\n\nb\n", "vocab.txt: line 3 is empty"},
    {"vocab.txt", "[UNK]\na\n\n", "vocab.txt: line 3 is empty"},
    {"vocab.txt", "\r\n[UNK]\r\n", "vocab.txt: line 1 is empty"},
    {"vocab.txt", "a\nb\n", "vocab.txt: the vocabulary has no '[UNK]'"},
    {"vocab.txt",
     "[UNK]\na\xFF"
     "b\n",
     "vocab.txt: line 2 is not valid UTF-8"},
    {"vocab.txt", "[UNK]\n\xED\xA0\x80\n", "vocab.txt: line 2 is not valid UTF-8"},
    {"vocab.txt", "[UNK]\na\rb\n", "vocab.txt: line 2 contains a carriage return"},
    {"tokenizer_config.json", "[]", "tokenizer_config.json: expected a JSON object"},
    {"tokenizer_config.json", "{", "tokenizer_config.json: not valid JSON"},
    {"tokenizer_config.json", "{\"do_lower_case\": 1}", "'do_lower_case' must be"},
    {"tokenizer_config.json", "{\"do_basic_tokenize\": false}", "'do_basic_tokenize' is false"},
    {"tokenizer_config.json", "{\"never_split\": [\"a\"]}", "'never_split' is not supported"},
    {"tokenizer_config.json", "{\"cls_token\": 7}", "'cls_token' must be a token"},
    {"tokenizer_config.json", "{\"unk_token\": \"<u>\"}", "the vocabulary has no '<u>'"},
    {"tokenizer_config.json", "{\"additional_special_tokens\": [\"<x>\"]}", "'<x>' is not in the vocabulary"},
    {"tokenizer_config.json", "{\"additional_special_tokens\": {}}", "must be a list"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": []}", "must be an object"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"n\"}}}", "has id 'x'"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"content\": \"n\"}}}",
     "'a' and 'n' have the same id 1"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"0\": {\"content\": \"a\"}}}",
     "'a' has id 0, but its id in the vocabulary is 1"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"9\": {\"content\": \"n\"}}}", "has id 9"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"2\": {\"content\": \"\\u0301\"}}}",
     "is empty after normalization"},
    {"added_tokens.json", "[]", "added_tokens.json: expected a JSON object"},
    {"added_tokens.json", "{\"n\": \"2\"}", "added_tokens.json: the id of token 'n' must be an integer"},
    {"added_tokens.json", "{\"n\": 2, \"m\": 2}",
     "added_tokens.json: token 'm' has id 2, which another token already has"},
    {"added_tokens.json", "{\"n\": 5}", "added_tokens.json: token 'n' has id 5; expected 0 to 2"},
    {"added_tokens.json", "{\"n\": -1}", "added_tokens.json: an added token has id '-1'"},
    {"tokenizer.json", JSON_START "}, \"normalizer\": {\"type\": \"Magic\"}}",
     "'normalizer' of type Magic is not supported"},
    {"tokenizer.json",
     JSON_START "}, \"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": "
                "{\"type\": \"UnicodeScripts\"}}",
     "'pre_tokenizer' of type UnicodeScripts is not supported"},
    {"tokenizer.json", JSON_START "}" BERT ", \"decoder\": {\"type\": \"CTC\"}}",
     "'decoder' of type CTC is not supported"},
    {"tokenizer.json", JSON_START ", \"max_input_chars_per_word\": -1}" BERT "}",
     "'max_input_chars_per_word' is -1"},
    {"tokenizer.json", JSON_START ", \"unk_token\": \"<u>\"}}", "the vocabulary has no '<u>'"},
    {"tokenizer.json", JSON_START ", \"unk_token\": \"<u>\"}" BERT "}", "the vocabulary has no '<u>'"},
    {"tokenizer.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 2}}" BERT "}",
     "has id 2"},
    {"tokenizer.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": [\"[UNK]\"]}" BERT "}",
     "must be an object"},
    {"tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}", "'model.type' is 'Unigram'"},
};

static void refuses_the_rest(void **state) {
    Folder *folder = *state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_ok(dir_remove(folder->dir));
        assert_ok(dir_make(folder->dir));
        put_text(folder, "vocab.txt", "[UNK]\na\n");
        put_text(folder, refused[i].file, refused[i].text);
        Tokenizer *tokenizer = NULL;
        assert_fails(tokenizer_load(&tokenizer, folder->dir), 1, refused[i].message);
        assert_null(tokenizer);
    }
    put(folder, "nul.txt", "[UNK]\na\0b\n", 10);
    Tokenizer *tokenizer = NULL;
    assert_fails(tokenizer_load(&tokenizer, folder_path(folder, "nul.txt")), 1,
                 "nul.txt: line 2 contains a NUL byte");
}

/* ---- both file formats ---- */

static void saved_files_round_trip(void **state) {
    static const char *const names[] = {GOLDEN "wordpiece_uncased.txt", GOLDEN "wordpiece_cased.txt"};
    uint64_t marks[2];
    for (int i = 0; i < 2; i++) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL, *json = NULL, *lines = NULL;
        const char *copy = folder_path(*state, i ? "cased" : "uncased");
        assert_ok(tokenizer_load(&tokenizer, names[i]));
        assert_ok(tokenizer_save(tokenizer, copy));
        CLEANUP(mem_freep) char *path = NULL;
        assert_ok(path_join(&path, copy, "vocab.txt"));
        assert_ok(tokenizer_load(&json, copy));
        assert_ok(tokenizer_load(&lines, path));
        marks[i] = tokenizer_fingerprint(tokenizer);
        assert_true(tokenizer_fingerprint(json) == marks[i]);
        assert_true(tokenizer_fingerprint(lines) == marks[i]);
        assert_int_equal(tokenizer_special(json).mask, 4);
        assert_string_equal(tokenizer_kind_name(json), "wordpiece");
        assert_encodes(json, "The [MASK]", i ? "The [MASK]" : "the [MASK]");
    }
    assert_true(marks[0] != marks[1]);
}

static void fingerprints_cover_settings(void **state) {
    static const char *const configs[] = {"{}", "{\"do_lower_case\": false}", "{\"strip_accents\": false}",
                                          "{\"tokenize_chinese_chars\": false}", "{\"cls_token\": \"a\"}"};
    enum { CONFIGS = sizeof configs / sizeof configs[0] };
    uint64_t marks[CONFIGS];
    for (int i = 0; i < CONFIGS; i++) {
        put_text(*state, "vocab.txt", BASE "a\n");
        put_text(*state, "tokenizer_config.json", configs[i]);
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
        assert_ok(tokenizer_load(&tokenizer, ((Folder *)*state)->dir));
        marks[i] = tokenizer_fingerprint(tokenizer);
        for (int j = 0; j < i; j++) assert_true(marks[j] != marks[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(case_without_config),        TEST(settings_from_config),        TEST(added_tokens_from_config),
        TEST(added_tokens_in_old_format), TEST(both_line_endings),           TEST(refuses_the_rest),
        TEST(saved_files_round_trip),     TEST(fingerprints_cover_settings),
    };
    return cmocka_run_group_tests_name("tokenizer.bert_files", tests, NULL, NULL);
}
