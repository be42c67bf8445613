/* Reports: reading runs that are complete, truncated or damaged, and comparing them. For the page and other
 * tables, see report_page.c. */
#include <math.h>

#include "base/energy.h"
#include "base/format.h"
#include "base/memory.h"
#include "plan/cluster.h"
#include "report/comparable.h"
#include "report/report_page.h"
#include "report/run.h"
#include "report/summary.h"
#include "report/table.h"
#include "tokenizer/tokenizer.h"
#include "train/history.h"

/* Efficiency relative to the baseline's batch: (24 + 8) / (24 + 16). The noise scale belongs to the data: a
 * run without one uses the baseline's, and with the same batch size none is needed. */
static void weights_by_batch(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "base",
              "{\"samples_per_s\": 10, \"noise_scale\": 24, \"noise_scale_error\": 3.14,"
              " \"layout\": {\"batch\": 8}}",
              NULL);
    write_run(fixture, "twice", "{\"samples_per_s\": 15, \"noise_scale\": null, \"layout\": {\"batch\": 16}}",
              NULL);
    write_run(fixture, "same", "{\"samples_per_s\": 20, \"layout\": {\"batch\": 8}}", NULL);
    add(&results, fixture, "base");
    add(&results, fixture, "twice");
    add(&results, fixture, "same");
    static const double expected[][2] = {{1, 10}, {0.8, 12}, {1, 20}};
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabs(figure(&results.runs[i], "statistical_efficiency") - expected[i][0]) < 1e-12);
        assert_true(fabs(figure(&results.runs[i], "goodput") - expected[i][1]) < 1e-12);
    }
    char text[FORMAT_SIZE];
    assert_string_equal(run_figure_text(text, &results.runs[0], FIGURE_NOISE, true), "24.0 ± 3.1");
    assert_string_equal(run_figure_text(text, &results.runs[0], FIGURE_NOISE, false), "24.0 +- 3.1");
    assert_string_equal(run_figure_text(text, &results.runs[1], FIGURE_NOISE, true), "-");
    assert_string_equal(noise_text(text, 152.4, 21.2, true), "152 ± 21");
    assert_string_equal(noise_text(text, 152.4, NAN, true),
                        "152"); /* a run from before errors were recorded */
    CLEANUP(mem_freep) char *table = NULL;
    assert_ok(table_text(&results, (TableLook){.width = 200, .utf8 = true}, &table));
    assert_non_null(strstr(table, "noise scale"));
    assert_non_null(strstr(table, "24.0 ± 3.1"));
    results_done(&results);
}

static void reads_complete(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "whole", SUMMARY("500", "1200", "false"), METRICS);
    add(&results, fixture, "whole");
    const Run *run = results.runs;
    assert_int_equal(run->state, RUN_FINISHED);
    assert_null(run->error);
    assert_int_equal(run->loss.count, 2);
    assert_true(run->val_loss.value[1] == 4.25);
    assert_true(figure(run, "peak_bytes") == 1200);
    assert_true(figure(run, "sent_bytes") == 100);
    double share[SHARES];
    assert_true(run_shares(run, share));
    assert_true(share[SHARE_COMPUTE] == 0.75 && share[SHARE_WAIT_PIPELINE] == 0.25);
    results_done(&results);
}

/* A killed run, one with a truncated summary, and one whose metrics end in the middle of a line. */
static void reads_damaged(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "killed", NULL, METRICS);
    write_run(fixture, "cut", "{\"steps\": 2, \"loss", METRICS "{\"step\":3,\"los");
    write_run(fixture, "stopped", SUMMARY("500", "1200", "true"), METRICS);
    write_run(fixture, "odd", "[1]", "\n\n5\n{\"step\":\"x\"}\n");
    add(&results, fixture, "killed");
    add(&results, fixture, "cut");
    add(&results, fixture, "stopped");
    add(&results, fixture, "odd");
    const Run *run = results.runs;
    assert_int_equal(run[0].state, RUN_INTERRUPTED);
    assert_true(fabs(figure(&run[0], "tokens_per_s") - 480) < 1e-9); /* two steps in their combined time */
    assert_true(figure(&run[0], "loss_last") == 4.5);
    assert_int_equal(run[1].loss.count, 2);
    assert_non_null(strstr(run[1].error, "summary.json"));
    assert_int_equal(run[2].state, RUN_INTERRUPTED);
    assert_non_null(run[3].error);
    results_done(&results);
}

