/* The byte-level vocabulary, incremental decoding, and replacement of invalid UTF-8. */
#include <stdlib.h>

#include "kit.h"

static void bytes_round_trip(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, false));
    assert_ok(encoder_new(&encoder, tokenizer, &(EncodeOptions){.offsets = true}));
    assert_int_equal(tokenizer_vocab(tokenizer), BYTE_VOCAB_GPT2);
    assert_string_equal(tokenizer_kind_name(tokenizer), "bytes");
    assert_int_equal(tokenizer_special(tokenizer).end, BYTE_END);
    assert_int_equal(tokenizer_find(tokenizer, "<|endoftext|>", 13), BYTE_END);
    assert_int_equal(tokenizer_find(tokenizer, "[MASK]", 6), -1);
    char text[256];
    for (int i = 0; i < 256; i++) text[i] = (char)i;
    TokenList list = {0};
    assert_ok(encoder_add(encoder, text, sizeof text, &list));
    assert_int_equal(list.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(list.ids[i], i);
        assert_int_equal(list.offsets[i].start, i);
        assert_int_equal(list.offsets[i].end, i + 1);
    }
    assert_int_equal(encoder_cut(encoder, text, 100), 100);
    CLEANUP(mem_freep) char *back = NULL;
    size_t size;
    assert_ok(tokenizer_decode(tokenizer, list.ids, list.count, false, &back, &size));
    assert_int_equal(size, 256);
    assert_memory_equal(back, text, 256);
    token_list_done(&list);
    assert_fails(tokenizer_decode(tokenizer, &(int32_t){257}, 1, false, &back, &size), 1,
                 "token 257 is not in the vocabulary, which has ids 0 to 256");
}

static void special_tokens_are_skipped(void **state) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    const SpecialTokens special = tokenizer_special(tokenizer);
    assert_int_equal(special.mask, BYTE_MASK);
    int32_t ids[] = {BYTE_CLS, 'a', BYTE_MASK, 'b', BYTE_SEP};
    CLEANUP(mem_freep) char *with = NULL, *without = NULL;
    size_t size;
    assert_ok(tokenizer_decode(tokenizer, ids, 5, false, &with, &size));
    assert_string_equal(with, "[CLS]a[MASK]b[SEP]");
    assert_ok(tokenizer_decode(tokenizer, ids, 5, true, &without, &size));
    assert_string_equal(without, "ab");
    CLEANUP(tokenizer_freep) Tokenizer *other = NULL, *same = NULL;
    assert_ok(tokenizer_new_bytes(&other, false));
    assert_ok(tokenizer_new_bytes(&same, true));
    assert_true(tokenizer_fingerprint(other) != tokenizer_fingerprint(tokenizer));
    assert_true(tokenizer_fingerprint(same) == tokenizer_fingerprint(tokenizer));
}

/* Each case has the bytes, the text returned by each push (separated by '|') and, after '#', by the end. */
static void characters_are_complete(void **state) {
    static const struct {
        const char *bytes, *pieces;
    } cases[] = {
        {"ab", "a|b|#"},
        {"\xC3\xA9!", "|\xC3\xA9|!|#"},
        {"\xF0\x9F\x98\x80", "|||\xF0\x9F\x98\x80|#"},
        {"\xF0\x9F\x98", "|||#\xEF\xBF\xBD"},
        {"\xF0\x9F"
         "a",
         "||\xEF\xBF\xBD"
         "a|#"},
        {"\xFF\xC0", "\xEF\xBF\xBD|\xEF\xBF\xBD|#"},
        {"\xE0\x80", "|\xEF\xBF\xBD\xEF\xBF\xBD|#"},
        {"\xED\xA0\x80", "|\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD|#"},
        {"\xC3\xC3\xA9", "|\xEF\xBF\xBD|\xC3\xA9|#"},
    };
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, false));
    assert_ok(decoder_new(&decoder, tokenizer, true));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char found[64] = "", plain[64] = "";
        const char *piece;
        size_t size, used = 0;
        for (const char *at = cases[c].bytes; *at; at++) {
            assert_ok(decoder_push(decoder, (unsigned char)*at, &piece, &size));
            used += (size_t)snprintf(found + used, sizeof found - used, "%.*s|", (int)size, piece);
        }
        assert_ok(decoder_end(decoder, &piece, &size));
        snprintf(found + used, sizeof found - used, "#%.*s", (int)size, piece);
        assert_string_equal(found, cases[c].pieces);
        CLEANUP(mem_freep) char *whole = NULL;
        assert_ok(text_to_utf8(cases[c].bytes, strlen(cases[c].bytes), &whole, &size));
        used = 0;
        for (const char *at = found; *at; at++)
            if (*at != '|' && *at != '#') plain[used++] = *at;
        assert_string_equal(whole, plain);
        assert_int_equal(size, used);
    }
}

