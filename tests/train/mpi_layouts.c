/* Every layout trains the same model. Each valid combination of data, tensor, pipeline and context
 * parallelism with ZeRO stages, schedules and recomputation reproduces the losses, gradient norms and weights
 * of the reference step, from the same seed, with dropout, gradient accumulation and clipping.
 *
 * The combinations are generated. By default each rank count runs a sample in which every value of every axis
 * occurs; WEFT_TEST_ALL=1 runs all of them.
 * Ranks: 1 2 4 8 */
#include <stdlib.h>

#include "model/head.h"
#include "train/compared.h"

/* The run of each job on one rank. */
static Outcome references[JOBS];

static void references_run(Group *world) {
    Layout alone[JOBS];
    for (int job = 0; job < JOBS; job++)
        alone[job] = (Layout){.job = (JobKind)job, .micro_batch = REFERENCE_MICRO};
    run_each(world, alone, JOBS, compared_steps(), reference_run, references);
}

static void references_done(void) {
    for (int job = 0; job < JOBS; job++) {
        outcome_done(&references[job]);
        references[job] = (Outcome){0};
    }
}

static void check(Group *world, const Layout *layout) {
    CLEANUP(outcome_done) Outcome found = run_checked(world, layout, &references[layout->job]);
}

typedef struct Matrix {
    Group *world;
    bool all;
    unsigned sample;
    int done, legal;
} Matrix;

/* Tests the values of all other axes for one grid. A sample steps through them with a stride that is coprime
 * to their number. */
static void check_options(Matrix *matrix, MeshSpec mesh, JobKind job) {
    bool many = matrix->world->size >= 4 || SANITIZED;
    int tried = 0, wanted = matrix->all ? 1 << 20 : many ? 1 : 2, options = options_of(mesh);
    for (int k = 0; k < options && tried < wanted; k++) {
        int at = matrix->all ? k : (int)((matrix->sample++ * 29 + 7) % (unsigned)options);
        Layout layout;
        if (!layout_at(mesh, job, at, &layout)) continue;
        layout.offload = matrix->legal++ % 2 ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
        tried++;
        check(matrix->world, &layout);
        matrix->done++;
    }
}

static void test_matrix(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Matrix matrix = {.world = world, .all = getenv("WEFT_TEST_ALL") != NULL};
    references_run(world);
    int part = 0; /* a sample of eight ranks has a third of the jobs for each grid */
    for (int job = 0; job < JOBS; job++)
        for (MeshSpec mesh = {0}; mesh_next(&mesh, world->size, (MeshSpec){.tp = 4, .pp = 4, .cp = 4});) {
            if (mesh.dp > 4 || (!matrix.all && world->size == 8 && part++ % 3)) continue;
            check_options(&matrix, mesh, (JobKind)job);
        }
    if (world->rank == 0) print_message("%d layouts\n", matrix.done);
    references_done();
}

/* Whether the weights that this rank updates have the bits of another run, which may have all weights. */
static bool same_weights(const Outcome *found, const Outcome *expected) {
    const char *name = "";
    if (!expected->trial.spec.zero) return max_weight_diff(found, expected, &name) == 0;
    return same_shards(found, expected);
}