/* Figures of a run without a summary are computed from its metrics. The second line comes from a process that
 * resumed the run. */
static void computes_missing_summary(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char path[160];
    const char *settings = "{\"batch\": 4, \"micro-batch\": 2, \"pp\": 2, \"device\": \"cpu\"}";
    write_run(fixture, "killed", NULL,
              SAMPLED("10", "6") "{\"step\":10,\"val_loss\":6,\"eval_ms\":250}\n" SAMPLED("20", "3"));
    snprintf(path, sizeof path, "%s/killed/config.json", fixture->dir);
    assert_ok(file_replace(path, settings, strlen(settings)));
    add(&results, fixture, "killed");
    const Run *run = results.runs;
    static const struct {
        const char *key;
        double value;
    } expected[] = {{"runtime_s", 9},    {"samples_per_s", 40}, {"tokens_per_s", 400},
                    {"loss_last", 5},    {"val_loss", 6},       {"utilization", 0.5},
                    {"peak_bytes", 900}, {"bubble", 0.25},      {"sent_bytes", 1400},
                    {"mfu", 0.25},       {"goodput", 40},       {"statistical_efficiency", 1}};
    assert_int_equal(run->state, RUN_INTERRUPTED);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!(fabs(figure(run, expected[i].key) - expected[i].value) < 1e-9))
            fail_msg("%s is %g; expected %g", expected[i].key, figure(run, expected[i].key),
                     expected[i].value);
    double share[SHARES], spent[SPENT_PARTS];
    assert_true(run_shares(run, share) && run_spent(run, spent));
    assert_true(fabs(share[SHARE_COMPUTE] - 2. / 3) < 1e-9 &&
                fabs(share[SHARE_WAIT_PIPELINE] - 2. / 9) < 1e-9);
    assert_true(fabs(spent[SPENT_STEPS] - 2. / 9) < 1e-9 && fabs(spent[SPENT_EVAL] - 0.25 / 9) < 1e-9);
    char layout[LAYOUT_SIZE];
    assert_string_equal(run_layout(run, layout), "pp 2");
    static const char *const modes[][2] = {
        {"{\"cp\": 2, \"cp-mode\": \"ring\", \"zero\": 1}", "cp 2, cp-mode ring, ZeRO 1"},
        {"{\"cp\": 4, \"cp-mode\": \"heads+ring\", \"cp-heads\": 2}", "cp 4, cp-mode heads+ring, cp-heads 2"},
        {"{\"cp\": 2, \"cp-mode\": \"auto\"}", "cp 2"},
        {"{\"dp\": 2, \"cp-mode\": \"ring\"}", "dp 2"}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        results_done(&results);
        assert_ok(file_replace(path, modes[i][0], strlen(modes[i][0])));
        add(&results, fixture, "killed");
        assert_string_equal(run_layout(results.runs, layout), modes[i][1]);
    }
    assert_ok(file_replace(path, settings, strlen(settings)));
    /* A summary that is older than the last resume is not used. */
    write_run(fixture, "killed", "{\"steps\": 5, \"tokens_per_s\": 7, \"interrupted\": false}", NULL);
    results_done(&results);
    add(&results, fixture, "killed");
    assert_int_equal(results.runs->state, RUN_INTERRUPTED);
    assert_true(fabs(figure(results.runs, "tokens_per_s") - 400) < 1e-9);
    /* A process is running it now. */
    int lock = lock_run(fixture, "killed");
    assert_ok(run_look(results.runs));
    assert_int_equal(results.runs->state, RUN_RUNNING);
    close(lock);
    results_done(&results);
}

