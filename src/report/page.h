/* A comparison as one page of HTML that needs nothing else: no network, no scripts, light and dark. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H

#include "report/results.h"

/* Writes the page. *ret_curves is false where curves are missing because there is no gnuplot. */
MUST_USE Status page_write(const Results *results, const char *path, bool *ret_curves);

/* ---- the parts of the page ---- */

/* A color of the page's: "var(--c3)". */
const char *run_color(const Results *results, const Run *run);
/* Text with what means something in HTML written out. */
void put_html(FILE *out, const char *text);
/* The run's name and, unless it is finished, its state. */
void put_run_name(FILE *out, const Run *run);
/* "<h2>title</h2>" in a section that the caller closes, with a line below that says what is seen; NULL: none.
 */
void put_section(FILE *out, const char *title, const char *lead);
/* A name in a legend. */
void put_key(FILE *out, const char *color, const char *name);
/* The runs and their colors: those that `shows` is true of. */
void put_runs_key(FILE *out, const Results *results, bool (*shows)(const Run *run));

void put_table(FILE *out, const Results *results);
void put_phases(FILE *out, const Results *results);
void put_memory(FILE *out, const Results *results);
void put_timelines(FILE *out, const Results *results);
/* *curves is cleared where they could not be drawn. */
MUST_USE Status put_losses(FILE *out, const Results *results, bool *curves);
MUST_USE Status put_sweeps(FILE *out, const Results *results, bool *curves);

extern const char weft_page_style[]; /* page.css; a generated file has it */

#endif
