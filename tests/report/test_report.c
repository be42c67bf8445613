/* Reports: reading runs that are complete, truncated or damaged, comparing them, and the page. */
#include <math.h>

#include "base/energy.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/version.h"
#include "report/columns.h"
#include "report/comparable.h"
#include "report/formats.h"
#include "report/run.h"
#include "report/summary.h"
#include "report/table.h"
#include "report/watch.h"
#include "tokenizer/tokenizer.h"
#include "train/history.h"

/* Epochs, mean validation loss and scores appear in the files, the table and the page. */
static void tabulates_epochs(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(results_done) Results results = {0};
    CLEANUP(mem_freep) char *csv = NULL, *html = NULL, *table = NULL, *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    bool curves;
    write_run(fixture, "a",
              SUMMARY("100", "900", "false, \"val_loss_mean\": 4.75, \"accuracy\": 0.5, \"f1\": 0.25"),
              METRICS
              "{\"step\":1,\"epoch\":1,\"epoch_end\":{\"epoch\":1,\"step\":1,\"seconds\":9,\"loss\":7}}\n"
              "{\"step\":1,\"epoch\":1,\"epoch_end\":{\"epoch\":1,\"step\":1,\"seconds\":2.5,\"loss\":5.5,"
              "\"val_loss\":5,\"accuracy\":0.375}}\n"
              "{\"step\":2,\"epoch\":2,\"epoch_end\":{\"epoch\":2,\"step\":2,\"seconds\":3.5,\"loss\":4.5,"
              "\"val_loss\":4.25,\"accuracy\":7}}\n");
    add(&results, fixture, "a");
    assert_int_equal(results.runs[0].epoch_count, 2);
    assert_true(run_figure(&results.runs[0], FIGURE_VAL_MEAN) == 4.75);
    assert_ok(str_dup("one", &results.title));
    assert_ok(results_write(&results, fixture->dir));
    assert_ok(path_join(&path, fixture->dir, "epochs.csv"));
    assert_ok(file_read(path, 1 << 20, &csv, NULL));
    assert_string_equal(csv, "run,epoch,step,seconds,loss,val_loss,accuracy,f1,exact\n"
                             "\"a\",1,1,2.5,5.5,5,0.375,,\n\"a\",2,2,3.5,4.5,4.25,,,\n");
    assert_ok(results_json(&results, &json));
    const json_t *run = json_array_get(json_object_get(json, "runs"), 0);
    assert_int_equal(json_array_size(json_object_get(run, "epochs")), 2);
    assert_ok(table_text(&results, (TableLook){.width = 300}, &table));
    assert_non_null(strstr(table, "mean val.  accuracy     F1"));
    assert_non_null(strstr(table, "   4.7500     50.0%  25.0%"));
    strcpy(strrchr(path, '/'), "/p.html");
    assert_ok(page_write(&results, path, &curves));
    assert_ok(file_read(path, 1 << 24, &html, NULL));
    assert_non_null(strstr(html, "<h2>Epochs</h2>"));
    assert_non_null(strstr(html, "<small>epoch 2</small></th><td data-label=\"time\">3.5 s</td>"));
    assert_non_null(strstr(html, "mean over all epochs</small></th><td data-label=\"time\">3.0 s</td>"));
    assert_non_null(strstr(html, "<td data-label=\"accuracy\">37.5%</td>"));
}

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
    double share[PHASES];
    assert_true(run_phases(run, share));
    assert_true(share[PHASE_COMPUTE] == 0.75 && share[PHASE_WAIT_PIPELINE] == 0.25);
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

