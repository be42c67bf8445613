/* Frozen parameters: they keep their bits, the others get the gradients that they would have got, in every
 * layout; and backward, memory and messages end where nothing is trained.
 * Ranks: 1 2 4 */
#include "train/layouts.h"

enum { STEPS = 3, CASES = 5 };

/* Blocks from below; whole matrices and their biases in the middle; biases only; heads only; one layer. The
 * embedding matrix of these models is also the output matrix. */
static const char *const cases[CASES][TRIAL_PATTERNS] = {{"embed", "layer.[0-2]"},
                                                         {"*", "!layer.*.attn.out", "!layer.[24].norm2"},
                                                         {"*.weight", "embed.token"},
                                                         {"*", "!head"},
                                                         {"*", "!layer.4"}};

static Layout frozen_layout(int job, int at) {
    Layout layout = {.job = job, .micro_batch = 2, .chunks = 1};
    for (int i = 0; i < TRIAL_PATTERNS; i++) layout.freeze[i] = cases[at][i];
    return layout;
}

/* Without biases, nothing would be trained. */
static bool is_possible(int job, int at) {
    ModelConfig config;
    trial_config(&(Layout){.job = job}, &config);
    return at != 2 || config.biases;
}

/* What this rank updates of a parameter in two runs of the same layout; false: nothing. The units differ if
 * only one of them freezes parameters. */
static const ParamDesc *values_of(const Outcome *run, int unit, size_t at, float **ret_values) {
    *ret_values = unit_values(run->runner->params, unit);
    return &run->runner->params->unit[unit].slot[at].desc;
}

static void assert_same_values(const Outcome *found, const Outcome *expected, bool frozen) {
    const Store *own = found->runner->params, *other = expected->runner->params;
    int compared = 0;
    for (int u = 0; u < own->model->units; u++)
        for (size_t j = 0; own->count[u] && j < own->unit[u].count; j++) {
            CLEANUP(mem_freep) float *a = NULL;
            const ParamDesc *desc = values_of(found, u, j, &a);
            const ParamSlot *slot = &own->unit[u].slot[j];
            if (desc->frozen != frozen) continue;
            for (int v = 0; v < other->model->units; v++)
                for (size_t k = 0; k < other->unit[v].count; k++) {
                    const ParamSlot *twin = &other->unit[v].slot[k];
                    if (strcmp(twin->desc.name, desc->name)) continue;
                    CLEANUP(mem_freep) float *b = unit_values(other, v);
                    if (memcmp(a + slot->offset, b + twin->offset, (size_t)slot->count * sizeof *a))
                        fail_msg("%s: %s differs", layout_text(&found->trial.spec), desc->name);
                    compared++;
                }
        }
    assert_true(compared > 0);
}

/* After one step of SGD, trained parameters have the bits of a run that trains all. */
static void test_gradients(void **state) {
    Group *world = ((Ranks *)*state)->world;
    TrialJob any;
    if (world->size > 1) skip();
    for (int job = 0; trial_job(job, &any); job++)
        for (int at = 0; at < CASES; at++) {
            if (!is_possible(job, at)) continue;
            Layout layout = frozen_layout(job, at);
            layout.plain = true;
            layout.optimizer = 2;
            CLEANUP(outcome_done) Outcome found = run(NULL, &layout, 1);
            CLEANUP(outcome_done) Outcome start = run(NULL, &layout, 0);
            memset(layout.freeze, 0, sizeof layout.freeze);
            CLEANUP(outcome_done) Outcome expected = run(NULL, &layout, 1);
            assert_true(found.loss[0] == expected.loss[0]);
            assert_true(found.norm[0] > 0 && found.norm[0] < expected.norm[0]);
            assert_same_values(&found, &expected, false);
            assert_same_values(&found, &start, true);
        }
}

/* The same in fp8, for layers that are frozen as a whole. A bias without its weight has a sum of its own, and
 * a layer of its own keeps other operands. */