/* For a given data-parallel size, all ZeRO stages and all recompute modes give the same bits. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.job = JOB_GPT2, .mesh = {.dp = world->size, .tp = 1, .pp = 1}, .chunks = 1};
    layout.micro_batch = BATCH / world->size;
    Outcome first[2];
    for (int zero = 0; zero <= 3; zero++)
        for (int recompute = 0; recompute <= 2; recompute++) {
            layout.zero = zero;
            layout.recompute = (Recompute)recompute;
            if (zero <= 1 && !recompute) first[zero] = run(world, &layout, STEPS_EXACT);
            const Outcome *expected = &first[same_bits(world, zero)];
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_EXACT);
            assert_memory_equal(found.loss, expected->loss, STEPS_EXACT * sizeof *found.loss);
            assert_memory_equal(found.norm, expected->norm, STEPS_EXACT * sizeof *found.norm);
            assert_true(same_weights(&found, expected));
        }
    for (int zero = 0; zero <= 1; zero++) outcome_done(&first[zero]);
}

/* Offloading does not change a single bit, and offloaded state uses no device memory. */
static void test_offload(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Layout layout = {.job = JOB_GPT2, .mesh = {.dp = world->size, .tp = 1, .pp = 1}, .chunks = 1};
    layout.micro_batch = BATCH / world->size;
    int bases = 1 + same_bits(world, 1);
    for (int at = 0; at < 2 * bases; at++) {
        int base = at / 2;
        layout.dtype = at % 2 ? DT_BF16 : DT_F32;
        layout.zero = base;
        layout.offload = OFFLOAD_NONE;
        CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS_EXACT);
        size_t state_before = first.device->mem[MEM_OPTIMIZER].current;
        size_t params_before = first.device->mem[MEM_PARAMS].current;
        for (int k = 0; k < 6; k++) {
            layout.offload = k % 2 ? OFFLOAD_PARAMS : OFFLOAD_OPTIMIZER;
            layout.zero = k / 2 * 3 / 2;
            layout.keep = k == 5;
            /* Offloaded parameters are summed as in ZeRO-3. */
            if (same_bits(world, k % 2 ? 3 : layout.zero) != base) continue;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_EXACT);
            assert_memory_equal(found.loss, first.loss, STEPS_EXACT * sizeof *found.loss);
            assert_true(same_weights(&found, &first));
            /* On a GPU both runs share one device, so subtract the first run's memory. */
            bool both = found.device == first.device;
            const MemStat *mem = found.device->mem;
            size_t moments = mem[MEM_OPTIMIZER].current - (both ? state_before : 0);
            size_t params = mem[MEM_PARAMS].current - (both ? params_before : 0);
            assert_true(moments < 1000); /* only the workspace of the gradient norm */
            if (k % 2 && !base) assert_true(params < params_before);
        }
    }
}

enum { LONG_SEQ = 1024, LONG_VOCAB = 50257, LONG_STEPS = SANITIZED ? 1 : 2 };

/* Trains with sequences whose logits exceed one chunk of the output head (loss_chunk_rows). */
static void run_long(Group *world, StepResult results[LONG_STEPS]) {
    ModelConfig config;
    trial_config(&(Layout){.job = JOB_GPT2}, &config);
    config.layers = 1;
    config.hidden = 32;
    config.vocab = LONG_VOCAB;
    config.positions = LONG_SEQ;
    CLEANUP(model_freep) Model *model = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    Device *device = NULL;
    Runner *runner = NULL;
    assert_ok(model_new(&model, &config));
    test_device_new(&device, 1);
    if (world) assert_ok(mesh_new(&mesh, world, (MeshSpec){.dp = world->size, .tp = 1, .pp = 1}));
    int count = world ? 1 : 2, first = world ? world->rank : 0;
    RunnerSpec spec = {.micro_batch = 1,
                       .seq = LONG_SEQ,
                       .train = true,
                       .optim = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1},
                       .mesh = mesh,
                       .zero = 3,
                       .micros = count,
                       .noise = true};
    assert_ok(kernels_find(test_kernels(), &spec.table));
    assert_ok(runner_new(&runner, model, device, &spec));
    if (world) assert_true(runner->vocab.pieces > 2);
    assert_ok(store_init_params(runner->params, runner->stream, 3));
    assert_ok(runner_publish(runner));
    runner->probe = true;
    HostBatch *micro[2] = {NULL};
    for (int i = 0; i < count; i++) {
        assert_ok(host_batch_new(&micro[i], 1, LONG_SEQ));
        micro[i]->task = TASK_LM;
        micro[i]->lens[0] = LONG_SEQ;
        micro[i]->loss_count[LOSS_TOKEN] = LONG_SEQ;
        RngKey token = rng_key(5, "token", (uint64_t)(first + i)),
               label = rng_key(5, "label", (uint64_t)(first + i));
        for (int64_t t = 0; t < LONG_SEQ; t++) {
            micro[i]->tokens[t] = (int32_t)rng_below(token, (uint64_t)t, LONG_VOCAB);
            micro[i]->labels[t] = (int32_t)rng_below(label, (uint64_t)t, LONG_VOCAB);
        }
    }
    for (int step = 0; step < LONG_STEPS; step++)
        assert_ok(
            runner_step(runner, micro, count, &(StepSpec){.number = step + 1, .lr = 2e-3}, &results[step]));
    for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    runner_free(runner);
    test_device_free(device);
}