/* A line of metrics that stands for 10 steps of a two-stage pipeline. */
#define SAMPLED(step, elapsed)                                                                               \
    "{\"step\":" step                                                                                        \
    ",\"loss\":5,\"samples_per_s\":40,\"tokens_per_s\":400,\"step_ms\":100,\"elapsed_s\":" elapsed           \
    ",\"utilization\":0.5,\"mfu\":0.25,\"phases_ms\":{\"compute\":60,\"comm\":0,\"bubble\":20,"              \
    "\"optimizer\":10,\"data\":5,\"other\":5},\"ranks\":{\"utilization\":[0.25,0.75],\"compute_ms\":[50,70]" \
    ","                                                                                                      \
    "\"bubble_ms\":[30,10],\"optimizer_ms\":[10,10]},\"sent_bytes\":70,\"noise_scale\":12,"                  \
    "\"checkpoint_ms\":500,\"peak_bytes\":{\"params\":600,\"total\":900}}\n"

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
    double share[PHASES], spent[SPENT_PARTS];
    assert_true(run_phases(run, share) && run_spent(run, spent));
    assert_true(fabs(share[PHASE_COMPUTE] - 2. / 3) < 1e-9 &&
                fabs(share[PHASE_WAIT_PIPELINE] - 2. / 9) < 1e-9);
    assert_true(fabs(spent[SPENT_STEPS] - 2. / 9) < 1e-9 && fabs(spent[SPENT_EVAL] - 0.25 / 9) < 1e-9);
    char layout[LAYOUT_SIZE];
    assert_string_equal(run_layout(run, layout), "pp 2");
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
    (void)state;
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
    bool curves;
    char *html = page_of(fixture, &results, &curves);
    assert_has(html,
               "<span>2, 8</span><div class=\"bar\"><i style=\"width:75.00%;background:var(--c0)\"></i></div>"
               "<span>75.0%</span></div>\n<div class=\"row thin\"><span>published</span><div "
               "class=\"bar\"><i style=\"width:80.00%;background:var(--c7)\" title=\"published\"></i></div>"
               "<span>80.0%</span>");
    assert_has(html, "<span>8, 128</span><div class=\"bar\"><i style=\"width:97.44%;");
    free(html);
    results_done(&results);
}

static void writes_page(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    Run *failed;
    bool curves;
    write_run(fixture, "base", SUMMARY("500", "1200", "false"), EVEN);
    write_run(fixture, "fast <b> & \"more\"", SUMMARY("1000", "600", "false"), EVEN);
    char trace[160];
    snprintf(trace, sizeof trace, "%s/base/trace.json", fixture->dir);
    assert_ok(file_replace(trace, "{\"traceEvents\":[", 16));
    add(&results, fixture, "base");
    add(&results, fixture, "fast <b> & \"more\"");
    assert_ok(results_add(&results, "large", "/nowhere", &failed));
    failed->state = RUN_FAILED;
    failed->error = strdup("out of memory: 5 < 6");
    results.title = strdup("a & b");
    char *html = page_of(fixture, &results, &curves), *words = NULL, *table = NULL;
    assert_has(html, "a &amp; b");
    assert_has(html, "fast &lt;b&gt; &amp; &quot;more&quot;");
    assert_has(html, "out of memory: 5 &lt; 6");
    assert_has(html, "1.00 k<small class=\"better\">▲ 100.0%</small>");
    assert_has(html, "900 B<small class=\"better\">▼ 25.0%</small>");
    assert_has(html, "The same in all runs: runtime 8.0 s, loss 4.5000, val. loss 4.2500, busy 50.0%, bubble "
                     "12.5%, sent 100 B, MFU 25.0%, efficiency 1.0000.");
    assert_has(html, "base: ");
    assert_has(html, "trace.json");
    if (curves) assert_has(html, "<svg");
    /* Tiles, time per sample by phase, memory by rank. */
    assert_has(html, "<span>Fastest</span><b>1.00 k tokens/s</b><em>fast &lt;b&gt; &amp; "
                     "&quot;more&quot;</em><small>100.0% above the baseline</small>");
    assert_has(html, "<span>Lowest peak memory</span><b>900 B</b>");
    assert_has(
        html,
        "<i style=\"width:75.00%;background:var(--p0);color:var(--l0)\" title=\"compute 75.0%\">75%</i>");
    assert_has(
        html,
        "<i style=\"width:37.50%;background:var(--p0);color:var(--l0)\" title=\"compute 75.0%\">75%</i>");
    assert_has(html, "</div><span>20 ms</span>");
    assert_has(html, "<span>rank 1</span><div class=\"bar\"><i "
                     "style=\"width:100.00%;background:var(--p1);color:var(--l1)\" "
                     "title=\"parameters 600 B\"></i><u style=\"left:calc(100.00% - 2px)\"></u></div>"
                     "<span>1.20 kB</span>");
    /* Bars are files, too. */
    CLEANUP(mem_freep) char *csv = NULL;
    char file[96];
    snprintf(file, sizeof file, "%s/page-figures/time-per-sample.csv", fixture->dir);
    assert_ok(file_read(file, 1 << 16, &csv, NULL));
    assert_has(csv, "row,category,from,to\n\"base\",\"compute\",0,15\n\"base\",\"pipeline bubble\",15,20\n");
    assert_ok(results_summary(&results, &words));
    assert_has(words,
               "is the fastest run at 1.00 k tokens/s, 2.0 times the throughput of the baseline “base”");
    assert_has(words,
               "Per-sample cost is 20 ms of rank time vs 40 ms; compute accounts for most of the difference "
               "(15 ms vs 30 ms).");
    assert_has(words, "The losses of the 2 finished runs that recorded them are identical at every step.");
    assert_has(words, "needs the least memory, with a peak of 900 B per rank: 25% less than “base”");
    assert_has(words, "“large” ran out of memory.");
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    assert_has(table, "+100.0%");
    assert_has(table, "-25.0%");
    assert_has(table, "large: failed: out of memory: 5 < 6");
    assert_has(table, "trace.json: ");
    free(table);
    free(words);
    free(html);
    results_done(&results);
}

