/* The study's section: a table with one row per run and source of its values, bars of the study's main
 * figure, and the findings. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/bars.h"
#include "report/page.h"
#include "report/steps.h"
#include "report/study.h"
#include "report/table.h"

/* Figures with published values, in the order of the results table. */
static size_t find_columns(const Results *results, size_t ret_figures[FIGURES]) {
    Columns columns = results_columns(results);
    bool taken[FIGURES] = {false};
    size_t count = 0;
    for (size_t i = 0; i < columns.count; i++) {
        taken[columns.shown[i]] = true;
        if (figure_is_published(results, columns.shown[i])) ret_figures[count++] = columns.shown[i];
    }
    for (size_t f = 0; f < FIGURES; f++)
        if (!taken[f] && figure_is_published(results, f)) ret_figures[count++] = f;
    return count;
}

static void put_text(Page *page, const char *prefix, const char *text) {
    if (text) page_put(page, "%s%s", prefix, text);
}

/* The cluster of the run's prediction. */
static const char *cluster_of(const Run *run) {
    if (run_predicted(run)) return run_predicted(run);
    return run->prediction.predicted;
}

/* ---- table ---- */

static void put_source_row(Page *page, const Results *results, const Run *run, FigureSource source,
                           bool first) {
    char text[FORMAT_SIZE], percent[FORMAT_SIZE];
    size_t column[FIGURES], columns = find_columns(results, column);
    page_row(page, first ? NULL : "more");
    page_put(page, "%s<small>%s", first ? run->name : "", source_name(source));
    if (source == SOURCE_PUBLISHED) {
        put_text(page, ", ", published_text(results, run, "hardware"));
        put_text(page, ", ", json_string_at(run->published, "source"));
    }
    if (source == SOURCE_PREDICTED) put_text(page, ", ", cluster_of(run));
    if (source == SOURCE_PREDICTED) put_text(page, ", ", run_program(run));
    page_put(page, "</small>");
    bool failed = source == SOURCE_PUBLISHED ? published_lacks_memory(run) : !run_has_source(run, source);
    if (failed) page_wide_cell(page, true, source == SOURCE_PUBLISHED ? "out of memory" : run_outcome(run));
    for (size_t i = 0; i < columns && !failed; i++) {
        size_t f = column[i];
        double difference = run_from_published(run, source, f);
        page_cell_open(page, NULL);
        page_put(page, "%s", figure_text(text, figures[f].unit, run_source_figure(run, source, f)));
        if (isfinite(difference))
            page_put(page, "<small>%s</small>", percent_text(percent, difference, true));
        page_put(page, "</td>");
    }
}

/* The sources that a run is shown with: published, and what we have. A run that failed without figures shows
 * its outcome as measured or predicted. */
static bool is_shown(const Run *run, FigureSource source) {
    bool oom = run->state == RUN_FAILED && run->error && strstr(run->error, "as predicted");
    FigureSource own = run_predicted(run) || oom ? SOURCE_PREDICTED : SOURCE_MEASURED;
    return source == SOURCE_PUBLISHED || run_has_source(run, source) ||
           (source == own && run->state == RUN_FAILED);
}

static void put_rows(Page *page, const Results *results, const Run *run) {
    bool first = true;
    for (FigureSource source = 0; source < SOURCES; source++) {
        if (!is_shown(run, source)) continue;
        put_source_row(page, results, run, source, first);
        first = false;
    }
}

static void put_figures(Page *page, const Results *results) {
    size_t column[FIGURES], columns = find_columns(results, column);
    page_figure_table(page, "sources", column, columns);
    results_foreach(results, run) {
        if (run->published) put_rows(page, results, run);
    }
    page_table_end(page);
}

/* ---- bars ---- */

/* The figure to draw: the first of these that most runs have published. */
static bool find_main(const Results *results, size_t *ret_figure) {
    static const FigureId preferred[] = {FIGURE_SAMPLES, FIGURE_TOKENS, FIGURE_EPOCH, FIGURE_STEP,
                                         FIGURE_RUNTIME};
    for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++) {
        *ret_figure = preferred[i];
        if (figure_is_published(results, preferred[i])) return true;
    }
    return false;
}

/* The longest value of a run's sources; 0 if none is drawn, because the study did not report the figure. */
static double longest_of(const Run *run, size_t figure) {
    double longest = 0;
    if (!isfinite(run_source_figure(run, SOURCE_PUBLISHED, figure))) return 0;
    for (FigureSource source = 0; source < SOURCES; source++)
        longest = fmax(longest, run_source_figure(run, source, figure));
    return longest;
}

