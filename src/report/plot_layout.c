#include "report/plot_layout.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum {
    FRAME = 46,       /* below the area, for the numbers of the x axis and its label */
    TOP = 14,         /* above the area */
    BAR_TOP = 6,      /* the same of bars, plus a tenth of a row */
    LINE_GAP = 15,    /* between the base lines of two labels */
    CHAR_WIDTH = 7,   /* about; labels are not measured */
    SIDES = 2,        /* lines above and below a point to try */
    SAMPLE = 28,      /* a line of the legend, and the space after it */
    LEGEND_GAP = 14,  /* between two entries of a legend */
    NARROW_POINT = 18 /* characters of a label beside a point in a narrow plot */
};

#define NEAR_END 0.9 /* of the width: curves that reach it are labeled at their ends */

static const struct {
    double width, height, left; /* `left`: for the numbers of the y axis and its label */
    double row;                 /* height of a bar with the space around it */
    double bar_low, bar_high;
    size_t longest;
} sizes[PLOT_VERSIONS] = {{560, 300, 74, 30, -0.34, 0.34, 26}, {320, 222, 72, 40, -0.45, -0.05, 26}};

void plot_layout_done(PlotLayout *layout) {
    for (size_t i = 0; i < layout->label_count; i++) free(layout->labels[i].text);
    free(layout->labels);
}

/* ---- axes ---- */

static void widen(double *low, double *high, double value) {
    if (!isfinite(value)) return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

/* The largest and smallest value of all series along an axis, with their spreads. */
static void find_range(const Plot *plot, bool of_x, double *ret_low, double *ret_high) {
    *ret_low = INFINITY;
    *ret_high = -INFINITY;
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        for (size_t i = 0; i < series->count; i++) {
            double spread = !of_x && series->spread && isfinite(series->spread[i]) ? series->spread[i] : 0;
            double value = of_x ? series->x[i] : series->y[i];
            widen(ret_low, ret_high, value - spread);
            widen(ret_low, ret_high, value + spread);
        }
    }
    if (!of_x && plot->line != 0) widen(ret_low, ret_high, plot->line);
    if (*ret_low > *ret_high) *ret_low = *ret_high = 0;
}

