/* Mixed precision: bf16 and fp16 training follows the losses of fp32, and fp8 training those of bf16. Every
 * layout gives the same run within rounding. If gradients overflow on any rank, all ranks skip the step.
 * Ranks: 1 2 4 */
#include <math.h>

#include "train/layouts.h"

/* Largest relative rounding error. bf16 has 8 significand bits, fp16 has 11. */
static double rounding(DType dtype) {
    return dtype == DT_BF16 ? 1.0 / 512 : 1.0 / 4096;
}

static const DType types[] = {DT_BF16, DT_F16};

static double relative_diff(double a, double b) {
    return fabs(a - b) / fabs(b);
}

/* Mean over WINDOW_STEPS steps: the loss of a single step of eight short sequences is too noisy. */
enum { WINDOW_STEPS = 20 };
static double mean_loss(const Outcome *outcome, int first) {
    double sum = 0;
    for (int step = first; step < first + WINDOW_STEPS; step++) sum += outcome->loss[step];
    return sum / WINDOW_STEPS;
}

/* Over 200 steps from the same start, windowed mean losses stay within 1% of fp32. */
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
                if (!(relative_diff(mean_loss(&found, first), mean_loss(&exact, first)) <= 0.01))
                    fail_msg("%s: from step %d: mean loss %g, with fp32 %g", layout_text(&layout), first + 1,
                             mean_loss(&found, first), mean_loss(&exact, first));
        }
    }
}

/* A different summation order changes some activations by one rounding error. A loss is the mean of only a
 * few terms, so it may change by about as much. */
static void test_layouts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 6 };
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n}};
    for (int k = 0; k < 2; k++) {
        Layout alone[JOBS];
        Outcome expected[JOBS];
        for (int job = 0; job < JOBS; job++)
            alone[job] = (Layout){.job = (JobKind)job, .micro_batch = 2, .dtype = types[k]};
        run_alone(world, alone, JOBS, STEPS, expected);
        for (int job = 0; job < JOBS; job++) {
            for (int g = 0; g < 3; g++) {
                Layout layout = alone[job];
                layout.mesh = grids[g];
                layout.chunks = 1;
                layout.schedule = SCHEDULE_1F1B;
                layout.zero = (g + k + job) % 4;
                layout.sequence = g == 1 && job % 2;
                CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
                for (int step = 0; step < STEPS; step++)
                    if (!(relative_diff(found.loss[step], expected[job].loss[step]) <=
                          2 * rounding(types[k])))
                        fail_msg("%s: step %d: loss %.7g, on one rank %.7g", layout_text(&layout), step + 1,
                                 found.loss[step], expected[job].loss[step]);
            }
            outcome_done(&expected[job]);
        }
    }
}

/* The same with heads that are wide enough for 16-bit attention kernels. Recomputation changes no bit. */
static void test_wide_heads(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 6, WIDE_JOBS = 2 };
    int n = world->size;
    Layout alone[WIDE_JOBS];
    Outcome expected[WIDE_JOBS];
    for (int job = 0; job < WIDE_JOBS; job++)
        alone[job] = (Layout){
            .job = job ? JOB_BERT : JOB_GPT2, .micro_batch = 2, .dtype = DT_BF16, .wide_heads = true};
    run_alone(world, alone, WIDE_JOBS, STEPS, expected);
    for (int job = 0; job < WIDE_JOBS; job++) {
        for (int g = 0; g < 3; g++) {
            Layout layout = alone[job];
            layout.mesh = (MeshSpec){.dp = g == 1 ? 1 : n, .tp = g == 1 ? n : 1, .pp = 1};
            layout.chunks = 1;
            layout.schedule = SCHEDULE_1F1B;
            layout.recompute = g == 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            for (int step = 0; step < STEPS; step++)
                if (!(relative_diff(found.loss[step], expected[job].loss[step]) <= 2 * rounding(DT_BF16)) ||
                    (n == 1 && found.norm[step] != expected[job].norm[step]))
                    fail_msg("%s: step %d: loss %.7g, on one rank %.7g", layout_text(&layout), step + 1,
                             found.loss[step], expected[job].loss[step]);
        }
        outcome_done(&expected[job]);
    }
}

