/* Invalid BPE tokenizer files: each kind of mistake is refused with a message that names the file, the
 * location and what was expected. */
#include "tokenizer/bpe.h"
#include "tokenizer/kit.h"

static const char *const words[] = {"he", "\xC4\xA0he", "<|endoftext|>", NULL};

/* Loads vocab.json from an object and merges.txt from text. */
static Status load_parts(json_t *vocab, const char *merges, size_t size) {
    CLEANUP(json_decrefp) json_t *owned = vocab;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    return bpe_from_text(&tokenizer, owned, "vocab.json", merges, size, "merges.txt");
}

static json_t *vocab_with(const char *token, json_t *id) {
    json_t *vocab = kit_vocab(words);
    if (token) json_object_set_new(vocab, token, id);
    return vocab;
}

static json_t *vocab_without(const char *token) {
    json_t *vocab = kit_vocab(words);
    json_object_del(vocab, token);
    return vocab;
}

static void vocabularies(void **state) {
    assert_ok(load_parts(kit_vocab(words), "h e\n", 4));
    assert_ok(load_parts(kit_vocab(NULL), "", 0));
    assert_fails(load_parts(json_object(), "", 0), 1, "vocab.json: the vocabulary is empty");
    assert_fails(load_parts(json_array(), "", 0), 1, "vocab.json: the vocabulary must be an object");
    assert_fails(load_parts(vocab_with("x1", json_integer(3)), "", 0), 1, "have the same id 3");
    assert_fails(load_parts(vocab_with("x1", json_integer(260)), "", 0), 1,
                 "vocab.json: token 'x1' has id 260; expected 0 to 259");
    assert_fails(load_parts(vocab_with("x1", json_integer(-1)), "", 0), 1, "has id -1");
    assert_fails(load_parts(vocab_with("x1", json_integer(INT64_MAX)), "", 0), 1,
                 "has id 9223372036854775807");
    assert_fails(load_parts(vocab_with("x1", json_integer((int64_t)1 << 32)), "", 0), 1, "has id 4294967296");
    assert_fails(load_parts(vocab_with("x1", json_real(1.5)), "", 0), 1,
                 "id of token 'x1' must be an integer");
    assert_fails(load_parts(vocab_with("x1", json_string("7")), "", 0), 1,
                 "id of token 'x1' must be an integer");
    assert_fails(load_parts(vocab_without("he"), "", 0), 1, "has id 258; expected 0 to 257");
    assert_fails(load_parts(vocab_with("\xC4\xA0", json_integer(259)), "", 0), 1,
                 "has id 259; expected 0 to 258");
}

/* Every byte needs a token, otherwise some text could not be encoded. */
static void bytes_without_a_token(void **state) {
    json_t *vocab = kit_vocab(words);
    json_object_del(vocab, "\xC4\xA0");
    json_object_set_new(vocab, "other", json_integer(' '));
    assert_fails(load_parts(vocab, "", 0), 1,
                 "vocab.json: the vocabulary has no token '\xC4\xA0' for byte 0x20");
    vocab = kit_vocab(words);
    json_object_del(vocab, "\xC3\xBF");
    json_object_set_new(vocab, "other", json_integer(255));
    assert_fails(load_parts(vocab, "", 0), 1, "for byte 0xFF; all 256 bytes are required");
}

#define MERGES(text) load_parts(kit_vocab(words), text, sizeof text - 1)

