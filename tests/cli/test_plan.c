/* `weft plan` through the program: memory, time, failures, search, sweeps and pipeline diagrams. */
#include <math.h>

#include "base/fs.h"
#include "cli/program.h"
#include "comm/mpi.h"

static void draws(void **state) {
    Ran ran = program_run("plan", "--draw", "--pp", "4", "--micros", "8");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "stage 0 F0F1F2F3............B0--F4");
    assert_contains(ran.out, "bubble 27.3%; (p-1)/(m+p-1) = 27.3%");
    assert_contains(ran.out, "peak in flight per stage: 4 3 2 1 micro-batches");
    assert_string_equal(ran.err, "");
    ran_done(&ran);
}

static void writes_svg(void **state) {
    char dir[] = "/tmp/weft-plan-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/zb.svg", dir);
    Ran ran = program_run("plan", "--draw", path, "--pp", "4", "--batch", "32", "--micro-batch", "2", "--dp",
                          "2", "--pp-schedule", "zero-bubble", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "result", &json));
    assert_int_equal(json_integer_value(json_object_get(json, "micros")), 8);
    assert_float_equal(json_number_value(json_object_get(json, "bubble")), 3 / 27.0, 1e-12);
    assert_float_equal(json_number_value(json_object_get(json, "bubble_formula")), 3 / 11.0, 1e-12);
    const json_t *stage = json_array_get(json_object_get(json, "stages"), 3);
    assert_int_equal(json_integer_value(json_object_get(stage, "in_flight")), 4);
    assert_int_equal(json_array_size(json_object_get(stage, "timeline")), 24);
    assert_string_equal(json_string_value(json_object_get(json, "svg")), path);
    json_decref(json);
    ran_done(&ran);
    char *svg = NULL;
    assert_ok(file_read(path, 1 << 20, &svg, NULL));
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    free(svg);
    assert_ok(dir_remove(dir));
}

static void refuses_diagrams(void **state) {
    assert_refused(2, "the 1f1b schedule has 1 chunk per stage, not 2", "plan", "--draw", "--pp-chunks", "2");
    assert_refused(2, "--batch 10: expected a multiple of micro-batch x replicas, 4 x 1", "plan", "--draw",
                   "--batch", "10", "--micro-batch", "4");
    assert_refused(2, "use one or the other", "plan", "--draw", "--batch", "8", "--micros", "4");
    assert_refused(2, "too many boxes to draw", "plan", "--draw", "--pp", "1024", "--micros", "65536");
    assert_refused(2, "expected gpipe, 1f1b, interleaved or zero-bubble", "plan", "--draw", "--pp-schedule",
                   "2f2b");
    assert_refused(1, "/nowhere/a.svg", "plan", "--draw", "/nowhere/a.svg");
}

static json_t *planned(Ran ran) {
    json_t *json = NULL;
    if (ran.code) fail_msg("%s", ran.err);
    assert_ok(json_parse(ran.out, strlen(ran.out), "result", &json));
    ran_done(&ran);
    return json;
}

static json_int_t stored(json_t *plan) {
    json_int_t count = json_integer_value(json_object_get(plan, "params_stored"));
    json_decref(plan);
    return count;
}

/* Published parameter counts. */
static void counts_parameters(void **state) {
    json_t *plan = planned(program_run("plan", "--model", "gpt2-medium", "--json"));
    assert_int_equal(json_integer_value(json_object_get(plan, "params_total")), 354823168);
    assert_int_equal(stored(plan), 354871296);
    plan =
        planned(program_run("plan", "--model", "gpt2", "--layers", "72", "--hidden", "3072", "--heads", "32",
                            "--seq", "1024", "--batch", "16", "--micro-batch", "8", "--ranks", "16", "--dp",
                            "2", "--tp", "8", "--recompute", "block", "--precision", "fp16", "--json"));
    assert_int_equal(stored(plan), 8348393472);
    plan = planned(program_run("plan", "--model", "bert-large", "--seq", "512", "--json"));
    assert_int_equal(stored(plan), 336297858);
    plan = planned(program_run("plan", "--model", "bert-large", "--seq", "512", "--tp", "2", "--json"));
    assert_int_equal(stored(plan), 339208196);
    plan = planned(program_run("plan", "--model", "bert-large", "--layers", "72", "--hidden", "3072",
                               "--heads", "32", "--seq", "512", "--tp", "8", "--json"));
    assert_int_equal(stored(plan), 8424118288);
}

/* The planned memory of every tag equals what the run's summary reports, also with more micro-batches than
 * are dry-run. */
static void agrees_with_a_run(void **state) {
    static const char *const micros[] = {"4", "1"};
    for (int i = 0; i < 2; i++) {
        json_t *plan =
            planned(program_run("plan", "--model", "gpt2-tiny", "--vocab", "257", "--seq", "64", "--batch",
                                "8", "--micro-batch", micros[i], "--threads", "1", "--json"));
        json_t *summary = planned(program_run("train", "--model", "gpt2-tiny", "--data", "self", "--seq",
                                              "64", "--batch", "8", "--micro-batch", micros[i], "--threads",
                                              "1", "--steps", "2", "--quiet", "--json"));
        const json_t *ranks = json_object_get(summary, "ranks");
        const json_t *peaks = json_object_get(json_array_get(ranks, 0), "peak_bytes");
        assert_int_equal(json_object_size(peaks), 8);
        assert_true(json_equal(json_object_get(plan, "memory_per_rank"), peaks));
        json_decref(plan);
        json_decref(summary);
    }
}

/* Validations of a classifier also read its scores. */
static void agrees_with_a_classifier(void **state) {
    char dir[] = "/tmp/weft-plan-XXXXXX", rows[64];
    assert_non_null(mkdtemp(dir));
    snprintf(rows, sizeof rows, "%s/rows.csv", dir);
    static const char text[] = "text,label\none,0\ntwo,1\nthree,2\nfour,0\nfive,1\nsix,2\nseven,0\neight,1\n";
    assert_ok(file_replace(rows, text, sizeof text - 1));
    for (int pp = 1; pp <= 1 + mpi_built(); pp++) {
        const char *stages = pp == 1 ? "1" : "2";
        json_t *plan = planned(program_run("plan", "--model", "bert-tiny", "--vocab", "261", "--task",
                                           "classify", "--labels", "3", "--seq", "16", "--batch", "4",
                                           "--micro-batch", "2", "--pp", stages, "--threads", "1", "--json"));
        json_t *summary =
            planned(program_run("train", "--model", "bert-tiny", "--data", rows, "--val", rows, "--task",
                                "classify", "--seq", "16", "--batch", "4", "--micro-batch", "2", "--pp",
                                stages, "--threads", "1", "--steps", "2", "--quiet", "--json"));
        for (int stage = 0; stage < pp; stage++) {
            const json_t *own = json_array_get(json_object_get(plan, "stages"), (size_t)stage);
            const json_t *rank = json_array_get(json_object_get(summary, "ranks"), (size_t)stage);
            assert_true(json_equal(json_object_get(own, "memory"), json_object_get(rank, "peak_bytes")));
        }
        json_decref(plan);
        json_decref(summary);
    }
    assert_ok(dir_remove(dir));
}

