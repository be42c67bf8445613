#include "report/boxes.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "report/plot_layout.h"

enum {
    MAX_ROWS = 120,
    MAX_CATEGORIES = 8,
    WIDTH = 720,
    ROW = 22,
    LEFT = 190,
    TOP = 30, /* for the legend */
    BOTTOM = 44,
    CHAR_WIDTH = 6,
    LONGEST = LEFT / CHAR_WIDTH - 2 /* characters of a label */
};

static const char *const part_colors[] = {"#12705c", "#3f8fd2", "#93a1b4", "#6b58a8",
                                          "#f0b429", "#e4772d", "#b8365f", "#b9c0ca"};

void boxes_done(BoxChart *chart) {
    for (size_t i = 0; i < chart->row_count; i++) free(chart->rows[i].name);
    free(chart->rows);
    free(chart->boxes);
}

Status boxes_row(BoxChart *chart, const char *name, int rank) {
    TRY(mem_grow(&chart->rows, &chart->row_capacity, chart->row_count + 1, sizeof *chart->rows));
    TRY(str_dup(name, &chart->rows[chart->row_count].name));
    chart->rows[chart->row_count++].rank = rank;
    return OK;
}

Status boxes_add(BoxChart *chart, const char *category, int color, double from, double to) {
    if (!chart->row_count || !isfinite(from) || !isfinite(to)) return OK;
    TRY(mem_grow(&chart->boxes, &chart->box_capacity, chart->box_count + 1, sizeof *chart->boxes));
    chart->boxes[chart->box_count++] = (Box){chart->row_count - 1, from, to, color, category};
    return OK;
}

/* "NAME, rank 3"; the name is shortened so that the label has at most `most` characters. */
static Status label_of(const BoxRow *row, size_t most, char **ret_label) {
    CLEANUP(mem_freep) char *name = NULL;
    char rank[24] = "";
    if (row->rank >= 0) snprintf(rank, sizeof rank, ", rank %d", row->rank);
    TRY(plot_shorten(row->name, most - strlen(rank), &name));
    return str_format(ret_label, "%s%s", name, rank);
}

/* ---- the script ---- */

typedef struct Legend {
    const Box *first[MAX_CATEGORIES]; /* a box of each category */
    size_t count;
} Legend;

static Legend find_legend(const BoxChart *chart) {
    Legend legend = {.count = 0};
    for (size_t i = 0; i < chart->box_count; i++) {
        bool known = false;
        for (size_t k = 0; k < legend.count && !known; k++)
            known = !strcmp(legend.first[k]->category, chart->boxes[i].category);
        if (!known && legend.count < MAX_CATEGORIES) legend.first[legend.count++] = &chart->boxes[i];
    }
    return legend;
}

static void put_data(FILE *out, const BoxChart *chart, const Legend *legend, double unit) {
    for (size_t c = 0; c < legend->count; c++) {
        fprintf(out, "$d%zu << end\n", c);
        for (size_t i = 0; i < chart->box_count; i++) {
            const Box *box = &chart->boxes[i];
            double row = (double)(chart->row_count - box->row);
            if (!strcmp(box->category, legend->first[c]->category))
                fprintf(out, "%.9g %.1f %.9g %.9g %.2f %.2f\n", box->from / unit, row, box->from / unit,
                        box->to / unit, row - 0.38, row + 0.38);
        }
        fputs("end\n", out);
    }
}

static void put_legend(FILE *out, const Legend *legend, double height) {
    double x = 10;
    for (size_t c = 0; c < legend->count; c++) {
        fprintf(out, "set label '%s' at screen %.5f, screen %.5f textcolor rgb '%s'\n",
                legend->first[c]->category, x / WIDTH, 1 - 14 / height,
                part_colors[legend->first[c]->color & 7]);
        x += CHAR_WIDTH * (double)strlen(legend->first[c]->category) + 14;
    }
}

static Status put_script(FILE *out, const BoxChart *chart, const Legend *legend, double height) {
    double largest = 0;
    for (size_t i = 0; i < chart->box_count; i++) largest = fmax(largest, chart->boxes[i].to);
    PlotAxis axis = plot_axis(chart->format, 0, largest);
    put_data(out, chart, legend, axis.unit);
    plot_put_terminal(out, chart->name, WIDTH, height);
    fprintf(
        out,
        "set encoding utf8\nset lmargin at screen %.5f\nset rmargin at screen 0.97\nset tmargin at screen "
        "%.5f\nset bmargin at screen %.5f\nset border 0\nset tics nomirror scale 0 textcolor rgb "
        "'#616a78'\nunset key\nset grid xtics lt 1 lc rgb '#e2e5ea' lw 1\nset xlabel '%s' tc rgb '#616a78'\n"
        "set xrange [0:%.9g]\nset yrange [0.4:%.1f]\nset format x '%%.4g%s'\nset xtics 0, %.9g\nset ytics (",
        (double)LEFT / WIDTH, 1 - TOP / height, BOTTOM / height, chart->x_label,
        axis.high > 0 ? axis.high : 1, (double)chart->row_count + 0.6, axis.suffix,
        plot_step(axis.high > 0 ? axis.high / 6 : 1));
    for (size_t i = 0; i < chart->row_count; i++) {
        CLEANUP(mem_freep) char *label = NULL;
        TRY(label_of(&chart->rows[i], LONGEST, &label));
        fputs(i ? ", " : "", out);
        plot_put_text(out, label);
        fprintf(out, " %zu", chart->row_count - i);
    }
    fputs(")\n", out);
    put_legend(out, legend, height);
    for (size_t c = 0; c < legend->count; c++)
        fprintf(out, "%s$d%zu using 1:2:3:4:5:6 with boxxyerror fs solid noborder lc rgb '%s'",
                c ? ", " : "plot ", c, part_colors[legend->first[c]->color & 7]);
    fputc('\n', out);
    plot_put_pdf(out, chart->name, WIDTH, height);
    return OK;
}

static Status put_csv(FILE *out, const BoxChart *chart) {
    fputs("row,category,from,to\n", out);
    for (size_t i = 0; i < chart->box_count; i++) {
        CLEANUP(mem_freep) char *label = NULL;
        const Box *box = &chart->boxes[i];
        TRY(label_of(&chart->rows[box->row], SIZE_MAX, &label));
        plot_put_csv_text(out, label);
        fprintf(out, ",\"%s\",%.10g,%.10g\n", box->category, box->from, box->to);
    }
    return OK;
}

Status boxes_write(const BoxChart *chart, Figures *drawn) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0;
    Legend legend = find_legend(chart);
    if (!drawn->dir || !chart->box_count || chart->row_count > MAX_ROWS) return OK;
    FILE *out = open_memstream(&text, &size), *script = tmpfile();
    drawn->count++;
    if (!out || !script) return FAILED("cannot create a temporary file");
    Status status = put_csv(out, chart);
    if (!status) status = put_script(script, chart, &legend, (double)(ROW * chart->row_count) + TOP + BOTTOM);
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    if (!status && bad) status = FAILED("out of memory while writing a chart");
    if (!status) status = plot_write_files(chart->name, drawn->dir, script, text, size);
    fclose(script);
    return status;
}