static void merges(void **state) {
    assert_ok(MERGES("#version: 0.2\nh e\n\xC4\xA0 he"));
    assert_ok(MERGES("h e\r\n\xC4\xA0 he\r\n"));
    assert_fails(MERGES("#version: 0.2\nh e\nhe l\n"), 1,
                 "merges.txt: line 3: 'hel' is not in the vocabulary");
    assert_fails(MERGES("h e\nq1 e\n"), 1, "merges.txt: line 2: 'q1' is not in the vocabulary");
    assert_fails(MERGES("h e1\n"), 1, "merges.txt: line 1: 'e1' is not in the vocabulary");
    assert_fails(MERGES("h e\nh e\n"), 1, "merges.txt: line 2: duplicate of merge 1");
    assert_fails(MERGES("h e\n\n\xC4\xA0 he\n"), 1, "merges.txt: line 2: expected two tokens");
    assert_fails(MERGES("h e x\n"), 1, "merges.txt: line 1: expected two tokens");
    assert_fails(MERGES("h  e\n"), 1, "merges.txt: line 1: expected two tokens");
    assert_fails(MERGES("he\n"), 1, "merges.txt: line 1: expected two tokens");
    assert_fails(MERGES(" he\n"), 1, "merges.txt: line 1: expected two tokens");
    assert_fails(MERGES("he \n"), 1, "merges.txt: line 1: expected two tokens");
    assert_fails(MERGES("h e\nh \0e\n"), 1, "merges.txt: line 2: contains a NUL byte");
    assert_fails(MERGES("\xFF \xFE\n"), 1, "merges.txt: line 1: '\xFF' is not in the vocabulary");
    assert_fails(MERGES("h e\n#version: 0.2\n"), 1, "merges.txt: line 2:");
}

/* Loads a complete tokenizer.json with one member changed: `path` is "a.b", `value` is JSON. */
static Status load_changed(const char *path, const char *value) {
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    CLEANUP(json_decrefp)
    json_t *json =
        json_pack("{s:[{s:i, s:s, s:b}], s:n, s:{s:s, s:b}, s:{s:s}, s:{s:s, s:O, s:[s, [s, s]]}}",
                  "added_tokens", "id", 258, "content", "<|endoftext|>", "special", 1, "normalizer",
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "decoder", "type", "ByteLevel",
                  "model", "type", "BPE", "vocab", vocab, "merges", "h e", "\xC4\xA0", "he");
    assert_non_null(json);
    const char *dot = strchr(path, '.');
    char first[32];
    snprintf(first, sizeof first, "%.*s", dot ? (int)(dot - path) : (int)strlen(path), path);
    json_t *changed = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(changed);
    json_object_set_new(dot ? json_object_get(json, first) : json, dot ? dot + 1 : first, changed);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    return tokenizer_load_bpe_json(&tokenizer, json, "tokenizer.json");
}

static void pipelines(void **state) {
    assert_ok(load_changed("version", "\"1.0\""));
    assert_ok(load_changed("truncation", "{\"max_length\": 5}"));
    assert_ok(load_changed("post_processor", "{\"type\": \"ByteLevel\"}"));
    assert_ok(load_changed("pre_tokenizer.use_regex", "false"));
    assert_ok(load_changed("normalizer", "{\"type\": \"Sequence\", \"normalizers\": []}"));
    assert_ok(load_changed("decoder", "null"));
    assert_ok(load_changed("normalizer", "{\"type\": \"NFC\"}"));
    assert_fails(load_changed("normalizer", "{\"type\": \"Precompiled\"}"), 1,
                 "tokenizer.json: 'normalizer' of type Precompiled is not supported; expected NFC");
    assert_ok(load_changed("pre_tokenizer", "null"));
    assert_ok(load_changed("decoder", "{\"type\": \"WordPiece\", \"prefix\": \"##\"}"));
    assert_fails(load_changed("pre_tokenizer", "{\"type\": \"UnicodeScripts\"}"), 1,
                 "'pre_tokenizer' of type UnicodeScripts is not supported; expected ByteLevel");
    assert_fails(load_changed("pre_tokenizer", "7"), 1, "'pre_tokenizer' of type (none)");
    assert_fails(load_changed("pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [null]}"), 1,
                 "'pre_tokenizer' of type (none)");
    assert_fails(load_changed("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [null]}"), 1,
                 "'normalizer' of type (none)");
    assert_fails(load_changed("pre_tokenizer.add_prefix_space", "1"), 1,
                 "'add_prefix_space' must be true or false");
    assert_fails(load_changed("decoder", "{\"type\": \"CTC\"}"), 1, "'decoder' of type CTC is not supported");
    assert_fails(load_changed("decoder", "{\"type\": \"WordPiece\"}"), 1,
                 "'prefix' of the decoder must be a string");
    assert_fails(load_changed("model.dropout", "0.1"), 1, "'model.dropout' is 0.1, which is not supported");
    assert_fails(load_changed("model.end_of_word_suffix", "\"</w>\""), 1,
                 "'model.end_of_word_suffix' is '</w>'");
    assert_fails(load_changed("model.continuing_subword_prefix", "\"##\""), 1,
                 "'model.continuing_subword_prefix'");
    assert_fails(load_changed("model.merges", "{}"), 1, "'model.merges' must be a list");
    assert_fails(load_changed("model.merges", "[[\"h\"]]"), 1, "merge 1: expected \"left right\" or");
    assert_fails(load_changed("model.merges", "[\"h e\", 3]"), 1, "merge 2: expected \"left right\" or");
    assert_fails(load_changed("model.merges", "[[\"h e\", \"x\"]]"), 1,
                 "merge 1: the token contains a space");
    assert_fails(load_changed("model.merges", "[\"h x\"]"), 1, "merge 1: 'hx' is not in the vocabulary");
    assert_fails(load_changed("model.vocab", "[]"), 1, "the vocabulary must be an object");
}