PlotAxis plot_axis(AxisFormat format, double low, double high) {
    static const char *const counts[] = {"", " k", " M", " B", " T"};
    static const char *const bytes[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    bool is_bytes = format == AXIS_BYTES;
    const char *const *suffixes = is_bytes ? bytes : counts;
    size_t count = is_bytes ? sizeof bytes / sizeof *bytes : sizeof counts / sizeof *counts;
    double largest = fmax(fabs(low), fabs(high));
    PlotAxis axis = {.unit = 1, .suffix = format == AXIS_PERCENT ? "%" : ""};
    if (format == AXIS_COUNTS || is_bytes) axis.suffix = suffixes[0];
    for (size_t i = 1; i < count && (format == AXIS_COUNTS || is_bytes) && largest >= 1000 * axis.unit; i++) {
        axis.unit *= 1000;
        axis.suffix = suffixes[i];
    }
    axis.low = low / axis.unit;
    axis.high = high / axis.unit;
    return axis;
}

double plot_step(double step) {
    double power = pow(10, floor(log10(step)));
    return step <= power ? power : step <= 2 * power ? 2 * power : step <= 5 * power ? 5 * power : 10 * power;
}

/* Adds a share of the range at both ends. */
static void add_margin(PlotAxis *axis, double share, bool logarithmic) {
    if (!(axis->high > axis->low)) { /* a single value */
        axis->high = axis->low == 0 ? 1 : axis->low + 0.1 * fabs(axis->low);
        axis->low = axis->low == 0 ? 0 : axis->low - 0.1 * fabs(axis->low);
    }
    if (logarithmic) {
        double factor = pow(axis->high / axis->low, share);
        axis->low /= factor;
        axis->high *= factor;
        return;
    }
    double margin = share * (axis->high - axis->low);
    axis->low -= margin;
    axis->high += margin;
}

static void find_axes(const Plot *plot, PlotLayout *layout) {
    double low, high;
    find_range(plot, false, &low, &high);
    if (plot->kind == PLOT_BARS) {
        layout->x = plot_axis(plot->y_format, 0, high > 0 ? high : 1);
        layout->x.high *= 1.02;
        layout->y = (PlotAxis){.unit = 1, .low = 0.4, .high = (double)plot->count + 0.6, .suffix = ""};
        return;
    }
    layout->y = plot_axis(plot->y_format, plot->from_zero ? 0 : low, high);
    add_margin(&layout->y, 0.06, plot->y_format == AXIS_POWERS);
    if (plot->from_zero) layout->y.low = 0;
    find_range(plot, true, &low, &high);
    layout->x = plot_axis(plot->x_format, low, high);
    if (plot->kind == PLOT_POINTS || plot->x_log || !(high > low)) add_margin(&layout->x, 0.08, plot->x_log);
    if (plot->kind == PLOT_POINTS && low >= 0 && !plot->x_log) layout->x.low = fmax(layout->x.low, 0);
}

/* ---- pixels ---- */

static double share_of(const PlotAxis *axis, double value, bool logarithmic) {
    if (logarithmic) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

double plot_x_pixel(const Plot *plot, const PlotLayout *at, double x) {
    return at->left + share_of(&at->x, x / at->x.unit, plot->x_log) * (at->right - at->left);
}

static double y_pixel(const Plot *plot, const PlotLayout *at, double y) {
    double share = share_of(&at->y, y / at->y.unit, plot->y_format == AXIS_POWERS);
    return at->bottom - share * (at->bottom - at->top);
}

/* ---- labels ---- */

static size_t length_of(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

Status plot_shorten(const char *text, size_t most, char **ret_text) {
    size_t count = 0, at = 0;
    if (length_of(text) <= most) return str_dup(text, ret_text);
    for (; text[at]; at++) {
        bool starts = ((unsigned char)text[at] & 0xC0) != 0x80;
        if (starts && count++ == most - 1) break;
    }
    return str_format(ret_text, "%.*s…", (int)at, text);
}

double plot_text_width(const char *text) {
    return CHAR_WIDTH * (double)length_of(text);
}

static double widest_label(const Plot *plot, size_t longest) {
    double widest = plot->line != 0 ? plot_text_width("ideal") : 0;
    for (size_t i = 0; i < plot->count; i++)
        if (plot->series[i].label) widest = fmax(widest, plot_text_width(plot->series[i].label));
    return fmin(widest, CHAR_WIDTH * (double)longest);
}

static Status add_label(PlotLayout *layout, const char *text, double x, double y, int color) {
    PlotLabel *label = &layout->labels[layout->label_count];
    TRY(plot_shorten(text, layout->longest, &label->text));
    label->x = x;
    label->y = y;
    label->color = color;
    label->sample = -1;
    layout->label_count++;
    return OK;
}

/* Moves labels that share a column apart, keeping their order, and back into the picture. */
static void spread_out(PlotLayout *layout) {
    PlotLabel *labels = layout->labels;
    size_t count = layout->label_count;
    for (size_t i = 1; i < count; i++) /* by height */
        for (size_t k = i; k > 0 && labels[k].y < labels[k - 1].y; k--) {
            PlotLabel other = labels[k];
            labels[k] = labels[k - 1];
            labels[k - 1] = other;
        }
    double lowest = layout->bottom;
    for (size_t i = 1; i < count; i++) labels[i].y = fmax(labels[i].y, labels[i - 1].y + LINE_GAP);
    for (size_t i = count; i-- > 0; lowest = labels[i].y - LINE_GAP) labels[i].y = fmin(labels[i].y, lowest);
}

static Status label_lines(const Plot *plot, PlotLayout *layout) {
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        if (!series->label || !series->count) continue;
        double y = y_pixel(plot, layout, series->y[series->count - 1]);
        TRY(add_label(layout, series->label, layout->right + 7, y, series->color));
    }
    if (plot->line != 0)
        TRY(add_label(layout, "ideal", layout->right + 7, y_pixel(plot, layout, plot->line), -1));
    spread_out(layout);
    return OK;
}

/* Adds an entry to the legend above the area, in the current line if there is room, and moves the area down.
 */
static Status add_entry(PlotLayout *layout, const char *text, int color, size_t sample) {
    const PlotLabel *last = layout->label_count ? &layout->labels[layout->label_count - 1] : NULL;
    double x = last ? last->x + plot_text_width(last->text) + LEGEND_GAP + SAMPLE : SAMPLE;
    double y = last ? last->y : LINE_GAP / 2.;
    TRY(add_label(layout, text, x, y, color));
    PlotLabel *label = &layout->labels[layout->label_count - 1];
    label->sample = (int)sample;
    if (last && x + plot_text_width(label->text) > layout->width) {
        label->x = SAMPLE;
        label->y += LINE_GAP + 1;
    }
    layout->top = label->y + LINE_GAP + 4;
    return OK;
}

/* The label of the reference line has the sample plot->count. */
static Status put_legend(const Plot *plot, PlotLayout *layout) {
    layout->longest = (size_t)((layout->width - SAMPLE) / CHAR_WIDTH);
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        if (series->label && series->count) TRY(add_entry(layout, series->label, series->color, s));
    }
    return plot->line != 0 ? add_entry(layout, "ideal", -1, plot->count) : OK;
}

/* Beside the bars: names to the left, values to the right. Above them: both in the line above a bar. */
static Status label_bars(const Plot *plot, PlotLayout *layout) {
    bool above = layout->version == PLOT_NARROW;
    double row = (layout->bottom - layout->top) / ((double)plot->count + 0.2);
    double shift = above ? -(layout->bar_high + 0.5) / 2 : 0;
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        double y = layout->top + row * ((double)s + 0.6 + shift);
        TRY(add_label(layout, series->label ? series->label : "", layout->left - (above ? 0 : 8), y, -1));
        layout->labels[layout->label_count - 1].before = !above;
        if (!series->text) continue;
        TRY(add_label(layout, series->text, layout->right + (above ? 0 : 8), y, -1));
        layout->labels[layout->label_count - 1].before = above;
    }
    return OK;
}

