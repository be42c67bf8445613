/* Mixtures of experts in every layout: with their experts on one rank or divided, and any combination of the
 * other axes, they reproduce the losses, gradients and weights of the reference step. So they do if all
 * tokens choose the same experts, or there is hardly a token to choose any.
 *
 * As in mpi_layouts.c, each rank count runs a sample by default, and with WEFT_TEST_ALL=1 all combinations.
 * Ranks: 1 2 4 8 */
#include "data/task.h"
#include "train/compared.h"

enum { MIXTURES = 3, EXPERTS = 8, TOP_K = 2 };
/* One with a shared expert and a dense layer between; the last one in few layouts. */
static const Family *const mixtures[MIXTURES] = {&family_mixtral, &family_qwen2_moe, &family_qwen3_moe};

static Layout mixture(int number, int micro_batch) {
    return (Layout){.job = job_of(mixtures[number]),
                    .experts = EXPERTS,
                    .top_k = TOP_K,
                    .chunks = 1,
                    .micro_batch = micro_batch};
}

/* ---- all layouts ---- */

typedef struct Matrix {
    Group *world;
    bool all;
    unsigned sample;
    int done;
    Outcome expected[MIXTURES];
} Matrix;

/* Tests the values of all other axes for one grid. A sample has one of them, by a stride that is coprime to
 * their number; all layouts of one model are tested, except on eight ranks, and of the others some. */
static void check_options(Matrix *matrix, MeshSpec mesh, int model) {
    static const int stride[MIXTURES] = {1, 5, 29};
    int options = options_of(mesh), tried = 0;
    for (int k = 0; k < options && (matrix->all || !tried); k++) {
        unsigned number = matrix->sample++;
        int at = matrix->all ? k : (int)((number * 29 + 7) % (unsigned)options);
        Layout layout;
        if (!layout_at(mesh, job_of(mixtures[model]), at, &layout)) continue;
        layout.experts = EXPERTS;
        layout.top_k = TOP_K;
        int every = stride[model] * (matrix->world->size == 8 ? 5 : 1);
        if (matrix->all && number % (unsigned)every) continue;
        layout.offload = number / 2 % 2 ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
        CLEANUP(outcome_done) Outcome found = run_checked(matrix->world, &layout, &matrix->expected[model]);
        tried++;
    }
    matrix->done += tried;
}

static void test_matrix(void **state) {
    Group *world = ((Ranks *)*state)->world;
    Matrix matrix = {.world = world, .all = getenv("WEFT_TEST_ALL") != NULL};
    Layout alone[MIXTURES];
    for (int i = 0; i < MIXTURES; i++) alone[i] = mixture(i, REFERENCE_MICRO);
    run_each(world, alone, MIXTURES, compared_steps(), reference_run, matrix.expected);
    int turn = 0; /* a sample has one model in each grid, and of eight ranks some grids */
    for (MeshSpec mesh = {0}; mesh_next(&mesh, world->size, (MeshSpec){.tp = 4, .pp = 4, .cp = 4});)
        for (int ep = 1; ep <= 8; ep *= 2) {
            if (mesh_copies(mesh) % ep) continue;
            mesh.ep = ep;
            turn++;
            for (int i = 0; i < MIXTURES; i++)
                if (matrix.all || (i == turn % MIXTURES && (world->size < 8 || ep == 8 || turn % 4 == 0)))
                    check_options(&matrix, mesh, i);
        }
    if (world->rank == 0) print_message("%d layouts\n", matrix.done);
    for (int i = 0; i < MIXTURES; i++) outcome_done(&matrix.expected[i]);
}

/* ---- equal bits ---- */

static bool same_run(const Outcome *found, const Outcome *expected) {
    return !memcmp(found->loss, expected->loss, STEPS_EXACT * sizeof *found->loss) &&
           !memcmp(found->norm, expected->norm, STEPS_EXACT * sizeof *found->norm) &&
           found->eval == expected->eval;
}

