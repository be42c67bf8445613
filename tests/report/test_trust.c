/* How far figures can be trusted: spread, ties, runs that shared their cores, and loads that are unknown. */
#include <math.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/run.h"
#include "report/spread.h"
#include "report/summary.h"
#include "report/table.h"
#include "tokenizer/tokenizer.h"

/* A run's summary with its load: cores that others used, of 2. */
#define LOADED(tokens, others) STOLEN(tokens, others, "0", others)
/* The same with cores that the hypervisor gave to others. */
#define STOLEN(tokens, others, steal, contention)                                                            \
    "{\"steps\": 6, \"tokens_per_s\": " tokens ", \"samples_per_s\": " tokens                                \
    ", \"ranks\": [{\"peak_bytes\": {\"total\": " tokens                                                     \
    "}}], \"load\": {\"cores\": 2, \"wanted\": 2, \"others\": " others ", \"steal\": " steal                 \
    ", \"contention\": " contention "}}"
/* The same with ranks that shared a GPU. */
#define SHARED(tokens, contention, count)                                                                    \
    "{\"steps\": 6, \"tokens_per_s\": " tokens ", \"samples_per_s\": " tokens                                \
    ", \"ranks\": [{\"peak_bytes\": {\"total\": " tokens                                                     \
    "}}], \"load\": {\"gpus\": 1, \"gpu_ranks\": " count ", \"contention\": " contention "}}"

/* A run whose cores were taken by others is neither the baseline nor the fastest, and its times have no
 * percentages; memory is compared all the same. */
static void contended_runs_are_not_ranked(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "starved", LOADED("900", "1.5"), EVEN);
    write_run(fixture, "base", LOADED("300", "0.01"), EVEN);
    write_run(fixture, "next", LOADED("200", "0"), EVEN);
    add(&results, fixture, "starved");
    add(&results, fixture, "base");
    add(&results, fixture, "next");
    results.title = strdup("contended");
    const Run *run = results.runs;
    assert_ptr_equal(results_base(&results), &run[1]);
    assert_ptr_equal(results_best(&results, NULL, FIGURE_TOKENS, 1), &run[1]);
    assert_true(isnan(run_difference(&results, &run[0], FIGURE_TOKENS)));
    assert_true(run_difference(&results, &run[0], FIGURE_PEAK) == 200);
    CLEANUP(mem_freep) char *words = NULL, *none = NULL, *single = NULL;
    assert_ok(results_summary(&results, &words));
    assert_has(words, "“base” is the fastest run at 300 tokens/s, 1.5 times the throughput of the runner-up");
    assert_has(words, "“starved” is not ranked: other processes used 1.5 of the 2 cores while it ran");
    assert_has(words, "The baseline is “base” because “starved” did not have its cores to itself.");
    char *html = page_of(fixture, &results);
    assert_has(html, "<span class=\"badge failed\">CPU contention</span>");
    assert_has(html, "<td data-label=\"tokens/s\" class=\"best\">300");
    free(html);
    results_done(&results);
    add(&results, fixture, "starved");
    assert_ok(results_summary(&results, &single));
    assert_has(single, "“starved” reached 900 tokens/s.");
    assert_has(single, "Its timings are unreliable: other processes used 1.5 of the 2 cores while it ran.");
    add(&results, fixture, "starved");
    assert_ok(results_summary(&results, &none));
    assert_has(none, "No run can be called the fastest: none had its cores to itself.");
    assert_true(isnan(run_difference(&results, &results.runs[1], FIGURE_TOKENS)));
    results_done(&results);
}

