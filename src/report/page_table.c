/* The results table: one row per run, with the difference from the baseline below each value. On phones each
 * row becomes a card whose values carry their column headings. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/page.h"
#include "report/spread.h"
#include "report/table.h"

enum { WIDE_TABLE = 10 }; /* columns */

/* Whether two values tie; those that print alike are the same to a reader. */
static bool is_tie(const Run *a, const Run *b, size_t figure) {
    char one[FORMAT_SIZE], two[FORMAT_SIZE];
    if (figure_is_timed(figure)) return figures_tie(a, b, figure);
    return !strcmp(run_figure_text(one, a, figure, true), run_figure_text(two, b, figure, true));
}

/* Whether the run has the best value of its kind in the column, or ties with it, and some other run has a
 * clearly worse one. */
static bool is_best(const Results *results, const Run *run, FigureId figure) {
    double own = run_figure(run, figure);
    int better = figures[figure].better;
    bool beats = false;
    if (!better || own == 0 || !run_ranked(run, figure)) return false;
    for (size_t i = 0; i < results->count; i++) {
        double other = run_figure(&results->runs[i], figure);
        const Run *rival = &results->runs[i];
        if (rival == run || !run_ranked(rival, figure) || !same_kind(rival, run)) continue;
        bool tie = is_tie(run, rival, figure);
        if (better * other > better * own && !tie) return false;
        beats |= better * (own - other) > 5e-4 * fabs(other) && !tie;
    }
    return beats;
}

static void put_badges(Page *page, const Results *results, const Run *run) {
    bool finished = run->state == RUN_FINISHED, contended = run_contended(run);
    if (run == run_base(results, run) && kind_size(results, run) > 1 && finished)
        page_put(page, "<span class=\"badge\">baseline%s</span>", contended ? " (memory, loss)" : "");
    if (run_predicted(run)) page_put(page, "<span class=\"badge predicted\">predicted</span>");
    if (finished && contended) page_put(page, "<span class=\"badge failed\">%s</span>", run_remark(run));
    if (!finished)
        page_put(page, "<span class=\"badge%s\">%s%s</span>", run->state == RUN_FAILED ? " failed" : "",
                 run_outcome(run), run_shows(run) ? ", partial" : "");
}

/* The layout and the other properties in which the runs differ. */
static void put_layout(Page *page, const Results *results, const Run *run) {
    char layout[LAYOUT_SIZE], number[FORMAT_SIZE];
    const char *precision = results_share(results, "precision") ? NULL : run_text(run, "precision");
    page_put(page, "<small>");
    put_badges(page, results, run);
    page_put(page, "%s", run_layout(run, layout));
    if (results_differ(results, run_params) && isfinite(run_params(run)))
        page_put(page, ", %s parameters", format_count(number, run_params(run)));
    if (results_differ(results, run_batch) && isfinite(run_batch(run)))
        page_put(page, ", batch size %.0f", run_batch(run));
    if (precision) page_put(page, ", %s", precision);
    if (run_predicted(run)) page_put(page, ", for %s", run_predicted(run));
    page_put(page, "</small>");
}

static void put_row(Page *page, const Results *results, const Run *run, const Columns *columns) {
    static const char *const classes[] = {"", "same", "better", "worse"}; /* by Change */
    char text[CELL_SIZE], spread[FORMAT_SIZE];
    bool shows = run_shows(run);
    page_row(page, run->state != RUN_FINISHED && shows ? "partial" : NULL);
    page_put(page, "%s", run->name);
    put_layout(page, results, run);
    if (!shows)
        page_wide_cell(page, run->state == RUN_FAILED, run->error ? run->error : run_state_name(run->state));
    for (size_t i = 0; i < columns->count && shows; i++) {
        size_t f = columns->shown[i];
        page_cell_open(page, is_best(results, run, (FigureId)f) ? "best" : NULL);
        page_put(page, "%s", run_figure_text(text, run, f, true));
        if (*spread_text(spread, run, f, true)) page_put(page, "<small class=\"spread\">%s</small>", spread);
        Change change = change_text(text, run, f, true);
        if (change) page_put(page, "<small class=\"%s\">%s</small>", classes[change], text);
        page_put(page, "</td>");
    }
}

