/* Workers that are slower than the others are reported once, and again when they are not. */
#include "test.h"

#include "train/pace.h"

/* A round in which the workers need these times. */
static int round_of(Pace *pace, const double *seconds, double *ret_factor) {
    for (int w = 0; w < pace->workers; w++) pace_add(pace, w, seconds[w]);
    return pace_round(pace, ret_factor);
}

static void test_always_slow(void **state) {
    CLEANUP(pace_done) Pace pace = {0};
    double factor = 0;
    assert_ok(pace_init(&pace, 4));
    assert_int_equal(round_of(&pace, (double[]){1, 1.1, 3.3, 0.9}, &factor), -1);
    assert_int_equal(round_of(&pace, (double[]){1, 1.1, 3.3, 0.9}, &factor), 2);
    assert_true(factor > 3.2 && factor < 3.4);
    for (int i = 0; i < 5; i++)
        assert_int_equal(round_of(&pace, (double[]){1, 1.1, i % 2 ? 1.8 : 3.3, 0.9}, &factor), -1);
    assert_int_equal(round_of(&pace, (double[]){1, 1.1, 1.2, 0.9}, &factor), 2);
    assert_true(factor < 1.5);
    assert_int_equal(round_of(&pace, (double[]){1, 1.1, 1.2, 0.9}, &factor), -1);
}

static void test_two_workers(void **state) {
    CLEANUP(pace_done) Pace pace = {0};
    double factor = 0;
    assert_ok(pace_init(&pace, 2));
    assert_int_equal(round_of(&pace, (double[]){5, 1}, &factor), -1);
    assert_int_equal(round_of(&pace, (double[]){5, 1}, &factor), 0);
    assert_true(factor == 5);
}

/* One slow round is not reported, nor are rounds too short to judge, nor equal workers. */
static void test_quiet(void **state) {
    CLEANUP(pace_done) Pace pace = {0};
    double factor = 0;
    assert_ok(pace_init(&pace, 3));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(round_of(&pace, (double[]){1, i % 2 ? 1 : 9, 1}, &factor), -1);
        assert_int_equal(round_of(&pace, (double[]){0.01, 0.05, 0.01}, &factor), -1);
        assert_int_equal(round_of(&pace, (double[]){1, 1, 1}, &factor), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_always_slow),
        cmocka_unit_test(test_two_workers),
        cmocka_unit_test(test_quiet),
    };
    return cmocka_run_group_tests_name("train.pace", tests, NULL, NULL);
}
