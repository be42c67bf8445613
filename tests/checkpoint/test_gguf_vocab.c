/* The vocabulary of a GGUF file: tokenizers with the structure of published ones, and those that llama.cpp
 * does not have. tests/golden/check_gguf.py compares the tokens themselves with llama.cpp. */
#include "fixture.h"

#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_read.h"
#include "checkpoint/gguf_vocab.h"

enum { VOCAB = 300 };

#define REGEX(digits)                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* ---- tokenizer.json ---- */

static json_t *pack(const char *text) {
    json_t *json = NULL;
    assert_ok(json_parse(text, strlen(text), "test", &json));
    return json;
}

static json_t *special(int64_t id, const char *content) {
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", content,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

/* "<s> A", where the token's id is 257. */
static json_t *first_token(const char *name) {
    return json_pack("{s:s, s:[{s:{s:s,s:i}}, {s:{s:s,s:i}}], s:[{s:{s:s,s:i}}, {s:{s:s,s:i}}], "
                     "s:{s:{s:s, s:[i], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id", 0,
                     "Sequence", "id", "A", "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0,
                     "Sequence", "id", "B", "type_id", 1, "special_tokens", name, "id", name, "ids", 257,
                     "tokens", name);
}

static json_t *split(const char *regex) {
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type", "Sequence",
                     "pretokenizers", "type", "Split", "pattern", "Regex", regex, "behavior", "Isolated",
                     "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0, "use_regex",
                     0);
}

/* A byte-level BPE: 256 bytes, "ab" and two special tokens, which also are after each other. */
static json_t *byte_level(json_t *pre, bool ignore_merges) {
    CLEANUP(tokenizer_freep) Tokenizer *bytes = NULL;
    json_t *vocab = json_object();
    assert_ok(tokenizer_new_bytes(&bytes, false));
    for (int id = 0; id < 256; id++) {
        CLEANUP(mem_freep) char *text = NULL;
        assert_ok(tokenizer_spelling(bytes, id, &text));
        json_object_set_new(vocab, text, json_integer(id));
    }
    json_object_set_new(vocab, "ab", json_integer(256));
    json_t *model =
        json_pack("{s:s, s:n, s:b, s:b, s:o, s:[[s,s]]}", "type", "BPE", "unk_token", "ignore_merges",
                  ignore_merges, "byte_fallback", 0, "vocab", vocab, "merges", "a", "b");
    return json_pack("{s:s, s:[o,o], s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:o}", "version", "1.0",
                     "added_tokens", special(257, "<|first|>"), special(258, "<|end|>"), "normalizer",
                     "pre_tokenizer", pre, "post_processor", "decoder", "type", "ByteLevel",
                     "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1, "model", model);
}

/* SentencePiece's BPE: <unk>, bytes, special tokens, and the words "_ab" and "ab". */
static json_t *sentencepiece(const char *merges) {
    static const char *const words[] = {
        "a", "b", "\xE2\x96\x81", "\xE2\x96\x81\x61", "ab", "\xE2\x96\x81\x61\x62"};
    json_t *vocab = json_pack("{s:i, s:i, s:i}", "<unk>", 0, "<s>", 257, "</s>", 258);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        json_object_set_new(vocab, name, json_integer(byte + 1));
    }
    for (int i = 0; i < 6; i++) json_object_set_new(vocab, words[i], json_integer(259 + i));
    json_t *model = json_pack("{s:s, s:s, s:b, s:b, s:o, s:o}", "type", "BPE", "unk_token", "<unk>",
                              "fuse_unk", 1, "byte_fallback", 1, "vocab", vocab, "merges", pack(merges));
    json_t *normalizer =
        pack("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}");
    json_t *decoder =
        pack("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
             "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
             "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}");
    return json_pack("{s:s, s:[o,o,o], s:o, s:n, s:o, s:o, s:o}", "version", "1.0", "added_tokens",
                     special(0, "<unk>"), special(257, "<s>"), special(258, "</s>"), "normalizer", normalizer,
                     "pre_tokenizer", "post_processor", first_token("<s>"), "decoder", decoder, "model",
                     model);
}

#define MERGES                                                                                               \
    "[[\"\xE2\x96\x81\",\"a\"],[\"a\",\"b\"],[\"\xE2\x96\x81\x61\",\"b\"],[\"\xE2\x96\x81\",\"ab\"]]"

/* ---- the file's keys ---- */

static ModelConfig config_of(void) {
    ModelConfig config;
    assert_ok(config_preset("llama-1m", &config));
    config.vocab = VOCAB;
    config.bos_token = 257;
    config.eos_token = 258;
    return config;
}

