/* Tests parallel layouts against PyTorch: losses and gradient norms of the AdamW steps of each golden case,
 * with two ranks in data, tensor or pipeline parallelism, and with four ranks in two of these at once.
 *
 * Ranks: 2 4 */
#include "ranks.h"

#include "model/golden.h"
#include "optim/lr.h"

static const char *const cases[] = {GOLDEN_STEPS};
enum { CASES = sizeof cases / sizeof *cases };

/* Each step has two micro-batches, distributed over the data-parallel replicas. */
static void check_steps(Golden *golden, const Mesh *mesh) {
    const json_t *train = json_object_get(golden->facts, "train");
    const json_t *losses = json_object_get(train, "losses"), *norms = json_object_get(train, "grad_norms");
    int64_t steps = (int64_t)golden_number(train, "steps");
    LrSchedule schedule = {.kind = LR_LINEAR,
                           .peak = golden_number(train, "peak_lr"),
                           .warmup = (int64_t)golden_number(train, "warmup"),
                           .steps = steps};
    int count = 2 / mesh->extent[AXIS_DP], first = mesh->at[AXIS_DP] * count;
    for (int64_t step = 1; step <= steps; step++) {
        HostBatch *micros[2];
        for (int k = 0; k < count; k++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "step.%d.%d.", (int)step, first + k);
            micros[k] = golden_batch(golden, prefix);
        }
        StepResult result;
        assert_ok(runner_step(golden->runner, micros, count,
                              &(StepSpec){.number = step, .lr = lr_at(&schedule, step)}, &result));
        double loss = json_number_value(json_array_get(losses, (size_t)step - 1));
        double norm = json_number_value(json_array_get(norms, (size_t)step - 1));
        if (!(fabs(result.loss - loss) <= 1e-4 * loss) || !(fabs(result.grad_norm - norm) <= 1e-3 * norm))
            fail_msg("%s: dp %d tp %d pp %d, step %d: loss %.9g, gradient norm %.9g; expected %.9g, %.9g",
                     golden->dir, mesh->extent[AXIS_DP], mesh->extent[AXIS_TP], mesh->extent[AXIS_PP],
                     (int)step, result.loss, result.grad_norm, loss, norm);
        for (int k = 0; k < count; k++) host_batch_free(micros[k]);
    }
}

/* Whether a micro-batch's rows divide evenly among the tensor-parallel ranks, as sequence parallelism
 * requires. */
static bool rows_divide(const char *name, int tp) {
    char path[GOLDEN_PATH];
    json_t *facts = NULL;
    assert_true(snprintf(path, GOLDEN_PATH, WEFT_TEST_DIR "/golden/cases/%s/golden.json", name) <
                GOLDEN_PATH);
    assert_ok(json_read_file(path, &facts));
    int64_t rows = (int64_t)(golden_number(facts, "B") * golden_number(facts, "T"));
    json_decref(facts);
    return rows % tp == 0;
}

static void test_cases(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int turn = 0;
    for (int dp = 1; dp <= 2; dp++)
        for (int tp = 1; tp <= 2; tp++)
            for (int pp = 1; pp <= 2; pp++) {
                if (dp * tp * pp != world->size) continue;
                CLEANUP(mesh_freep) Mesh *mesh = NULL;
                assert_ok(mesh_new(&mesh, world, (MeshSpec){.dp = dp, .tp = tp, .pp = pp}));
                for (int i = 0; i < CASES; i++, turn++) {
                    RunnerSpec layout = {.mesh = mesh,
                                         .zero = turn % 4,
                                         .schedule = turn % 3 ? SCHEDULE_1F1B : SCHEDULE_ZERO_BUBBLE,
                                         .micros = 2 / dp};
                    CLEANUP(golden_done) Golden golden;
                    layout.sequence = rows_divide(cases[i], tp) && turn % 2;
                    golden_init_layout(&golden, cases[i], test_kernels(), (Recompute)(turn % 3), 1, &layout);
                    check_steps(&golden, mesh);
                }
            }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

RANKS_MAIN(tests)