/* When the parts of a resumed run are joined, means are weighted by time and totals are added. */
static void joins_parts(void **state) {
    json_t *first =
        json_pack("{s:i, s:f, s:f, s:f, s:f, s:{s:i}, s:{s:f}, s:i, s:[{s:f, s:{s:i}, s:{s:i}}]}",
                  "steps_measured", 30, "step_ms", 100., "runtime_s", 5., "tokens_per_s", 400., "utilization",
                  0.5, "layout", "ranks", 1, "phases", "compute_s", 3., "sent_bytes", 90, "ranks",
                  "utilization", 0.5, "peak_bytes", "total", 800, "comm_bytes", "total", 90);
    json_t *second = json_deep_copy(first);
    json_object_set_new(second, "steps_measured", json_integer(10));
    json_object_set_new(second, "tokens_per_s", json_real(800));
    json_object_set_new(json_object_get(json_array_get(json_object_get(second, "ranks"), 0), "peak_bytes"),
                        "total", json_integer(700));
    json_t *joined = json_deep_copy(second);
    assert_ok(history_join(joined, first));
    const json_t *rank = json_array_get(json_object_get(joined, "ranks"), 0);
    assert_int_equal(json_integer_value(json_object_get(joined, "steps_measured")), 40);
    assert_true(json_real_value(json_object_get(joined, "runtime_s")) == 10);
    assert_true(fabs(json_real_value(json_object_get(joined, "tokens_per_s")) - 500) < 1e-9);
    assert_int_equal(json_integer_value(json_object_get(joined, "sent_bytes")), 180);
    assert_true(json_real_value(json_object_get(json_object_get(joined, "phases"), "compute_s")) == 6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(rank, "peak_bytes"), "total")), 800);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(rank, "comm_bytes"), "total")), 180);
    json_decref(joined);
    /* A process that had nothing left to do used no memory, so the peak comes from the earlier metrics. */
    History history = {0};
    for (int step = 1; step <= 2; step++) {
        json_t *line = json_pack("{s:i, s:f, s:{s:i}}", "step", step, "step_ms", 100., "peak_bytes", "total",
                                 step == 1 ? 900 : 850);
        history_take(&history, line);
        json_decref(line);
    }
    json_t *told = NULL, *idle = json_deep_copy(second);
    assert_ok(history_summary(&history, json_object_get(first, "layout"), &told));
    json_object_set(idle, "layout", json_object_get(told, "layout"));
    json_object_set_new(idle, "step_ms", json_null());
    assert_ok(history_join(idle, told));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(idle, "peak_bytes"), "total")), 900);
    assert_null(json_object_get(json_array_get(json_object_get(idle, "ranks"), 0), "peak_bytes"));
    history_done(&history);
    json_decref(told);
    json_decref(idle);
    /* Means over two different layouts are meaningless, so the parts are not joined. */
    json_object_set_new(json_object_get(first, "layout"), "ranks", json_integer(2));
    joined = json_deep_copy(second);
    assert_ok(history_join(joined, first));
    assert_true(json_equal(joined, second));
    json_decref(joined);
    json_decref(first);
    json_decref(second);
}

/* If the baseline failed, the next run replaces it. Impossible values are ignored, with a note. Losses over
 * different samples are not compared. */
