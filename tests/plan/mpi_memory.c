/* Dry runs: the memory of a rank, by tag, and the bytes it sends equal what the allocator and the
 * communicators count in a real run, in layouts of every kind.
 * Ranks: 1 2 4 */
#include "train/layouts.h"
#include "verify/cover.h"

#include "plan/dryrun.h"

enum { STEPS = 2 };

static void assert_same(const Layout *layout, const char *what, size_t planned, size_t counted) {
    if (planned != counted)
        fail_msg("%s: %s: planned %zu, counted %zu", layout_text(layout), what, planned, counted);
}

/* The replica's micro-batch with the most masked tokens, because what BERT's output head sends depends on
 * their number. */
static HostBatch *largest_batch(const Layout *layout, int replica) {
    HostBatch *largest = NULL;
    int64_t share = BATCH / layout->mesh.dp;
    for (int step = 0; step < STEPS; step++)
        for (int64_t first = replica * share; first < (replica + 1) * share; first += layout->micro_batch) {
            HostBatch *batch = batch_of_vocab(layout->job, layout->words ? LARGE_VOCAB : VOCAB, step, first,
                                              layout->micro_batch);
            bool more = !largest || batch->pick_count > largest->pick_count;
            host_batch_free(more ? largest : batch);
            if (more) largest = batch;
        }
    return largest;
}

/* Validates before the first step, as runs do. */
static Outcome run_validated(Group *world, const Layout *layout) {
    Outcome outcome = run_new(world, layout);
    int count = outcome.runner->spec.micros;
    HostBatch *micro[BATCH];
    double sums[LOSS_COUNT] = {0};
    int64_t counts[LOSS_COUNT] = {0};
    for (int step = 0; step < STEPS; step++) {
        StepResult result;
        assert_ok(trial_micros(&outcome.trial, outcome.mesh->at[AXIS_DP], step, micro));
        if (!step) assert_ok(runner_eval(outcome.runner, micro, count, sums, counts, NULL));
        assert_ok(runner_step(outcome.runner, micro, count,
                              &(StepSpec){.number = step + 1, .lr = trial_lr(layout)}, &result));
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    return outcome;
}

static void check_plan(Group *world, const Layout *layout) {
    if (ranks_over("staged")) return; /* staged collectives use additional memory */
    Outcome outcome = run_validated(world, layout);
    HostBatch *batch = largest_batch(layout, outcome.mesh->at[AXIS_DP]);
    DryRunSpec dryrun = {.model = outcome.model,
                         .spec = trial_run_spec(layout, layout->mesh.dp),
                         .mesh = layout->mesh,
                         .device = test_kernels(),
                         .threads = 1,
                         .batch = batch,
                         .evals = BATCH / layout->mesh.dp / layout->micro_batch};
    DryRunRank planned;
    assert_ok(dryrun_rank(&dryrun, world->rank, &planned));
    const Device *device = outcome.device;
    for (MemTag tag = 0; tag < MEM_TAGS; tag++)
        assert_same(layout, mem_tag_name(tag), planned.memory.tag[tag], device->mem[tag].peak);
    assert_same(layout, "total", planned.memory.total, device->total.peak);
    assert_same(layout, "host", planned.memory.host, device->host.peak);
    CommBytes sent[COMM_KINDS];
    mesh_sent(outcome.mesh, sent);
    /* The run also evaluates, so it sends more. What BERT's output head sends varies from step to step. */
    for (CommKind kind = 0; layout->job != JOB_BERT && kind < COMM_KINDS; kind++)
        if (comm_bytes_sum(planned.sent[kind]) * STEPS > comm_bytes_sum(sent[kind]))
            fail_msg("%s: %s: planned %llu bytes per step, sent %llu in %d steps", layout_text(layout),
                     comm_info(kind)->name, (unsigned long long)comm_bytes_sum(planned.sent[kind]),
                     (unsigned long long)comm_bytes_sum(sent[kind]), STEPS);
    host_batch_free(batch);
    outcome_done(&outcome);
}

static void replicas(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int zero = 0; zero <= 3; zero++)
        for (JobKind job = 0; job < JOBS; job++)
            for (int micro_batch = 1; micro_batch <= 2; micro_batch++) {
                Layout layout = {.job = job,
                                 .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                                 .zero = zero,
                                 .micro_batch = micro_batch,
                                 .recompute = (Recompute)((zero + (int)job) % 3),
                                 .mlp_rows = 5,
                                 .keep = zero == 3 && job == JOB_BERT,
                                 .optimizer = micro_batch == 2 ? (zero + (int)job) % 4 : 0,
                                 .dtype = zero % 2 ? DT_BF16 : DT_F32};
                check_plan(world, &layout);
            }
}

