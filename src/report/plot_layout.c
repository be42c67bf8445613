#include "report/plot_layout.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum {
    FRAME = 46,       /* below the area, for the numbers of the x axis and its label */
    TOP = 14,         /* above the area */
    LINE_GAP = 15,    /* between the base lines of two labels */
    CHAR_WIDTH = 7,   /* about; labels are not measured */
    SIDES = 2,        /* lines above and below a point to try */
    SAMPLE = 28,      /* a line of the legend, and the space after it */
    LEGEND_GAP = 14,  /* between two entries of a legend */
    LONGEST = 26,     /* characters of a label */
    NARROW_POINT = 18 /* the same beside a point in a narrow plot */
};

#define NEAR_END 0.9 /* of the width: curves that reach it are labeled at their ends */

static const struct {
    double width, height, left; /* `left`: for the numbers of the y axis and its label */
} sizes[PLOT_VERSIONS] = {{560, 300, 74}, {320, 222, 72}};

void plot_layout_done(PlotLayout *layout) {
    for (size_t i = 0; i < layout->label_count; i++) free(layout->labels[i].text);
    free(layout->labels);
}

/* ---- axes ---- */

static double spread_of(const PlotPoint *point) {
    return isfinite(point->spread) ? point->spread : 0;
}

static void widen(double *low, double *high, double value) {
    if (!isfinite(value)) return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

/* The largest and smallest value of all series along an axis, with their spreads. */
static void find_range(const Plot *plot, bool of_x, double *ret_low, double *ret_high) {
    *ret_low = INFINITY;
    *ret_high = -INFINITY;
    for (size_t s = 0; s < plot->count; s++)
        for (size_t i = 0; i < plot->series[s].count; i++) {
            const PlotPoint *point = &plot->series[s].points[i];
            double spread = of_x ? 0 : spread_of(point), value = of_x ? point->x : point->y;
            widen(ret_low, ret_high, value - spread);
            widen(ret_low, ret_high, value + spread);
        }
    if (!of_x && plot->line != 0) widen(ret_low, ret_high, plot->line);
    if (*ret_low > *ret_high) *ret_low = *ret_high = 0;
}

PlotAxis plot_axis(AxisFormat format, double low, double high) {
    static const char *const counts[] = {"", " k", " M", " B", " T"};
    static const char *const bytes[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    bool is_bytes = format == AXIS_BYTES, scaled = is_bytes || format == AXIS_COUNTS;
    size_t count = is_bytes ? sizeof bytes / sizeof *bytes : sizeof counts / sizeof *counts, at = 0;
    PlotAxis axis = {.format = format, .unit = 1, .logarithmic = format == AXIS_POWERS};
    while (scaled && at + 1 < count && fmax(fabs(low), fabs(high)) >= 1000 * axis.unit) {
        axis.unit *= 1000;
        at++;
    }
    axis.suffix = scaled ? (is_bytes ? bytes : counts)[at] : format == AXIS_PERCENT ? "%" : "";
    axis.low = low / axis.unit;
    axis.high = high / axis.unit;
    return axis;
}

/* Adds a share of the range at both ends. */
static void add_margin(PlotAxis *axis, double share) {
    if (!(axis->high > axis->low)) { /* a single value */
        axis->high = axis->low == 0 ? 1 : axis->low + 0.1 * fabs(axis->low);
        axis->low = axis->low == 0 ? 0 : axis->low - 0.1 * fabs(axis->low);
    }
    if (axis->logarithmic) {
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
    layout->y = plot_axis(plot->y_format, plot->from_zero ? 0 : low, high);
    add_margin(&layout->y, 0.06);
    if (plot->from_zero) layout->y.low = 0;
    find_range(plot, true, &low, &high);
    layout->x = plot_axis(plot->x_format, low, high);
    layout->x.logarithmic |= plot->x_log;
    if (plot->kind == PLOT_POINTS || plot->x_log || !(high > low)) add_margin(&layout->x, 0.08);
    if (plot->kind == PLOT_POINTS && low >= 0 && !plot->x_log) layout->x.low = fmax(layout->x.low, 0);
}

/* ---- numbers ---- */

/* The smallest of 1, 2 and 5 times a power of ten that is at least `step`. */
static double round_step(double step) {
    double power = pow(10, floor(log10(step)));
    return step <= power ? power : step <= 2 * power ? 2 * power : step <= 5 * power ? 5 * power : 10 * power;
}

/* A logarithmic axis over few powers of ten also has numbers at 2 and 5. */
static size_t power_tics(const PlotAxis *axis, double ret_tics[MAX_TICS]) {
    static const double factors[] = {1, 2, 5};
    size_t count = 0, each = axis->high / axis->low > 300 ? 1 : 3;
    double skip = pow(10, floor(log10(axis->high / axis->low) / 9));
    for (double power = pow(10, floor(log10(axis->low))); power <= axis->high; power *= 10 * skip)
        for (size_t i = 0; i < each && count < MAX_TICS; i++)
            if (power * factors[i] >= axis->low && power * factors[i] <= axis->high)
                ret_tics[count++] = power * factors[i];
    return count;
}

size_t plot_tics(const PlotAxis *axis, double step, double ret_tics[MAX_TICS]) {
    size_t count = 0;
    if (axis->logarithmic) return axis->low > 0 ? power_tics(axis, ret_tics) : 0;
    step = round_step(step);
    if (!(axis->high > axis->low) || !(step > 0)) return 0;
    for (double i = ceil(axis->low / step - 1e-9) + 0.0;
         i * step <= axis->high + 1e-9 * step && count < MAX_TICS; i++)
        ret_tics[count++] = i * step;
    return count;
}

const char *plot_number(const PlotAxis *axis, double value, char text[FORMAT_SIZE]) {
    bool scaled = axis->format == AXIS_COUNTS || axis->format == AXIS_BYTES;
    bool counts = axis->format == AXIS_COUNTS && axis->logarithmic;
    if (counts || (axis->format == AXIS_POWERS && value >= 1)) { /* each in its own unit: "336 M", "1.2 B" */
        PlotAxis own = plot_axis(AXIS_COUNTS, value * axis->unit, value * axis->unit);
        snprintf(text, FORMAT_SIZE, "%.*g%s", counts ? 3 : 4, own.high, own.suffix);
    } else if (axis->format == AXIS_POWERS) {
        snprintf(text, FORMAT_SIZE, "%.0e", value);
    } else if (axis->format == AXIS_WHOLE) {
        snprintf(text, FORMAT_SIZE, "%.0f", value);
    } else {
        snprintf(text, FORMAT_SIZE, "%.4g%s", value, scaled && value == 0 ? "" : axis->suffix);
    }
    return text;
}

/* ---- pixels ---- */

static double share_of(const PlotAxis *axis, double value) {
    value /= axis->unit;
    if (axis->logarithmic) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

double plot_x_pixel(const PlotLayout *at, double x) {
    return at->left + share_of(&at->x, x) * (at->right - at->left);
}

double plot_y_pixel(const PlotLayout *at, double y) {
    return at->bottom - share_of(&at->y, y) * (at->bottom - at->top);
}

/* ---- labels ---- */

double plot_text_width(const char *text) {
    return CHAR_WIDTH * (double)text_length(text);
}

static double widest_label(const Plot *plot, size_t longest) {
    double widest = plot->line != 0 ? plot_text_width("ideal") : 0;
    for (size_t i = 0; i < plot->count; i++)
        if (plot->series[i].label) widest = fmax(widest, plot_text_width(plot->series[i].label));
    return fmin(widest, CHAR_WIDTH * (double)longest);
}

static Status add_label(PlotLayout *layout, const char *text, double x, double y, int color) {
    PlotLabel *label = &layout->labels[layout->label_count];
    TRY(text_shorten(text, layout->longest, &label->text));
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
        double y = plot_y_pixel(layout, series->points[series->count - 1].y);
        TRY(add_label(layout, series->label, layout->right + 7, y, series->color));
    }
    if (plot->line != 0)
        TRY(add_label(layout, "ideal", layout->right + 7, plot_y_pixel(layout, plot->line), COLOR_SOFT));
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
    return plot->line != 0 ? add_entry(layout, "ideal", COLOR_SOFT, plot->count) : OK;
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
            const PlotPoint *point = &series->points[i];
            double x = plot_x_pixel(layout, point->x), spread = whiskers ? spread_of(point) : 0;
            double low = plot_y_pixel(layout, point->y - spread),
                   high = plot_y_pixel(layout, point->y + spread);
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
        double x = plot_x_pixel(layout, series->points[0].x), y = plot_y_pixel(layout, series->points[0].y);
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
        if (share_of(&layout->x, series->points[series->count - 1].x) < NEAR_END) return true;
    }
    return false;
}

Status plot_layout(const Plot *plot, PlotVersion version, PlotLayout *ret_layout) {
    bool narrow = version == PLOT_NARROW, lines = plot->kind == PLOT_LINES;
    CLEANUP(plot_layout_done)
    PlotLayout layout = {.plot = plot,
                         .width = sizes[version].width,
                         .height = sizes[version].height,
                         .left = sizes[version].left,
                         .top = TOP,
                         .longest = narrow && !lines ? NARROW_POINT : LONGEST};
    TRY(mem_new(plot->count + 1, sizeof *layout.labels, &layout.labels));
    find_axes(plot, &layout);
    bool legend = lines && (narrow || ends_early(plot, &layout));
    double widest = widest_label(plot, layout.longest);
    layout.right = layout.width - (narrow ? 14 : lines && widest > 0 && !legend ? widest + 12 : 18);
    if (legend) TRY(put_legend(plot, &layout));
    layout.height += layout.top - TOP;
    layout.bottom = layout.height - FRAME;
    if (!lines) TRY(label_points(plot, &layout));
    if (lines && !legend) TRY(label_lines(plot, &layout));
    *ret_layout = layout;
    layout = (PlotLayout){0};
    return OK;
}