/* The fullest rank of a two-rank run that writes checkpoints uses the planned memory for saving. With Muon,
 * ranks differ. */
static void saving_agrees(const char *option, const char *value, const char *optimizer) {
    char dir[] = "/tmp/weft-plan-XXXXXX", run[64];
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    json_t *plan = planned(program_run("plan", "--model", "gpt2-tiny", "--vocab", "257", "--seq", "64",
                                       "--batch", "4", "--micro-batch", "2", "--ranks", "2", option, value,
                                       "--threads", "1", "--optimizer", optimizer, "--json"));
    json_t *summary =
        planned(program_run("train", "--model", "gpt2-tiny", "--data", "self", "--seq", "64", "--batch", "4",
                            "--micro-batch", "2", "--ranks", "2", option, value, "--threads", "1", "--steps",
                            "2", "--optimizer", optimizer, "--out", run, "--quiet", "--json"));
    json_int_t planned_bytes = json_integer_value(json_object_get(plan, "memory_saving"));
    const json_t *ranks = json_object_get(summary, "ranks"), *one = json_object_get(plan, "params_per_rank");
    assert_true(
        json_equal(json_object_get(plan, "params_stored"), json_object_get(summary, "params_stored")));
    if (strcmp(option, "--pp")) assert_true(json_equal(one, json_object_get(summary, "params_per_rank")));
    assert_int_equal(json_array_size(ranks), 2);
    json_int_t fullest = 0;
    for (size_t r = 0; r < 2; r++) {
        const json_t *peaks = json_object_get(json_array_get(ranks, r), "peak_bytes");
        json_int_t total = json_integer_value(json_object_get(peaks, "total"));
        if (total > fullest) fullest = total;
    }
    assert_int_equal(fullest, planned_bytes);
    json_decref(plan);
    json_decref(summary);
    assert_ok(dir_remove(dir));
}

static void agrees_with_saving(void **state) {
    if (!mpi_built()) return;
    saving_agrees("--zero", "1", "adamw");
    saving_agrees("--tp", "2", "adamw");
    saving_agrees("--cp", "2", "adamw");
    saving_agrees("--zero", "2", "muon");
    saving_agrees("--zero", "3", "adamw");
    saving_agrees("--sync-every", "2", "adamw");
    saving_agrees("--grad-dtype", "int8", "adamw");
}

/* Workers send per interval what data-parallel replicas send per step, and wait for it unless steps overlap
 * it. */
static void plans_workers(void **state) {
    enum { PLANS = 7 };
    static const char *const options[PLANS][6] = {
        {"--sync-every", "1", "--sync-dtype", "fp32"},
        {"--sync-every", "20", "--sync-dtype", "fp32"},
        {"--sync-every", "20", "--sync-dtype", "fp32", "--sync-fragments", "2"},
        {"--sync-every", "20", "--sync-dtype", "fp32", "--sync-overlap", "20"},
        {"--sync-every", "20", "--sync-dtype", "bf16"},
        {"--sync-every", "20", "--sync-dtype", "int8"},
        {"--sync-every", "20", "--sync-dtype", "int8", "--sync-overlap", "20"},
    };
    double sent[PLANS], step[PLANS], memory[PLANS], gathers;
    for (int i = 0; i < PLANS; i++) {
        json_t *plan =
            planned(program_run("plan", "--model", "gpt2", "--ranks", "16", "--shard", "8", "--zero", "1",
                                "--cluster", "dgx-a100", "--json", options[i][0], options[i][1],
                                options[i][2], options[i][3], options[i][4], options[i][5]));
        sent[i] = json_number_value(json_object_get(json_object_get(plan, "comm"), "total"));
        step[i] = json_number_value(json_object_get(plan, "step_ms"));
        memory[i] = json_number_value(json_object_get(json_object_get(plan, "memory_per_rank"), "total"));
        json_decref(plan);
    }
    assert_true(sent[1] < sent[0] && sent[2] == sent[1] && sent[3] == sent[1]);
    assert_true(step[1] < step[0] && step[3] < step[1]);
    assert_true(memory[2] < memory[1] && memory[1] < memory[3]);
    gathers = 2 * sent[4] - sent[1]; /* of the workers' own ranks, which stay as they are */
    assert_true(sent[4] < sent[1]);
    assert_true(fabs((sent[5] - gathers) / (sent[1] - gathers) - 0.254) < 0.001);
    assert_true(step[4] < step[1] && step[5] < step[4] && step[6] < step[5]);
    Ran ran = program_run("plan", "--model", "gpt2", "--ranks", "4", "--sync-every", "30", "--sync-fragments",
                          "3", "--sync-overlap", "5");
    assert_contains(ran.out,
                    "4 workers, synchronized every 30 steps in 3 fragments beside 5 steps each, in int8\n");
    ran_done(&ran);
    assert_refused(2, "use --sync-fragments 4 or less", "plan", "--model", "gpt2", "--ranks", "4",
                   "--sync-every", "4", "--sync-fragments", "5");
    assert_refused(2, "use --sync-overlap 2 or less", "plan", "--model", "gpt2", "--ranks", "4",
                   "--sync-every", "4", "--sync-fragments", "2", "--sync-overlap", "3");
    assert_refused(2, "pass --shard N, the number of replicas in a worker", "plan", "--model", "gpt2",
                   "--ranks", "4", "--zero", "1", "--sync-every", "4");
    assert_refused(2, "--sync-fragments 99: the model has fewer blocks to divide", "plan", "--model", "gpt2",
                   "--ranks", "2", "--sync-every", "99", "--sync-fragments", "99");
    assert_refused(2, "--grad-dtype int8 cannot be combined with --shard 2", "plan", "--model", "gpt2",
                   "--ranks", "4", "--zero", "1", "--shard", "2", "--grad-dtype", "int8");
    assert_refused(2, "use --precision bf16 or --grad-dtype bf16", "plan", "--model", "gpt2", "--ranks", "4",
                   "--precision", "fp16", "--grad-dtype", "int8");
}