/* Each in turn. */
static ContextMode mode_of(MeshSpec mesh, int number) {
    if (mesh.cp <= 1) return CONTEXT_AUTO;
    return test_on_cuda() ? CONTEXT_HEADS : (ContextMode)(CONTEXT_HEADS + number);
}

/* Sharded gradients and parameters, gathered for each pass or kept from forward to backward, in every
 * direction. */
static void sharded(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const MeshSpec shapes[] = {
        {.tp = 1, .pp = 1}, {.tp = 2, .pp = 1}, {.tp = 1, .pp = 2}, {.tp = 1, .pp = 1, .cp = 2}};
    for (int zero = 2; zero <= 3; zero++)
        for (int keep = 0; keep <= (zero == 3); keep++)
            for (int shape = 0; shape < 4; shape++)
                for (int recompute = 0; recompute < 3; recompute++) {
                    Layout layout = {.job = (JobKind)((shape + recompute + zero) % JOBS),
                                     .mesh = shapes[shape],
                                     .zero = zero,
                                     .keep = keep,
                                     .cp_mode = mode_of(shapes[shape], recompute),
                                     .micro_batch = 1 + recompute % 2,
                                     .recompute = (Recompute)recompute,
                                     .mlp_rows = 5,
                                     .schedule = keep ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B,
                                     .offload = (zero + shape) % 2 ? OFFLOAD_NONE : OFFLOAD_ACTIVATIONS,
                                     .dtype = recompute == 1 ? DT_BF16 : DT_F32};
                    layout.mesh.dp = world->size / (int)mesh_ranks(layout.mesh, AXES_ALL);
                    if (layout.mesh.dp > 0 && mesh_copies(layout.mesh) > 1 && trial_splits_context(&layout))
                        check_plan(world, &layout);
                }
}

static void pieces(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int tp = 1; tp <= world->size / 2; tp *= 2)
        for (JobKind job = 0; job < JOBS; job++) {
            Layout layout = {.job = job,
                             .mesh = {.dp = world->size / tp, .tp = tp, .pp = 1},
                             .zero = 3,
                             .micro_batch = 1 + (int)job % 2,
                             .words = true,
                             .untied = job == JOB_SPAN,
                             .dtype = job == JOB_BERT ? DT_BF16 : DT_F32};
            check_plan(world, &layout);
        }
}

static void tensors(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size < 2) return;
    for (int sequence = 0; sequence < 2; sequence++)
        for (JobKind job = 0; job < JOBS; job++)
            for (int recompute = 0; recompute < 3; recompute++) {
                Layout layout = {.job = job,
                                 .mesh = {.dp = world->size / 2, .tp = 2, .pp = 1},
                                 .zero = recompute,
                                 .micro_batch = 2,
                                 .recompute = (Recompute)recompute,
                                 .mlp_rows = 5,
                                 .sequence = sequence,
                                 .optimizer = sequence ? 3 - (int)job % 2 : 0,
                                 .dtype = recompute == 1 ? DT_BF16 : DT_F32};
                check_plan(world, &layout);
            }
}

/* Mixtures, with all experts on each rank and with different ones. Their tokens choose all experts, so that
 * as many rows arrive as in a plan. */
