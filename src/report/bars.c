#include "report/bars.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/page.h"
#include "report/plot_layout.h"

enum { MAX_ROWS = 120 };  /* in files */
#define LABEL_PERCENT 8.0 /* segments of bars at least this wide have a label */

/* ---- the description ---- */

Status bars_row(BarChart *chart, BarRow row) {
    const char **texts[] = {&row.group,  &row.group_more, &row.group_detail, &row.name, &row.more,
                            &row.detail, &row.value,      &row.value_detail, &row.note};
    TRY(mem_grow(&chart->rows, &chart->row_capacity, chart->row_count + 1, sizeof *chart->rows));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) TRY(texts_keep(&chart->texts, texts[i]));
    chart->rows[chart->row_count++] = row;
    return OK;
}

Status bars_box(BarChart *chart, int category, double from, double to, const char *title, const char *label) {
    if (!chart->row_count || !isfinite(from) || !isfinite(to)) return OK;
    TRY(mem_grow(&chart->boxes, &chart->box_capacity, chart->box_count + 1, sizeof *chart->boxes));
    TRY(texts_keep(&chart->texts, &title));
    TRY(texts_keep(&chart->texts, &label));
    chart->boxes[chart->box_count++] = (BarBox){chart->row_count - 1, from, to, category, title, label};
    return OK;
}

Status bars_add(BarChart *chart, int category, double length, const char *title, const char *label) {
    const BarBox *last = chart->box_count ? &chart->boxes[chart->box_count - 1] : NULL;
    double from = last && last->row == chart->row_count - 1 ? last->to : 0;
    return length > 0 ? bars_box(chart, category, from, from + length, title, label) : OK;
}

void bars_done(BarChart *chart) {
    free(chart->rows);
    free(chart->boxes);
    texts_done(&chart->texts);
}

static bool is_used(const BarChart *chart, size_t category) {
    for (size_t i = 0; i < chart->box_count; i++)
        if ((size_t)chart->boxes[i].category == category) return true;
    return false;
}

/* The right end of the longest row, with its marker and whisker. */
static double longest_of(const BarChart *chart) {
    double longest = chart->least;
    for (size_t i = 0; i < chart->row_count; i++) longest = fmax(longest, chart->rows[i].mark);
    for (size_t i = 0; i < chart->box_count; i++) {
        double spread = chart->rows[chart->boxes[i].row].spread;
        longest = fmax(longest, chart->boxes[i].to + (isfinite(spread) ? spread : 0));
    }
    return longest > 0 ? longest : 1;
}

/* ---- the page ---- */

static void put_legend(Page *page, const BarChart *chart) {
    if (!chart->legend) return;
    page_put(page, "<div class=\"legend\">");
    for (size_t i = 0; i < chart->legend; i++)
        if (is_used(chart, i)) put_key(page, chart->categories[i].color, chart->categories[i].name);
    if (chart->gaps) put_key(page, COLOR_TRACK, chart->gaps);
    page_put(page, "</div>\n");
}

/* HTML with one text, unless that is NULL. */
static void put_more(Page *page, const char *fmt, const char *text) {
    if (text) page_put(page, fmt, text);
}

/* Whether a label fits on a phone, on a small screen or paper, or nowhere; and whether a box has no border.
 */
static const char *fit_of(double percent) {
    return percent < 0.5   ? " tiny thin"
           : percent < 1.8 ? " tiny"
           : percent < 3.5 ? " small"
           : percent < 6   ? " tight"
                           : "";
}

static void put_box(Page *page, const BarChart *chart, const BarBox *box, double full) {
    int color = chart->categories[box->category].color;
    double percent = 100 * (box->to - box->from) / full;
    bool labeled = box->label && (chart->timeline || percent >= LABEL_PERCENT);
    if (chart->timeline)
        page_put(page, "<i class=\"%s\" style=\"left:%.3f%%;width:%.3f%%", fit_of(percent),
                 100 * box->from / full, fmax(percent, 0.05));
    else
        page_put(page, "<i style=\"width:%.2f%%", fmin(percent, 100));
    page_put(page, ";background:%s", color_variable(color));
    if (color >= COLOR_PART) page_put(page, ";color:var(--l%d)", color - COLOR_PART);
    put_more(page, "\" title=\"%s", box->title);
    page_put(page, "\">%s</i>", labeled ? box->label : "");
}