/* ZeRO-3 keeps each rank's part of parameters, gradients and optimizer state, plus buffers of two layers for
 * gathered parameters and two for gradients, however large the vocabulary is. Saving needs little more. */
static void shards_vocabularies(void **state) {
    static const struct {
        const char *model, *task, *layers, *hidden, *heads, *inner, *seq, *vocab;
        int64_t layer; /* parameters of a layer */
    } models[] = {
        {"gpt2", "lm", "15", "272", "17", "1088", "1024", "50257", 12 * 272 * 272 + 13 * 272},
        {"bert-base", "mlm", "8", "640", "10", "1280", "64", "30522", 8 * 640 * 640 + 11 * 640},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        double before = 0;
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            char dp[16];
            snprintf(dp, sizeof dp, "%d", ranks);
            json_t *plan = planned(
                program_run("plan", "--model", models[i].model, "--task", models[i].task, "--layers",
                            models[i].layers, "--hidden", models[i].hidden, "--heads", models[i].heads,
                            "--inner", models[i].inner, "--seq", models[i].seq, "--vocab", models[i].vocab,
                            "--micro-batch", "1", "--batch", "4", "--dp", dp, "--zero", "3", "--json"));
            const json_t *memory = json_object_get(plan, "memory_per_rank");
            double share = 4 * json_number_value(json_object_get(plan, "params_total")) / ranks;
            double buffers = ranks > 1 ? 2 * 4 * (double)models[i].layer : 0;
            assert_true(json_number_value(json_object_get(memory, "params")) < 1.03 * (share + buffers));
            assert_true(json_number_value(json_object_get(memory, "grads")) < 1.03 * (share + buffers));
            assert_true(json_number_value(json_object_get(memory, "optimizer")) < 1.03 * 2 * share);
            double total = json_number_value(json_object_get(memory, "total"));
            if (ranks > 1) assert_true(total < before);
            before = total;
            json_decref(plan);
        }
    }
}

static void shows_stages(void **state) {
    Ran ran = program_run("plan", "--model", "gpt2", "--pp", "4", "--dp", "2", "--zero", "1");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "8 ranks: dp 2 x tp 1 x pp 4, ZeRO 1, fp32");
    assert_contains(ran.out, "16 micro-batches of 1 per replica");
    assert_contains(ran.out, "stage 1");
    assert_string_equal(ran.err, "");
    ran_done(&ran);
}

/* On a cluster: whether the job fits, and which options would make it fit. */
static void fits_clusters(void **state) {
    json_t *plan = planned(program_run("plan", "--cluster", "dgx2-v100", "--ranks", "16", "--dp", "2", "--tp",
                                       "8", "--model", "gpt2", "--layers", "72", "--hidden", "3072",
                                       "--heads", "32", "--seq", "1024", "--batch", "16", "--micro-batch",
                                       "8", "--recompute", "block", "--precision", "fp16", "--json"));
    assert_true(json_is_true(json_object_get(plan, "fits")));
    assert_int_equal(stored(plan), 8348393472);
    Ran ran = program_run("plan", "--cluster", "dgx2-v100", "--ranks", "16", "--model", "gpt2", "--layers",
                          "54", "--hidden", "1920", "--heads", "20", "--batch", "32", "--micro-batch", "2",
                          "--recompute", "block");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "does not fit (Tesla V100-SXM3-32GB): ");
    assert_contains(ran.out, "--zero 1 ");
    assert_null(strstr(ran.out, "--offload")); /* the program that this cluster describes has no offloading */
    assert_contains(ran.out, "with Megatron-LM (2019)");
    assert_contains(ran.out, "--ranks 16 --dp 8 --tp 2 --pp 1 ");
    ran_done(&ran);
    static const char *const kept[][2] = {
        {"block", "--offload optimizer+activations "},
        {"none", "--recompute block --offload optimizer+activations "},
    };
    for (size_t i = 0; i < 2; i++) {
        ran = program_run("plan", "--cluster", "h200", "--model", "llama-3-8b", "--seq",
                          i ? "524288" : "262144", "--batch", "1", "--offload", "optimizer", "--recompute",
                          kept[i][0]);
        assert_int_equal(ran.code, 0);
        assert_contains(ran.out, kept[i][1]);
        ran_done(&ran);
    }
    assert_refused(2, "which does not offload", "plan", "--cluster", "dgx2-v100", "--offload", "optimizer");
    assert_refused(2, "did you mean 'dgx-a100'?", "plan", "--cluster", "dgx-a10");
    assert_refused(2, "does not support it; use fp32, fp16", "plan", "--cluster", "dgx2-v100", "--precision",
                   "bf16");
    assert_refused(2, "has compute capability 7.5, but bf16 needs 8.0; use fp32, fp16", "plan", "--cluster",
                   "rtx-2080ti", "--precision", "bf16");
    assert_refused(2, "has compute capability 7.0, but fp8 needs 8.9; use fp32, fp16", "plan", "--search",
                   "--ranks", "2", "--cluster", "v100-16gb", "--precision", "fp8");
    assert_refused(2, "--device cpu: cluster h200 has cuda devices", "plan", "--cluster", "h200", "--device",
                   "cpu");
}

/* What weft needs on older GPUs is said with every plan for them, also on pages. */
static void plans_for_older_gpus(void **state) {
    Ran ran = program_run("plan", "--cluster", "v100-16gb");
    assert_int_equal(ran.code, 0);
    assert_contains(
        ran.out, "note: on compute capability 7.0, weft needs a build with CUDA 12 (12.4 or later, not 13)");
    assert_contains(ran.out, "ZeRO 0, fp16,");
    ran_done(&ran);
    ran = program_run("plan", "--cluster", "dgx2-v100"); /* another program */
    assert_int_equal(ran.code, 0);
    assert_null(strstr(ran.out, "note:"));
    ran_done(&ran);
    CLEANUP(mem_freep) char *page = NULL;
    CLEANUP(mem_freep) char *html = NULL;
    size_t size;
    char path[] = "/tmp/weft-plan-XXXXXX";
    close(mkstemp(path));
    assert_ok(str_format(&page, "%s.html", path));
    ran = program_run("plan", "--search", "--ranks", "2", "--cluster", "rtx-2080ti", "--html", page);
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out,
                    "note: on compute capability 7.5, weft computes in fp32 or fp16, not in bf16 or fp8");
    assert_ok(file_read(page, 1 << 24, &html, &size));
    assert_non_null(strstr(html, "on compute capability 7.5, weft computes in fp32 or fp16"));
    unlink(page);
    unlink(path);
    ran_done(&ran);
}

