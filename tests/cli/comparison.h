/* Comparisons that tests of `weft compare` write, run and read. */
#ifndef WEFT_TESTS_CLI_COMPARISON_H
#define WEFT_TESTS_CLI_COMPARISON_H

#include "base/fs.h"
#include "cli/program.h"

typedef struct Fixture {
    char dir[40], recipe[64], out[64];
} Fixture;

static inline int fixture_setup(void **state) {
    Fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) return -1;
    strcpy(fixture->dir, "/tmp/weft-compare-XXXXXX");
    if (!mkdtemp(fixture->dir)) return -1;
    snprintf(fixture->recipe, sizeof fixture->recipe, "%s/tiny.json", fixture->dir);
    snprintf(fixture->out, sizeof fixture->out, "%s/out", fixture->dir);
    *state = fixture;
    return 0;
}

static inline int fixture_teardown(void **state) {
    Fixture *fixture = *state;
    assert_ok(dir_remove(fixture->dir));
    free(fixture);
    return 0;
}

static inline json_t *parsed(const char *text) {
    json_t *json = NULL;
    assert_ok(json_parse(text, strlen(text), "result", &json));
    return json;
}

/* Not inlined: gcc 12 then warns of a dangling pointer where there is none. */
__attribute__((noinline, unused)) static char *read_in(const char *dir, const char *name) {
    char path[160];
    char *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_read(path, 1 << 26, &text, &size));
    return text;
}

static inline const json_t *run_of(const json_t *json, size_t at) {
    return json_array_get(json_object_get(json, "runs"), at);
}

static inline const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static inline double figure_of(const json_t *run, const char *key) {
    return json_number_value(json_object_get(json_object_get(run, "figures"), key));
}

/* A test with a directory of its own. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

#endif
