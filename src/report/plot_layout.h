/* Where everything in a plot goes: ranges of the axes and their numbers, margins, and places for labels that
 * do not overlap. */
#ifndef WEFT_REPORT_PLOT_LAYOUT_H
#define WEFT_REPORT_PLOT_LAYOUT_H

#include "base/format.h"
#include "report/plot.h"

/* An axis in its unit: a power of 1000 with a suffix. */
typedef struct PlotAxis {
    AxisFormat format;
    bool logarithmic;
    double unit, low, high;
    const char *suffix;
} PlotAxis;

/* A text at a position in pixels from the top left; `before`: it ends there. */
typedef struct PlotLabel {
    char *text;
    double x, y;
    bool before;
    int color;
    int sample; /* the series that is drawn as a short line before the text, in a legend; -1: none */
} PlotLabel;

/* Two versions of every plot, with text of the same size. WIDE is for files and for screens, with curves
 * labeled at their ends. NARROW is for phones and for columns on paper, with the names above the curves. */
typedef enum { PLOT_WIDE, PLOT_NARROW, PLOT_VERSIONS } PlotVersion;

typedef struct PlotLayout {
    const Plot *plot;
    double width, height;            /* of the picture, in pixels */
    double left, right, top, bottom; /* of the area between the axes */
    PlotAxis x, y;
    PlotLabel *labels;
    size_t label_count;
    size_t longest; /* characters of a label */
} PlotLayout;

MUST_USE Status plot_layout(const Plot *plot, PlotVersion version, PlotLayout *ret_layout);
void plot_layout_done(PlotLayout *layout);
double plot_x_pixel(const PlotLayout *at, double x);
double plot_y_pixel(const PlotLayout *at, double y);
double plot_text_width(const char *text); /* about, in pixels */

/* An axis from `low` to `high`, in the unit of the format. */
PlotAxis plot_axis(AxisFormat format, double low, double high);
/* Round values within an axis, about `step` of its unit apart or more; returns how many. */
enum { MAX_TICS = 40 };
size_t plot_tics(const PlotAxis *axis, double step, double ret_tics[MAX_TICS]);
/* A value of an axis, in its unit, as text; returns `text`. */
const char *plot_number(const PlotAxis *axis, double value, char text[FORMAT_SIZE]);

#endif