static void compares_runs(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    Run *failed;
    assert_ok(results_add(&results, "large", "/nowhere", &failed));
    failed->state = RUN_FAILED;
    write_run(fixture, "base", "{\"tokens_per_s\": 100, \"val_loss\": 4, \"val_samples\": 20, \"mfu\": 7e8}",
              NULL);
    write_run(fixture, "twice",
              "{\"tokens_per_s\": 200, \"val_loss\": 5, \"val_samples\": 40, \"mfu\": \"x\"}", NULL);
    write_run(fixture, "same",
              "{\"tokens_per_s\": 50, \"val_loss\": 5, \"val_samples\": 20, \"params_total\": -3, "
              "\"runtime_s\": -1}",
              NULL);
    add(&results, fixture, "base");
    add(&results, fixture, "twice");
    add(&results, fixture, "same");
    const Run *run = results.runs;
    assert_ptr_equal(results_base(&results), &run[1]);
    assert_true(run_difference(&results, &run[2], FIGURE_TOKENS) == 100);
    assert_true(run_difference(&results, &run[3], FIGURE_VAL_LOSS) == 25);
    assert_true(isnan(run_difference(&results, &run[2], FIGURE_VAL_LOSS)));
    assert_true(isnan(figure(&run[1], "mfu")) && isnan(figure(&run[2], "mfu")));
    assert_string_equal(run[1].error, "summary.json: ignoring mfu (7e+08 is out of range)");
    assert_string_equal(run[2].error, "summary.json: ignoring mfu (not a number)");
    assert_string_equal(run[3].error,
                        "summary.json: ignoring runtime_s (-1 is out of range); ignoring params_total (-3 is "
                        "out of range)");
    assert_true(isnan(run_params(&run[3])));
    /* Losses of different tasks are not compared either. */
    results.runs[1].settings = json_pack("{s:s, s:s}", "task", "auto", "model", "bert-tiny");
    results.runs[3].settings = json_pack("{s:s}", "task", "mlm");
    assert_true(run_difference(&results, &run[3], FIGURE_VAL_LOSS) == 25);
    json_object_set_new(results.runs[3].settings, "task", json_string("squad"));
    assert_true(isnan(run_difference(&results, &run[3], FIGURE_VAL_LOSS)));
    assert_false(one_task(&results));
    results_done(&results);
}

static void write_scaled(const Fixture *fixture, Results *results, const char *name, int ranks, int batch,
                         int rate) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"tokens_per_s\": %d, \"params_total\": 1, \"layout\": {\"ranks\": %d, \"batch\": %d}}", rate,
             ranks, batch);
    write_run(fixture, name, text, NULL);
    add(results, fixture, name);
}

/* Scaling efficiency is reported for a constant batch or a constant batch per rank, but not for arbitrary
 * changes. */
static void scales_by_batch(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    const Run *base = NULL;
    write_scaled(fixture, &results, "1, 8", 1, 8, 100);
    write_scaled(fixture, &results, "2, 8", 2, 8, 150);
    write_scaled(fixture, &results, "4, 64", 4, 64, 390);
    write_scaled(fixture, &results, "8, 128", 8, 128, 760);
    write_scaled(fixture, &results, "4, 7", 4, 7, 400);
    const Run *run = results.runs;
    assert_true(scaling_efficiency(&results, &run[1], &base) == 0.75);
    assert_ptr_equal(base, &run[0]);
    assert_true(fabs(scaling_efficiency(&results, &run[3], &base) - 95 / 97.5) < 1e-12);
    assert_ptr_equal(base, &run[2]);
    assert_true(isnan(scaling_efficiency(&results, &run[4], &base)));
    results.title = strdup("scaling");
    results.runs[0].published = json_pack("{s:f}", "samples_per_s", 10.);
    results.runs[1].published = json_pack("{s:f}", "samples_per_s", 16.);
    char *html = page_of(fixture, &results);
    assert_has(html,
               "<span>2, 8</span><div class=\"bar\"><i style=\"width:75.00%;background:var(--c0)\"></i></div>"
               "<span>75.0%</span></div>\n<div class=\"row thin\"><span>published</span><div "
               "class=\"bar\"><i style=\"width:80.00%;background:var(--c7)\" title=\"published\"></i></div>"
               "<span>80.0%</span>");
    assert_has(html, "<span>8, 128</span><div class=\"bar\"><i style=\"width:97.44%;");
    free(html);
    results_done(&results);
}

