/* Curves as SVG, drawn by gnuplot. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include "base/status.h"

typedef struct Series {
    const double *x, *y;
    size_t count;
    const char *color; /* "#rrggbb" */
    double width;      /* of the line */
    double gap;        /* dashes with gaps of this length between them; 0: none */
    bool points;
} Series;

typedef struct Plot {
    const char *name; /* letters: what ids in the SVG begin with */
    const char *x_label, *y_label;
    const Series *series;
    size_t count;
    bool bytes, from_zero; /* of y: in powers of 1000; the axis begins at 0 */
} Plot;

/* The <svg> element, with a transparent ground and gray text, for light and dark pages. *ret_svg is NULL
 * where there is no gnuplot, or it did not like the plot. To free. */
MUST_USE Status plot_svg(const Plot *plot, char **ret_svg);

#endif
