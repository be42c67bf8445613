/* Adapters: a run in any layout computes what one rank does, whatever matrices have adapters, and nothing
 * else changes. Ranks: 1 2 4 */
#include "train/layouts.h"
#include "verify/cover.h"

enum { STEPS = 4, RANK = 3 };

static const char *const targets[] = {NULL, "layer.*.attn", "*v*", "layer.[135].mlp", "layer.*.*.out"};
enum { TARGETS = sizeof targets / sizeof *targets };

static double relative_diff(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

static Layout lora_layout(int job, int at) {
    return (Layout){
        .job = job, .micro_batch = 2, .chunks = 1, .lora = RANK, .lora_target = targets[at % TARGETS]};
}

static bool has_targets(int job, int at) {
    ModelConfig config;
    trial_config(&(Layout){.job = job}, &config);
    return !config.experts || at % TARGETS < 3;
}

/* B is zero at first, so the first loss is that of the model without adapters. Later losses are lower than
 * with adapters that do not change. */
static void test_start(void **state) {
    Group *world = ((Ranks *)*state)->world;
    TrialJob any;
    if (world->size > 1) skip();
    for (int job = 0; trial_job(job, &any); job++)
        for (int at = 0; at < TARGETS; at++) {
            if (!has_targets(job, at) || (at == 2 && any.family->type[0] == 'g')) continue;
            Layout layout = lora_layout(job, at),
                   plain = {.job = job, .micro_batch = 2, .chunks = 1, .frozen = true};
            layout.plain = plain.plain = true;
            CLEANUP(outcome_done) Outcome found = run(NULL, &layout, STEPS);
            CLEANUP(outcome_done) Outcome start = run(NULL, &layout, 0);
            CLEANUP(outcome_done) Outcome expected = run(NULL, &plain, STEPS);
            if (relative_diff(found.loss[0], expected.loss[0]) > 1e-7 || !(found.norm[0] > 0))
                fail_msg("%s: loss %.9g, without adapters %.9g; norm %g", layout_text(&layout), found.loss[0],
                         expected.loss[0], found.norm[0]);
            const Store *own = found.runner->params, *other = start.runner->params;
            for (int u = 0; u < own->model->units; u++) {
                CLEANUP(mem_freep) float *a = unit_values(own, u), *b = unit_values(other, u);
                bool same = !memcmp(a, b, (size_t)own->count[u] * sizeof *a);
                if (own->count[u] && same != own->unit[u].frozen)
                    fail_msg("%s: unit %d %s", layout_text(&layout), u, same ? "is as it was" : "changed");
            }
        }
}

static int layouts_of(int n, Layout out[32]) {
    int count = 0, half = n > 2 ? n / 2 : n;
    const MeshSpec data = {.dp = n, .tp = 1, .pp = 1}, tensors = {.dp = n / half, .tp = half, .pp = 1},
                   split = {.dp = 1, .tp = n, .pp = 1}, stages = {.dp = n / half, .tp = 1, .pp = half},
                   all = {.dp = 1, .tp = 1, .pp = n},
                   context = {.dp = n / half, .tp = 1, .pp = 1, .cp = half};
    for (int zero = 0; zero <= 3; zero++)
        out[count++] =
            (Layout){.mesh = data, .zero = zero, .recompute = (Recompute)(zero % 3), .keep = zero == 3};
    out[count++] = (Layout){.mesh = data, .zero = 3, .offload = OFFLOAD_PARAMS};
    out[count++] = (Layout){.mesh = data, .recompute = RECOMPUTE_BLOCK, .mlp_rows = 5};
    if (n == 1) return count;
    out[count++] = (Layout){.mesh = tensors, .zero = 1};
    out[count++] = (Layout){.mesh = split, .sequence = true, .recompute = RECOMPUTE_SELECTIVE, .zero = 3};
    out[count++] = (Layout){.mesh = split, .recompute = RECOMPUTE_BLOCK};
    out[count++] = (Layout){.mesh = stages, .zero = 2, .schedule = SCHEDULE_1F1B};
    out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_ZERO_BUBBLE};
    out[count++] = (Layout){.mesh = stages, .zero = 3, .schedule = SCHEDULE_ZERO_BUBBLE};
    out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_ZERO_BUBBLE, .recompute = RECOMPUTE_SELECTIVE};
    out[count++] = (Layout){.mesh = all, .recompute = RECOMPUTE_BLOCK, .schedule = SCHEDULE_GPIPE};
    if (n == 2) out[count++] = (Layout){.mesh = all, .schedule = SCHEDULE_INTERLEAVED};
    out[count++] = (Layout){.mesh = context, .zero = 1};
    return count;
}

