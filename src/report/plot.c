/* All positions come from plot_layout.c. The page's script finds the point below the pointer with the same
 * numbers. */
#include "report/plot.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/page.h"
#include "report/plot_layout.h"

enum { MAX_POINTS = 800, MAX_LINEAR_TICS = 9 };
#define Y_LABEL 9. /* pixels from the left edge */

/* ---- the description ---- */

Status plot_series(Plot *plot, Series look) {
    TRY(mem_grow(&plot->series, &plot->capacity, plot->count + 1, sizeof *plot->series));
    TRY(texts_keep(&plot->texts, &look.label));
    plot->series[plot->count++] = look;
    return OK;
}

Status plot_point(Plot *plot, double x, double y, double spread, const char *name) {
    Series *series = &plot->series[plot->count - 1];
    TRY(mem_grow(&series->points, &series->capacity, series->count + 1, sizeof *series->points));
    TRY(texts_keep(&plot->texts, &name));
    size_t at = series->count++;
    for (; plot->sorted && at > 0 && series->points[at - 1].x > x; at--)
        series->points[at] = series->points[at - 1];
    series->points[at] = (PlotPoint){x, y, spread, name};
    return OK;
}

void plot_require(Plot *plot, size_t least) {
    if (plot->count && plot->series[plot->count - 1].count < least) free(plot->series[--plot->count].points);
}

void series_style(Series *series, size_t index) {
    series->color = (int)(index % COLOR_GRAY);
    series->dash = (int)(index / COLOR_GRAY % DASHES);
}

void plot_done(Plot *plot) {
    for (size_t i = 0; i < plot->count; i++) free(plot->series[i].points);
    free(plot->series);
    texts_done(&plot->texts);
}

static bool is_kept(const Series *series, size_t i) {
    size_t stride = series->count / MAX_POINTS + 1;
    return i % stride == 0 || i + 1 == series->count;
}

static bool has_spread(const Series *series) {
    for (size_t i = 0; i < series->count; i++)
        if (isfinite(series->points[i].spread)) return true;
    return false;
}

/* ---- axes ---- */

/* The different values of x, in ascending order; 0: too many for an axis. */
static size_t point_tics(const PlotLayout *at, double tics[MAX_TICS]) {
    const Plot *plot = at->plot;
    size_t count = 0, most = at->x.logarithmic ? MAX_TICS : MAX_LINEAR_TICS;
    for (size_t s = 0; s < plot->count && plot->at_points; s++)
        for (size_t i = 0; i < plot->series[s].count; i++) {
            double x = plot->series[s].points[i].x / at->x.unit;
            size_t k = count;
            while (k > 0 && tics[k - 1] > x) k--;
            if (k > 0 && tics[k - 1] == x) continue;
            if (count == most) return 0;
            memmove(tics + k + 1, tics + k, (count++ - k) * sizeof *tics);
            tics[k] = x;
        }
    return count;
}

/* Numbers that would touch the one before are left out. */
static void draw_x_axis(Pen *pen, const PlotLayout *at) {
    static const double gap = 1.5, shortest = 3; /* characters between two numbers, and of a number: "2.5" */
    double tics[MAX_TICS], free_from = -INFINITY;
    size_t count = point_tics(at, tics);
    char text[FORMAT_SIZE];
    snprintf(text, sizeof text, "%.0f", at->x.high);
    double characters = fmax((double)strlen(text), shortest) + (double)strlen(at->x.suffix) + gap;
    double most = (at->right - at->left) / (plot_text_width("0") * characters);
    if (!count) count = plot_tics(&at->x, (at->x.high - at->x.low) / fmax(most, 2), tics);
    for (size_t i = 0; i < count; i++) {
        double x = plot_x_pixel(at, tics[i] * at->x.unit),
               half = plot_text_width(plot_number(&at->x, tics[i], text)) / 2;
        if (x - half < free_from) continue;
        pen_text(pen, COLOR_SOFT, x, at->bottom + 16, 1, text);
        free_from = x + half + 4;
    }
    pen_line(pen, (Stroke){.color = COLOR_LINE, .width = 1}, at->left, at->bottom, at->right, at->bottom);
    pen_text(pen, COLOR_SOFT, (at->left + at->right) / 2, at->bottom + 35, 1, at->plot->x_label);
}

