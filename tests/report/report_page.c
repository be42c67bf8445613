/* What the page and tables in other formats show of complete, odd and damaged runs. */
#include "report/report_page.h"

#include <math.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/version.h"
#include "report/run.h"
#include "report/summary.h"
#include "report/table.h"
#include "tokenizer/tokenizer.h"

/* Epochs, mean validation loss and scores appear in the files, the table and the page. */
static void tabulates_epochs(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(results_done) Results results = {0};
    CLEANUP(mem_freep) char *csv = NULL, *html = NULL, *table = NULL, *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
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
    assert_ok(page_write(&results, path));
    assert_ok(file_read(path, 1 << 24, &html, NULL));
    assert_non_null(strstr(html, "<h2>Epochs</h2>"));
    assert_non_null(strstr(html, "<small>epoch 2</small></th><td data-label=\"time\">3.5 s</td>"));
    assert_non_null(strstr(html, "mean over all epochs</small></th><td data-label=\"time\">3.0 s</td>"));
    assert_non_null(strstr(html, "<td data-label=\"accuracy\">37.5%</td>"));
}

/* The last sample of each run, next to those with the same prompt. */
static void shows_samples(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(results_done) Results results = {0};
    CLEANUP(mem_freep) char *html = NULL;
    write_run(fixture, "a", NULL,
              METRICS "{\"step\":1,\"prompt\":\"The <\",\"sample\":\"early\"}\n"
                      "{\"step\":2,\"prompt\":\"The <\",\"sample\":\"cat & dog\"}\n"
                      "{\"step\":2,\"prompt\":\"The <\"}\n");
    write_run(fixture, "b", NULL, METRICS "{\"step\":2,\"prompt\":\"A\",\"sample\":\"hen\"}\n");
    write_run(fixture, "c", NULL, METRICS "{\"step\":2,\"prompt\":\"The <\",\"sample\":\"fox\"}\n");
    write_run(fixture, "d", NULL, METRICS);
    for (const char *name = "a\0b\0c\0d\0"; *name; name += 2) add(&results, fixture, name);
    assert_ok(str_dup("samples", &results.title));
    html = page_of(fixture, &results);
    assert_has(html, "<h3>“The &lt;” continued</h3>\n<div class=\"tiles texts\">\n"
                     "<div class=\"tile\"><span>a, step 2</span>cat &amp; dog</div>\n"
                     "<div class=\"tile\"><span>c, step 2</span>fox</div>\n</div>\n"
                     "<h3>“A” continued</h3>\n<div class=\"tiles texts\">\n"
                     "<div class=\"tile\"><span>b, step 2</span>hen</div>\n</div>\n");
    assert_null(strstr(html, "early"));
    assert_null(strstr(html, "<span>d, step"));
}

static void writes_page(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    Run *failed;
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
    char *html = page_of(fixture, &results), *words = NULL, *table = NULL;
    assert_has(html, "a &amp; b");
    assert_has(html, "fast &lt;b&gt; &amp; &quot;more&quot;");
    assert_has(html, "out of memory: 5 &lt; 6");
    assert_has(html, "1.00 k<small class=\"better\">▲ 100.0%</small>");
    assert_has(html, "900 B<small class=\"better\">▼ 25.0%</small>");
    assert_has(html, "The same in all runs: runtime 8.0 s, loss 4.5000, val. loss 4.2500, busy 50.0%, bubble "
                     "12.5%, sent 100 B, MFU 25.0%, efficiency 1.0000.");
    assert_has(html, "base: ");
    assert_has(html, "trace.json");
    assert_has(html, "<svg");
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
                     "style=\"width:50.00%;background:var(--p1);color:var(--l1)\" "
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
    /* Below a run that a study reported: its figures, also those without a column of their own otherwise. */
    CLEANUP(mem_freep) char *study = NULL, *paper = NULL;
    results.runs[0].published = json_pack("{s:f, s:f}", "tokens_per_s", 8000., "steps", 50.);
    assert_ok(table_format(&results, FORMAT_MARKDOWN, &study));
    assert_has(study, "| run | tokens/s | steps |\n");
    assert_has(study, "(baseline) | 6.40 k | 2 |\n| a\\_b\\|c &amp; 50% (published) | 8.00 k | 50 |\n"
                      "| a\\_b\\|c &amp; 50% (vs published) | -20.0% | -96.0% |\n");
    assert_ok(table_format(&results, FORMAT_LATEX, &paper));
    assert_has(paper, "50\\% (vs published) & -20.0\\% & -96.0\\% \\\\\n");
    json_decref(results.runs[0].published);
    /* Without a figure, there is nothing to compare. */
    CLEANUP(mem_freep) char *without = NULL;
    results.runs[0].published = json_pack("{s:s}", "outcome", "out of memory");
    assert_ok(table_format(&results, FORMAT_MARKDOWN, &without));
    assert_has(without, "50% (published) | out of memory |");
    assert_null(strstr(without, "(vs published)"));
    json_decref(results.runs[0].published);
    results.runs[0].published = NULL;
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

/* LaTeX accepts the table, whatever the names are. Without pdflatex only the text is checked. */
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
    if (system("pdflatex --version >/dev/null 2>&1 && kpsewhich booktabs.sty >/dev/null") != 0) return;
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
    results.title = strdup("machines");
    results.command = strdup("weft compare r.json -- --lr '1 < 2'");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "run %d", i);
        snprintf(text, sizeof text, machine, parts[i][0], parts[i][1], parts[i][2]);
        write_run(fixture, name, text, NULL);
        add(&results, fixture, name);
        char *html = page_of(fixture, &results);
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

