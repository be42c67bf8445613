/* BPE tokenizers with the pipelines of Llama, Mistral, Qwen, SmolLM and others, against what Hugging Face's
 * tokenizers makes of the same texts (golden/make_pipelines.py); the patterns, components and files that are
 * refused. */
#include "tokenizer/blocks.h"
#include "tokenizer/bpe.h"
#include "tokenizer/kit.h"
#include "tokenizer/regex_pcre.h"

static json_t *golden;

static int setup(void **state) {
    golden = json_load_file(KIT_GOLDEN "/pipelines.json", JSON_ALLOW_NUL, NULL);
    return !golden;
}

static int teardown(void **state) {
    json_decref(golden);
    return 0;
}

/* tokenizer.json of a golden tokenizer; the caller releases it. */
static json_t *json_of(const json_t *kind) {
    json_t *json = json_deep_copy(json_object_get(kind, "json"));
    const char *base = json_string_value(json_object_get(kind, "base"));
    json_object_update(json_object_get(json, "model"),
                       json_object_get(json_object_get(golden, "models"), base));
    return json;
}

static const json_t *find_kind(const char *name) {
    size_t i;
    json_t *kind;
    json_array_foreach(json_object_get(golden, "kinds"), i, kind) {
        if (!strcmp(json_string_value(json_object_get(kind, "name")), name)) return kind;
    }
    fail_msg("no tokenizer '%s'", name);
    return NULL;
}

static Tokenizer *load_kind(const json_t *kind) {
    CLEANUP(json_decrefp) json_t *json = json_of(kind);
    Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load_bpe_json(&tokenizer, json, "tokenizer.json"));
    return tokenizer;
}

static void put_number(Bytes *bytes, size_t number) {
    char four[4] = {(char)number, (char)(number >> 8), (char)(number >> 16), (char)(number >> 24)};
    assert_ok(bytes_add(bytes, four, 4));
}

static uint32_t checksum(const Bytes *bytes) {
    return (uint32_t)crc32(0, (const unsigned char *)(bytes->size ? bytes->data : ""), (unsigned)bytes->size);
}

static bool continues_char(const char *text, size_t size, size_t at) {
    return at > 0 && at < size && ((unsigned char)text[at] & 0xC0) == 0x80;
}

static uint32_t checksum_ids(const TokenList *list) {
    CLEANUP(bytes_done) Bytes bytes = {0};
    for (size_t i = 0; i < list->count; i++) put_number(&bytes, (size_t)list->ids[i]);
    return checksum(&bytes);
}

static uint32_t checksum_places(const TokenList *list, const char *text, size_t size) {
    CLEANUP(bytes_done) Bytes bytes = {0};
    for (size_t i = 0; i < list->count; i++) {
        TokenOffset offset = list->offsets[i];
        while (continues_char(text, size, offset.start)) offset.start--;
        while (continues_char(text, size, offset.end)) offset.end++;
        put_number(&bytes, offset.start);
        put_number(&bytes, offset.end);
    }
    return checksum(&bytes);
}

/* Decoded at once, and token by token. */
static uint32_t checksum_decoded(const Tokenizer *tokenizer, const TokenList *list) {
    CLEANUP(mem_freep) char *text = NULL, *valid = NULL;
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    CLEANUP(bytes_done) Bytes streamed = {0};
    size_t size, valid_size, piece_size;
    const char *piece;
    assert_ok(tokenizer_decode(tokenizer, list->ids, list->count, false, &text, &size));
    assert_ok(text_to_utf8(text, size, &valid, &valid_size));
    assert_ok(decoder_new(&decoder, tokenizer, false));
    for (size_t i = 0; i < list->count; i++) {
        assert_ok(decoder_push(decoder, list->ids[i], &piece, &piece_size));
        assert_ok(bytes_add(&streamed, piece, piece_size));
    }
    assert_ok(decoder_end(decoder, &piece, &piece_size));
    assert_ok(bytes_add(&streamed, piece, piece_size));
    assert_int_equal(streamed.size, valid_size);
    if (valid_size) assert_memory_equal(streamed.data, valid, valid_size);
    return checksum(&streamed);
}