/* Adapters do not make a model another one. */
static void compares_adapters(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(results_done) Results results = {0};
    write_run(fixture, "full", "{\"tokens_per_s\": 100, \"params_total\": 80}", NULL);
    write_run(fixture, "lora", "{\"tokens_per_s\": 150, \"params_total\": 100, \"params_adapters\": 20}",
              NULL);
    write_run(fixture, "larger", "{\"tokens_per_s\": 50, \"params_total\": 100}", NULL);
    add(&results, fixture, "full");
    add(&results, fixture, "lora");
    add(&results, fixture, "larger");
    assert_true(run_params(&results.runs[1]) == 80);
    assert_true(same_size(&results.runs[0], &results.runs[1]));
    assert_false(same_size(&results.runs[1], &results.runs[2]));
    assert_true(run_base(&results, &results.runs[1]) == &results.runs[0]);
}

/* Memory of runs that differ in batch size: a fixed part, and one per sequence that is processed at once,
 * here by two tensor-parallel ranks together. */
static void fits_memory(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    for (int micro = 1; micro <= 4; micro *= 2) {
        char text[256], name[32];
        snprintf(name, sizeof name, "micro %d", micro);
        snprintf(text, sizeof text,
                 "{\"tokens_per_s\": 100, \"params_total\": 1, \"peak_bytes\": {\"total\": %d}, \"layout\": "
                 "{\"ranks\": 2, \"tp\": 2, \"batch\": %d, \"micro_batch\": %d}}",
                 3000000 + 500000 * micro, 40 * micro, micro);
        write_run(fixture, name, text, NULL);
        add(&results, fixture, name);
    }
    write_run(fixture, "larger", "{\"tokens_per_s\": 100, \"params_total\": 2, \"layout\": {\"ranks\": 2}}",
              NULL);
    add(&results, fixture, "larger"); /* so curves name the model's size */
    results.title = strdup("memory");
    char *html = page_of(fixture, &results);
    assert_has(
        html,
        "tp 2, 1: peak memory per rank is 3.00 MB + 1.00 MB per sequence of the batch per rank, within 0.0% "
        "in 3 runs.");
    assert_has(html, ">batch per rank</text>");
    CLEANUP(mem_freep) char *csv = NULL;
    char file[96];
    snprintf(file, sizeof file, "%s/page-figures/memory-batch.csv", fixture->dir);
    assert_ok(file_read(file, 1 << 16, &csv, NULL));
    assert_has(csv, ",0.5,3500000");
    assert_has(csv, ",2,5000000");
    free(html);
    results_done(&results);
}