static void experts(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const MeshSpec shapes[] = {{.tp = 1, .pp = 1},
                                      {.tp = 2, .pp = 1},
                                      {.tp = 1, .pp = 2},
                                      {.tp = 1, .pp = 1, .cp = 2},
                                      {.tp = 1, .pp = 1, .shard = 2}};
    for (int zero = 0; zero <= 3; zero++)
        for (int shape = 0; shape < 5; shape++)
            for (int ep = 1; ep <= world->size; ep *= 2) {
                Layout layout = {.job = job_of(shape % 2 ? &family_mixtral : &family_qwen2_moe),
                                 .mesh = shapes[shape],
                                 .zero = zero,
                                 .micro_batch = 1,
                                 .recompute = (Recompute)((zero + shape) % 3),
                                 .mlp_rows = 5,
                                 .schedule = zero % 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B,
                                 .sequence = shape == 1 && zero / 2,
                                 .offload = zero == 1 ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE,
                                 .fake_quant = zero == 2 ? (FakeQuant)(1 + shape % 2) : FAKE_QUANT_NONE,
                                 .wide = zero == 2, /* int4 groups are whole on ranks */
                                 .grad_type = shape == 4 ? GRAD_BF16 : (GradType)((zero + shape) % 3),
                                 .optimizer = (zero + shape) % 4,
                                 .dtype = zero % 2 ? DT_BF16 : DT_F32};
                layout.mesh.dp = world->size / (int)mesh_ranks(layout.mesh, AXES_ALL);
                layout.mesh.ep = ep;
                int copies = layout.mesh.dp ? mesh_copies(layout.mesh) : 0;
                if (copies && copies % ep == 0 && (!layout.mesh.shard || copies % layout.mesh.shard == 0))
                    check_plan(world, &layout);
            }
}

static void stages(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const ScheduleKind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED,
                                         SCHEDULE_ZERO_BUBBLE};
    for (int at = 0; at < 4; at++)
        for (int recompute = 0; recompute < 3; recompute++)
            for (int pp = 2; pp <= world->size; pp *= 2) {
                bool chunked = kinds[at] == SCHEDULE_INTERLEAVED;
                if (chunked && pp > 2) continue; /* there are only 6 layers */
                Layout layout = {.job = (JobKind)((at + recompute) % JOBS),
                                 .mesh = {.dp = world->size / pp, .tp = 1, .pp = pp},
                                 .zero = pp < world->size ? recompute + 1 : 0,
                                 .chunks = chunked ? 2 : 1,
                                 .micro_batch = 1,
                                 .schedule = kinds[at],
                                 .recompute = (Recompute)recompute,
                                 .mlp_rows = 5,
                                 .offload = (at + recompute) % 2 ? OFFLOAD_NONE : OFFLOAD_ACTIVATIONS,
                                 .dtype = at % 2 ? DT_BF16 : DT_F32};
                check_plan(world, &layout);
            }
}

static void together(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size < 4) return;
    Layout layout = {.job = JOB_GPT2,
                     .mesh = {.dp = 1, .tp = 2, .pp = 2},
                     .chunks = 1,
                     .micro_batch = 1,
                     .schedule = SCHEDULE_ZERO_BUBBLE,
                     .sequence = true,
                     .dtype = DT_BF16};
    check_plan(world, &layout);
    layout = (Layout){
        .job = JOB_BERT, .mesh = {.dp = 4, .tp = 1, .pp = 1, .shard = 2}, .zero = 3, .micro_batch = 1};
    check_plan(world, &layout);
}

static void offloaded(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int offload = 0; offload < OFFLOAD_COUNT; offload++) {
        Offload host = offload_state((Offload)offload);
        Layout layout = {.job = JOB_GPT2,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                         .zero = host == OFFLOAD_PARAMS ? 3 : (int)host,
                         .micro_batch = 2,
                         .offload = (Offload)offload,
                         .recompute = offload % 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE,
                         .dtype = DT_BF16};
        check_plan(world, &layout);
    }
}

