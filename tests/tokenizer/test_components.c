/* The components of tokenizer.json one by one: small tokenizers against what Hugging Face's tokenizers makes
 * of the same texts (golden/make_components.py). */
#include "tokenizer/kit.h"
#include "tokenizer/regex_pcre.h"

static json_t *golden;

static int setup(void **state) {
    golden = json_load_file(KIT_GOLDEN "/components.json", JSON_ALLOW_NUL, NULL);
    return !golden;
}

static int teardown(void **state) {
    json_decref(golden);
    return 0;
}

static const char *name_of(const json_t *kind) {
    return json_string_value(json_object_get(kind, "name"));
}

static void load_kind(const json_t *kind, Tokenizer **ret_tokenizer) {
    char dir[] = "/tmp/weft-components-XXXXXX";
    CLEANUP(mem_freep) char *path = NULL;
    assert_non_null(mkdtemp(dir));
    assert_ok(path_join(&path, dir, "tokenizer.json"));
    assert_ok(json_write_file(path, json_object_get(kind, "json")));
    Status status = tokenizer_load(ret_tokenizer, dir);
    if (status) print_error("%s:\n", name_of(kind));
    assert_ok(status);
    assert_ok(dir_remove(dir));
}

/* Calls `check` with every tokenizer that this build supports. */
static void each_kind(void (*check)(const json_t *kind, Tokenizer *tokenizer)) {
    size_t i;
    json_t *kind;
    json_array_foreach(golden, i, kind) {
        CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
        if (json_is_true(json_object_get(kind, "pcre2")) && !regex_pcre_exists()) continue;
        load_kind(kind, &tokenizer);
        check(kind, tokenizer);
    }
}

static void check_text(const json_t *kind, const Tokenizer *tokenizer, const json_t *ids,
                       const char *expected, size_t expected_size) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(mem_freep) int32_t *list = NULL;
    size_t count = json_array_size(ids), size;
    assert_ok(mem_new(count, sizeof *list, &list));
    for (size_t i = 0; i < count; i++) list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    assert_ok(tokenizer_decode(tokenizer, list, count, false, &text, &size));
    CLEANUP(mem_freep) char *shown = NULL;
    assert_ok(text_to_utf8(text, size, &shown, &size));
    if (size != expected_size || memcmp(shown, expected, size) != 0)
        fail_msg("%s: decoded '%s', expected '%s'", name_of(kind), shown, expected);
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    CLEANUP(bytes_done) Bytes streamed = {0};
    const char *piece;
    assert_ok(decoder_new(&decoder, tokenizer, false));
    for (size_t i = 0; i <= count; i++) {
        assert_ok(i < count ? decoder_push(decoder, list[i], &piece, &size)
                            : decoder_end(decoder, &piece, &size));
        assert_ok(bytes_add(&streamed, piece, size));
    }
    if (streamed.size != expected_size || (size && memcmp(streamed.data, expected, streamed.size) != 0))
        fail_msg("%s: streamed '%.*s', expected '%s'", name_of(kind), (int)streamed.size, streamed.data,
                 expected);
}

static void check_places(const json_t *kind, const char *text, size_t size, const json_t *places,
                         const TokenList *list) {
    for (size_t i = 0; i < list->count; i++) {
        size_t start = list->offsets[i].start, end = list->offsets[i].end;
        while (start > 0 && start < size && (text[start] & 0xC0) == 0x80) start--;
        while (end < size && (text[end] & 0xC0) == 0x80) end++;
        if (start == (size_t)json_integer_value(json_array_get(places, 2 * i)) &&
            end == (size_t)json_integer_value(json_array_get(places, 2 * i + 1)))
            continue;
        CLEANUP(mem_freep) char *shown = json_dumps(places, 0);
        fail_msg("%s: token %zu of '%s' is at %zu to %zu; expected %s", name_of(kind), i, text, start, end,
                 shown);
    }
}

