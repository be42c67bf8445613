/* The same run in any layout: every legal mix of data, tensor and pipeline ranks with ZeRO stages,
 * schedules and recomputation gives the losses of one rank, step by step, and the same weights, from the
 * same seed, with dropout, accumulation and clipping.
 *
 * The matrix is generated. By itself each number of ranks runs a sample of it that differs from layout to
 * layout so that all values of all axes come up; WEFT_TEST_ALL=1 runs all of it.
 * Ranks: 1 2 4 8 */
#include <math.h>

#include "train/layouts.h"

enum { STEPS = 20, REFERENCE_MICRO = 2 };

static double apart(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* What adds to all keys, or to all places among which a span is chosen, changes nothing: its gradient is
 * rounding, of which Adam makes full steps. */
static bool gradient_is_rounding(const Outcome *outcome, const char *name) {
    bool span = outcome->model->config.outputs_mask == OUTPUT_SPAN;
    return strstr(name, "qkv.bias") || strstr(name, "span.bias") ||
           (span && strcmp(name, "layer.5.norm2.bias") == 0);
}

/* The largest difference of the weights that this rank updates from those of one rank, relative to the
 * parameter's largest element. */
static double weights_apart(const Outcome *found, const Outcome *expected, const char **ret_name) {
    const Store *part = found->runner->params, *all = expected->runner->params;
    double most = 0;
    for (int i = 0; i < found->model->units; i++)
        for (size_t j = 0; part->count[i] && j < part->unit[i].count; j++) {
            const ParamSlot *slot = &part->unit[i].slot[j], *whole = &all->unit[i].slot[j];
            const float *global = (float *)all->flat[i].data + whole->offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[i], part->count[i], &from, &count)) continue;
            const float *local = (float *)part->flat[i].data + (slot->offset + from - part->first[i]);
            double largest = 1e-3, worst = 0;
            for (int64_t k = 0; k < whole->count; k++)
                if (fabsf(global[k]) > largest) largest = fabsf(global[k]);
            for (int64_t at = from; at < from + count;) {
                ParamRun piece = slot_run(slot, at, from + count - at);
                for (int64_t k = 0; k < piece.count; k++) {
                    double should = piece.global < 0 ? 0 : global[piece.global + k];
                    double off = fabs(local[at - from + k] - should);
                    if (!(off <= worst)) worst = off;
                }
                at += piece.count;
            }
            bool idle = gradient_is_rounding(found, slot->desc.name);
            if (!idle && worst > most * largest) most = worst / largest, *ret_name = slot->desc.name;
        }
    return most;
}

static Outcome references[JOBS];

static const Outcome *reference(JobKind job) {
    if (!references[job].runner)
        references[job] = run(NULL, &(Layout){.job = job, .micro_batch = REFERENCE_MICRO}, STEPS);
    return &references[job];
}

static void check(Group *world, const Layout *layout) {
    const Outcome *expected = reference(layout->job);
    CLEANUP(outcome_done) Outcome found = run(world, layout, STEPS);
    for (int step = 0; step < STEPS; step++)
        if (!(apart(found.loss[step], expected->loss[step]) <= 1e-5) ||
            !(apart(found.norm[step], expected->norm[step]) <= 1e-3))
            fail_msg("%s: step %d: loss %.9g, norm %.9g; one rank has %.9g, %.9g", layout_text(layout),
                     step + 1, found.loss[step], found.norm[step], expected->loss[step],
                     expected->norm[step]);
    bool same = layout->micro_batch == REFERENCE_MICRO && found.mesh->at[AXIS_DP] == 0;
    for (int step = 0; same && step < STEPS; step++)
        if (!(apart(found.micro_norm[step], expected->micro_norm[step]) <= 1e-3))
            fail_msg("%s: step %d: the first micro-batch's norm is %.9g; one rank has %.9g",
                     layout_text(layout), step + 1, found.micro_norm[step], expected->micro_norm[step]);
    if (!(apart(found.eval, expected->eval) <= 1e-5))
        fail_msg("%s: evaluation gives %.9g, on one rank %.9g", layout_text(layout), found.eval,
                 expected->eval);
    const char *name = "";
    double most = weights_apart(&found, expected, &name);
    if (!(most <= 1e-4)) fail_msg("%s: %s is %g apart", layout_text(layout), name, most);
}