static void test_fp8(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const char *const frozen[][TRIAL_PATTERNS] = {{"embed", "layer.0"},
                                                         {"*", "!layer.0"},
                                                         {"*.weight", "embed.token"},
                                                         {"*", "!layer.*.attn.out.bias"}};
    if (world->size > 1 || SANITIZED) skip();
    for (int at = 0; at < 8; at++) {
        Layout layout = {.job = at % 4 < 2 ? JOB_LLAMA : JOB_GPT2,
                         .micro_batch = 2,
                         .wide = true,
                         .optimizer = 2,
                         .dtype = DT_BF16,
                         .fp8 = true,
                         .fp8_scaling = (Fp8Scaling)(at / 4),
                         .plain = at % 4 < 2};
        Layout all = layout;
        memcpy(layout.freeze, frozen[at % 4], sizeof layout.freeze);
        CLEANUP(outcome_done) Outcome found = run(NULL, &layout, 1 + at / 4);
        CLEANUP(outcome_done) Outcome start = run(NULL, &layout, 0);
        CLEANUP(outcome_done) Outcome expected = run(NULL, &all, 1);
        assert_same_values(&found, &start, true);
        assert_true(found.loss[0] == expected.loss[0]);
        assert_true(found.norm[0] > 0 && found.norm[0] < expected.norm[0]);
        if (at < 2) assert_same_values(&found, &expected, false);
    }
}

/* With every optimizer and precision, frozen parameters keep their bits; in fp16, also after a skipped step.
 */
static void test_unchanged(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int at = 0; at < 8; at++) {
        Layout layout = frozen_layout(at % JOBS == JOB_LLAMA ? JOB_GPT2 : at % JOBS, at % CASES);
        layout.mesh = (MeshSpec){.dp = world->size, .tp = 1, .pp = 1};
        layout.zero = at % 4;
        layout.optimizer = at % 4;
        layout.dtype = at % 3 == 1 ? DT_BF16 : at % 3 == 2 ? DT_F16 : DT_F32;
        layout.loss_scale = 1 << 24;
        layout.grad_type = (GradType)(at / 2 % 3);
        layout.offload = (Offload)(at % 3 * (layout.zero == 3));
        layout.fake_quant = (FakeQuant)(at % 3);
        CLEANUP(outcome_done) Outcome start = run(world, &layout, 0);
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
        const Store *own = found.runner->params, *other = start.runner->params;
        bool changed = false;
        for (int u = 0; u < own->model->units; u++) {
            CLEANUP(mem_freep) float *a = unit_values(own, u), *b = unit_values(other, u);
            bool same = !memcmp(a, b, (size_t)own->count[u] * sizeof *a);
            if (own->unit[u].frozen) assert_true(same);
            changed |= !same;
        }
        assert_true(changed || layout.dtype == DT_F16);
    }
}

static double relative_diff(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* Layouts that divide the model in all ways. */
static int layouts_of(int n, Layout out[16]) {
    int count = 0, half = n > 2 ? n / 2 : n;
    const MeshSpec data = {.dp = n, .tp = 1, .pp = 1}, tensors = {.dp = n / half, .tp = half, .pp = 1},
                   stages = {.dp = n / half, .tp = 1, .pp = half}, all = {.dp = 1, .tp = 1, .pp = n};
    for (int zero = 0; zero <= 3; zero++)
        out[count++] =
            (Layout){.mesh = data, .zero = zero, .recompute = (Recompute)(zero % 3), .keep = zero == 3};
    out[count++] = (Layout){.mesh = data, .zero = 3, .words = true};
    out[count++] = (Layout){.mesh = data, .zero = 3, .offload = OFFLOAD_PARAMS};
    if (n == 1) return count;
    out[count++] = (Layout){.mesh = tensors, .zero = 1};
    out[count++] = (Layout){.mesh = tensors, .sequence = true, .recompute = RECOMPUTE_SELECTIVE, .zero = 3};
    out[count++] = (Layout){.mesh = stages, .zero = 2, .schedule = SCHEDULE_1F1B};
    out[count++] = (Layout){.mesh = stages, .zero = 3, .keep = true, .schedule = SCHEDULE_GPIPE};
    out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_ZERO_BUBBLE};
    out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_ZERO_BUBBLE, .recompute = RECOMPUTE_SELECTIVE};
    out[count++] = (Layout){.mesh = all, .recompute = RECOMPUTE_BLOCK, .schedule = SCHEDULE_1F1B};
    if (n == 2) out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_INTERLEAVED};
    return count;
}

