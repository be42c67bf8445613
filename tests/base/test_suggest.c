/* Tests edit distance and suggestions for mistyped names. */
#include "test.h"

#include "base/suggest.h"

static void distances(void **state) {
    (void)state;
    assert_int_equal(suggest_distance("train", "train"), 0);
    assert_int_equal(suggest_distance("trian", "train"), 1);
    assert_int_equal(suggest_distance("tran", "train"), 1);
    assert_int_equal(suggest_distance("", "lr"), 2);
    assert_int_equal(suggest_distance("kitten", "sitting"), 3);
    assert_int_equal(suggest_distance("micro_batch", "micro-batch"), 0);
    assert_int_equal(suggest_distance("ca", "abc"), 3);
}

static void nearest(void **state) {
    (void)state;
    static const char *const names[] = {"train", "eval", "generate", "convert", "info", "help", NULL};
    assert_string_equal(suggest("trian", names), "train");
    assert_string_equal(suggest("TRAIN", names), "train");
    assert_string_equal(suggest("evaluate", names), "eval");
    assert_string_equal(suggest("gen", names), "generate");
    assert_string_equal(suggest("inof", names), "info");
    assert_null(suggest("xyzzy", names));
    assert_null(suggest("", names));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(suggest(longest, names));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(nearest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