/* Releases `json`. */
static void put_tokenizer(const Fixture *fixture, json_t *json) {
    assert_non_null(json);
    assert_int_equal(json_dump_file(json, path_of(fixture, "tokenizer.json"), JSON_COMPACT), 0);
    json_decref(json);
}

static Gguf *keys_of(const Fixture *fixture, const ModelConfig *config) {
    GgufMeta meta = {0};
    Gguf *g = calloc(1, sizeof *g);
    assert_ok(gguf_put_vocab(&meta, fixture->dir, config));
    g->map = (FileMap){(const unsigned char *)meta.data, meta.size};
    g->keys = meta.count;
    gguf_read_keys(g);
    return g;
}

static void keys_free(Gguf *g) {
    free((void *)(uintptr_t)g->map.data);
    free(g);
}

static void assert_refused(const Fixture *fixture, json_t *json, const char *why) {
    ModelConfig config = config_of();
    GgufMeta meta = {0};
    put_tokenizer(fixture, json);
    assert_fails(gguf_put_vocab(&meta, fixture->dir, &config), 1, why);
    gguf_meta_done(&meta);
}

static void llama_3(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    json_t *json = byte_level(split(REGEX("\\p{N}{1,3}")), true);
    json_object_set_new(json, "post_processor", first_token("<|first|>"));
    put_tokenizer(fixture, json);
    config.bos_token = -1;
    config.eos_more_count = 2;
    config.eos_more[0] = 255;
    config.eos_more[1] = 254;
    Gguf *g = keys_of(fixture, &config);
    assert_text(g, "tokenizer.ggml.model", "gpt2");
    assert_text(g, "tokenizer.ggml.pre", "llama-bpe");
    assert_bool(g, "tokenizer.ggml.add_bos_token", true);
    assert_bool(g, "tokenizer.ggml.add_eos_token", false);
    assert_number(g, "tokenizer.ggml.bos_token_id", 257);
    assert_number(g, "tokenizer.ggml.eos_token_id", 258);
    assert_number(g, "tokenizer.ggml.eom_token_id", 255);
    assert_number(g, "tokenizer.ggml.eot_token_id", 254);
    assert_token(g, 256, "ab", 1);
    assert_token(g, 258, "<|end|>", 3);
    assert_token(g, 299, "[PAD299]", 5);
    assert_int_equal(find_array(g, "tokenizer.ggml.merges", VALUE_TEXT), 1);
    assert_true(is(take_text(g), "a b"));
    assert_false(has_key(g, "tokenizer.chat_template"));
    assert_false(has_key(g, "tokenizer.ggml.padding_token_id"));
    keys_free(g);
}

static void qwen_and_smollm(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    json_t *json = byte_level(split(REGEX("\\p{N}")), false);
    json_object_set_new(json, "normalizer", pack("{\"type\":\"NFC\"}"));
    put_tokenizer(fixture, json);
    Gguf *g = keys_of(fixture, &config);
    assert_text(g, "tokenizer.ggml.pre", "qwen2");
    assert_bool(g, "tokenizer.ggml.add_bos_token", false);
    assert_number(g, "tokenizer.ggml.bos_token_id", 257);
    assert_false(has_key(g, "tokenizer.ggml.eot_token_id"));
    keys_free(g);
    /* Generation stops at the same tokens as in weft. */
    put_file(path_of(fixture, "generation_config.json"), "{\"eos_token_id\":[256,258,1000]}");
    g = keys_of(fixture, &config);
    assert_number(g, "tokenizer.ggml.eos_token_id", 256);
    assert_number(g, "tokenizer.ggml.eom_token_id", 258);
    assert_false(has_key(g, "tokenizer.ggml.eot_token_id"));
    keys_free(g);
    put_tokenizer(fixture,
                  byte_level(pack("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                                  "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                                  "false,\"trim_offsets\":true,\"use_regex\":true}]}"),
                             false));
    g = keys_of(fixture, &config);
    assert_text(g, "tokenizer.ggml.pre", "smollm");
    keys_free(g);
}