static double left_of(const PlotLabel *label) {
    return label->before ? label->x - plot_text_width(label->text) : label->x;
}

static bool overlap(const PlotLabel *a, const PlotLabel *b) {
    return fabs(a->y - b->y) < LINE_GAP - 1 && left_of(a) < left_of(b) + plot_text_width(b->text) &&
           left_of(b) < left_of(a) + plot_text_width(a->text);
}

/* Whether a label covers the marker of a point or, with `whiskers`, its spread. */
static bool covers(const PlotLayout *layout, const Plot *plot, const PlotLabel *label, bool whiskers) {
    enum { MARK = 5, HALF = LINE_GAP / 2 };
    double left = left_of(label), right = left + plot_text_width(label->text);
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        for (size_t i = 0; i < series->count; i++) {
            bool has_spread = whiskers && series->spread && isfinite(series->spread[i]);
            double x = plot_x_pixel(plot, layout, series->x[i]), spread = has_spread ? series->spread[i] : 0;
            double low = y_pixel(plot, layout, series->y[i] - spread),
                   high = y_pixel(plot, layout, series->y[i] + spread);
            if (x + MARK > left && x - MARK < right && low + MARK > label->y - HALF &&
                high - MARK < label->y + HALF)
                return true;
        }
    }
    return false;
}

static bool fits(const PlotLayout *layout, const PlotLabel *label) {
    if (left_of(label) < layout->left || left_of(label) + plot_text_width(label->text) > layout->width)
        return false;
    if (label->y < layout->top + 4 || label->y > layout->bottom - 4) return false;
    for (size_t i = 0; i + 1 < layout->label_count; i++)
        if (overlap(&layout->labels[i], label)) return false;
    return true;
}