static void check_text(const Tokenizer *tokenizer, Encoder *encoder, const char *name, const json_t *text,
                       const char *expected) {
    enum { SHORT = 40 }; /* longer texts are cut at fewer places */
    CLEANUP(token_list_done) TokenList list = {0};
    const char *data = json_string_value(text);
    size_t size = json_string_length(text);
    char found[25];
    assert_ok(encoder_add(encoder, data, size, &list));
    snprintf(found, sizeof found, "%08x%08x%08x", checksum_ids(&list), checksum_places(&list, data, size),
             checksum_decoded(tokenizer, &list));
    if (strncmp(found, expected, 8) != 0) fail_msg("%s: the ids of '%s' differ", name, data);
    if (expected[8] != '-' && strncmp(found + 8, expected + 8, 8) != 0)
        fail_msg("%s: the offsets of '%s' differ", name, data);
    if (strcmp(found + 16, expected + 16) != 0) fail_msg("%s: the decoded text of '%s' differs", name, data);
    if (size <= SHORT) assert_cuts(encoder, data, size, &list);
}

static void matches_tokenizers(void **state) {
    size_t i, j;
    json_t *kind, *text;
    json_array_foreach(json_object_get(golden, "kinds"), i, kind) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = load_kind(kind);
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        const json_t *results = json_object_get(kind, "results");
        assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = true}));
        json_array_foreach(json_object_get(golden, "texts"), j, text) {
            check_text(tokenizer, encoder, json_string_value(json_object_get(kind, "name")), text,
                       json_string_value(json_array_get(results, j)));
        }
    }
}

/* A text with each character of a block in place of each % of the pattern. */
static void fill_block(Bytes *text, const char *pattern, uint32_t first) {
    text->size = 0;
    for (uint32_t c = first; c < first + 4096; c++) {
        char bytes[4];
        size_t size = utf8_put(c, bytes);
        if (c >= 0xD800 && c < 0xE000) continue;
        for (const char *at = pattern; *at; at++)
            assert_ok(*at == '%' ? bytes_add(text, bytes, size) : bytes_add(text, at, 1));
    }
}

static void every_character(void **state) {
    CLEANUP(bytes_done) Bytes text = {0};
    size_t i;
    json_t *kind;
    json_array_foreach(json_object_get(golden, "kinds"), i, kind) {
        const char *blocks = json_string_value(json_object_get(kind, "blocks"));
        if (!blocks) continue;
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = load_kind(kind);
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        assert_ok(encoder_new(&encoder, tokenizer, NULL));
        for (uint32_t block = 0; block < 0x110000 / 4096; block++) {
            if (!is_tested_block(block * 4096)) continue;
            CLEANUP(token_list_done) TokenList list = {0};
            char found[9];
            fill_block(&text, json_string_value(json_object_get(golden, "pattern")), block * 4096);
            assert_ok(encoder_add(encoder, text.data, text.size, &list));
            snprintf(found, sizeof found, "%08x", checksum_ids(&list));
            if (strncmp(found, blocks + 8 * block, 8) != 0)
                fail_msg("%s: characters from U+%04X on differ",
                         json_string_value(json_object_get(kind, "name")), block * 4096);
        }
    }
}

/* Bytes that are not UTF-8 survive where every byte has a token. */
static void restores_any_bytes(void **state) {
    static const char *const names[] = {"llama3", "qwen2", "smollm", "o200k", "llama2", "mistral"};
    enum { RESTORED = 4 }; /* ByteFallback replaces bytes that are not UTF-8 */
    static const char text[] = "a\xFF\xC3\x28 caf\xC3\xA9 \xE2\x82 x\xF0\x9F\x98\x80\xED\xA0\x80'\x80";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = load_kind(find_kind(names[i]));
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = true}));
        assert_ok(encoder_add(encoder, text, sizeof text - 1, &list));
        if (i < RESTORED) assert_decodes(tokenizer, &list, text, sizeof text - 1);
        assert_cuts(encoder, text, sizeof text - 1, &list);
        for (size_t j = 0; j < list.count; j++)
            assert_true(list.offsets[j].start <= list.offsets[j].end && list.offsets[j].end < sizeof text);
    }
}

/* Words and runs of marks as long as a text: time must not grow with the square. */
static void long_runs(void **state) {
    static const char *const names[] = {"llama2 across words", "mistral", "qwen2", "o200k", "nfd"};
    static const char *const runs[] = {"a", " ", "\xCC\x95\xCC\x96", "\xE7\xBB\x87", "\n", "A"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = load_kind(find_kind(names[i]));
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        assert_ok(encoder_new(&encoder, tokenizer, NULL));
        for (size_t j = 0; j < sizeof runs / sizeof *runs; j++) {
            CLEANUP(bytes_done) Bytes text = {0};
            CLEANUP(token_list_done) TokenList list = {0};
            while (text.size < 200000) assert_ok(bytes_add(&text, runs[j], strlen(runs[j])));
            assert_ok(encoder_add(encoder, text.data, text.size, &list));
            assert_true(list.count > 0);
        }
    }
}

