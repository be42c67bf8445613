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
/* Sets color and dash pattern of the index-th series of a plot; 28 of them differ. */
void series_style(Series *series, size_t index);

#endif