/* Recomputing and offloading change no bit, nor does sharding, except with a vocabulary matrix in pieces and
 * over NCCL. */
static void test_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size > 4) skip();
    for (int ep = 1; ep <= world->size; ep *= 2) {
        Outcome first[3];
        memset(first, 0, sizeof first);
        Layout layout = mixture(ep % 2, BATCH / world->size);
        layout.mesh = (MeshSpec){.dp = world->size, .tp = 1, .pp = 1, .ep = ep};
        for (int at = 0; at < 12; at++) {
            if (at == 2 || at == 4 || at == 8 || at == 9) continue;
            layout.zero = at % 4;
            layout.recompute = (Recompute)(at / 4);
            layout.keep = at == 3;
            layout.offload = at == 7 ? OFFLOAD_PARAMS : at == 5 ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
            if (at == 6 || at > 8) layout.offload = offload_join(layout.offload, OFFLOAD_ACTIVATIONS);
            Outcome found = run(world, &layout, STEPS_EXACT);
            int kind = found.runner->vocab.pieces > 1 ? 2 : same_bits(world, layout.zero);
            if (!first[kind].runner) {
                first[kind] = found;
                continue;
            }
            if (!same_run(&found, &first[kind])) fail_msg("%s: other bits", layout_text(&layout));
            outcome_done(&found);
        }
        for (int kind = 0; kind < 3; kind++)
            if (first[kind].runner) outcome_done(&first[kind]);
    }
}

/* ---- optimizers and precisions ---- */

/* A grid for each of several turns, with experts divided in most. */
enum { GRIDS = 5 };
static MeshSpec grid_of(int ranks, int turn) {
    const MeshSpec grids[GRIDS] = {
        {.dp = ranks, .tp = 1, .pp = 1, .ep = ranks},
        {.dp = ranks / 2, .tp = 1, .pp = 1, .cp = 2, .ep = ranks > 4 ? 4 : 2},
        {.dp = ranks / 2, .tp = 2, .pp = 1, .ep = ranks / 2},
        {.dp = ranks / 2, .tp = 1, .pp = 2, .ep = ranks / 2},
        {.dp = ranks, .tp = 1, .pp = 1, .ep = 2},
    };
    return ranks == 1 ? (MeshSpec){.dp = 1, .tp = 1, .pp = 1} : grids[turn % GRIDS];
}

/* How many of the grids are tried: a sample tries each of them with some case. */
static int grids_tried(int ranks) {
    return ranks == 1 || SANITIZED ? 1 : getenv("WEFT_TEST_ALL") ? GRIDS : 2;
}

/* Root of the sum of squared differences of the weights that this rank updates, relative to that of the
 * weights. */
static double weights_apart(const Outcome *found, const Outcome *expected) {
    const Store *part = found->runner->params, *all = expected->runner->params;
    double sum = 0, square = 0;
    for (int u = 0; u < part->model->units; u++) {
        CLEANUP(mem_freep) float *own = unit_values(part, u), *complete = unit_values(all, u);
        for (size_t j = 0; part->count[u] && j < part->unit[u].count; j++) {
            const ParamSlot *slot = &part->unit[u].slot[j];
            const float *global = complete + all->unit[u].slot[j].offset;
            int64_t from, count;
            if (!slot_overlap(slot, part->first[u], part->count[u], &from, &count)) continue;
            for (int64_t at = from; at < from + count; at++) {
                ParamRun run = slot_run(slot, at, 1);
                if (run.global < 0 || strstr(slot->desc.name, "bias")) continue;
                double off = (double)own[slot->offset + at - part->first[u]] - global[run.global];
                sum += off * off;
                square += (double)global[run.global] * global[run.global];
            }
        }
    }
    return square > 0 ? sqrt(sum / square) : 0;
}