static void draw_y_axis(Pen *pen, const PlotLayout *at) {
    enum { CLOSEST = 26 }; /* pixels between two numbers */
    double tics[MAX_TICS];
    size_t count = plot_tics(&at->y, (at->y.high - at->y.low) / (at->bottom - at->top) * CLOSEST, tics);
    char text[FORMAT_SIZE];
    for (size_t i = 0; i < count; i++) {
        double y = plot_y_pixel(at, tics[i] * at->y.unit);
        pen_line(pen, (Stroke){.color = COLOR_LINE, .width = 1, .class = "gridline"}, at->left, y, at->right,
                 y);
        pen_text(pen, COLOR_SOFT, at->left - 8, y, 2, plot_number(&at->y, tics[i], text));
    }
    pen_text_upward(pen, COLOR_SOFT, Y_LABEL, (at->top + at->bottom) / 2, at->plot->y_label);
}

/* ---- curves ---- */

static Stroke stroke_of(const Series *series) {
    return (Stroke){.color = series->color, .dash = series->dash, .width = series->width, .gap = series->gap};
}

static const Stroke ideal = {.color = COLOR_SOFT, .width = 1.5, .gap = 4};

static void draw_spread(Pen *pen, const Series *series, const PlotPoint *point, const PlotLayout *at) {
    enum { CAP = 4 };
    const Stroke stroke = {.color = series->color, .width = 1.2};
    if (!(point->spread > 0)) return;
    double x = plot_x_pixel(at, point->x), low = plot_y_pixel(at, point->y - point->spread),
           high = plot_y_pixel(at, point->y + point->spread);
    low = fmin(low, at->bottom); /* an axis from zero may end above it */
    pen_line(pen, stroke, x, low, x, high);
    pen_line(pen, stroke, x - CAP, high, x + CAP, high);
    if (low < at->bottom) pen_line(pen, stroke, x - CAP, low, x + CAP, low);
}

static void draw_series(Pen *pen, const Series *series, const PlotLayout *at) {
    double radius = at->plot->kind == PLOT_POINTS ? 4 : 2.8;
    for (size_t i = 0; i < series->count; i++) draw_spread(pen, series, &series->points[i], at);
    if (series->width > 0) pen_begin(pen, stroke_of(series));
    for (size_t i = 0; i < series->count && series->width > 0; i++)
        if (is_kept(series, i))
            pen_to(pen, plot_x_pixel(at, series->points[i].x), plot_y_pixel(at, series->points[i].y));
    if (series->width > 0) pen_end(pen);
    for (size_t i = 0; i < series->count && (series->dots || !(series->width > 0)); i++)
        pen_dot(pen, series->color, radius, plot_x_pixel(at, series->points[i].x),
                plot_y_pixel(at, series->points[i].y));
}

/* The line or dot of a series in the legend, before its label. */
static void draw_sample(Pen *pen, const PlotLayout *at, const PlotLabel *label) {
    enum { FROM = 26, TO = 6 }; /* pixels left of the label */
    const Plot *plot = at->plot;
    size_t sample = (size_t)label->sample;
    if (sample < plot->count && !(plot->series[sample].width > 0))
        pen_dot(pen, label->color, 2.8, label->x - (FROM + TO) / 2., label->y);
    else
        pen_line(pen, sample < plot->count ? stroke_of(&plot->series[sample]) : ideal, label->x - FROM,
                 label->y, label->x - TO, label->y);
}

static void draw_plot(Pen *pen, const void *of) {
    const PlotLayout *at = of;
    const Plot *plot = at->plot;
    draw_y_axis(pen, at);
    draw_x_axis(pen, at);
    for (size_t i = 0; i < at->label_count; i++) {
        const PlotLabel *label = &at->labels[i];
        if (label->sample >= 0) draw_sample(pen, at, label);
        pen_text(pen, label->color, label->x, label->y, label->before ? 2 : 0, label->text);
    }
    pen_open(pen, "curves");
    if (plot->line != 0)
        pen_line(pen, ideal, at->left, plot_y_pixel(at, plot->line), at->right, plot_y_pixel(at, plot->line));
    for (size_t i = 0; i < plot->count; i++) draw_series(pen, &plot->series[i], at);
    pen_close(pen);
}

/* ---- points as data ---- */

/* One line per point; the spread is empty if unknown. */
static void put_points(FILE *out, const void *of) {
    const Plot *plot = ((const PlotLayout *)of)->plot;
    fputs("series,", out);
    put_csv(out, plot->x_label);
    fputc(',', out);
    put_csv(out, plot->y_label);
    fprintf(out, ",spread%s%s\n", plot->groups ? "," : "", plot->groups ? plot->groups : "");
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        for (size_t i = 0; i < series->count; i++) {
            const PlotPoint *point = &series->points[i];
            put_csv(out, point->name ? point->name : series->label ? series->label : "");
            fprintf(out, ",%.10g,%.10g,", point->x, point->y);
            if (point->spread > 0) fprintf(out, "%.6g", point->spread);
            if (plot->groups) fprintf(out, ",%s", series->group ? series->group : "");
            fputc('\n', out);
        }
    }
}