/* The summary says what took the cores: other processes, the hypervisor, or both. */
static void names_the_taker(void **state) {
    static const char *const summaries[] = {STOLEN("100", "0.1", "0.9", "0.5"),
                                            STOLEN("100", "0", "0.26", "0.13"),
                                            STOLEN("100", "0.5", "0.2", "0.35"), LOADED("100", "1.5")};
    static const char *const causes[] = {
        "Its timings are unreliable: the hypervisor gave 0.9 of the 2 cores to other virtual machines while "
        "it "
        "ran.",
        "Its timings are unreliable: the hypervisor gave 0.3 of the 2 cores to other virtual machines while "
        "it "
        "ran.",
        "Its timings are unreliable: other processes used 0.5 of the 2 cores, and the hypervisor gave 0.2 to "
        "other "
        "virtual machines while it ran.",
        "Its timings are unreliable: other processes used 1.5 of the 2 cores while it ran."};
    static const char *const takers[] = {"the hypervisor", "the hypervisor",
                                         "other processes and the hypervisor", "other processes"};
    const Fixture *fixture = *state;
    Results all = {0};
    for (size_t i = 0; i < 4; i++) {
        char name[8];
        Results results = {0};
        CLEANUP(mem_freep) char *words = NULL;
        snprintf(name, sizeof name, "run-%zu", i);
        write_run(fixture, name, summaries[i], EVEN);
        add(&results, fixture, name);
        assert_ok(results_summary(&results, &words));
        assert_has(words, causes[i]);
        assert_string_equal(results_taken(&results, false).takers, takers[i]);
        results_done(&results);
        if (i < 2) add(&all, fixture, name);
    }
    CLEANUP(mem_freep) char *both = NULL;
    assert_ok(results_summary(&all, &both));
    assert_has(
        both,
        "No run can be called the fastest: none had its cores to itself. All timings are unreliable: the "
        "hypervisor gave 0.3 to 0.9 of the 2 cores to other virtual machines while they ran.");
    CLEANUP(mem_freep) char *two = NULL;
    write_run(fixture, "clean", LOADED("100", "0"), EVEN);
    add(&all, fixture, "clean");
    assert_ok(results_summary(&all, &two));
    assert_has(two,
               " 2 runs, including “run-0”, are not ranked: the hypervisor gave 0.3 to 0.9 of the 2 cores to "
               "other virtual machines while they ran, so their timings are unreliable.");
    all.title = strdup("stolen");
    CLEANUP(mem_freep) char *html = page_of(fixture, &all);
    assert_has(html, "Gray: the hypervisor took the cores, so the throughput is unreliable.");
    results_done(&all);
}

/* Ranks that share GPUs: the losses count, the times do not. */
static void shared_gpus_are_not_ranked(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *words = NULL, *html = NULL;
    write_run(fixture, "two", SHARED("300", "0.5", "2"), EVEN);
    write_run(fixture, "four", SHARED("900", "0.75", "4"), EVEN);
    add(&results, fixture, "two");
    add(&results, fixture, "four");
    results.title = strdup("shared");
    assert_ok(results_summary(&results, &words));
    assert_has(words,
               "No run can be called the fastest: none had its GPUs to itself. All timings are unreliable: "
               "2 to 4 ranks shared 1 GPU while they ran.");
    assert_true(isnan(run_difference(&results, &results.runs[1], FIGURE_TOKENS)));
    assert_true(run_difference(&results, &results.runs[1], FIGURE_PEAK) == 200);
    html = page_of(fixture, &results);
    assert_has(html, "<span class=\"badge failed\">shared GPUs</span>");
    assert_has(html, "Gray: other ranks took the GPUs, so the throughput is unreliable.");
    results_done(&results);
}

/* A run whose repeats have these rates; the last one is disturbed. */
static void add_repeated(Results *results, const Fixture *fixture, const char *name, const char *one,
                         const char *two, const char *three) {
    char repeat[64];
    write_run(fixture, name, one, NULL);
    snprintf(repeat, sizeof repeat, "%s.2", name);
    write_run(fixture, repeat, two, NULL);
    snprintf(repeat, sizeof repeat, "%s.3", name);
    write_run(fixture, repeat, three, NULL);
    add(results, fixture, name);
    Run *run = &results->runs[results->count - 1];
    assert_ok(run_add_repeat(run));
    assert_ok(run_add_repeat(run));
    assert_ok(run_look(run));
}

