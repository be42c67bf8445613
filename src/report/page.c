/* Assembles the report page: header, summary with headline tiles, results table, then one section per kind of
 * chart. The page is built in memory and replaces the file atomically. All text from runs goes through
 * put_html. */
#include "report/page.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "report/comparable.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/summary.h"

void put_html(FILE *out, const char *text) {
    for (int length; *text; text += length) {
        bool space = *text == '\n' || *text == '\t';
        int control = space ? 0 : terminal_control(text);
        length = control ? control : 1;
        switch (control ? '?' : *text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(control ? '?' : *text, out);
        }
    }
}

void put_run_name(FILE *out, const Run *run) {
    put_html(out, run->name);
    if (run->state != RUN_FINISHED)
        fprintf(out, " (%s)", run_outcome(run));
    else if (run_contended(run))
        fputs(" (CPU contention)", out);
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

/* ---- header ---- */

static void put_chip(FILE *out, const char *text) {
    fputs("<span>", out);
    put_html(out, text);
    fputs("</span>", out);
}

/* What all runs have in common. */
static void put_chips(FILE *out, const Results *results) {
    char text[96], number[FORMAT_SIZE];
    const Run *first = results_base(results);
    fputs("<div class=\"chips\">", out);
    if (results->scale) {
        snprintf(text, sizeof text, "scale %.60s", results->scale);
        put_chip(out, text);
    }
    snprintf(text, sizeof text, "%zu run%s", results->count, PLURAL(results->count));
    put_chip(out, text);
    if (isfinite(run_params(first)) && !results_differ(results, run_params)) {
        snprintf(text, sizeof text, "%s parameters", format_count(number, run_params(first)));
        put_chip(out, text);
    }
    if (isfinite(run_batch(first)) && !results_differ(results, run_batch)) {
        snprintf(text, sizeof text, "batch size %.0f", run_batch(first));
        put_chip(out, text);
    }
    if (results_share(results, "precision")) put_chip(out, results_share(results, "precision"));
    if (results_share(results, "device")) put_chip(out, results_share(results, "device"));
    fputs("</div>\n", out);
}

static void put_head(FILE *out, const Results *results, bool live) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
          "content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    put_html(out, results->title);
    fprintf(out, " – weft</title>\n<style>\n%s</style>\n</head>\n<body%s>\n<main>\n<header>\n",
            weft_page_style, live ? " data-live" : "");
    fprintf(out, "<p class=\"eyebrow\">%s</p>\n<h1>", results->count > 1 ? "Comparison" : "Training run");
    put_html(out, results->title);
    fputs("</h1>\n", out);
    if (results->about) {
        fputs("<p class=\"about\">", out);
        put_html(out, results->about);
        fputs("</p>\n", out);
    }
    put_chips(out, results);
    fputs("</header>\n", out);
}

/* ---- summary ---- */

/* A headline number. `name`, which is escaped, says whose it is; `detail` may be empty. */
static void put_tile(FILE *out, const char *label, const char *number, const char *name, const char *detail) {
    fprintf(out, "<div class=\"tile\"><span>%s</span><b>%s</b><em>", label, number);
    put_html(out, name);
    fputs("</em>", out);
    if (detail[0]) fprintf(out, "<small>%s</small>", detail);
    fputs("</div>\n", out);
}

static void put_best(FILE *out, const Results *results, FigureId figure, const char *label,
                     const char *unit) {
    char number[FORMAT_SIZE], text[FORMAT_SIZE + 16], detail[64] = "";
    const Run *best = results_best(results, figure, figures[figure].better);
    if (!best) return;
    double difference = run_difference(results, best, figure);
    if (isfinite(difference))
        snprintf(detail, sizeof detail, "%.1f%% %s the baseline", fabs(difference),
                 difference < 0 ? "below" : "above");
    snprintf(text, sizeof text, "%s%s", figure_text(number, figures[figure].unit, run_figure(best, figure)),
             unit);
    put_tile(out, label, text, best->name, detail);
}

static void put_loss_agreement(FILE *out, const Results *results) {
    char number[FORMAT_SIZE];
    bool all;
    double difference = max_loss_difference(results, &all);
    if (!isfinite(difference)) return;
    if (difference == 0)
        snprintf(number, sizeof number, "none");
    else if (difference < 1e-3)
        difference_text(number, difference);
    else
        snprintf(number, sizeof number, "%.2g%%", 100 * difference);
    put_tile(out, "Largest loss difference", number,
             difference < 1e-3 ? "the loss curves agree" : "the loss curves diverge",
             "relative, over all steps");
}

