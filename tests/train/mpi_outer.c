/* Workers that synchronize from time to time (low-communication data parallelism) train as a simulation says
 * that executes both workers on one rank and the outer steps in double precision, in every layout of a
 * worker. Ranks: 2 4 */
#include <math.h>

#include "train/layouts.h"

enum { STEPS = 13, WORKERS = 2 };

static double relative_diff(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* ---- the simulation ---- */

typedef struct Simulation {
    Outcome worker[WORKERS];
    double *theta, *momentum, *delta; /* all units, one after the other */
    double loss[STEPS], norm[STEPS];
} Simulation;

static void simulation_done(Simulation *sim) {
    for (int w = 0; w < WORKERS; w++) outcome_done(&sim->worker[w]);
    free(sim->theta);
    free(sim->momentum);
    free(sim->delta);
}

/* Calls with the values of a fragment's units in both workers, and their place in the arrays. */
#define EACH_VALUE(sim, found, fragment_)                                                                    \
    for (int64_t u_ = 0, at = 0, n_; u_ < (sim)->worker[0].model->units; at += n_, u_++)                     \
        if ((n_ = (sim)->worker[0].runner->params->count[u_], true) &&                                       \
            shard_outer_in((found)->runner->shards, (int)u_, fragment_))                                     \
            for (int64_t i = at; i < at + n_; i++)

static float *value_of(Simulation *sim, int worker, int64_t at) {
    const Store *params = sim->worker[worker].runner->params;
    int u = 0;
    while (at >= params->count[u]) at -= params->count[u++];
    return (float *)params->flat[u].data + at;
}

static void measure(Simulation *sim, const Outcome *found, int fragment) {
    EACH_VALUE(sim, found, fragment) {
        double mean = 0;
        for (int w = 0; w < WORKERS; w++) mean += *value_of(sim, w, i) / (double)WORKERS;
        sim->delta[i] = sim->theta[i] - mean;
    }
}

static void apply(Simulation *sim, const Outcome *found, const OuterSpec *spec, int fragment, bool blends) {
    double own = blends ? 0.5 : 0;
    EACH_VALUE(sim, found, fragment) {
        sim->momentum[i] = spec->momentum * sim->momentum[i] + sim->delta[i];
        sim->theta[i] -= spec->lr * (sim->delta[i] + spec->momentum * sim->momentum[i]);
        for (int w = 0; w < WORKERS; w++) {
            float *value = value_of(sim, w, i);
            *value = (float)(own * *value + (1 - own) * sim->theta[i]);
        }
    }
}

static void one_step(Simulation *sim, const Layout *layout, int step) {
    double sum = 0, terms = 0, squares = 0;
    int count = BATCH / WORKERS / layout->micro_batch;
    for (int w = 0; w < WORKERS; w++) {
        HostBatch *micro[BATCH];
        StepResult result;
        double own = 0;
        assert_ok(trial_micros(&sim->worker[w].trial, w, step, micro));
        for (int i = 0; i < count; i++) own += (double)micro[i]->loss_count[LOSS_TOKEN];
        assert_ok(runner_step(sim->worker[w].runner, micro, count,
                              &(StepSpec){.number = step + 1, .lr = trial_lr(layout)}, &result));
        assert_ok(stream_sync(sim->worker[w].runner->stream)); /* the host changes the weights */
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
        sum += own * result.loss;
        terms += own;
        squares += result.grad_norm * result.grad_norm;
    }
    sim->loss[step] = sum / terms;
    sim->norm[step] = sqrt(squares / WORKERS);
}

/* `found` knows the fragments. */
static void simulate(Simulation *sim, const Layout *layout, const Outcome *found) {
    Layout alone = {
        .job = layout->job, .batch = BATCH / WORKERS, .micro_batch = layout->micro_batch, .plain = true};
    const OuterSpec *spec = &layout->outer;
    int64_t all = 0, fragments = spec->fragments ? spec->fragments : 1;
    for (int w = 0; w < WORKERS; w++) sim->worker[w] = run_new(NULL, &alone);
    for (int u = 0; u < found->model->units; u++) all += sim->worker[0].runner->params->count[u];
    assert_ok(mem_new((size_t)all, sizeof(double), &sim->theta));
    assert_ok(mem_new((size_t)all, sizeof(double), &sim->momentum));
    assert_ok(mem_new((size_t)all, sizeof(double), &sim->delta));
    for (int64_t i = 0; i < all; i++) sim->theta[i] = *value_of(sim, 0, i);
    for (int step = 0; step < STEPS; step++) {
        one_step(sim, &alone, step);
        for (int64_t f = 0; f < fragments && step < spec->warmup; f++) {
            measure(sim, found, (int)f);
            apply(sim, found, spec, (int)f, false);
        }
        for (int64_t f = 0; f < fragments && step >= spec->warmup; f++) {
            int64_t turn = (f + 1) * spec->every / fragments;
            for (int64_t started = turn; started <= step + 1; started += spec->every) {
                if (started == step + 1) measure(sim, found, (int)f);
                if (started + spec->overlap == step + 1 && started > spec->warmup)
                    apply(sim, found, spec, (int)f, spec->overlap);
            }
        }
    }
}

/* Compares the synchronized weights of a rank that has all of them. Adam makes full-size steps of the
 * rounding errors that are the gradient of the keys' biases. */
static double outer_diff(const Simulation *sim, const Outcome *found) {
    const Store *outer = found->runner->outer;
    double worst = 0;
    assert_ok(stream_sync(found->runner->stream));
    for (int64_t u = 0, at = 0; u < found->model->units; at += outer->count[u++])
        for (size_t j = 0; j < outer->unit[u].count; j++) {
            const ParamSlot *slot = &outer->unit[u].slot[j];
            for (int64_t i = slot->offset; i < slot->offset + slot->count; i++) {
                double off = fabs(((const float *)outer->flat[u].data)[i] - sim->theta[at + i]);
                if (!strstr(slot->desc.name, "qkv.bias") && !(off <= worst)) worst = off;
            }
        }
    return worst;
}

static const OuterSpec specs[] = {
    {.every = 3, .lr = 0.7, .momentum = 0.9},
    {.every = 5, .fragments = 3, .lr = 0.7, .momentum = 0.9},
    {.every = 4, .fragments = 2, .overlap = 1, .lr = 0.5, .momentum = 0.8},
    {.every = 4, .fragments = 2, .overlap = 2, .lr = 0.7, .momentum = 0.9},
    {.every = 4, .fragments = 2, .overlap = 2, .warmup = 3, .lr = 1},
};
enum { SPECS = sizeof specs / sizeof *specs };

static const struct {
    MeshSpec mesh;
    int zero;
    DType dtype;
} grids[] = {
    {{.dp = 2, .tp = 1, .pp = 1, .shard = 1}, 0, DT_F32},
    {{.dp = 2, .tp = 2, .pp = 1, .shard = 1}, 0, DT_F32},
    {{.dp = 2, .tp = 1, .pp = 2, .shard = 1}, 0, DT_F32},
    {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 0, DT_F32},
    {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 1, DT_F32},
    {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 2, DT_F32},
    {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 3, DT_F32},
};

static void test_simulation(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int k = 0; k < SPECS; k++) {
        CLEANUP(simulation_done) Simulation sim = {0};
        for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
            Layout layout = {.job = JOB_GPT2,
                             .mesh = grids[g].mesh,
                             .zero = grids[g].zero,
                             .chunks = 1,
                             .micro_batch = 2,
                             .outer = specs[k],
                             .plain = true};
            if (layout.mesh.dp * layout.mesh.tp * layout.mesh.pp != world->size) continue;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            if (!sim.theta) simulate(&sim, &layout, &found);
            for (int step = 0; step < STEPS; step++)
                if (!(relative_diff(found.loss[step], sim.loss[step]) <= 1e-5) ||
                    !(relative_diff(found.norm[step], sim.norm[step]) <= 1e-3))
                    fail_msg("%s: every %lld, step %d: loss %.9g, norm %.9g; expected %.9g, %.9g",
                             layout_text(&layout), (long long)specs[k].every, step + 1, found.loss[step],
                             found.norm[step], sim.loss[step], sim.norm[step]);
            if (world->size == WORKERS) assert_true(outer_diff(&sim, &found) < 1e-4);
        }
    }
}

