/* Plots of curves and points: one description, from which the page's two versions, its script's data and the
 * files are made. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include "base/json.h"
#include "report/pen.h"

typedef struct PlotPoint {
    double x, y;
    double spread;    /* drawn as an error bar; NAN: unknown */
    const char *name; /* for the page's script and CSV; NULL: the series' label */
} PlotPoint;

/* A curve, or points of the same kind. */
typedef struct Series {
    const char *label; /* any text, which is shortened if it is long; NULL: none */
    const char *group; /* of its points, in the CSV's column Plot.groups; NULL: none */
    int color, dash;   /* as in Stroke */
    double width;      /* of the line; 0: dots only */
    double gap;        /* as in Stroke */
    bool dots;
    PlotPoint *points;
    size_t count, capacity;
} Series;

/* LINES are labeled at their right ends or in a legend, and POINTS beside them. */
typedef enum { PLOT_LINES, PLOT_POINTS } PlotKind;

/* How axis labels are written. COUNTS and BYTES choose a unit; POWERS is a logarithmic axis. */
typedef enum { AXIS_PLAIN, AXIS_WHOLE, AXIS_COUNTS, AXIS_BYTES, AXIS_PERCENT, AXIS_POWERS } AxisFormat;

/* Starts from {.name = ..., ...}; ends with plot_done. */
typedef struct Plot {
    PlotKind kind;
    const char *name; /* as in Picture */
    const char *x_label, *y_label;
    const char *groups; /* heading of a further column of the CSV; NULL: no column */
    AxisFormat x_format, y_format;
    bool x_log;
    bool from_zero; /* the y axis starts at 0 */
    bool sorted;    /* points are kept in ascending order of x */
    bool at_points; /* the x axis has numbers at the points, unless there are too many */
    double line;    /* y value of a dashed horizontal reference line, labeled "ideal"; 0: no line */
    Series *series;
    size_t count, capacity;
    TextList texts;
} Plot;

/* Adds a series without points, whose label is copied. */
MUST_USE Status plot_series(Plot *plot, Series look);
/* Adds a point to the last series. The name is copied. */
MUST_USE Status plot_point(Plot *plot, double x, double y, double spread, const char *name);
/* Drops the last series if it has fewer points. */
void plot_require(Plot *plot, size_t least);
/* Sets color and dash pattern of the index-th series of a plot; 28 of them differ. */
void series_style(Series *series, size_t index);
void plot_done(Plot *plot);

/* Writes the plot as a <figure> and as files, unless it has no curves. `detail` follows the caption in small
 * type; both are HTML. */
MUST_USE Status put_plot(Page *page, const Plot *plot, const char *caption, const char *detail);
/* The plot as in files, as picture_svg. */
MUST_USE Status plot_svg(const Plot *plot, char **ret_svg);

#endif
