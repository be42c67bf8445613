/* Tests Status: messages, exit codes and traces. */
#include "test.h"

#include "base/setting.h"

static Status inner(bool fails) {
    return fails ? FAILED("%s: '%s' is %d; expected %d", "config.json", "n_head", 5, 4) : OK;
}

static Status outer(bool fails, int *ret_value) {
    TRY(inner(fails));
    *ret_value = 1;
    return OK;
}

static void test_message_and_code(void **state) {
    Status status = inner(true);
    assert_string_equal(status_message(status), "config.json: 'n_head' is 5; expected 4");
    assert_int_equal(status_exit_code(status), 1);
    status_free(status);
    status = USAGE("--seq takes a number");
    assert_int_equal(status_exit_code(status), 2);
    status_free(status);
    assert_int_equal(status_exit_code(OK), 0);
    assert_string_equal(status_message(OK), "ok");
    status_free(OK);
}

static void test_try(void **state) {
    int value = 0;
    Status status = outer(true, &value);
    assert_non_null(status);
    assert_int_equal(value, 0); /* untouched on failure */
    char trace[1024] = {0};
    FILE *to = fmemopen(trace, sizeof trace - 1, "w");
    status_print_trace(status, to);
    fclose(to);
    const char *first = strstr(trace, "test_status.c:");
    assert_non_null(first);
    assert_non_null(
        strstr(first + 1, "test_status.c:")); /* where it was created and where it was propagated */
    status_free(status);
    assert_ok(outer(false, &value));
    assert_int_equal(value, 1);
}

static void test_wrap(void **state) {
    Status status = status_wrap(inner(true), "model '%s'", "m");
    assert_string_equal(status_message(status), "model 'm': config.json: 'n_head' is 5; expected 4");
    assert_int_equal(status_exit_code(status), 1);
    status_freep(&status);
    assert_null(status);
    assert_null(status_wrap(OK, "nothing"));
}

/* Formats name settings in braces; arguments and other braces stay as they are. */
static void test_settings(void **state) {
    char text[64];
    Status status = USAGE("{zero} %d and {no-cache}: {%s}, %s, {} {s:i} {A} {zero", 3, "pp-chunks", "{zero}");
    assert_string_equal(status_message(status),
                        "--zero 3 and --no-cache: --pp-chunks, {zero}, {} {s:i} {A} {zero");
    status = status_wrap(status, "{%s} 2", "tp");
    assert_non_null(strstr(status_message(status), "--tp 2: --zero 3 and"));
    status_free(status);
    assert_int_equal(setting_print(text, 6, "{micro-batch} %d", 4), 15);
    assert_string_equal(text, "--mic");
}

static Status deep(int depth) {
    if (depth == 0) return FAILED("the bottom");
    TRY(deep(depth - 1));
    return OK;
}

/* A trace that is too long drops frames but keeps the message. */
static void test_deep_trace(void **state) {
    assert_fails(deep(1000), STATUS_FAILED, "the bottom");
}

static void test_long_message(void **state) {
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = 0;
    Status status = FAILED("%s", text);
    assert_string_equal(status_message(status), text);
    status_free(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_and_code),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_deep_trace),
        cmocka_unit_test(test_long_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
