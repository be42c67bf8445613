/* Boxes in rows: bars, stacked bars and timelines. One description, from which the page's HTML and the files
 * are made. All texts are plain and are copied. */
#ifndef WEFT_REPORT_BARS_H
#define WEFT_REPORT_BARS_H

#include "report/plot.h"

typedef struct BarCategory {
    const char *name;
    int color;
} BarCategory;

typedef struct BarRow {
    const char *group;        /* rows of a group have a common heading; NULL: no groups */
    const char *group_more;   /* after it on the page, in parentheses; NULL: nothing */
    const char *group_detail; /* the same in small type */
    const char *name;
    const char *more;   /* after the name on the page, in parentheses; in timelines, not on phones */
    const char *detail; /* below it, in small type */
    const char *value, *value_detail; /* after the bar, and below that in small type */
    const char *note;                 /* below the row */
    double full;                      /* what fills the whole width on the page; 0: the longest row */
    double mark;                      /* where a marker is; 0: none */
    double spread;                    /* of the end of the bar, as a whisker; 0 or NAN: none */
    bool thin;
} BarRow;

typedef struct BarBox {
    size_t row;
    double from, to;
    int category;
    const char *title, *label; /* below the pointer; inside the box if there is room */
} BarBox;

typedef struct BarChart {
    const char *name;    /* as in Picture; NULL: there are no files */
    const char *x_label; /* of the files */
    AxisFormat format;
    bool timeline;            /* boxes begin where they are, and gaps mean something */
    const char *gaps, *marks; /* what they mean; NULL: nothing */
    const BarCategory *categories;
    size_t legend; /* how many of them a legend has; 0: none */
    double least;  /* that the longest row has on the page */
    BarRow *rows;  /* from the top */
    size_t row_count, row_capacity;
    BarBox *boxes;
    size_t box_count, box_capacity;
    TextList texts;
} BarChart;

MUST_USE Status bars_row(BarChart *chart, BarRow row);
/* Adds a box to the last row. */
MUST_USE Status bars_box(BarChart *chart, int category, double from, double to, const char *title,
                         const char *label);
/* The same after the row's other boxes; nothing if it has no length. */
MUST_USE Status bars_add(BarChart *chart, int category, double length, const char *title, const char *label);
void bars_done(BarChart *chart);

/* Writes legend, rows and files. */
MUST_USE Status put_bars(Page *page, const BarChart *chart);

#endif