/* The schedules that a number of stages allows. */
static int schedules_of(int pp, Layout out[8]) {
    int count = 0;
    if (pp == 1) {
        out[count++] = (Layout){.schedule = SCHEDULE_1F1B, .chunks = 1};
        return count;
    }
    out[count++] = (Layout){.schedule = SCHEDULE_1F1B, .chunks = 1};
    out[count++] = (Layout){.schedule = SCHEDULE_GPIPE, .chunks = 1};
    out[count++] = (Layout){.schedule = SCHEDULE_ZERO_BUBBLE, .chunks = 1};
    if (pp * 2 <= 8) out[count++] = (Layout){.schedule = SCHEDULE_INTERLEAVED, .chunks = 2};
    return count;
}

typedef struct Matrix {
    Group *world;
    bool all;
    unsigned turn;
    int done, legal;
} Matrix;

/* All values of the other axes for one grid; of those, a sample steps through them with a stride that
 * shares no factor with their number. */
static void over_options(Matrix *matrix, MeshSpec mesh, JobKind job) {
    Layout schedules[8];
    int kinds = schedules_of(mesh.pp, schedules);
    int tried = 0, wanted = matrix->all ? 1 << 20 : mesh.dp * mesh.tp * mesh.pp == 8 ? 1 : 3;
    int options = kinds * 4 * 3 * 2 * 2;
    for (int k = 0; k < options && tried < wanted; k++) {
        int at = matrix->all ? k : (int)((matrix->turn++ * 29 + 7) % (unsigned)options);
        Layout layout = schedules[at % kinds];
        layout.job = job;
        layout.mesh = mesh;
        layout.zero = at / kinds % 4;
        layout.recompute = (Recompute)(at / kinds / 4 % 3);
        layout.sequence = at / kinds / 12 % 2;
        layout.micro_batch = 1 + at / kinds / 24 % 2;
        layout.keep = layout.zero == 3 && at % 2;
        int micros = BATCH / mesh.dp / layout.micro_batch;
        if (micros < 1 || (layout.sequence && mesh.tp == 1)) continue;
        if (layout.schedule == SCHEDULE_INTERLEAVED && micros % mesh.pp) continue;
        matrix->legal++;
        tried++;
        check(matrix->world, &layout);
        matrix->done++;
    }
}

static void test_matrix(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Matrix matrix = {.world = world, .all = getenv("WEFT_TEST_ALL") != NULL};
    for (int job = 0; job < JOBS; job++)
        for (int dp = 1; dp <= 4; dp *= 2)
            for (int tp = 1; tp <= 4; tp *= 2)
                for (int pp = 1; pp <= 4; pp *= 2)
                    if (dp * tp * pp == world->size)
                        over_options(&matrix, (MeshSpec){.dp = dp, .tp = tp, .pp = pp}, (JobKind)job);
    if (world->rank == 0) print_message("%d layouts\n", matrix.done);
    for (int job = 0; job < JOBS; job++) {
        outcome_done(&references[job]);
        references[job] = (Outcome){0};
    }
}

/* At the same size of the data axis the ZeRO stages agree in every bit, and so do the ways to recompute. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.job = JOB_GPT2, .mesh = {.dp = world->size, .tp = 1, .pp = 1}, .chunks = 1};
    layout.micro_batch = BATCH / world->size;
    CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS);
    for (int zero = 0; zero <= 3; zero++)
        for (int recompute = 0; recompute <= 2; recompute++) {
            layout.zero = zero;
            layout.recompute = (Recompute)recompute;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            assert_memory_equal(found.loss, first.loss, STEPS * sizeof *found.loss);
            assert_memory_equal(found.norm, first.norm, STEPS * sizeof *found.norm);
            const char *name = "";
            assert_true(weights_apart(&found, &first, &name) == 0);
        }
}

/* Where the state lies changes no bit, and what is offloaded takes nothing of the device. */
static void test_offload(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.job = JOB_GPT2, .mesh = {.dp = world->size, .tp = 1, .pp = 1}, .chunks = 1};
    layout.micro_batch = BATCH / world->size;
    for (int dtype = DT_F32; dtype <= DT_BF16; dtype++) {
        layout.dtype = (DType)dtype;
        layout.zero = 0;
        layout.offload = OFFLOAD_NONE;
        CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS);
        size_t state_before = first.device->mem[MEM_OPTIMIZER].current;
        size_t params_before = first.device->mem[MEM_PARAMS].current;
        for (int k = 0; k < 6; k++) {
            layout.offload = k % 2 ? OFFLOAD_PARAMS : OFFLOAD_OPTIMIZER;
            layout.zero = k / 2 * 3 / 2; /* 0, 1, 3 */
            layout.keep = k == 5;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            assert_memory_equal(found.loss, first.loss, STEPS * sizeof *found.loss);
            const char *name = "";
            assert_true(weights_apart(&found, &first, &name) == 0);
            /* A test's GPU holds what both have. */
            bool both = found.device == first.device;
            const MemStat *mem = found.device->mem;
            size_t moments = mem[MEM_OPTIMIZER].current - (both ? state_before : 0);
            size_t params = mem[MEM_PARAMS].current - (both ? params_before : 0);
            assert_true(moments < 1000); /* the norm's sums */
            if (k % 2) assert_true(params < params_before);
        }
    }
}