/* Device failures: the share of time that is progress, and the best checkpoint interval. */
static void plans_for_failures(void **state) {
    json_t *plan = planned(program_run("plan", "--model", "gpt2", "--ranks", "1024", "--mtbf", "50000",
                                       "--checkpoint-seconds", "60", "--restart-seconds", "600",
                                       "--no-async-save", "--json"));
    const json_t *failures = json_object_get(plan, "failures"), *best = json_object_get(failures, "best");
    assert_float_equal(json_number_value(json_object_get(failures, "mtbf_hours")), 50000 / 1024.0, 1e-9);
    assert_float_equal(json_number_value(json_object_get(best, "interval_s")), 4552.9, 0.1);
    assert_float_equal(json_number_value(json_object_get(failures, "goodput")), 0.9709, 5e-4);
    json_decref(plan);
    /* 124 million parameters, 12 bytes each. */
    Ran ran = program_run("plan", "--model", "gpt2", "--mtbf", "100", "--storage-bandwidth", "100MB");
    assert_contains(ran.out, "checkpoint 14.9 s in the background (stall 0.1 s), restart 5.25 min");
    ran_done(&ran);
    assert_refused(2, "--mtbf 0: expected a number > 0", "plan", "--mtbf", "0");
    assert_refused(2, "requires --mtbf HOURS", "plan", "--restart-seconds", "4");
    assert_refused(2, "--checkpoint-every 'no': expected seconds or auto", "plan", "--mtbf", "4",
                   "--checkpoint-every", "no");
}

/* The fastest layouts are sorted and all fit, and the first agrees with a plan of that layout alone. */
static void searches(void **state) {
    json_t *found =
        planned(program_run("plan", "--search", "--model", "gpt2-medium", "--ranks", "16", "--batch", "32",
                            "--cluster", "dgx2-v100", "--recompute", "none", "--json"));
    const json_t *best = json_object_get(found, "best"), *first = json_array_get(best, 0);
    assert_int_equal(json_array_size(best), 10);
    double available = json_number_value(json_object_get(found, "memory_available")), before = 0;
    for (size_t i = 0; i < json_array_size(best); i++) {
        const json_t *row = json_array_get(best, i), *layout = json_object_get(row, "layout");
        double step = json_number_value(json_object_get(row, "step_ms"));
        assert_true(step >= before);
        before = step;
        assert_true(json_number_value(json_object_get(row, "memory")) <= available);
        assert_string_equal(json_string_value(json_object_get(layout, "recompute")), "none");
        assert_int_equal(json_integer_value(json_object_get(layout, "dp")) *
                             json_integer_value(json_object_get(layout, "tp")) *
                             json_integer_value(json_object_get(layout, "pp")),
                         16);
    }
    char line[512], *rest = line;
    const char *argv[48] = {"plan",      "--model", "gpt2-medium", "--batch",   "32", "--cluster",
                            "dgx2-v100", "--ranks", "16",          "--threads", "1",  "--json"};
    snprintf(line, sizeof line, "%s", json_string_value(json_object_get(first, "options")));
    for (int count = 12; (argv[count] = strsep(&rest, " ")); count++) assert_true(count < 47);
    json_t *plan = planned(program_run_to(NULL, argv));
    assert_true(json_equal(json_object_get(plan, "memory_saving"), json_object_get(first, "memory")));
    double step = json_number_value(json_object_get(first, "step_ms"));
    assert_float_equal(json_number_value(json_object_get(plan, "step_ms")), step, 1e-9 * step);
    json_decref(plan);
    json_decref(found);
}

/* fp8 with one key-value head, whose matrix of q, k and v has 72 rows, which fp8 does not support, and with
 * two that four ranks share, whose weight gradients are deferred. */
static void fp8_of_shared_heads(void **state) {
    static const struct {
        const char *sizes, *tp, *pp;
    } rows[] = {{"\"num_key_value_heads\":1,\"head_dim\":12", "1", "1"},
                {"\"num_key_value_heads\":2,\"head_dim\":16", "4", "2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dir[] = "/tmp/weft-plan-XXXXXX", path[64], config[512];
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof path, "%s/config.json", dir);
        int size = snprintf(config, sizeof config,
                            "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,%s,"
                            "\"intermediate_size\":128,\"num_hidden_layers\":2,\"vocab_size\":320}",
                            rows[i].sizes);
        assert_ok(file_replace(path, config, (size_t)size));
        json_decref(
            planned(program_run("plan", "--model", dir, "--precision", "fp8", "--cluster", "h200", "--batch",
                                "16", "--micro-batch", "2", "--seq", "64", "--tp", rows[i].tp, "--pp",
                                rows[i].pp, "--pp-schedule", "zero-bubble", "--json")));
        assert_ok(dir_remove(dir));
    }
}

/* Delayed scaling saves passes and --fp8-head speeds up the output layer; neither takes more memory than
 * bf16. */
static void fp8_scaling(void **state) {
    static const char *const options[][3] = {{"bf16", "exact", NULL},
                                             {"fp8", "exact", NULL},
                                             {"fp8", "delayed", NULL},
                                             {"fp8", "delayed", "--fp8-head"}};
    double memory = INFINITY, before = INFINITY;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        json_t *plan = planned(program_run("plan", "--model", "gpt2", "--cluster", "h200", "--batch", "32",
                                           "--micro-batch", "32", "--json", "--precision", options[i][0],
                                           "--fp8-scaling", options[i][1], options[i][2]));
        double step = json_number_value(json_object_get(plan, "step_ms"));
        double bytes = json_number_value(json_object_get(json_object_get(plan, "memory_per_rank"), "total"));
        assert_true(step < before);
        assert_true(bytes <= memory);
        before = step;
        if (i == 0) memory = bytes;
        json_decref(plan);
    }
}

