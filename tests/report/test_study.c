/* Published figures next to our own, and which of a study's conclusions hold. */
#include <math.h>

#include "base/json.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/run.h"
#include "report/study.h"
#include "report/table.h"

static json_t *json_of(const char *text) {
    json_t *json = NULL;
    assert_ok(json_parse(text, strlen(text), "test", &json));
    return json;
}

#define PREDICTED(samples, tp, params)                                                                       \
    "{\"predicted\": \"slate\", \"program\": \"Chalk 2\", \"samples_per_s\": " samples                       \
    ", \"step_ms\": 250, \"params_total\": " params ", \"params_stored\": " params                           \
    ", \"params_per_rank\": 500, \"layout\": {\"ranks\": 4, \"dp\": 2, \"tp\": " tp                          \
    ", \"pp\": 1, \"batch\": 8, \"seq\": 64}, \"ranks\": [{\"peak_bytes\": {\"total\": 900}, "               \
    "\"comm_bytes\": {\"total\": 0}}]}"

/* Three predicted runs of another program; the last is a smaller model. */
static void add_predicted(Results *results, const Fixture *fixture) {
    static const char *const summaries[] = {PREDICTED("10", "1", "1000"), PREDICTED("12", "2", "1000"),
                                            PREDICTED("40", "1", "200")};
    static const char *const names[] = {"one", "two", "small"};
    for (size_t i = 0; i < 3; i++) {
        write_run(fixture, names[i], summaries[i], NULL);
        add(results, fixture, names[i]);
    }
    results->runs[0].published = json_of(
        "{\"samples_per_s\": 8, \"peak_bytes\": 1000, \"hardware\": \"1 slate\", \"source\": \"a poster\"}");
    results->runs[1].published = json_of("{\"samples_per_s\": 8, \"peak_bytes\": 600}");
    results->runs[2].published = json_of("{\"outcome\": \"out of memory\"}");
    results->study =
        json_of("{\"title\": \"Slates\", \"hardware\": \"2 slates\", \"note\": \"a note\", \"columns\": "
                "[\"step_ms\", "
                "\"tp\", \"params_per_rank\", \"samples_per_s\", \"work\", \"peak_bytes\"], \"claims\": []}");
    results->title = strdup("slates");
}

/* Every number of a study's table: values, differences from the published ones and from the baseline of the
 * same kind, parameters x samples/s relative to the first run. */
static void shows_published(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char *table = NULL, *note = NULL;
    add_predicted(&results, fixture);
    const Run *run = results.runs;
    assert_true(run_from_published(&run[0], SOURCE_PREDICTED, FIGURE_SAMPLES) == 25);
    assert_true(run_from_published(&run[1], SOURCE_PREDICTED, FIGURE_PEAK) == 50);
    assert_true(isnan(run_from_published(&run[0], SOURCE_MEASURED, FIGURE_SAMPLES)));
    assert_true(run_figure(&run[0], FIGURE_WORK) == 1);
    assert_true(fabs(run_figure(&run[1], FIGURE_WORK) - 1.2) < 1e-12);
    assert_true(fabs(run_figure(&run[2], FIGURE_WORK) - 0.8) < 1e-12);
    assert_true(run_source_figure(&run[1], SOURCE_PUBLISHED, FIGURE_WORK) == 1);
    assert_true(fabs(run_difference(&results, &run[1], FIGURE_SAMPLES) - 20) < 1e-9);
    assert_true(isnan(run_difference(&results, &run[2], FIGURE_SAMPLES))); /* another size */
    assert_true(isnan(run_difference(&results, &run[1], FIGURE_TENSOR)));  /* neither better nor worse */
    Columns columns = results_columns(&results);
    assert_int_equal(columns.count, 4); /* tp, samples/s, work, memory */
    assert_int_equal(columns.equal_count, 2);
    assert_ok(columns_note(&results, &columns, &note));
    assert_string_equal(note,
                        "The same in all runs: ms/step 250, params/rank 500. Predictions are for Chalk 2, "
                        "not for weft. Percentages compare runs with the same model size, task and "
                        "sequence length; baselines: “one”.");
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    assert_has(table, "one                     1      10.00                1.00    900 B\n");
    assert_has(table, "    vs published              +25.0%                0.0%   -10.0%\n");
    assert_has(table, "  published                     8.00                1.00  1.00 kB\n");
    assert_has(table, "  published            out of memory\n");
    char *html = page_of(fixture, &results);
    assert_has(html, "<p class=\"lead\">Slates, on 2 slates. Below each value");
    assert_has(html,
               "one<small>published, 1 slate, a poster</small></th><td data-label=\"samples/s\">8.00</td><td "
               "data-label=\"params x samples/s\">1.00</td><td data-label=\"memory\">1.00 kB</td>");
    assert_has(html,
               "<small>predicted, slate, Chalk 2</small></th><td data-label=\"samples/s\">10.00<small>▲ "
               "25.0%</small></td><td data-label=\"params x samples/s\">1.00<small>= 0.0%</small></td><td "
               "data-label=\"memory\">900 B<small>▼ 10.0%</small></td>");
    assert_has(html, "<td class=\"wide failed\" colspan=\"3\">out of memory</td>");
    assert_has(html, "<i style=\"width:83.33%;background:var(--c5)\" title=\"predicted\"></i></div>"
                     "<span>10.00</span>");
    assert_has(html, "<p class=\"note\">a note</p>");
    assert_has(html, "Predicted peak of the total.");
    assert_null(strstr(html, "whiskers: ")); /* predictions have none */
    free(html);
    free(table);
    free(note);
    /* At another size, neither published figures nor the note about them are shown. */
    results.resized = true;
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    assert_null(strstr(table, "published"));
    html = page_of(fixture, &results);
    assert_null(strstr(html, "a note"));
    free(html);
    free(table);
    results_done(&results);
}