/* Figures are means over the undisturbed repeats, and differences below their spread are ties. */
static void spread_decides_ties(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char text[FORMAT_SIZE];
    add_repeated(&results, fixture, "a", LOADED("100", "0"), LOADED("102", "0"), LOADED("101", "0"));
    add_repeated(&results, fixture, "b", LOADED("103", "0"), LOADED("99", "0"), LOADED("10", "1"));
    add_repeated(&results, fixture, "c", LOADED("50", "0"), LOADED("51", "0"), LOADED("52", "0"));
    results.title = strdup("repeats");
    const Run *run = results.runs;
    assert_true(run_figure(&run[0], FIGURE_TOKENS) == 101 && run_figure(&run[1], FIGURE_TOKENS) == 101);
    assert_int_equal(run_counted(&run[1]), 2);
    assert_false(run_contended(&run[1]));
    assert_true(fabs(run_spread(&run[0], FIGURE_TOKENS) - 4.303 / sqrt(3)) < 1e-3); /* t for 2, deviation 1 */
    assert_string_equal(spread_text(text, &run[0], FIGURE_TOKENS, false), "+-2.5%");
    assert_true(figures_tie(&run[0], &run[1], FIGURE_TOKENS));
    assert_false(figures_tie(&run[0], &run[2], FIGURE_TOKENS));
    CLEANUP(mem_freep) char *words = NULL, *table = NULL, *note = NULL, *single = NULL;
    assert_ok(results_summary(&results, &words));
    assert_has(words, "“a” and “b” tie for the fastest at 101 ±2.5% tokens/s; they differ by less than the "
                      "spread of the measurements.");
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    assert_has(table, " tie ");
    assert_has(table, "-49.5%");
    assert_ok(spread_note(&results, &note));
    assert_has(note, "Times are means of 3 interleaved repeats. 1 of 9 is left out because other processes "
                     "took the cores; 2 to 3 per run remain.");
    assert_has(note, "interval of the mean, over the repeats.");
    /* A run with a single undisturbed repeat has no interval over repeats. */
    add_repeated(&results, fixture, "d", LOADED("50", "0"), LOADED("9", "1"), LOADED("8", "1"));
    assert_ok(spread_note(&results, &single));
    assert_has(single, "3 of 12 are left out because other processes took the cores; 1 to 3 per run remain.");
    assert_has(single, "over the repeats or, for runs with only one, within the run.");
    add_repeated(&results, fixture, "e", LOADED("50", "0"), STOLEN("9", "0", "1", "0.5"), LOADED("51", "0"));
    assert_string_equal(results_taken(&results, true).takers, "other processes and the hypervisor");
    /* Repeats survive in results.json. */
    assert_ok(results_write(&results, fixture->dir));
    results_done(&results);
    assert_ok(results_read(&results, fixture->dir));
    assert_int_equal(results.runs[0].repeat_count, 2);
    assert_true(run_figure(&results.runs[0], FIGURE_TOKENS) == 101);
    results_done(&results);
}

/* Without an interval nothing is called faster: not in the summary, the tiles or the table. */
static void too_few_steps(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *words = NULL, *table = NULL, *more = NULL, *html = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    write_run(fixture, "two-steps", SUMMARY("500", "1200", "false"), METRICS);
    write_run(fixture, "one-step", SUMMARY("720", "600", "false"), METRICS);
    add(&results, fixture, "two-steps");
    add(&results, fixture, "one-step");
    results.title = strdup("short");
    assert_ok(results_summary(&results, &words));
    assert_has(
        words,
        "No run can be called the fastest: the rates come from too few steps for a confidence interval");
    assert_has(words, "Train for more steps, or repeat the runs.");
    assert_null(strstr(words, "faster"));
    assert_ok(table_text(&results, (TableLook){.width = 200, .color = true}, &table));
    assert_has(table, "\033[2m(+44.0%)\033[0m");
    assert_has(table, "\033[32m-25.0%\033[0m"); /* memory needs no interval */
    html = page_of(fixture, &results);
    assert_has(html, "<small class=\"same\">(▲ 44.0%)</small>");
    assert_null(strstr(html, "<span>Fastest</span>"));
    assert_has(html, "<span>Lowest peak memory</span>");
    assert_ok(results_json(&results, &json));
    const json_t *run = json_array_get(json_object_get(json, "runs"), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(run, "without_interval"), 0)),
                        figures[FIGURE_SAMPLES].key);
    /* Others are ranked among themselves. */
    write_run(fixture, "slow", SUMMARY("100", "900", "false"), EVEN);
    write_run(fixture, "slower", SUMMARY("50", "900", "false"), EVEN);
    add(&results, fixture, "slow");
    add(&results, fixture, "slower");
    assert_ok(results_summary(&results, &more));
    assert_has(more, "“slow” is the fastest run at 100 tokens/s, 2.0 times the throughput of the runner-up");
    assert_has(
        more,
        "2 runs, including “two-steps”, are not ranked: they have too few steps for a confidence interval.");
    results_done(&results);
}

/* A repeat without a known load is not better than one that was disturbed: all count, unless some are known
 * to have been undisturbed. A short run's load is only known within its resolution. */