/* Costs by the price given, else by the cluster's: of GPUs, or of hosts without GPUs. Energy as recorded. */
static void computes_costs(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *note = NULL;
    write_run(fixture, "hosts",
              "{\"steps\": 2, \"tokens_per_s\": 1000, \"runtime_s\": 1800, \"energy_j\": 5000, "
              "\"tokens_per_j\": 0.25, \"layout\": {\"ranks\": 8}, \"machine\": {\"host_count\": 2}}",
              NULL);
    write_run(fixture, "gpus",
              "{\"steps\": 2, \"tokens_per_s\": 1000, \"runtime_s\": 3600, \"layout\": {\"ranks\": 2}, "
              "\"machine\": {\"host_count\": 1, \"gpus\": [{}, {}, {}, {}]}}",
              NULL);
    write_run(fixture, "plan",
              "{\"predicted\": \"slate\", \"tokens_per_s\": 2000, \"runtime_s\": 3600, \"tokens_per_j\": 5, "
              "\"price_per_hour\": 7.2, \"power_watts\": 100, \"priced_units\": 4}",
              NULL);
    add(&results, fixture, "hosts");
    add(&results, fixture, "gpus");
    add(&results, fixture, "plan");
    write_run(fixture, "known",
              "{\"steps\": 2, \"runtime_s\": 3600, \"layout\": {\"ranks\": 1}, "
              "\"machine\": {\"host_count\": 1, \"gpus\": [{\"name\": \"NVIDIA GeForce RTX 2080 Ti\"}]}}",
              NULL);
    add(&results, fixture, "known");
    const Run *run = results.runs;
    double listed;
    assert_ok(cluster_list_price("NVIDIA GeForce RTX 2080 Ti", &listed));
    assert_true(listed > 0 && fabs(run_figure(&run[3], FIGURE_COST) - listed) < 1e-9);
    assert_true(isnan(run_figure(&run[0], FIGURE_COST)));
    assert_true(fabs(run_figure(&run[2], FIGURE_COST) - 28.8) < 1e-9);
    assert_true(fabs(run_figure(&run[2], FIGURE_COST_TOKENS) - 4) < 1e-9);
    Columns columns = results_columns(&results);
    assert_ok(columns_note(&results, &columns, &note));
    assert_has(note, "Costs assume 7.2 per hour for each GPU or host without GPUs, the price of slate.");
    assert_has(note,
               "Predicted energy assumes 100 W for each GPU or host without GPUs, the rated power of slate.");
    results.price = 3.6;
    assert_true(fabs(run_figure(&run[0], FIGURE_COST) - 3.6) < 1e-9); /* two hosts, half an hour */
    assert_true(fabs(run_figure(&run[0], FIGURE_COST_TOKENS) - 2) < 1e-9);
    assert_true(fabs(run_figure(&run[1], FIGURE_COST) - 7.2) < 1e-9); /* two of four GPUs */
    assert_true(fabs(run_figure(&run[2], FIGURE_COST) - 14.4) < 1e-9);
    char text[FORMAT_SIZE];
    results.power = 50; /* of predictions only */
    assert_string_equal(run_figure_text(text, &run[0], FIGURE_ENERGY, true), "5.00 kJ");
    assert_true(run_figure(&run[0], FIGURE_TOKENS_JOULE) == 0.25);
    assert_true(fabs(run_figure(&run[2], FIGURE_ENERGY) - 50 * 4 * 3600) < 1e-6);
    assert_true(fabs(run_figure(&run[2], FIGURE_TOKENS_JOULE) - 10) < 1e-9);
    CLEANUP(mem_freep) char *given = NULL;
    assert_ok(columns_note(&results, &columns, &given));
    assert_has(given, "Predicted energy assumes 50 W for each GPU or host without GPUs.");
    results_done(&results);
}

static void write_counter(const char *dir, const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_replace(path, text, strlen(text)));
}

/* RAPL counters of packages and memory add up, also after they wrap; those of cores are part of a package. */
static void reads_energy(void **state) {
    static const char *const names[][2] = {
        {"intel-rapl:0", "package-0"}, {"intel-rapl:0:0", "core"}, {"intel-rapl:0:1", "dram"}};
    const Fixture *fixture = *state;
    char dir[3][96];
    Energy energy;
    for (int i = 0; i < 3; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/%s", fixture->dir, names[i][0]);
        assert_ok(dir_make(dir[i]));
        write_counter(dir[i], "name", names[i][1]);
        write_counter(dir[i], "energy_uj", "90000000");
        write_counter(dir[i], "max_energy_range_uj", "100000000");
    }
    energy_init(&energy, fixture->dir);
    assert_int_equal(energy.count, 2);
    write_counter(dir[0], "energy_uj", "95000000"); /* 5 J */
    write_counter(dir[1], "energy_uj", "99000000");
    write_counter(dir[2], "energy_uj", "2000000"); /* 12 J */
    energy_look(&energy);
    assert_true(fabs(energy.joules - 17) < 1e-9);
    energy_init(&energy, "/nowhere");
    assert_int_equal(energy.count, 0);
}