#define CLAIM(figure, run, rest) "{\"text\": \"x\", \"figure\": \"" figure "\", \"run\": " run ", " rest "}"

static void judges_claims(void **state) {
    static const struct {
        const char *claim;
        Verdict verdict;
        const char *detail;
    } cases[] = {
        {CLAIM("samples_per_s", "\"two\"", "\"than\": \"one\", \"relation\": \"higher\""), VERDICT_HOLDS,
         "samples/s predicted 12.00 vs 10.00 (+20.0%); published 8.00 vs 8.00 (+0.0%)"},
        {CLAIM("samples_per_s", "\"two\"", "\"than\": \"one\", \"relation\": \"higher\", \"by\": 0.25"),
         VERDICT_FAILS, "(+20.0%)"},
        {CLAIM("samples_per_s", "\"two\"", "\"than\": \"one\", \"relation\": \"lower\""), VERDICT_FAILS, ""},
        {CLAIM("samples_per_s", "\"one\"", "\"than\": \"two\", \"relation\": \"lower\", \"by\": 0.16"),
         VERDICT_HOLDS, "predicted 10.00 vs 12.00 (-16.7%)"},
        {CLAIM("peak_bytes", "\"one\"", "\"than\": \"two\", \"relation\": \"equal\""), VERDICT_HOLDS,
         "memory predicted 900 B vs 900 B (+0.0%); published 1.00 kB vs 600 B (+66.7%)"},
        {CLAIM("peak_bytes", "[\"one\", \"two\"]", "\"than\": \"one\", \"relation\": \"equal\""),
         VERDICT_HOLDS, "memory predicted +0.0%; published "},
        {CLAIM("work", "[\"one\", \"two\", \"small\"]", "\"relation\": \"equal\", \"by\": 0.2001"),
         VERDICT_HOLDS, "predicted -20.0% to +20.0%"},
        {CLAIM("work", "[\"one\", \"two\", \"small\"]", "\"relation\": \"equal\", \"by\": 0.1"),
         VERDICT_FAILS, ""},
        {CLAIM("val_loss", "\"two\"", "\"than\": \"one\", \"relation\": \"higher\""), VERDICT_UNKNOWN,
         "predictions do not include val. loss"},
        {CLAIM("samples_per_s", "\"mine\"", "\"than\": \"one\", \"relation\": \"higher\""), VERDICT_UNKNOWN,
         "samples/s is not known for all of its runs"},
        {CLAIM("samples_per_s", "\"gone\"", "\"than\": \"one\", \"relation\": \"higher\""), VERDICT_UNKNOWN,
         ""},
        {"{\"text\": \"x\", \"run\": \"two\", \"relation\": \"out of memory\"}", VERDICT_FAILS,
         "predicted peak 900 B"},
        {"{\"text\": \"x\", \"run\": \"huge\", \"relation\": \"out of memory\"}", VERDICT_HOLDS,
         "predicted: needs 5 GB"},
    };
    const Fixture *fixture = *state;
    Results results = {0};
    Run *huge;
    char *text = NULL;
    add_predicted(&results, fixture);
    write_run(fixture, "mine", SUMMARY("500", "1200", "false"), METRICS); /* measured */
    add(&results, fixture, "mine");
    assert_ok(results_add(&results, "huge", "/nowhere", &huge));
    huge->state = RUN_FAILED;
    huge->error = strdup("out of memory, as predicted: needs 5 GB");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *claim = json_of(cases[i].claim);
        char *detail = NULL;
        Verdict verdict;
        assert_ok(claim_judge(&results, claim, &verdict, &detail));
        if (verdict != cases[i].verdict || !strstr(detail, cases[i].detail))
            fail_msg("%s: %s, '%s'", cases[i].claim, verdict_name(verdict), detail);
        json_array_append_new(json_object_get(results.study, "claims"), claim);
        free(detail);
    }
    assert_ok(findings_text(&results, &text));
    assert_string_equal(text,
                        "Of the study's 13 conclusions, 6 hold, 4 do not, and 3 cannot be judged from these "
                        "runs.");
    assert_fails(study_check_runs(&results, "test"), 2, "claim 11: no run is named 'gone'");
    free(text);
    /* A measured run is judged by its measurements; with a prediction as well, also by that. */
    run_summary_replace(&results.runs[3].prediction, json_of(PREDICTED("30", "1", "1000")));
    json_t *claim =
        json_of(CLAIM("samples_per_s", "\"mine\"", "\"than\": \"one\", \"relation\": \"higher\""));
    Verdict verdict;
    assert_ok(claim_judge(&results, claim, &verdict, &text));
    assert_int_equal(verdict, VERDICT_HOLDS);
    assert_has(text, "predicted 30.00 vs 10.00 (+200.0%)");
    json_decref(claim);
    free(text);
    results_done(&results);
}