static void test_chunks(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size != 2) skip();
    StepResult found[LONG_STEPS], expected[LONG_STEPS];
    if (world->rank == 0) run_long(NULL, expected);
    assert_ok(host_broadcast(world, expected, sizeof expected, 0));
    run_long(world, found);
    for (int step = 0; step < LONG_STEPS; step++) {
        assert_true(relative_diff(found[step].loss, expected[step].loss) <= 1e-5);
        assert_true(relative_diff(found[step].grad_norm, expected[step].grad_norm) <= 1e-4);
        assert_true(relative_diff(found[step].micro_norm, expected[step].micro_norm) <= 1e-3);
    }
}

/* Inputs of layers in host memory, with several micro-batches, in all kinds of layouts: the same bits. */
static void test_offload_activations(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const Layout layouts[] = {
        {.job = JOB_GPT2, .mesh = {.tp = 1, .pp = 1}, .recompute = RECOMPUTE_BLOCK},
        {.job = JOB_BERT, .mesh = {.tp = 1, .pp = 1}, .recompute = RECOMPUTE_BLOCK, .dtype = DT_BF16},
        {.job = JOB_LLAMA, .mesh = {.tp = 1, .pp = 1}, .zero = 3, .dtype = DT_F16},
        {.job = JOB_LLAMA,
         .mesh = {.tp = 1, .pp = 1},
         .zero = 3,
         .recompute = RECOMPUTE_BLOCK,
         .offload = OFFLOAD_PARAMS},
        {.job = JOB_GPT2,
         .mesh = {.tp = 1, .pp = 2},
         .recompute = RECOMPUTE_BLOCK,
         .offload = OFFLOAD_OPTIMIZER},
        {.job = JOB_BERT,
         .mesh = {.tp = 1, .pp = 2},
         .recompute = RECOMPUTE_BLOCK,
         .schedule = SCHEDULE_GPIPE},
        {.job = JOB_GPT2,
         .mesh = {.tp = 1, .pp = 2},
         .recompute = RECOMPUTE_BLOCK,
         .schedule = SCHEDULE_INTERLEAVED,
         .chunks = 2},
        {.job = JOB_GPT2,
         .mesh = {.tp = 1, .pp = 2},
         .recompute = RECOMPUTE_SELECTIVE,
         .schedule = SCHEDULE_ZERO_BUBBLE},
        {.job = JOB_BERT,
         .mesh = {.tp = 1, .pp = 2},
         .recompute = RECOMPUTE_BLOCK,
         .schedule = SCHEDULE_ZERO_BUBBLE},
        {.job = JOB_GPT2, .mesh = {.tp = 2, .pp = 1}, .recompute = RECOMPUTE_BLOCK, .sequence = true},
        {.job = JOB_LLAMA,
         .mesh = {.tp = 1, .pp = 1, .cp = 2},
         .recompute = RECOMPUTE_BLOCK,
         .cp_mode = CONTEXT_HEADS},
    };
    if (world->size > 2) skip();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        Layout layout = layouts[i];
        layout.mesh.dp = world->size / (int)mesh_ranks(layout.mesh, AXES_ALL);
        layout.micro_batch = 1;
        layout.mlp_rows = 5;
        if (!layout.mesh.dp) continue;
        CLEANUP(outcome_done) Outcome kept = run(world, &layout, STEPS_EXACT);
        layout.offload = offload_join(layout.offload, OFFLOAD_ACTIVATIONS);
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_EXACT);
        if (memcmp(found.loss, kept.loss, STEPS_EXACT * sizeof *found.loss) ||
            memcmp(found.norm, kept.norm, STEPS_EXACT * sizeof *found.norm) || found.eval != kept.eval ||
            !same_shards(&found, &kept))
            fail_msg("%s: not the bits of the same run without", layout_text(&layout));
        if (found.device == kept.device) continue; /* runs on a GPU share it */
        assert_true(found.device->host.peak > kept.device->host.peak);
        if (layout.mesh.pp == 1)
            assert_true(found.device->mem[MEM_ACTIVATIONS].peak < kept.device->mem[MEM_ACTIVATIONS].peak);
    }
}

