/* BPE gives the same ids and offsets as Hugging Face (golden/make_bpe.py), and any bytes survive encoding and
 * decoding. */
#include "tokenizer/blocks.h"
#include "tokenizer/bpe.h"
#include "tokenizer/kit.h"

static Tokenizer *load_golden(bool prefix) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    Tokenizer *tokenizer = NULL;
    assert_ok(json_read_file(KIT_GOLDEN "/bpe.json", &json));
    json_object_set_new(json_object_get(json, "pre_tokenizer"), "add_prefix_space", json_boolean(prefix));
    assert_ok(tokenizer_load_bpe_json(&tokenizer, json, "bpe.json"));
    return tokenizer;
}

/* Calls `check` with every test case. Text may contain NUL, which json_parse refuses. */
static void each_case(void (*check)(const json_t *line, void *context), void *context) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size, lines = 0;
    assert_ok(file_read(KIT_GOLDEN "/bpe_cases.jsonl", 1 << 20, &text, &size));
    for (char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1, lines++) {
        CLEANUP(json_decrefp) json_t *json = json_loadb(line, (size_t)(stop - line), JSON_ALLOW_NUL, NULL);
        assert_non_null(json);
        check(json, context);
    }
    assert_true(lines > 200);
}

typedef struct Both {
    Tokenizer *tokenizer, *prefixed;
    Encoder *encoder, *prefixed_encoder, *plain;
} Both;

static int both_setup(void **state) {
    Both *both = calloc(1, sizeof *both);
    both->tokenizer = load_golden(false);
    both->prefixed = load_golden(true);
    assert_ok(encoder_new(&both->encoder, both->tokenizer, &(EncodeOptions){.offsets = true}));
    assert_ok(encoder_new(&both->prefixed_encoder, both->prefixed, NULL));
    assert_ok(encoder_new(&both->plain, both->tokenizer, &(EncodeOptions){.plain = true}));
    *state = both;
    return 0;
}

static int both_teardown(void **state) {
    Both *both = *state;
    encoder_free(both->encoder);
    encoder_free(both->prefixed_encoder);
    encoder_free(both->plain);
    tokenizer_free(both->tokenizer);
    tokenizer_free(both->prefixed);
    free(both);
    return 0;
}

static bool inside_character(const char *text, size_t size, size_t at) {
    return at < size && ((unsigned char)text[at] & 0xC0) == 0x80;
}

/* Compares offsets, widened to complete characters as in Hugging Face's output. */
static void check_offsets(const TokenList *list, const char *text, size_t size, const json_t *expected) {
    assert_int_equal(json_array_size(expected), list->count);
    for (size_t i = 0; i < list->count; i++) {
        size_t start = list->offsets[i].start, end = list->offsets[i].end;
        while (inside_character(text, size, start)) start--;
        while (inside_character(text, size, end)) end++;
        const json_t *range = json_array_get(expected, i);
        assert_int_equal(start, json_integer_value(json_array_get(range, 0)));
        assert_int_equal(end, json_integer_value(json_array_get(range, 1)));
    }
}

static void check_ids(const json_t *line, void *context) {
    const Both *both = context;
    const json_t *string = json_object_get(line, "text");
    if (!string) return;
    const char *text = json_string_value(string);
    size_t size = json_string_length(string);
    CLEANUP(token_list_done) TokenList list = {0}, prefixed = {0}, plain = {0};
    assert_ok(encoder_add(both->encoder, text, size, &list));
    assert_ids(&list, json_object_get(line, "ids"), text);
    check_offsets(&list, text, size, json_object_get(line, "places"));
    assert_ok(encoder_add(both->prefixed_encoder, text, size, &prefixed));
    assert_ids(&prefixed, json_object_get(line, "prefixed"), text);
    assert_ok(encoder_add(both->plain, text, size, &plain));
    assert_decodes(both->tokenizer, &plain, text, size);
}

static void same_ids_as_hugging_face(void **state) {
    each_case(check_ids, *state);
}