/* The time of an epoch: as predicted, as recorded, or by throughput. */
static void times_epochs(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "predicted", "{\"predicted\": \"slate\", \"epoch_s\": 7, \"samples_per_s\": 10}",
              NULL);
    write_run(fixture, "recorded", "{\"samples_per_s\": 10, \"steps\": 9}",
              "{\"step\": 4, \"epoch_end\": {\"epoch\": 1, \"step\": 4, \"seconds\": 4}}\n"
              "{\"step\": 8, \"epoch_end\": {\"epoch\": 2, \"step\": 8, \"seconds\": 5}}\n");
    write_run(fixture, "short", "{\"samples_per_s\": 10, \"steps\": 1}", NULL);
    add(&results, fixture, "predicted");
    add(&results, fixture, "recorded");
    add(&results, fixture, "short");
    results.runs[2].samples = 120;
    static const double expected[] = {7, 4.5, 12};
    for (size_t i = 0; i < 3; i++) assert_true(run_figure(&results.runs[i], FIGURE_EPOCH) == expected[i]);
    results_done(&results);
}

/* A run without metrics has no known losses, and the page says so. */
static void reports_lost_metrics(void **state) {
    static const char *const damaged[] = {NULL, "", "\x01\xfe\n\x03"};
    const Fixture *fixture = *state;
    write_run(fixture, "a", SUMMARY("500", "1200", "false"), METRICS);
    write_run(fixture, "b", SUMMARY("600", "1200", "false"), METRICS);
    for (size_t i = 0; i < 3; i++) {
        Results results = {0};
        char *words = NULL, *table = NULL;
        write_run(fixture, "lost", SUMMARY("400", "1200", "false"), damaged[i]);
        add(&results, fixture, "a");
        add(&results, fixture, "b");
        add(&results, fixture, "lost");
        assert_ok(results_summary(&results, &words));
        assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
        assert_has(words, "The losses of the 2 finished runs that recorded them are identical");
        assert_has(words, "The losses of “lost” are unknown");
        assert_has(table, "lost: finished: metrics.jsonl: ");
        free(words);
        free(table);
        results_done(&results);
    }
}

/* Incomplete runs keep their figures, marked, and are not compared. */
static void partial_runs_are_not_compared(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char *words = NULL, *table = NULL, *csv = NULL, path[64];
    size_t size;
    write_run(fixture, "first", SUMMARY("900", "5000", "true"), METRICS);
    write_run(fixture, "base", SUMMARY("300", "1200", "false"), EVEN);
    write_run(fixture, "next", SUMMARY("200", "1500", "false"), EVEN);
    write_run(fixture, "gone", NULL, METRICS);
    write_run(fixture, "wild", NULL, METRICS);
    static const char *const names[] = {"first", "base", "next", "gone", "wild"};
    for (size_t i = 0; i < 5; i++) add(&results, fixture, names[i]);
    results.runs[3].state = results.runs[4].state = RUN_FAILED;
    results.runs[3].error = strdup("killed by signal 9 (Killed); the system may have run out of memory");
    results.runs[4].error = strdup("step 2: the loss is nan");
    results.title = strdup("partial");
    assert_ptr_equal(results_base(&results), &results.runs[1]);
    for (size_t i = 0; i < 5; i++)
        for (size_t f = 0; f < FIGURES && i != 2; f++)
            assert_true(isnan(run_difference(&results, &results.runs[i], f)));
    assert_ok(results_summary(&results, &words));
    assert_has(words,
               "“base” is the fastest of the finished runs at 300 tokens/s, 1.5 times the throughput of the "
               "runner-up “next”");
    assert_has(words, "needs the least memory of the finished runs, with a peak of 1.20 kB per rank");
    assert_has(words, "“gone” was killed (possibly out of memory). “wild” failed during training.");
    assert_has(words, "The baseline is “base” because “first” has not finished.");
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    assert_has(table, "\n  interrupted ");
    assert_has(table, "\n  killed ");
    assert_has(table, "\n  failed ");
    char *html = page_of(fixture, &results);
    assert_has(html, "<span class=\"badge failed\">killed, partial</span>");
    assert_has(html, "wild (failed)");
    assert_ok(results_write(&results, fixture->dir));
    snprintf(path, sizeof path, "%s/results.csv", fixture->dir);
    assert_ok(file_read(path, 1 << 16, &csv, &size));
    assert_has(csv, "\"wild\",failed,,1.5,,,48,,,480,,,4.5,,");
    free(csv);
    free(html);
    free(table);
    free(words);
    results_done(&results);
}

