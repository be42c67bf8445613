/* --trace: the file contains every action of each rank's schedule once per step, along with its messages and
 * reductions, for all ranks, in the format that trace viewers read. Untraced steps are not recorded.
 * Ranks: 2 */
#include "ranks.h"
#include "tiny.h"

#include <unistd.h>

#include "base/json.h"
#include "train/tracer.h"

enum { SEQ = 8, MICROS = 4, STEPS = 2, LAYERS = 4 };

typedef struct Rig {
    Model *model;
    Device *device;
    Mesh *mesh;
    Runner *runner;
    HostBatch *batch;
} Rig;

static void rig_done(Rig *rig) {
    runner_free(rig->runner);
    mesh_free(rig->mesh);
    device_free(rig->device);
    model_free(rig->model);
    host_batch_free(rig->batch);
}

static Rig rig_new(Group *world, MeshSpec grid, RunnerSpec spec) {
    Rig rig = {0};
    ModelConfig config = tiny_config(&family_gpt2, OUTPUT_LM, TINY_TRACED);
    assert_ok(model_new(&rig.model, &config));
    assert_ok(device_new_cpu(&rig.device, 1));
    assert_ok(mesh_new(&rig.mesh, world, grid));
    spec.micro_batch = 1;
    spec.seq = SEQ;
    spec.train = true;
    spec.optim = (OptimSpec){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1};
    spec.mesh = rig.mesh;
    spec.micros = MICROS;
    assert_ok(kernels_find("cpu", &spec.table));
    assert_ok(runner_new(&rig.runner, rig.model, rig.device, &spec));
    assert_ok(store_init_params(rig.runner->params, rig.runner->stream, 3));
    assert_ok(runner_publish(rig.runner));
    assert_ok(host_batch_new(&rig.batch, 1, SEQ));
    rig.batch->task = TASK_LM;
    for (int64_t i = 0; i < SEQ; i++) rig.batch->tokens[i] = rig.batch->labels[i] = (int32_t)(i % 61);
    rig.batch->lens[0] = SEQ;
    rig.batch->loss_count[LOSS_TOKEN] = SEQ;
    return rig;
}

static void rig_steps(Rig *rig, Tracer *tracer, int first, int count) {
    HostBatch *micro[MICROS];
    for (int i = 0; i < MICROS; i++) micro[i] = rig->batch;
    for (int step = first; step < first + count; step++) {
        StepResult result;
        assert_ok(tracer_next(tracer, step));
        assert_ok(
            runner_step(rig->runner, micro, MICROS, &(StepSpec){.number = step + 1, .lr = 1e-3}, &result));
    }
}

/* Runs one untraced step, STEPS traced ones and another untraced one. Every rank returns the parsed file. */
static json_t *trace_of(Rig *rig) {
    char path[64];
    int64_t id = (int64_t)getpid();
    assert_ok(host_broadcast(rig->mesh->world, &id, sizeof id, 0));
    snprintf(path, sizeof path, "/tmp/weft-trace-%lld.json", (long long)id);
    CLEANUP(tracer_freep) Tracer *tracer = NULL;
    json_t *json = NULL;
    assert_ok(tracer_new(&tracer, rig->runner, path, 1, STEPS, NULL));
    rig_steps(rig, tracer, 0, 1);
    assert_null(rig->runner->trace);
    rig_steps(rig, tracer, 1, STEPS);
    assert_non_null(rig->runner->trace);
    rig_steps(rig, tracer, 1 + STEPS, 1);
    assert_null(rig->runner->trace);
    assert_ok(tracer_finish(tracer));
    assert_ok(barrier(rig->mesh->world));
    assert_ok(json_read_file(path, &json));
    assert_ok(barrier(rig->mesh->world));
    unlink(path);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Number of spans of a rank in a category, of one micro-batch or (micro -1) of any. */
static int count_spans(const json_t *json, int rank, const char *category, int micro) {
    int count = 0;
    size_t i;
    const json_t *event;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "X") || (int)number_of(event, "pid") != rank) continue;
        if (strcmp(text_of(event, "cat"), category)) continue;
        const json_t *args = json_object_get(event, "args");
        count += micro < 0 || (int)number_of(args, "micro") == micro;
    }
    return count;
}

/* Within a row, each span starts inside the previous one or after it. There is one row of computation per
 * rank, because one thread computes. */