/* Long sequences may be split, in the modes that the device has, unless the layout or the mode is given. */
static void search_context(void **state) {
    json_t *found = planned(program_run("plan", "--search", "llama-1m", "--seq", "8192", "--ranks", "4",
                                        "--batch", "1", "--cluster", "cpu", "--json"));
    const json_t *best = json_object_get(found, "best"), *others = json_object_get(found, "others");
    const json_t *layout = json_object_get(json_array_get(best, 0), "layout");
    assert_true(json_number_at(layout, "cp") > 1);
    assert_non_null(strstr(json_string_at(json_array_get(best, 0), "options"), " --cp-mode "));
    bool whole = false;
    for (size_t i = 0; i < json_array_size(others); i++)
        whole |= strstr(json_string_at(json_array_get(others, i), "what"), "no context parallelism") != NULL;
    assert_true(whole);
    json_decref(found);
    Ran ran = program_run("plan", "--search", "llama-1m", "--seq", "8192", "--ranks", "4", "--batch", "1",
                          "--cluster", "cpu", "--cp", "2", "--cp-mode", "gather");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, " 2 gather ");
    assert_true(!strstr(ran.out, "ring") && !strstr(ran.out, "2 heads") && !strstr(ran.err, "no effect"));
    ran_done(&ran);
    found = planned(program_run("plan", "--search", "llama-1m", "--seq", "8192", "--ranks", "2", "--batch",
                                "1", "--cluster", "h200", "--tp", "1", "--pp", "1", "--json"));
    best = json_object_get(found, "best");
    bool heads = false, gathers = false;
    for (size_t i = 0; i < json_array_size(best); i++) {
        const char *mode = json_string_at(json_object_get(json_array_get(best, i), "layout"), "cp_mode");
        heads |= !strcmp(mode, "heads");
        gathers |= !strcmp(mode, "gather");
    }
    assert_true(heads && gathers);
    json_decref(found);
    assert_refused(2, "--cp 3 does not divide the sequence length 8192", "plan", "--search", "llama-1m",
                   "--seq", "8192", "--ranks", "3", "--batch", "1", "--cp", "3", "--cluster", "h200");
    assert_ran(program_run("plan", "--search", "llama-1m", "--seq", "8192", "--ranks", "4", "--batch", "4",
                           "--tp", "1", "--pp", "1", "--cp-mode", "heads", "--cluster", "h200"),
               0, out,
               "Of 3 factorizations dp x tp x pp x cp, 1 is invalid: cp does not divide the sequence or the "
               "key-value heads (1).");
}

/* Experts may be divided among ranks; a given number is kept. GPUs can be planned for. */
static void search_experts(void **state) {
    json_t *found =
        planned(program_run("plan", "--search", "moe-1m", "--seq", "64", "--ranks", "2", "--batch", "2",
                            "--cluster", "h100", "--tp", "1", "--pp", "1", "--json"));
    const json_t *best = json_object_get(found, "best"), *others = json_object_get(found, "others");
    bool divided = false, together = false;
    for (size_t i = 0; i < json_array_size(best); i++) {
        const json_t *row = json_array_get(best, i);
        int ep = (int)json_number_at(json_object_get(row, "layout"), "ep");
        assert_int_equal(ep == 2, strstr(json_string_at(row, "options"), " --ep 2 ") != NULL);
        divided |= ep == 2;
        together |= !ep;
    }
    for (size_t i = 0; i < json_array_size(others); i++)
        together |=
            strstr(json_string_at(json_array_get(others, i), "what"), "no expert parallelism") != NULL;
    assert_true(divided && together);
    assert_null(json_object_get(found, "needs"));
    json_decref(found);
    Ran ran = program_run("plan", "--search", "moe-1m", "--seq", "64", "--ranks", "2", "--batch", "2",
                          "--cluster", "cpu", "--ep", "2", "--imbalance", "1.5");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "       dp  tp  pp  ep zero ");
    assert_contains(ran.out, "  1     2   1   1   2    ");
    assert_string_equal(ran.err, "");
    ran_done(&ran);
    assert_refused(2, "--ep 2: the model has no experts; drop --ep", "plan", "--search", "gpt2-mini",
                   "--ranks", "2", "--ep", "2", "--cluster", "cpu");
    assert_refused(2, "--ep 3 does not divide the model's 8 experts; valid values: 1, 2", "plan", "--search",
                   "moe-1m", "--ranks", "6", "--ep", "3", "--cluster", "cpu");
    assert_refused(2, "--ranks 2: no valid layout in which --ep 4 divides --dp x --cp", "plan", "--search",
                   "moe-1m", "--ranks", "2", "--ep", "4", "--cluster", "cpu");
}

/* A rank has its experts and what arrives for them, more if tokens choose them more often. */
static void plans_experts(void **state) {
    static const char *const more[] = {"1", "2", "4"};
    double before = 0;
    json_t *whole = planned(program_run("plan", "moe-1m", "--dp", "4", "--seq", "256", "--json"));
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        json_t *plan = planned(program_run("plan", "moe-1m", "--dp", "4", "--ep", "4", "--imbalance", more[i],
                                           "--seq", "256", "--json"));
        const json_t *memory = json_object_get(plan, "memory_per_rank"),
                     *sent = json_object_get(plan, "comm");
        assert_int_equal(json_int_at(json_object_get(plan, "layout"), "ep"), 4);
        assert_true(json_int_at(plan, "params_per_rank") < json_int_at(whole, "params_per_rank"));
        assert_true(json_number_at(memory, "activations") > 1.1 * before);
        assert_true(json_int_at(sent, "all_to_all") > 0);
        before = json_number_at(memory, "activations");
        json_decref(plan);
    }
    json_decref(whole);
    /* Too many for a GPU; divided, they fit. */
    Ran ran = program_run("plan", "mixtral-8x7b", "--dp", "64", "--batch", "64", "--seq", "512", "--zero",
                          "1", "--cluster", "h100");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "does not fit");
    assert_contains(ran.out, "  --ep 8 ");
    assert_null(strstr(ran.out, "note: "));
    ran_done(&ran);
    assert_refused(2, "--imbalance 0.5: expected", "plan", "moe-1m", "--dp", "2", "--ep", "2", "--imbalance",
                   "0.5");
    assert_refused(2, "--tp 4: OLMoE normalizes q and k over all heads together", "plan", "olmoe-1b-7b",
                   "--tp", "4");
}

/* The built-in cluster of CPUs with four ranks on each node. */
static void put_small_nodes(const char *path) {
    static const char from[] = "\"devices_per_node\": {\"value\": 64";
    char *text = NULL;
    size_t size;
    assert_ok(file_read(WEFT_SOURCE_DIR "/clusters/cpu.json", 1 << 20, &text, &size));
    char *at = strstr(text, from);
    assert_non_null(at);
    memcpy(at + strlen(from) - 2, " 4", 2);
    assert_ok(file_replace(path, text, size));
    free(text);
}

