/* Step times: predictions agree with measured steps, and with exact answers where those are known. */
#include <math.h>
#include <pty.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include "plan/cost.h"
#include "plan/fit.h"
#include "plan/search.h"
#include "plan/time.h"

static StepEstimate time_of(const char *name, const Cluster *cluster, PlanSpec spec, double *ret_memory) {
    Plan plan = {0};
    StepEstimate time;
    spec.timed = true;
    assert_ok(fit_settle(&spec, cluster));
    assert_ok(plan_init(&plan, &spec));
    assert_ok(plan_time(&plan, cluster, &time));
    double sum = 0;
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) sum += time.phase_s[phase];
    if (fabs(sum / time.step_s - 1) > 1e-9)
        fail_msg("%s: phases add up to %g s of %g s", name, sum, time.step_s);
    if (ret_memory) *ret_memory = (double)plan.stage[plan.fullest].memory.needed;
    plan_done(&plan);
    return time;
}

static PlanSpec spec_of(const char *model, const char *task, int64_t batch, int64_t seq,
                        const char *precision) {
    return (PlanSpec){.config = {.model = {.name = model, .task = task, .dropout = -1, .seq = seq},
                                 .data = {.format = "auto"},
                                 .training = {.batch = batch},
                                 .run = {.micro_batch = batch, .schedule = SCHEDULE_1F1B},
                                 .device = {.precision = precision}},
                      .mesh = {.dp = 1, .tp = 1, .pp = 1}};
}

/* ---- measured steps ---- */

/* A Megatron study on two kinds of V100 nodes (docs/planning.md). */
typedef struct StudyRow {
    const char *cluster, *model;
    int layers, hidden, heads, ranks, tp, batch;
    bool recompute;
    double ms;   /* 0: ran out of memory; UNKNOWN: it ran, but its time is not known here */
    double gib;  /* held by its allocator; 0: not known here */
    bool fitted; /* the memory of the cluster files was fitted to this row */
} StudyRow;

enum { UNKNOWN = -1 };