static void check_encoding(const json_t *kind, Tokenizer *tokenizer) {
    CLEANUP(encoder_freep) Encoder *plain = NULL;
    CLEANUP(encoder_freep) Encoder *placing = NULL;
    assert_ok(encoder_new(&plain, tokenizer, NULL));
    assert_ok(encoder_new(&placing, tokenizer, &(EncodeOptions){.offsets = true}));
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(kind, "texts"), i, one) {
        CLEANUP(token_list_done) TokenList list = {0};
        CLEANUP(token_list_done) TokenList placed = {0};
        const json_t *ids = json_array_get(one, 1), *back = json_array_get(one, 3);
        const char *text = json_string_value(json_array_get(one, 0));
        size_t size = json_string_length(json_array_get(one, 0));
        assert_ok(encoder_add(plain, text, size, &list));
        assert_ids(&list, ids, name_of(kind));
        assert_ok(encoder_add(placing, text, size, &placed));
        assert_ids(&placed, ids, name_of(kind));
        check_places(kind, text, size, json_array_get(one, 2), &placed);
        assert_cuts(plain, text, size, &list);
        check_text(kind, tokenizer, ids, json_string_value(back), json_string_length(back));
    }
}

static void encoding(void **state) {
    each_kind(check_encoding);
}

static void check_decoding(const json_t *kind, Tokenizer *tokenizer) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(kind, "decoded"), i, one) {
        const json_t *text = json_array_get(one, 1);
        check_text(kind, tokenizer, json_array_get(one, 0), json_string_value(text),
                   json_string_length(text));
    }
}

static void decoding(void **state) {
    each_kind(check_decoding);
}

/* A saved tokenizer gives the same ids and text. */
static void check_saved(const json_t *kind, Tokenizer *tokenizer) {
    char dir[] = "/tmp/weft-components-XXXXXX";
    CLEANUP(tokenizer_freep) Tokenizer *again = NULL;
    assert_non_null(mkdtemp(dir));
    assert_ok(tokenizer_save(tokenizer, dir));
    assert_ok(tokenizer_load(&again, dir));
    assert_int_equal(tokenizer_fingerprint(again), tokenizer_fingerprint(tokenizer));
    check_encoding(kind, again);
    check_decoding(kind, again);
    assert_ok(dir_remove(dir));
}

static void saving(void **state) {
    each_kind(check_saved);
}

/* Of added tokens that normalize alike, Hugging Face's tokenizers takes any; here it is the last. */
static void tokens_that_normalize_alike(void **state) {
    static const char text[] =
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"FOO\", \"normalized\": true, \"special\": true}, "
        "{\"id\": 2, "
        "\"content\": \"foo\", \"normalized\": true}], \"normalizer\": {\"type\": \"BertNormalizer\"}, "
        "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"model\": {\"type\": \"WordPiece\", "
        "\"unk_token\": "
        "\"a\", \"vocab\": {\"a\": 0}}}";
    CLEANUP(json_decrefp) json_t *json = json_loads(text, 0, NULL);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    assert_ok(tokenizer_load_wordpiece_json(&tokenizer, json, "tokenizer.json"));
    assert_ok(encoder_new(&encoder, tokenizer, NULL));
    assert_ok(encoder_add(encoder, "foo FOO a", 9, &list));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.ids[0], 2);
    assert_int_equal(list.ids[1], 2);
}

/* Token files name the kind by its number. */
static void check_kind(const json_t *kind, Tokenizer *tokenizer) {
    const json_t *type = json_object_get(json_object_get(json_object_get(kind, "json"), "model"), "type");
    assert_string_equal(tokenizer_kind_text(tokenizer_kind(tokenizer)), tokenizer_kind_name(tokenizer));
    assert_int_equal(strcasecmp(tokenizer_kind_name(tokenizer), json_string_value(type)), 0);
}

static void kinds(void **state) {
    each_kind(check_kind);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding),
        cmocka_unit_test(decoding),
        cmocka_unit_test(saving),
        cmocka_unit_test(kinds),
        cmocka_unit_test(tokens_that_normalize_alike),
    };
    return cmocka_run_group_tests_name("tokenizer.components", tests, setup, teardown);
}
