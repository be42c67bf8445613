/* Cluster descriptions: the built-in ones, errors in others, and which changes make a job fit. */
#include <math.h>
#include <string.h>

#include "test.h"

#include "base/fs.h"
#include "base/memory.h"
#include "plan/fit.h"

static void builtin_clusters(void **state) {
    static const char *const expected[] = {"cpu",  "dgx-a100-80gb", "dgx-a100",  "dgx2-v100",   "h100",
                                           "h200", "rtx-2080ti",    "v100-16gb", "v100-pcie-8", NULL};
    const char *const *names = cluster_names();
    for (int i = 0; expected[i]; i++) {
        Cluster cluster;
        assert_string_equal(names[i], expected[i]);
        assert_ok(cluster_find(names[i], &cluster));
        assert_string_equal(cluster.name, names[i]);
        assert_true(cluster.gpu == (i > 0));
        assert_true(cluster.within.bandwidth > cluster.between.bandwidth);
    }
    assert_null(names[sizeof expected / sizeof *expected - 1]);
    Cluster dgx2;
    assert_ok(cluster_find("dgx2-v100", &dgx2));
    assert_true(dgx2.devices_per_node == 16 && dgx2.peak_flops[RATE_BF16] == 0);
    Cluster file;
    assert_ok(cluster_find(WEFT_SOURCE_DIR "/clusters/dgx2-v100.json", &file));
    assert_memory_equal(&dgx2, &file, sizeof dgx2);
    Cluster none;
    assert_fails(cluster_find("h20", &none), STATUS_USAGE, "did you mean 'h200'?");
    assert_fails(cluster_find("/nowhere/x.json", &none), STATUS_USAGE,
                 "neither a file nor a built-in cluster");
}

/* CLUSTER+PROGRAM has the hardware of the one and the profile of the other, built in or a file. */
static void programs(void **state) {
    static const char bad[] = "test_cluster_program.json";
    Cluster plain, cluster, file, none;
    assert_ok(cluster_find("dgx2-v100", &plain));
    for (const ClusterText *known = weft_programs; known->name; known++) {
        CLEANUP(mem_freep) char *name = NULL;
        assert_ok(str_format(&name, "dgx2-v100+%s", known->name));
        assert_ok(cluster_find(name, &cluster));
        assert_string_equal(cluster.name, name);
        assert_true(cluster.software.present && strcmp(cluster.software.title, plain.software.title) != 0);
        assert_true(cluster.memory_bandwidth == plain.memory_bandwidth);
    }
    assert_ok(cluster_find("dgx2-v100+pytorch", &plain));
    assert_ok(cluster_find("dgx2-v100+" WEFT_SOURCE_DIR "/clusters/software/pytorch.json", &file));
    assert_memory_equal(&file.software, &plain.software, sizeof file.software);
    /* a program that differs from another one in a title and a figure */
    assert_ok(cluster_find("dgx2-v100+deepspeed", &cluster));
    assert_true(cluster.software.update_stall_s > plain.software.update_stall_s);
    cluster.software.update_stall_s = plain.software.update_stall_s;
    memcpy(cluster.software.title, plain.software.title, sizeof plain.software.title);
    assert_memory_equal(&cluster.software, &plain.software, sizeof plain.software);
    static const char *const bases[] = {"{\"base\": 1}", "{\"base\": \"pytorhc\"}"};
    static const char *const wrong[] = {"'base': expected the name of a program", "did you mean 'pytorch'?"};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        assert_ok(file_replace(bad, bases[i], strlen(bases[i])));
        assert_fails(cluster_find("h200+test_cluster_program.json", &none), i ? STATUS_USAGE : STATUS_FAILED,
                     wrong[i]);
    }
    assert_fails(cluster_find("h200+pytorhc", &cluster), STATUS_USAGE, "did you mean 'pytorch'?");
    assert_fails(cluster_find("h20+pytorch", &cluster), STATUS_USAGE, "did you mean 'h200'?");
    static const char text[] = "{\"recompute_stall_s\": {\"value\": -1, \"source\": \"a test\"}}";
    assert_ok(file_replace(bad, text, sizeof text - 1));
    assert_fails(cluster_find("h200+test_cluster_program.json", &cluster), STATUS_FAILED,
                 "h200+test_cluster_program.json: 'software.recompute_stall_s' is -1; expected 0 or more");
    assert_int_equal(remove(bad), 0);
}