static void unknown_loads(void **state) {
    static const char unknown[] = "{\"steps\": 6, \"tokens_per_s\": 300}";
    static const char coarse[] =
        "{\"steps\": 6, \"tokens_per_s\": 300, \"load\": {\"cores\": 2, \"contention\": "
        "%s, \"resolution\": 0.04}}";
    const Fixture *fixture = *state;
    Results results = {0};
    char close[160], sure[160], quiet[160];
    snprintf(close, sizeof close, coarse, "0.06");
    snprintf(sure, sizeof sure, coarse, "0.2");
    snprintf(quiet, sizeof quiet, coarse, "0.005");
    add_repeated(&results, fixture, "a", LOADED("100", "1"), unknown, unknown);
    add_repeated(&results, fixture, "b", LOADED("100", "1"), unknown, LOADED("200", "0"));
    add_repeated(&results, fixture, "c", close, unknown, close);
    add_repeated(&results, fixture, "d", sure, quiet, close);
    const Run *run = results.runs;
    assert_int_equal(run_counted(&run[0]), 3);
    assert_true(fabs(run_figure(&run[0], FIGURE_TOKENS) - 700 / 3.) < 1e-9);
    assert_true(run_contended(&run[0])); /* not ranked */
    assert_int_equal(run_counted(&run[1]), 2);
    assert_true(run_figure(&run[1], FIGURE_TOKENS) == 250 && !run_contended(&run[1]));
    assert_int_equal(run_load_unknown(&run[1]), 1);
    assert_true(run_counted(&run[2]) == 3 && !run_contended(&run[2]));
    assert_int_equal(run_load_unknown(&run[2]), 3);
    assert_true(run_counted(&run[3]) == 2 && !run_contended(&run[3]));
    CLEANUP(mem_freep) char *note = NULL;
    assert_ok(spread_note(&results, &note));
    assert_has(note, "Load unknown for 7 of 10 repeats: ");
    results_done(&results);
}

/* The page names ties in its tiles, draws the repeat that counts, and cuts long names between characters. */
static void page_of_repeats(void **state) {
    static const char quick[] = "{\"step\":0,\"loss\":5,\"elapsed_s\":0.125}\n" EVEN;
    static const char name[] = "模型模型模型模型模型模型模型模型模型模型模型模型模型模型";
    const Fixture *fixture = *state;
    Results results = {0};
    size_t first, size;
    char path[96];
    write_run(fixture, "a", LOADED("9", "1"), METRICS);
    write_run(fixture, "a.2", LOADED("100", "0"), quick);
    write_run(fixture, "b", LOADED("100", "0"), EVEN);
    write_run(fixture, "c", LOADED("50", "0"), EVEN);
    add(&results, fixture, "a");
    assert_ok(run_add_repeat(results.runs));
    assert_ok(run_look(results.runs));
    add(&results, fixture, "b");
    add(&results, fixture, "c");
    free(results.runs[1].name);
    results.runs[1].name = strdup(name);
    results.title = strdup("repeats");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results);
    CLEANUP(mem_freep) char *losses = NULL;
    assert_has(html, "<b>100.0 tokens/s</b><em>a, tied with 模型");
    assert_int_equal(text_invalid_utf8(html, strlen(html), &first), 0);
    snprintf(path, sizeof path, "%s/page-figures/loss-time.csv", fixture->dir);
    assert_ok(file_read(path, 1 << 16, &losses, &size));
    assert_has(losses, "\"a\",0,5");
    assert_int_equal(text_invalid_utf8(losses, size, &first), 0);
    results_done(&results);
}

/* Without repeats, the spread comes from blocks of steps, without the first ones. */
static void spread_within_run(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char metrics[4096] = "";
    for (int step = 1; step <= 22; step++)
        snprintf(metrics + strlen(metrics), sizeof metrics - strlen(metrics),
                 "{\"step\":%d,\"loss\":5,\"step_ms\":%d}\n", step,
                 step <= 2            ? 900
                 : (step - 3) % 4 < 2 ? 90
                                      : 110);
    write_run(fixture, "alone", "{\"steps\": 22, \"steps_excluded\": 2, \"tokens_per_s\": 100}", metrics);
    write_run(fixture, "near", "{\"steps\": 2, \"tokens_per_s\": 104}", METRICS);
    add(&results, fixture, "alone");
    add(&results, fixture, "near");
    double spread = run_spread(&results.runs[0], FIGURE_TOKENS); /* ten blocks of 90 or 110 ms */
    assert_true(spread > 7 && spread < 8);
    assert_true(isnan(run_spread(&results.runs[1], FIGURE_TOKENS)));
    assert_true(figures_tie(&results.runs[0], &results.runs[1], FIGURE_TOKENS));
    CLEANUP(mem_freep) char *note = NULL;
    assert_ok(spread_note(&results, &note));
    assert_has(note, "Rates leave out the first 2 steps, which warm up.");
    assert_has(note, "Rates without ± come from too few steps for a confidence interval; differences in "
                     "parentheses may be noise.");
    results_done(&results);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(contended_runs_are_not_ranked),
                                       TEST(names_the_taker),
                                       TEST(shared_gpus_are_not_ranked),
                                       TEST(spread_decides_ties),
                                       TEST(page_of_repeats),
                                       TEST(too_few_steps),
                                       TEST(unknown_loads),
                                       TEST(spread_within_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