static void llama_2(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    static const float scores[] = {-5, -5, -5, -1, -2, -3};
    json_t *json = sentencepiece(MERGES);
    put_tokenizer(fixture, json_incref(json));
    Gguf *g = keys_of(fixture, &config);
    assert_text(g, "tokenizer.ggml.model", "llama");
    assert_token(g, 0, "<unk>", 2);
    assert_token(g, 11, "<0x0A>", 6);
    assert_token(g, 257, "<s>", 3);
    assert_token(g, 264, "\xE2\x96\x81\x61\x62", 1);
    assert_int_equal(find_array(g, "tokenizer.ggml.scores", VALUE_F32), VOCAB);
    take(g, 259 * sizeof(float));
    assert_memory_equal(take(g, sizeof scores), scores, sizeof scores);
    assert_bool(g, "tokenizer.ggml.add_space_prefix", true);
    assert_bool(g, "tokenizer.ggml.add_bos_token", true);
    assert_number(g, "tokenizer.ggml.unknown_token_id", 0);
    keys_free(g);
    /* Mistral's later ones have a Metaspace. */
    json_object_set_new(json, "normalizer", json_null());
    json_object_set_new(json, "pre_tokenizer",
                        pack("{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":"
                             "\"never\",\"split\":false}"));
    put_tokenizer(fixture, json);
    g = keys_of(fixture, &config);
    assert_bool(g, "tokenizer.ggml.add_space_prefix", false);
    keys_free(g);
}

static void chat_templates(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    static const char key[] = "tokenizer.chat_template";
    put_tokenizer(fixture, byte_level(split(REGEX("\\p{N}")), false));
    put_file(path_of(fixture, "tokenizer_config.json"), "{\"chat_template\":\"one\"}");
    Gguf *g = keys_of(fixture, &config);
    assert_text(g, key, "one");
    keys_free(g);
    put_file(path_of(fixture, "tokenizer_config.json"),
             "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},{\"name\":\"default\",\"template\":"
             "\"two\"}]}");
    g = keys_of(fixture, &config);
    assert_text(g, key, "two");
    keys_free(g);
    put_file(path_of(fixture, "chat_template.jinja"), "three\n");
    g = keys_of(fixture, &config);
    assert_text(g, key, "three\n");
    keys_free(g);
    GgufMeta meta = {0};
    put_file(path_of(fixture, "chat_template.jinja"), "\xff");
    assert_fails(gguf_put_vocab(&meta, fixture->dir, &config), 1,
                 "chat_template.jinja: expected text in UTF-8");
    gguf_meta_done(&meta);
    assert_int_equal(unlink(path_of(fixture, "chat_template.jinja")), 0);
    put_file(path_of(fixture, "tokenizer_config.json"), "{\"chat_template\":7}");
    assert_fails(gguf_put_vocab(&meta, fixture->dir, &config), 1, "'chat_template' must be a string or");
    gguf_meta_done(&meta);
}

/* ---- reading ---- */

/* A file with the keys of the fixture's tokenizer and no tensors. */
static const char *write_keys(const Fixture *fixture, const ModelConfig *config) {
    GgufMeta meta = {0}, file = {0};
    const char *path = path_of(fixture, "keys.gguf");
    assert_ok(gguf_put_vocab(&meta, fixture->dir, config));
    assert_ok(meta_bytes(&file, "GGUF", 4));
    assert_ok(meta_u32(&file, 3));
    assert_ok(meta_u64(&file, 0));
    assert_ok(meta_u64(&file, meta.count));
    assert_ok(meta_bytes(&file, meta.data, meta.size));
    assert_ok(file_replace(path, file.data, file.size));
    gguf_meta_done(&meta);
    gguf_meta_done(&file);
    return path;
}

static void assert_same_tokens(const Tokenizer *a, const Tokenizer *b) {
    static const char *const texts[] = {
        "ab",        "a b ab  abab\n",     "  ab",      "12345 ab's",
        "<s>ab</s>", "<|end|>ab<|first|>", "\303\244b", "\xE4\xB8\xAD ab \xF0\x9F\x98\x80",
        "a",         "The cats unaffable"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CLEANUP(encoder_freep) Encoder *one = NULL, *other = NULL;
        TokenList x = {0}, y = {0};
        assert_ok(encoder_new(&one, a, NULL));
        assert_ok(encoder_new(&other, b, NULL));
        assert_ok(encoder_add(one, texts[i], strlen(texts[i]), &x));
        assert_ok(encoder_add(other, texts[i], strlen(texts[i]), &y));
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.ids, y.ids, x.count * sizeof *x.ids);
        token_list_done(&x);
        token_list_done(&y);
    }
    const TokenTemplate *x = tokenizer_template(a, false), *y = tokenizer_template(b, false);
    assert_int_equal(x->count, y->count);
    for (size_t i = 0; i < x->count; i++) assert_int_equal(x->pieces[i].kind, y->pieces[i].kind);
}