/* Losses, norms and evaluation are those of one rank. */
static void test_layouts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layouts[16];
    int count = layouts_of(world->size, layouts);
    for (int words = 0; words < 2; words++)
        for (int job = 0; job < JOBS; job++)
            for (int at = (job + words) % 2; at < CASES; at += 2) {
                if (!is_possible(job, at) || (SANITIZED && at)) continue;
                Layout alone = frozen_layout(job, at);
                Outcome expected;
                alone.words = words;
                run_alone(world, &alone, 1, STEPS, &expected);
                for (int i = 0; i < count; i++) {
                    Layout layout = layouts[i];
                    if (layout.words != words || (layout.mesh.tp > 1 && alone.job == JOB_CLASSIFY)) continue;
                    layout.job = job;
                    layout.micro_batch = 1 + i % 2;
                    layout.chunks = layout.schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
                    if (layout.chunks > 1) layout.micro_batch = 1;
                    memcpy(layout.freeze, alone.freeze, sizeof layout.freeze);
                    CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
                    for (int step = 0; step < STEPS; step++)
                        if (!(relative_diff(found.loss[step], expected.loss[step]) <= 1e-5) ||
                            !(relative_diff(found.norm[step], expected.norm[step]) <= 1e-3))
                            fail_msg("%s: step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g",
                                     layout_text(&layout), step + 1, found.loss[step], found.norm[step],
                                     expected.loss[step], expected.norm[step]);
                    assert_true(relative_diff(found.eval, expected.eval) <= 1e-5);
                }
                outcome_done(&expected);
            }
}

/* Frozen layers at the bottom need memory for neither gradients nor activations, and no gradient is sent to
 * their stages. */
static void test_savings(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.job = JOB_LLAMA,
                     .mesh = {.dp = 1, .tp = 1, .pp = world->size},
                     .micro_batch = 1,
                     .chunks = 1,
                     .untied = true};
    Outcome run_of[2];
    uint64_t sent[2];
    if (test_on_cuda()) skip(); /* all runs share one device, and its peaks */
    for (int frozen = 0; frozen < 2; frozen++) {
        if (frozen)
            memcpy(layout.freeze, (const char *[]){"embed", "layer.[0-4]", NULL}, sizeof layout.freeze);
        run_of[frozen] = run(world, &layout, STEPS);
        CommBytes bytes[COMM_KINDS];
        mesh_sent(run_of[frozen].mesh, bytes);
        sent[frozen] = comm_bytes_sum(bytes[COMM_SEND]);
    }
    const MemStat *all = run_of[0].device->mem, *some = run_of[1].device->mem;
    bool first = world->rank == 0;
    if (first) {
        assert_true(2 * some[MEM_GRADS].peak < all[MEM_GRADS].peak);
        assert_true(2 * some[MEM_OPTIMIZER].peak < all[MEM_OPTIMIZER].peak);
        assert_true(some[MEM_ACTIVATIONS].peak < all[MEM_ACTIVATIONS].peak);
    }
    /* The stage after the frozen ones sends no gradient. */
    if (world->size > 1 && world->rank == 1) assert_true(sent[1] < sent[0]);
    for (int i = 0; i < 2; i++) outcome_done(&run_of[i]);
}

/* Workers synchronize the trained parameters only. */
static void test_workers(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size == 1) skip();
    for (int type = 0; type < 3; type++) {
        Layout layout = frozen_layout(JOB_GPT2, type);
        layout.mesh = (MeshSpec){.dp = world->size, .tp = 1, .pp = 1, .shard = world->size / 2};
        layout.zero = world->size > 2 ? 2 : 0;
        layout.dtype = type ? DT_BF16 : DT_F32;
        layout.outer = (OuterSpec){.every = 2,
                                   .fragments = 1 + type % 2,
                                   .overlap = type % 2,
                                   .lr = 0.7,
                                   .momentum = 0.9,
                                   .type = (GradType)type};
        CLEANUP(outcome_done) Outcome start = run(world, &layout, 0);
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS + 1);
        assert_ok(runner_sync(found.runner, STEPS + 1, true));
        bool changed = false;
        for (int u = 0; u < found.model->units; u++) {
            const Store *own = found.runner->outer;
            if (!own->count[u]) continue;
            CLEANUP(mem_freep) float *a = unit_values(own, u), *b = unit_values(start.runner->params, u);
            bool same = !memcmp(a, b, (size_t)own->count[u] * sizeof *a);
            if (own->unit[u].frozen) assert_true(same);
            changed |= !same;
        }
        assert_true(changed);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gradients), cmocka_unit_test(test_unchanged), cmocka_unit_test(test_layouts),
    cmocka_unit_test(test_fp8),       cmocka_unit_test(test_savings),   cmocka_unit_test(test_workers),
};

RANKS_MAIN(tests)