/* Every optimizer: Muon orthogonalizes each matrix of each expert. */
static void test_optimizers(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size > 4) skip();
    int turn = 0;
    for (int row = 1; optim_row(row); row++) {
        Layout alone = mixture(row % 2, REFERENCE_MICRO);
        alone.optimizer = row;
        CLEANUP(outcome_done) Outcome expected;
        run_each(world, &alone, 1, compared_steps(), reference_run, &expected);
        for (int k = 0; k < grids_tried(world->size); k++, turn++) {
            Layout layout = alone;
            layout.mesh = grid_of(world->size, turn);
            layout.zero = turn % 4;
            layout.micro_batch = 1 + turn % 2;
            layout.recompute = (Recompute)(turn % 3);
            if (layout.zero && turn % 2 && row % 2) layout.mesh.shard = mesh_copies(layout.mesh) / 2;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, compared_steps());
            for (int step = 0; step < compared_steps(); step++)
                if (!(relative_diff(found.loss[step], expected.loss[step]) <= 1e-5 &&
                      relative_diff(found.norm[step], expected.norm[step]) <= 1e-3))
                    fail_msg("%s: step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g",
                             layout_text(&layout), step + 1, found.loss[step], found.norm[step],
                             expected.loss[step], expected.norm[step]);
            double apart = weights_apart(&found, &expected);
            if (!(apart <= 2e-5))
                fail_msg("%s: weights differ by %g from one rank", layout_text(&layout), apart);
        }
    }
}

/* In 16 bits, other sums of matmuls move activations by rounding errors, and with them a token whose experts
 * have almost the same score to another one; so with tensor parallelism, all are chosen. */
static void test_16_bits(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size == 1 || world->size > 4) skip();
    for (int k = 0, turn = 0; k < 4; k++) {
        Layout alone = mixture(k % 2, REFERENCE_MICRO);
        alone.dtype = k < 2 ? DT_BF16 : DT_F16;
        alone.experts = 4;
        alone.top_k = k % 2 ? TOP_K : 4;
        double allowed = alone.dtype == DT_BF16 ? 1.0 / 256 : 1.0 / 2048;
        CLEANUP(outcome_done) Outcome expected;
        run_alone(world, &alone, 1, compared_steps(), &expected);
        for (int tried = 0; tried < grids_tried(world->size); turn++) {
            Layout layout = alone;
            layout.mesh = grid_of(world->size, turn);
            layout.zero = turn % 4;
            layout.micro_batch = 1;
            layout.recompute = (Recompute)(turn % 3);
            layout.sequence = layout.mesh.tp > 1 && k < 2;
            layout.schedule = layout.mesh.pp > 1 && k < 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            if (layout.mesh.tp > 1 && layout.top_k == TOP_K) continue;
            tried++;
            CLEANUP(outcome_done) Outcome found = run(world, &layout, compared_steps());
            for (int step = 0; step < compared_steps(); step++)
                if (!(relative_diff(found.loss[step], expected.loss[step]) <= allowed))
                    fail_msg("%s: step %d: loss %.7g, on one rank %.7g", layout_text(&layout), step + 1,
                             found.loss[step], expected.loss[step]);
        }
    }
}

/* Experts' gradients travel in fewer bits between the ranks that have the same ones. */
static void test_types(void **state) {
    Group *world = ((Ranks *)*state)->world;
    if (world->size == 1 || world->size > 4) skip();
    Layout alone = mixture(1, REFERENCE_MICRO);
    alone.top_k = EXPERTS;
    CLEANUP(outcome_done) Outcome expected;
    run_each(world, &alone, 1, compared_steps(), reference_run, &expected);
    for (int turn = 0; turn < 2 * grids_tried(world->size); turn++) {
        Layout layout = alone;
        layout.mesh = grid_of(world->size, 4 + turn / 2);
        layout.zero = turn % 4;
        layout.micro_batch = 1;
        layout.grad_type = turn % 2 ? GRAD_INT8 : GRAD_BF16;
        CLEANUP(outcome_done) Outcome found = run(world, &layout, compared_steps());
        for (int step = 0; step < compared_steps(); step++)
            if (!(relative_diff(found.loss[step], expected.loss[step]) <= 1e-3))
                fail_msg("%s: %s gradients: step %d: loss %.9g, on one rank %.9g", layout_text(&layout),
                         grad_type_names[layout.grad_type], step + 1, found.loss[step], expected.loss[step]);
    }
}