static void added_tokens(void **state) {
    assert_ok(load_changed("added_tokens", "[]"));
    assert_ok(load_changed("added_tokens", "null"));
    assert_ok(load_changed("added_tokens", "[{\"id\": 259, \"content\": \"<pad>\"}]"));
    assert_fails(load_changed("added_tokens", "{}"), 1, "'added_tokens' must be a list");
    assert_fails(load_changed("added_tokens", "[7]"), 1, "entry 1 of 'added_tokens' has no 'content'");
    assert_fails(load_changed("added_tokens", "[{\"content\": \"x1\"}]"), 1,
                 "entry 1 of 'added_tokens' has no 'id'");
    assert_fails(load_changed("added_tokens", "[{\"id\": 261, \"content\": \"x1\"}]"), 1,
                 "token 'x1' has id 261; expected 0 to 259");
    assert_fails(load_changed("added_tokens", "[{\"id\": 99999999999, \"content\": \"x1\"}]"), 1,
                 "'id' is 99999999999");
    assert_fails(load_changed("added_tokens", "[{\"id\": 3, \"content\": \"<|endoftext|>\"}]"), 1,
                 "added token '<|endoftext|>' has id 3, but its id in the vocabulary is 258");
    assert_fails(load_changed("added_tokens", "[{\"id\": 259, \"content\": \"\"}]"), 1, "id 259 is empty");
    assert_fails(load_changed("added_tokens", "[{\"id\": 258, \"content\": \"<|endoftext|>\"},"
                                              " {\"id\": 258, \"content\": \"<|endoftext|>\"}]"),
                 1, "'<|endoftext|>' is added twice");
    assert_fails(
        load_changed("added_tokens", "[{\"id\": 258, \"content\": \"<|endoftext|>\", \"lstrip\": 3}]"), 1,
        "'lstrip' must be true or false");
    assert_fails(load_changed("added_tokens", "[{\"id\": 257, \"content\": \"\xC4\xA0he\"}]"), 1,
                 "is also the result of a merge");
}

/* ---- on disk ---- */

static void put(const char *dir, const char *name, const char *text, size_t size) {
    CLEANUP(mem_freep) char *path = NULL;
    assert_ok(path_join(&path, dir, name));
    assert_ok(file_replace(path, text, size));
}