/* Offloaded parameters with a vocabulary that is gathered in pieces, in fp32 and bf16. */
static void test_offload_pieces(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size == 1 || world->size > 4) skip();
    for (int dtype = DT_F32; dtype <= DT_BF16; dtype++) {
        Layout layout = {.job = dtype == DT_F32 ? JOB_GPT2 : JOB_BERT,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                         .zero = 3,
                         .chunks = 1,
                         .micro_batch = BATCH / world->size,
                         .dtype = (DType)dtype,
                         .words = true};
        CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS_EXACT);
        layout.offload = OFFLOAD_PARAMS;
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_EXACT);
        assert_memory_equal(found.loss, first.loss, STEPS_EXACT * sizeof *found.loss);
        layout.offload = OFFLOAD_NONE;
        layout.zero = 2;
        CLEANUP(outcome_done) Outcome whole = run(world, &layout, STEPS_EXACT);
        for (int step = 0; step < STEPS_EXACT; step++)
            assert_true(relative_diff(found.loss[step], whole.loss[step]) <= (dtype == DT_F32 ? 1e-5 : 1e-2));
    }
}

/* Hybrid sharding: shard within pairs of ranks, replicate across pairs. */
static void test_hybrid(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size < 4) skip();
    run_alone(world, &(Layout){.job = JOB_GPT2, .micro_batch = REFERENCE_MICRO}, 1, compared_steps(),
              references);
    for (int zero = 1; zero <= 3; zero++) {
        Layout layout = {.job = JOB_GPT2,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1, .shard = 2},
                         .zero = zero,
                         .chunks = 1,
                         .micro_batch = 1};
        check(world, &layout);
    }
    references_done();
}

/* Whether a layout's peaks are what its shards and two layers need, plus 10%. */
static void check_memory(const Layout *layout, const Outcome *found) {
    const Shards *shards = found->runner->shards;
    size_t kept = 0, layer = 0;
    if (test_on_cuda()) return; /* all runs share one device, and its peaks */
    for (int i = 0; i < shards->count; i++) {
        const ShardUnit *unit = &shards->unit[i];
        if (!unit->held) continue;
        kept += (size_t)unit->count * sizeof(float);
        if (i < found->model->count && unit->layout.numel * (int64_t)sizeof(float) > (int64_t)layer)
            layer = (size_t)unit->layout.numel * sizeof(float);
    }
    const MemStat *mem = found->device->mem;
    if (mem[MEM_PARAMS].peak > kept * 11 / 10 + 2 * layer || mem[MEM_GRADS].peak > kept * 11 / 10 + 2 * layer)
        fail_msg("%s: peaks of %zu bytes of parameters and %zu of gradients; shards of %zu, layers of %zu",
                 layout_text(layout), mem[MEM_PARAMS].peak, mem[MEM_GRADS].peak, kept, layer);
}

/* Logits are those of one rank, too, on every rank; those of spans up to a constant (gradient_is_rounding).
 */