/* Without a token for unknown characters, those around one meet, and may merge. */
static void unknown_characters(void **state) {
    CLEANUP(json_decrefp)
    json_t *json = json_loads("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"_\": 0, \"a\": 1, \"__\": 2}, "
                              "\"merges\": [\"_ _\"]}, \"pre_tokenizer\": {\"type\": \"Metaspace\", "
                              "\"replacement\": \"_\", \"prepend_scheme\": \"never\", \"split\": false}}",
                              0, NULL);
    CLEANUP(json_decrefp) json_t *ids = json_pack("[i, i, i, i, i]", 1, 2, 1, 0, 1);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    const char text[] = "a x a a";
    assert_ok(tokenizer_load_bpe_json(&tokenizer, json, "tokenizer.json"));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(encoder_add(encoder, text, strlen(text), &list));
    assert_ids(&list, ids, text);
    assert_cuts(encoder, text, strlen(text), &list);
}

/* Written and read again, a tokenizer is the same. */
static void saves(void **state) {
    size_t i;
    json_t *kind;
    char dir[] = "/tmp/weft-pipelines-XXXXXX";
    assert_non_null(mkdtemp(dir));
    json_array_foreach(json_object_get(golden, "kinds"), i, kind) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = load_kind(kind), *again = NULL;
        assert_ok(tokenizer_save(tokenizer, dir));
        assert_ok(tokenizer_load(&again, dir));
        assert_true(tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(again));
        assert_int_equal(tokenizer_special(tokenizer).end, tokenizer_special(again).end);
        assert_true(tokenizer_special(tokenizer).end >= 0);
        assert_false(tokenizer_is_plain(again));
    }
    assert_ok(dir_remove(dir));
}

/* vocab.json and merges.txt of a Qwen2Tokenizer have the pipeline that transformers gives them. */
static void qwen2_files(void **state) {
    static const char *const words[] = {"12", "<|endoftext|>", NULL};
    static const char config[] = "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", text[] = "12e\xCC\x81";
    char dir[] = "/tmp/weft-pipelines-XXXXXX";
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    CLEANUP(mem_freep) char *spelled = json_dumps(vocab, 0);
    const char *const files[][2] = {
        {"vocab.json", spelled}, {"merges.txt", "1 2\n"}, {"tokenizer_config.json", config}};
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        CLEANUP(mem_freep) char *path = NULL;
        assert_ok(path_join(&path, dir, files[i][0]));
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(files[i][1], file);
        fclose(file);
    }
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(tokenizer_load(&tokenizer, dir));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(encoder_add(encoder, text, strlen(text), &list));
    static const int32_t expected[] = {'1', '2', 0xC3, 0xA9}; /* single digits, and NFC */
    assert_int_equal(list.count, 4);
    assert_memory_equal(list.ids, expected, sizeof expected);
    assert_ok(dir_remove(dir));
}