static void check_cuts(const json_t *line, void *context) {
    const Both *both = context;
    const json_t *string = json_object_get(line, "text");
    size_t size = json_string_length(string);
    if (!string || size > 400) return;
    Encoder *const encoders[] = {both->encoder, both->prefixed_encoder, both->plain};
    for (int i = 0; i < 3; i++) {
        CLEANUP(token_list_done) TokenList whole = {0};
        assert_ok(encoder_add(encoders[i], json_string_value(string), size, &whole));
        assert_cuts(encoders[i], json_string_value(string), size, &whole);
    }
}

static void split_anywhere(void **state) {
    each_case(check_cuts, *state);
}

/* A chunked reader must make progress: the cut is no earlier than the start of the last word. */
static void splits_come_late(void **state) {
    static const char *const words[] = {"<|endoftext|>", NULL};
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(bpe_from_text(&tokenizer, vocab, "vocab.json", "", 0, "merges.txt"));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    static const struct {
        const char *text;
        size_t cut;
    } cases[] = {
        {"one two", 3},          {"one two ", 7}, {"one two  x", 8}, {"one", 0},      {"it's", 4},
        {"it's x'l", 6},         {"a\nb", 2},     {"a\n\nb", 2},     {"a\n\nb c", 4}, {"x y <|endof", 3},
        {"x <|endoftext|>", 15}, {"end.\n", 4},   {"a\n\n", 1},      {"caf\xC3", 0},  {"a b\xC3", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t cut = encoder_cut(encoder, cases[i].text, strlen(cases[i].text));
        if (cut != cases[i].cut) fail_msg("'%s': cut at %zu; expected %zu", cases[i].text, cut, cases[i].cut);
    }
}

/* Inverse of utf8_next. */
static size_t put_char(uint32_t c, char *out) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = bytes; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(0xF00 >> bytes | c);
    return bytes;
}