static void check_logits(const Layout *layout, const Outcome *found, const Outcome *expected) {
    enum { COUNT = REFERENCE_MICRO * SEQ * LARGE_VOCAB };
    const ModelConfig *config = &found->model->config;
    HeadId head = heads_first(config->outputs_mask);
    HeadTraits traits = head_at(head)->traits;
    if (layout->mesh.tp > 1 && traits.vocab) return;
    int64_t B = layout->micro_batch, count = B * (traits.pooled ? 1 : SEQ) * head_at(head)->width(config);
    float *logits[2] = {calloc(COUNT, sizeof(float)), calloc(COUNT, sizeof(float))};
    HostBatch *batch = batch_of_vocab(layout->job, LARGE_VOCAB, 0, 0, B);
    assert_true(count <= COUNT);
    assert_ok(runner_logits(found->runner, batch, head, logits[0]));
    assert_ok(runner_logits(expected->runner, batch, head, logits[1]));
    for (int64_t i = count - 1; i >= 0; i--) {
        int64_t first = i % head_at(head)->width(config);
        for (int k = 0; k < 2 && layout->job == JOB_SPAN; k++) logits[k][i] -= logits[k][first];
        if (!(fabsf(logits[0][i] - logits[1][i]) <= 1e-4f))
            fail_msg("%s: logit %d is %.9g, on one rank %.9g", layout_text(layout), (int)i,
                     (double)logits[0][i], (double)logits[1][i]);
    }
    for (int i = 0; i < 2; i++) free(logits[i]);
    host_batch_free(batch);
}

/* ZeRO-3 with a vocabulary that dominates the model: its matrices are gathered, and their gradients reduced,
 * in pieces that need no more memory than layers. Losses and weights are those of one rank. */
static void test_pieces(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int n = world->size, half = n / 2, tried = 0;
    if (n == 1) skip();
    const Layout layouts[] = {
        {.mesh = {.dp = n, .tp = 1, .pp = 1}},
        {.mesh = {.dp = n, .tp = 1, .pp = 1}, .untied = true, .keep = true, .recompute = RECOMPUTE_BLOCK},
        {.mesh = {.dp = 2, .tp = half, .pp = 1}, .sequence = half > 1},
        {.mesh = {.dp = 2, .tp = 1, .pp = half}, .schedule = SCHEDULE_ZERO_BUBBLE},
        {.mesh = {.dp = n, .tp = 1, .pp = 1, .shard = 2}},
        {.mesh = {.dp = half, .tp = 1, .pp = 1, .cp = 2}, .cp_mode = CONTEXT_GATHER},
    };
    for (int untied = 0; untied < 2; untied++) {
        int jobs = untied ? 2 : JOBS; /* the others have no output matrix */
        Layout alone[JOBS];
        Outcome expected[JOBS];
        for (int job = 0; job < jobs; job++)
            alone[job] = (Layout){
                .job = (JobKind)job, .micro_batch = REFERENCE_MICRO, .words = true, .untied = untied};
        run_alone(world, alone, jobs, compared_steps(), expected);
        for (int job = 0; job < jobs; job++) {
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                Layout layout = layouts[i];
                bool repeated = n == 2 && i > 1 && i < 5; /* with two ranks, these are the first */
                if (layout.untied != untied || repeated || (n == 8 && tried++ % 3)) continue;
                layout.job = (JobKind)job;
                if (!trial_splits_context(&layout)) continue;
                layout.zero = 3;
                layout.chunks = 1;
                layout.words = true;
                layout.micro_batch = BATCH / layout.mesh.dp > 1 ? 1 + (int)i % 2 : 1;
                CLEANUP(outcome_done) Outcome found = run_checked(world, &layout, &expected[job]);
                assert_true(found.runner->vocab.pieces > 2);
                check_logits(&layout, &found, &expected[job]);
                if (!layout.keep && layout.mesh.pp == 1) check_memory(&layout, &found);
            }
            outcome_done(&expected[job]);
        }
    }
}

enum { STEPS_FROZEN = 9, STEPS_QAT = 6, PERTURBATIONS = 2 };

/* The largest relative difference between the losses. */
static double drift(const Outcome *found, const Outcome *expected, int steps) {
    double max_diff = 0;
    for (int step = 0; step < steps; step++)
        max_diff = fmax(max_diff, relative_diff(found->loss[step], expected->loss[step]));
    return max_diff;
}

/* A one-rank run, and how far it drifts when its initial weights change in the last bit. The floor covers the
 * case that no value crosses a quantization boundary in so few steps. */
