/* What figures are drawn with: lines, dots, boxes and texts, in pixels from the top left. A figure is drawn
 * in the same way for the page, whose colors are variables of the style sheet, and for files: SVG in the
 * light theme's colors and, if gnuplot is installed, PDF. */
#ifndef WEFT_REPORT_PEN_H
#define WEFT_REPORT_PEN_H

#include "report/text.h"

/* Colors 0 to 6 are those of series, which everyone can tell apart; then gray, for what is not compared; then
 * those of segments of bars. */
enum { COLOR_GRAY = 7, COLOR_PART, COLOR_SOFT = COLOR_PART + 8, COLOR_LINE, COLOR_INK, COLOR_TRACK, COLORS };
/* In HTML: "var(--c0)". */
const char *color_variable(int color);

typedef enum { PEN_PAGE, PEN_SVG, PEN_PDF } PenTarget;
typedef struct Pen Pen;

typedef struct Stroke {
    int color, dash;   /* dash: one of several patterns; 0: solid */
    double width, gap; /* gap: length of the gaps of a dashed line; 0: by `dash` */
    const char *class; /* of its element in the page; NULL: none */
} Stroke;
enum { DASHES = 4 };

/* A line through points: pen_begin, pen_to for each, pen_end. */
void pen_begin(Pen *pen, Stroke stroke);
void pen_to(Pen *pen, double x, double y);
void pen_end(Pen *pen);
void pen_line(Pen *pen, Stroke stroke, double x, double y, double to_x, double to_y);
void pen_dot(Pen *pen, int color, double radius, double x, double y);
void pen_box(Pen *pen, int color, double x, double y, double to_x, double to_y);
/* `anchor`: 0: the text is right of x, 1: centered, 2: left of it. Its middle is at y. */
void pen_text(Pen *pen, int color, double x, double y, int anchor, const char *text);
void pen_text_upward(Pen *pen, int color, double x, double y, const char *text); /* centered, rotated */
/* Elements of the page that belong together. */
void pen_open(Pen *pen, const char *class);
void pen_close(Pen *pen);

/* What can be drawn. */
typedef struct Picture {
    const char *name; /* letters and dashes: of files and figures */
    double width, height;
    const void *of;
    void (*draw)(Pen *pen, const void *of);
    void (*csv)(FILE *out, const void *of);
} Picture;

/* An <svg> element, without what precedes its attributes: they follow "<svg". */
MUST_USE Status picture_svg(const Picture *picture, PenTarget target, char **ret_svg);

/* The figures of a page. */
typedef struct Figures {
    const char *dir; /* where they are written as files; NULL: nowhere */
    size_t count;    /* drawn so far */
    bool no_pdf;     /* gnuplot is absent or failed */
} Figures;

typedef struct Page Page; /* report/page.h */

/* Writes NAME.svg, NAME.pdf and NAME.csv, and counts the figure. */
MUST_USE Status picture_write(const Picture *picture, Figures *drawn);

#endif