static uint64_t hash_block(Encoder *encoder, const char *pattern, uint32_t start) {
    uint64_t hash = FINGERPRINT_START;
    CLEANUP(token_list_done) TokenList list = {0};
    for (uint32_t c = start; c < start + 4096; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        char text[64];
        size_t size = 0;
        for (const char *at = pattern; *at; at++)
            if (*at == '%')
                size += put_char(c, text + size);
            else
                text[size++] = *at;
        list.count = 0;
        assert_ok(encoder_add(encoder, text, size, &list));
        for (size_t i = 0; i < list.count; i++)
            for (int byte = 0; byte < 4; byte++)
                hash = (hash ^ ((uint32_t)list.ids[i] >> 8 * byte & 0xFF)) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static void check_block(const json_t *line, void *context) {
    const Both *both = context;
    const char *pattern = json_string_value(json_object_get(line, "pattern"));
    const json_t *hashes = json_object_get(line, "hashes");
    for (size_t i = 0; pattern && i < json_array_size(hashes); i++) {
        char found[17];
        if (!is_tested_block((uint32_t)i * 4096)) continue;
        snprintf(found, sizeof found, "%016llx",
                 (unsigned long long)hash_block(both->encoder, pattern, (uint32_t)i * 4096));
        if (strcmp(found, json_string_value(json_array_get(hashes, i))) != 0)
            fail_msg("'%s' with a code point from U+%04zX on gives wrong ids", pattern, i * 4096);
    }
}

static void every_code_point(void **state) {
    each_case(check_block, *state);
}

/* ---- any bytes ---- */

static void random_bytes_round_trip(void **state) {
    const Both *both = *state;
    uint64_t draw = 0;
    for (int round = 0; round < 3000; round++) {
        char text[200];
        size_t size = 1 + (size_t)round % (sizeof text - 1);
        /* A third of the rounds use all bytes, a third only bytes of multi-byte characters, a third a few
         * letters. */
        for (size_t i = 0; i < size; i++) {
            draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407u;
            unsigned char byte = (unsigned char)(draw >> 40);
            text[i] = (char)(round % 3 == 0   ? byte
                             : round % 3 == 1 ? byte | 0x80
                                              : "ab 's\n\xC3\xA9"[byte % 8]);
        }
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(both->plain, text, size, &list));
        assert_decodes(both->tokenizer, &list, text, size);
        if (round % 10 == 0) assert_cuts(both->plain, text, size, &list);
    }
}

/* A slow, literal implementation of the merge rule, the reference for long words. */
static size_t merge_slowly(const Tokenizer *tokenizer, const char *word, size_t size, int32_t *ids) {
    Vocab const *vocab = &tokenizer->vocab;
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(json_read_file(KIT_GOLDEN "/bpe.json", &json));
    const json_t *merges = json_object_get(json_object_get(json, "model"), "merges");
    for (size_t i = 0; i < size; i++) {
        char spelled[2];
        size_t bytes = bpe_spell((unsigned char)word[i], spelled);
        ids[i] = vocab_find(vocab, spelled, bytes);
    }
    for (;;) {
        size_t best = SIZE_MAX, best_at = 0;
        int32_t best_id = -1;
        for (size_t i = 0; i + 1 < size; i++) {
            size_t left, right;
            const char *a = vocab_token(vocab, ids[i], &left), *b = vocab_token(vocab, ids[i + 1], &right);
            for (size_t rank = 0; rank < best && rank < json_array_size(merges); rank++) {
                const json_t *merge = json_array_get(merges, rank);
                const json_t *one = json_array_get(merge, 0), *two = json_array_get(merge, 1);
                if (json_string_length(one) != left || json_string_length(two) != right) continue;
                if (memcmp(json_string_value(one), a, left) || memcmp(json_string_value(two), b, right))
                    continue;
                char both[200];
                memcpy(both, a, left);
                memcpy(both + left, b, right);
                best = rank, best_at = i, best_id = vocab_find(vocab, both, left + right);
            }
        }
        if (best == SIZE_MAX) return size;
        ids[best_at] = best_id;
        memmove(ids + best_at + 1, ids + best_at + 2, (--size - best_at - 1) * sizeof *ids);
    }
}

static void long_words_match_the_rule(void **state) {
    const Both *both = *state;
    static const char letters[] = "theandrinoweaslcu";
    uint64_t draw = 3;
    for (size_t size = 100; size < 400; size += 43) {
        char word[400];
        int32_t ids[400];
        for (size_t i = 0; i < size; i++) {
            draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407u;
            word[i] = letters[(draw >> 40) % (sizeof letters - 1)];
        }
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(both->plain, word, size, &list));
        assert_int_equal(list.count, merge_slowly(both->tokenizer, word, size, ids));
        assert_memory_equal(list.ids, ids, list.count * sizeof *ids);
    }
}

static void a_megabyte_of_one_letter(void **state) {
    const Both *both = *state;
    size_t size = 1 << 20;
    CLEANUP(mem_freep) char *text = NULL;
    assert_ok(mem_new(ENCODER_WORD_LIMIT + 1, 1, &text));
    memset(text, 'a', ENCODER_WORD_LIMIT + 1);
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(encoder_add(both->encoder, text, size, &list));
    assert_decodes(both->tokenizer, &list, text, size);
    size_t count = list.count;
    assert_fails(encoder_add(both->encoder, text, ENCODER_WORD_LIMIT + 1, &list), 1, "too long");
    assert_int_equal(list.count, count);
}

/* ---- files ---- */

