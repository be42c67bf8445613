/* A plot as a part of the page. */
#ifndef WEFT_REPORT_PAGE_PLOT_H
#define WEFT_REPORT_PAGE_PLOT_H

#include "report/plot.h"

/* The <figure>, if the plot has a curve. `more` stands small behind the caption. *curves is cleared where it
 * could not be drawn. */
MUST_USE Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *more, bool *curves);

#endif