/* The table for papers has the page's columns; what is the same or follows from another figure is a sentence.
 */
static void formats_tables(void **state) {
    static const char summary[] =
        "{\"steps\": 2, \"tokens_per_s\": %s, \"samples_per_s\": %s, \"bubble\": 0, "
        "\"sent_bytes\": 0, \"val_loss\": 4, \"layout\": {\"batch\": 4}}";
    const Fixture *fixture = *state;
    Results results = {0};
    char text[256];
    CLEANUP(mem_freep) char *markdown = NULL, *latex = NULL, *csv = NULL, *alone = NULL;
    snprintf(text, sizeof text, summary, "6400", "100");
    write_run(fixture, "a_b|c & 50%", text, NULL);
    add(&results, fixture, "a_b|c & 50%");
    assert_ok(table_format(&results, FORMAT_MARKDOWN, &alone));
    assert_has(alone, "| run | tokens/s | val. loss |\n");
    assert_has(alone, "Also: bubble 0.0%, sent 0 B, efficiency 1.0000. A sample has 64 tokens");
    snprintf(text, sizeof text, summary, "12800", "200");
    write_run(fixture, "two", text, NULL);
    add(&results, fixture, "two");
    assert_ok(table_format(&results, FORMAT_MARKDOWN, &markdown));
    assert_has(markdown,
               "| run | tokens/s |\n| --- | ---: |\n| a\\_b\\|c &amp; 50% (baseline) | 6.40 k |\n| two |");
    assert_has(markdown, "The same in all runs: val. loss 4.0000, bubble 0.0%, sent 0 B, efficiency 1.0000.");
    assert_ok(table_format(&results, FORMAT_LATEX, &latex));
    assert_has(latex, "\\begin{tabular}{lr}\n\\toprule\nrun & tokens/s \\\\\n");
    assert_has(latex, "\na\\_b\\textbar{}c \\& 50\\% (baseline) & 6.40 k \\\\\n");
    assert_ok(table_format(&results, FORMAT_CSV, &csv));
    assert_has(csv, "\n\"two\",finished,");
    /* A name that starts a row must not be the argument of the line break before it. */
    CLEANUP(mem_freep) char *marks = NULL, *plain = NULL;
    free(results.runs[1].name);
    results.runs[1].name = strdup("[2] *x* <--zero> $5$ ~~a~~");
    assert_ok(table_format(&results, FORMAT_LATEX, &marks));
    assert_has(marks, "\n{[}2] {*}x{*} \\textless{}-{}-{}zero\\textgreater{} \\$5\\$ "
                      "\\textasciitilde{}\\textasciitilde{}a");
    assert_ok(table_format(&results, FORMAT_MARKDOWN, &plain));
    assert_has(plain, "\n| \\[2] \\*x\\* &lt;--zero&gt; \\$5\\$ \\~\\~a\\~\\~ |");
    results_done(&results);
}

