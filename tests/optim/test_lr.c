/* Tests learning rate schedules against values computed by hand. */
#include "optim/lr.h"

#include <math.h>

#include "test.h"

static void follows(const LrSchedule *schedule, const double *expected, int64_t count) {
    for (int64_t i = 0; i < count; i++) assert_float_equal(lr_at(schedule, i + 1), expected[i], 1e-12);
}
#define assert_follows(schedule, ...)                                                                        \
    follows(schedule, (const double[]){__VA_ARGS__},                                                         \
            (int64_t)(sizeof(const double[]){__VA_ARGS__} / sizeof(double)))

/* The rate reaches its floor one step after the last and stays there. */
static void linear(void **state) {
    LrSchedule plain = {.kind = LR_LINEAR, .peak = 1, .floor = 0, .steps = 4};
    assert_follows(&plain, 0.8, 0.6, 0.4, 0.2, 0, 0, 0);
    LrSchedule floored = {.kind = LR_LINEAR, .peak = 1, .floor = 0.5, .warmup = 2, .steps = 5};
    assert_follows(&floored, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.5);
}

static void cosine(void **state) {
    LrSchedule plain = {.kind = LR_COSINE, .peak = 1, .floor = 0, .steps = 5};
    /* 0.5 (1 + cos(k pi / 6)) */
    assert_follows(&plain, 0.9330127018922193, 0.75, 0.5, 0.25, 0.06698729810778066, 0, 0);
    LrSchedule floored = {.kind = LR_COSINE, .peak = 3, .floor = 1, .warmup = 3, .steps = 5};
    assert_follows(&floored, 1, 2, 3, 2.5, 1.5, 1, 1);
}

static void constant(void **state) {
    LrSchedule schedule = {.kind = LR_CONSTANT, .peak = 2, .floor = 1, .warmup = 4, .steps = 6};
    assert_follows(&schedule, 0.5, 1, 1.5, 2, 2, 2, 2);
}

/* Warm-up, a constant rate, and a decay over the last steps, in three shapes. */
static void stable_then_decay(void **state) {
    LrSchedule schedule = {.kind = LR_WSD, .peak = 4, .floor = 0, .warmup = 2, .decay = 3, .steps = 8};
    assert_follows(&schedule, 2, 4, 4, 4, 4, 3, 2, 1);
    schedule.floor = 2;
    assert_follows(&schedule, 2, 4, 4, 4, 4, 3.5, 3, 2.5);
    schedule = (LrSchedule){.kind = LR_WSD, .decay_type = DECAY_SQRT, .peak = 4, .decay = 3, .steps = 4};
    assert_follows(&schedule, 4, 2, 4 - 4 * sqrt(0.5), 4 - 4 * sqrt(0.75));
    schedule.decay_type = DECAY_COSINE;
    assert_follows(&schedule, 4, 2 + sqrt(2), 2, 2 - sqrt(2));
    schedule.decay = 0;
    assert_follows(&schedule, 4, 4, 4, 4);
    LrDecay type = DECAY_LINEAR;
    assert_ok(lr_parse_decay("1-sqrt", &type));
    assert_int_equal(type, DECAY_SQRT);
    assert_fails(lr_parse_decay("sqrt", &type), 2, "expected linear, 1-sqrt or cosine");
    assert_int_equal(type, DECAY_SQRT);
}