/* The lists of a series' values: x, y, and e and p where there are spreads and names. */
static json_t *series_json(const Series *series, const PlotLayout *at) {
    json_t *x = json_array(), *y = json_array(), *e = json_array(), *p = json_array();
    bool named = series->count && series->points[0].name;
    for (size_t i = 0; i < series->count; i++) {
        const PlotPoint *point = &series->points[i];
        if (!is_kept(series, i)) continue;
        json_array_append_new(x, json_finite(point->x / at->x.unit));
        json_array_append_new(y, json_finite(point->y / at->y.unit));
        json_array_append_new(e, json_finite(point->spread / at->y.unit));
        if (named) json_array_append_new(p, json_string(point->name));
    }
    json_t *json = json_pack("{s:s, s:o, s:o, s:O*, s:O*}", "n", series->label ? series->label : "", "x", x,
                             "y", y, "e", has_spread(series) ? e : NULL, "p", named ? p : NULL);
    json_decref(e);
    json_decref(p);
    return json;
}

static json_t *axis_json(const PlotAxis *axis, const char *label) {
    return json_pack("{s:f, s:f, s:s, s:s, s:b}", "a", axis->low, "b", axis->high, "u", axis->suffix, "n",
                     label, "log", axis->logarithmic);
}

/* Ranges and points, for the page's script. */
static json_t *data_json(const PlotLayout layouts[PLOT_VERSIONS]) {
    const PlotLayout *at = &layouts[PLOT_WIDE]; /* both have the same axes */
    json_t *series = json_array(), *views = json_array();
    for (size_t i = 0; i < at->plot->count; i++)
        json_array_append_new(series, series_json(&at->plot->series[i], at));
    for (const PlotLayout *view = layouts; view < layouts + PLOT_VERSIONS; view++)
        json_array_append_new(views, json_pack("{s:[ffff], s:[ff]}", "box", view->left, view->top,
                                               view->right, view->bottom, "size", view->width, view->height));
    return json_pack("{s:o, s:o, s:o, s:o}", "views", views, "x", axis_json(&at->x, at->plot->x_label), "y",
                     axis_json(&at->y, at->plot->y_label), "s", series);
}

/* ---- the figure ---- */

static Picture picture_of(const PlotLayout *layout) {
    return (Picture){layout->plot->name, layout->width, layout->height, layout, draw_plot, put_points};
}

static void layouts_done(PlotLayout (*layouts)[PLOT_VERSIONS]) {
    for (int i = 0; i < PLOT_VERSIONS; i++) plot_layout_done(&(*layouts)[i]);
}

Status put_plot(Page *page, const Plot *plot, const char *caption, const char *detail) {
    static const char *const classes[PLOT_VERSIONS] = {"wide", "narrow"};
    CLEANUP(layouts_done) PlotLayout layouts[PLOT_VERSIONS] = {0};
    CLEANUP(json_decrefp) json_t *data = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    if (!plot->count) return OK;
    for (PlotVersion i = 0; i < PLOT_VERSIONS; i++) TRY(plot_layout(plot, i, &layouts[i]));
    data = data_json(layouts);
    text = data ? json_serialize(data, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    if (!text) return FAILED("out of memory while drawing a plot");
    page_put(page, "<figure id=\"%s%s\" data-plot=\"%s\"><figcaption>%s<small>%s</small></figcaption>\n",
             page_prefix(page), plot->name, text, caption, detail);
    for (PlotVersion i = 0; i < PLOT_VERSIONS; i++) {
        CLEANUP(mem_freep) char *svg = NULL;
        Picture picture = picture_of(&layouts[i]);
        TRY(picture_svg(&picture, PEN_PAGE, &svg));
        fprintf(page->out, "<svg class=\"%s\"%s", classes[i], svg);
    }
    page_put(page, "</figure>\n");
    Picture picture = picture_of(&layouts[PLOT_WIDE]);
    return picture_write(&picture, &page->drawn);
}

Status plot_svg(const Plot *plot, char **ret_svg) {
    CLEANUP(plot_layout_done) PlotLayout layout = {0};
    TRY(plot_layout(plot, PLOT_WIDE, &layout));
    Picture picture = picture_of(&layout);
    return picture_svg(&picture, PEN_SVG, ret_svg);
}