/* Workers that synchronize in every step with an outer learning rate of 1, without momentum, are plain data
 * parallelism for a linear optimizer such as SGD. */
static void test_every_step(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int sgd = 0;
    while (strcmp(optim_row(sgd)->name, "sgd")) sgd++;
    Layout layout = {.job = JOB_CLASSIFY,
                     .mesh = {.dp = world->size, .tp = 1, .pp = 1},
                     .chunks = 1,
                     .micro_batch = 2,
                     .optimizer = sgd,
                     .plain = true};
    CLEANUP(outcome_done) Outcome plain = run(world, &layout, STEPS);
    layout.mesh.shard = 1;
    layout.outer = (OuterSpec){.every = 1, .lr = 1};
    CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
    for (int step = 0; step < STEPS; step++)
        assert_true(relative_diff(found.loss[step], plain.loss[step]) < 1e-5);
    assert_true(relative_diff(found.eval, plain.eval) < 1e-5);
}

/* Parameters that tensor-parallel ranks replicate, and the tied matrix of the first and the last stage. */
static void assert_copies_equal(const Outcome *found) {
    const Shards *shards = found->runner->shards;
    Group *const groups[] = {found->mesh->axis[AXIS_TP], found->mesh->ends};
    for (int g = 0; g < 2; g++)
        for (int u = 0; u < shards->count && groups[g]->size > 1; u++) {
            const ShardUnit *unit = &shards->unit[u];
            for (int k = 0; k < UNIT_RANGES; k++) {
                const UnitRange *range = &unit->layout.range[k];
                size_t bytes = (size_t)range->count * sizeof(float);
                bool copied = g ? unit->twin : unit->held && !range->split;
                CLEANUP(mem_freep) char *all = NULL;
                if (!copied || !bytes) continue;
                assert_ok(mem_new(bytes * (size_t)groups[g]->size, 1, &all));
                assert_ok(host_gather(groups[g], all, (float *)unit->param.data + range->first, bytes));
                for (int r = 1; r < groups[g]->size; r++)
                    assert_memory_equal(all, all + (size_t)r * bytes, bytes);
            }
        }
}

