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
    int color;  /* -1: like the text of the axes */
    int sample; /* the series that is drawn as a short line before the text, in a legend; -1: none */
} PlotLabel;

/* Two versions of every plot, with text of the same size. WIDE is for files and for screens; curves are
 * labeled at their ends and bars beside them. NARROW is for phones and for columns on paper; the names are
 * above the curves and above each bar. */
typedef enum { PLOT_WIDE, PLOT_NARROW, PLOT_VERSIONS } PlotVersion;

typedef struct PlotLayout {
    PlotVersion version;
    double width, height;            /* of the picture, in pixels */
    double left, right, top, bottom; /* of the area between the axes */
    double bar_low, bar_high;        /* edges of a bar relative to its row, which has a height of 1 */
    PlotAxis x, y;
    PlotLabel *labels;
    size_t label_count;
    size_t longest; /* characters of a label */
} PlotLayout;

/* An axis from `low` to `high`, in the unit of the format. */
PlotAxis plot_axis(AxisFormat format, double low, double high);

/* The smallest of 1, 2 and 5 times a power of ten that is at least `step`, for the distance between numbers.
 */
double plot_step(double step);

/* Copies a UTF-8 text, shortened to `most` characters if it is longer; the last one is then an ellipsis. */
MUST_USE Status plot_shorten(const char *text, size_t most, char **ret_text);

/* Parts of gnuplot scripts, for other charts: a quoted text, the SVG terminal, and the same picture as
 * NAME.pdf. */
void plot_put_text(FILE *out, const char *text);
void plot_put_terminal(FILE *out, const char *name, double width, double height);
void plot_put_pdf(FILE *out, const char *name, double width, double height);
void plot_put_csv_text(FILE *out, const char *text);
/* Runs a script and writes NAME.svg and NAME.csv into a directory. */
MUST_USE Status plot_write_files(const char *name, const char *dir, FILE *script, const char *csv,
                                 size_t csv_size);

/* Where a value of the x axis is, and about how wide a text is, in pixels. */
double plot_x_pixel(const Plot *plot, const PlotLayout *at, double x);
double plot_text_width(const char *text);

MUST_USE Status plot_layout(const Plot *plot, PlotVersion version, PlotLayout *ret_layout);
void plot_layout_done(PlotLayout *layout);

#endif