#define SIZED(tokens, memory, params, mfu)                                                                   \
    "{\"steps\": 6, \"tokens_per_s\": " tokens ", \"samples_per_s\": " tokens                                \
    "e-1, \"params_total\": " params ", \"mfu\": " mfu                                                       \
    ", \"ranks\": [{\"rank\": 0, \"peak_bytes\": {\"total\": " memory "}}]}"

/* Throughput and memory of models of different sizes say nothing about layouts. */
static void sizes_are_not_compared(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    CLEANUP(mem_freep) char *words = NULL;
    write_run(fixture, "a", SIZED("500", "1200", "438000", "0.25"), EVEN);
    write_run(fixture, "b", SIZED("1000", "1600", "438000", "0.25"), EVEN);
    write_run(fixture, "c", SIZED("9000", "120000", "1560000000", "0.125"), EVEN);
    write_run(fixture, "d", SIZED("8", "1000", "8300000000", "0.0625"), EVEN);
    const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) add(&results, fixture, names[i]);
    assert_ok(results_summary(&results, &words));
    assert_has(words, "The models range from 438 k to 8.30 B parameters, so their runs are compared by MFU.");
    assert_has(words,
               "Of the runs with 438 k parameters, “b” is the fastest run at 1.00 k tokens/s, 2.0 times "
               "the throughput of the baseline “a”.");
    assert_has(words, "Of the runs with 438 k parameters, “a” needs the least memory, with a peak of 1.20 kB "
                      "per rank: 25% less than “b”, which needs the most.");
    results.title = strdup("sizes");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results);
    assert_has(html, "<span>Lowest peak memory of the models with 438 k parameters</span><b>1.20 kB</b>");
    results_done(&results);
}

/* The page names the build, with its commit where that is known. */
static void names_build(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    char footer[128];
    write_run(fixture, "a", SUMMARY("500", "1200", "false"), EVEN);
    add(&results, fixture, "a");
    results.title = strdup("build");
    CLEANUP(mem_freep) char *html = page_of(fixture, &results);
    snprintf(footer, sizeof footer, "<footer>Generated by weft %s</footer>", weft_build());
    assert_has(html, footer);
    assert_int_equal(strncmp(weft_build(), WEFT_VERSION, strlen(WEFT_VERSION)), 0);
    if (path_exists(WEFT_SOURCE_DIR "/.git")) assert_has(weft_build(), " (");
    results_done(&results);
}

/* Large factors and small values stay readable. */
static void formats_values(void **state) {
    char text[FORMAT_SIZE];
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

/* Names and other text from files cannot control the terminal: escape sequences in them are printed as
 * '?'. */
static void replaces_control_characters(void **state) {
    static const char name[] = "a\033[2J\tb\x7f\xc2\x9b"
                               "c",
                      clean[] = "a?[2J?b??c";
    const Fixture *fixture = *state;
    Results results = {0};
    Run *failed;
    char *words = NULL, *table = NULL;
    write_run(fixture, name, SUMMARY("500", "1200", "false"), METRICS);
    add(&results, fixture, name);
    assert_ok(results_add(&results, "large", "/nowhere", &failed));
    failed->state = RUN_FAILED;
    failed->error = strdup("bad option \033[31m");
    results.title = strdup("title \033]0;x\007");
    assert_ok(results_summary(&results, &words));
    assert_ok(table_text(&results, (TableLook){.width = 200}, &table));
    char *html = page_of(fixture, &results);
    assert_has(words, clean);
    assert_has(table, clean);
    assert_has(html, clean);
    assert_has(table, "bad option ?[31m");
    assert_has(html, "title ?]0;x?");
    const char *const all[] = {words, table, html};
    for (size_t i = 0; i < 3; i++)
        for (const char *at = all[i]; *at; at++)
            assert_true(((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t') && *at != 0x7f);
    free(words);
    free(table);
    free(html);
    results_done(&results);
}

/* Without gnuplot the page has everything, and its figures are no PDF files. */
static void without_gnuplot(void **state) {
    const Fixture *fixture = *state;
    Results results = {0};
    write_run(fixture, "base", SUMMARY("500", "1200", "false"), EVEN);
    add(&results, fixture, "base");
    results.title = strdup("alone");
    char *path = strdup(getenv("PATH"));
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    char *html = page_of(fixture, &results);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_has(html, " beside it, as SVG and CSV; PDF needs gnuplot.");
    assert_has(html, "<svg");
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
        char *html = page_of(fixture, &results), *table = NULL;
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
    assert_ok(results_add(&results, "waits", "/nowhere", &run));
    assert_ok(run_look(run));
    assert_int_equal(run->state, RUN_WAITING);
    results.title = strdup("none");
    char *html = page_of(fixture, &results);
    assert_has(html, "No run has finished. 1 run has not finished.");
    free(html);
    results_done(&results);
}

int page_tests(void) {
    const struct CMUnitTest tests[] = {TEST(tabulates_epochs),   TEST(formats_values),
                                       TEST(writes_page),        TEST(replaces_control_characters),
                                       TEST(without_gnuplot),    TEST(names_machine),
                                       TEST(formats_tables),     TEST(latex_compiles),
                                       TEST(long_and_odd_names), TEST(diverged_runs_have_failed),
                                       TEST(equal_memory),       TEST(sizes_are_not_compared),
                                       TEST(names_build),        TEST(survives_damage),
                                       TEST(nothing_known),      TEST(shows_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