/* LaTeX accepts the table, whatever the names are. Skipped without pdflatex. */
static void latex_compiles(void **state) {
    static const char document[] = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
                                   "\\input{table.tex}\\end{document}\n";
    static const char *const names[] = {
        "[2] *x* <--zero> $5$ ~~a~~",  "a_b|c & 50% #1 {x} ^2 \\alpha",
        "--- `quoted` ''two'' \"d\"",  "?`what !`so ,,low'' \\\\[2cm] \\end{x}",
        "naïve Größe é ß ø ± µ × … –", "%",
        "\\input{/etc/passwd}"};
    const Fixture *fixture = *state;
    Results results = {0};
    char name[8], command[256], path[80];
    CLEANUP(mem_freep) char *table = NULL, *note = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%zu", i);
        write_run(fixture, name, SUMMARY("500", "1200", "false"), METRICS);
        add(&results, fixture, name);
        free(results.runs[i].name);
        results.runs[i].name = strdup(names[i]);
    }
    assert_ok(table_format(&results, FORMAT_LATEX, &table));
    assert_has(
        table,
        "\n?\\textasciigrave{}what !\\textasciigrave{}so ,,low\\textquotesingle{}\\textquotesingle{} ");
    assert_null(strstr(table, "lualatex"));
    free(results.runs[0].name);
    results.runs[0].name = strdup("模型");
    assert_ok(table_format(&results, FORMAT_LATEX, &note));
    assert_has(note, "% needs lualatex or xelatex");
    results_done(&results);
    if (system("pdflatex --version >/dev/null 2>&1 && kpsewhich booktabs.sty >/dev/null") != 0) skip();
    snprintf(path, sizeof path, "%s/table.tex", fixture->dir);
    assert_ok(file_replace(path, table, strlen(table)));
    snprintf(path, sizeof path, "%s/page.tex", fixture->dir);
    assert_ok(file_replace(path, document, strlen(document)));
    snprintf(command, sizeof command,
             "cd %s && pdflatex -interaction=nonstopmode -halt-on-error page.tex >/dev/null 2>&1 && "
             "! grep -q 'Missing character' page.log",
             fixture->dir);
    assert_int_equal(system(command), 0);
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
              "{\"predicted\": \"slate\", \"tokens_per_s\": 2000, \"runtime_s\": 3600, "
              "\"price_per_hour\": 7.2, \"priced_units\": 4}",
              NULL);
    add(&results, fixture, "hosts");
    add(&results, fixture, "gpus");
    add(&results, fixture, "plan");
    const Run *run = results.runs;
    assert_true(isnan(run_figure(&run[0], FIGURE_COST)));
    assert_true(fabs(run_figure(&run[2], FIGURE_COST) - 28.8) < 1e-9);
    assert_true(fabs(run_figure(&run[2], FIGURE_COST_TOKENS) - 4) < 1e-9);
    Columns columns = results_columns(&results);
    assert_ok(columns_note(&results, &columns, &note));
    assert_has(note, "Costs assume 7.2 per hour for each GPU or host without GPUs, the price of slate.");
    results.price = 3.6;
    assert_true(fabs(run_figure(&run[0], FIGURE_COST) - 3.6) < 1e-9); /* two hosts, half an hour */
    assert_true(fabs(run_figure(&run[0], FIGURE_COST_TOKENS) - 2) < 1e-9);
    assert_true(fabs(run_figure(&run[1], FIGURE_COST) - 7.2) < 1e-9); /* two of four GPUs */
    assert_true(fabs(run_figure(&run[2], FIGURE_COST) - 14.4) < 1e-9);
    char text[FORMAT_SIZE];
    assert_string_equal(run_figure_text(text, &run[0], FIGURE_ENERGY, true), "5.00 kJ");
    assert_true(run_figure(&run[0], FIGURE_TOKENS_JOULE) == 0.25);
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

