/* A plot as an HTML figure. */
#ifndef WEFT_REPORT_PAGE_PLOT_H
#define WEFT_REPORT_PAGE_PLOT_H

#include "report/plot.h"

/* Writes a <figure>, unless the plot has no curves. `detail` follows the caption in small type; both are
 * HTML. Clears *curves if the plot could not be drawn. */
MUST_USE Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *detail, bool *curves);

#endif