/* In fp8, all matmuls but those of experts and routers: losses follow those of bf16, and recomputing changes
 * no bit. All experts are chosen, as above. */
static void test_fp8(void **state) {
    if (((Ranks *)*state)->world->size > 1) skip();
    for (int k = 0; k < 2; k++) {
        Layout layout = mixture(k, BATCH);
        layout.dtype = DT_BF16;
        layout.wide = true;
        layout.experts = layout.top_k = 4;
        CLEANUP(outcome_done) Outcome expected = run(NULL, &layout, STEPS_EXACT);
        layout.fp8 = true;
        layout.fp8_scaling = k ? FP8_DELAYED : FP8_EXACT;
        CLEANUP(outcome_done) Outcome kept = run(NULL, &layout, STEPS_EXACT);
        assert_true(kept.loss[0] != expected.loss[0]);
        for (int step = 0; step < STEPS_EXACT; step++)
            if (!(relative_diff(kept.loss[step], expected.loss[step]) <= 0.02))
                fail_msg("%s: step %d: loss %.7g, with bf16 %.7g", layout_text(&layout), step + 1,
                         kept.loss[step], expected.loss[step]);
        for (int mode = RECOMPUTE_SELECTIVE; mode <= RECOMPUTE_BLOCK; mode++) {
            layout.recompute = (Recompute)mode;
            CLEANUP(outcome_done) Outcome again = run(NULL, &layout, STEPS_EXACT);
            if (!same_run(&again, &kept)) fail_msg("%s: other bits", layout_text(&layout));
        }
    }
}

/* ---- gradients ---- */

/* What is done to a trial before it runs. Weights do not change, so that each step shows gradients alone. */
typedef struct Load {
    const char *what;
    int mixture, experts, top_k;
    bool tied;   /* routers are zero: of equal scores, the first experts are chosen */
    int length;  /* of every sequence; 0: all of it */
    double coef; /* of the balancing loss; 0: the model's, negative: none */
} Load;

enum { LOAD_STEPS = 2 }; /* the second is balanced by the first one's load */

/* The runs of a load on one rank and in a layout, and the step that they compare. */
typedef struct Both {
    const Load *load;
    Outcome alone, found;
    double norm; /* of this step, on one rank */
    const char *text;
} Both;

static Outcome load_new(Group *world, const Load *load, Layout layout) {
    layout.job = job_of(mixtures[load->mixture]);
    layout.experts = load->experts ? load->experts : EXPERTS;
    layout.top_k = load->top_k ? load->top_k : TOP_K;
    layout.frozen = true;
    layout.plain = true;
    Outcome outcome = run_new(world, &layout);
    outcome.runner->spec.balance = load->coef < 0 ? BALANCE_NONE : BALANCE_AUX;
    outcome.runner->spec.balance_coef = load->coef;
    Store *params = outcome.runner->params;
    for (int u = 0; load->tied && u < outcome.model->units; u++) {
        CLEANUP(mem_freep) float *values = unit_values(params, u);
        for (size_t j = 0; params->count[u] && j < params->unit[u].count; j++) {
            const ParamSlot *slot = &params->unit[u].slot[j];
            int64_t from, count;
            if (!strstr(slot->desc.name, "moe.router")) continue;
            if (!slot_overlap(slot, params->first[u], params->count[u], &from, &count)) continue;
            for (int64_t at = from; at < from + count; at++) values[slot->offset + at - params->first[u]] = 0;
        }
        unit_set_values(params, u, values);
    }
    assert_ok(runner_publish(outcome.runner));
    return outcome;
}