/* The page names the machine once if all runs share it, and the command that repeats the comparison. */
static void names_machine(void **state) {
    static const char machine[] =
        "{\"steps\": 2, \"tokens_per_s\": 5, \"machine\": {\"date\": \"2026-11-%s\", \"weft\": \"0.1\", "
        "\"cpu\": \"Abacus <9>\", \"cores\": 2, \"memory_bytes\": 8e9, \"gpus\": [{\"name\": \"Slate\", "
        "\"memory_bytes\": 4e9}], \"mpi\": \"%s\", \"hosts\": [\"%s\"], \"host_count\": 1}}";
    static const char *const parts[][3] = {
        {"14T10:00:00Z", "", "here"}, {"16T10:00:00Z", "Open MPI v4", "here"}, {"15T10:00:00Z", "", "there"}};
    const Fixture *fixture = *state;
    Results results = {0};
    char text[512], name[8];
    bool curves;
    results.title = strdup("machines");
    results.command = strdup("weft compare r.json -- --lr '1 < 2'");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "run %d", i);
        snprintf(text, sizeof text, machine, parts[i][0], parts[i][1], parts[i][2]);
        write_run(fixture, name, text, NULL);
        add(&results, fixture, name);
        char *html = page_of(fixture, &results, &curves);
        assert_has(html, "<dt>Processor</dt><dd>Abacus &lt;9&gt;, 2 cores, 8.00 GB memory");
        assert_has(html, "<dt>GPUs</dt><dd>1 x Slate, 4.00 GB each</dd>");
        assert_has(html, "<dt>Host</dt><dd>here</dd>");
        assert_has(html, "<pre>weft compare r.json -- --lr '1 &lt; 2'</pre>");
        if (i > 0) assert_has(html, "<dt>MPI</dt><dd>Open MPI v4</dd>");
        if (i > 0) assert_has(html, "<dt>Date</dt><dd>2026-11-14 to 2026-11-16</dd>");
        if (i < 2) assert_null(strstr(html, "<h3>run 0"));
        if (i == 2) assert_has(html, "<h3>run 0, run 1</h3>");
        if (i == 2) assert_has(html, "<h3>run 2</h3>");
        free(html);
    }
    results_done(&results);
}

/* Names that do not fit the terminal end in an ellipsis; names in CSV are what they are. */
static void long_and_odd_names(void **state) {
    static const char name[] = "=a name that is longer than the forty-two columns of the table";
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *table = NULL, *plain = NULL, *csv = NULL;
    write_run(fixture, name, SUMMARY("500", "1200", "false"), EVEN);
    add(&results, fixture, name);
    assert_ok(table_text(&results, (TableLook){.width = 200, .utf8 = true}, &table));
    assert_has(table, "\n=a name that is longer than the forty-two…  ");
    assert_ok(table_text(&results, (TableLook){.width = 200}, &plain));
    assert_has(plain, "\n=a name that is longer than the forty-t...  ");
    assert_ok(table_format(&results, FORMAT_CSV, &csv));
    assert_has(csv, "\n\"=a name that is longer than the forty-two columns of the table\",finished,");
    results_done(&results);
}

