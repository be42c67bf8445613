/* Tests SHA-256 on the standard's examples, with input in chunks of different sizes. */
#include "base/sha256.h"
#include "test.h"

static void assert_sum(const void *data, size_t size, size_t chunk, const char *expected) {
    Sha256 hash;
    char text[SHA256_TEXT];
    sha256_init(&hash);
    for (size_t at = 0; at < size; at += chunk)
        sha256_add(&hash, (const char *)data + at, size - at < chunk ? size - at : chunk);
    sha256_text(&hash, text);
    assert_string_equal(text, expected);
}

static void test_examples(void **state) {
    assert_sum("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sum("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sum("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 56,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void test_chunks(void **state) {
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    static const size_t chunks[] = {1, 3, 63, 64, 65, 127, 1000, 1000000};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        assert_sum(million, 1000000, chunks[i],
                   "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* Lengths around the point where padding needs an additional block. */
static void test_padding(void **state) {
    char text[64];
    memset(text, 'x', sizeof text);
    assert_sum(text, 55, 7, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
    assert_sum(text, 56, 7, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
    assert_sum(text, 64, 7, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
