/* The report page: one self-contained HTML file. It needs no network and no scripts, works in light and dark
 * mode, and adapts to phones. Text from runs and recipes is untrusted and must be written with page_put or
 * put_html. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H

#include "report/bars.h"
#include "report/results.h"

/* A page that is being written. */
struct Page {
    FILE *out;
    Figures drawn;
    bool live;           /* its script follows the events of report/serve.h */
    const char *prefix;  /* of the ids of figures, so that they differ between parts; NULL: none */
    const char *part;    /* precedes the titles of sections; NULL: nothing */
    bool section, group; /* open elements */
    const char *columns[FIGURES + 1]; /* the headings of the open table */
    size_t column_count, cell;        /* cell: the next one of the row */
};

/* Writes the page to `path`, and its plots as SVG, PDF and CSV into a directory beside it, see
 * report/figure_files.h. */
MUST_USE Status page_write(const Results *results, const char *path);

/* The body of a page. */
typedef Status (*PageBody)(Page *page, const void *data);
/* Writes any page and its plots, as page_write does. */
MUST_USE Status page_save(const char *path, PageBody body, const void *data);
/* The same without files of its plots. */
MUST_USE Status page_save_alone(const char *path, PageBody body, const void *data);

/* The same page as text, without files, whose script follows the events of report/serve.h. The caller frees
 * it. */
MUST_USE Status page_text(const Results *results, char **ret_text);

/* ---- building blocks of the page ---- */

/* Opens the page, its header and a list of chips there, which the caller closes with page_header_end. `about`
 * may be NULL. */
void page_begin(Page *page, const char *eyebrow, const char *title, const char *about);
/* A fact in the header. */
void put_chip(Page *page, const char *fmt, ...) PRINTF_LIKE(2, 3);
void page_header_end(Page *page);
/* Ends the page, after notes on its figures. */
void page_end(Page *page);
/* The prefix of ids, or "". */
const char *page_prefix(const Page *page);
/* put_markup into the page. */
void page_put(Page *page, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Opens a section with a heading and an explanatory line. A NULL `lead` omits the line. In print, a section
 * stays on one page if it can. The next section or the end of the page closes it. */
void page_section(Page *page, const char *title, const char *lead);
/* Opens the summary at the top of a page, and its paragraph, which the caller closes. */
void page_verdict(Page *page);
void page_section_end(Page *page);
/* Opens a grid of "plots" or "tiles", until the end of the section or page_group_end. */
void page_group(Page *page, const char *class);
void page_group_end(Page *page);
/* A headline number. `name` says whose it is; `detail` may be empty. */
void put_tile(Page *page, const char *label, const char *number, const char *name, const char *detail);
/* A note below a chart or table, about a run or other thing unless `name` is NULL. */
void put_note(Page *page, const char *name, const char *text);
/* A list of findings, as findings_json makes them; each with its "part", if it has one. */
void page_findings(Page *page, const json_t *findings);
/* An entry of a legend. */
void put_key(Page *page, int color, const char *name);

/* A table: page_table with the names of the columns, which end with NULL, page_table_of with a list of them,
 * or page_figure_table for runs with columns of figures; then for each row page_row, its name and its cells;
 * then page_table_end. Columns whose names are empty are left out, and those after '<' are of text. `class`
 * may be NULL. */
void page_table(Page *page, const char *class, ...) __attribute__((sentinel));
void page_table_of(Page *page, const char *const *names, size_t count);
void page_figure_table(Page *page, const char *class, const size_t *columns, size_t count);
void page_row(Page *page, const char *class);
/* A cell with its column's heading, which phones show beside it. */
void page_cell(Page *page, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same for cells that the caller fills and ends with </td>. */
void page_cell_open(Page *page, const char *class);
/* A cell over all columns. */
void page_wide_cell(Page *page, bool failed, const char *text);
void page_table_end(Page *page);
/* The caption of throughputs. */
const char *rate_detail(const Results *results);

/* Bars of memory by MemTag, the last for programs that state only a total; boxes of timelines by SpanKind. */
enum { MEMORY_TOTAL = 6, MEMORY_PARTS, SPAN_PARTS = 5 };
extern const BarCategory memory_parts[MEMORY_PARTS], span_parts[SPAN_PARTS];
MUST_USE Status bars_add_bytes(BarChart *chart, int part, double bytes);

/* The sections. Each writes nothing if no run has the data. */
typedef Status PageSection(Page *page, const Results *results);
PageSection put_table, put_charts, put_losses, put_samples, put_experts, put_epochs, put_sweeps, put_phases,
    put_timelines, put_memory;
/* Published figures next to ours, and which of the study's conclusions hold. */
PageSection put_study;
/* What the runs ran on, their options, and commands that repeat them. */
PageSection put_machine;

/* The texts of page.css and page.js, from files generated by the build. */
extern const char weft_page_style[], weft_page_script[];

#endif