static const StudyRow study[] = {
    {"v100-pcie-8", "bert-large", 24, 1024, 16, 8, 1, 14, false, 832, 0, false},
    {"v100-pcie-8", "gpt2", 24, 1024, 16, 8, 1, 24, true, 3470, 0, false},
    {"v100-pcie-8", "gpt2", 24, 1024, 16, 8, 1, 3, false, 655, 0, false},
    {"dgx2-v100", "gpt2", 24, 1024, 16, 8, 1, 32, true, 3794, 29.9, true},
    {"dgx2-v100", "gpt2", 24, 1024, 16, 16, 1, 32, true, 3842, 0, false},
    {"dgx2-v100", "gpt2", 40, 1536, 16, 16, 1, 24, true, 0, 0, false},
    {"dgx2-v100", "gpt2", 40, 1536, 16, 16, 1, 8, true, 2533, 31.3, false},
    {"dgx2-v100", "gpt2", 54, 1920, 20, 16, 1, 2, true, 0, 0, false},
    {"dgx2-v100", "gpt2", 54, 1920, 20, 16, 2, 8, true, 2697, 31.2, false},
    {"dgx2-v100", "gpt2", 72, 3072, 32, 16, 8, 8, true, 2672, 27.2, true},
    {"dgx2-v100", "bert-large", 24, 1024, 16, 16, 1, 14, false, 541, 29.1, true},
    {"dgx2-v100", "bert-large", 24, 1024, 16, 16, 2, 30, false, 667, 29.8, false},
    {"dgx2-v100", "bert-large", 40, 1536, 16, 16, 2, 8, false, 640, 27.4, false},
    {"dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 2, false, 713, 28.7, true},
    {"dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 2, true, 1059, 23.5, true},
    {"dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 32, true, 4754, 29.8, false},
    {"v100-pcie-8", "gpt2", 24, 1024, 16, 8, 1, 32, true, UNKNOWN, 0, false},
    {"dgx2-v100", "gpt2", 64, 2304, 24, 16, 4, 8, true, UNKNOWN, 0, false},
    {"dgx2-v100", "gpt2", 64, 2304, 4, 16, 4, 8, true, UNKNOWN, 0, false},
    {"dgx2-v100", "gpt2", 72, 3072, 8, 16, 8, 8, true, UNKNOWN, 0, false},
    {"dgx2-v100", "bert-large", 40, 1536, 16, 16, 1, 2, false, UNKNOWN, 0, false},
    {"dgx2-v100", "bert-large", 54, 1920, 20, 16, 2, 2, false, UNKNOWN, 0, false},
    {"dgx2-v100", "bert-large", 54, 1920, 20, 16, 4, 8, false, UNKNOWN, 0, false},
    {"dgx2-v100", "bert-large", 64, 2304, 24, 16, 4, 2, false, UNKNOWN, 0, false},
    {"dgx2-v100", "bert-large", 64, 2304, 24, 16, 8, 8, false, UNKNOWN, 27.0, false},
    {"dgx2-v100", "bert-large", 72, 3072, 32, 16, 8, 16, true, UNKNOWN, 0, false},
};

static PlanSpec study_spec(const StudyRow *row) {
    int dp = row->ranks / row->tp;
    PlanSpec spec =
        spec_of(row->model, "auto", row->batch * dp, strcmp(row->model, "gpt2") ? 512 : 1024, "fp16");
    spec.config.run.micro_batch = row->batch;
    spec.config.model.layers = row->layers;
    spec.config.model.hidden = row->hidden;
    spec.config.model.heads = row->heads;
    spec.config.run.recompute = row->recompute ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
    spec.mesh = (MeshSpec){.dp = dp, .tp = row->tp, .pp = 1};
    return spec;
}

static void predicts_a_study(void **state) {
    double sum = 0, worst = 0, memory_sum[2] = {0}, memory_worst[2] = {0}; /* withheld from the fit, fitted */
    int count = 0, memories[2] = {0};
    for (size_t i = 0; i < sizeof study / sizeof *study; i++) {
        const StudyRow *row = &study[i];
        PlanSpec spec = study_spec(row);
        Cluster cluster;
        double held, available;
        assert_ok(cluster_find(row->cluster, &cluster));
        StepEstimate time = time_of(row->model, &cluster, spec, &held);
        available = cluster.memory_bytes - cluster.reserve_bytes;
        if ((held <= available) != (row->ms != 0))
            fail_msg("row %zu: holds %g bytes of %g", i, held, available);
        if (row->gib > 0) {
            double off = fabs(held / row->gib / (1 << 30) - 1);
            memory_sum[row->fitted] += off;
            memory_worst[row->fitted] = fmax(memory_worst[row->fitted], off);
            memories[row->fitted]++;
        }
        if (row->ms <= 0) continue;
        double error = fabs(1e3 * time.step_s / row->ms - 1);
        if (error > 0.12) fail_msg("row %zu: predicted %g ms, measured %g ms", i, 1e3 * time.step_s, row->ms);
        sum += error;
        worst = fmax(worst, error);
        count++;
    }
    assert_true(sum / count < 0.015);
    assert_true(worst < 0.03);
    for (int fitted = 0; fitted < 2; fitted++) {
        double mean = memory_sum[fitted] / memories[fitted];
        if (mean > (fitted ? 0.005 : 0.015) || memory_worst[fitted] > (fitted ? 0.005 : 0.055))
            fail_msg("memory of %d rows, %s: mean error %.2f%%, largest %.2f%%", memories[fitted],
                     fitted ? "fitted" : "withheld from the fit", 100 * mean, 100 * memory_worst[fitted]);
    }
}

/* PyTorch's profile, in which nothing was fitted, against two studies (docs/planning.md). */
static void predicts_pytorch(void **state) {
    static const struct {
        const char *cluster, *model, *task, *precision;
        int layers, hidden, heads, vocab, batch, micro, seq;
        MeshSpec mesh;
        int zero;
        double samples_per_s, bound;
    } rows[] = {
        {"dgx-a100+pytorch",
         "bert-base",
         "span",
         "fp32",
         0,
         0,
         0,
         0,
         16,
         4,
         384,
         {.dp = 1, .tp = 1, .pp = 2},
         0,
         70.40,
         0.10},
        {"dgx-a100+pytorch",
         "bert-base",
         "span",
         "fp32",
         0,
         0,
         0,
         0,
         16,
         4,
         384,
         {.dp = 1, .tp = 1, .pp = 4},
         0,
         116.27,
         0.21},
        {"rtx-2080ti+pytorch",
         "gpt2",
         "lm",
         "fp16",
         8,
         512,
         8,
         66,
         216,
         216,
         128,
         {.dp = 1, .tp = 1, .pp = 1},
         0,
         50077 / 55.7,
         0.15},
        {"rtx-2080ti+pytorch",
         "gpt2",
         "lm",
         "fp16",
         8,
         512,
         8,
         66,
         432,
         216,
         128,
         {.dp = 2, .tp = 1, .pp = 1},
         3,
         50077 / 31.2,
         0.18},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        PlanSpec spec = spec_of(rows[i].model, rows[i].task, rows[i].batch, rows[i].seq, rows[i].precision);
        Cluster cluster;
        spec.config.run.micro_batch = rows[i].micro;
        spec.config.run.zero = rows[i].zero;
        spec.config.model.layers = rows[i].layers;
        spec.config.model.hidden = rows[i].hidden;
        spec.config.model.heads = rows[i].heads;
        spec.config.model.vocab = rows[i].vocab;
        spec.mesh = rows[i].mesh;
        assert_ok(cluster_find(rows[i].cluster, &cluster));
        double found = rows[i].batch / time_of(rows[i].model, &cluster, spec, NULL).step_s;
        if (fabs(found / rows[i].samples_per_s - 1) > rows[i].bound)
            fail_msg("row %zu: predicted %g samples/s, published %g", i, found, rows[i].samples_per_s);
    }
}

/* ---- other programs ---- */

static Cluster without_stalls(void) {
    Cluster cluster;
    assert_ok(cluster_find("dgx2-v100", &cluster));
    Software *software = &cluster.software;
    for (LayerKind kind = 0; kind < LAYER_KINDS; kind++)
        software->forward[kind].stall_s = software->backward[kind].stall_s = 0;
    software->recompute_stall_s = software->update_stall_s = software->tensor_wait_s = 0;
    return cluster;
}

/* The host launches kernels while the device runs earlier ones, so a step takes about the longer of the two
 * times, not their sum. */
static void launches_overlap_kernels(void **state) {
    StudyRow row = {"dgx2-v100", "bert-large", 40, 1536, 16, 1, 1, 2, false, 0, 0, false};
    PlanSpec spec = study_spec(&row);
    Cluster cluster = without_stalls();
    cluster.software.launch_s = 0;
    double device = time_of("device", &cluster, spec, NULL).step_s;
    cluster.software.launch_s = device / 40 / (53 + 78);
    double both = time_of("both", &cluster, spec, NULL).step_s;
    assert_true(both > 0.99 * device);
    assert_true(both < 1.5 * device);
}

/* Each layer has four tensor-parallel all-reduces, six with recompute; replicas wait for no one. */
static void tensor_ranks_wait(void **state) {
    enum { LAYERS = 40, EDGES = 8 }; /* all-reduces of embedding and output head: at most EDGES */
    const double wait_s = 1e-3;
    for (int recompute = 0; recompute < 2; recompute++)
        for (int tp = 1; tp <= 2; tp++) {
            StudyRow row = {"dgx2-v100", "bert-large", LAYERS, 1536, 16, 16, tp, 2, recompute, 0, 0, false};
            PlanSpec spec = study_spec(&row);
            Cluster cluster = without_stalls();
            cluster.software.launch_s = 0;
            double alone = time_of("no wait", &cluster, spec, NULL).step_s;
            cluster.software.tensor_wait_s = wait_s;
            double waits = (time_of("wait", &cluster, spec, NULL).step_s - alone) / wait_s;
            double expected = tp == 1 ? 0 : LAYERS * (recompute ? 6 : 4);
            if (waits < expected - 1e-6 || waits > expected + (tp == 1 ? 1e-6 : EDGES))
                fail_msg("tp %d, recompute %d: %g waits; expected %g", tp, recompute, waits, expected);
        }
}

/* GPT-2 uses the profile of causal layers, BERT that of bidirectional ones. */
static void profiles_by_attention(void **state) {
    static const char *const models[LAYER_KINDS] = {"gpt2", "bert-large"};
    for (LayerKind model = 0; model < LAYER_KINDS; model++) {
        StudyRow row = {"dgx2-v100", models[model], 4, 256, 4, 1, 1, 8, false, 0, 0, false};
        PlanSpec spec = study_spec(&row);
        double before = 0;
        for (int changed = -1; changed < LAYER_KINDS; changed++) {
            Cluster cluster = without_stalls();
            if (changed >= 0) cluster.software.forward[changed].parts *= 100;
            double step = time_of(models[model], &cluster, spec, NULL).step_s;
            if (changed < 0) before = step;
            if (changed >= 0) assert_int_equal(step > 1.01 * before, changed == (int)model);
        }
    }
}

/* Attention takes longer where weft's portable kernels run: on GPUs before Hopper for shared keys, windows,
 * documents and dropout, on Hopper only for heads of unusual width. */
static void portable_attention_is_slower(void **state) {
    static const struct {
        const char *cluster;
        unsigned traits;
        double width;
        bool slower;
    } rows[] = {{"dgx-a100", 0, 64, false},          {"dgx-a100", OP_PARTIAL, 64, true},
                {"dgx-a100", OP_PARTIAL, 128, true}, {"dgx-a100", OP_DROPOUT, 64, true},
                {"h200", OP_PARTIAL, 64, false},     {"h200", OP_PARTIAL, 128, false},
                {"h200", OP_PARTIAL, 96, true},      {"h200", 0, 96, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int what = KERNEL_ATTENTION_FORWARD; what <= KERNEL_ATTENTION_BACKWARD; what++) {
            Plan plan = {.mesh = {.dp = 1, .tp = 1, .pp = 1}, .runner = {.dtype = DT_BF16}};
            Cluster cluster;
            assert_ok(cluster_find(rows[i].cluster, &cluster));
            Costs costs = costs_of(&plan, &cluster);
            StepEvent event = {
                .kind = STEP_KERNEL, .what = what, .flops = 1e12, .size = {256, 1024, rows[i].width}};
            double plain = cost_event(&costs, &event).device_s;
            event.traits = rows[i].traits;
            double found = cost_event(&costs, &event).device_s;
            if ((found > 1.2 * plain) != rows[i].slower)
                fail_msg("row %zu, kernel %d: %g s instead of %g s", i, what, found, plain);
        }
}

/* The timeline of a step has every computation of every stage once, in order and without overlap; what is
 * left is the bubble, and its communication is what the estimate says. */
static void timelines(void **state) {
    Cluster cluster;
    Plan plan = {0};
    StepEstimate time;
    PlanTimeline timeline = {0};
    PlanSpec spec = spec_of("gpt2", "auto", 32, 512, "bf16");
    spec.config.run.micro_batch = 2;
    spec.config.run.schedule = SCHEDULE_INTERLEAVED;
    spec.config.run.chunks = 3;
    spec.mesh = (MeshSpec){.dp = 2, .tp = 2, .pp = 4};
    spec.timed = true;
    assert_ok(cluster_find("dgx-a100", &cluster));
    assert_ok(fit_settle(&spec, &cluster));
    assert_ok(plan_init(&plan, &spec));
    assert_ok(plan_time(&plan, &cluster, &time));
    assert_ok(plan_timeline(&plan, &cluster, &timeline));
    assert_int_equal(timeline.stages, 4);
    assert_float_equal(timeline.step_s, time.step_s, 1e-12);
    double communication = 0, idle = 0;
    for (int s = 0; s < 4; s++) {
        const SimSpans *spans = &timeline.stage[s];
        int passes[2][8][3] = {{{0}}};
        double at = 0, busy = 0;
        for (size_t i = 0; i < spans->count; i++) {
            const SimSpan *span = &spans->span[i];
            assert_true(span->start >= at - 1e-12 && span->end > span->start);
            assert_true(span->communication <= span->end - span->start + 1e-12);
            at = span->end;
            busy += span->end - span->start;
            communication += span->communication / 4;
            if (span->kind <= SPAN_BACKWARD) passes[span->kind][span->micro][span->chunk]++;
        }
        assert_true(at <= timeline.step_s + 1e-12);
        idle += (timeline.step_s - busy) / 4;
        for (int i = 0; i < 2 * 8 * 3; i++) assert_int_equal(passes[i / 24][i / 3 % 8][i % 3], 1);
    }
    assert_float_equal(communication, time.phase_s[TIME_COMMUNICATION], 1e-3 * time.step_s);
    assert_float_equal(idle, time.phase_s[TIME_BUBBLE], 1e-3 * time.step_s);
    plan_timeline_done(&timeline);
    plan_done(&plan);
}

/* The search uses the memory of the program that the cluster describes: it finds the layouts that ran, and
 * rejects those that did not fit. */
static void search_agrees_with_plans(void **state) {
    for (size_t i = 0; i < sizeof study / sizeof *study; i++) {
        const StudyRow *row = &study[i];
        SearchSpec spec = {.base = study_spec(row), .ranks = row->ranks, .plans = 2};
        Cluster cluster;
        Search search = {0};
        spec.axes = AXES_ALL;
        spec.fixed = FIXED_ZERO | FIXED_MICRO_BATCH | FIXED_RECOMPUTE;
        assert_ok(cluster_find(row->cluster, &cluster));
        assert_ok(fit_settle(&spec.base, &cluster));
        assert_ok(search_find(&search, &spec, &cluster));
        if ((search.count > 0) != (row->ms != 0)) fail_msg("row %zu: %d layouts fit", i, search.count);
        assert_true(search.count > 0 || search.all_tried);
        search_done(&search);
    }
}

/* For another program, a stage keeps the activations of all micro-batches that its schedule has in flight. */
static void memory_by_schedule(void **state) {
    static const ScheduleKind schedules[] = {SCHEDULE_GPIPE, SCHEDULE_INTERLEAVED, SCHEDULE_1F1B};
    size_t first[3], last[3];
    Cluster cluster;
    assert_ok(cluster_find("dgx2-v100", &cluster));
    for (int i = 0; i < 3; i++) {
        PlanSpec spec = spec_of("gpt2", "lm", 32, 1024, "fp16");
        Plan plan = {0};
        spec.config.run.micro_batch = 1;
        spec.config.run.schedule = schedules[i];
        spec.mesh = (MeshSpec){.dp = 1, .tp = 1, .pp = 4};
        assert_ok(fit_settle(&spec, &cluster));
        assert_ok(plan_init(&plan, &spec));
        first[i] = plan.stage[0].memory.needed;
        last[i] = plan.stage[3].memory.needed;
        plan_done(&plan);
    }
    assert_true(first[0] > 4 * first[2]); /* 32 micro-batches in flight instead of 4 */
    assert_true(last[1] > last[2]);       /* micro-batches of the first chunk wait for the second */
}

/* weft on an H200 (docs/planning.md). */
static void predicts_an_h200(void **state) {
    static const struct {
        const char *model, *task, *precision;
        int batch, seq;
        double dropout, ms, gb; /* ms 0: measured only before kernels became faster */
        Recompute recompute;
    } rows[] = {
        {"gpt2", "lm", "bf16", 32, 1024, 0.1, 55.8, 12.789, RECOMPUTE_NONE},
        {"gpt2", "lm", "bf16", 32, 1024, 0, 53.7, 12.789, RECOMPUTE_NONE},
        {"gpt2-medium", "lm", "bf16", 16, 1024, 0, 73.8, 19.625, RECOMPUTE_NONE},
        {"gpt2-large", "lm", "bf16", 16, 1024, 0, 155.3, 37.683, RECOMPUTE_NONE},
        {"bert-base", "span", "bf16", 32, 384, 0.1, 16.5, 5.321, RECOMPUTE_NONE},
        {"bert-base", "span", "bf16", 32, 384, 0, 15.7, 5.321, RECOMPUTE_NONE},
        {"bert-large", "mlm", "bf16", 32, 512, 0.1, 67.9, 18.869, RECOMPUTE_NONE},
        {"bert-large", "mlm", "bf16", 32, 512, 0, 64.7, 18.869, RECOMPUTE_NONE},
        {"gpt2-medium", "lm", "bf16", 4, 128, 0.1, 6.50, 6.231, RECOMPUTE_NONE},
        {"gpt2-medium", "lm", "bf16", 12, 128, 0.1, 10.65, 7.231, RECOMPUTE_NONE},
        {"gpt2-medium", "lm", "bf16", 4, 128, 0.1, 6.63, 6.086, RECOMPUTE_SELECTIVE},
        {"gpt2-medium", "lm", "bf16", 12, 128, 0.1, 10.94, 6.797, RECOMPUTE_SELECTIVE},
        {"gpt2", "lm", "fp8", 32, 1024, 0, 48.7, 11.409, RECOMPUTE_NONE},
        {"gpt2-medium", "lm", "fp8", 16, 1024, 0, 0, 17.712, RECOMPUTE_NONE},
        {"gpt2-large", "lm", "fp8", 16, 1024, 0, 0, 34.027, RECOMPUTE_NONE},
        {"bert-large", "mlm", "fp8", 32, 512, 0, 0, 18.567, RECOMPUTE_NONE},
        {"tinyllama-1.1b", "lm", "bf16", 4, 2048, 0, 108.8, 27.078, RECOMPUTE_NONE},
    };
    Cluster cluster;
    assert_ok(cluster_find("h200", &cluster));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        PlanSpec spec = spec_of(rows[i].model, rows[i].task, rows[i].batch, rows[i].seq, rows[i].precision);
        Plan plan = {0};
        spec.config.model.dropout = rows[i].dropout;
        spec.config.run.recompute = rows[i].recompute;
        StepEstimate time = time_of(rows[i].model, &cluster, spec, NULL);
        if (rows[i].ms > 0 && fabs(1e3 * time.step_s / rows[i].ms - 1) > 0.05)
            fail_msg("%s in %s, %d x %d: predicted %g ms, measured %g ms", rows[i].model, rows[i].precision,
                     rows[i].batch, rows[i].seq, 1e3 * time.step_s, rows[i].ms);
        assert_true(time.mfu > 0.05 && time.mfu < 0.6);
        assert_ok(fit_settle(&spec, &cluster));
        assert_ok(plan_init(&plan, &spec));
        double gb = 1e-9 * (double)plan.stage[plan.fullest].memory.total;
        if (fabs(gb - rows[i].gb) > 0.015)
            fail_msg("%s, %d x %d: planned %g GB, measured %g GB", rows[i].model, rows[i].batch, rows[i].seq,
                     gb, rows[i].gb);
        plan_done(&plan);
    }
}

/* ---- exact answers ---- */

/* A cluster with instant communication, whose kernels are limited only by matrix FLOPs. */
static Cluster ideal(void) {
    Cluster cluster;
    assert_ok(cluster_find("h200", &cluster));
    Link *const links[] = {&cluster.within, &cluster.between, &cluster.host};
    for (int i = 0; i < 3; i++) *links[i] = (Link){.latency_s = 0, .bandwidth = 1e18, .share = 1};
    cluster.launch_s = cluster.kernel_s = 0;
    cluster.memory_bandwidth = 1e18;
    cluster.vector_flops = 1e18;
    return cluster;
}

static PlanSpec small(int layers, int batch) {
    PlanSpec spec = spec_of("gpt2", "lm", batch, 128, "bf16");
    spec.config.model.layers = layers;
    spec.config.model.hidden = 256;
    spec.config.model.heads = 4;
    spec.config.model.vocab =
        128; /* small enough that the output head costs nothing compared with the layers */
    spec.config.run.micro_batch = 1;
    return spec;
}

static void ideal_links_cost_nothing(void **state) {
    Cluster cluster = ideal();
    PlanSpec spec = small(4, 8);
    double alone = time_of("alone", &cluster, spec, NULL).step_s;
    for (int zero = 0; zero <= 3; zero++) {
        spec.mesh = (MeshSpec){.dp = 4, .tp = 1, .pp = 1};
        spec.config.training.batch = 32;
        spec.config.run.zero = zero;
        StepEstimate time = time_of("replicas", &cluster, spec, NULL);
        assert_true(time.phase_s[TIME_COMMUNICATION] < 1e-6 * time.step_s);
        assert_true(fabs(time.step_s / alone - 1) < 1e-6);
    }
}

/* Each stage has four equal layers; the first and the last are slightly slower because of embedding and
 * output head. */
static void bubble_of_1f1b(void **state) {
    Cluster cluster = ideal();
    cluster.product_wave = cluster.product_depth = 0;
    for (int micros = 4; micros <= 16; micros *= 2) {
        PlanSpec spec = small(16, micros);
        spec.config.run.schedule = SCHEDULE_1F1B;
        spec.mesh = (MeshSpec){.dp = 1, .tp = 1, .pp = 4};
        double bubble = time_of("stages", &cluster, spec, NULL).bubble, formula = 3.0 / (micros + 3.0);
        if (fabs(bubble - formula) > 0.03)
            fail_msg("%d micro-batches: bubble %g; expected %g", micros, bubble, formula);
    }
}

/* An all-to-all of a dry run takes as long as its bytes on the slower link: those to ranks of the node, or
 * those that all ranks of the node send to other nodes. The last rank sends and receives nothing. */
static void all_to_all_on_links(void **state) {
    enum { RANKS = 8, ROWS = 3 << 20 };
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(stream_freep) Stream *stream = NULL;
    Buffer buffer = {0};
    int64_t counts[RANKS];
    assert_ok(device_new_dryrun(&device, 1));
    assert_ok(stream_new(&stream, device));
    assert_ok(dev_alloc(device, MEM_COMM, 2 * (RANKS - 1) * ROWS, &buffer));
    for (int r = 0; r < RANKS; r++) counts[r] = r < RANKS - 1 ? ROWS : 0;
    for (int per_node = 2; per_node <= RANKS; per_node *= 2) {
        CLEANUP(group_freep) Group *group = NULL;
        CLEANUP(op_log_done) OpLog op_log = {0};
        int node[RANKS];
        Ticket ticket;
        for (int r = 0; r < RANKS; r++) node[r] = r / per_node;
        assert_ok(group_new_dryrun(&group, 0, RANKS, node, false));
        Tensor src = tensor_1d(buffer.data, DT_U8, (RANKS - 1) * ROWS), dst = src;
        dst.data = (char *)src.data + tensor_bytes(src);
        device->op_log = &op_log;
        assert_ok(all_to_all(group, stream, dst, src, counts, counts, &ticket));
        assert_ok(ticket_wait(stream, &ticket));
        device->op_log = NULL;
        const OpRecord *record = &op_log.record[0];
        double within = (per_node == RANKS ? RANKS - 2 : per_node - 1) * (double)ROWS;
        double between = (RANKS - 2) * (double)ROWS - within;
        assert_int_equal(record->what, COMM_ALL_TO_ALL);
        assert_true(group->sent[COMM_ALL_TO_ALL].within == within);
        assert_true(group->sent[COMM_ALL_TO_ALL].between == between);
        for (int gpu = 0; gpu < 2; gpu++) {
            Plan plan = {.mesh = {.dp = 1, .tp = RANKS, .pp = 1}};
            Cluster cluster;
            assert_ok(cluster_find("dgx-a100", &cluster));
            cluster.gpu = gpu;
            cluster.devices_per_node = per_node;
            cluster.within.latency_s = cluster.between.latency_s = 0;
            Costs costs = costs_of(&plan, &cluster);
            StepEvent event = {.kind = STEP_START, .what = record->what, .channel = CHANNEL_TENSOR};
            memcpy(event.size, record->size, sizeof event.size);
            double inside = within / cluster.within.bandwidth / cluster.within.share;
            double outside = between / cluster.between.bandwidth / cluster.between.share;
            double found = cost_operation(&costs, &event), want = fmax(inside, outside);
            assert_true(fabs(found - want) < 1e-9 * want);
            assert_true(cost_sent(&costs, &event) == within + between);
        }
    }
    dev_free(&buffer);
}

/* A slower link makes a step longer by what cannot be overlapped, and by almost the full transfer time if it
 * is very slow. */
static void slow_links_cost_time(void **state) {
    PlanSpec spec = spec_of("gpt2", "lm", 32, 1024, "bf16");
    spec.config.model.dropout = 0;
    spec.config.run.micro_batch = 4;
    spec.mesh = (MeshSpec){.dp = 8, .tp = 1, .pp = 1};
    Cluster cluster;
    assert_ok(cluster_find("h200", &cluster));
    double before = 0;
    for (double bandwidth = 1e12; bandwidth >= 1e9; bandwidth /= 10) {
        cluster.within.bandwidth = bandwidth;
        StepEstimate time = time_of("replicas", &cluster, spec, NULL);
        double transfer = time.sent[COMM_ALL_REDUCE] / (bandwidth * cluster.within.share);
        assert_true(time.step_s > before);
        assert_true(time.phase_s[TIME_COMMUNICATION] < transfer * 1.01 + 1e-3);
        assert_true(time.step_s > transfer);
        before = time.step_s;
    }
    /* With one device per node, the links between nodes matter. */
    cluster.within.bandwidth = 1e12;
    cluster.devices_per_node = 1;
    assert_true(time_of("nodes", &cluster, spec, NULL).step_s >
                time_of("node", &cluster, spec, NULL).step_s - 1e-12);
    cluster.between.bandwidth = 1e9;
    assert_true(time_of("nodes", &cluster, spec, NULL).phase_s[TIME_COMMUNICATION] > 0.1);
}

/* On CPUs, the ranks of a node share its link, and what they reduce together crosses it once: communication
 * takes the node's bytes at the node's rate, however many ranks it has. */
static void nodes_share_a_link(void **state) {
    const double rate = 25e6;
    const struct {
        MeshSpec mesh;
        int zero, ranks;
        double crossings; /* of all parameters' bytes over one node's link, per step */
        GradType type;    /* of gradients or, with `every`, of what workers exchange */
        int every;
    } rows[] = {{{.dp = 4, .tp = 1, .pp = 1}, 0, 2, 1, GRAD_FP32, 0},
                {{.dp = 8, .tp = 1, .pp = 1}, 0, 4, 1, GRAD_FP32, 0},
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 2}, 1, 2, 1, GRAD_FP32, 0},
                {{.dp = 4, .tp = 1, .pp = 1}, 3, 2, 1.5, GRAD_FP32, 0},
                {{.dp = 2, .tp = 2, .pp = 1}, 0, 2, 1, GRAD_FP32, 0},
                /* A node's sums travel in fp32, the result in bf16. */
                {{.dp = 4, .tp = 1, .pp = 1}, 0, 2, 0.75, GRAD_BF16, 0},
                /* In int8, each rank of a node sends to each of the other, and its sum once. */
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 1}, 0, 2, 0.375, GRAD_INT8, 1},
                {{.dp = 4, .tp = 1, .pp = 1, .shard = 1}, 0, 2, 0.375 / 5, GRAD_INT8, 5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Cluster cluster;
        assert_ok(cluster_find("cpu", &cluster));
        cluster.devices_per_node = rows[i].ranks;
        cluster.between = (Link){.latency_s = 0, .bandwidth = rate / rows[i].ranks, .share = 1};
        PlanSpec spec = spec_of("gpt2", "lm", 8, 8, "fp32");
        spec.config.model.layers = 2;
        spec.config.model.vocab = 256;
        spec.config.run.micro_batch = 8 / rows[i].mesh.dp;
        spec.config.run.zero = rows[i].zero;
        spec.config.run.grad_type = rows[i].every ? GRAD_FP32 : rows[i].type;
        if (rows[i].every)
            spec.config.run.outer =
                (OuterSpec){.every = rows[i].every, .fragments = 1, .lr = 1, .type = rows[i].type};
        spec.config.device.name = "cpu";
        spec.mesh = rows[i].mesh;
        Plan plan;
        assert_ok(plan_init(&plan, &spec));
        double bytes = 4 * (double)plan.params_stored, expected = rows[i].crossings * bytes / rate;
        plan_done(&plan);
        StepEstimate time = time_of("nodes", &cluster, spec, NULL);
        double found = time.phase_s[TIME_COMMUNICATION];
        if (!rows[i].every) found += time.phase_s[TIME_OPTIMIZER]; /* which gathers parameters */
        if (fabs(found / expected - 1) > 0.1)
            fail_msg("row %zu: communication takes %g s; expected %g s", i, found, expected);
    }
}