/* What is absent or of another type is unknown, not zero; every figure of a summary has its number. */
static void reads_summary(void **state) {
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    assert_true(!summary.json && isnan(summary.steps) && !summary.predicted);
    run_summary_replace(&summary, json_pack("{s:i, s:s, s:b, s:s, s:{s:i}}", "steps", 7, "mfu", "high",
                                            "interrupted", 1, "predicted", "dgx", "layout", "tp", 2));
    assert_true(summary.steps == 7 && isnan(summary.mfu) && isnan(summary.loss_last));
    assert_true(summary.interrupted && !summary.by_metrics);
    assert_string_equal(summary.predicted, "dgx");
    assert_true(json_number_at(summary.layout, "tp") == 2);
    for (size_t f = 0; f < FIGURES; f++) {
        if (f == FIGURE_PEAK || f == FIGURE_SENT_RANK || f == FIGURE_TENSOR || f == FIGURE_WORK ||
            f == FIGURE_COST || f == FIGURE_COST_TOKENS)
            continue; /* computed */
        run_summary_replace(&summary, json_pack("{s:f}", figures[f].key, 0.5));
        assert_true(run_summary_number(&summary, figures[f].key) == 0.5);
    }
}

/* Writing is the inverse of reading. A run's unknown figures are null; a prediction leaves them out. */
static void writes_summary(void **state) {
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL), read = run_summary_take(NULL);
    json_t *json = NULL;
    summary.steps = 7;
    summary.mfu = 0.5;
    summary.interrupted = true;
    summary.layout = json_pack("{s:i}", "tp", 2);
    assert_ok(run_summary_json(&summary, &json));
    assert_true(json_is_integer(json_object_get(json, "steps")) &&
                json_is_null(json_object_get(json, "goodput")));
    assert_true(!json_object_get(json, "accuracy") && !json_object_get(json, "by_metrics"));
    run_summary_replace(&read, json);
    assert_true(read.steps == 7 && read.mfu == 0.5 && isnan(read.goodput) && read.interrupted);
    assert_true(json_equal(read.layout, summary.layout) && !read.predicted);
    summary.predicted = "dgx";
    assert_ok(run_summary_json(&summary, &json));
    assert_string_equal(json_string_at(json, "predicted"), "dgx");
    assert_null(json_object_get(json, "goodput"));
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(times_epochs),
                                       TEST(reads_complete),
                                       TEST(weights_by_batch),
                                       TEST(reads_damaged),
                                       TEST(computes_missing_summary),
                                       TEST(joins_parts),
                                       TEST(compares_runs),
                                       TEST(scales_by_batch),
                                       TEST(reports_lost_metrics),
                                       TEST(partial_runs_are_not_compared),
                                       TEST(fits_memory),
                                       TEST(compares_adapters),
                                       TEST(computes_costs),
                                       TEST(reads_energy),
                                       TEST(reads_summary),
                                       TEST(writes_summary)};
    return cmocka_run_group_tests(tests, NULL, NULL) + page_tests();
}
