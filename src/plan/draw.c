/* Both formats draw the same list of boxes per stage: kind, micro-batch, chunk, start and end.
 *
 * In text, every column covers the same time. The shortest box gets as many columns as its label needs, or as
 * fit the width. If boxes are shorter than a column, a column shows what occupies most of it.
 *
 * The SVG is self-contained: colors have a second set for dark mode, later chunks are fainter, and every box
 * has a tooltip. */
#include "plan/draw.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef enum { BOX_FORWARD, BOX_BACKWARD, BOX_WEIGHT, BOX_KINDS } BoxKind;

typedef struct Box {
    BoxKind kind;
    Action action;
    int start, end;
} Box;

/* Returns the next computation of a stage, starting at action *at, and advances *at; false after the last. */
static bool next_box(const Timeline *timeline, int stage, int *at, Box *ret_box) {
    const Schedule *schedule = &timeline->stages[stage];
    while (*at < schedule->count && !action_computes(schedule->action[*at].kind)) ++*at;
    if (*at == schedule->count) return false;
    Action action = schedule->action[*at];
    BoxKind kind = action.kind == ACTION_FORWARD           ? BOX_FORWARD
                   : action.kind == ACTION_BACKWARD_WEIGHT ? BOX_WEIGHT
                                                           : BOX_BACKWARD;
    int end = schedule->end[*at];
    *ret_box = (Box){kind, action, end - action_length(action.kind), end};
    ++*at;
    return true;
}

/* The length of the shortest box. */
static double shortest(const Timeline *timeline) {
    int length = timeline->times.makespan;
    for (int s = 0; s < timeline->count; s++) {
        Box box;
        for (int at = 0; next_box(timeline, s, &at, &box);)
            if (box.end - box.start < length) length = box.end - box.start;
    }
    return length > 0 ? length : 1;
}

static bool has_kind(const Timeline *timeline, BoxKind kind) {
    Box box;
    for (int s = 0; s < timeline->count; s++)
        for (int at = 0; next_box(timeline, s, &at, &box);)
            if (box.kind == kind) return true;
    return false;
}

/* Closes a memory stream and returns its text. */
static Status finish(FILE *stream, char **text, char **ret_text) {
    bool bad = ferror(stream) != 0;
    if (fclose(stream) || bad) {
        free(*text);
        return FAILED("out of memory while drawing the timeline");
    }
    *ret_text = *text;
    return OK;
}

static int digits_of(int number) {
    int digits = 1;
    while (number >= 10) number /= 10, digits++;
    return digits;
}

/* ---- text ---- */

static const char box_letters[BOX_KINDS] = {'F', 'B', 'W'};

enum { LABEL_SIZE = 16, MIXED = 2 * BOX_KINDS };

/* As much of "F3b" as fits `width` columns: without the chunk, or only the kind. */
static void box_label(const Timeline *timeline, const Box *box, int width, char *label) {
    int used = snprintf(label, LABEL_SIZE, "%c%d", box_letters[box->kind], box->action.micro);
    if (used > width)
        label[1] = 0;
    else if (used < width && timeline->stages[0].spec.chunks > 1)
        snprintf(label + used, LABEL_SIZE - (size_t)used, "%c", 'a' + box->action.chunk % 26);
}

/* The columns of one stage. */
typedef struct Columns {
    char *letter;              /* the character shown */
    int *kind;                 /* -1: idle; else kind + BOX_KINDS * (chunk is odd), or MIXED */
    double (*busy)[BOX_KINDS]; /* fraction of the column's time in each kind */
    int count;
    double per_time; /* columns per unit of time */
    bool dense;      /* boxes can be shorter than a column */
} Columns;

static void columns_done(Columns *columns) {
    free(columns->letter);
    free(columns->kind);
    free(columns->busy);
}