/* Blocks from below, and parameters in between. */
static void frozen(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int at = 0; at < 6; at++) {
        bool staged = at >= 4;
        Layout layout = {.job = (JobKind)(at % JOBS),
                         .mesh = {.dp = staged ? 1 : world->size, .tp = 1, .pp = staged ? world->size : 1},
                         .zero = staged ? 0 : at,
                         .chunks = 1,
                         .micro_batch = 1,
                         .schedule = at % 2 ? SCHEDULE_1F1B : SCHEDULE_ZERO_BUBBLE,
                         .recompute = (Recompute)(at % 3),
                         .mlp_rows = 5,
                         .offload = at % 2 ? OFFLOAD_NONE : OFFLOAD_ACTIVATIONS,
                         .grad_type = staged ? GRAD_FP32 : (GradType)(at % 3),
                         .dtype = at % 2 ? DT_BF16 : DT_F32,
                         .freeze = {"*", "!layer.*.attn.out", "!layer.[45]"}};
        if (at > 2)
            memcpy(layout.freeze, (const char *[]){"embed", "layer.[0-2]", NULL}, sizeof layout.freeze);
        check_plan(world, &layout);
    }
}

/* The same layouts with adapters; ranks of tensor parallelism share key-value heads. */
static void adapters(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int at = 0; at < 8; at++) {
        bool staged = at >= 6, split = at >= 4 && !staged;
        Layout layout = {.job = at % 2 ? JOB_LLAMA : (JobKind)(at % JOBS),
                         .mesh = {.dp = split || staged ? 1 : world->size,
                                  .tp = split ? world->size : 1,
                                  .pp = staged ? world->size : 1},
                         .zero = split || staged ? 0 : at,
                         .chunks = 1,
                         .micro_batch = 1,
                         .schedule = at % 2 ? SCHEDULE_1F1B : SCHEDULE_ZERO_BUBBLE,
                         .recompute = (Recompute)(at % 3),
                         .mlp_rows = 5,
                         .plain = at % 3 == 1,
                         .dtype = at % 2 ? DT_BF16 : DT_F32,
                         .lora = 3,
                         .base = (BlockCode)(at % 4),
                         .lora_target = at % 4 == 3 ? "layer.*.attn" : NULL};
        check_plan(world, &layout);
    }
}

/* If tokens choose, a plan for as many rows as most ranks got is at least what any rank needs. */
static void imbalance(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size < 2 || test_on_cuda() || ranks_over("staged")) return;
    Layout layout = {.job = job_of(&family_mixtral),
                     .top_k = 1,
                     .mesh = {.dp = world->size, .tp = 1, .pp = 1, .ep = world->size},
                     .micro_batch = 2};
    size_t planned[2];
    CLEANUP(outcome_done) Outcome outcome = run(world, &layout, STEPS);
    HostBatch *batch = largest_batch(&layout, outcome.mesh->at[AXIS_DP]);
    for (int k = 0; k < 2; k++) {
        DryRunSpec dryrun = {.model = outcome.model,
                             .spec = trial_run_spec(&layout, layout.mesh.dp),
                             .mesh = layout.mesh,
                             .device = test_kernels(),
                             .threads = 1,
                             .batch = batch};
        DryRunRank rank;
        dryrun.spec.imbalance = k ? world->size : 1; /* all tokens choose experts of this rank */
        assert_ok(dryrun_rank(&dryrun, world->rank, &rank));
        planned[k] = rank.memory.tag[MEM_ACTIVATIONS];
    }
    assert_true(planned[1] > planned[0]);
    assert_true(outcome.device->mem[MEM_ACTIVATIONS].peak <= planned[1] + planned[1] / 8);
    host_batch_free(batch);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(replicas),  cmocka_unit_test(sharded),   cmocka_unit_test(pieces),
    cmocka_unit_test(tensors),   cmocka_unit_test(stages),    cmocka_unit_test(together),
    cmocka_unit_test(offloaded), cmocka_unit_test(frozen),    cmocka_unit_test(adapters),
    cmocka_unit_test(experts),   cmocka_unit_test(imbalance),
};
RANKS_MAIN(tests)