/* Losses, norms and evaluation are those of one rank, with dropout. */
static void test_layouts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    TrialJob any;
    Layout layouts[32];
    int count = layouts_of(world->size, layouts);
    for (int job = 0; trial_job(job, &any); job++)
        for (int at = job % 2; at < TARGETS; at += 2) {
            if (!has_targets(job, at) || (at == 2 && any.family->type[0] == 'g') || (SANITIZED && at > 1))
                continue;
            Layout alone = lora_layout(job, at);
            Outcome expected;
            run_alone(world, &alone, 1, STEPS, &expected);
            for (int i = 0; i < count; i++) {
                Layout layout = layouts[i];
                layout.job = job;
                layout.lora = alone.lora;
                layout.lora_target = alone.lora_target;
                layout.micro_batch = 1 + i % 2;
                layout.chunks = layout.schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
                if (layout.chunks > 1) layout.micro_batch = 1;
                if (!trial_is_legal(&layout)) continue;
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

/* In 16 bits, frozen weights take no more than that, and all stages of ZeRO compute the same. */
static void test_rounded(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int at = 0; at < 8; at++) {
        Layout layout = lora_layout(at % 4 < 2 ? JOB_GPT2 : JOB_LLAMA, 0);
        layout.mesh = (MeshSpec){.dp = world->size, .tp = 1, .pp = 1};
        layout.micro_batch = BATCH / world->size;
        layout.dtype = at % 2 ? DT_F16 : DT_BF16;
        Layout plain = layout;
        plain.lora = 0;
        CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS);
        CLEANUP(outcome_done) Outcome whole = run(world, &plain, 1);
        layout.zero = at / 4 ? 3 : 1;
        layout.offload = layout.zero == 3 && at % 2 ? OFFLOAD_PARAMS : OFFLOAD_NONE;
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
        /* On GPUs, the algorithms of GEMMs may depend on where matrices lie in memory. */
        for (int step = 0; step < STEPS; step++)
            assert_true(relative_diff(found.loss[step], first.loss[step]) <= (test_on_cuda() ? 1e-3 : 0));
        assert_true(relative_diff(first.loss[0], whole.loss[0]) <= 1e-2);
        if (test_on_cuda()) continue; /* all runs share one device, and its peaks */
        const Shards *shards = first.runner->shards;
        size_t params = 0;
        for (int i = 0; i < shards->count; i++) params += 2 * (size_t)shards->unit[i].layout.numel;
        assert_int_equal(first.device->mem[MEM_PARAMS].peak, params);
    }
}

/* Matrices in blocks: a rank keeps so many bytes of a unit. */
static size_t bytes_in_blocks(const ShardUnit *unit, BlockCode code, DType dtype) {
    int64_t coded = unit->coded;
    return (size_t)(code == BLOCKS_INT8 ? coded : coded / 2) + (size_t)coded / CODE_BLOCK * sizeof(float) +
           (size_t)(unit->count - coded) * dtype_size(dtype);
}

/* With matrices in blocks, runs in every layout compute the same; the loss is near that of whole matrices,
 * and memory is what blocks and two layers take. */
static void test_blocks(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const double near[] = {[BLOCKS_INT8] = 0.02, [BLOCKS_INT4] = 0.3, [BLOCKS_NF4] = 0.3};
    Layout layouts[32];
    int count = layouts_of(world->size, layouts), tried = 0;
    for (int code = BLOCKS_INT8; code <= BLOCKS_NF4; code++)
        for (int k = 0; k < 3; k++) {
            Layout alone = lora_layout(k == 0 ? JOB_GPT2 : k == 1 ? JOB_LLAMA : JOB_SPAN, 0), whole;
            /* A row of 64 inputs is a block, whole rows of two ranks' parts too. */
            alone.wide_heads = true;
            alone.words = true;
            alone.base = (BlockCode)code;
            whole = alone;
            whole.base = BLOCKS_NONE;
            Outcome expected, plain;
            run_alone(world, &alone, 1, STEPS, &expected);
            run_alone(world, &whole, 1, STEPS, &plain);
            double apart = relative_diff(expected.loss[0], plain.loss[0]);
            if (!(apart > 0) || !(apart <= near[code]))
                fail_msg("%s: loss %g, with whole matrices %g", layout_text(&alone), expected.loss[0],
                         plain.loss[0]);
            for (int i = 0; i < count; i++) {
                Layout layout = layouts[i];
                layout.job = alone.job;
                layout.lora = alone.lora;
                layout.base = alone.base;
                layout.wide_heads = layout.words = true;
                layout.micro_batch = 1 + i % 2;
                layout.chunks = layout.schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
                if (layout.chunks > 1) layout.micro_batch = 1;
                if (layout.mesh.tp > 2 || !trial_is_legal(&layout) || tried++ % 3) continue;
                CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
                for (int step = 0; step < STEPS; step++)
                    if (!(relative_diff(found.loss[step], expected.loss[step]) <= 1e-5) ||
                        !(relative_diff(found.norm[step], expected.norm[step]) <= 1e-3))
                        fail_msg("%s: step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g",
                                 layout_text(&layout), step + 1, found.loss[step], found.norm[step],
                                 expected.loss[step], expected.norm[step]);
            }
            const Shards *shards = expected.runner->shards;
            size_t bytes = 0, coded = 0;
            for (int i = 0; i < shards->count; i++) {
                const ShardUnit *unit = &shards->unit[i];
                coded += (size_t)unit->coded;
                bytes += unit->in_blocks ? bytes_in_blocks(unit, alone.base, DT_F32)
                                         : (size_t)unit->layout.numel * sizeof(float);
            }
            assert_true(coded > 0);
            if (!test_on_cuda())
                assert_int_equal(expected.device->mem[MEM_PARAMS].current, bytes + shards->params.all.bytes);
            outcome_done(&expected);
            outcome_done(&plain);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_start),
    cmocka_unit_test(test_layouts),
    cmocka_unit_test(test_rounded),
    cmocka_unit_test(test_blocks),
};

RANKS_MAIN(tests)