static void load_step(Outcome *outcome, const Load *load, int step, StepJudge *judge, void *context) {
    HostBatch *micro[BATCH];
    StepResult result;
    int count = outcome->runner->spec.micros;
    assert_ok(trial_micros(&outcome->trial, outcome->runner->mesh->at[AXIS_DP], 2 * step, micro));
    for (int i = 0; load->length && i < count; i++) {
        for (int64_t b = 0; b < micro[i]->B; b++) micro[i]->lens[b] = load->length;
        for (int64_t t = 0; t < micro[i]->B * SEQ; t++)
            if (t % SEQ >= load->length) micro[i]->labels[t] = LABEL_IGNORED;
        micro[i]->padded = true;
        host_batch_count(micro[i]);
    }
    poison_gradients(outcome->runner);
    assert_ok(runner_step(outcome->runner, micro, count,
                          &(StepSpec){.number = step + 1, .judge = judge, .context = context}, &result));
    outcome->loss[step] = result.loss;
    for (int i = 0; i < count; i++) host_batch_free(micro[i]);
}

/* The norm of the gradients of a rank that has all of them. */
static double norm_of(const Outcome *outcome) {
    double sum = 0;
    for (int u = 0; u < outcome->model->units; u++) {
        CLEANUP(mem_freep) float *values = unit_values(outcome->runner->grads, u);
        for (int64_t i = 0; i < outcome->runner->grads->count[u]; i++) sum += (double)values[i] * values[i];
    }
    return sqrt(sum);
}

static Status judge_alone(void *context, StepResult *result, StepAction *ret_action) {
    Both *both = context;
    assert_ok(mesh_section_end(both->alone.runner->mesh, &result->stop));
    both->norm = norm_of(&both->alone);
    assert_true(relative_diff(result->grad_norm, both->norm) <= 1e-5);
    *ret_action = STEP_APPLY;
    return OK;
}

/* The norm has every expert once. */
static Status judge_found(void *context, StepResult *result, StepAction *ret_action) {
    Both *both = context;
    const char *name = "";
    assert_ok(mesh_section_end(both->found.runner->mesh, &result->stop));
    double diff =
        max_store_diff(&both->found, both->found.runner->grads, both->alone.runner->grads, 1e-4, &name);
    if (!(diff <= 1e-3)) fail_msg("%s: the gradient of %s differs by %g", both->text, name, diff);
    if (!(relative_diff(result->grad_norm, both->norm) <= 1e-5))
        fail_msg("%s: gradient norm %.9g, on one rank %.9g", both->text, result->grad_norm, both->norm);
    *ret_action = STEP_APPLY;
    return OK;
}

static void check_load(Group *world, const Load *load, const Layout *layout) {
    char text[TRIAL_TEXT + 64];
    Both both = {.load = load, .text = text};
    snprintf(text, sizeof text, "%s: %s", load->what, layout_text(layout));
    both.alone = load_new(NULL, load, (Layout){.micro_batch = REFERENCE_MICRO});
    both.found = load_new(world, load, *layout);
    for (int step = 0; step < LOAD_STEPS; step++) {
        load_step(&both.alone, load, step, judge_alone, &both);
        load_step(&both.found, load, step, judge_found, &both);
        if (!(relative_diff(both.found.loss[step], both.alone.loss[step]) <= 1e-5))
            fail_msg("%s: loss %.9g, on one rank %.9g", text, both.found.loss[step], both.alone.loss[step]);
    }
    outcome_done(&both.found);
    outcome_done(&both.alone);
}

/* Gradients of all parameters, the experts' too, are those of one rank: neither sums nor norms have any of
 * them twice, or without the others. */
