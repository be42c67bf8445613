/* Every optimizer in layouts of every kind: losses, norms and weights equal those of one rank, with a
 * parameter group too. Ranks: 2 4 */
#include <math.h>

#include "train/layouts.h"

/* Later steps execute the same code; rounding errors that grow are seen without the sanitizers. */
enum { STEPS = SANITIZED ? 3 : 8 };

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* Compares this rank's part of the weights. The gradient of the keys' biases is zero except for rounding,
 * which optimizers that normalize updates amplify; so biases are not compared. */
static void compare_weights(const Layout *layout, const Store *part, const Store *whole) {
    double sum = 0, square = 0;
    for (int u = 0; u < part->model->units; u++)
        for (size_t j = 0; part->count[u] && j < part->unit[u].count; j++) {
            const ParamSlot *slot = &part->unit[u].slot[j];
            const float *global = (float *)whole->flat[u].data + whole->unit[u].slot[j].offset;
            int64_t from, count;
            if (!slot->desc.decay || !slot_overlap(slot, part->first[u], part->count[u], &from, &count))
                continue;
            const float *local = (float *)part->flat[u].data + (slot->offset - part->first[u]);
            for (int64_t at = from; at < from + count; at++) {
                ParamRun run = slot_run(slot, at, 1);
                if (run.global < 0) continue;
                double difference = (double)local[at] - global[run.global];
                sum += difference * difference;
                square += (double)global[run.global] * global[run.global];
            }
        }
    if (!(sqrt(sum) <= 1e-5 * sqrt(square)))
        fail_msg("%s: weights differ by %g from one rank's", layout_text(layout), sqrt(sum / square));
}

static void compare(Group *world, Layout layout) {
    Layout one = {.job = layout.job,
                  .micro_batch = 2,
                  .chunks = 1,
                  .optimizer = layout.optimizer,
                  .group = layout.group,
                  .untied = layout.untied};
    Outcome expected, outcome;
    run_alone(world, &one, 1, STEPS, &expected);
    outcome = run(world, &layout, STEPS);
    for (int step = 0; step < STEPS; step++)
        if (!(relative(outcome.loss[step], expected.loss[step]) <= 1e-5 &&
              relative(outcome.norm[step], expected.norm[step]) <= 1e-4))
            fail_msg("%s: step %d: loss %.9g and norm %.9g, on one rank %.9g and %.9g", layout_text(&layout),
                     step + 1, outcome.loss[step], outcome.norm[step], expected.loss[step],
                     expected.norm[step]);
    assert_true(relative(outcome.eval, expected.eval) <= 1e-5);
    assert_true(expected.loss[STEPS - 1] != expected.loss[0]);
    compare_weights(&layout, outcome.runner->params, expected.runner->params);
    outcome_done(&expected);
    outcome_done(&outcome);
}

static const OptimGroup slow_layers = {.pattern = "layer.[13].*", .lr = 0.3, .weight_decay = 0.2};

static void layouts_agree(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int turn = 0;
    for (int row = 1; optim_row(row); row++)
        for (int tp = 1; tp <= world->size; tp *= 2)
            for (int pp = 1; pp <= world->size / tp; pp *= 2) {
                int dp = world->size / tp / pp;
                Layout layout = {.job = (JobKind)(turn % JOBS),
                                 .mesh = {.dp = dp, .tp = tp, .pp = pp},
                                 .zero = dp > 1 ? 1 + turn % 3 : 0,
                                 .chunks = 1,
                                 .micro_batch = 1 + turn % 2,
                                 .schedule = SCHEDULE_1F1B,
                                 .sequence = tp > 1 && turn % 2,
                                 .optimizer = row,
                                 .group = turn % 2 ? &slow_layers : NULL};
                compare(world, layout);
                turn++;
            }
}

/* Muon, whose matrices are gathered, in every ZeRO stage, in hybrid sharding and with offloaded state. */
static void matrices_in_shards(void **state) {
    Group *world = ((Ranks *)*state)->world;
    int muon = 0;
    while (strcmp(optim_row(muon)->name, "muon")) muon++;
    for (int zero = 0; zero <= 3; zero++)
        for (int tp = 1; tp <= world->size / 2; tp *= 2) {
            Layout layout = {.job = (JobKind)(zero % JOBS),
                             .mesh = {.dp = world->size / tp, .tp = tp, .pp = 1},
                             .zero = zero,
                             .chunks = 1,
                             .micro_batch = 1,
                             .optimizer = muon,
                             .offload = zero == 2   ? OFFLOAD_OPTIMIZER
                                        : zero == 3 ? OFFLOAD_PARAMS
                                                    : OFFLOAD_NONE};
            if (layout.mesh.dp == 4 && zero == 1) layout.mesh.shard = 2;
            compare(world, layout);
        }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_agree),
                                          cmocka_unit_test(matrices_in_shards)};

RANKS_MAIN(tests)