/* Shard within pairs, replicate across them. */
static void test_hybrid(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size < 4) skip();
    for (int zero = 1; zero <= 3; zero++) {
        Layout layout = {.job = JOB_GPT2,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1, .shard = 2},
                         .zero = zero,
                         .chunks = 1,
                         .micro_batch = 1};
        check(world, &layout);
    }
    outcome_done(&references[JOB_GPT2]);
    references[JOB_GPT2] = (Outcome){0};
}

enum { STEPS_STILL = 9, STEPS_ROUNDED = 6, NUDGES = 2 };

/* The largest difference over some steps. */
static double drift(const Outcome *found, const Outcome *expected, int steps) {
    double most = 0;
    for (int step = 0; step < steps; step++)
        most = fmax(most, apart(found->loss[step], expected->loss[step]));
    return most;
}

/* How far a run of one rank drifts from itself when its weights begin off by last bits; so few steps may
 * have no number that falls to another side. */
static double drift_of_nudged(Layout alone, const Outcome *expected) {
    double most = 2.5e-4;
    for (alone.nudge = 1; alone.nudge <= NUDGES; alone.nudge++) {
        CLEANUP(outcome_done) Outcome nudged = run(NULL, &alone, STEPS_ROUNDED);
        most = fmax(most, drift(&nudged, expected, STEPS_ROUNDED));
    }
    return most;
}

/* Losses of the first weights over several batches. Other scales would change them all by 1e-5 to 2e-3; the
 * order of a sum changes only those in which a number lies just between two steps, by a step. */
static void check_scales(Group *world, Layout layout, const Outcome *expected) {
    layout.still = true;
    CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_STILL);
    int agree = 0;
    for (int step = 0; step < STEPS_STILL; step++)
        agree += apart(found.loss[step], expected->loss[step]) <= 1e-6;
    double most = drift(&found, expected, STEPS_STILL);
    if (agree < STEPS_STILL / 3 || !(most <= 5e-4))
        fail_msg("%s: rounded to %d: of %d batches %d have one rank's loss, the others are up to %g apart",
                 layout_text(&layout), layout.round, STEPS_STILL, agree, most);
}

/* Training that gets used to quantization rounds with the same scales in any layout. A number that lies
 * just between two steps falls to either side by the order of a sum, so that runs drift apart from then on,
 * as far as a run of one rank does from itself when its weights begin off by last bits. */
static void test_rounded(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int n = world->size;
    const MeshSpec grids[] = {
        {.dp = n, .tp = 1, .pp = 1}, {.dp = 1, .tp = n, .pp = 1}, {.dp = 1, .tp = 1, .pp = n}};
    if (n > 2) skip();
    for (int at = 0; at < 4; at++) {
        Layout alone = {.job = at % 2 ? JOB_BERT : JOB_GPT2, .micro_batch = 2, .wide = true};
        CLEANUP(outcome_done) Outcome plain = run(NULL, &alone, 1);
        alone.round = at / 2 ? ROUND_INT4 : ROUND_INT8;
        CLEANUP(outcome_done) Outcome expected = run(NULL, &alone, STEPS_ROUNDED);
        double allowed = 4 * drift_of_nudged(alone, &expected);
        alone.still = true;
        CLEANUP(outcome_done) Outcome still = run(NULL, &alone, STEPS_STILL);
        alone.still = false;
        assert_true(apart(expected.loss[0], plain.loss[0]) > 1e-6);
        assert_true(apart(expected.loss[0], plain.loss[0]) < 0.02);
        for (int g = 0; g < 3; g++) {
            Layout layout = alone;
            layout.mesh = grids[g];
            layout.chunks = 1;
            layout.zero = g ? at % 4 : 3;
            layout.recompute = (Recompute)((g + at) % 3);
            layout.schedule = at % 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            layout.sequence = g == 1 && at < 2;
            check_scales(world, layout, &still);
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_ROUNDED);
            double most = drift(&found, &expected, STEPS_ROUNDED);
            if (!(most <= allowed))
                fail_msg("%s: rounded to %d: losses are up to %g apart, of one rank %g", layout_text(&layout),
                         layout.round, most, allowed / 4);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_matrix), cmocka_unit_test(test_bits),    cmocka_unit_test(test_rounded),
    cmocka_unit_test(test_hybrid), cmocka_unit_test(test_offload),
};

RANKS_MAIN(tests)
