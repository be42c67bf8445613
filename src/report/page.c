/* Assembles the report page: header, summary with headline tiles, results table, then one section per kind of
 * chart. The page is built in memory and replaces the file atomically. All text from runs goes through
 * put_html. */
#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/version.h"
#include "report/comparable.h"
#include "report/figure_files.h"
#include "report/spread.h"
#include "report/study.h"
#include "report/summary.h"

/* ---- building blocks ---- */

void page_put(Page *page, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put_markup_list(page->out, fmt, &args);
    va_end(args);
}

const char *page_prefix(const Page *page) {
    return page->prefix ? page->prefix : "";
}

void page_group(Page *page, const char *class) {
    page_put(page, "<div class=\"%s\">\n", class);
    page->group = true;
}

void page_group_end(Page *page) {
    if (page->group) page_put(page, "</div>\n");
    page->group = false;
}

void page_section_end(Page *page) {
    page_group_end(page);
    if (page->section) page_put(page, "</section>\n");
    page->section = false;
}

void page_section(Page *page, const char *title, const char *lead) {
    page_section_end(page);
    page_put(page, "<section>\n<h2>%s%s%s</h2>\n", page->part ? page->part : "", page->part ? ": " : "",
             title);
    if (lead) page_put(page, "<p class=\"lead\">%s</p>\n", lead);
    page->section = true;
}

void page_verdict(Page *page) {
    page_put(page, "<section class=\"verdict\">\n<p>");
    page->section = true;
}

void put_note(Page *page, const char *name, const char *text) {
    page_put(page, "<p class=\"note\">%s%s%s</p>\n", name ? name : "", name ? ": " : "", text);
}

void put_key(Page *page, int color, const char *name) {
    page_put(page, "<span><span class=\"swatch\" style=\"background:%s\"></span>%s</span>",
             color_variable(color), name);
}

void put_tile(Page *page, const char *label, const char *number, const char *name, const char *detail) {
    page_put(page, "<div class=\"tile\"><span>%s</span><b>%s</b><em>%s</em>", label, number, name);
    if (detail[0]) page_put(page, "<small>%s</small>", detail);
    page_put(page, "</div>\n");
}

/* ---- tables ---- */

static void begin_table(Page *page, const char *class) {
    page_put(page, "<div class=\"scroll\" tabindex=\"0\"><table");
    if (class) page_put(page, " class=\"%s\"", class);
    page_put(page, ">\n<thead><tr>");
    page->column_count = 0;
}

static void add_column(Page *page, const char *name) {
    bool text = *name == '<';
    if (!*name) return;
    page_put(page, "<th scope=\"col\"");
    if (text) page_put(page, " class=\"left\"");
    page_put(page, ">%s</th>", name + text);
    page->columns[page->column_count++] = name + text;
}

static void begin_rows(Page *page) {
    page_put(page, "</tr></thead>\n<tbody>\n");
}

void page_table(Page *page, const char *class, ...) {
    va_list names;
    va_start(names, class);
    begin_table(page, class);
    for (const char *name; (name = va_arg(names, const char *));) add_column(page, name);
    va_end(names);
    begin_rows(page);
}

void page_table_of(Page *page, const char *const *names, size_t count) {
    begin_table(page, NULL);
    for (size_t i = 0; i < count; i++) add_column(page, names[i]);
    begin_rows(page);
}

void page_figure_table(Page *page, const char *class, const size_t *columns, size_t count) {
    begin_table(page, class);
    add_column(page, "run");
    for (size_t i = 0; i < count; i++) add_column(page, figures[columns[i]].heading);
    begin_rows(page);
}

/* Ends the row's name before its first cell. */
static void end_name(Page *page) {
    if (page->cell++ == 1) page_put(page, "</th>");
}

static void end_row(Page *page) {
    if (page->cell) end_name(page);
    if (page->cell) page_put(page, "</tr>\n");
    page->cell = 0;
}

void page_row(Page *page, const char *class) {
    end_row(page);
    page_put(page, "<tr");
    if (class) page_put(page, " class=\"%s\"", class);
    page_put(page, "><th scope=\"row\">");
    page->cell = 1;
}

void page_cell_open(Page *page, const char *class) {
    end_name(page);
    page_put(page, "<td data-label=\"%s\"", page->columns[page->cell - 1]);
    if (class) page_put(page, " class=\"%s\"", class);
    page_put(page, ">");
}

