/* Bytes as text: characters come whole, broken ones as U+FFFD. */
#include "infer/text.h"

#include "base/json.h"
#include "test.h"

#define BROKEN "\xEF\xBF\xBD"

static void assert_text(const char *bytes, const char *expected) {
    int32_t tokens[64];
    int64_t count = (int64_t)strlen(bytes);
    for (int64_t i = 0; i < count; i++) tokens[i] = (unsigned char)bytes[i];
    char *text = NULL;
    size_t size = 0;
    assert_ok(text_of_tokens(tokens, count, &text, &size));
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static void whole_characters_pass(void **state) {
    (void)state;
    assert_text("", "");
    assert_text("plain", "plain");
    assert_text("gr\xC3\xBC\xC3\x9F", "gr\xC3\xBC\xC3\x9F");
    assert_text("\xE2\x82\xAC \xF0\x9F\x90\x8D", "\xE2\x82\xAC \xF0\x9F\x90\x8D");
}

static void broken_ones_are_replaced(void **state) {
    (void)state;
    assert_text("a\x80z", "a" BROKEN "z");
    assert_text("\xC3", BROKEN);
    assert_text("\xE2\x82x", BROKEN "x");
    assert_text("\xE2\x82\xC3\xBC", BROKEN "\xC3\xBC");
    assert_text("\xF0\x9F\x90", BROKEN);
    assert_text("\xC0\xAF", BROKEN BROKEN);                       /* overlong */
    assert_text("\xE0\x80\x80", BROKEN BROKEN BROKEN);            /* overlong */
    assert_text("\xED\xA0\x80", BROKEN BROKEN BROKEN);            /* a surrogate */
    assert_text("\xF4\x90\x80\x80", BROKEN BROKEN BROKEN BROKEN); /* past the last character */
    assert_text("\xFF\xFE", BROKEN BROKEN);
}

/* What is printed while tokens come is held back until it is a character. */
static void pieces_are_whole(void **state) {
    (void)state;
    TextStream stream = {0};
    char piece[TEXT_PIECE];
    assert_int_equal(text_push(&stream, 0xE2, piece), 0);
    assert_int_equal(text_push(&stream, 0x82, piece), 0);
    assert_int_equal(text_push(&stream, 0xAC, piece), 3);
    assert_memory_equal(piece, "\xE2\x82\xAC", 3);
    assert_int_equal(text_push(&stream, 0xF0, piece), 0);
    assert_int_equal(text_push(&stream, 'a', piece), 4);
    assert_memory_equal(piece, BROKEN "a", 4);
    assert_int_equal(text_push(&stream, 0xC3, piece), 0);
    assert_int_equal(text_push(&stream, 256, piece), 3); /* the end token ends a character too */
    assert_int_equal(text_end(&stream, piece), 0);
    assert_int_equal(text_push(&stream, 256, piece), 0);
}

/* Whatever the bytes, the text is valid: jansson takes no other. */
static void any_bytes(void **state) {
    (void)state;
    for (int a = 0; a < 256; a++) {
        int32_t tokens[4 * 256];
        for (int i = 0; i < 256; i++) {
            tokens[4 * i] = a, tokens[4 * i + 1] = i;
            tokens[4 * i + 2] = 255 - i, tokens[4 * i + 3] = 300;
        }
        char *text = NULL;
        size_t size = 0;
        assert_ok(text_of_tokens(tokens, 4 * 256, &text, &size));
        json_t *checked = json_stringn(text, size);
        assert_non_null(checked);
        json_decref(checked);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters_pass),
        cmocka_unit_test(broken_ones_are_replaced),
        cmocka_unit_test(pieces_are_whole),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
