/* Comparing a trial with a record. */
#include "test.h"

#include <math.h>

#include "device/registry.h"
#include "verify/record.h"

typedef struct Compared {
    Device *cpu;
    Record record;
    Trial trial;
} Compared;

/* A record, and the same trial after its last step. */
static void compared_new(Compared *ret) {
    const TrialSpec spec = {.mesh = {.dp = 1, .tp = 1, .pp = 1}, .micro_batch = 2};
    const KernelTable *table;
    *ret = (Compared){0};
    assert_ok(device_new_cpu(&ret->cpu, 1));
    assert_ok(kernels_find("cpu", &table));
    assert_ok(trial_record(&ret->record, &spec, table, ret->cpu, false, NULL));
    assert_ok(trial_new(&ret->trial, &spec, table, ret->cpu, NULL));
    for (int step = 0; step < RECORD_STEPS; step++) {
        StepResult result;
        assert_ok(trial_step(&ret->trial, step, NULL, NULL, &result));
    }
}

static void compared_done(Compared *compared) {
    trial_done(&compared->trial);
    trial_record_done(&compared->record);
    device_free(compared->cpu);
}

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
    CLEANUP(compared_done) Compared compared;
    compared_new(&compared);
    const Record *record = &compared.record;
    Trial *trial = &compared.trial;
    Diff good = DIFF_NONE, bad = good;
    assert_ok(record_compare_update(record, trial, RECORD_STEPS - 1, &good));
    assert_false(good.exceeded);
    spoil(trial, 0, NAN);
    assert_ok(record_compare_update(record, trial, RECORD_STEPS - 1, &bad));
    assert_true(bad.exceeded);
    assert_int_equal(bad.first, DIFF_WEIGHT);
    assert_true(isnan(bad.of[DIFF_WEIGHT]));
    assert_string_equal(model_param_name(trial->model, bad.param[DIFF_WEIGHT]),
                        trial->runner->params->unit[0].slot[0].desc.name);
    diff_add(&bad, &good);
    assert_true(isnan(bad.of[DIFF_WEIGHT]));
    diff_add(&good, &bad);
    assert_true(isnan(good.of[DIFF_WEIGHT]) && good.exceeded);
}

/* Momentum that is 1% too large changes a weight by less than rounding errors of its gradient may. */
static void states_are_compared(void **state) {
    CLEANUP(compared_done) Compared compared;
    compared_new(&compared);
    Store *momentum = compared.trial.runner->state[0];
    float *values = momentum->flat[1].data;
    for (int64_t i = 0; i < momentum->count[1]; i++) values[i] *= 1.01f;
    Diff diff = DIFF_NONE;
    assert_ok(record_compare_update(&compared.record, &compared.trial, RECORD_STEPS - 1, &diff));
    assert_true(diff.exceeded);
    assert_int_equal(diff.first, DIFF_STATE);
    assert_true(diff.of[DIFF_STATE] > 0.009 && diff.of[DIFF_STATE] < 0.011);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_a_number_is_the_largest_difference),
                                       cmocka_unit_test(states_are_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