void page_cell(Page *page, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    page_cell_open(page, NULL);
    put_markup_list(page->out, fmt, &args);
    page_put(page, "</td>");
    va_end(args);
}

void page_wide_cell(Page *page, bool failed, const char *text) {
    size_t columns = page->column_count > 2 ? page->column_count - 1 : 1;
    end_name(page);
    page_put(page, "<td class=\"wide%s\" colspan=\"%zu\">%s</td>", failed ? " failed" : "", columns, text);
}

void page_table_end(Page *page) {
    end_row(page);
    page_put(page, "</tbody></table></div>\n");
}

/* ---- header and end ---- */

void put_chip(Page *page, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    page_put(page, "<span>");
    put_markup_list(page->out, fmt, &args);
    page_put(page, "</span>");
    va_end(args);
}

void page_begin(Page *page, const char *eyebrow, const char *title, const char *about) {
    page_put(page,
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width, initial-scale=1\">\n<title>%s – weft</title>\n<style>\n",
             title);
    fputs(weft_page_style, page->out);
    page_put(page,
             "</style>\n</head>\n<body%s>\n<main>\n<header>\n<p class=\"eyebrow\">%s</p>\n<h1>%s</h1>\n",
             page->live ? " data-live" : "", eyebrow, title);
    if (about) page_put(page, "<p class=\"about\">%s</p>\n", about);
    page_put(page, "<div class=\"chips\">");
}

void page_header_end(Page *page) {
    page_put(page, "</div>\n</header>\n");
}

void page_end(Page *page) {
    const Figures *drawn = &page->drawn;
    page_section_end(page);
    if (drawn->dir && drawn->count) {
        const char *slash = strrchr(drawn->dir, '/');
        page_put(page,
                 "<p class=\"note\">The charts of this page are in the directory %s beside it, as SVG%s "
                 "CSV%s.</p>\n",
                 slash ? slash + 1 : drawn->dir, drawn->no_pdf ? " and" : ", PDF and",
                 drawn->no_pdf ? "; PDF needs gnuplot" : "");
    }
    page_put(page, "<footer>Generated by weft %s</footer>\n</main>\n<script>\n", weft_build());
    fprintf(page->out, "%s</script>\n</body>\n</html>\n", weft_page_script);
}

/* ---- summary ---- */

/* What all runs have in common. */
static void put_chips(Page *page, const Results *results) {
    char number[FORMAT_SIZE];
    const Run *first = results_base(results);
    if (results->scale) put_chip(page, "scale %s", results->scale);
    put_chip(page, "%zu run%s", results->count, PLURAL(results->count));
    if (isfinite(run_params(first)) && !results_differ(results, run_params))
        put_chip(page, "%s parameters", format_count(number, run_params(first)));
    if (isfinite(run_batch(first)) && !results_differ(results, run_batch))
        put_chip(page, "batch size %.0f", run_batch(first));
    if (results_share(results, "precision")) put_chip(page, "%s", results_share(results, "precision"));
    if (results_share(results, "device")) put_chip(page, "%s", results_share(results, "device"));
}

/* "DDP", "DDP, tied with ZeRO-3", "DDP, tied with 3 others". */
static Status best_name(const Results *results, const Run *best, FigureId figure, char **ret_name) {
    const Run *other = NULL;
    size_t count = 0;
    results_foreach(results, run) {
        bool comparable = figure == FIGURE_MFU || same_size(run, best);
        if (run == best || !comparable || !run_ranked(run, figure) || !figures_tie(run, best, figure))
            continue;
        if (!count++) other = run;
    }
    if (!count) return str_dup(best->name, ret_name);
    if (count == 1) return str_format(ret_name, "%s, tied with %s", best->name, other->name);
    return str_format(ret_name, "%s, tied with %zu others", best->name, count);
}

static size_t count_ranked(const Results *results, FigureId figure) {
    size_t count = 0;
    results_foreach(results, run) count += run_ranked(run, figure);
    return count;
}