/* Saved files load as the byte vocabulary again, and so do those that transformers wrote after loading them.
 * The names of the bytes are GPT-2's. */
static void bytes_are_saved(void **state) {
    for (int bert = 0; bert < 2; bert++) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL, *saved = NULL, *theirs = NULL;
        CLEANUP(mem_freep) char *path = NULL;
        CLEANUP(json_decrefp) json_t *ours = NULL, *golden = NULL;
        char dir[] = "/tmp/weft-bytes-XXXXXX";
        assert_non_null(mkdtemp(dir));
        assert_false(tokenizer_is_bytes(dir));
        assert_ok(tokenizer_new_bytes(&tokenizer, bert));
        assert_ok(tokenizer_save(tokenizer, dir));
        assert_true(tokenizer_is_bytes(dir));
        assert_ok(tokenizer_load(&saved, dir));
        assert_int_equal(tokenizer_kind(saved), TOKENIZER_BYTES);
        assert_int_equal(tokenizer_vocab(saved), bert ? BYTE_VOCAB_BERT : BYTE_VOCAB_GPT2);
        assert_true(tokenizer_fingerprint(saved) == tokenizer_fingerprint(tokenizer));
        const char *file = bert ? KIT_GOLDEN "/bytes_bert.json" : KIT_GOLDEN "/bytes_gpt2.json";
        assert_ok(tokenizer_load(&theirs, file));
        assert_int_equal(tokenizer_kind(theirs), TOKENIZER_BYTES);
        assert_ok(path_join(&path, dir, "tokenizer.json"));
        assert_ok(json_read_file(path, &ours));
        assert_ok(json_read_file(file, &golden));
        static const char *const keys[] = {"added_tokens", "pre_tokenizer", "decoder"};
        for (size_t i = 0; i < 3; i++)
            assert_true(json_equal(json_object_get(ours, keys[i]), json_object_get(golden, keys[i])));
        json_t *vocab = json_object_get(json_object_get(ours, "model"), "vocab");
        assert_true(json_equal(vocab, json_object_get(json_object_get(golden, "model"), "vocab")));
        assert_int_equal(json_integer_value(json_object_get(vocab, "\xC4\xA0")), ' ');
        /* With other ids it is a byte-level BPE like any other. */
        json_object_set_new(vocab, "A", json_integer('B'));
        json_object_set_new(vocab, "B", json_integer('A'));
        assert_ok(json_write_file(path, ours));
        assert_false(tokenizer_is_bytes(dir));
        assert_ok(dir_remove(dir));
    }
}

static void no_tokenizer(void **state) {
    Tokenizer *tokenizer = NULL;
    assert_false(tokenizer_exists(WEFT_TEST_DIR));
    assert_fails(tokenizer_load(&tokenizer, WEFT_TEST_DIR), 1, "contains no tokenizer");
    assert_fails(tokenizer_load(&tokenizer, "/does/not/exist"), 1, "no such tokenizer");
    assert_fails(tokenizer_load(&tokenizer, WEFT_TEST_DIR "/test.h"), 1, "not a tokenizer file");
    assert_null(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_round_trip),
        cmocka_unit_test(special_tokens_are_skipped),
        cmocka_unit_test(characters_are_complete),
        cmocka_unit_test(bytes_are_saved),
        cmocka_unit_test(no_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