/* What get_scheduler of transformers 5.23 gives the steps of a run. */
static void transformers(void **state) {
    LrSchedule s = {.kind = LR_LINEAR, .peak = 4, .warmup = 2, .steps = 6, .from_zero = true};
    assert_follows(&s, 0, 2, 4, 3, 2, 1);
    s.kind = LR_COSINE;
    assert_follows(&s, 0, 2, 4, 3.414213562373095, 2, 0.5857864376269051);
    s.floor = 1;
    assert_follows(&s, 0, 2, 4, 3.560660171779821, 2.5, 1.439339828220179);
    s.kind = LR_CONSTANT;
    assert_follows(&s, 0, 2, 4, 4);
    s = (LrSchedule){.kind = LR_CONSTANT, .peak = 4, .steps = 3, .from_zero = true};
    assert_follows(&s, 4, 4, 4);
    s = (LrSchedule){.kind = LR_LINEAR, .peak = 4, .steps = 4, .from_zero = true};
    assert_follows(&s, 4, 3, 2, 1);
    s = (LrSchedule){.kind = LR_LINEAR, .peak = 4, .warmup = 5, .steps = 3, .from_zero = true};
    assert_follows(&s, 0, 0.8, 1.6);
    s = (LrSchedule){
        .kind = LR_WSD, .peak = 4, .floor = 1, .warmup = 2, .decay = 3, .steps = 8, .from_zero = true};
    s.decay_type = DECAY_COSINE;
    assert_follows(&s, 1, 2.5, 4, 4, 4, 4, 3.25, 1.75);
    s = (LrSchedule){.kind = LR_WSD, .peak = 4, .warmup = 1, .decay = 4, .steps = 7, .from_zero = true};
    s.decay_type = DECAY_SQRT;
    assert_follows(&s, 0, 4, 4, 4, 2, 1.17157287525381, 0.5358983848622456);
    s.decay_type = DECAY_COSINE;
    s.warmup = 0;
    assert_follows(&s, 4, 4, 4, 4, 3.414213562373095, 2, 0.5857864376269051);
    s.warmup_type = WARMUP_LOG;
    s.warmup = 2;
    assert_float_equal(lr_at(&s, 1), 0, 1e-12);
}

static void log_warmup(void **state) {
    LrSchedule schedule = {
        .kind = LR_CONSTANT, .warmup_type = WARMUP_LOG, .peak = 3, .warmup = 8, .steps = 9};
    /* log(s) / log(8) = log2(s) / 3. */
    assert_follows(&schedule, 0, 1, log2(3), 2, log2(5), log2(6), log2(7), 3, 3);
    schedule.kind = LR_LINEAR;
    assert_float_equal(lr_at(&schedule, 9), 1.5, 1e-12);
}

/* Without warm-up, or with a single warm-up step, every kind starts at the peak. */
static void short_warmups(void **state) {
    for (int64_t warmup = 0; warmup < 2; warmup++)
        for (int type = WARMUP_LINEAR; type <= WARMUP_LOG; type++) {
            LrSchedule schedule = {
                .kind = LR_CONSTANT, .warmup_type = (LrWarmup)type, .peak = 7, .warmup = warmup, .steps = 3};
            assert_follows(&schedule, 7, 7, 7);
        }
    LrSchedule whole = {.kind = LR_COSINE, .peak = 1, .warmup = 2, .steps = 2};
    assert_follows(&whole, 0.5, 1);
}

static void names(void **state) {
    LrKind kind = LR_LINEAR;
    assert_ok(lr_parse("cosine", &kind));
    assert_int_equal(kind, LR_COSINE);
    assert_fails(lr_parse("step", &kind), 2, "expected linear, cosine, constant or wsd");
    assert_int_equal(kind, LR_COSINE);
    LrWarmup type = WARMUP_LINEAR;
    assert_ok(lr_parse_warmup("log", &type));
    assert_int_equal(type, WARMUP_LOG);
    assert_fails(lr_parse_warmup("exp", &type), 2, "expected linear or log");
    assert_int_equal(type, WARMUP_LOG);
    assert_ok(lr_parse_warmup(NULL, &type));
    assert_int_equal(type, WARMUP_LINEAR);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),        cmocka_unit_test(cosine),
        cmocka_unit_test(constant),      cmocka_unit_test(stable_then_decay),
        cmocka_unit_test(log_warmup),    cmocka_unit_test(transformers),
        cmocka_unit_test(short_warmups), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
