/* Line and scatter plots as SVG, drawn by gnuplot. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include "base/status.h"

/* One curve; the arrays are not owned. Colors are "#rrggbb", or "var(--name)" for a variable of the page,
 * which can differ between light and dark mode. */
typedef struct Series {
    const double *x, *y;
    size_t count;
    const char *color;
    double width; /* line width; 0: points only */
    double gap;   /* length of the gaps of a dashed line; 0: solid */
    bool points;
} Series;

/* How axis labels are written. COUNTS and BYTES choose a unit; POWERS is a logarithmic axis. */
typedef enum { AXIS_PLAIN, AXIS_WHOLE, AXIS_COUNTS, AXIS_BYTES, AXIS_PERCENT, AXIS_POWERS } AxisFormat;

typedef struct Plot {
    const char *name;    /* letters only; prefix of ids in the SVG */
    const char *x_label; /* must not contain quotes; the y axis has no label */
    const Series *series;
    size_t count;
    AxisFormat x_format, y_format;
    bool x_log;
    bool from_zero;       /* the y axis starts at 0 */
    const double *x_tics; /* ascending; NULL: gnuplot chooses */
    size_t x_tic_count;
    double line; /* y value of a dashed horizontal reference line; 0: no line */
} Plot;

/* Draws the plot as an <svg> element with a transparent background. Text and grid lines use the page's
 * variables
 * --soft and --line. *ret_svg is NULL if gnuplot is not installed or failed; the caller frees it. */
MUST_USE Status plot_svg(const Plot *plot, char **ret_svg);

#endif
