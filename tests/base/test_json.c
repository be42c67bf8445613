/* Tests the JSON helpers: invalid input is rejected with messages that name the file, the position and the
 * field. */
#include <math.h>

#include "base/json.h"

#include "base/memory.h"
#include "folder.h"

static Status parse(const char *text, json_t **ret_json) {
    return json_parse(text, strlen(text), "config.json", ret_json);
}

static void test_malformed(void **state) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "config.json: not valid JSON at line 1"},
        {"{\"a\": 1", "config.json: not valid JSON at line 1"},
        {"{\n\"a\": 1,\n}", "line 3, column 1"},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
        {"{} x", "end of file expected"},
        {"{} {}", "end of file expected"},
        {"{\"a\": 99999999999999999999}", "too big integer"},
        {"{\"a\": 1e999}", "real number overflow"},
        {"{\"a\": NaN}", "not valid JSON"},
        {"{\"a\": \"\xff\xfe\"}", "unable to decode byte 0xff"},
        {"{\"a\": \"\\u0000\"}", "not valid JSON at line 1, column 14: \\u0000 is not allowed"},
        {"['a']", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *untouched = NULL;
        assert_fails(parse(cases[i].text, &untouched), STATUS_FAILED, cases[i].message);
        assert_null(untouched);
    }
    json_t *untouched = NULL;
    assert_fails(json_parse("{}\0{}", 5, "x", &untouched), STATUS_FAILED, "x: not valid JSON");
}

/* Nesting far deeper than the stack allows: arrays and objects, closed and unclosed. */
static void test_deep_nesting(void **state) {
    enum { DEPTH = 1 << 20 };
    static const char *const open[] = {"[", "{\"a\":", "[{\"a\":"};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(open[i]);
        char *text = malloc(DEPTH * length);
        for (size_t at = 0; at < DEPTH; at++) memcpy(text + at * length, open[i], length);
        json_t *untouched = NULL;
        assert_fails(json_parse(text, DEPTH * length, "deep.json", &untouched), STATUS_FAILED,
                     "maximum parsing depth");
        free(text);
    }
}

static void test_members(void **state) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(parse("{\"n\": 12, \"x\": 0.5, \"on\": true, \"name\": \"gelu\", \"none\": null}", &json));
    int64_t n = 0;
    double x = 0, from_integer = 0;
    bool on = false;
    const char *name = NULL;
    assert_ok(json_get_int(json, "f", "n", 1, 100, &n));
    assert_ok(json_get_double(json, "f", "x", 0, 1, &x));
    assert_ok(json_get_double(json, "f", "n", 0, 100, &from_integer));
    assert_ok(json_get_bool(json, "f", "on", &on));
    assert_ok(json_get_string(json, "f", "name", &name));
    assert_int_equal(n, 12);
    assert_true(x == 0.5 && from_integer == 12 && on);
    assert_string_equal(name, "gelu");
    /* If the member is absent or null, the output keeps its default. */
    assert_ok(json_get_int(json, "f", "absent", 1, 100, &n));
    assert_ok(json_get_string(json, "f", "none", &name));
    assert_ok(json_get_double(json, "f", "none", 0, 1, &x));
    assert_int_equal(n, 12);
    assert_string_equal(name, "gelu");
}

static void test_wrong_members(void **state) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(parse("{\"n\": 12, \"x\": 0.5, \"s\": \"12\", \"a\": [], \"o\": {}, \"b\": false}", &json));
    int64_t n = 7;
    double x = 7;
    bool on = true;
    const char *text = "kept";
    assert_fails(json_get_int(json, "c.json", "n", 1, 11, &n), STATUS_FAILED,
                 "c.json: 'n' is 12; expected 1 to 11");
    assert_fails(json_get_int(json, "c.json", "x", 0, 9, &n), STATUS_FAILED,
                 "c.json: 'x' must be an integer, not a number with a fraction");
    assert_fails(json_get_int(json, "c.json", "s", 0, 99, &n), STATUS_FAILED, "not a string");
    assert_fails(json_get_double(json, "c.json", "x", 1, 2, &x), STATUS_FAILED,
                 "'x' is 0.5; expected 1 to 2");
    assert_fails(json_get_double(json, "c.json", "a", 1, 2, &x), STATUS_FAILED, "not an array");
    assert_fails(json_get_bool(json, "c.json", "n", &on), STATUS_FAILED,
                 "'n' must be true or false, not an integer");
    assert_fails(json_get_string(json, "c.json", "o", &text), STATUS_FAILED,
                 "'o' must be a string, not an object");
    assert_fails(json_get_string(json, "c.json", "b", &text), STATUS_FAILED, "not a boolean");
    assert_int_equal(n, 7);
    assert_true(x == 7 && on);
    assert_string_equal(text, "kept");
}

