/* weft verify: a machine that trains correctly, and one with a rank whose memory is damaged. */
#include "cli/program.h"

#include <unistd.h>

#include "base/fs.h"
#include "cli/option.h"
#include "comm/mpi.h"

static json_t *result_of(const Ran *ran) {
    json_t *json = json_loads(ran->out, 0, NULL);
    assert_non_null(json);
    return json;
}

static int64_t cases_of(const json_t *result, const char *check, const char *what) {
    int64_t sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(result, "checks"), i, row) {
        if (!strcmp(json_string_value(json_object_get(row, "check")), check))
            sum += json_integer_value(json_object_get(row, what));
    }
    return sum;
}

static void assert_passes(const json_t *result) {
    static const char *const checks[] = {"kernels", "layouts", "repeats", "replicas"};
    assert_true(json_is_true(json_object_get(result, "ok")));
    assert_int_equal(json_array_size(json_object_get(result, "failures")), 0);
    for (size_t i = 0; i < COUNT_OF(checks); i++) assert_true(cases_of(result, checks[i], "cases") > 0);
    /* In fp32, all of them agree closely, and what is compared is not equal by construction. */
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(result, "checks"), i, row) {
        const json_t *loss = json_object_get(row, "loss");
        if (strcmp(json_string_value(json_object_get(row, "precision")), "fp32") || !loss) continue;
        assert_true(json_number_value(loss) > 0 && json_number_value(loss) < 1e-5);
    }
}

static void one_rank(void **state) {
    Ran ran = program_run("verify", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *result = result_of(&ran);
    assert_passes(result);
    assert_int_equal(json_integer_value(json_object_get(result, "pairs_covered")),
                     json_integer_value(json_object_get(result, "pairs")));
    ran_done(&ran);
}

static void several_ranks(void **state) {
    if (!mpi_built()) skip();
    Ran ran = program_run("verify", "--ranks", "2", "--json");
    assert_int_equal(ran.code, 0);
    CLEANUP(json_decrefp) json_t *result = result_of(&ran);
    assert_passes(result);
    assert_true(cases_of(result, "ranks", "cases") > 0);
    assert_true(cases_of(result, "checkpoints", "cases") > 0);
    const json_t *link = json_object_get(json_object_get(result, "links"), "within");
    assert_true(json_number_value(json_object_get(link, "mbytes_per_s")) > 0);
    ran_done(&ran);
}

/* Whether all failures of a check are on this rank alone. */
static int failures_on(const json_t *result, const char *check, int rank) {
    int count = 0;
    size_t i;
    json_t *failure;
    json_array_foreach(json_object_get(result, "failures"), i, failure) {
        const json_t *ranks = json_object_get(failure, "ranks");
        if (strcmp(json_string_value(json_object_get(failure, "check")), check)) continue;
        assert_int_equal(json_array_size(ranks), 1);
        assert_int_equal(json_integer_value(json_array_get(ranks, 0)), rank);
        assert_string_equal(json_string_value(json_object_get(failure, "what")), "weight");
        assert_non_null(json_string_value(json_object_get(failure, "parameter")));
        assert_int_equal(json_integer_value(json_object_get(failure, "step")), 2);
        count++;
    }
    return count;
}

/* It is named for what it computes alone, and in layouts, with the smallest one of the same ranks. */
static void damaged_rank_is_named(void **state) {
    char page[] = "/tmp/weft-verify-XXXXXX";
    if (!mpi_built()) skip();
    int file = mkstemp(page);
    assert_true(file >= 0);
    close(file);
    setenv("WEFT_TEST_FLIP", "1", 1);
    Ran ran = program_run("verify", "--ranks", "2", "--json", "--html", page);
    unsetenv("WEFT_TEST_FLIP");
    assert_int_equal(ran.code, 1);
    CLEANUP(json_decrefp) json_t *result = result_of(&ran);
    assert_true(json_is_false(json_object_get(result, "ok")));
    assert_int_equal(failures_on(result, "kernels", 1), cases_of(result, "kernels", "cases"));
    assert_true(failures_on(result, "layouts", 1) >= 4);
    size_t i, searched = 0;
    json_t *failure;
    json_array_foreach(json_object_get(result, "failures"), i, failure) {
        const char *smallest = json_string_value(json_object_get(failure, "smallest"));
        if (!smallest) continue;
        assert_non_null(strstr(smallest, "gpt2 fp32 dp "));
        assert_null(strstr(smallest, "zero"));
        searched++;
    }
    assert_true(searched >= 2);
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    assert_ok(file_read(page, 1 << 24, &text, &size));
    assert_non_null(strstr(text, "This machine does not train correctly"));
    assert_non_null(strstr(text, "on rank 1"));
    unlink(page);
    ran_done(&ran);
}

/* Its page cannot be written, which a minute later is no reason to keep the result back. */
static void result_survives_its_page(void **state) {
    Ran ran = program_run("verify", "--time", "1", "--json", "--html", "/proc/verify.html");
    assert_int_equal(ran.code, 1);
    CLEANUP(json_decrefp) json_t *result = result_of(&ran);
    assert_passes(result);
    assert_null(json_object_get(result, "html"));
    assert_non_null(strstr(ran.err, "the page was not written: /proc/"));
    ran_done(&ran);
}

static void wrong_options_are_refused(void **state) {
    Ran ran = program_run("verify", "--html", "/tmp");
    assert_int_equal(ran.code, 2);
    assert_non_null(strstr(ran.err, "--html /tmp is a directory"));
    ran_done(&ran);
    ran = program_run("verify", "--time", "0");
    assert_int_equal(ran.code, 2);
    ran_done(&ran);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank), cmocka_unit_test(several_ranks), cmocka_unit_test(damaged_rank_is_named),
        cmocka_unit_test(result_survives_its_page), cmocka_unit_test(wrong_options_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