/* The layouts of a search that combine heads and a ring; checks that JSON and options have the sizes. */
static size_t combined_layouts(const json_t *layouts, int *ret_sizes) {
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(layouts); i++) {
        const json_t *row = json_array_get(layouts, i), *layout = json_object_get(row, "layout");
        const char *mode = json_string_value(json_object_get(layout, "cp_mode"));
        int heads = (int)json_number_at(layout, "cp_heads");
        bool both = mode && !strcmp(mode, "heads+ring");
        char options[48];
        snprintf(options, sizeof options, " --cp-mode heads+ring --cp-heads %d", heads);
        assert_int_equal(both, strstr(json_string_at(row, "options"), options) != NULL);
        assert_int_equal(both, json_object_get(layout, "cp_heads") != NULL);
        count += both;
        if (both) *ret_sizes |= heads;
    }
    return count;
}

/* Between nodes, ranks may exchange heads within each and pass keys and values on between them. */
static void search_heads_ring(void **state) {
    char path[] = "/tmp/weft-nodes-XXXXXX";
    int file = mkstemp(path), sizes = 0;
    assert_true(file >= 0);
    close(file);
    put_small_nodes(path);
#define SEARCH_PARTS                                                                                         \
    "plan", "--search", "llama-5m", "--seq", "16384", "--batch", "1", "--tp", "1", "--pp", "1", "--cluster"
    json_t *found = planned(program_run(SEARCH_PARTS, path, "--ranks", "8", "--cp", "8", "--json"));
    const json_t *best = json_object_get(found, "best"), *others = json_object_get(found, "others");
    const json_t *layout = json_object_get(json_array_get(best, 0), "layout");
    assert_string_equal(json_string_at(layout, "cp_mode"), "heads+ring");
    assert_true(json_number_at(layout, "cp_heads") == 4); /* the largest groups within a node */
    assert_true(combined_layouts(best, &sizes) > 0 && (sizes & 2));
    for (size_t i = 0; i < json_array_size(others); i++)
        assert_non_null(strstr(json_string_at(json_array_get(others, i), "reason"), "communication (keys"));
    json_decref(found);
    /* One node has no use for it, but tries it where asked. */
    sizes = 0;
    found = planned(program_run(SEARCH_PARTS, path, "--ranks", "4", "--cp", "4", "--json"));
    assert_int_equal(combined_layouts(json_object_get(found, "best"), &sizes), 0);
    assert_int_equal(combined_layouts(json_object_get(found, "others"), &sizes), 0);
    json_decref(found);
    Ran ran = program_run(SEARCH_PARTS, "cpu", "--ranks", "8", "--cp", "8", "--cp-mode", "heads+ring");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, " 8 heads 2+ring ");
    assert_contains(ran.out, " 8 heads 4+ring ");
    ran_done(&ran);
    ran = program_run(SEARCH_PARTS, "cpu", "--ranks", "8", "--cp", "8", "--cp-mode", "heads+ring",
                      "--cp-heads", "2");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, " 8 heads 2+ring ");
    assert_null(strstr(ran.out, "heads 4"));
    ran_done(&ran);
    assert_refused(2, "--cp-heads 3 does not divide --cp 8", SEARCH_PARTS, "cpu", "--ranks", "8", "--cp", "8",
                   "--cp-mode", "heads+ring", "--cp-heads", "3");
    unlink(path);
}

static void search_table(void **state) {
    Ran ran = program_run("plan", "--search", "--model", "gpt2", "--layers", "54", "--hidden", "1920",
                          "--heads", "20", "--ranks", "16", "--batch", "32", "--cluster", "dgx2-v100");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.out, "\nFastest: --dp ");
    assert_contains(ran.out, "data parallelism only, nothing sharded (DDP)");
    assert_contains(ran.out, "does not fit: ");
    assert_contains(ran.out, " valid layouts, ");
    ran_done(&ran);
    assert_ran(program_run("plan", "--search", "--model", "gpt2", "--layers", "96", "--hidden", "12288",
                           "--heads", "96", "--ranks", "8", "--batch", "8", "--cluster", "dgx2-v100"),
               0, out, "No layout fits. The smallest, --dp ");
    assert_refused(2, "--search requires --cluster", "plan", "--search", "--ranks", "4");
    assert_refused(2, "--search requires --ranks N", "plan", "--search", "--cluster", "h200");
    assert_refused(2, "--ranks 7 is not a multiple of the given tp 2", "plan", "--search", "--ranks", "7",
                   "--tp", "2", "--cluster", "h200");
    assert_refused(2, "feed-forward size 704, and divide its 4 key-value heads or be a multiple of them",
                   "plan", "--search", "--ranks", "3", "--tp", "3", "--model", "llama-5m", "--cluster",
                   "h200");
    assert_refused(2, "no valid layout for a batch of 1 sequences", "plan", "--search", "--ranks", "101",
                   "--batch", "1", "--cluster", "h200");
}

static void sweeps(void **state) {
    char dir[] = "/tmp/weft-plan-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/scaling.svg", dir);
    json_t *sweep =
        planned(program_run("plan", "--sweep", "2,4,...,16", path, "--model", "gpt2-tiny", "--batch", "2",
                            "--cluster", "h200", "--pp", "1", "--mtbf", "10000", "--price", "2", "--json"));
    const json_t *weak = json_object_get(sweep, "weak"), *strong = json_object_get(sweep, "strong");
    assert_int_equal(json_array_size(weak), 4);
    assert_int_equal(json_array_size(strong), 4);
    const json_t *last = json_array_get(weak, 3);
    assert_int_equal(json_integer_value(json_object_get(last, "ranks")), 16);
    assert_int_equal(json_integer_value(json_object_get(last, "batch")), 16);
    assert_true(json_number_value(json_object_get(last, "goodput")) < 1);
    assert_float_equal(json_number_value(json_object_get(last, "cost_per_hour")), 32, 1e-9);
    assert_float_equal(json_number_value(json_object_get(json_array_get(weak, 0), "efficiency")), 1, 0);
    /* Two sequences and four heads are too few for 16 devices without pipeline stages. */
    assert_true(json_is_false(json_object_get(json_array_get(strong, 3), "fits")));
    assert_non_null(json_object_get(json_array_get(strong, 3), "why"));
    json_decref(sweep);
    assert_ok(dir_remove(dir));
    assert_refused(2, "--sweep '4,2': device counts must be in ascending order", "plan", "--sweep", "4,2",
                   "--cluster", "h200");
    assert_refused(2, "expected device counts from 1", "plan", "--sweep", "0", "--cluster", "h200");
    assert_refused(2, "--ranks cannot be combined with --sweep", "plan", "--sweep", "1,2", "--ranks", "4",
                   "--cluster", "h200");
}