static void put_remarks(Page *page, const Results *results) {
    results_foreach(results, run) {
        if (run->error && run_shows(run)) put_note(page, run->name, run->error);
    }
}

static bool any_partial(const Results *results) {
    results_foreach(results, run) {
        if (run->state != RUN_FINISHED && run_shows(run)) return true;
    }
    return false;
}

static bool has_measured_energy(const Run *run) {
    return !run_predicted(run) && isfinite(run_figure(run, FIGURE_ENERGY));
}

/* Explains the columns that the table has; others are known to everyone. What predicted energy is stands
 * above the table. */
static void put_legend(Page *page, const Results *results, const Columns *columns) {
    static const char *const texts[FIGURES] = {
        [FIGURE_VAL_MEAN] = "Mean val.: mean of all validation losses.",
        [FIGURE_BUSY] = "Busy: share of the step time that ranks spend computing.",
        [FIGURE_PEAK] = "Memory: highest peak of all ranks.",
        [FIGURE_BUBBLE] = "Bubble: share of time that pipeline stages wait for each other.",
        [FIGURE_SENT] = "Sent: bytes sent by all ranks.",
        [FIGURE_BETWEEN] = "Between nodes: those of them that were sent to other nodes.",
        [FIGURE_MFU] = "MFU: model FLOPs utilization, relative to the hardware's peak.",
        [FIGURE_NOISE] = "Noise scale: gradient noise scale in samples ± its standard error.",
        [FIGURE_EFFICIENCY] = "Efficiency: statistical efficiency relative to the baseline's batch size.",
        [FIGURE_GOODPUT] = "Goodput: samples/s times efficiency.",
        [FIGURE_PARAMS] = "Parameters: those of one replica, summed over its ranks; replicated ones count on "
                          "each, and the vocabulary is padded.",
        [FIGURE_COST_TOKENS] = "Cost/M tokens: of a million tokens at this throughput.",
        [FIGURE_COST] = "Cost: of the whole run, setup and evaluation included.",
        [FIGURE_ENERGY] = "Energy: of processors, memory and GPUs after setup, as RAPL and NVML report it.",
        [FIGURE_WORK] = "Params x samples/s: per rank, relative to the baseline.",
    };
    bool any = false;
    for (size_t f = 0; f < FIGURES; f++) {
        bool used = false;
        for (size_t i = 0; i < columns->count; i++) used |= columns->shown[i] == f;
        for (size_t i = 0; i < columns->equal_count; i++) used |= columns->equal[i] == f;
        if (!used || !texts[f] || (f == FIGURE_ENERGY && !results_count(results, has_measured_energy)))
            continue;
        page_put(page, any ? " " : "<p class=\"note\">");
        page_put(page, "%s", texts[f]);
        any = true;
    }
    if (any) page_put(page, "</p>\n");
}

Status put_table(Page *page, const Results *results) {
    Columns columns = results_own_columns(results);
    CLEANUP(mem_freep) char *note = NULL, *trust = NULL;
    TRY(columns_note(results, &columns, &note));
    page_section(
        page, "Results",
        results->count < 2 ? NULL
        : results_spread(results, FIGURE_TOKENS)
            ? "Below each value: its spread (±) and its difference from the baseline (▲ higher, ▼ lower; "
              "tie: "
              "smaller than the spread). Bold: the best value, and those that tie with it."
            : "Below each value: its difference from the baseline (▲ higher, ▼ lower). Bold: the best value, "
              "and those that tie with it.");
    if (*note) page_put(page, "<p class=\"lead\">%s</p>\n", note);
    page_figure_table(page, columns.count > WIDE_TABLE ? "wide" : NULL, columns.shown, columns.count);
    results_foreach(results, run) put_row(page, results, run, &columns);
    page_table_end(page);
    put_remarks(page, results);
    TRY(spread_note(results, &trust));
    if (*trust) put_note(page, NULL, trust);
    if (any_partial(results))
        put_note(page, NULL, "Runs that have not finished show partial results and are not compared.");
    put_legend(page, results, &columns);
    return OK;
}