/* For a given data-parallel size, all ZeRO stages give the same bits in 16-bit training too. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 4 };
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

/* With fp8 GEMMs, in every layout, losses stay within 2% of bf16 but are not identical to it. */
static void test_fp8_follows_bf16(void **state) {
    Group *world = ((Ranks *)*state)->world;
    const int steps = world->size == 1 ? 20 : 8; /* the longer run covers how errors grow */
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n}};
    for (int job = 0; job < JOB_SPAN; job++) {
        Layout alone = {.job = (JobKind)job, .micro_batch = 2, .dtype = DT_BF16, .wide = true};
        CLEANUP(outcome_done) Outcome expected;
        run_alone(world, &alone, 1, steps, &expected);
        for (int g = 0; g < 3; g++) {
            if (g == 2 && n != 2) continue; /* the model has 2 layers, and one rank has no stages */
            Layout layout = alone;
            layout.fp8 = true;
            layout.fp8_scaling = (g + job) % 2 ? FP8_DELAYED : FP8_EXACT;
            layout.fp8_head = g < 2;
            layout.mesh = grids[g];
            layout.chunks = 1;
            layout.schedule = g == 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            layout.sequence = g == 1 && job % 2;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, steps);
            assert_true(found.loss[0] != expected.loss[0]);
            for (int step = 0; step < steps; step++)
                if (!(relative_diff(found.loss[step], expected.loss[step]) <= 0.02))
                    fail_msg("%s: step %d: loss %.7g, with bf16 %.7g", layout_text(&layout), step + 1,
                             found.loss[step], expected.loss[step]);
        }
    }
}

/* Delayed scaling: the first step is that of exact scaling, later ones are not. Afterwards all ranks have the
 * same scales, and those that follow from amax over the whole batch and all ranks differ from those of one
 * rank by at most one power of two, where rounding moves an amax. */
static void test_fp8_delayed(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 3, SLOTS = 3 * FP8_SLOTS };
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n > 2 ? 2 : n}};
    Layout alone = {.job = JOB_GPT2, .micro_batch = 2, .dtype = DT_BF16, .wide = true, .fp8 = true};
    alone.fp8_head = true;
    CLEANUP(outcome_done) Outcome exact = run(NULL, &alone, STEPS);
    alone.fp8_scaling = FP8_DELAYED;
    CLEANUP(outcome_done) Outcome delayed = run(NULL, &alone, STEPS);
    assert_true(delayed.loss[0] == exact.loss[0] && delayed.norm[0] == exact.norm[0]);
    assert_true(delayed.norm[1] != exact.norm[1]);
    for (int g = 0; g < (n > 2 ? 2 : 3); g++) {
        Layout layout = alone;
        layout.mesh = grids[g];
        layout.chunks = 1;
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
        for (int i = 0; i < SLOTS; i++) {
            double here = log2(found.runner->fp8.host_scale[i]), most = here;
            assert_ok(host_reduce(world, &most, 1, DT_F64, REDUCE_MAX));
            assert_true(here == most);
            if (!(fabs(here - log2(delayed.runner->fp8.host_scale[i])) <= 1))
                fail_msg("%s: scale %d is 2^%g, on one rank 2^%g", layout_text(&layout), i, here,
                         log2(delayed.runner->fp8.host_scale[i]));
        }
    }
}

static void copy_store(Store *to, const Store *from) {
    for (int i = 0; i < to->model->units; i++) {
        CLEANUP(mem_freep) float *values = unit_values(from, i);
        unit_set_values(to, i, values);
    }
}

/* Trains steps first .. last - 1, all micro-batches on this rank. */
static void continue_run(Outcome *outcome, const Layout *layout, int first, int last) {
    int count = BATCH / layout->micro_batch;
    for (int step = first; step < last; step++) {
        HostBatch *micro[BATCH];
        StepResult result;
        assert_ok(trial_micros(&outcome->trial, 0, step, micro));
        assert_ok(runner_step(outcome->runner, micro, count,
                              &(StepSpec){.number = step + 1, .lr = trial_lr(layout)}, &result));
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
        outcome->norm[step] = result.grad_norm;
    }
    assert_ok(stream_sync(outcome->runner->stream));
}

