/* Training in 16 bits, and with products of 8: it follows fp32's losses, gives the same run in any layout as
 * far as its rounding allows, and leaves out a step whose gradients overflow on any rank on all of them.
 * Ranks: 1 2 4 */
#include <math.h>

#include "train/layouts.h"

/* Half of the distance between neighbouring numbers, relative: 8 and 11 bits of significand. */
static double rounding(DType dtype) {
    return dtype == DT_BF16 ? 1.0 / 512 : 1.0 / 4096;
}

static const DType types[] = {DT_BF16, DT_F16};

static double apart(double a, double b) {
    return fabs(a - b) / fabs(b);
}

/* The mean loss of some steps: one step of eight short sequences says little. */
enum { WINDOW_STEPS = 20 };
static double mean_loss(const Outcome *outcome, int first) {
    double sum = 0;
    for (int step = first; step < first + WINDOW_STEPS; step++) sum += outcome->loss[step];
    return sum / WINDOW_STEPS;
}

/* 200 steps from the same start stay within a hundredth. */
static void test_follows_fp32(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size > 1) skip();
    for (int job = 0; job < JOBS; job++) {
        Layout layout = {.job = (JobKind)job, .micro_batch = 4};
        CLEANUP(outcome_done) Outcome exact = run(NULL, &layout, STEPS_LIMIT);
        for (int k = 0; k < 2; k++) {
            layout.dtype = types[k];
            CLEANUP(outcome_done) Outcome found = run(NULL, &layout, STEPS_LIMIT);
            for (int first = 0; first < STEPS_LIMIT; first += WINDOW_STEPS)
                if (!(apart(mean_loss(&found, first), mean_loss(&exact, first)) <= 0.01))
                    fail_msg("%s: from step %d: %g where fp32 has %g", layout_text(&layout), first + 1,
                             mean_loss(&found, first), mean_loss(&exact, first));
        }
    }
}

/* Sums in another order differ by a rounding here and there, and so do the losses: by about one rounding of
 * an activation, for each of the few that a loss is the mean of. */
static void test_layouts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 20 };
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n}};
    for (int k = 0; k < 2; k++)
        for (int job = 0; job < JOBS; job++) {
            Layout alone = {.job = (JobKind)job, .micro_batch = 2, .dtype = types[k]};
            CLEANUP(outcome_done) Outcome expected = run(NULL, &alone, STEPS);
            for (int g = 0; g < 3; g++) {
                Layout layout = alone;
                layout.mesh = grids[g];
                layout.chunks = 1;
                layout.schedule = SCHEDULE_1F1B;
                layout.zero = (g + k + job) % 4;
                layout.sequence = g == 1 && job % 2;
                CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
                for (int step = 0; step < STEPS; step++)
                    if (!(apart(found.loss[step], expected.loss[step]) <= 2 * rounding(types[k])))
                        fail_msg("%s: step %d: %.7g, one rank has %.7g", layout_text(&layout), step + 1,
                                 found.loss[step], expected.loss[step]);
            }
        }
}

/* At the same size of the data axis the ZeRO stages agree in every bit here too. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 10 };
    for (int k = 0; k < 2; k++) {
        Layout layout = {.job = JOB_BERT,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                         .chunks = 1,
                         .dtype = types[k],
                         .micro_batch = BATCH / world->size};
        CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS);
        for (layout.zero = 1; layout.zero <= 3; layout.zero++) {
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            assert_memory_equal(found.loss, first.loss, STEPS * sizeof *found.loss);
            assert_memory_equal(found.norm, first.norm, STEPS * sizeof *found.norm);
        }
    }
}

/* Products of 8 bits: the run follows bf16's, in any layout; at the start, where weights are the same, by
 * what rounding to 3 bits of fraction leaves of a mean. */
static void test_fp8_follows_bf16(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 20 };
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n}};
    for (int job = 0; job < JOB_SPAN; job++) {
        Layout alone = {.job = (JobKind)job, .micro_batch = 2, .dtype = DT_BF16, .wide = true};
        CLEANUP(outcome_done) Outcome expected = run(NULL, &alone, STEPS);
        for (int g = 0; g < 3; g++) {
            if (g == 2 && n > 2) continue; /* there are 2 layers */
            Layout layout = alone;
            layout.fp8 = true;
            layout.mesh = grids[g];
            layout.chunks = 1;
            layout.schedule = g == 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            layout.sequence = g == 1 && job % 2;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            assert_true(found.loss[0] != expected.loss[0]);
            for (int step = 0; step < STEPS; step++)
                if (!(apart(found.loss[step], expected.loss[step]) <= 0.02))
                    fail_msg("%s: step %d: %.7g, bf16 has %.7g", layout_text(&layout), step + 1,
                             found.loss[step], expected.loss[step]);
        }
    }
}

/* Inputs that are kept rounded and inputs that are rounded again are the same, and take less memory than
 * those of bf16. */
static void test_fp8_recompute(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 5 };
    if (world->size > 1) skip();
    for (int job = 0; job < JOB_SPAN; job++) {
        Layout layout = {.job = (JobKind)job, .micro_batch = BATCH, .dtype = DT_BF16, .wide = true};
        layout.fp8 = true;
        CLEANUP(outcome_done) Outcome kept = run(NULL, &layout, STEPS);
        for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_BLOCK; mode++) {
            layout.recompute = (Recompute)mode;
            CLEANUP(outcome_done) Outcome again = run(NULL, &layout, STEPS);
            assert_memory_equal(again.loss, kept.loss, STEPS * sizeof *kept.loss);
            assert_memory_equal(again.norm, kept.norm, STEPS * sizeof *kept.norm);
        }
    }
}

/* A scale that is too large is halved until gradients fit, on all ranks alike; then the run goes on. */
static void test_overflow(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 12 };
    Layout layout = {.job = JOB_GPT2,
                     .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                     .chunks = 1,
                     .dtype = DT_F16,
                     .loss_scale = 16777216,
                     .zero = 2,
                     .micro_batch = 2};
    CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
    assert_true(found.skipped[0]);
    assert_false(found.skipped[STEPS - 1]);
    int64_t skips = 0, most;
    for (int step = 0; step < STEPS; step++) skips += found.skipped[step];
    most = skips;
    assert_ok(host_reduce(world, &most, 1, DT_I64, REDUCE_MAX));
    assert_int_equal(skips, most);
    assert_true(found.runner->loss_scale.scale == 16777216 / pow(2, (double)skips));
    layout.loss_scale = 0;
    CLEANUP(outcome_done) Outcome usual = run(world, &layout, STEPS);
    for (int step = 0; step < STEPS; step++) assert_false(usual.skipped[step]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_follows_fp32),
    cmocka_unit_test(test_layouts),
    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_overflow),
    cmocka_unit_test(test_fp8_follows_bf16),
    cmocka_unit_test(test_fp8_recompute),
};

RANKS_MAIN(tests)
