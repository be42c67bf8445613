/* WordPiece gives the same results as the Hugging Face libraries (golden/wordpiece_cases.jsonl) on text,
 * invalid UTF-8, decoding and every code point, and published ids where the data is available. */
#include <zlib.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "test.h"
#include "tokenizer/bert_pretokenize.h"
#include "tokenizer/blocks.h"
#include "tokenizer/tokenizer.h"

#define GOLDEN WEFT_TEST_DIR "/tokenizer/golden/"
#define SHARED WEFT_SOURCE_DIR "/../shared/data/"

enum { BLOCK = 4096, WORD_LIMIT = 100 };

typedef struct Kit {
    Tokenizer *tokenizer;
    Encoder *plain, *with_offsets; /* without and with offsets */
} Kit;

static Kit kit_of(const char *path) {
    Kit kit = {0};
    assert_ok(tokenizer_load(&kit.tokenizer, path));
    assert_ok(encoder_new(&kit.plain, kit.tokenizer, NULL));
    assert_ok(encoder_new(&kit.with_offsets, kit.tokenizer, &(EncodeOptions){.offsets = true}));
    return kit;
}

static void kit_done(Kit *kit) {
    encoder_free(kit->plain);
    encoder_free(kit->with_offsets);
    tokenizer_free(kit->tokenizer);
}

/* Calls `check` with every test case that has `key`; there must be at least one. */
static void each_case(const char *key, void (*check)(const json_t *json, void *context), void *context) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    int found = 0;
    assert_ok(file_read(GOLDEN "wordpiece_cases.jsonl", 1 << 20, &text, &size));
    for (char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1) {
        CLEANUP(json_decrefp) json_t *json = NULL;
        assert_ok(json_parse(line, (size_t)(stop - line), "case", &json));
        if (!json_object_get(json, key)) continue;
        check(json, context);
        found++;
    }
    assert_true(found > 0);
}

static char *case_bytes(const json_t *json, size_t *ret_size) {
    const char *text = json_string_value(json_object_get(json, "text"));
    const char *hex = json_string_value(json_object_get(json, "hex"));
    *ret_size = text ? strlen(text) : strlen(hex) / 2;
    /* Exactly as long as the text, so that a sanitizer catches reads past its end. */
    char *bytes = malloc(*ret_size ? *ret_size : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < *ret_size; i++) {
        unsigned byte = 0;
        if (hex) assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = text ? text[i] : (char)byte;
    }
    return bytes;
}

static void assert_ids(const TokenList *list, const json_t *expected, const json_t *of) {
    bool same = list->count == json_array_size(expected);
    for (size_t i = 0; same && i < list->count; i++)
        same = list->ids[i] == json_integer_value(json_array_get(expected, i));
    if (same) return;
    CLEANUP(mem_freep) char *shown = json_dumps(of, JSON_ENSURE_ASCII);
    for (size_t i = 0; i < list->count; i++) print_error("%d ", list->ids[i]);
    fail_msg("wrong ids for %s", shown);
}

/* ---- ids, offsets, splitting ---- */

/* Text that is split where encoder_cut allows has the same ids. */
static void check_cuts(Encoder *encoder, const char *text, size_t size, const json_t *json,
                       const json_t *expected) {
    for (size_t seen = 0; seen <= size; seen++) {
        size_t cut = encoder_cut(encoder, text, seen);
        assert_true(cut <= seen);
        TokenList list = {0};
        assert_ok(encoder_add(encoder, text, cut, &list));
        assert_ok(encoder_add(encoder, text + cut, size - cut, &list));
        assert_ids(&list, expected, json);
        token_list_done(&list);
    }
}

static void check_offsets(const TokenList *list, const json_t *expected, const json_t *json) {
    CLEANUP(mem_freep) char *shown = json_dumps(json, JSON_ENSURE_ASCII);
    for (size_t i = 0; i < list->count; i++)
        if (list->offsets[i].start != (size_t)json_integer_value(json_array_get(expected, 2 * i)) ||
            list->offsets[i].end != (size_t)json_integer_value(json_array_get(expected, 2 * i + 1)))
            fail_msg("token %zu has the wrong offsets %zu to %zu in %s", i, list->offsets[i].start,
                     list->offsets[i].end, shown);
}