/* Finds a place for the last label beside its point: right or left of it, or a line above or below that. */
static bool place_label(const Plot *plot, PlotLayout *layout, double x, double y, bool whiskers) {
    PlotLabel *label = &layout->labels[layout->label_count - 1];
    for (int row = 0; row < 2 * SIDES + 1; row++)
        for (int side = 0; side < 2; side++) {
            label->before = side;
            label->x = x + (side ? -8 : 8);
            label->y = y + LINE_GAP * (row % 2 ? -(row + 1) / 2 : row / 2);
            if (fits(layout, label) && !covers(layout, plot, label, whiskers)) return true;
        }
    return false;
}

/* A point without room beside it has no label; the page shows its name below the pointer. */
static Status label_points(const Plot *plot, PlotLayout *layout) {
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        if (!series->label || !series->count) continue;
        double x = plot_x_pixel(plot, layout, series->x[0]), y = y_pixel(plot, layout, series->y[0]);
        TRY(add_label(layout, series->label, x, y, series->color));
        if (place_label(plot, layout, x, y, true) || place_label(plot, layout, x, y, false)) continue;
        layout->label_count--;
        free(layout->labels[layout->label_count].text);
        layout->labels[layout->label_count].text = NULL;
    }
    return OK;
}

/* Whether a label at the right edge would be far from the end of its curve. */
static bool ends_early(const Plot *plot, const PlotLayout *layout) {
    for (size_t s = 0; s < plot->count; s++) {
        const Series *series = &plot->series[s];
        if (!series->label || !series->count) continue;
        double end = series->x[series->count - 1] / layout->x.unit;
        if (share_of(&layout->x, end, plot->x_log) < NEAR_END) return true;
    }
    return false;
}

/* The margins around the area; `legend`: without its height. */
static void set_margins(const Plot *plot, bool legend, PlotLayout *layout) {
    double widest = widest_label(plot, layout->longest);
    bool bars = plot->kind == PLOT_BARS, narrow = layout->version == PLOT_NARROW;
    bool labeled = plot->kind == PLOT_LINES && widest > 0 && !legend;
    if (bars) {
        layout->height = sizes[layout->version].row * ((double)plot->count + 0.2) + BAR_TOP + FRAME;
        layout->left = narrow ? 4 : widest + 14;
        layout->top = BAR_TOP;
    }
    layout->right = layout->width - (narrow ? 14 : bars ? 118 : labeled ? widest + 12 : 18);
}

Status plot_layout(const Plot *plot, PlotVersion version, PlotLayout *ret_layout) {
    CLEANUP(plot_layout_done)
    PlotLayout layout = {.version = version,
                         .width = sizes[version].width,
                         .height = sizes[version].height,
                         .left = sizes[version].left,
                         .top = TOP,
                         .bar_low = sizes[version].bar_low,
                         .bar_high = sizes[version].bar_high,
                         .longest = sizes[version].longest};
    bool narrow = version == PLOT_NARROW;
    TRY(mem_new(2 * plot->count + 1, sizeof *layout.labels, &layout.labels));
    find_axes(plot, &layout);
    bool legend = plot->kind == PLOT_LINES && (narrow || ends_early(plot, &layout));
    if (narrow && plot->kind == PLOT_POINTS) layout.longest = NARROW_POINT;
    set_margins(plot, legend, &layout);
    if (legend) TRY(put_legend(plot, &layout));
    if (plot->kind != PLOT_BARS) layout.height += layout.top - TOP;
    layout.bottom = layout.height - FRAME;
    if (plot->kind == PLOT_BARS) TRY(label_bars(plot, &layout));
    if (plot->kind == PLOT_POINTS) TRY(label_points(plot, &layout));
    if (plot->kind == PLOT_LINES && !legend) TRY(label_lines(plot, &layout));
    *ret_layout = layout;
    layout = (PlotLayout){0};
    return OK;
}