static void put_whisker(Page *page, double value, double spread, double full) {
    double from = fmax(value - spread, 0);
    if (spread > 0)
        page_put(page, "<span class=\"whisker\" style=\"left:%.2f%%;width:%.2f%%\"></span>",
                 100 * from / full, 100 * (value + spread - from) / full);
}

/* `box`: the first of the row, or of one after it. Returns the one after its last. */
static size_t put_row(Page *page, const BarChart *chart, size_t at, size_t box, double longest) {
    const BarRow *row = &chart->rows[at];
    double full = row->full > 0 ? row->full : longest, end = 0;
    page_put(page, "<div class=\"%s%s\"><span>%s", chart->timeline ? "line" : "row", row->thin ? " thin" : "",
             row->name);
    put_more(page, chart->timeline ? "<span class=\"more\">, %s</span>" : " (%s)", row->more);
    put_more(page, "<small>%s</small>", row->detail);
    page_put(page, "</span><div class=\"%s\">", chart->timeline ? "track" : "bar");
    for (; box < chart->box_count && chart->boxes[box].row == at; end = chart->boxes[box++].to)
        put_box(page, chart, &chart->boxes[box], full);
    put_whisker(page, end, row->spread, full);
    if (row->mark > 0) {
        page_put(page, "<u style=\"left:calc(%.2f%% - 2px)", 100 * fmin(1, row->mark / full));
        put_more(page, "\" title=\"%s", chart->marks);
        page_put(page, "\"></u>");
    }
    page_put(page, "</div>");
    put_more(page, "<span>%s", row->value);
    put_more(page, "<small>%s</small>", row->value_detail);
    page_put(page, row->value ? "</span></div>\n" : "</div>\n");
    put_more(page, "<p class=\"note\">%s</p>\n", row->note);
    return box;
}

static void put_group(Page *page, const BarChart *chart, const BarRow *row, bool first) {
    if (first)
        page_put(page, "<div class=\"%s\">\n", chart->timeline ? "lines" : "ranks");
    else
        page_put(page, "</div>\n");
    page_put(page, "<div><h3>%s", row->group);
    put_more(page, " (%s)", row->group_more);
    put_more(page, "<small>%s</small>", row->group_detail);
    page_put(page, "</h3>\n");
}

static void put_rows(Page *page, const BarChart *chart) {
    double longest = longest_of(chart);
    const char *group = NULL;
    for (size_t i = 0, box = 0; i < chart->row_count; i++) {
        const BarRow *row = &chart->rows[i];
        if (row->group && (!group || strcmp(group, row->group))) put_group(page, chart, row, !group);
        group = row->group;
        box = put_row(page, chart, i, box, longest);
    }
    if (group) page_put(page, "</div>\n</div>\n");
}

/* ---- files ---- */

enum { WIDTH = 720, ROW = 22, LEFT = 190, RIGHT = 24, VALUES = 130, TOP = 30, BOTTOM = 44, CHAR_WIDTH = 6 };

typedef struct BarFile {
    const BarChart *chart;
    PlotAxis axis;
    double right, top, bottom;
    char **labels; /* of the rows */
} BarFile;

/* "GROUP, NAME" if there are several groups, shortened so that it has at most `most` characters. */
static Status label_of(const BarChart *chart, size_t at, size_t most, char **ret_label) {
    CLEANUP(mem_freep) char *group = NULL;
    const BarRow *row = &chart->rows[at], *last = &chart->rows[chart->row_count - 1];
    if (!row->group || !strcmp(chart->rows->group, last->group))
        return text_shorten(row->name, most, ret_label);
    TRY(text_shorten(row->group, most - text_length(row->name) - 2, &group));
    return str_format(ret_label, "%s, %s", group, row->name);
}

static double x_of(const BarFile *file, double value) {
    return LEFT + (file->right - LEFT) * value / file->axis.unit / file->axis.high;
}

static double y_of(const BarFile *file, size_t row) {
    return file->top + ROW * ((double)row + 0.5);
}

static void draw_frame(Pen *pen, const BarFile *file) {
    enum { TICS = 6 };
    const BarChart *chart = file->chart;
    double tics[MAX_TICS], x = 10;
    char text[FORMAT_SIZE];
    size_t count = plot_tics(&file->axis, file->axis.high / TICS, tics);
    for (size_t i = 0; i < count; i++) {
        double at = x_of(file, tics[i] * file->axis.unit);
        pen_line(pen, (Stroke){.color = COLOR_LINE, .width = 1}, at, file->top, at, file->bottom);
        pen_text(pen, COLOR_SOFT, at, file->bottom + 14, 1, plot_number(&file->axis, tics[i], text));
    }
    pen_text(pen, COLOR_SOFT, (LEFT + file->right) / 2, file->bottom + 32, 1, chart->x_label);
    for (size_t i = 0; i < chart->legend; i++) {
        const BarCategory *category = &chart->categories[i];
        if (!is_used(chart, i)) continue;
        pen_text(pen, category->color, x, TOP / 2., 0, category->name);
        x += CHAR_WIDTH * (double)text_length(category->name) + 14;
    }
}

