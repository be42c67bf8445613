/* weft plan --draw, the way a person runs it. */
#include "base/fs.h"
#include "cli/program.h"

static void draws(void **state) {
    (void)state;
    Ran ran = program_run("plan", "--draw", "--pp", "4", "--micros", "8");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "stage 0 F0F1F2F3............B0--F4");
    assert_contains(ran.out, "bubble 27.3 % of the time; (p-1)/(m+p-1) is 27.3 %");
    assert_contains(ran.out, "in flight at most 4 3 2 1 micro-batches");
    assert_string_equal(ran.err, "");
    ran_done(&ran);
}

static void writes_svg(void **state) {
    (void)state;
    char dir[] = "/tmp/weft-plan-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/zb.svg", dir);
    Ran ran = program_run("plan", "--draw", path, "--pp", "4", "--batch", "32", "--micro-batch", "2", "--dp",
                          "2", "--pp-schedule", "zero-bubble", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "result", &json));
    assert_int_equal(json_integer_value(json_object_get(json, "micros")), 8);
    assert_float_equal(json_number_value(json_object_get(json, "bubble")), 3 / 27.0, 1e-12);
    assert_float_equal(json_number_value(json_object_get(json, "bubble_formula")), 3 / 11.0, 1e-12);
    const json_t *stage = json_array_get(json_object_get(json, "stages"), 3);
    assert_int_equal(json_integer_value(json_object_get(stage, "in_flight")), 4);
    assert_int_equal(json_array_size(json_object_get(stage, "timeline")), 24);
    assert_string_equal(json_string_value(json_object_get(json, "svg")), path);
    json_decref(json);
    ran_done(&ran);
    char *svg = NULL;
    assert_ok(file_read(path, 1 << 20, &svg, NULL));
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    free(svg);
    assert_ok(dir_remove(dir));
}

static void refuses(void **state) {
    (void)state;
    assert_refused(2, "use --draw", "plan");
    assert_refused(2, "the 1f1b schedule takes one chunk a stage, not 2", "plan", "--draw", "--pp-chunks",
                   "2");
    assert_refused(2, "--batch 10: expected a multiple of the micro-batch x the replicas, 4 x 1", "plan",
                   "--draw", "--batch", "10", "--micro-batch", "4");
    assert_refused(2, "give one of them", "plan", "--draw", "--batch", "8", "--micros", "4");
    assert_refused(2, "too many to draw", "plan", "--draw", "--pp", "1024", "--micros", "65536");
    assert_refused(2, "expected gpipe, 1f1b, interleaved or zero-bubble", "plan", "--draw", "--pp-schedule",
                   "2f2b");
    assert_refused(1, "/nowhere/a.svg", "plan", "--draw", "/nowhere/a.svg");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
        cmocka_unit_test(writes_svg),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