static void sentencepiece_model(void **state) {
    char dir[] = "/tmp/weft-pipelines-XXXXXX";
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_non_null(mkdtemp(dir));
    assert_ok(path_join(&path, dir, "tokenizer.model"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_fails(tokenizer_load(&tokenizer, dir), 1,
                 "tokenizer.model: SentencePiece models are not supported; create");
    assert_fails(tokenizer_load(&tokenizer, path), 1,
                 "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)");
    assert_ok(dir_remove(dir));
}

/* ---- what is refused ---- */

static Status load_pattern(const char *pattern) {
    CLEANUP(regex_freep) Regex *regex = NULL;
    return regex_new(&regex, pattern, strlen(pattern), "tokenizer.json");
}

static void patterns(void **state) {
    static const struct {
        const char *pattern, *message;
    } refused[] = {
        {"(?<x-1>a)", "has the group '(?<x' at offset 0, which is not supported"},
        {"(?~ab)", "the group '(?~a'"},
        {"(?x)a", "the group '(?x)'"},
        {"(*FAIL)", "the group '(*'"},
        {"(?#a", "an unfinished comment '(?#'"},
        {"(a", "an unfinished group '('"},
        {"a)", "an unmatched ')'"},
        {"[a", "an unfinished class '['"},
        {"[]", "an empty class '[]'"},
        {"[z-a]", "the range 'z-a'"},
        {"[[:alphas:]]", "the POSIX class '[:alphas:]'"},
        {"[[:alpha]]", "the POSIX class '[:al"},
        {"\\p{Foo}", "the property '\\p{Foo}'"},
        {"\\p{L", "a property without {...}: '\\p'"},
        {"\\Gx", "the escape '\\G' at offset 0"},
        {"(a)\\1", "the escape '\\1' at offset 3"},
        {"[\\b]", "the escape '\\b' at offset 1"},
        {"+", "nothing to repeat before '+'"},
        {"a+*", "the quantifier '+*'"},
        {"a{2}?", "the quantifier '{2}?'"},
        {"a{2000}", "the quantifier '{2000}'"},
        {"(?=a)+", "after something that can be empty the quantifier '+'"},
        {"(?:^|\\s?)*", "after something that can be empty the quantifier '*'"},
        {"a*{2}", "the quantifier '*{'"},
        {"(?i:\xC3\xA9)", "ignored case for '\xC3\xA9'"},
        {"(?i:ss)", "ignored case for a pair that ends in 's'"},
        {"(?i:\\p{L})", "ignored case for the class '\\p{L}'"},
        {"a\\", "an unfinished escape '\\'"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_fails(load_pattern(refused[i].pattern), 1, refused[i].message);
    const char *lookbehind = regex_pcre_exists() ? "PCRE2 says: lookbehind assertion is not fixed length"
                                                 : "needs a build of weft with PCRE2: install libpcre2-dev";
    assert_fails(load_pattern("(?<=a+)b"), 1, lookbehind);
    assert_ok(load_pattern("(ab|c){2,}x{,2}[^\\x{3000}-\\u3001\\t&&[^b]]"));
}

/* What the expression finds in a text: its matches, separated by bars. */
static void assert_finds(const char *pattern, const char *text, const char *expected) {
    CLEANUP(regex_freep) Regex *regex = NULL;
    CLEANUP(regex_scratch_done) RegexScratch scratch = {0};
    char found[200] = "";
    size_t size = strlen(text), start, end;
    assert_ok(regex_new(&regex, pattern, strlen(pattern), "test"));
    for (size_t at = 0; at < size; at = end) {
        assert_ok(regex_find(regex, &scratch, text, size, at, &start, &end));
        snprintf(found + strlen(found), sizeof found - strlen(found), "%.*s%s", (int)(end - start),
                 text + start, start < size ? "|" : "");
        if (start == end) end++;
    }
    assert_string_equal(found, expected);
}

static void matching(void **state) {
    assert_finds("a|ab", "abab", "a|a|");
    assert_finds("(?:ab|a)(?:c|bc)", "abc abbc", "abc|abbc|");
    assert_finds("\\d{2,3}", "1 12 1234567", "12|123|456|");
    assert_finds("(?:ab){2}", "ababab abab", "abab|abab|");
    assert_finds("(?:ab){1,2}c?", "ababc ab", "ababc|ab|");
    assert_finds("x(?=y)", "xyxzxy", "x|x|");
    assert_finds("\\s+(?!\\S)", "a   b ", "  | |");
    assert_finds("[ab]*+b", "aab", "");
    assert_finds("[ab]*b", "aab", "aab|");
    assert_finds("\\s+$", "a \nb  ", " |  |");
    assert_finds("(?i:'s|'K)", "'S'\xC5\xBF'\xE2\x84\xAA'x", "'S|'\xC5\xBF|'\xE2\x84\xAA|");
    assert_finds("[^\\S\\n]+", "a \t\n b", " \t| |");
    assert_finds("[\\w&&[^\\d_]]+", "ab1_c", "ab|c|");
    assert_finds("\\p{Lu}\\P{Lu}", "aBc", "Bc|");
    assert_finds(".", "a\n\xFF", "a|\xFF|");
    assert_finds("a{x}", "a{x}", "a{x}|");
    assert_finds("[[:upper:][:digit:]_]+[[:^alpha:]]", "AB1_ ab", "AB1_ |");
    assert_finds("\\w[\\w]",
                 "\xC2\xBD"
                 "a a\xC2\xBD",
                 "\xC2\xBD"
                 "a|"); /* one half is in \w, but not in [\w] */
}

/* Patterns that PCRE2 matches, with what Oniguruma finds. */
static void matching_by_pcre2(void **state) {
    if (!regex_pcre_exists()) {
        assert_fails(load_pattern("(?<=a)b"), 1, "the pattern '(?<=a)b' needs a build of weft with PCRE2");
        skip();
    }
    assert_finds("(?<=a|bc)x", "axbcxx", "x|x|");
    assert_finds("(?<!a)b", "abb", "b|");
    assert_finds("^a", "aa\na\n", "a|a|");
    assert_finds("\\Aa|a\\z", "aa\na", "a|a|");
    assert_finds("\\bfoo\\b",
                 "foo foobar\xC2\xBD"
                 "foo foo",
                 "foo|foo|"); /* one half is part of a word */
    assert_finds("\\Bo", "foo", "o|o|");
    assert_finds("a*?b", "aab", "aab|");
    assert_finds("a+?", "aa", "a|a|");
    assert_finds("a{1,2}+b", "aaaab", "aaaab|");
    assert_finds("(?:\\s?a)+", "a aa b", "a aa|");
    assert_finds("(?:a+)+b", "aab", "aab|");
    assert_finds("(?=[A-Z])", "aBcD", "||");
    assert_finds("a(?i)b|c", "aB C aC", "aB|aC|");
    assert_finds("(?m:.+)x", "a\nx", "a\nx|");
    assert_finds("(?>a|ab)c", "abc ac", "ac|");
    assert_finds("(?>b-|\\P{L}+?)c", "--c", "-c|");
    assert_finds("(?<name>a)(?#note)b", "ab", "ab|");
    assert_finds("\\Rb?", "\r\nb", "\r\nb|");
    assert_finds("^[^a]",
                 "\xFF"
                 "b",
                 ""); /* PCRE2 matches no byte that is not UTF-8 */
}

/* Matching stops rather than taking forever. */
static void step_limit(void **state) {
    CLEANUP(regex_freep) Regex *regex = NULL;
    CLEANUP(regex_scratch_done) RegexScratch scratch = {0};
    char text[3000];
    size_t start, end;
    memset(text, 'a', sizeof text);
    assert_ok(regex_new(&regex, "a*a*a*a*b", 9, "test"));
    assert_fails(regex_find(regex, &scratch, text, sizeof text, 0, &start, &end), 1,
                 "takes more than 10000000 steps");
    if (!regex_pcre_exists()) return;
    CLEANUP(regex_freep) Regex *nested = NULL;
    assert_ok(regex_new(&nested, "(?:a+)+[^a]", 11, "test"));
    assert_fails(regex_find(nested, &scratch, text, sizeof text, 0, &start, &end), 1,
                 "takes more than 1000000 steps");
}

static Status load_changed(const char *name, const char *key, const char *value) {
    CLEANUP(json_decrefp) json_t *json = json_of(find_kind(name));
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    json_t *changed = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(changed);
    bool model = !strncmp(key, "model.", 6);
    json_object_set_new(model ? json_object_get(json, "model") : json, model ? key + 6 : key, changed);
    return tokenizer_load_bpe_json(&tokenizer, json, "tokenizer.json");
}

static void components(void **state) {
    const struct {
        const char *key, *value, *message;
    } refused[] = {
        {"normalizer", "{\"type\": \"Precompiled\"}", "'normalizer' of type Precompiled is not supported"},
        {"normalizer", "{\"type\": \"Prepend\"}", "'normalizer' of type Prepend has no 'prepend'"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}",
         "replaces the empty string"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", "must be one character"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}",
         "'prepend_scheme' of the pre-tokenizer is not supported"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a|\"}, \"content\": \"\"}",
         regex_pcre_exists() ? "can match the empty string" : "needs a build of weft with PCRE2"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Odd\"}",
         "'behavior' of the pre-tokenizer is not supported"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {}}",
         "the pattern of a pre-tokenizer of type Split"},
        {"decoder", "{\"type\": \"CTC\"}", "'decoder' of type CTC is not supported"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"ByteFallback\"}]}",
         "'decoder' has a ByteFallback after Fuse or ByteLevel"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": "
         "\" \", "
         "\"start\": 0, \"stop\": 1}]}",
         "removes text at the end"},
        {"model.unk_token", "\"<other>\"", "'model.unk_token' is '<other>', which is not in the vocabulary"},
        {"model.byte_fallback", "1", "'byte_fallback' must be true or false"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_fails(load_changed("llama2", refused[i].key, refused[i].value), 1, refused[i].message);
    assert_ok(load_changed("llama2", "decoder", "null"));
    assert_ok(load_changed("llama2", "decoder", "{\"type\": \"ByteLevel\"}"));
    assert_ok(load_changed("llama2", "model.unk_token", "null"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_tokenizers),
        cmocka_unit_test(every_character),
        cmocka_unit_test(restores_any_bytes),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(unknown_characters),
        cmocka_unit_test(saves),
        cmocka_unit_test(sentencepiece_model),
        cmocka_unit_test(patterns),
        cmocka_unit_test(matching),
        cmocka_unit_test(matching_by_pcre2),
        cmocka_unit_test(step_limit),
        cmocka_unit_test(components),
        cmocka_unit_test(qwen2_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