/* Seven sizes just fit below the axis. */
static void sweep_shows_all_sizes(void **state) {
    char dir[] = "/tmp/weft-plan-XXXXXX", path[64], *svg = NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/scaling.svg", dir);
    json_decref(
        planned(program_run("plan", "--sweep", "256,...,16384", path, "--model", "gpt2-tiny", "--batch",
                            "16384", "--cluster", "h200", "--pp", "1", "--tp", "1", "--json")));
    assert_ok(file_read(path, 1 << 20, &svg, NULL));
    assert_non_null(strstr(svg, ">256<"));
    assert_non_null(strstr(svg, ">8192<"));
    assert_non_null(strstr(svg, ">16384<"));
    free(svg);
    assert_ok(dir_remove(dir));
}

static char *page_of(const char *path) {
    char *text = NULL;
    size_t size;
    assert_ok(file_read(path, 1 << 26, &text, &size));
    assert_int_equal(strncmp(text, "<!DOCTYPE html>", 15), 0);
    assert_null(strstr(text, "src=")); /* self-contained */
    assert_null(strstr(text, "href=\"http"));
    return text;
}

/* A plan, a search and a sweep as pages. The search's page gives its fastest layout, costs, and a reason for
 * every other one. */
static void writes_pages(void **state) {
    char dir[] = "/tmp/weft-plan-XXXXXX", path[64], figure[80];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/plan.html", dir);
    snprintf(figure, sizeof figure, "%s/plan-figures/timeline.csv", dir);
    assert_ran(program_run("plan", "gpt2-mini", "--ranks", "4", "--pp", "2", "--batch", "8", "--cluster",
                           "h200", "--html", path),
               0, out, "wrote /tmp/weft-plan-");
    char *page = page_of(path);
    assert_contains(page, "dp 2 x tp 1 x pp 2 fits");
    assert_contains(page, "stage 1");
    assert_true(path_exists(figure));
    free(page);
    json_t *found =
        planned(program_run("plan", "--search", "gpt2-mini", "--ranks", "4", "--batch", "8", "--cluster",
                            "h200", "--price", "3", "--power", "500", "--html", path, "--json"));
    const json_t *first = json_array_get(json_object_get(found, "best"), 0);
    assert_string_equal(json_string_value(json_object_get(found, "html")), path);
    assert_float_equal(json_number_value(json_object_get(first, "cost_per_hour")), 12, 1e-9);
    assert_float_equal(json_number_value(json_object_get(first, "power_watts")), 2000, 1e-9);
    assert_float_equal(json_number_value(json_object_get(first, "tokens_per_j")),
                       json_number_value(json_object_get(first, "tokens_per_s")) / 2000, 1e-9);
    page = page_of(path);
    assert_contains(page, json_string_value(json_object_get(first, "options")));
    assert_contains(page, "Cost per million tokens");
    assert_contains(page, "Energy per million tokens");
    assert_contains(page, "500 W per GPU");
    assert_null(strstr(page, "(0)")); /* of reasons that make no layout invalid */
    char front[80];
    snprintf(front, sizeof front, "%s/plan-figures/speed-memory.csv", dir);
    char *points = NULL;
    assert_ok(file_read(front, 1 << 20, &points, NULL));
    assert_contains(points, ",spread,pareto_front\n");
    assert_contains(points, ",yes\n");
    assert_contains(points, ",no\n");
    free(points);
    const json_t *others = json_object_get(found, "others");
    assert_true(json_array_size(others) > 0);
    for (size_t i = 0; i < json_array_size(others); i++) {
        const char *reason = json_string_value(json_object_get(json_array_get(others, i), "reason"));
        assert_true(*reason != 0);
        assert_contains(page, reason);
    }
    free(page);
    json_decref(found);
    json_decref(planned(program_run("plan", "--sweep", "2,4", "--model", "gpt2-tiny", "--batch", "4",
                                    "--cluster", "h200", "--html", path, "--json")));
    page = page_of(path);
    assert_contains(page, "Weak scaling");
    assert_contains(page, "4 devices");
    free(page);
    assert_ok(dir_remove(dir));
    assert_refused(2, "--html /tmp is a directory", "plan", "gpt2-mini", "--cluster", "h200", "--html",
                   "/tmp");
    assert_refused(2, "--html requires --cluster", "plan", "gpt2-mini", "--html", path);
    assert_refused(2, "--html cannot be combined with --draw", "plan", "--draw", "--html", path);
}

