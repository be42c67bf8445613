/* Step times: predictions agree with measured steps and published ones. */
#include <math.h>
#include <string.h>

#include "timed.h"

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

/* PyTorch's profile, in which nothing was fitted, against a study (docs/planning.md). */
static void predicts_pytorch(void **state) {
    static const struct {
        const char *cluster, *model, *task, *precision;
        int layers, hidden, heads, vocab, batch, micro, seq;
        MeshSpec mesh;
        int zero;
        double samples_per_s, bound;
    } rows[] = {
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

/* transformers' Trainer and DeepSpeed on 16 V100, as DeepSpeed's authors published them: one figure of each
 * program was fitted (docs/planning.md). Rows with the largest batches differ in memory, which is not known.
 */
static void predicts_trainers(void **state) {
    static const struct {
        const char *program, *model, *precision;
        int seq, zero, batch;
        double samples_per_s;
    } rows[] = {
        {"transformers", "bert-base", "fp32", 128, 0, 128, 2502.236},
        {"transformers", "bert-large", "fp32", 128, 0, 64, 742.692},
        {"transformers", "gpt2", "fp16", 1024, 0, 8, 284.142},
        {"transformers", "gpt2-medium", "fp16", 1024, 0, 2, 71.61},
        {"transformers", "gpt2-large", "fp16", 1024, 0, 1, 27.874},
        {"deepspeed", "bert-base", "fp32", 128, 0, 128, 2523.684},
        {"deepspeed", "bert-base", "fp32", 128, 0, 235, 2736.561},
        {"deepspeed", "bert-large", "fp32", 128, 1, 64, 766.929},
        {"deepspeed", "bert-large", "fp32", 128, 1, 93, 808.168},
        {"deepspeed", "gpt2", "fp16", 1024, 1, 8, 397.827},
        {"deepspeed", "gpt2", "fp16", 1024, 1, 14, 431.586},
        {"deepspeed", "gpt2-medium", "fp16", 1024, 1, 4, 142.211},
        {"deepspeed", "gpt2-medium", "fp16", 1024, 1, 6, 163.3},
        {"deepspeed", "gpt2-large", "fp16", 1024, 1, 2, 56.797},
        {"deepspeed", "gpt2-large", "fp16", 1024, 1, 3, 69.061},
        {"deepspeed", "gpt2-xl", "fp16", 1024, 1, 1, 27.462},
    };
    double sum = 0, worst = 0;
    const size_t count = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < count; i++) {
        const char *task = strncmp(rows[i].model, "bert", 4) ? "lm" : "classify";
        PlanSpec spec =
            spec_of(rows[i].model, task, (int64_t)16 * rows[i].batch, rows[i].seq, rows[i].precision);
        Cluster cluster;
        CLEANUP(mem_freep) char *name = NULL;
        assert_ok(str_format(&name, "dgx2-v100+%s", rows[i].program));
        assert_ok(cluster_find(name, &cluster));
        spec.config.run.micro_batch = rows[i].batch;
        spec.config.run.zero = rows[i].zero;
        if (!strcmp(task, "classify")) spec.config.model.labels = 3;
        spec.mesh.dp = 16;
        double off =
            fabs(rows[i].samples_per_s / time_of(rows[i].model, &cluster, spec, NULL).samples_per_s - 1);
        sum += off;
        worst = fmax(worst, off);
    }
    if (sum / (double)count > 0.105 || worst > 0.26)
        fail_msg("mean error %.1f%%, worst %.1f%%; expected 10.5%% and 26%%", 100 * sum / (double)count,
                 100 * worst);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicts_a_study),
        cmocka_unit_test(predicts_pytorch),
        cmocka_unit_test(predicts_trainers),
        cmocka_unit_test(launches_overlap_kernels),
        cmocka_unit_test(tensor_ranks_wait),
        cmocka_unit_test(profiles_by_attention),
        cmocka_unit_test(portable_attention_is_slower),
        cmocka_unit_test(timelines),
        cmocka_unit_test(search_agrees_with_plans),
        cmocka_unit_test(memory_by_schedule),
        cmocka_unit_test(predicts_an_h200),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