static Status put_best(Page *page, const Results *results, const Run *like, FigureId figure,
                       const char *label, const char *unit) {
    CLEANUP(mem_freep) char *name = NULL;
    char number[FORMAT_SIZE], text[FORMAT_SIZE + 16], detail[FORMAT_SIZE + 64];
    const Run *best = results_best(results, like, figure, figures[figure].better);
    if (!best) return OK;
    double difference = run_difference(results, best, figure);
    const Run *base = run_base(results, best);
    const char *comma = *spread_text(detail, best, figure, true) ? ", " : "";
    if (isfinite(difference) && best != base && figure_is_timed(figure) && figures_tie(best, base, figure))
        text_append(detail, sizeof detail, "%stied with the baseline", comma);
    else if (isfinite(difference) && figures_settled(best, base, figure))
        text_append(detail, sizeof detail, "%s%.1f%% %s the baseline", comma, fabs(difference),
                    difference < 0 ? "below" : "above");
    snprintf(text, sizeof text, "%s%s", figure_text(number, figures[figure].unit, run_figure(best, figure)),
             unit);
    TRY(best_name(results, best, figure, &name));
    put_tile(page, label, text, name, detail);
    return OK;
}

/* Among the runs of the baseline's size. */
static Status put_least_memory(Page *page, const Results *results) {
    char label[80] = "Peak memory", params[FORMAT_SIZE];
    const Run *base = results_base(results);
    if (results->count > 1) snprintf(label, sizeof label, "Lowest peak memory");
    if (results_differ(results, run_params) && isfinite(run_params(base)))
        snprintf(label, sizeof label, "Lowest peak memory of the models with %s parameters",
                 format_count(params, run_params(base)));
    return put_best(page, results, base, FIGURE_PEAK, label, "");
}

static void put_loss_agreement(Page *page, const Results *results) {
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
    put_tile(page, "Largest loss difference", number,
             difference < 1e-3 ? "the loss curves agree" : "the loss curves diverge",
             "relative, over all steps");
}

static Status put_summary(Page *page, const Results *results) {
    CLEANUP(mem_freep) char *text = NULL, *findings = NULL;
    TRY(results_summary(results, &text));
    TRY(findings_text(results, &findings));
    page_verdict(page);
    page_put(page, "%s%s%s</p>\n", text, *findings ? " " : "", findings);
    if (results_best(results, NULL, FIGURE_TOKENS, 1) || results_best(results, NULL, FIGURE_PEAK, -1)) {
        page_group(page, "tiles");
        if (results_differ(results, run_params))
            TRY(put_best(page, results, NULL, FIGURE_MFU, "Highest MFU", ""));
        else
            TRY(put_best(page, results, NULL, FIGURE_TOKENS,
                         count_ranked(results, FIGURE_TOKENS) > 1 ? "Fastest" : "Throughput", " tokens/s"));
        TRY(put_least_memory(page, results));
        put_loss_agreement(page, results);
    }
    return OK;
}

static PageSection *const sections[] = {put_summary,   put_table,   put_study,  put_charts, put_losses,
                                        put_samples,   put_experts, put_epochs, put_sweeps, put_phases,
                                        put_timelines, put_memory,  put_machine};

static Status put_page(Page *page, const void *data) {
    const Results *results = data;
    page_begin(page, results->count > 1 ? "Comparison" : "Training run", results->title, results->about);
    put_chips(page, results);
    page_header_end(page);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) TRY(sections[i](page, results));
    page_end(page);
    return OK;
}

static Status page_make(Page page, PageBody body, const void *data, char **ret_html, size_t *ret_size) {
    CLEANUP(text_done) Text text = {0};
    TRY(text_open(&text));
    page.out = text.out;
    TRY(body(&page, data));
    return text_take(&text, ret_html, ret_size);
}

Status page_text(const Results *results, char **ret_text) {
    return page_make((Page){.live = true}, put_page, results, ret_text, NULL);
}

Status page_save(const char *path, PageBody body, const void *data) {
    CLEANUP(mem_freep) char *html = NULL, *dir = NULL;
    size_t size = 0;
    TRY(figure_files_begin(path, &dir));
    Status status = page_make((Page){.drawn.dir = dir}, body, data, &html, &size);
    Status ended = figure_files_end(path, dir);
    if (status) status_free(ended);
    TRY(status ? status : ended);
    return file_replace(path, html, size);
}

Status page_save_alone(const char *path, PageBody body, const void *data) {
    CLEANUP(mem_freep) char *html = NULL;
    size_t size = 0;
    TRY(page_make((Page){0}, body, data, &html, &size));
    return file_replace(path, html, size);
}

Status page_write(const Results *results, const char *path) {
    return page_save(path, put_page, results);
}