static void saved_files_round_trip(void **state) {
    const Both *both = *state;
    const Tokenizer *tokenizers[] = {both->tokenizer, both->prefixed};
    assert_true(tokenizer_fingerprint(tokenizers[0]) != tokenizer_fingerprint(tokenizers[1]));
    for (int i = 0; i < 2; i++) {
        char dir[] = "/tmp/weft-bpe-XXXXXX";
        assert_non_null(mkdtemp(dir));
        assert_ok(tokenizer_save(tokenizers[i], dir));
        assert_true(tokenizer_exists(dir));
        CLEANUP(tokenizer_freep) Tokenizer *back = NULL;
        assert_ok(tokenizer_load(&back, dir));
        assert_true(tokenizer_fingerprint(back) == tokenizer_fingerprint(tokenizers[i]));
        assert_int_equal(tokenizer_special(back).end, tokenizer_find(back, "<|endoftext|>", 13));
        assert_ok(dir_remove(dir));
    }
}

static void both_file_formats(void **state) {
    static const char *const words[] = {"he", "\xC4\xA0he", "<|endoftext|>", NULL};
    static const char merges[] = "#version: 0.2\nh e\r\n\xC4\xA0 he\n";
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    CLEANUP(tokenizer_freep) Tokenizer *files = NULL, *json = NULL, *back = NULL;
    assert_ok(bpe_from_text(&files, vocab, "vocab.json", merges, strlen(merges), "merges.txt"));
    CLEANUP(json_decrefp)
    json_t *whole = json_pack("{s:[{s:i, s:s, s:b, s:b}], s:{s:s, s:b}, s:{s:s, s:O, s:[s, [s, s]]}}",
                              "added_tokens", "id", 258, "content", "<|endoftext|>", "special", 1,
                              "normalized", 1, "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
                              "model", "type", "BPE", "vocab", vocab, "merges", "h e", "\xC4\xA0", "he");
    assert_non_null(whole);
    assert_ok(tokenizer_load_bpe_json(&json, whole, "tokenizer.json"));
    assert_true(tokenizer_fingerprint(files) == tokenizer_fingerprint(json));
    char dir[] = "/tmp/weft-bpe-XXXXXX", name[64];
    assert_non_null(mkdtemp(dir));
    assert_ok(tokenizer_save(files, dir));
    snprintf(name, sizeof name, "%s/vocab.json", dir);
    assert_ok(tokenizer_load(&back, name));
    assert_true(tokenizer_fingerprint(files) == tokenizer_fingerprint(back));
    assert_ok(dir_remove(dir));
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(encoder_new(&encoder, back, NULL));
    assert_ok(encoder_add(encoder, "he he<|endoftext|>", 18, &list));
    assert_int_equal(list.count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(list.ids[i], 256 + i);
}

static void whole_words_before_merges(void **state) {
    static const char *const words[] = {"he", "hey", NULL};
    CLEANUP(json_decrefp) json_t *vocab = kit_vocab(words);
    for (int ignore = 0; ignore < 2; ignore++) {
        CLEANUP(json_decrefp)
        json_t *whole = json_pack("{s:{s:s, s:b}, s:{s:s, s:b, s:O, s:[s]}}", "pre_tokenizer", "type",
                                  "ByteLevel", "add_prefix_space", 0, "model", "type", "BPE", "ignore_merges",
                                  ignore, "vocab", vocab, "merges", "h e");
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
        CLEANUP(encoder_freep) Encoder *encoder = NULL;
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(tokenizer_load_bpe_json(&tokenizer, whole, "tokenizer.json"));
        assert_ok(encoder_new(&encoder, tokenizer, NULL));
        assert_ok(encoder_add(encoder, "hey", 3, &list));
        assert_int_equal(list.count, ignore ? 1 : 2);
        assert_int_equal(list.ids[0], ignore ? 257 : 256);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids_as_hugging_face), cmocka_unit_test(split_anywhere),
        cmocka_unit_test(splits_come_late),         cmocka_unit_test(every_code_point),
        cmocka_unit_test(random_bytes_round_trip),  cmocka_unit_test(long_words_match_the_rule),
        cmocka_unit_test(a_megabyte_of_one_letter), cmocka_unit_test(saved_files_round_trip),
        cmocka_unit_test(both_file_formats),        cmocka_unit_test(whole_words_before_merges),
    };
    return cmocka_run_group_tests(tests, both_setup, both_teardown);
}
