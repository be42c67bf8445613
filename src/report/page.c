/* The page from top to bottom: what was compared, the words, then a section for each way to look at it. */
#include "report/page.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/comparable.h"
#include "report/summary.h"

const char *run_color(const Results *results, const Run *run) {
    static const char *const colors[] = {"var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)",
                                         "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)"};
    return colors[(size_t)(run - results->runs) % (sizeof colors / sizeof *colors)];
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

void put_run_name(FILE *out, const Run *run) {
    put_html(out, run->name);
    if (run->state != RUN_FINISHED) fprintf(out, " (%s)", run_outcome(run));
}

void put_section(FILE *out, const char *title, const char *lead) {
    fprintf(out, "<section>\n<h2>%s</h2>\n", title);
    if (lead) fprintf(out, "<p class=\"lead\">%s</p>\n", lead);
}

void put_key(FILE *out, const char *color, const char *name) {
    fprintf(out, "<span><span class=\"swatch\" style=\"background:%s\"></span>", color);
    put_html(out, name);
    fputs("</span>", out);
}

void put_runs_key(FILE *out, const Results *results, bool (*shows)(const Run *run)) {
    fputs("<div class=\"legend\">", out);
    for (size_t i = 0; i < results->count; i++)
        if (shows(&results->runs[i]))
            put_key(out, run_color(results, &results->runs[i]), results->runs[i].name);
    fputs("</div>\n", out);
}

/* ---- the head ---- */

static void put_chip(FILE *out, const char *text) {
    fputs("<span>", out);
    put_html(out, text);
    fputs("</span>", out);
}

/* What all runs have in common. */
static void put_facts(FILE *out, const Results *results) {
    char text[96], number[FORMAT_SIZE];
    const Run *first = results_base(results);
    fputs("<div class=\"chips\">", out);
    if (results->scale) {
        snprintf(text, sizeof text, "scale %.60s", results->scale);
        put_chip(out, text);
    }
    snprintf(text, sizeof text, "%zu run%s", results->count, results->count == 1 ? "" : "s");
    put_chip(out, text);
    if (isfinite(run_params(first)) && !results_differ(results, run_params)) {
        snprintf(text, sizeof text, "%s parameters", format_count(number, run_params(first)));
        put_chip(out, text);
    }
    if (isfinite(run_batch(first)) && !results_differ(results, run_batch)) {
        snprintf(text, sizeof text, "batch %.0f", run_batch(first));
        put_chip(out, text);
    }
    if (results_share(results, "precision")) put_chip(out, results_share(results, "precision"));
    if (results_share(results, "device")) put_chip(out, results_share(results, "device"));
    fputs("</div>\n", out);
}

static void put_head(FILE *out, const Results *results) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
          "content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    put_html(out, results->title);
    fprintf(out, " – weft</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<header>\n",
            weft_page_style);
    fprintf(out, "<p class=\"eyebrow\">%s</p>\n<h1>", results->count > 1 ? "Runs compared" : "A run");
    put_html(out, results->title);
    fputs("</h1>\n", out);
    if (results->about) {
        fputs("<p class=\"about\">", out);
        put_html(out, results->about);
        fputs("</p>\n", out);
    }
    put_facts(out, results);
    fputs("</header>\n", out);
}

/* ---- what came out, in words and large numbers ---- */

static void put_tile(FILE *out, const char *what, const char *number, const char *name, const char *more) {
    fprintf(out, "<div class=\"tile\"><span>%s</span><b>%s</b><em>", what, number);
    put_html(out, name);
    fputs("</em>", out);
    if (more[0]) fprintf(out, "<small>%s</small>", more);
    fputs("</div>\n", out);
}

static void put_best(FILE *out, const Results *results, FigureId figure, const char *what, const char *unit) {
    char number[FORMAT_SIZE], text[FORMAT_SIZE + 16], more[64] = "";
    const Run *best = results_best(results, figure, figures[figure].better);
    if (!best) return;
    double difference = run_difference(results, best, figure);
    if (isfinite(difference))
        snprintf(more, sizeof more, "%.1f %% %s the baseline's", fabs(difference),
                 difference < 0 ? "below" : "above");
    snprintf(text, sizeof text, "%s%s", figure_text(number, figures[figure].unit, run_figure(best, figure)),
             unit);
    put_tile(out, what, text, best->name, more);
}

static void put_agreement(FILE *out, const Results *results) {
    char number[FORMAT_SIZE];
    bool all;
    double apart = losses_apart(results, &all);
    if (!isfinite(apart)) return;
    if (apart == 0)
        snprintf(number, sizeof number, "equal");
    else if (apart < 1e-3)
        snprintf(number, sizeof number, "%.1e", apart);
    else
        snprintf(number, sizeof number, "%.2g %%", 100 * apart);
    put_tile(out, "Loss curves apart, at most", number,
             apart < 1e-3 ? "they coincide" : "they do not coincide", "relative, at any step");
}

static Status put_verdict(FILE *out, const Results *results) {
    CLEANUP(mem_freep) char *words = NULL;
    TRY(results_summary(results, &words));
    fputs("<section class=\"verdict\">\n<p>", out);
    put_html(out, words);
    fputs("</p>\n", out);
    if (results_best(results, FIGURE_TOKENS, 1)) {
        fputs("<div class=\"tiles\">\n", out);
        if (results_differ(results, run_params))
            put_best(out, results, FIGURE_MFU, "Most of the machine's peak", "");
        else
            put_best(out, results, FIGURE_TOKENS, results->count > 1 ? "Fastest" : "Throughput", " tokens/s");
        put_best(out, results, FIGURE_PEAK, results->count > 1 ? "Least memory" : "Memory", "");
        put_agreement(out, results);
        fputs("</div>\n", out);
    }
    fputs("</section>\n", out);
    return OK;
}

static Status put_page(FILE *out, const Results *results, bool *curves) {
    put_head(out, results);
    TRY(put_verdict(out, results));
    put_table(out, results);
    TRY(put_losses(out, results, curves));
    TRY(put_sweeps(out, results, curves));
    put_phases(out, results);
    put_timelines(out, results);
    put_memory(out, results);
    if (!*curves)
        fputs("<p class=\"note\">Curves are drawn by gnuplot, which is not installed where this page was "
              "made.</p>\n",
              out);
    fputs("<footer>Made by weft " WEFT_VERSION "</footer>\n</main>\n</body>\n</html>\n", out);
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