/* A source as the legend names it: predictions with their program, if there are also weft's. */
static const char *legend_of(char *buffer, const Results *results, FigureSource source) {
    const char *program = NULL;
    bool weft = false;
    results_foreach(results, run) {
        if (!program) program = run_program(run);
        weft |= run_has_source(run, SOURCE_WEFT);
    }
    snprintf(buffer, CELL_SIZE, "%s%s%s", source_name(source), source == SOURCE_PREDICTED && weft ? ", " : "",
             source == SOURCE_PREDICTED && weft ? program : "");
    return buffer;
}

/* Bars of models of different sizes differ by orders of magnitude, so each run then has its own scale. */
static Status put_source_bars(Page *page, const Results *results) {
    static const int colors[SOURCES] = {7, 5, 4, 0};
    BarCategory sources[SOURCES];
    char legends[SOURCES][CELL_SIZE];
    CLEANUP(bars_done) BarChart chart = {.categories = sources, .legend = SOURCES};
    size_t figure;
    double longest = 0, shortest = INFINITY;
    if (!find_main(results, &figure)) return OK;
    for (FigureSource source = 0; source < SOURCES; source++)
        sources[source] = (BarCategory){legend_of(legends[source], results, source), colors[source]};
    results_foreach(results, run) {
        double own = longest_of(run, figure);
        longest = fmax(longest, own);
        if (own > 0) shortest = fmin(shortest, own);
    }
    if (!(longest > 0)) return OK;
    bool each = longest > 20 * shortest;
    results_foreach(results, run) {
        const char *name = run->name;
        for (FigureSource source = 0; source < SOURCES && longest_of(run, figure) > 0; source++) {
            double value = run_source_figure(run, source, figure);
            char text[FORMAT_SIZE];
            if (!isfinite(value)) continue;
            TRY(bars_row(&chart, (BarRow){.name = name,
                                          .value = figure_text(text, figures[figure].unit, value),
                                          .full = each ? longest_of(run, figure) : 0,
                                          .thin = true}));
            TRY(bars_add(&chart, (int)source, value, source_name(source), NULL));
            name = "";
        }
    }
    page_put(page, "<h3>%s%s</h3>\n", figures[figure].heading,
             each ? ", relative to the run's largest value" : "");
    return put_bars(page, &chart);
}

/* ---- losses by step ---- */

static Status put_steps(Page *page, const Results *results) {
    CLEANUP(grid_done) Grid grid = {0};
    TRY(steps_grid(results, &grid));
    if (!grid.count) return OK;
    page_put(page, "<h3>Losses by step</h3>\n");
    grid_page(page, &grid);
    return OK;
}

/* ---- findings ---- */

void page_findings(Page *page, const json_t *findings) {
    const json_t *finding;
    size_t i;
    page_put(page, "<ul class=\"findings\">\n");
    json_array_foreach(findings, i, finding) {
        const char *verdict = json_string_or(finding, "verdict", ""), *part = json_string_at(finding, "part");
        page_put(page, "<li><span class=\"badge%s\">%s</span>%s<small>%s%s%s</small></li>\n",
                 !strcmp(verdict, verdict_name(VERDICT_HOLDS))   ? " holds"
                 : !strcmp(verdict, verdict_name(VERDICT_FAILS)) ? " failed"
                                                                 : "",
                 verdict, json_string_or(finding, "text", "?"), part ? part : "", part ? ": " : "",
                 json_string_or(finding, "detail", ""));
    }
    page_put(page, "</ul>\n");
}

static Status put_verdicts(Page *page, const Results *results) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(json_decrefp) json_t *findings = NULL;
    TRY(findings_json(results, &findings));
    TRY(verdicts_text(findings, "the study's ", &text));
    if (!*text) return OK;
    page_put(page, "<h3>Findings</h3>\n<p>%s</p>\n", text);
    page_findings(page, findings);
    return OK;
}

Status put_study(Page *page, const Results *results) {
    const char *note = published_text(results, NULL, "note");
    bool figures_shown = results_published(results);
    if (!figures_shown && !json_array_size(study_claims(results))) return OK;
    page_section(page, "The study", NULL);
    page_put(page, "<p class=\"lead\">");
    put_text(page, "", published_text(results, NULL, "title"));
    put_text(page, ", on ", published_text(results, NULL, "hardware"));
    put_text(page, ". Source: ", published_text(results, NULL, "source"));
    page_put(page, figures_shown
                       ? ". Below each value of ours: its difference from the published one.</p>\n"
                       : ". These runs have another size, so only its conclusions are compared.</p>\n");
    if (figures_shown) {
        put_figures(page, results);
        TRY(put_source_bars(page, results));
        TRY(put_steps(page, results));
    }
    TRY(put_verdicts(page, results));
    if (note && !results->resized) put_note(page, NULL, note); /* it is about the published figures */
    return OK;
}
