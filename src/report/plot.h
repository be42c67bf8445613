/* Curves as SVG, drawn by gnuplot. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include "base/status.h"

/* A color is "#rrggbb", or "var(--name)" for a page that has such a variable, in light and dark. */
typedef struct Series {
    const double *x, *y;
    size_t count;
    const char *color;
    double width; /* of the line; 0: points alone */
    double gap;   /* dashes with gaps of this length between them; 0: none */
    bool points;
} Series;

/* How numbers on an axis are written. */
typedef enum { AXIS_PLAIN, AXIS_WHOLE, AXIS_COUNTS, AXIS_BYTES, AXIS_PERCENT, AXIS_POWERS } AxisFormat;

typedef struct Plot {
    const char *name;    /* letters: what ids in the SVG begin with */
    const char *x_label; /* what y is, its caption says */
    const Series *series;
    size_t count;
    AxisFormat x_format, y_format; /* powers: of ten, on a logarithmic axis */
    bool x_log;
    bool from_zero;       /* the y axis begins at 0 */
    const double *x_tics; /* where x has numbers, rising; NULL: anywhere */
    size_t x_tic_count;
    double line; /* a thin line at this height, such as an ideal; 0: none */
} Plot;

/* The <svg> element, with a transparent ground and the variables --soft and --line for text and lines.
 * *ret_svg is NULL where there is no gnuplot, or it did not like the plot. To free. */
MUST_USE Status plot_svg(const Plot *plot, char **ret_svg);

#endif