/* Parameters that stay gathered from forward to backward are gathered once instead of twice, and as early.
 * With fast links that saves nothing, and the vocabulary matrix, which is then gathered as a whole, costs up
 * to 1%. */
static void keeping_parameters_is_not_slower(void **state) {
    Cluster cluster;
    assert_ok(cluster_find("dgx-a100", &cluster));
    for (double bandwidth = 3e11; bandwidth > 2e10; bandwidth /= 3) {
        PlanSpec spec = spec_of("gpt2-large", "lm", 64, 1024, "bf16");
        spec.config.run.micro_batch = 4;
        spec.config.run.zero = 3;
        spec.mesh = (MeshSpec){.dp = 8, .tp = 1, .pp = 1};
        cluster.within.bandwidth = bandwidth;
        StepEstimate twice = time_of("plain", &cluster, spec, NULL);
        spec.config.run.keep_params = true;
        StepEstimate once = time_of("kept", &cluster, spec, NULL);
        assert_true(once.sent[COMM_ALL_GATHER] < 0.6 * twice.sent[COMM_ALL_GATHER]);
        if (once.step_s > twice.step_s * 1.02)
            fail_msg("%g GB/s: %g s with kept parameters, %g s without", 1e-9 * bandwidth, once.step_s,
                     twice.step_s);
    }
}