static void check_rows(const json_t *json, int ranks) {
    const json_t *event;
    size_t i;
    double end[64] = {0};
    int depth = 0, last_pid = -1, last_tid = -1;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "X")) continue;
        int pid = (int)number_of(event, "pid"), tid = (int)number_of(event, "tid");
        double start = number_of(event, "ts"), stop = start + number_of(event, "dur");
        const double slack = 2e-3; /* microseconds; the file has few decimals */
        assert_in_range(pid, 0, ranks - 1);
        assert_true(tid == 0 || tid >= 1000);
        assert_true(start >= 0);
        if (tid != 0) continue;
        if (pid != last_pid || tid != last_tid) depth = 0;
        last_pid = pid, last_tid = tid;
        while (depth && start >= end[depth - 1] - slack) depth--;
        assert_true(!depth || stop <= end[depth - 1] + slack);
        assert_true(depth < 64);
        end[depth++] = stop;
    }
}

static void test_pipeline(void **state) {
    Group *world = ((Ranks *)*state)->world;
    static const ScheduleKind kinds[] = {SCHEDULE_1F1B, SCHEDULE_ZERO_BUBBLE};
    for (int k = 0; k < 2; k++) {
        MeshSpec grid = {.dp = 1, .tp = 1, .pp = world->size};
        CLEANUP(rig_done) Rig rig = rig_new(world, grid, (RunnerSpec){.schedule = kinds[k]});
        CLEANUP(json_decrefp) json_t *json = trace_of(&rig);
        bool split = kinds[k] == SCHEDULE_ZERO_BUBBLE;
        check_rows(json, world->size);
        for (int rank = 0; rank < world->size; rank++) {
            for (int micro = 0; micro < MICROS; micro++) {
                assert_int_equal(count_spans(json, rank, "forward", micro), STEPS);
                int whole = count_spans(json, rank, "backward", micro);
                int halves = count_spans(json, rank, "backward-input", micro);
                int weights = count_spans(json, rank, "backward-weight", micro);
                assert_int_equal(whole + halves, STEPS);
                assert_int_equal(weights, halves);
                if (!split) assert_int_equal(halves, 0);
            }
            if (split) assert_true(count_spans(json, rank, "backward-weight", -1) > 0);
            assert_int_equal(count_spans(json, rank, "optimizer", -1), STEPS);
            assert_int_equal(count_spans(json, rank, "send", -1), STEPS * MICROS);
            assert_int_equal(count_spans(json, rank, "receive", -1), STEPS * MICROS);
            assert_int_equal(count_spans(json, rank, "pipeline", -1), STEPS); /* the gradient of the tied
                                                                               * matrix */
        }
    }
}

/* ZeRO-3 gathers each layer for forward and again for backward, and reduces its gradient once. */
static void test_sharded(void **state) {
    Group *world = ((Ranks *)*state)->world;
    CLEANUP(rig_done)
    Rig rig = rig_new(world, (MeshSpec){.dp = world->size, .tp = 1, .pp = 1}, (RunnerSpec){.zero = 3});
    CLEANUP(json_decrefp) json_t *json = trace_of(&rig);
    check_rows(json, world->size);
    /* Layers and the tied matrix are gathered twice, positions and the final norm once. Each is reduced
     * once. */
    int gathers = 2 * (LAYERS + 1) + 2, reductions = LAYERS + 3;
    for (int rank = 0; rank < world->size; rank++)
        assert_int_equal(count_spans(json, rank, "data", -1), STEPS * MICROS * (gathers + reductions));
}

/* Step time consists of computing and waiting. Only pipeline stages wait for other stages. */
static void test_times(void **state) {
    Group *world = ((Ranks *)*state)->world;
    for (int pp = 1; pp <= world->size; pp += world->size - 1) {
        MeshSpec grid = {.dp = world->size / pp, .tp = 1, .pp = pp};
        CLEANUP(rig_done) Rig rig = rig_new(world, grid, (RunnerSpec){.schedule = SCHEDULE_1F1B});
        rig_steps(&rig, NULL, 0, 3);
        const RunnerTimes *times = &rig.runner->times;
        double waited = times->waited_s[AXIS_DP] + times->waited_s[AXIS_TP] + times->waited_s[AXIS_PP];
        assert_true(times->compute_s > 0 && times->update_s > 0);
        /* Both sides sum the same intervals, but in a different order. */
        assert_true(times->compute_s + waited >= times->schedule_s * (1 - 1e-9));
        /* An axis of size 1 never waits. */
        double alone = times->waited_s[pp > 1 ? AXIS_DP : AXIS_PP] + times->waited_s[AXIS_TP];
        assert_true(waited > 0 && alone == 0);
        double bubble = runner_bubble(times);
        assert_true(bubble < 1 && (pp > 1 ? bubble >= 0 : bubble == 0));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pipeline),
    cmocka_unit_test(test_sharded),
    cmocka_unit_test(test_times),
};

RANKS_MAIN(tests)