static void assert_workers_equal(const Outcome *found) {
    for (int u = 0; u < found->model->units; u++) {
        const Store *params = found->runner->params, *outer = found->runner->outer;
        size_t size = params->flat[u].bytes;
        CLEANUP(mem_freep) char *all = NULL;
        assert_memory_equal(params->flat[u].data, outer->flat[u].data, size);
        assert_ok(mem_new(size * (size_t)found->mesh->replica->size, 1, &all));
        assert_ok(host_gather(found->mesh->replica, all, params->flat[u].data, size));
        for (int w = 1; w < found->mesh->replica->size; w++)
            assert_memory_equal(all, all + (size_t)w * size, size);
    }
}

/* After the last synchronization all workers have the same weights, and evaluating the synchronized ones
 * leaves the workers' own as they are. */
static void test_last(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const DType dtypes[] = {DT_F32, DT_BF16};
    for (int d = 0; d < 2; d++) {
        Layout layout = {.job = JOB_GPT2,
                         .mesh = {.dp = world->size, .tp = 1, .pp = 1, .shard = world->size / 2},
                         .zero = world->size > 2,
                         .chunks = 1,
                         .micro_batch = 2,
                         .dtype = dtypes[d],
                         .outer = specs[3]};
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
        Runner *runner = found.runner;
        int64_t due, bytes = (int64_t)runner->params->flat[0].bytes;
        CLEANUP(mem_freep) char *own = NULL;
        assert_int_equal(shards_outer_pending(runner->shards, &due), 1); /* since step 12 */
        assert_ok(mem_new((size_t)bytes, 1, &own));
        memcpy(own, runner->params->flat[0].data, (size_t)bytes);
        assert_memory_not_equal(own, runner->outer->flat[0].data, (size_t)bytes);
        assert_ok(runner_use_outer(runner, true));
        assert_memory_equal(own, runner->outer->flat[0].data, (size_t)bytes);
        assert_ok(runner_use_outer(runner, false));
        assert_memory_equal(own, runner->params->flat[0].data, (size_t)bytes);
        assert_ok(runner_sync(runner, STEPS, true));
        assert_ok(stream_sync(runner->stream));
        assert_workers_equal(&found);
        assert_int_equal(shards_outer_pending(runner->shards, &due), -1);
    }
}

/* Gradients that travel as bf16 hardly change the losses. All ZeRO stages round the same sums, and so do
 * other layouts of the same replicas. */