/* 16,384 ranks with 32 micro-batches each. */
static void plans_16384_ranks(void **state) {
    Cluster cluster;
    assert_ok(cluster_find("h100", &cluster));
    PlanSpec spec = spec_of("gpt2", "lm", 4096, 2048, "bf16");
    spec.config.model.layers = 96;
    spec.config.model.hidden = 12288;
    spec.config.model.heads = 96;
    spec.config.run.micro_batch = 1;
    spec.config.run.zero = 1;
    spec.config.run.schedule = SCHEDULE_1F1B;
    spec.memory_only = true;
    spec.mesh = (MeshSpec){.dp = 128, .tp = 8, .pp = 16};
    StepEstimate time = time_of("16,384 ranks", &cluster, spec, NULL);
    assert_true(time.mfu > 0.2 && time.mfu < 0.7);
    double params = 174.6e9, tokens = 4096.0 * 2048;
    assert_true(fabs(time.model_flops / (6 * params * tokens) - 1) < 0.1);
}

/* ---- progress ---- */

/* What planning two stages shows on a terminal, as if it had begun `ago` seconds ago. */
static void planned_on_terminal(double ago, char text[4096]) {
    int terminal, state;
    struct winsize window = {.ws_row = 24, .ws_col = 120};
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child < 0) skip(); /* no pseudo-terminals, as in some containers */
    if (child == 0) {
        PlanProgress progress;
        PlanSpec spec = small(4, 4);
        Plan plan = {0};
        setenv("TERM", "xterm", 1);
        spec.mesh.pp = 2;
        spec.config.run.schedule = SCHEDULE_1F1B;
        spec.config.device.name = "cpu";
        spec.progress = &progress;
        if (plan_progress_init(&progress, stderr)) _exit(3);
        progress.start -= ago;
        plan_progress_note(&progress, "%d layouts", 7);
        if (plan_init(&plan, &spec) || progress.plans != 1) _exit(4);
        plan_done(&plan);
        plan_progress_done(&progress);
        _exit(0);
    }
    size_t have = 0;
    ssize_t got;
    while (have + 1 < 4096 && (got = read(terminal, text + have, 4096 - have - 1)) > 0) have += (size_t)got;
    text[have] = 0;
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_int_equal(state, 0);
    close(terminal);
}

static void long_plans_show_progress(void **state) {
    char text[4096];
    planned_on_terminal(1, text);
    if (!strstr(text, "planning ") || !strstr(text, "7 layouts")) fail_msg("terminal shows: %s", text);
    planned_on_terminal(-1000, text);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicts_a_study),
        cmocka_unit_test(predicts_pytorch),
        cmocka_unit_test(timelines),
        cmocka_unit_test(search_agrees_with_plans),
        cmocka_unit_test(memory_by_schedule),
        cmocka_unit_test(predicts_an_h200),
        cmocka_unit_test(ideal_links_cost_nothing),
        cmocka_unit_test(bubble_of_1f1b),
        cmocka_unit_test(all_to_all_on_links),
        cmocka_unit_test(slow_links_cost_time),
        cmocka_unit_test(plans_16384_ranks),
        cmocka_unit_test(launches_overlap_kernels),
        cmocka_unit_test(tensor_ranks_wait),
        cmocka_unit_test(portable_attention_is_slower),
        cmocka_unit_test(profiles_by_attention),
        cmocka_unit_test(nodes_share_a_link),
        cmocka_unit_test(keeping_parameters_is_not_slower),
        cmocka_unit_test(long_plans_show_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