/* A run that diverged has failed, also without the comparison that executed it; a resumed one has not. */
static void diverged_runs_have_failed(void **state) {
    static const char diverged[] = METRICS "{\"step\":3,\"diverged\":\"training diverged (loss nan)\"}\n";
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "wild", NULL, diverged);
    write_run(fixture, "again", NULL,
              METRICS "{\"step\":3,\"diverged\":\"training diverged (loss nan)\"}\n"
                      "{\"step\":2,\"loss\":4.5,\"step_ms\":100}\n");
    add(&results, fixture, "wild");
    add(&results, fixture, "again");
    assert_int_equal(results.runs[0].state, RUN_FAILED);
    assert_string_equal(results.runs[0].error, "step 3: training diverged (loss nan)");
    assert_int_equal(results.runs[1].state, RUN_INTERRUPTED);
    assert_null(results.runs[1].error);
    results_done(&results);
}

/* Several runs may need the least memory, or the most. */
static void equal_memory(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *words = NULL;
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (size_t i = 0; i < 5; i++) {
        write_run(fixture, names[i],
                  i < 2 ? SUMMARY("500", "1200", "false") : SUMMARY("500", "2400", "false"), EVEN);
        add(&results, fixture, names[i]);
    }
    assert_ok(results_summary(&results, &words));
    assert_has(words,
               " “a” and “b” need the least memory, with a peak of 1.20 kB per rank: 50% less than “c” "
               "and 2 others, which need the most.");
    results_done(&results);
}

/* The page names the build, with its commit where that is known. */
static void names_build(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char footer[128];
    bool curves;
    write_run(fixture, "a", SUMMARY("500", "1200", "false"), EVEN);
    add(&results, fixture, "a");
    results.title = strdup("build");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results, &curves);
    snprintf(footer, sizeof footer, "<footer>Generated by weft %s</footer>", weft_build());
    assert_has(html, footer);
    assert_int_equal(strncmp(weft_build(), WEFT_VERSION, strlen(WEFT_VERSION)), 0);
    if (path_exists(WEFT_SOURCE_DIR "/.git")) assert_has(weft_build(), " (");
    results_done(&results);
}

/* Large factors and small values stay readable. */
static void formats_values(void **state) {
    char text[FORMAT_SIZE];
    (void)state;
    assert_string_equal(percent_text(text, 12.34, true), "▲ 12.3%");
    assert_string_equal(percent_text(text, -12.34, false), "-12.3%");
    assert_string_equal(percent_text(text, 0.01, true), "= 0.0%");
    assert_string_equal(percent_text(text, 3066.7, true), "× 31.7");
    assert_string_equal(percent_text(text, 1900, false), "x 20.0");
    assert_string_equal(percent_text(text, 1414327.2, true), "× 14144");
    assert_string_equal(percent_text(text, NAN, true), "");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_RATE, 0.0049), "0.0049");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_RATE, 0), "0.00");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_NUMBER, 7.07e-5), "7.07e-05");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_MS, 3842.4), "3842");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_MS, 42.44), "42.4");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_COUNT, 354871296), "355 M");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_SECONDS, 0.314), "0.31 s");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_SECONDS, 0.996), "1.0 s");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_COST, 0.0096934), "0.00969");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_COST, 0.25), "0.250");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_COST, 12.345), "12.35");
    assert_string_equal(figure_text(text, FIGURE_FORMAT_COST, 0), "0.00");
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
    bool curves;
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
    char *html = page_of(fixture, &results, &curves);
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

/* Names and other text from files cannot control the terminal: escape sequences in them are printed as
 * '?'. */