static void check_kit(const Kit *kit, const json_t *json, const char *key, const char *text, size_t size) {
    const json_t *expected = json_object_get(json, key), *expected_offsets = json_object_get(json, "places");
    TokenList list = {0}, with_offsets = {0};
    assert_ok(encoder_add(kit->plain, text, size, &list));
    assert_ids(&list, expected, json);
    assert_ok(encoder_add(kit->with_offsets, text, size, &with_offsets));
    assert_ids(&with_offsets, expected, json);
    for (size_t i = 0; i < with_offsets.count; i++)
        assert_true(with_offsets.offsets[i].start < with_offsets.offsets[i].end &&
                    with_offsets.offsets[i].end <= size);
    if (expected_offsets && strcmp(key, "cased")) check_offsets(&with_offsets, expected_offsets, json);
    if (size < 400) check_cuts(kit->plain, text, size, json, expected);
    token_list_done(&list);
    token_list_done(&with_offsets);
}

static void check_texts(const json_t *json, void *context) {
    const Kit *kits = context;
    size_t size;
    CLEANUP(mem_freep) char *text = case_bytes(json, &size);
    check_kit(&kits[0], json, "uncased", text, size);
    check_kit(&kits[1], json, "cased", text, size);
}

/* ---- added tokens ---- */

typedef struct AddedKit {
    char *dir;
    Kit kit;
} AddedKit;

static void make_added(const json_t *json, void *context) {
    AddedKit *added = context;
    CLEANUP(mem_freep) char *vocab = NULL, *text = NULL, *config = NULL;
    size_t size;
    assert_ok(file_read(GOLDEN "wordpiece_uncased.txt", 1 << 20, &text, &size));
    assert_ok(path_join(&vocab, added->dir, "vocab.txt"));
    assert_ok(path_join(&config, added->dir, "tokenizer_config.json"));
    assert_ok(file_replace(vocab, text, size));
    assert_ok(json_write_file(config, json));
    added->kit = kit_of(added->dir);
}

static void check_added(const json_t *json, void *context) {
    const AddedKit *added = context;
    size_t size;
    CLEANUP(mem_freep) char *text = case_bytes(json, &size);
    check_kit(&added->kit, json, "added", text, size);
}

/* Added tokens with all combinations of flags, matched in normalized text, before and after saving. */
static void added_tokens_as_hugging_face(void **state) {
    char dir[] = "/tmp/weft-added-XXXXXX";
    AddedKit added = {.dir = mkdtemp(dir)};
    assert_non_null(added.dir);
    each_case("added_tokens_decoder", make_added, &added);
    each_case("added", check_added, &added);
    uint64_t fingerprint = tokenizer_fingerprint(added.kit.tokenizer);
    assert_ok(tokenizer_save(added.kit.tokenizer, dir));
    kit_done(&added.kit);
    added.kit = kit_of(dir);
    assert_true(tokenizer_fingerprint(added.kit.tokenizer) == fingerprint);
    each_case("added", check_added, &added);
    kit_done(&added.kit);
    assert_ok(dir_remove(dir));
}

static void text_as_hugging_face(void **state) {
    Kit kits[2] = {kit_of(GOLDEN "wordpiece_uncased.txt"), kit_of(GOLDEN "wordpiece_cased.txt")};
    each_case("uncased", check_texts, kits);
    kit_done(&kits[0]);
    kit_done(&kits[1]);
}

/* An encoder without special tokens treats their names as plain text. */
static void plain_text_has_no_special_tokens(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "wordpiece_uncased.txt"));
    assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.plain = true}));
    TokenList list = {0};
    assert_ok(encoder_add(encoder, "[MASK]", 6, &list));
    assert_true(list.count >= 3);
    for (size_t i = 0; i < list.count; i++)
        assert_int_not_equal(list.ids[i], tokenizer_special(tokenizer).mask);
    token_list_done(&list);
}

/* ---- decoding ---- */

static void check_stream(const Tokenizer *tokenizer, const int32_t *ids, size_t count, const char *expected) {
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    assert_ok(decoder_new(&decoder, tokenizer, true));
    const char *piece;
    size_t size, at = 0;
    for (size_t i = 0; i <= count; i++) {
        if (i < count)
            assert_ok(decoder_push(decoder, ids[i], &piece, &size));
        else
            assert_ok(decoder_end(decoder, &piece, &size));
        assert_true(at + size <= strlen(expected));
        assert_memory_equal(piece, expected + at, size);
        at += size;
    }
    assert_int_equal(at, strlen(expected));
}

