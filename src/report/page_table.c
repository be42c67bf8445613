/* The results table: one row per run, with the difference from the baseline below each value. On phones each
 * row becomes a card whose values carry their column headings. */
#include <math.h>

#include "base/format.h"
#include "report/comparable.h"
#include "report/page.h"

/* Whether the run has the best value in the column, and some other run has a clearly worse one. */
static bool is_best(const Results *results, const Run *run, size_t figure) {
    double own = run_figure(run, figure);
    int better = figures[figure].better;
    bool beats = false;
    if (!better || !isfinite(own) || own == 0 || run->state != RUN_FINISHED) return false;
    for (size_t i = 0; i < results->count; i++) {
        double other = run_figure(&results->runs[i], figure);
        if (&results->runs[i] == run || !isfinite(other) || results->runs[i].state != RUN_FINISHED) continue;
        if (better * other > better * own) return false;
        if (figure_is_quality(figure) && !same_task(&results->runs[i], run)) return false;
        beats |= better * (own - other) > 5e-4 * fabs(other);
    }
    return beats;
}

static void put_difference(FILE *out, const Results *results, const Run *run, size_t figure) {
    double difference = run_difference(results, run, figure);
    int better = figures[figure].better;
    if (!isfinite(difference)) return;
    bool same = fabs(difference) < 0.05;
    const char *kind = same || !better ? "same" : (difference > 0) == (better > 0) ? "better" : "worse";
    fprintf(out, "<small class=\"%s\">%s%.1f%%</small>", kind,
            same             ? "= "
            : difference > 0 ? "▲ "
                             : "▼ ",
            fabs(difference));
}

static void put_badges(FILE *out, const Results *results, const Run *run) {
    bool finished = run->state == RUN_FINISHED;
    if (run == results_base(results) && results->count > 1 && finished)
        fputs("<span class=\"badge\">baseline</span>", out);
    if (run_predicted(run)) fputs("<span class=\"badge predicted\">predicted</span>", out);
    if (!finished)
        fprintf(out, "<span class=\"badge%s\">%s%s</span>", run->state == RUN_FAILED ? " failed" : "",
                run_outcome(run), run_shows(run) ? ", partial" : "");
}

/* The layout and the other properties in which the runs differ. */
static void put_layout(FILE *out, const Results *results, const Run *run) {
    char layout[LAYOUT_SIZE], number[FORMAT_SIZE];
    fputs("<small>", out);
    put_badges(out, results, run);
    put_html(out, run_layout(run, layout));
    if (results_differ(results, run_params) && isfinite(run_params(run)))
        fprintf(out, ", %s parameters", format_count(number, run_params(run)));
    if (results_differ(results, run_batch) && isfinite(run_batch(run)))
        fprintf(out, ", batch size %.0f", run_batch(run));
    if (!results_share(results, "precision") && run_text(run, "precision")) {
        fputs(", ", out);
        put_html(out, run_text(run, "precision"));
    }
    if (run_predicted(run)) {
        fputs(", for ", out);
        put_html(out, run_predicted(run));
    }
    fputs("</small>", out);
}

static void put_row(FILE *out, const Results *results, const Run *run, size_t columns) {
    char text[FORMAT_SIZE];
    bool partial = run->state != RUN_FINISHED;
    fprintf(out, "<tr%s><th scope=\"row\"><span class=\"swatch\" style=\"background:%s\"></span>",
            partial && run_shows(run) ? " class=\"partial\"" : "", run_color(results, run));
    put_html(out, run->name);
    put_layout(out, results, run);
    fputs("</th>", out);
    if (!run_shows(run)) {
        fprintf(out, "<td class=\"wide%s\" colspan=\"%zu\">", run->state == RUN_FAILED ? " failed" : "",
                columns ? columns : 1);
        put_html(out, run->error ? run->error : run_state_name(run->state));
        fputs("</td></tr>\n", out);
        return;
    }
    for (size_t f = 0; f < FIGURES; f++) {
        if (!results_have(results, f)) continue;
        fprintf(out, "<td data-label=\"%s\"%s>%s", figures[f].heading,
                is_best(results, run, f) ? " class=\"best\"" : "", run_figure_text(text, run, f, true));
        put_difference(out, results, run, f);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void put_remarks(FILE *out, const Results *results) {
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!run->error || !run_shows(run)) continue;
        fputs("<p class=\"note\">", out);
        put_html(out, run->name);
        fputs(": ", out);
        put_html(out, run->error);
        fputs("</p>\n", out);
    }
}

static bool any_partial(const Results *results) {
    for (size_t i = 0; i < results->count; i++)
        if (results->runs[i].state != RUN_FINISHED && run_shows(&results->runs[i])) return true;
    return false;
}

void put_table(FILE *out, const Results *results) {
    size_t columns = 0;
    put_section(
        out, "Results",
        results->count > 1
            ? "Below each value: its difference from the baseline (▲ higher, ▼ lower). Bold: the best "
              "value."
            : NULL);
    fputs("<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">run</th>", out);
    for (size_t f = 0; f < FIGURES; f++) {
        if (!results_have(results, f)) continue;
        fprintf(out, "<th scope=\"col\">%s</th>", figures[f].heading);
        columns++;
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < results->count; i++) put_row(out, results, &results->runs[i], columns);
    fputs("</tbody></table></div>\n", out);
    put_remarks(out, results);
    if (any_partial(results))
        fputs(
            "<p class=\"note\">Runs that have not finished show partial results and are not compared.</p>\n",
            out);
    fputs("<p class=\"note\">Mean val.: mean of all validation losses. Busy: share of the step time that "
          "ranks spend computing. Memory: highest peak of "
          "all ranks. Bubble: share of time that pipeline stages wait for each other. Sent: bytes sent by "
          "all ranks. MFU: model FLOPs utilization, relative to the hardware's peak. Noise scale: gradient "
          "noise scale in samples ± its standard error. Efficiency: statistical efficiency relative to the "
          "baseline's batch size. Goodput: samples/s times efficiency.</p>\n</section>\n",
          out);
}