static Status columns_init(Columns *ret_columns, const Timeline *timeline, int width) {
    CLEANUP(columns_done) Columns columns = {0};
    double makespan = timeline->times.makespan, unit = shortest(timeline);
    int label = 1 + digits_of(timeline->stages[0].spec.micros - 1) + (timeline->stages[0].spec.chunks > 1);
    columns.per_time = label / unit;
    while (label > 1 && ceil(makespan * columns.per_time) > width) columns.per_time = --label / unit;
    columns.dense = ceil(makespan * columns.per_time) > width;
    if (columns.dense) columns.per_time = width / makespan;
    columns.count = (int)ceil(makespan * columns.per_time - 1e-6);
    if (columns.count < 1) columns.count = 1;
    TRY(mem_new((size_t)columns.count, 1, &columns.letter));
    TRY(mem_new((size_t)columns.count, sizeof *columns.kind, &columns.kind));
    TRY(mem_new((size_t)columns.count, sizeof *columns.busy, &columns.busy));
    return MOVE(ret_columns, columns);
}

static void columns_clear(Columns *columns) {
    memset(columns->letter, '.', (size_t)columns->count);
    memset(columns->busy, 0, (size_t)columns->count * sizeof *columns->busy);
    for (int i = 0; i < columns->count; i++) columns->kind[i] = -1;
}

/* A column that is busy at least half of its time shows its kind if one accounts for 90%, otherwise MIXED. */
static void columns_fill_dense(Columns *columns, const Timeline *timeline, int stage) {
    columns_clear(columns);
    Box box;
    for (int at = 0; next_box(timeline, stage, &at, &box);) {
        double from = box.start * columns->per_time, to = box.end * columns->per_time;
        for (int i = (int)from; i < columns->count && i < to; i++)
            columns->busy[i][box.kind] += fmin(to, i + 1) - fmax(from, i);
    }
    for (int i = 0; i < columns->count; i++) {
        const double *busy = columns->busy[i];
        double all = busy[BOX_FORWARD] + busy[BOX_BACKWARD] + busy[BOX_WEIGHT];
        if (all < 0.5) continue;
        columns->letter[i] = '#';
        columns->kind[i] = MIXED;
        for (int kind = 0; kind < BOX_KINDS; kind++) {
            if (busy[kind] < 0.9 * all) continue;
            columns->letter[i] = box_letters[kind];
            columns->kind[i] = kind;
        }
    }
}

static void columns_fill(Columns *columns, const Timeline *timeline, int stage) {
    columns_clear(columns);
    Box box;
    for (int at = 0; next_box(timeline, stage, &at, &box);) {
        /* The columns whose center the box covers. */
        int from = (int)ceil(box.start * columns->per_time - 0.5 - 1e-6);
        int to = (int)ceil(box.end * columns->per_time - 0.5 - 1e-6);
        if (to > columns->count) to = columns->count;
        char label[LABEL_SIZE];
        box_label(timeline, &box, to - from, label);
        int length = (int)strlen(label);
        for (int i = from; i < to; i++) {
            columns->letter[i] = i - from < length ? label[i - from] : '-';
            columns->kind[i] = (int)box.kind + BOX_KINDS * (box.action.chunk % 2);
        }
    }
}

/* Colors by kind, then by kind for odd chunks, then MIXED. */
static const char *const backgrounds[MIXED + 1] = {"\033[97;44m",  "\033[30;43m",  "\033[30;42m",
                                                   "\033[30;104m", "\033[30;103m", "\033[30;102m",
                                                   "\033[30;47m"};

static void print_columns(const Columns *columns, bool color, FILE *out) {
    for (int i = 0, now = -1; i < columns->count; i++) {
        int kind = columns->kind[i];
        if (color && kind != now) fputs(kind < 0 ? "\033[0m" : backgrounds[kind], out);
        now = kind;
        bool filler = columns->letter[i] == '-' || columns->letter[i] == '.';
        fputc(color && filler ? ' ' : columns->letter[i], out);
    }
    fputs(color ? "\033[0m\n" : "\n", out);
}

static void print_key(const Timeline *timeline, bool dense, bool color, FILE *out) {
    static const char *const names[BOX_KINDS] = {"forward", "backward", "weight gradients"};
    bool split = has_kind(timeline, BOX_WEIGHT);
    for (int kind = 0; kind < BOX_KINDS; kind++) {
        if (!has_kind(timeline, (BoxKind)kind)) continue;
        const char *name = kind == BOX_BACKWARD && split ? "input gradients" : names[kind];
        fprintf(out, "%s%s%c%s %s", kind ? "   " : "", color ? backgrounds[kind] : "", box_letters[kind],
                color ? "\033[0m" : "", name);
    }
    if (dense) fputs("   # mixed", out);
    fputs(color ? "\n" : "   . idle\n", out);
}