static void check_decoding(const json_t *json, void *context) {
    const Tokenizer *tokenizer = context;
    const json_t *list = json_object_get(json, "ids");
    size_t count = json_array_size(list), size;
    int32_t ids[1024];
    assert_true(count <= 1024);
    for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    const char *skipped = json_string_value(json_object_get(json, "skipped"));
    CLEANUP(mem_freep) char *whole = NULL, *part = NULL;
    assert_ok(tokenizer_decode(tokenizer, ids, count, false, &whole, &size));
    assert_string_equal(whole, json_string_value(json_object_get(json, "decoded")));
    assert_ok(tokenizer_decode(tokenizer, ids, count, true, &part, &size));
    assert_string_equal(part, skipped);
    check_stream(tokenizer, ids, count, skipped);
}

static void decoding_as_hugging_face(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load(&tokenizer, GOLDEN "wordpiece_uncased.txt"));
    each_case("ids", check_decoding, tokenizer);
}

/* ---- every code point ---- */

static size_t put_utf8(char *to, uint32_t c) {
    if (c < 0x80) return (size_t)sprintf(to, "%c", (int)c);
    if (c < 0x800) return (size_t)sprintf(to, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
    if (c < 0x10000)
        return (size_t)sprintf(to, "%c%c%c", 0xE0 | c >> 12, 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F));
    return (size_t)sprintf(to, "%c%c%c%c", 0xF0 | c >> 18, 0x80 | (c >> 12 & 0x3F), 0x80 | (c >> 6 & 0x3F),
                           0x80 | (c & 0x3F));
}

static uint32_t block_sum(BertPretokenizer *words, uint32_t first, const char *before, const char *after) {
    static char out[BLOCK * 64];
    size_t used = 0;
    for (uint32_t c = first; c < first + BLOCK; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        char text[32];
        size_t size = strlen(before);
        memcpy(text, before, size);
        size += put_utf8(text + size, c);
        memcpy(text + size, after, strlen(after));
        bert_pretokenizer_start(words, text, size + strlen(after));
        for (BertWord word; bert_pretokenizer_next(words, &word);) {
            assert_true(used + word.size + 2 <= sizeof out);
            memcpy(out + used, word.text, word.size);
            used += word.size;
            out[used++] = '\n';
        }
        out[used++] = 0;
    }
    return (uint32_t)crc32(0, (const Bytef *)out, (uInt)used);
}

static void check_code_points(const json_t *json, void *context) {
    (void)context;
    const json_t *on = json_object_get(json, "settings");
    bool set[4];
    for (size_t i = 0; i < 4; i++) set[i] = json_is_true(json_array_get(on, i));
    const BertSettings settings = {set[0], set[1], set[2], set[3]};
    const char *pattern = json_string_value(json_object_get(json, "pattern")), *hole = strchr(pattern, '%');
    char before[16] = "";
    memcpy(before, pattern, (size_t)(hole - pattern));
    CLEANUP(bert_chars_freep) BertChars *chars = NULL;
    BertPretokenizer words;
    assert_ok(bert_chars_new(&chars, &settings));
    assert_ok(bert_pretokenizer_init(&words, chars, WORD_LIMIT, false));
    const char *sums = json_string_value(json_object_get(json, "sums"));
    for (uint32_t first = 0; first < 0x110000; first += BLOCK) {
        char *end;
        unsigned long expected = strtoul(sums, &end, 16);
        assert_true(end > sums);
        sums = end;
        if (!is_tested_block(first)) continue;
        if (block_sum(&words, first, before, hole + 1) != expected)
            fail_msg("code points U+%04X to U+%04X give wrong words in '%s' with settings %d%d%d%d", first,
                     first + BLOCK - 1, pattern, set[0], set[1], set[2], set[3]);
    }
    bert_pretokenizer_done(&words);
}

static void every_code_point_as_hugging_face(void **state) {
    each_case("sums", check_code_points, NULL);
}

/* ---- words ---- */