static Outcome run_perturbed(Group *world, const Layout *alone, double *ret_drift) {
    Layout layouts[1 + PERTURBATIONS];
    Outcome outcomes[1 + PERTURBATIONS];
    for (int i = 0; i <= PERTURBATIONS; i++) {
        layouts[i] = *alone;
        layouts[i].perturb = i;
    }
    run_alone(world, layouts, 1 + PERTURBATIONS, STEPS_QAT, outcomes);
    *ret_drift = 2.5e-4;
    for (int i = 1; i <= PERTURBATIONS; i++) {
        *ret_drift = fmax(*ret_drift, drift(&outcomes[i], &outcomes[0], STEPS_QAT));
        outcome_done(&outcomes[i]);
    }
    return outcomes[0];
}

/* Compares the losses of the initial weights over several batches. Different scales would change every loss
 * by 1e-5 to 2e-3. A different summation order changes only the losses of batches in which a value lies on a
 * quantization boundary, by one quantization step. */
static void check_scales(Group *world, Layout layout, const Outcome *expected) {
    layout.frozen = true;
    CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_FROZEN);
    int agree = 0;
    for (int step = 0; step < STEPS_FROZEN; step++)
        agree += relative_diff(found.loss[step], expected->loss[step]) <= 1e-6;
    double max_diff = drift(&found, expected, STEPS_FROZEN);
    if (agree < STEPS_FROZEN / 3 || !(max_diff <= 5e-4))
        fail_msg("%s: fake quantization %d: of %d batches, %d match one rank; losses differ by up to %g",
                 layout_text(&layout), layout.fake_quant, STEPS_FROZEN, agree, max_diff);
}

/* Quantization-aware training uses the same scales in every layout. A value on a quantization boundary may
 * round either way, depending on the summation order. From then on the runs drift apart, but no further than
 * a one-rank run drifts when its initial weights change in the last bit. */
static void test_qat(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int n = world->size;
    const MeshSpec grids[] = {{.dp = n, .tp = 1, .pp = 1},
                              {.dp = 1, .tp = n, .pp = 1},
                              {.dp = 1, .tp = 1, .pp = n},
                              {.dp = n, .tp = 1, .pp = 1, .ep = n}};
    const int jobs[] = {JOB_GPT2, JOB_BERT, job_of(&family_mixtral)};
    if (n > 2) skip();
    for (int at = 0; at < 6; at += SANITIZED ? 4 : 1) {
        Layout alone = {.job = jobs[at % 3], .micro_batch = 2, .wide = true};
        CLEANUP(outcome_done) Outcome plain = run(NULL, &alone, 1), frozen;
        alone.fake_quant = at / 3 ? FAKE_QUANT_INT4 : FAKE_QUANT_INT8;
        double drifted, allowed;
        CLEANUP(outcome_done) Outcome expected = run_perturbed(world, &alone, &drifted);
        allowed = 4 * drifted;
        alone.frozen = true;
        run_alone(world, &alone, 1, STEPS_FROZEN, &frozen);
        alone.frozen = false;
        assert_true(relative_diff(expected.loss[0], plain.loss[0]) > 1e-6);
        assert_true(relative_diff(expected.loss[0], plain.loss[0]) < 0.02);
        for (int g = 0; g < (at % 3 == 2 ? 4 : 3); g++) {
            Layout layout = alone;
            layout.mesh = grids[g];
            layout.chunks = 1;
            layout.zero = g ? at % 4 : 3;
            layout.recompute = (Recompute)((g + at) % 3);
            layout.mlp_rows = 5;
            layout.schedule = at % 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            layout.sequence = g == 1 && at < 2;
            check_scales(world, layout, &frozen);
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS_QAT);
            double max_diff = drift(&found, &expected, STEPS_QAT);
            if (!(max_diff <= allowed))
                fail_msg("%s: fake quantization %d: losses differ by up to %g, on one rank by %g",
                         layout_text(&layout), layout.fake_quant, max_diff, allowed / 4);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pieces),
    cmocka_unit_test(test_chunks),
    cmocka_unit_test(test_matrix),
    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_qat),
    cmocka_unit_test(test_hybrid),
    cmocka_unit_test(test_offload),
    cmocka_unit_test(test_offload_pieces),
    cmocka_unit_test(test_offload_activations),
};

RANKS_MAIN(tests)