static void draw_bars(Pen *pen, const void *of) {
    enum { HALF = 8, CAP = 4 };
    const BarFile *file = of;
    const BarChart *chart = file->chart;
    const Stroke ink = {.color = COLOR_INK, .width = 1.2};
    draw_frame(pen, file);
    for (size_t i = 0; i < chart->row_count; i++) {
        const BarRow *row = &chart->rows[i];
        char value[2 * FORMAT_SIZE];
        pen_text(pen, COLOR_SOFT, LEFT - 8, y_of(file, i), 2, file->labels[i]);
        if (chart->legend || !row->value) continue;
        snprintf(value, sizeof value, "%s %s", row->value, row->value_detail ? row->value_detail : "");
        pen_text(pen, COLOR_SOFT, file->right + 8, y_of(file, i), 0, value);
    }
    for (size_t i = 0; i < chart->box_count; i++) {
        const BarBox *box = &chart->boxes[i];
        double y = y_of(file, box->row);
        pen_box(pen, chart->categories[box->category].color, x_of(file, box->from), y - HALF,
                x_of(file, box->to), y + HALF);
    }
    for (size_t i = 0; i < chart->box_count; i++) {
        double end = chart->boxes[i].to, spread = chart->rows[chart->boxes[i].row].spread,
               y = y_of(file, chart->boxes[i].row), low = x_of(file, fmax(end - spread, 0)),
               high = x_of(file, end + spread);
        if (!(spread > 0)) continue;
        pen_line(pen, ink, low, y, high, y);
        pen_line(pen, ink, low, y - CAP, low, y + CAP);
        pen_line(pen, ink, high, y - CAP, high, y + CAP);
    }
}

static void put_boxes(FILE *out, const void *of) {
    const BarFile *file = of;
    const BarChart *chart = file->chart;
    bool single = !chart->legend;
    fputs(single ? "series," : "row,category,from,to\n", out);
    if (single) put_csv(out, chart->x_label);
    if (single) fputs(",spread\n", out);
    for (size_t i = 0; i < chart->box_count; i++) {
        const BarBox *box = &chart->boxes[i];
        const BarRow *row = &chart->rows[box->row];
        CLEANUP(mem_freep) char *label = NULL;
        CLEANUP(status_freep) Status failed = label_of(chart, box->row, SIZE_MAX, &label);
        put_csv(out, label ? label : row->name);
        if (!single)
            fprintf(out, ",\"%s\",%.10g,%.10g\n", chart->categories[box->category].name, box->from, box->to);
        else if (row->spread > 0)
            fprintf(out, ",%.10g,%.6g\n", box->to, row->spread);
        else
            fprintf(out, ",%.10g,\n", box->to);
    }
}

static Status write_bars(const BarChart *chart, Figures *drawn) {
    CLEANUP(texts_done) TextList labels = {0};
    BarFile file = {
        .chart = chart, .axis = plot_axis(chart->format, 0, longest_of(chart)), .right = WIDTH - RIGHT};
    for (size_t i = 0; i < chart->row_count; i++) {
        CLEANUP(mem_freep) char *label = NULL;
        TRY(label_of(chart, i, LEFT / CHAR_WIDTH - 2, &label));
        const char *kept = label;
        TRY(texts_keep(&labels, &kept));
        if (!chart->legend && chart->rows[i].value) file.right = WIDTH - VALUES;
    }
    file.labels = labels.texts;
    file.top = chart->legend > 0 ? TOP : 6;
    file.bottom = file.top + ROW * (double)chart->row_count;
    Picture picture = {chart->name, WIDTH, file.bottom + BOTTOM, &file, draw_bars, put_boxes};
    return picture_write(&picture, drawn);
}

Status put_bars(Page *page, const BarChart *chart) {
    put_legend(page, chart);
    put_rows(page, chart);
    if (!chart->name || !chart->box_count || chart->row_count > MAX_ROWS) return OK;
    return write_bars(chart, &page->drawn);
}