/* Measured times decide a claim only with an interval that is smaller than the difference, and with the cores
 * to themselves. */
static void noise_decides_no_claim(void **state) {
    static const char disturbed[] = "{\"steps\": 6, \"samples_per_s\": 900, \"load\": {\"contention\": 0.5}}";
    static const struct {
        const char *run;
        Verdict verdict;
        const char *detail;
    } cases[] = {{"faster", VERDICT_HOLDS, "samples/s measured 60.00 vs 50.00 (+20.0%)"},
                 {"short", VERDICT_UNKNOWN, "too few steps for a confidence interval"},
                 {"tied", VERDICT_UNKNOWN, "a difference smaller than the spread"},
                 {"disturbed", VERDICT_UNKNOWN, "but with contention"}};
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "base", SUMMARY("500", "1200", "false"), EVEN);
    write_run(fixture, "faster", SUMMARY("600", "1200", "false"), EVEN);
    write_run(fixture, "short", SUMMARY("900", "1200", "false"), METRICS);
    write_run(fixture, "tied", SUMMARY("502", "1200", "false"), EVEN);
    write_run(fixture, "disturbed", disturbed, EVEN);
    add(&results, fixture, "base");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char claim[200], *detail = NULL;
        Verdict verdict;
        add(&results, fixture, cases[i].run);
        snprintf(claim, sizeof claim,
                 CLAIM("samples_per_s", "\"%s\"", "\"than\": \"base\", \"relation\": \"higher\", \"by\": 0"),
                 cases[i].run);
        json_t *json = json_of(claim);
        assert_ok(claim_judge(&results, json, &verdict, &detail));
        if (verdict != cases[i].verdict || !strstr(detail, cases[i].detail))
            fail_msg("%s: %s, '%s'", cases[i].run, verdict_name(verdict), detail);
        json_decref(json);
        free(detail);
    }
    results_done(&results);
}

/* A figure that only the study has is no column of a table without its figures. */
static void columns_of_runs(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "run", SUMMARY("500", "1200", "false"), EVEN);
    add(&results, fixture, "run");
    results.runs->published = json_of("{\"f1\": 0.5}");
    Columns all = results_columns(&results), own = results_own_columns(&results);
    assert_int_equal(own.count + 1, all.count);
    for (size_t i = 0; i < own.count; i++) assert_true(own.shown[i] != FIGURE_F1);
    results_done(&results);
}

/* "The same in all runs" is said of figures that all of them have. Without a noise scale, the efficiency is
 * known of the runs with the baseline's batch alone. */
static void unknown_is_not_the_same(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(mem_freep) char *note = NULL;
    Results results = {0};
    write_run(fixture, "one", SUMMARY("500", "1200", "false"), NULL);
    write_run(fixture, "two", SUMMARY("600", "1100", "false"), NULL);
    add(&results, fixture, "one");
    add(&results, fixture, "two");
    Columns columns = results_columns(&results);
    assert_ok(columns_note(&results, &columns, &note));
    assert_non_null(strstr(note, "efficiency 1.0000"));
    json_object_set_new(results.runs[1].summary.layout, "batch", json_integer(8));
    assert_true(isfinite(run_figure(&results.runs[0], FIGURE_EFFICIENCY)));
    assert_true(isnan(run_figure(&results.runs[1], FIGURE_EFFICIENCY)));
    columns = results_columns(&results);
    free(note);
    assert_ok(columns_note(&results, &columns, &note));
    assert_non_null(strstr(note, "The same in all runs: "));
    assert_null(strstr(note, "efficiency"));
    for (size_t i = 0; i < columns.count; i++) assert_true(columns.shown[i] != FIGURE_EFFICIENCY);
    results.runs->published = json_of("{\"statistical_efficiency\": 0.5}");
    columns = results_columns(&results);
    bool shown = false;
    for (size_t i = 0; i < columns.count; i++) shown |= columns.shown[i] == FIGURE_EFFICIENCY;
    assert_true(shown);
    results_done(&results);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(shows_published), TEST(judges_claims),
                                       TEST(noise_decides_no_claim), TEST(columns_of_runs),
                                       TEST(unknown_is_not_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
