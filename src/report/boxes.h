/* Charts of boxes in rows, such as stacked bars and timelines. The page draws them in HTML; these are their
 * files: SVG, PDF and CSV, drawn by gnuplot like the plots. */
#ifndef WEFT_REPORT_BOXES_H
#define WEFT_REPORT_BOXES_H

#include "report/page_plot.h"

typedef struct Box {
    size_t row;
    double from, to;
    int color;            /* n in the style sheet's --pn */
    const char *category; /* constant text */
} Box;

typedef struct BoxRow {
    char *name;
    int rank; /* negative: the row is not of a rank */
} BoxRow;

/* Start from {.name = ..., .x_label = ...}. */
typedef struct BoxChart {
    const char *name, *x_label; /* as in Plot */
    AxisFormat format;
    BoxRow *rows; /* from the top */
    size_t row_count, row_capacity;
    Box *boxes;
    size_t box_count, box_capacity;
} BoxChart;

void boxes_done(BoxChart *chart);
MUST_USE Status boxes_row(BoxChart *chart, const char *name, int rank);
/* Adds a box to the last row. */
MUST_USE Status boxes_add(BoxChart *chart, const char *category, int color, double from, double to);
/* Writes NAME.svg, .pdf and .csv; nothing without boxes or a directory. */
MUST_USE Status boxes_write(const BoxChart *chart, Figures *drawn);

#endif