static void replaces_control_characters(void **state) {
    static const char name[] = "a\033[2J\tb\x7f\xc2\x9b"
                               "c",
                      clean[] = "a?[2J?b??c";
    const Fixture *fixture = *state;
    Results results = {0};
    Run *failed;
    Watch *watch = NULL;
    bool curves;
    char dir[160], path[200], *words = NULL, *table = NULL, *text = NULL;
    write_run(fixture, name, SUMMARY("500", "1200", "false"), METRICS);
    add(&results, fixture, name);
    assert_ok(results_add(&results, "large", "/nowhere", &failed));
    failed->state = RUN_FAILED;
    failed->error = strdup("bad option \033[31m");
    results.title = strdup("title \033]0;x\007");
    assert_ok(results_summary(&results, &words));
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    char *html = page_of(fixture, &results, &curves);
    assert_has(words, clean);
    assert_has(table, clean);
    assert_has(html, clean);
    assert_has(table, "bad option ?[31m");
    assert_has(html, "title ?]0;x?");
    snprintf(dir, sizeof dir, "%s/%s", fixture->dir, name);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_replace(path, "{\"model\": \"m\\u001b[1m\", \"steps\": 2}", 35));
    assert_ok(watch_new(&watch, dir));
    assert_ok(watch_block(watch, (TableLook){.width = 200}, &text));
    assert_has(text, clean);
    assert_has(text, "m?[1m");
    const char *const all[] = {words, table, html, text};
    for (size_t i = 0; i < 4; i++)
        for (const char *at = all[i]; *at; at++)
            assert_true(((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t') && *at != 0x7f);
    watch_free(watch);
    free(words);
    free(table);
    free(html);
    free(text);
    results_done(&results);
}

/* Without gnuplot the page has everything but the plots. */
static void without_gnuplot(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    bool curves = true;
    write_run(fixture, "base", SUMMARY("500", "1200", "false"), METRICS);
    add(&results, fixture, "base");
    results.title = strdup("alone");
    char *path = strdup(getenv("PATH"));
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    char *html = page_of(fixture, &results, &curves);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_false(curves);
    assert_has(html, "gnuplot is not installed");
    assert_has(html, "4.2500");
    assert_null(strstr(html, "<svg"));
    free(path);
    free(html);
    results_done(&results);
}

static unsigned next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Truncates the text, or replaces part of it with invalid numbers or text. */
static void damage(const char *text, char *out, size_t size, unsigned *random) {
    static const char *const pieces[] = {"-",    "1e308", "null", "\"", "[", "}", "99999999999999999999",
                                         "\xff", "\n",    "0"};
    size_t length = strlen(text), at = next_random(random) % length;
    const char *piece = pieces[next_random(random) % (sizeof pieces / sizeof *pieces)];
    if (next_random(random) % 5 == 0)
        snprintf(out, size, "%.*s", (int)at, text);
    else
        snprintf(out, size, "%.*s%s%s", (int)at, text, piece,
                 text + (at + strlen(piece) < length ? at + strlen(piece) : length));
}

/* Whatever happens to a run's files, the page is well-formed and shows the other run. */
static void survives_damage(void **state) {
    static const char trace[] = "{\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\","
                                "\"args\":{\"name\":\"rank 0: a\"}},\n"
                                "{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"name\":\"step "
                                "2\",\"cat\":\"step\",\"ts\":0,\"dur\":100,\"args\":{"
                                "\"step\":2}},\n{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"name\":\"F0\",\"cat\":"
                                "\"forward\",\"ts\":5,\"dur\":8}]}";
    static const char *const names[] = {"summary.json", "metrics.jsonl", "trace.json", "config.json"};
    static const char *const texts[] = {SUMMARY("500", "1200", "false"),
                                        SAMPLED("10", "6") SAMPLED("20", "9"), trace,
                                        "{\"batch\": 4, \"pp\": 2, \"device\": \"cpu\"}"};
    const Fixture *fixture = *state;
    char *path = strdup(getenv("PATH")), file[160], text[4096];
    unsigned random = 1;
    write_run(fixture, "other", SUMMARY("700", "800", "false"), METRICS);
    write_run(fixture, "broken", NULL, NULL);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0); /* plots take long */
    for (int round = 0; round < 60; round++) {
        Results results = {0};
        bool curves;
        for (size_t i = 0; i < 4; i++) {
            bool chosen = next_random(&random) % 2;
            if (chosen)
                damage(texts[i], text, sizeof text, &random);
            else
                snprintf(text, sizeof text, "%s", texts[i]);
            snprintf(file, sizeof file, "%s/broken/%s", fixture->dir, names[i]);
            FILE *out = fopen(file, "w"); /* faster than file_replace, which waits for the disk */
            assert_non_null(out);
            fputs(text, out);
            assert_int_equal(fclose(out), 0);
        }
        add(&results, fixture, "broken");
        add(&results, fixture, "other");
        results.title = strdup("damaged");
        char *html = page_of(fixture, &results, &curves), *table = NULL;
        assert_has(html, "700");
        assert_null(strstr(html, ">nan"));
        assert_ok(table_text(&results, (TableLook){.width = 100}, &table));
        free(table);
        free(html);
        results_done(&results);
    }
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
}

static void nothing_known(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    Run *run;
    bool curves;
    assert_ok(results_add(&results, "waits", "/nowhere", &run));
    assert_ok(run_look(run));
    assert_int_equal(run->state, RUN_WAITING);
    results.title = strdup("none");
    char *html = page_of(fixture, &results, &curves);
    assert_has(html, "No run has finished. 1 run has not finished.");
    free(html);
    results_done(&results);
}

/* What is absent or of another type is unknown, not zero; every figure of a summary has its number. */
static void reads_summary(void **state) {
    (void)state;
    CLEANUP(run_summary_done) RunSummary summary = run_summary_take(NULL);
    assert_true(!summary.json && isnan(summary.steps) && !summary.predicted);
    run_summary_replace(&summary, json_pack("{s:i, s:s, s:b, s:s, s:{s:i}}", "steps", 7, "mfu", "high",
                                            "interrupted", 1, "predicted", "dgx", "layout", "tp", 2));
    assert_true(summary.steps == 7 && isnan(summary.mfu) && isnan(summary.loss_last));
    assert_true(summary.interrupted && !summary.by_metrics);
    assert_string_equal(summary.predicted, "dgx");
    assert_true(json_number_at(summary.layout, "tp") == 2);
    for (size_t f = 0; f < FIGURES; f++) {
        if (f == FIGURE_PEAK || f == FIGURE_TENSOR || f == FIGURE_WORK || f == FIGURE_COST ||
            f == FIGURE_COST_TOKENS)
            continue; /* computed */
        run_summary_replace(&summary, json_pack("{s:f}", figures[f].key, 0.5));
        assert_true(run_summary_number(&summary, figures[f].key) == 0.5);
    }
}

/* Writing is the inverse of reading. A run's unknown figures are null; a prediction leaves them out. */
static void writes_summary(void **state) {
    (void)state;
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
    const struct CMUnitTest tests[] = {TEST(tabulates_epochs),
                                       TEST(formats_values),
                                       TEST(times_epochs),
                                       TEST(reads_complete),
                                       TEST(weights_by_batch),
                                       TEST(reads_damaged),
                                       TEST(computes_missing_summary),
                                       TEST(joins_parts),
                                       TEST(compares_runs),
                                       TEST(scales_by_batch),
                                       TEST(writes_page),
                                       TEST(replaces_control_characters),
                                       TEST(without_gnuplot),
                                       TEST(reports_lost_metrics),
                                       TEST(partial_runs_are_not_compared),
                                       TEST(computes_costs),
                                       TEST(reads_energy),
                                       TEST(names_machine),
                                       TEST(formats_tables),
                                       TEST(latex_compiles),
                                       TEST(long_and_odd_names),
                                       TEST(diverged_runs_have_failed),
                                       TEST(equal_memory),
                                       TEST(names_build),
                                       TEST(survives_damage),
                                       TEST(nothing_known),
                                       TEST(reads_summary),
                                       TEST(writes_summary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