static Status put_summary(FILE *out, const Results *results) {
    CLEANUP(mem_freep) char *text = NULL, *findings = NULL;
    TRY(results_summary(results, &text));
    TRY(findings_text(results, &findings));
    fputs("<section class=\"verdict\">\n<p>", out);
    put_html(out, text);
    fprintf(out, "%s%s</p>\n", *findings ? " " : "", findings);
    if (results_best(results, FIGURE_TOKENS, 1)) {
        fputs("<div class=\"tiles\">\n", out);
        if (results_differ(results, run_params))
            put_best(out, results, FIGURE_MFU, "Highest MFU", "");
        else
            put_best(out, results, FIGURE_TOKENS, results->count > 1 ? "Fastest" : "Throughput", " tokens/s");
        put_best(out, results, FIGURE_PEAK, results->count > 1 ? "Lowest peak memory" : "Peak memory", "");
        put_loss_agreement(out, results);
        fputs("</div>\n", out);
    }
    fputs("</section>\n", out);
    return OK;
}

static Status put_page(FILE *out, const Results *results, bool live, Figures *drawn) {
    put_head(out, results, live);
    TRY(put_summary(out, results));
    TRY(put_table(out, results));
    TRY(put_study(out, results));
    TRY(put_charts(out, results, drawn));
    TRY(put_losses(out, results, drawn));
    put_epochs(out, results);
    TRY(put_sweeps(out, results, drawn));
    TRY(put_phases(out, results, drawn));
    TRY(put_timelines(out, results, drawn));
    TRY(put_memory(out, results, drawn));
    put_machine(out, results);
    if (drawn->missing)
        fputs("<p class=\"note\">Plots are missing because gnuplot is not installed, or failed, on the host "
              "that generated this page.</p>\n",
              out);
    if (drawn->dir && drawn->count)
        fputs("<p class=\"note\">The charts of this page are in the directory figures beside it, as SVG, PDF "
              "and "
              "CSV.</p>\n",
              out);
    fprintf(out, "<footer>Generated by weft %s</footer>\n</main>\n<script>\n%s</script>\n</body>\n</html>\n",
            WEFT_VERSION, weft_page_script);
    return OK;
}

static Status make_page(const Results *results, bool live, Figures *drawn, char **ret_text,
                        size_t *ret_size) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while writing the page");
    Status status = put_page(out, results, live, drawn);
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    TRY(status);
    if (bad) return FAILED("out of memory while writing the page");
    *ret_text = text;
    *ret_size = size;
    text = NULL;
    return OK;
}

Status page_text(const Results *results, char **ret_text, size_t *ret_size) {
    return make_page(results, true, &(Figures){0}, ret_text, ret_size);
}

/* The directory figures beside the page. Plots of an earlier page with other runs are removed. */
static Status figures_dir(const char *path, char **ret_dir) {
    static const char *const names[] = {
        "throughput",      "memory",          "memory-throughput", "loss-tokens",  "loss-time",
        "validation-loss", "loss-difference", "throughput-batch",  "memory-batch", "scaling",
        "work-size",       "mfu-size",        "time-per-sample",   "memory-ranks", "timeline"};
    static const char *const endings[] = {"svg", "pdf", "csv"};
    const char *slash = strrchr(path, '/');
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(str_format(&dir, "%.*sfigures", slash ? (int)(slash + 1 - path) : 0, path));
    TRY(dir_make(dir));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < 3; k++) {
            CLEANUP(mem_freep) char *file = NULL;
            TRY(str_format(&file, "%s/%s.%s", dir, names[i], endings[k]));
            unlink(file);
        }
    *ret_dir = dir;
    dir = NULL;
    return OK;
}

Status page_write(const Results *results, const char *path, bool *ret_curves) {
    CLEANUP(mem_freep) char *text = NULL, *dir = NULL;
    size_t size = 0;
    TRY(figures_dir(path, &dir));
    Figures drawn = {.dir = dir};
    TRY(make_page(results, false, &drawn, &text, &size));
    if (!drawn.count) rmdir(dir); /* fails if it contains anything */
    TRY(file_replace(path, text, size));
    *ret_curves = !drawn.missing;
    return OK;
}