/* Tokens that other files add to vocab.json. */
static void added_tokens_in_other_files(void **state) {
    static const char config[] = "{\"added_tokens_decoder\": {\"%d\": {\"content\": \"new one\", "
                                 "\"special\": true, \"rstrip\": true}}}";
    char dir[] = "/tmp/weft-bpe-XXXXXX", text[256];
    assert_non_null(mkdtemp(dir));
    CLEANUP(json_decrefp) json_t *json = kit_vocab(words);
    CLEANUP(mem_freep) char *vocab = json_dumps(json, 0);
    CLEANUP(tokenizer_freep) Tokenizer *old = NULL, *listed = NULL;
    int id = (int)json_object_size(json);
    put(dir, "vocab.json", vocab, strlen(vocab));
    put(dir, "merges.txt", "h e\n", 4);
    int size = snprintf(text, sizeof text, "{\"new one\": %d}", id);
    put(dir, "added_tokens.json", text, (size_t)size);
    assert_ok(tokenizer_load(&old, dir));
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(encoder_new(&encoder, old, NULL));
    assert_ok(encoder_add(encoder, "new one new  one", 16, &list));
    assert_int_equal(list.ids[0], id);
    assert_int_equal(list.count, 10);

    size = snprintf(text, sizeof text, config, id);
    put(dir, "tokenizer_config.json", text, (size_t)size);
    assert_ok(tokenizer_load(&listed, dir));
    assert_int_equal(tokenizer_vocab(listed), id + 1);
    assert_true(tokenizer_fingerprint(listed) != tokenizer_fingerprint(old));

    Tokenizer *none = NULL;
    size = snprintf(text, sizeof text, config, id + 1);
    put(dir, "tokenizer_config.json", text, (size_t)size);
    assert_fails(tokenizer_load(&none, dir), 1, "tokenizer_config.json: token 'new one' has id");
    put(dir, "tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {}}}", 35);
    assert_fails(tokenizer_load(&none, dir), 1, "an added token has id 'x'");
    put(dir, "tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": 5}}", 34);
    assert_fails(tokenizer_load(&none, dir), 1, "entry 1 of 'added_tokens' has no 'content'");
    put(dir, "tokenizer_config.json", "[]", 2);
    assert_fails(tokenizer_load(&none, dir), 1, "tokenizer_config.json: expected a JSON object");
    assert_ok(dir_remove(dir));
}

static void directories(void **state) {
    char dir[] = "/tmp/weft-bpe-XXXXXX";
    assert_non_null(mkdtemp(dir));
    CLEANUP(json_decrefp) json_t *json = kit_vocab(words);
    CLEANUP(mem_freep) char *vocab = json_dumps(json, 0);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    put(dir, "vocab.json", vocab, strlen(vocab));
    assert_fails(tokenizer_load(&tokenizer, dir), 1, "merges.txt: cannot open");
    put(dir, "merges.txt", "h e\n", 4);
    put(dir, "tokenizer_config.json", "{\"add_prefix_space\": true}", 26);
    assert_ok(tokenizer_load(&tokenizer, dir));
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(encoder_add(encoder, "he", 2, &list));
    assert_int_equal(list.ids[0], ' ');
    Tokenizer *none = NULL;
    put(dir, "vocab.json", "{\"a\": 0, \"a\": 1}", 16);
    assert_fails(tokenizer_load(&none, dir), 1, "duplicate object key");
    put(dir, "vocab.json", "{\"a\\u0000b\": 0}", 15);
    assert_fails(tokenizer_load(&none, dir), 1, "vocab.json: not valid JSON at line 1");
    put(dir, "vocab.json", "{\"a\": 0", 7);
    assert_fails(tokenizer_load(&none, dir), 1, "vocab.json: not valid JSON");
    put(dir, "vocab.json", "[1]", 3);
    assert_fails(tokenizer_load(&none, dir), 1, "vocab.json: expected a JSON object");
    put(dir, "tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}", 30);
    assert_fails(tokenizer_load(&none, dir), 1,
                 "'model.type' is 'Unigram'; expected BPE, WordPiece or WordLevel");
    put(dir, "tokenizer.json", "{}", 2);
    assert_fails(tokenizer_load(&none, dir), 1, "tokenizer.json: 'model' must be an object");
    assert_ok(dir_remove(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocabularies), cmocka_unit_test(bytes_without_a_token),
        cmocka_unit_test(merges),       cmocka_unit_test(pipelines),
        cmocka_unit_test(added_tokens), cmocka_unit_test(added_tokens_in_other_files),
        cmocka_unit_test(directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
