/* The page from top to bottom: what was compared, the words, the table, bars, curves. */
#include "report/page.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/words.h"

const char *run_color(const Results *results, const Run *run) {
    static const char *const colors[RUN_COLORS] = {"#3b82f6", "#f59e0b", "#10b981", "#a855f7",
                                                   "#ef4444", "#06b6d4", "#ec4899", "#84cc16"};
    return colors[(size_t)(run - results->runs) % RUN_COLORS];
}

void put_html(FILE *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
    }
}

static void put_head(FILE *out, const Results *results) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
          "content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    put_html(out, results->title);
    fputs(" – weft</title>\n", out);
    put_style(out);
    fputs("</head>\n<body>\n<main>\n<h1>", out);
    put_html(out, results->title);
    if (results->scale) {
        fputs(", ", out);
        put_html(out, results->scale);
    }
    fputs("</h1>\n", out);
    if (results->about) {
        fputs("<p class=\"about\">", out);
        put_html(out, results->about);
        fputs("</p>\n", out);
    }
}

static Status put_words(FILE *out, const Results *results) {
    CLEANUP(mem_freep) char *words = NULL;
    TRY(results_words(results, &words));
    fputs("<section class=\"words\"><p>", out);
    put_html(out, words);
    fputs("</p></section>\n", out);
    return OK;
}

/* ---- the table ---- */

static bool is_best(const Results *results, const Run *run, size_t figure) {
    double own = run_figure(run, figure);
    int better = figures[figure].better;
    bool beats = false;
    if (!better || !isfinite(own) || own == 0 || run->state != RUN_FINISHED) return false;
    for (size_t i = 0; i < results->count; i++) {
        double other = run_figure(&results->runs[i], figure);
        if (&results->runs[i] == run || !isfinite(other) || results->runs[i].state != RUN_FINISHED) continue;
        if (better * other > better * own) return false;
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
    fprintf(out, "<small class=\"%s\">%s%.1f&nbsp;%%</small>", kind,
            same             ? "= "
            : difference > 0 ? "▲ "
                             : "▼ ",
            fabs(difference));
}

static void put_row(FILE *out, const Results *results, const Run *run, size_t columns) {
    char text[FORMAT_SIZE];
    bool shown = false;
    fprintf(out, "<tr><th scope=\"row\"><span class=\"swatch\" style=\"background:%s\"></span>",
            run_color(results, run));
    put_html(out, run->name);
    if (run == results->runs && results->count > 1) fputs("<small>baseline</small>", out);
    if (run->state != RUN_FINISHED) fprintf(out, "<small>%s</small>", run_state_name(run->state));
    fputs("</th>", out);
    for (size_t f = 0; f < FIGURES; f++) shown |= isfinite(run_figure(run, f));
    if (!shown) {
        fprintf(out, "<td class=\"wide\" colspan=\"%zu\">", columns ? columns : 1);
        put_html(out, run->error ? run->error : run_state_name(run->state));
        fputs("</td></tr>\n", out);
        return;
    }
    for (size_t f = 0; f < FIGURES; f++) {
        if (!results_have(results, f)) continue;
        fprintf(out, "<td%s>%s", is_best(results, run, f) ? " class=\"best\"" : "",
                figure_text(text, figures[f].unit, run_figure(run, f)));
        put_difference(out, results, run, f);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void put_table(FILE *out, const Results *results) {
    size_t columns = 0;
    fputs("<section><h2>Results</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">run</th>",
          out);
    for (size_t f = 0; f < FIGURES; f++) {
        if (!results_have(results, f)) continue;
        fprintf(out, "<th scope=\"col\">%s</th>", figures[f].heading);
        columns++;
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < results->count; i++) put_row(out, results, &results->runs[i], columns);
    fputs("</tbody></table></div>\n", out);
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
        if (!run->error || !isfinite(run_figure(run, 3))) continue;
        fputs("<p class=\"note\">", out);
        put_html(out, run->name);
        fputs(": ", out);
        put_html(out, run->error);
        fputs("</p>\n", out);
    }
    fputs(
        "<p class=\"note\">Below each figure: how far it is above ▲ or below ▼ the baseline's. Memory is the "
        "largest peak of a rank, bubble the time that pipeline stages wait for each other, sent the bytes of "
        "all ranks, MFU the part of the machine's measured peak.</p></section>\n",
        out);
}

static Status put_page(FILE *out, const Results *results, bool *curves) {
    put_head(out, results);
    TRY(put_words(out, results));
    put_table(out, results);
    put_bars(out, results);
    TRY(put_curves(out, results, curves));
    fputs("</main>\n</body>\n</html>\n", out);
    return OK;
}

Status page_write(const Results *results, const char *path, bool *ret_curves) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    bool curves = true;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing %s", path);
    Status status = put_page(out, results, &curves);
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    TRY(status);
    if (bad) return FAILED("out of memory while writing %s", path);
    TRY(file_replace(path, text, size));
    *ret_curves = curves;
    return OK;
}
