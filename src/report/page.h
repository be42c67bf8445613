/* A comparison as one page of HTML that needs nothing else: no network, no scripts, light and dark. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H

#include "report/results.h"

/* Writes the page. *ret_curves is false where curves are missing because there is no gnuplot. */
MUST_USE Status page_write(const Results *results, const char *path, bool *ret_curves);

/* ---- the parts of the page ---- */

enum { RUN_COLORS = 8 };
const char *run_color(const Results *results, const Run *run); /* "#rrggbb" */
/* Text with what means something in HTML written out. */
void put_html(FILE *out, const char *text);
void put_style(FILE *out);
void put_bars(FILE *out, const Results *results);
/* *curves is cleared where they could not be drawn. */
MUST_USE Status put_curves(FILE *out, const Results *results, bool *curves);

#endif
