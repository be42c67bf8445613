/* Plots, drawn by gnuplot: as SVG for the page, and as SVG, PDF and CSV files. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include "base/json.h"

/* Colors 0 to 6 differ for everyone; PLOT_GRAY is for what is not compared. Further series repeat the colors
 * with other dash patterns; pattern 0 is solid. */
enum { PLOT_COLORS = 7, PLOT_GRAY = 7, PLOT_DASHES = 4 };

/* A curve, or the points of one run. The arrays and the label are not owned. */
typedef struct Series {
    const char *label; /* any text; it is shortened if it is long */
    const double *x, *y;
    const double *spread;     /* of the values, drawn as error bars; NULL: none. NAN: unknown */
    const char *const *names; /* of the points, for the page's script and CSV; NULL: the label is theirs */
    const char *group;        /* of its points, in the CSV's column Plot.groups; NULL: none */
    const char *text;         /* PLOT_BARS: written at the end of the bar; NULL: nothing */
    size_t count;
    int color, dash;
    double width; /* line width; 0: points only */
    double gap;   /* length of the gaps of a dashed line; 0: solid */
    bool points;
} Series;

/* LINES are labeled at their right ends or in a legend, and POINTS beside them. A bar is a series with one
 * point, whose y is its length; the first is at the top. */
typedef enum { PLOT_LINES, PLOT_POINTS, PLOT_BARS } PlotKind;

/* How axis labels are written. COUNTS and BYTES choose a unit; POWERS is a logarithmic axis. */
typedef enum { AXIS_PLAIN, AXIS_WHOLE, AXIS_COUNTS, AXIS_BYTES, AXIS_PERCENT, AXIS_POWERS } AxisFormat;

typedef struct Plot {
    PlotKind kind;
    const char *name;              /* letters and dashes only; name of files and prefix of ids in the SVG */
    const char *x_label, *y_label; /* must not contain quotes */
    const Series *series;
    size_t count;
    AxisFormat x_format, y_format;
    bool x_log;
    bool from_zero;       /* the y axis starts at 0 */
    const double *x_tics; /* ascending; NULL: gnuplot chooses */
    size_t x_tic_count;
    const char *groups; /* heading of a further column of the CSV; NULL: no column */
    double line;        /* y value of a dashed horizontal reference line, labeled "ideal"; 0: no line */
} Plot;

/* What a plot becomes; the caller frees it with plot_done. */
typedef struct PlotResult {
    /* <svg> elements whose colors are variables of the page, for wide and narrow columns; NULL: gnuplot is
     * absent or failed. */
    char *svg, *narrow;
    char *plain;  /* the wide one in the light theme's colors, for other files */
    json_t *data; /* ranges and points, for the page's script */
} PlotResult;

void plot_done(PlotResult *result);
/* Draws the plot. With `dir`, also writes NAME.svg, NAME.pdf (if gnuplot can) and NAME.csv there. */
MUST_USE Status plot_draw(const Plot *plot, const char *dir, PlotResult *ret_result);

#endif