Status draw_text(const Timeline *timeline, int width, bool color, char **ret_text) {
    int margin = (int)strlen("stage  ") + digits_of(timeline->count - 1);
    CLEANUP(columns_done) Columns columns = {0};
    TRY(columns_init(&columns, timeline, width > margin + 20 ? width - margin : 20));
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while drawing the timeline");
    for (int s = 0; s < timeline->count; s++) {
        fprintf(out, "stage %-*d ", digits_of(timeline->count - 1), s);
        if (columns.dense)
            columns_fill_dense(&columns, timeline, s);
        else
            columns_fill(&columns, timeline, s);
        print_columns(&columns, color, out);
    }
    print_key(timeline, columns.dense, color, out);
    return finish(out, &text, ret_text);
}

/* ---- SVG ---- */

/* Sizes in pixels. */
enum { MARGIN = 16, NAMES = 62, ROW = 28, GAP = 6, HEAD = 44, FOOT = 78, WIDE = 1400, CELL = 30, TEXT = 7 };

void draw_escaped(const char *text, FILE *out) {
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
    }
}

static const char style[] =
    "<style>\n"
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1d2733 }\n"
    ".page { fill: #ffffff } .track { fill: #eef1f4 } .line { stroke: #b9c1c9 }\n"
    ".f { fill: #8fbcf2 } .b { fill: #f6bd7c } .w { fill: #9ad49a }\n"
    ".n { text-anchor: middle } .title { font-weight: 600; font-size: 15px }\n"
    ".faint, .tick { fill: #5b6773 } .tick { font-size: 10px; text-anchor: middle }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #e7ebef } .page { fill: #14181d } .track { fill: #20262d } .line { stroke: #4a5561 }\n"
    ".f { fill: #2f67ad } .b { fill: #a8631b } .w { fill: #3b7d43 } .n { fill: #ffffff }\n"
    ".faint, .tick { fill: #98a4b0 } }\n"
    "</style>\n";

static const char *const box_classes[BOX_KINDS] = {"f", "b", "w"};

typedef struct Canvas {
    FILE *out;
    const Timeline *timeline;
    double unit, scale; /* length of the shortest box; pixels per unit of time */
    double left, width, height;
} Canvas;

static double row_top(int stage) {
    return HEAD + stage * (ROW + GAP);
}

static double chunk_opacity(const ScheduleSpec *spec, int chunk) {
    return spec->chunks > 1 ? 1 - 0.5 * chunk / (spec->chunks - 1) : 1;
}

static void print_box(const Canvas *canvas, int stage, const Box *box) {
    const ScheduleSpec *spec = &canvas->timeline->stages[stage].spec;
    FILE *out = canvas->out;
    double x = canvas->left + box->start * canvas->scale, top = row_top(stage);
    double width = (box->end - box->start) * canvas->scale;
    double gap = width > 6 ? 1 : width / 8; /* between neighbors */
    fprintf(out, "<g><title>stage %d: %s of micro-batch %d", stage, action_name(box->action.kind),
            box->action.micro);
    if (spec->chunks > 1) fprintf(out, ", chunk %d", box->action.chunk);
    fprintf(out, ", %.4g to %.4g</title>", box->start / canvas->unit, box->end / canvas->unit);
    fprintf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" rx=\"%.1f\"",
            box_classes[box->kind], x + gap / 2, top, width - gap, ROW, width > 12 ? 3.0 : 0.0);
    double opacity = chunk_opacity(spec, box->action.chunk);
    if (opacity < 1) fprintf(out, " fill-opacity=\"%.2f\"", opacity);
    fputs("/>", out);
    if (width >= digits_of(box->action.micro) * TEXT + 3)
        fprintf(out, "<text class=\"n\" x=\"%.2f\" y=\"%.1f\">%d</text>", x + width / 2, top + ROW / 2.0 + 4,
                box->action.micro);
    fputs("</g>\n", out);
}