static void test_loads(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const Load loads[] = {
        {.what = "usual"},
        {.what = "shared expert", .mixture = 1},
        {.what = "no balancing", .coef = -1},
        {.what = "strong balancing", .coef = 10},
        {.what = "all tokens choose one expert", .tied = true, .top_k = 1},
        {.what = "all tokens choose two experts", .tied = true, .mixture = 1},
        {.what = "one token per sequence", .length = 1},
        {.what = "more experts than tokens", .length = 1, .experts = 32, .top_k = 1, .mixture = 1},
        {.what = "one expert", .experts = 1, .top_k = 1},
        {.what = "all experts", .experts = 4, .top_k = 4, .mixture = 1},
    };
    if (world->size > 4) skip();
    for (int i = 0, turn = 0; i < (int)(sizeof loads / sizeof *loads); i++)
        for (int k = 0; k < grids_tried(world->size); k++, turn++) {
            Layout layout = {.mesh = grid_of(world->size, turn),
                             .zero = turn % 4,
                             .chunks = 1,
                             .micro_batch = 1 + turn % 2,
                             .recompute = (Recompute)(turn % 3),
                             .mlp_rows = 3,
                             .cp_mode = turn % 2 ? CONTEXT_RING : CONTEXT_HEADS};
            if (loads[i].experts == 1) layout.mesh.ep = 1;
            if (layout.mesh.cp <= 1) layout.cp_mode = CONTEXT_AUTO;
            layout.schedule = layout.mesh.pp > 1 && turn % 2 ? SCHEDULE_ZERO_BUBBLE : SCHEDULE_1F1B;
            layout.sequence = layout.mesh.tp > 1 && turn % 2;
            check_load(world, &loads[i], &layout);
        }
}

static double router_gradient(const Outcome *outcome, float *values) {
    const Store *grads = outcome->runner->grads;
    double sum = 0;
    for (size_t j = 0; j < grads->unit[1].count; j++) {
        const ParamSlot *slot = &grads->unit[1].slot[j];
        CLEANUP(mem_freep) float *all = unit_values(grads, 1);
        if (strcmp(slot->desc.name, "layer.0.moe.router.weight")) continue;
        for (int64_t i = 0; i < slot->count; i++) {
            double value = all[slot->offset + i];
            sum += (value - values[i]) * (value - values[i]);
            values[i] = (float)value;
        }
    }
    return sqrt(sum);
}

static Status judge_nothing(void *context, StepResult *result, StepAction *ret_action) {
    Outcome *outcome = context;
    *ret_action = STEP_APPLY;
    return mesh_section_end(outcome->runner->mesh, &result->stop);
}

/* The balancing loss has a gradient from the second step on, in proportion to its coefficient. */
static void test_balance(void **state) {
    if (((Ranks *)*state)->world->size > 1) skip();
    static const double coefs[] = {-1, 0.5, 1};
    double apart[LOAD_STEPS][3];
    float values[LOAD_STEPS][EXPERTS * 16] = {{0}};
    for (int k = 0; k < 3; k++) {
        const Load load = {.coef = coefs[k]};
        CLEANUP(outcome_done) Outcome outcome = load_new(NULL, &load, (Layout){.micro_batch = BATCH});
        for (int step = 0; step < LOAD_STEPS; step++) {
            load_step(&outcome, &load, step, judge_nothing, &outcome);
            apart[step][k] = router_gradient(&outcome, values[step]);
        }
    }
    assert_true(apart[0][0] > 0 && apart[1][0] > 0);
    assert_true(apart[0][1] <= 1e-6 * apart[0][0] && apart[0][2] <= 1e-6 * apart[0][0]);
    assert_true(apart[1][1] > 0.01 * apart[1][0]);
    assert_true(relative_diff(apart[1][2], apart[1][1]) <= 1e-3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_loads),      cmocka_unit_test(test_balance), cmocka_unit_test(test_matrix),
    cmocka_unit_test(test_optimizers), cmocka_unit_test(test_16_bits), cmocka_unit_test(test_bits),
    cmocka_unit_test(test_types),      cmocka_unit_test(test_fp8),
};

RANKS_MAIN(tests)