/* Checks the error for h200's description with `from` replaced by `to`. */
static void refuses_text(const char *from, const char *to, const char *message) {
    const ClusterText *known = weft_clusters;
    while (strcmp(known->name, "h200")) known++;
    char *text = NULL, *changed = NULL;
    assert_ok(str_format(&text, "%.*s", (int)(known->end - known->begin), known->begin));
    const char *at = strstr(text, from);
    assert_non_null(at);
    assert_ok(str_format(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    Cluster cluster;
    assert_fails(cluster_parse(changed, strlen(changed), "mine.json", &cluster), STATUS_FAILED, message);
    free(text);
    free(changed);
}

/* A measured kernel's time is interpolated linearly on logarithmic scales between its points, and
 * proportional beyond them. */
static void curves(void **state) {
    KernelCurve curve = {0};
    kernel_curve_add(&curve, 10000, 100);
    kernel_curve_add(&curve, 100, 10);
    assert_float_equal(kernel_curve_seconds(&curve, 1000), sqrt(1000), 1e-9);
    assert_float_equal(kernel_curve_seconds(&curve, 50), 5, 1e-12);
    assert_float_equal(kernel_curve_seconds(&curve, 40000), 400, 1e-9);
    for (int i = 0; i < 100; i++) kernel_curve_add(&curve, 200 + 90 * i, 10 + i);
    assert_int_equal(curve.count, CURVE_POINTS);
    for (int i = 1; i < curve.count; i++) assert_true(curve.work[i] > curve.work[i - 1]);
}

/* Kernels with dropout or an activation have their own curves. A variant that was not measured uses the
 * nearest one with fewer traits, so that files with one curve per kernel still apply. */
static void variants(void **state) {
    static KernelCurves curves, read;
    kernel_curve_add(kernel_curves_add(&curves, KERNEL_ATTENTION_FORWARD, 0), 100, 1);
    const KernelCurve *plain = kernel_curves_find(&curves, KERNEL_ATTENTION_FORWARD, OP_DROPOUT | OP_PARTIAL);
    assert_true(plain && plain->seconds[0] == 1);
    kernel_curve_add(kernel_curves_add(&curves, KERNEL_ATTENTION_FORWARD, OP_DROPOUT), 100, 2);
    for (unsigned traits = 0; traits < OP_VARIANTS; traits++) {
        const KernelCurve *found = kernel_curves_find(&curves, KERNEL_ATTENTION_FORWARD, traits);
        assert_true(found && found->seconds[0] == (traits & OP_DROPOUT ? 2 : 1));
    }
    assert_null(kernel_curves_find(&curves, KERNEL_ATTENTION_BACKWARD, 0));
    curves.balance = 11.5;
    json_t *json = kernel_curves_json(&curves);
    assert_int_equal(json_object_size(json), 3);
    assert_non_null(json_object_get(json, "attention_forward+dropout"));
    assert_ok(kernel_curves_read(json, "mine.json", "device.kernels.bf16", &read));
    assert_memory_equal(&curves, &read, sizeof curves);
    json_decref(json);
}

/* A cluster that was measured in one precision only plans in that one. */
static void one_precision(void **state) {
    char *text = NULL, *again = NULL;
    size_t size;
    Cluster cluster;
    assert_ok(file_read(WEFT_SOURCE_DIR "/clusters/h200.json", 1 << 20, &text, &size));
    json_t *json = NULL;
    assert_ok(json_parse(text, size, "h200.json", &json));
    static const char *const others[] = {"fp32", "tf32", "fp16", "fp8"};
    json_t *device = json_object_get(json, "device");
    for (size_t i = 0; i < 4; i++) {
        json_object_del(json_object_get(device, "peak_flops"), others[i]);
        json_object_del(json_object_get(device, "product_share"), others[i]);
    }
    again = json_dumps(json, 0);
    assert_ok(cluster_parse(again, strlen(again), "mine.json", &cluster));
    PlanSpec spec = {.config = {.model = {.name = "gpt2", .task = "auto"}}};
    assert_ok(fit_settle(&spec, &cluster));
    assert_string_equal(spec.config.device.precision, "bf16");
    spec.config.device.precision = "fp32";
    assert_fails(fit_settle(&spec, &cluster), STATUS_USAGE, "use bf16");
    free(again);
    json_object_del(json_object_get(device, "peak_flops"), "bf16");
    again = json_dumps(json, 0);
    assert_fails(cluster_parse(again, strlen(again), "mine.json", &cluster), STATUS_FAILED, "at least one");
    free(again);
    free(text);
    json_decref(json);
}

static void invalid_clusters(void **state) {
    refuses_text("\"memory_bytes\": {\"value\": 149250113536", "\"memory_bytes\": {\"value\": -5",
                 "mine.json: 'device.memory_bytes' is -5; expected 1 or more");
    refuses_text("\"bandwidth\": {\"value\": 450000000000", "\"bandwidth\": {\"value\": 0",
                 "mine.json: 'links.within.bandwidth' is 0; expected 1 or more");
    refuses_text("\"devices_per_node\": {\"value\": 8", "\"devices_per_node\": {\"value\": 2.5",
                 "mine.json: 'devices_per_node' is 2.5; expected an integer, 1 or more");
    refuses_text("\"memory_bandwidth\"", "\"memory_bandwith\"",
                 "mine.json: unknown key 'device.memory_bandwith'; did you mean 'memory_bandwidth'?");
    refuses_text("\"fp16\"", "\"fp15\"", "mine.json: unknown key 'device.peak_flops.fp15'");
    refuses_text("\"source\": \"DGX H200 data sheet\"", "\"source\": \"\"",
                 "mine.json: 'devices_per_node' has no 'source'");
    refuses_text("\"between\"", "\"betwixt\"", "mine.json: unknown key 'links.betwixt'");
    refuses_text("\"kind\": \"cuda\"", "\"kind\": \"tpu\"", "expected cpu or cuda");
    refuses_text("\"fp8\": {\"value\": 1978900000000000, \"source\": \"NVIDIA, H100 tensor core GPU data "
                 "sheet (2023), "
                 "SXM5, dense\"}",
                 "\"fp8\": {\"value\": 1, \"source\": \"x\"}, \"x\": 1", "unknown key 'device.peak_flops.x'");
    refuses_text("\"memory_share\": {\"value\": 0", "\"memory_share\": {\"value\": 1",
                 "'device.memory_share' is 1.66; expected 0.001 to 1");
    refuses_text("\"reserve_bytes\": {\"value\": 2000000000", "\"reserve_bytes\": {\"value\": 149250113536",
                 "'device.reserve_bytes'");
    refuses_text("\"value\": 450000000000", "\"value\": 1e300", "at most 1e18");
    refuses_text("\"value\": 450000000000", "\"value\": 1e-300", "is 1e-300; expected 1 or more");
    refuses_text("\"device\": {", "\"device\": {\"kernels\": {\"bf16\": {}},",
                 "'device.kernels' has no 'source'");
    refuses_text("\"device\": {", "\"device\": {\"kernels\": {\"source\": \"x\", \"bf17\": {}},",
                 "'device.kernels.bf17' is not a precision");
    refuses_text("\"device\": {",
                 "\"device\": {\"kernels\": {\"source\": \"x\", \"bf16\": {\"linear\": [[1, 2]]}},",
                 "'device.kernels.bf16.linear': unknown kernel");
    refuses_text("\"device\": {",
                 "\"device\": {\"kernels\": {\"source\": \"x\", \"bf16\": {\"fill+drop\": [[1, 2]]}},",
                 "'device.kernels.bf16.fill+drop': unknown kernel");
    refuses_text("\"device\": {",
                 "\"device\": {\"kernels\": {\"source\": \"x\", \"bf16\": {\"fill\": [[1, 2], [1, 3]]}},",
                 "'device.kernels.bf16.fill': point 2 is invalid");
    Cluster cluster;
    assert_fails(cluster_parse("[]", 2, "mine.json", &cluster), STATUS_FAILED,
                 "mine.json: expected a JSON object");
    assert_fails(cluster_parse("{", 1, "mine.json", &cluster), STATUS_FAILED, "mine.json: not valid JSON");
    assert_fails(cluster_parse("{}", 2, "mine.json", &cluster), STATUS_FAILED, "mine.json: ");
}

static PlanSpec spec_of(const char *model, int64_t batch, int64_t micro_batch) {
    return (PlanSpec){.config = {.model = {.name = model, .task = "auto", .dropout = -1},
                                 .data = {.format = "auto"},
                                 .training = {.batch = batch},
                                 .run = {.micro_batch = micro_batch, .schedule = SCHEDULE_1F1B},
                                 .device = {.name = "cuda"}},
                      .mesh = {.dp = 1, .tp = 1, .pp = 1}};
}

/* With memory_only, a plan simulates fewer micro-batches and finds the same memory. */
static void enough_micros(void **state) {
    static const ScheduleKind schedules[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED,
                                             SCHEDULE_ZERO_BUBBLE};
    for (int k = 0; k < 4; k++)
        for (int pp = 1; pp <= 4; pp *= 2)
            for (int zero = 0; zero <= 3; zero++) {
                PlanSpec spec = spec_of("gpt2", 2 * 48, 1);
                spec.config.run.schedule = schedules[k];
                spec.config.run.zero = zero;
                spec.config.run.recompute = zero % 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
                spec.config.device.name = zero % 2 ? "cpu" : "cuda";
                spec.mesh = (MeshSpec){.dp = 2, .tp = 1, .pp = pp};
                if (k == 2 && pp == 1) continue;
                Plan all = {0}, few = {0};
                assert_ok(plan_init(&all, &spec));
                spec.memory_only = true;
                assert_ok(plan_init(&few, &spec));
                for (int s = 0; s < pp; s++)
                    assert_memory_equal(&all.stage[s].memory, &few.stage[s].memory, sizeof(RankMemory));
                plan_done(&all);
                plan_done(&few);
            }
}

static void finds_changes(void **state) {
    Cluster cluster;
    assert_ok(cluster_find("rtx-2080ti", &cluster));
    PlanSpec spec = spec_of("gpt2-medium", 16, 16);
    spec.config.device.precision = "fp16";
    Plan plan = {0};
    Fit fit;
    assert_ok(fit_settle(&spec, &cluster));
    assert_ok(plan_init(&plan, &spec));
    assert_ok(fit_find(&fit, &plan, &spec, &cluster));
    assert_false(fit.fits);
    assert_true(fit.changes > 0);
    assert_string_equal(fit.change[0].options, "--micro-batch 4");
    /* Every suggested change really fits. */
    for (int i = 0; i < fit.changes; i++) assert_true((double)fit.change[i].total <= fit.available);
    plan_done(&plan);
    spec.config.run.micro_batch = 4;
    assert_ok(plan_init(&plan, &spec));
    assert_int_equal(plan.stage[0].memory.needed, fit.change[0].total);
    assert_ok(fit_find(&fit, &plan, &spec, &cluster));
    assert_true(fit.fits && fit.changes == 0);
    plan_done(&plan);
    spec.config.device.precision = "bf16";
    assert_fails(fit_settle(&spec, &cluster), STATUS_USAGE, "but bf16 needs 8.0; use fp32, fp16");
    spec.config.device.name = "cpu";
    assert_fails(fit_settle(&spec, &cluster), STATUS_USAGE, "--device cpu");
    spec.config.device.name = NULL;
    cluster.peak_flops[RATE_BF16] =
        cluster.peak_flops[RATE_FP16]; /* what a file says, weft's kernels do not */
    assert_fails(fit_settle(&spec, &cluster), STATUS_USAGE, "but bf16 needs 8.0; use fp32, fp16");
    spec.config.device.precision = NULL;
    assert_ok(fit_settle(&spec, &cluster));
    assert_string_equal(spec.config.device.precision, "fp16");
    cluster.capability = 6.1;
    assert_fails(fit_settle(&spec, &cluster), STATUS_USAGE, "has compute capability 6.1, but weft needs 7.0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builtin_clusters), cmocka_unit_test(programs),
        cmocka_unit_test(curves),           cmocka_unit_test(variants),
        cmocka_unit_test(one_precision),    cmocka_unit_test(invalid_clusters),
        cmocka_unit_test(enough_micros),    cmocka_unit_test(finds_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