static void test_bf16(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int dp = 2, shard = world->size > 2 ? 2 : 0;
    Layout layout = {
        .job = JOB_GPT2, .mesh = {.dp = dp, .tp = world->size / dp, .pp = 1}, .chunks = 1, .micro_batch = 2};
    CLEANUP(outcome_done) Outcome plain = run(world, &layout, STEPS);
    layout.grad_type = GRAD_BF16;
    CLEANUP(outcome_done) Outcome first = run(world, &layout, STEPS);
    assert_true(first.loss[STEPS - 1] != plain.loss[STEPS - 1]);
    for (int step = 0; step < STEPS; step++)
        assert_true(relative_diff(first.loss[step], plain.loss[step]) < 1e-3);
    for (int zero = 1; zero < 4; zero++) {
        layout.zero = zero;
        CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
        for (int step = 0; step < STEPS; step++)
            assert_true(relative_diff(found.loss[step], first.loss[step]) < (zero < 2 ? 1e-9 : 1e-3));
    }
    if (!shard) return;
    layout.mesh = (MeshSpec){.dp = world->size, .tp = 1, .pp = 1, .shard = shard};
    layout.zero = 1;
    CLEANUP(outcome_done) Outcome hybrid = run(world, &layout, STEPS);
    for (int step = 0; step < STEPS; step++)
        assert_true(relative_diff(hybrid.loss[step], plain.loss[step]) < 1e-3);
}

/* What workers exchange in fewer bits hardly changes the losses either, with and without an overlap, and
 * copies of parameters on several ranks of a worker stay equal. After the last synchronization, so do the
 * workers. */
static void test_exchange_types(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const OuterSpec some[] = {{.every = 3, .lr = 1},
                                     {.every = 4, .fragments = 2, .overlap = 2, .lr = 1}};
    const MeshSpec meshes[] = {{.dp = 2, .tp = world->size / 2, .pp = 1, .shard = 1},
                               {.dp = 2, .tp = 1, .pp = world->size / 2, .shard = 1},
                               {.dp = world->size, .tp = 1, .pp = 1, .shard = 1}};
    for (int k = 0; k < 2; k++)
        for (int m = world->size > 2 ? 0 : 2; m < 3; m++) {
            Layout layout = {.job = JOB_GPT2,
                             .mesh = meshes[m],
                             .chunks = 1,
                             .micro_batch = 2,
                             .outer = some[k],
                             .plain = true};
            CLEANUP(outcome_done) Outcome exact = run(world, &layout, STEPS);
            for (GradType type = GRAD_BF16; type <= GRAD_INT8; type++) {
                layout.outer.type = type;
                CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
                assert_true(found.loss[STEPS - 1] != exact.loss[STEPS - 1]);
                for (int step = 0; step < STEPS; step++)
                    if (!(relative_diff(found.loss[step], exact.loss[step]) < 1e-3))
                        fail_msg("%s: %s, step %d: loss %.9g, in fp32 %.9g", layout_text(&layout),
                                 grad_type_names[type], step + 1, found.loss[step], exact.loss[step]);
                assert_copies_equal(&found);
                assert_ok(runner_sync(found.runner, STEPS, true));
                assert_ok(stream_sync(found.runner->stream));
                assert_copies_equal(&found);
                assert_workers_equal(&found);
            }
        }
}

/* The same for int8, whose rounding errors are larger, but are sent in the next step. */
static void test_int8(void **state) {
    Group *world = ((Ranks *)*state)->world;
    const MeshSpec meshes[] = {{.dp = 2, .tp = world->size / 2, .pp = 1},
                               {.dp = world->size, .tp = 1, .pp = 1}};
    for (int m = 0; m < 2; m++) {
        Layout layout = {.job = JOB_GPT2, .mesh = meshes[m], .chunks = 1, .micro_batch = 2, .words = m == 1};
        CLEANUP(outcome_done) Outcome plain = run(world, &layout, STEPS);
        layout.grad_type = GRAD_INT8;
        for (int zero = 0; zero < 4; zero++) {
            layout.zero = zero;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, STEPS);
            assert_true(found.loss[STEPS - 1] != plain.loss[STEPS - 1]);
            for (int step = 0; step < STEPS; step++)
                if (!(relative_diff(found.loss[step], plain.loss[step]) < 1e-2))
                    fail_msg("%s: step %d: loss %.9g, in fp32 %.9g", layout_text(&layout), step + 1,
                             found.loss[step], plain.loss[step]);
            assert_true(relative_diff(found.eval, plain.eval) < 1e-2);
            if (!zero) assert_copies_equal(&found);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_simulation), cmocka_unit_test(test_every_step),
    cmocka_unit_test(test_last),       cmocka_unit_test(test_bf16),
    cmocka_unit_test(test_int8),       cmocka_unit_test(test_exchange_types),
};

RANKS_MAIN(tests)