/* With its scales, a run of delayed scaling continues with the same bits; without them, it scales exactly. */
static void test_fp8_resume(void **state) {
    enum { STEPS = 4, HALF = 2 };
    if (((Ranks *)*state)->world->size > 1) skip();
    Layout layout = {.job = JOB_GPT2, .micro_batch = 4, .dtype = DT_BF16, .wide = true, .fp8 = true};
    layout.fp8_scaling = FP8_DELAYED;
    CLEANUP(outcome_done) Outcome whole = run(NULL, &layout, STEPS);
    CLEANUP(outcome_done) Outcome first = run(NULL, &layout, HALF);
    CLEANUP(json_decrefp) json_t *progress = json_object();
    assert_ok(runner_fp8_save(first.runner, progress));
    for (int with = 0; with < 2; with++) {
        CLEANUP(outcome_done) Outcome second = run_new(NULL, &layout);
        assert_ok(stream_sync(second.runner->stream));
        copy_store(second.runner->params, first.runner->params);
        for (int k = 0; k < optim_states(&second.runner->spec.optim); k++)
            copy_store(second.runner->state[k], first.runner->state[k]);
        assert_ok(runner_publish(second.runner));
        if (with) assert_ok(runner_fp8_load(second.runner, "progress", progress));
        continue_run(&second, &layout, HALF, STEPS);
        bool equal = !memcmp(second.norm + HALF, whole.norm + HALF, HALF * sizeof *second.norm);
        assert_true(equal == with);
    }
    assert_int_equal(json_array_clear(json_object_get(progress, "fp8_scales")), 0);
    assert_fails(runner_fp8_load(first.runner, "progress", progress), 1, "fp8_scales has 0 elements");
}

/* Quantized inputs give the same bits whether they are stored or recomputed. */
static void test_fp8_recompute(void **state) {
    Group *world = ((Ranks *)*state)->world;
    enum { STEPS = 5 };
    if (world->size > 1) skip();
    for (int job = 0; job < JOB_SPAN; job++) {
        Layout layout = {.job = (JobKind)job, .micro_batch = BATCH, .dtype = DT_BF16, .wide = true};
        layout.fp8 = true;
        layout.fp8_scaling = job % 2 ? FP8_EXACT : FP8_DELAYED;
        CLEANUP(outcome_done) Outcome kept = run(NULL, &layout, STEPS);
        for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_BLOCK; mode++) {
            layout.recompute = (Recompute)mode;
            CLEANUP(outcome_done) Outcome again = run(NULL, &layout, STEPS);
            assert_memory_equal(again.loss, kept.loss, STEPS * sizeof *kept.loss);
            assert_memory_equal(again.norm, kept.norm, STEPS * sizeof *kept.norm);
        }
    }
}

/* A loss scale that is too large is halved until gradients fit, by all ranks in the same steps. Then training
 * continues. */
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
    int64_t skips = 0, max_skips;
    for (int step = 0; step < STEPS; step++) skips += found.skipped[step];
    max_skips = skips;
    assert_ok(host_reduce(world, &max_skips, 1, DT_I64, REDUCE_MAX));
    assert_int_equal(skips, max_skips);
    assert_true(found.runner->loss_scale.scale == 16777216 / pow(2, (double)skips));
    layout.loss_scale = 0;
    CLEANUP(outcome_done) Outcome usual = run(world, &layout, STEPS);
    for (int step = 0; step < STEPS; step++) assert_false(usual.skipped[step]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_follows_fp32),  cmocka_unit_test(test_layouts),
    cmocka_unit_test(test_wide_heads),    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_overflow),      cmocka_unit_test(test_fp8_follows_bf16),
    cmocka_unit_test(test_fp8_delayed),   cmocka_unit_test(test_fp8_resume),
    cmocka_unit_test(test_fp8_recompute),
};

RANKS_MAIN(tests)