/* The tokenizer of the file gives the ids of the one that it was made from. */
static void assert_restored(const Fixture *fixture, const ModelConfig *config) {
    CLEANUP(gguf_file_done) GgufFile file = {0};
    CLEANUP(tokenizer_freep) Tokenizer *original = NULL, *restored = NULL;
    const char *dir = path_of(fixture, "restored");
    assert_ok(gguf_file_open(&file, write_keys(fixture, config)));
    assert_ok(dir_make(dir));
    assert_ok(gguf_write_tokenizer(&file, dir));
    assert_ok(tokenizer_load(&original, fixture->dir));
    assert_ok(tokenizer_load(&restored, dir));
    assert_same_tokens(original, restored);
    assert_ok(dir_remove(dir));
}

static void restored(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    json_t *json = byte_level(split(REGEX("\\p{N}{1,3}")), true);
    json_object_set_new(json, "post_processor", first_token("<|first|>"));
    put_tokenizer(fixture, json);
    assert_restored(fixture, &config);
    put_tokenizer(fixture, byte_level(split(REGEX("\\p{N}")), false));
    assert_restored(fixture, &config);
    put_tokenizer(fixture, sentencepiece(MERGES));
    assert_restored(fixture, &config);
    assert_int_equal(unlink(path_of(fixture, "tokenizer.json")), 0);
    put_file(path_of(fixture, "vocab.txt"),
             "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\nthe\ncat\n##s\nun\n##aff\n##able\n");
    assert_ok(config_preset("bert-tiny", &config));
    config.vocab = 14;
    assert_restored(fixture, &config);
}

/* A pre-tokenizer that weft does not know: no tokenizer, rather than another one. */
static void not_restored(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(gguf_file_done) GgufFile file = {0};
    ModelConfig config = config_of();
    put_tokenizer(fixture, byte_level(split(REGEX("\\p{N}")), false));
    assert_ok(gguf_file_open(&file, write_keys(fixture, &config)));
    json_object_set_new(file.meta, "tokenizer.ggml.pre", json_string("tekken"));
    const char *dir = path_of(fixture, "restored");
    assert_ok(dir_make(dir));
    assert_ok(gguf_write_tokenizer(&file, dir));
    assert_true(dir_is_empty(dir));
}

static void refusals(void **state) {
    const Fixture *fixture = *state;
    assert_refused(fixture, byte_level(split("\\p{L}+|\\s+"), false), "its pre-tokenizer differs from");
    assert_refused(fixture, byte_level(split(REGEX("\\p{N}")), true), "'model.ignore_merges' is true");
    assert_refused(fixture, byte_level(split(REGEX("\\p{N}{1,3}")), false), "'model.ignore_merges' is false");
    json_t *json = byte_level(split(REGEX("\\p{N}")), false);
    json_object_set_new(json, "normalizer", pack("{\"type\":\"NFKC\"}"));
    assert_refused(fixture, json, "it normalizes text");
    json = byte_level(split(REGEX("\\p{N}")), false);
    json_object_set(json_array_get(json_object_get(json, "added_tokens"), 1), "lstrip", json_true());
    assert_refused(fixture, json, "'lstrip' of the added token '<|end|>' is true");
    assert_refused(fixture,
                   sentencepiece("[[\"\xE2\x96\x81\",\"a\"],[\"a\",\"b\"],[\"\xE2\x96\x81\x61\",\"b\"]]"),
                   "its merges lack pairs that form tokens");
    assert_refused(fixture,
                   sentencepiece("[[\"\xE2\x96\x81\",\"a\"],[\"\xE2\x96\x81\x61\",\"b\"],[\"a\",\"b\"],"
                                 "[\"\xE2\x96\x81\",\"ab\"]]"),
                   "not in the order of SentencePiece's");
    json = sentencepiece(MERGES);
    json_object_set_new(json, "pre_tokenizer",
                        pack("{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"split\":true}"));
    assert_refused(fixture, json, "its pre-tokenizer differs from");
    json = sentencepiece(MERGES);
    json_array_append_new(json_object_get(json_object_get(json, "post_processor"), "single"),
                          pack("{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"));
    json_array_append_new(json_object_get(json_object_get(json, "post_processor"), "single"),
                          pack("{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"));
    assert_refused(fixture, json, "puts several tokens before or after a text");
}

/* Only SentencePiece's own file: its tokens must not be left out silently. */
static void tokenizer_model(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config = config_of();
    GgufMeta meta = {0};
    put_file(path_of(fixture, "tokenizer.model"), "x");
    assert_fails(gguf_put_vocab(&meta, fixture->dir, &config), 1, "create tokenizer.json from it");
    gguf_meta_done(&meta);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(llama_3),        CASE(qwen_and_smollm), CASE(llama_2),
                                       CASE(chat_templates), CASE(refusals),        CASE(restored),
                                       CASE(not_restored),   CASE(tokenizer_model)};
    return cmocka_run_group_tests_name("checkpoint.gguf_vocab", tests, NULL, NULL);
}