/* Numbers survive a round trip through a file. */
static void test_files(void **state) {
    Folder *folder = *state;
    const char *path = folder_path(folder, "a.json");
    static const double numbers[] = {0.1, 1.0 / 3, 3.0e-5, 1e300, -2};
    json_t *array = json_array();
    for (int i = 0; i < 5; i++) json_array_append_new(array, json_real(numbers[i]));
    assert_ok(json_write_file(path, array));
    json_decref(array);
    CLEANUP(json_decrefp) json_t *back = NULL;
    assert_ok(json_read_file(path, &back));
    for (size_t i = 0; i < 5; i++) assert_true(json_real_value(json_array_get(back, i)) == numbers[i]);
    json_t *untouched = NULL;
    assert_fails(json_read_file(folder_path(folder, "b.json"), &untouched), STATUS_FAILED,
                 "b.json: cannot open");
    assert_ok(file_replace(path, "{\"a\" 1}", 7));
    assert_fails(json_read_file(path, &untouched), STATUS_FAILED, "a.json: not valid JSON at line 1");
    assert_fails(json_write_file(folder_path(folder, "absent/c.json"), back), STATUS_FAILED,
                 "c.json: cannot write");
}

/* Reals are written in the shortest form that reads back as the same double. */
static void test_shortest(void **state) {
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:f, s:f, s:f, s:f, s:I, s:s, s:f}", "lr", 6e-4, "third", 1.0 / 3, "one", 1.0,
                             "tiny", 5e-324, "n", (json_int_t)1234567890123456789, "0.10000000000000001",
                             "\\\"0.10000000000000001", "negative", -0.1);
    CLEANUP(mem_freep) char *text = NULL;
    assert_ok(json_text(json, JSON_COMPACT, &text));
    assert_string_equal(text, "{\"lr\":0.0006,\"third\":0.3333333333333333,\"one\":1.0,\"tiny\":5e-324,"
                              "\"n\":1234567890123456789,\"0.10000000000000001\":"
                              "\"\\\\\\\"0.10000000000000001\",\"negative\":-0.1}");
}

/* Results are read leniently: what is absent or of another type has the stand-in. */
static void test_lenient_members(void **state) {
    CLEANUP(json_decrefp)
    json_t *json = json_pack("{s:f, s:i, s:s, s:n}", "real", 1.5, "int", 7, "text", "x", "null");
    double number = 3;
    assert_true(json_has_number(json, "int", &number) && number == 7);
    assert_true(!json_has_number(json, "text", &number) && number == 7);
    assert_true(json_number_at(json, "real") == 1.5 && json_number_at(json, "text") == 0);
    assert_true(json_number_or(json, "null", -1) == -1 && json_number_or(NULL, "real", -1) == -1);
    assert_true(json_int_at(json, "int") == 7 && json_int_at(json, "real") == 0);
    assert_null(json_string_at(json, "int"));
    assert_string_equal(json_string_or(json, "text", "?"), "x");
    assert_string_equal(json_string_or(json, "absent", "?"), "?");
    assert_ok(json_put(json, "nan", json_finite(NAN)));
    assert_true(json_is_null(json_object_get(json, "nan")));
    assert_ok(json_put(json, "half", json_finite(0.5)));
    assert_true(json_number_at(json, "half") == 0.5);
    assert_fails(json_put(json, "none", NULL), STATUS_FAILED, "out of memory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_wrong_members),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_lenient_members),
        cmocka_unit_test_setup_teardown(test_files, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