/* Options that a run refuses, with the same messages, and models that fit no device. */
static void refuses_plans(void **state) {
    assert_refused(2, "--tp 3 does not divide the model's 4 heads; valid values: 1, 2, 4", "plan", "--tp",
                   "3");
    assert_refused(2,
                   "--cp 3 does not divide the sequence length 64 into parts of at least 2 tokens; valid "
                   "values: 1, 2, 4, 8, 16, 32",
                   "plan", "--cp", "3", "--seq", "64");
    assert_refused(2, "--cp 8 does not divide the sequence length 8", "plan", "--cp", "8", "--seq", "8");
    assert_refused(2,
                   "--cp 4 does not divide the 2 key-value heads of each tensor-parallel rank; valid values "
                   "with --tp 2: 1, 2, or use --cp-mode gather or ring",
                   "plan", "llama-5m", "--cp", "4", "--tp", "2", "--cp-mode", "heads");
    assert_refused(
        2,
        "--cp-mode heads+ring needs --cp-heads, the adjacent ranks that exchange heads; valid values with "
        "--cp 4 and --tp 1: 2",
        "plan", "llama-5m", "--cp", "4", "--cp-mode", "heads+ring");
    assert_refused(2, "--cp-heads 3 does not divide --cp 4; valid values: 2", "plan", "llama-5m", "--cp", "4",
                   "--cp-mode", "heads+ring", "--cp-heads", "3");
    assert_refused(2, "--cp-heads 2 does not divide --cp 3, nor does any other; use --cp 4", "plan",
                   "llama-5m", "--cp", "3", "--seq", "48", "--cp-mode", "heads+ring", "--cp-heads", "2");
    assert_refused(2,
                   "--cp-heads 4 does not divide the 2 key-value heads of each tensor-parallel rank; valid "
                   "values with --cp 8 and --tp 2: 2",
                   "plan", "llama-5m", "--cp", "8", "--tp", "2", "--cp-mode", "heads+ring", "--cp-heads",
                   "4");
    assert_refused(2,
                   "--cp-mode heads+ring: no smaller group of ranks divides both --cp 2 and the 4 key-value "
                   "heads of each tensor-parallel rank; use --cp-mode gather or ring",
                   "plan", "llama-5m", "--cp", "2", "--cp-mode", "heads+ring");
    assert_refused(2,
                   "--ep 3 does not divide the 4 ranks that hold the same parameters; valid values: 1, 2, 4",
                   "plan", "llama-5m", "--dp", "2", "--cp", "2", "--ep", "3");
    assert_refused(2, "--ep 2: the model has no experts; drop --ep", "plan", "llama-5m", "--dp", "2", "--ep",
                   "2");
    assert_refused(2, "--ep 3 does not divide the model's 8 experts; valid values: 1, 2", "plan", "moe-1m",
                   "--dp", "6", "--ep", "3");
    assert_refused(2, "--ep 2 cannot be combined with --sync-every; drop one of them", "plan", "moe-1m",
                   "--dp", "2", "--ep", "2", "--sync-every", "4");
    assert_refused(2,
                   "the 2 tokens of a sequence on each rank, with --cp 2, are not a multiple of --tp 4; use "
                   "--seq 8",
                   "plan", "gpt2-large", "--heads", "16", "--cp", "2", "--tp", "4", "--seq", "4",
                   "--sequence-parallel");
    assert_refused(2, "--shard 3: must divide the number of ranks with the same parameters, 4", "plan",
                   "--dp", "2", "--cp", "2", "--zero", "1", "--shard", "3");
    assert_refused(2, "the model has 4 layers and every stage needs at least one", "plan", "--pp", "50");
    assert_refused(2, "--batch 10 does not divide into micro-batches of 4", "plan", "--batch", "10",
                   "--micro-batch", "4");
    assert_refused(2, "--layers 1000000000000: expected an integer from 1 to 100000", "plan", "--layers",
                   "1000000000000");
    assert_refused(2, "parameters cannot be planned", "plan", "--layers", "100000", "--hidden", "1048576",
                   "--heads", "64");
    assert_refused(2, "--seq 3000000000: expected an integer from 1 to 16777216", "plan", "--seq",
                   "3000000000");
    assert_refused(2,
                   "--micro-batch 1048576 with --seq 16777216 is more than 2147483647 tokens at a time; use "
                   "--micro-batch 127 or less",
                   "plan", "--micro-batch", "1048576", "--seq", "16777216");
    assert_refused(2, "--micro-batch 1048576 or less", "plan", "--batch", "16777216", "--seq", "1024");
    assert_refused(2, "--hidden 3000000000: expected an integer from 1 to 1048576", "plan", "--hidden",
                   "3000000000");
    assert_refused(2, "cannot be planned for this model", "plan", "--batch", "16777216", "--micro-batch",
                   "64", "--seq", "16777216");
    assert_refused(2, "is 1099511627776 ranks; the planner supports at most", "plan", "--tp", "1048576",
                   "--pp", "1048576");
    assert_refused(2, "take too long to plan", "plan", "--layers", "2000", "--pp", "2000");
    assert_refused(2, "--micros applies only to --draw", "plan", "--micros", "4");
    assert_refused(2, "--measure requires --out FILE", "plan", "--measure");
    assert_refused(2, "--tp cannot be combined with --measure", "plan", "--measure", "--out", "a.json",
                   "--tp", "2");
    assert_refused(2, "--cluster cannot be combined with --measure", "plan", "--measure", "--out", "a.json",
                   "--cluster", "cpu");
    assert_refused(1, "/nowhere/a.json", "plan", "--measure", "--out", "/nowhere/a.json");
    assert_refused(2, "--out /tmp is a directory", "plan", "--measure", "--out", "/tmp");
    assert_refused(2, "would distort the measurement", "plan", "--measure", "--out", "/tmp/a.json", "--ranks",
                   "100000");
    assert_refused(2,
                   "'a.png': --draw takes no model, only a file to write; expected a name that ends in .svg",
                   "plan", "--draw", "a.png", "--pp", "4");
    assert_refused(2, "--model cannot be combined with --draw", "plan", "--draw", "--model", "gpt2");
    assert_refused(2, "--layers cannot be combined with --draw", "plan", "--draw", "--layers", "4");
    assert_refused(2, "--out applies only to --measure", "plan", "--out", "a.json");
    char config[] = "/tmp/weft-plan-XXXXXX";
    static const char text[] = "{\"model\": \"gpt2-tiny\", \"lr\": 1, \"out\": \"run\"}";
    close(mkstemp(config));
    assert_ok(file_replace(config, text, strlen(text)));
    assert_runs(program_run("plan", "--config", config));
    assert_int_equal(unlink(config), 0);
    assert_refused(2, "only --draw and --sweep write a file", "plan", "a.svg");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
        cmocka_unit_test(writes_svg),
        cmocka_unit_test(refuses_diagrams),
        cmocka_unit_test(counts_parameters),
        cmocka_unit_test(agrees_with_a_run),
        cmocka_unit_test(agrees_with_a_classifier),
        cmocka_unit_test(agrees_with_saving),
        cmocka_unit_test(plans_workers),
        cmocka_unit_test(shards_vocabularies),
        cmocka_unit_test(shows_stages),
        cmocka_unit_test(fits_clusters),
        cmocka_unit_test(plans_for_older_gpus),
        cmocka_unit_test(plans_for_failures),
        cmocka_unit_test(searches),
        cmocka_unit_test(search_table),
        cmocka_unit_test(search_context),
        cmocka_unit_test(search_heads_ring),
        cmocka_unit_test(search_experts),
        cmocka_unit_test(plans_experts),
        cmocka_unit_test(fp8_of_shared_heads),
        cmocka_unit_test(fp8_scaling),
        cmocka_unit_test(sweeps),
        cmocka_unit_test(sweep_shows_all_sizes),
        cmocka_unit_test(writes_pages),
        cmocka_unit_test(refuses_plans),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
