/* Where everything in a plot goes: ranges of the axes, margins, and places for labels that do not overlap. */
#ifndef WEFT_REPORT_PLOT_LAYOUT_H
#define WEFT_REPORT_PLOT_LAYOUT_H

#include "report/plot.h"

/* An axis in its unit: a power of 1000 with a suffix. */
typedef struct PlotAxis {
    double unit, low, high;
    const char *suffix;
} PlotAxis;

/* A text at a position in pixels from the top left; `before`: it ends there. */
typedef struct PlotLabel {
    char *text;
    double x, y;
    bool before;
    int color; /* -1: like the text of the axes */
} PlotLabel;

typedef struct PlotLayout {
    double width, height;            /* of the picture, in pixels */
    double left, right, top, bottom; /* of the area between the axes */
    PlotAxis x, y;
    PlotLabel *labels;
    size_t label_count;
} PlotLayout;

MUST_USE Status plot_layout(const Plot *plot, PlotLayout *ret_layout);
void plot_layout_done(PlotLayout *layout);

#endif
