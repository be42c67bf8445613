/* The real GPT-2 vocabulary, if it is available: published token ids for real text. */
#include "tokenizer/kit.h"

#define GPT2      KIT_SHARED "/tokenizers/gpt2"
#define REFERENCE KIT_SHARED "/reference/tokenizers"

typedef struct Gpt2 {
    Tokenizer *tokenizer;
    Encoder *encoder;
} Gpt2;

static int setup(void **state) {
    Gpt2 *gpt2 = calloc(1, sizeof *gpt2);
    *state = gpt2;
    if (!tokenizer_exists(GPT2)) return 0;
    assert_ok(tokenizer_load(&gpt2->tokenizer, GPT2));
    assert_ok(encoder_new(&gpt2->encoder, gpt2->tokenizer, NULL));
    return 0;
}

static int teardown(void **state) {
    Gpt2 *gpt2 = *state;
    encoder_free(gpt2->encoder);
    tokenizer_free(gpt2->tokenizer);
    free(gpt2);
    return 0;
}

/* Returns the test's state; skips the test if a file is missing. */
static const Gpt2 *require_file(void **state, const char *path) {
    const Gpt2 *gpt2 = *state;
    if (!gpt2->tokenizer || !path_exists(path)) skip();
    return gpt2;
}

static void shape(void **state) {
    const Gpt2 *gpt2 = require_file(state, GPT2);
    assert_int_equal(tokenizer_vocab(gpt2->tokenizer), 50257);
    assert_int_equal(tokenizer_special(gpt2->tokenizer).end, 50256);
    assert_int_equal(tokenizer_special(gpt2->tokenizer).pad, -1);
    size_t size;
    const char *token = tokenizer_token(gpt2->tokenizer, 262, &size);
    assert_int_equal(size, 5);
    assert_memory_equal(token, "\xC4\xA0the", 5);
    assert_null(tokenizer_token(gpt2->tokenizer, 50257, &size));
}

static void published_ids(void **state) {
    const char *path = REFERENCE "/token_ids.jsonl.gz";
    const Gpt2 *gpt2 = require_file(state, path);
    gzFile file = gzopen(path, "rb");
    enum { LINE = 1 << 20 };
    CLEANUP(mem_freep) char *line = malloc(LINE);
    int lines = 0;
    for (; gzgets(file, line, LINE); lines++) {
        CLEANUP(json_decrefp) json_t *json = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(json, "text");
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(gpt2->encoder, json_string_value(text), json_string_length(text), &list));
        assert_ids(&list, json_object_get(json, "gpt2"), json_string_value(text));
        assert_decodes(gpt2->tokenizer, &list, json_string_value(text), json_string_length(text));
    }
    gzclose(file);
    assert_int_equal(lines, 1641);
}

/* Parses one line of numbers. */
static json_t *read_ids(char **at) {
    json_t *ids = json_array();
    char *stop = strchr(*at, '\n');
    while (*at < stop) {
        char *end;
        long id = strtol(*at, &end, 10);
        if (end == *at || end > stop) break;
        json_array_append_new(ids, json_integer(id));
        *at = end;
    }
    *at = stop + 1;
    return ids;
}

static void hard_cases(void **state) {
    static const char between[] = "\n__ggml_vocab_test__\n";
    const Gpt2 *gpt2 = require_file(state, REFERENCE "/llamacpp.inp");
    CLEANUP(mem_freep) char *texts = NULL, *ids = NULL;
    assert_ok(file_read(REFERENCE "/llamacpp.inp", 1 << 20, &texts, NULL));
    assert_ok(file_read(REFERENCE "/llamacpp-gpt2.out", 1 << 20, &ids, NULL));
    int cases = 0;
    char *answer = ids;
    for (char *text = texts, *stop; (stop = strstr(text, between)); text = stop + strlen(between), cases++) {
        *stop = 0;
        CLEANUP(json_decrefp) json_t *expected = read_ids(&answer);
        CLEANUP(token_list_done) TokenList list = {0};
        assert_ok(encoder_add(gpt2->encoder, text, (size_t)(stop - text), &list));
        assert_ids(&list, expected, text);
    }
    assert_true(cases >= 46);
}

/* The complete file, at once and in chunks as a reader with any buffer size would pass them. */
static void complete_shakespeare(void **state) {
    const Gpt2 *gpt2 = require_file(state, REFERENCE "/tinyshakespeare.gpt2.u16le.bin");
    CLEANUP(mem_freep) char *text = NULL, *expected = NULL;
    size_t size, bytes;
    assert_ok(file_read(KIT_SHARED "/tinyshakespeare/input.txt", 1 << 24, &text, &size));
    assert_ok(file_read(REFERENCE "/tinyshakespeare.gpt2.u16le.bin", 1 << 24, &expected, &bytes));
    CLEANUP(token_list_done) TokenList list = {0}, pieces = {0};
    assert_ok(encoder_add(gpt2->encoder, text, size, &list));
    assert_int_equal(list.count, bytes / 2);
    for (size_t i = 0; i < list.count; i++)
        assert_int_equal(list.ids[i],
                         (unsigned char)expected[2 * i] | (unsigned char)expected[2 * i + 1] << 8);
    for (size_t at = 0; at < size;) {
        size_t room = 97 + at % 1000,
               piece = size - at < room ? size - at : encoder_cut(gpt2->encoder, text + at, room);
        assert_true(piece > 0);
        assert_ok(encoder_add(gpt2->encoder, text + at, piece, &pieces));
        at += piece;
    }
    assert_int_equal(pieces.count, list.count);
    assert_memory_equal(pieces.ids, list.ids, list.count * sizeof *list.ids);
    assert_decodes(gpt2->tokenizer, &list, text, size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape),
        cmocka_unit_test(published_ids),
        cmocka_unit_test(hard_cases),
        cmocka_unit_test(complete_shakespeare),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
