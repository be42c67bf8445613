/* The same run in any layout: every legal mix of data, tensor and pipeline ranks with ZeRO stages,
 * schedules and recomputation gives the losses of one rank, step by step, and the same weights, from the
 * same seed, with dropout, accumulation and clipping.
 *
 * The matrix is generated. By itself each number of ranks runs a sample of it that differs from layout to
 * layout so that all values of all axes come up; WEFT_TEST_ALL=1 runs all of it.
 * Ranks: 1 2 4 8 */
#include "ranks.h"

#include <math.h>

#include "train/runner.h"

enum { SEQ = 8, BATCH = 8, STEPS = 20, VOCAB = 61 };

typedef enum { JOB_GPT2, JOB_BERT, JOB_SPAN, JOBS } JobKind;
static const char *const job_names[JOBS] = {"gpt2", "bert", "span"};

static ModelConfig config_of(JobKind kind) {
    bool bert = kind != JOB_GPT2;
    return (ModelConfig){
        .family = bert ? FAMILY_BERT : FAMILY_GPT2,
        .heads_mask = kind == JOB_GPT2   ? HEAD_LM
                      : kind == JOB_BERT ? HEAD_MLM | HEAD_NSP
                                         : HEAD_SPAN,
        .pooler = kind == JOB_BERT,
        .layers = 6,
        .hidden = 16,
        .heads = 4,
        .inner = 24,
        .vocab = VOCAB,
        .positions = SEQ,
        .types = bert ? 2 : 0,
        .labels = 2,
        .act = bert ? ACT_GELU_ERF : ACT_GELU_TANH,
        .norm_eps = 1e-5f,
        .init_std = 0.1f,
        .dropout_embed = 0.1f,
        .dropout_attn = 0.1f,
        .dropout_hidden = 0.1f,
        .tied = true,
        .scale_attn = true,
        .pad_token = bert ? 0 : -1,
        .bos_token = -1,
        .eos_token = -1,
    };
}

static int32_t draw(const char *site, int64_t step, int64_t index, int64_t below) {
    return (int32_t)rng_below(rng_key(5, site, (uint64_t)step), (uint64_t)index, (uint64_t)below);
}

/* Sequences first .. first + count - 1 of a step's batch; those of BERT are of several lengths. */
static HostBatch *batch_of(JobKind kind, int64_t step, int64_t first, int64_t count) {
    HostBatch *batch = NULL;
    assert_ok(host_batch_new(&batch, count, SEQ));
    batch->task = kind == JOB_GPT2 ? TASK_LM : kind == JOB_BERT ? TASK_MLM : TASK_SPAN;
    batch->has_types = batch->padded = kind != JOB_GPT2;
    for (int64_t b = 0; b < count; b++) {
        int64_t global = first + b;
        int32_t length = kind == JOB_GPT2 ? SEQ : SEQ - draw("length", step, global, 4);
        batch->lens[b] = length;
        batch->nsp[b] = draw("next", step, global, 2);
        batch->span[b] = draw("start", step, global, length);
        batch->span[count + b] = draw("end", step, global, length);
        for (int64_t t = 0; t < SEQ; t++) {
            int64_t i = b * SEQ + t;
            bool real = t < length;
            batch->tokens[i] = real ? 1 + draw("token", step, global * SEQ + t, VOCAB - 1) : 0;
            batch->types[i] = real && t > 3;
            batch->labels[i] = draw("label", step, global * SEQ + t, VOCAB);
            if (kind != JOB_BERT || !real || draw("pick", step, global * SEQ + t, 3)) continue;
            batch->picks[batch->pick_count] = (int32_t)i;
            batch->pick_labels[batch->pick_count++] = batch->labels[i];
        }
    }
    batch->loss_count[LOSS_TOKEN] = kind == JOB_GPT2 ? count * SEQ : kind == JOB_BERT ? batch->pick_count : 0;
    batch->loss_count[LOSS_NSP] = kind == JOB_BERT ? count : 0;
    batch->loss_count[LOSS_SPAN_START] = batch->loss_count[LOSS_SPAN_END] = kind == JOB_SPAN ? count : 0;
    return batch;
}

