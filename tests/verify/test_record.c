/* Comparing a trial with a record. */
#include "test.h"

#include <math.h>

#include "device/registry.h"
#include "verify/record.h"

/* Replaces an element of a unit's first parameter, with another one after it. */
static void spoil(Trial *trial, int unit, float value) {
    Store *store = trial->runner->params;
    Values values = store_values(store, unit, 1);
    CLEANUP(mem_freep) float *staging = NULL;
    float *fresh;
    assert_ok(values_space(trial->runner->stream, values, 1, &staging, &fresh));
    *fresh = value;
    assert_ok(values_set(trial->runner->stream, values, 1, staging));
}

/* The last weights of a trial, one of which is not a number, are compared with those of a record. Neither the
 * elements and parameters after it nor other ranks hide it. */
static void not_a_number_is_the_largest_difference(void **state) {
    (void)state;
    CLEANUP(device_freep) Device *cpu = NULL;
    CLEANUP(trial_record_done) Record record = {0};
    CLEANUP(trial_done) Trial trial = {0};
    const TrialSpec spec = {.mesh = {.dp = 1, .tp = 1, .pp = 1}, .micro_batch = 2};
    const KernelTable *table;
    assert_ok(device_new_cpu(&cpu, 1));
    assert_ok(kernels_find("cpu", &table));
    assert_ok(trial_record(&record, &spec, table, cpu, false, NULL));
    assert_ok(trial_new(&trial, &spec, table, cpu, NULL));
    for (int step = 0; step < RECORD_STEPS; step++) {
        StepResult result;
        assert_ok(trial_gradients(&trial, step, &result));
        assert_ok(trial_update(&trial, step, &result));
    }
    Diff good = {.param = {-1, -1, -1, -1}}, bad = good;
    assert_ok(record_compare_weights(&record, &trial, RECORD_STEPS - 1, &good));
    assert_false(good.exceeded);
    spoil(&trial, 0, NAN);
    assert_ok(record_compare_weights(&record, &trial, RECORD_STEPS - 1, &bad));
    assert_true(bad.exceeded);
    assert_int_equal(bad.first, DIFF_WEIGHT);
    assert_true(isnan(bad.of[DIFF_WEIGHT]));
    assert_int_equal(bad.param[DIFF_WEIGHT], 0);
    diff_add(&bad, &good);
    assert_true(isnan(bad.of[DIFF_WEIGHT]));
    diff_add(&good, &bad);
    assert_true(isnan(good.of[DIFF_WEIGHT]) && good.exceeded);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_a_number_is_the_largest_difference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
