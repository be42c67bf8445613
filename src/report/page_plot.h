/* A plot as an HTML figure, and as files. */
#ifndef WEFT_REPORT_PAGE_PLOT_H
#define WEFT_REPORT_PAGE_PLOT_H

#include "report/plot.h"

/* The figures of a page. */
typedef struct Figures {
    const char *dir; /* where they are written as files; NULL: nowhere */
    size_t count;    /* drawn so far */
    bool missing;    /* a plot could not be drawn */
} Figures;

/* Writes a <figure>, unless the plot has no curves. `detail` follows the caption in small type; both are
 * HTML. */
MUST_USE Status put_plot(FILE *out, const Plot *plot, const char *caption, const char *detail,
                         Figures *drawn);
/* The color of the index-th series of a plot: all differ, until only gray is left. */
int series_color(size_t index);

#endif