typedef struct Layout {
    JobKind job;
    MeshSpec mesh;
    int zero, chunks, micro_batch;
    ScheduleKind schedule;
    Recompute recompute;
    bool sequence, keep;
} Layout;

static const char *layout_text(const Layout *l) {
    static char text[256];
    static const char *const recompute[] = {"none", "selective", "block"};
    snprintf(text, sizeof text,
             "%s dp %d tp %d pp %d shard %d zero %d%s %s chunks %d recompute %s micro-batch %d%s",
             job_names[l->job], l->mesh.dp, l->mesh.tp, l->mesh.pp, l->mesh.shard, l->zero,
             l->keep ? " keep" : "", schedule_name(l->schedule), l->chunks, recompute[l->recompute],
             l->micro_batch, l->sequence ? " sequence" : "");
    return text;
}

typedef struct Outcome {
    double loss[STEPS], norm[STEPS], eval;
    Model *model;
    Device *device;
    Runner *runner;
    Mesh *mesh;
} Outcome;

static void outcome_done(Outcome *outcome) {
    runner_free(outcome->runner);
    mesh_free(outcome->mesh);
    device_free(outcome->device);
    model_free(outcome->model);
}

static Outcome run(Group *world, const Layout *layout, int steps) {
    Outcome outcome = {0};
    ModelConfig config = config_of(layout->job);
    assert_ok(model_new(&outcome.model, &config));
    assert_ok(device_new_cpu(&outcome.device, 1));
    if (world) assert_ok(mesh_new(&outcome.mesh, world, layout->mesh));
    RunnerSpec spec = {.micro_batch = layout->micro_batch,
                       .seq = SEQ,
                       .train = true,
                       .recompute = layout->recompute,
                       .optim = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .clip = 1},
                       .seed = 9,
                       .mesh = outcome.mesh,
                       .zero = layout->zero,
                       .keep_params = layout->keep,
                       .sequence = layout->sequence,
                       .schedule = layout->schedule,
                       .chunks = layout->chunks};
    int dp = world ? layout->mesh.dp : 1, replica = world ? outcome.mesh->at[AXIS_DP] : 0;
    int count = BATCH / dp / layout->micro_batch;
    spec.micros = count;
    assert_ok(kernels_find("cpu", &spec.table));
    assert_ok(runner_new(&outcome.runner, outcome.model, outcome.device, &spec));
    assert_ok(store_init_params(outcome.runner->params, outcome.runner->stream, 3));
    assert_ok(runner_publish(outcome.runner));
    HostBatch *micro[BATCH];
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < count; i++)
            micro[i] = batch_of(layout->job, step, ((int64_t)replica * count + i) * layout->micro_batch,
                                layout->micro_batch);
        StepResult result;
        assert_ok(runner_step(outcome.runner, micro, count, step + 1, 2e-3, &result));
        outcome.loss[step] = result.loss;
        outcome.norm[step] = result.grad_norm;
        if (step + 1 == steps) {
            double sums[LOSS_COUNT] = {0};
            int64_t counts[LOSS_COUNT] = {0};
            assert_ok(runner_eval(outcome.runner, micro, count, sums, counts));
            outcome.eval = loss_objective(sums, counts);
        }
        for (int i = 0; i < count; i++) host_batch_free(micro[i]);
    }
    return outcome;
}

static double apart(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* What adds to all keys, or to all places among which a span is chosen, changes nothing: its gradient is
 * rounding, of which Adam makes full steps. */
static bool gradient_is_rounding(const Outcome *outcome, const char *name) {
    bool span = outcome->model->config.heads_mask == HEAD_SPAN;
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
    if (!references[job].runner) references[job] = run(NULL, &(Layout){.job = job, .micro_batch = 2}, STEPS);
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
            assert_memory_equal(found.loss, first.loss, sizeof found.loss);
            assert_memory_equal(found.norm, first.norm, sizeof found.norm);
            const char *name = "";
            assert_true(weights_apart(&found, &first, &name) == 0);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_matrix),
    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_hybrid),
};

RANKS_MAIN(tests)