static void print_row(const Canvas *canvas, int stage) {
    fprintf(canvas->out, "<text x=\"%d\" y=\"%.1f\">stage %d</text>\n", MARGIN,
            row_top(stage) + ROW / 2.0 + 4, stage);
    fprintf(canvas->out, "<rect class=\"track\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>\n",
            canvas->left, row_top(stage), canvas->timeline->times.makespan * canvas->scale, ROW);
    Box box;
    for (int at = 0; next_box(canvas->timeline, stage, &at, &box);) print_box(canvas, stage, &box);
}

/* The time axis, in units of the shortest box, with ticks at least 60 pixels apart. */
static void print_axis(const Canvas *canvas) {
    double units = canvas->timeline->times.makespan / canvas->unit, cell = canvas->unit * canvas->scale;
    double top = row_top(canvas->timeline->count), step = 1;
    static const double factors[] = {2, 2.5, 2}; /* 1, 2, 5, 10 ... */
    for (int i = 0; step * cell < 60; i++) step *= factors[i % 3];
    for (double at = 0; at <= units + 1e-9; at += step) {
        double x = canvas->left + at * cell;
        fprintf(canvas->out, "<line class=\"line\" x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\"/>", x,
                top - 2, x, top + 4);
        fprintf(canvas->out, "<text class=\"tick\" x=\"%.2f\" y=\"%.1f\">%.0f</text>\n", x, top + 16, at);
    }
}

static void print_legend(const Canvas *canvas) {
    static const char *const names[BOX_KINDS] = {"forward", "backward", "weight gradients"};
    bool split = has_kind(canvas->timeline, BOX_WEIGHT);
    double x = canvas->left, y = row_top(canvas->timeline->count) + 30;
    for (int kind = 0; kind < BOX_KINDS; kind++) {
        if (!has_kind(canvas->timeline, (BoxKind)kind)) continue;
        const char *name = kind == BOX_BACKWARD && split ? "input gradients" : names[kind];
        fprintf(canvas->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" rx=\"3\"/>",
                box_classes[kind], x, y);
        fprintf(canvas->out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 20, y + 11.5, name);
        x += 20 + (double)strlen(name) * TEXT + 16;
    }
    if (canvas->timeline->stages[0].spec.chunks > 1)
        fprintf(canvas->out, "<text class=\"faint\" x=\"%.1f\" y=\"%.1f\">fainter: later chunks</text>\n", x,
                y + 11.5);
}

static void print_text_at(const Canvas *canvas, const char *class, double y, const char *text) {
    fprintf(canvas->out, "<text class=\"%s\" x=\"%d\" y=\"%.1f\">", class, MARGIN, y);
    draw_escaped(text, canvas->out);
    fputs("</text>\n", canvas->out);
}

static void print_svg(const Canvas *canvas) {
    FILE *out = canvas->out;
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
        "role=\"img\" aria-label=\"",
        canvas->width, canvas->height, canvas->width, canvas->height);
    draw_escaped(canvas->timeline->title, out);
    fprintf(out, "\">\n%s<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n", style);
    print_text_at(canvas, "title", 28, canvas->timeline->title);
    for (int s = 0; s < canvas->timeline->count; s++) print_row(canvas, s);
    print_axis(canvas);
    print_legend(canvas);
    print_text_at(canvas, "faint", canvas->height - 14, canvas->timeline->caption);
    fputs("</svg>\n", out);
}

Status draw_svg(const Timeline *timeline, char **ret_svg) {
    Canvas canvas = {.timeline = timeline, .unit = shortest(timeline), .left = MARGIN + NAMES};
    double units = timeline->times.makespan / canvas.unit, cell = CELL;
    if (units * cell > WIDE) cell = WIDE / units;
    if (cell < 2) cell = 2;
    canvas.scale = cell / canvas.unit;
    size_t longest = strlen(timeline->caption) * (TEXT - 1), title = strlen(timeline->title) * (TEXT + 1);
    double text = (double)(longest > title ? longest : title) + 2 * MARGIN;
    canvas.width = canvas.left + units * cell + MARGIN;
    if (canvas.width < text) canvas.width = text;
    canvas.height = row_top(timeline->count) + FOOT;
    char *svg = NULL;
    size_t size;
    canvas.out = open_memstream(&svg, &size);
    if (!canvas.out) return FAILED("out of memory while drawing the timeline");
    print_svg(&canvas);
    return finish(canvas.out, &svg, ret_svg);
}