/* A word too large to buffer is counted, not stored, and becomes a single [UNK]. */
static void long_words_are_unknown(void **state) {
    Kit kit = kit_of(GOLDEN "wordpiece_uncased.txt");
    const size_t size = 32 << 20;
    CLEANUP(mem_freep) char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'a', size);
    TokenList list = {0};
    assert_ok(encoder_add(kit.with_offsets, text, size, &list));
    assert_int_equal(list.count, 1);
    assert_int_equal(list.ids[0], tokenizer_special(kit.tokenizer).unk);
    assert_int_equal(list.offsets[0].end, size);
    assert_true(list.capacity < 1 << 16);
    assert_int_equal(encoder_cut(kit.plain, text, size), 0);
    memset(text, 0, size);
    assert_int_equal(encoder_cut(kit.plain, text, size), size);
    token_list_done(&list);
    kit_done(&kit);
}

/* ---- published ids ---- */

/* The published ids include [CLS] and [SEP]. */
static void check_published(const Kit *kit, const json_t *json) {
    const char *text = json_string_value(json_object_get(json, "text"));
    json_t *expected = json_object_get(json, "bert");
    assert_int_equal(json_integer_value(json_array_get(expected, 0)), tokenizer_special(kit->tokenizer).cls);
    assert_int_equal(json_array_remove(expected, 0), 0);
    const size_t last = json_array_size(expected) - 1;
    assert_int_equal(json_integer_value(json_array_get(expected, last)),
                     tokenizer_special(kit->tokenizer).sep);
    assert_int_equal(json_array_remove(expected, last), 0);
    TokenList list = {0};
    assert_ok(encoder_add(kit->plain, text, strlen(text), &list));
    assert_ids(&list, expected, json);
    token_list_done(&list);
}

static void published_ids(void **state) {
    gzFile file = gzopen(SHARED "reference/tokenizers/token_ids.jsonl.gz", "rb");
    if (!file || !path_exists(SHARED "tokenizers/bert-base-uncased/vocab.txt")) skip();
    Kit kit = kit_of(SHARED "tokenizers/bert-base-uncased");
    const int limit = 8 << 20;
    CLEANUP(mem_freep) char *line = malloc(limit);
    int lines = 0;
    for (; gzgets(file, line, limit); lines++) {
        CLEANUP(json_decrefp) json_t *json = NULL;
        assert_ok(json_parse(line, strlen(line), "line", &json));
        check_published(&kit, json);
    }
    assert_true(lines > 1000);
    gzclose(file);
    kit_done(&kit);
}

/* Texts separated by a marker line, and a file with one line of ids per text. */
static void hard_cases(void **state) {
    const char *separator = "\n__ggml_vocab_test__\n";
    const char *in = SHARED "reference/tokenizers/llamacpp.inp",
               *out = SHARED "reference/tokenizers/llamacpp-bert.out";
    if (!path_exists(in) || !path_exists(out)) skip();
    Kit kit = kit_of(SHARED "tokenizers/bert-base-uncased");
    CLEANUP(mem_freep) char *texts = NULL, *answers = NULL;
    assert_ok(file_read(in, 1 << 20, &texts, NULL));
    assert_ok(file_read(out, 1 << 20, &answers, NULL));
    int cases = 0;
    char *text = texts, *line = answers;
    for (char *stop; (stop = strstr(text, separator)); text = stop + strlen(separator), cases++) {
        TokenList list = {0};
        assert_ok(encoder_add(kit.plain, text, (size_t)(stop - text), &list));
        char *end = strchr(line, '\n'), *next;
        assert_non_null(end);
        for (size_t i = 0; i < list.count; i++, line = next)
            assert_int_equal(strtol(line, &next, 10), list.ids[i]);
        assert_int_equal(strspn(line, " "), end - line);
        line = end + 1;
        token_list_done(&list);
    }
    assert_true(cases > 40);
    kit_done(&kit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_as_hugging_face),
        cmocka_unit_test(added_tokens_as_hugging_face),
        cmocka_unit_test(plain_text_has_no_special_tokens),
        cmocka_unit_test(decoding_as_hugging_face),
        cmocka_unit_test(every_code_point_as_hugging_face),
        cmocka_unit_test(long_words_are_unknown),
        cmocka_unit_test(published_ids),
        cmocka_unit_test(hard_cases),
    };
    return cmocka_run_group_tests_name("tokenizer.wordpiece", tests, NULL, NULL);
}
