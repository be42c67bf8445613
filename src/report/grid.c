#include "report/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/terminal.h"

Status grid_add(Grid *grid, const char *name, const char *remark, const double *values) {
    TRY(mem_grow(&grid->rows, &grid->capacity, grid->count + 1, sizeof *grid->rows));
    GridRow *row = &grid->rows[grid->count];
    *row = (GridRow){.remark = remark};
    TRY(str_dup(name, &row->name));
    for (size_t c = 0; grid->columns[c].heading; c++) row->values[c] = values[c];
    grid->count++;
    return OK;
}

void grid_done(Grid *grid) {
    for (size_t i = 0; i < grid->count; i++) free(grid->rows[i].name);
    free(grid->rows);
}

static size_t column_count(const Grid *grid) {
    size_t count = 0;
    while (grid->columns[count].heading) count++;
    return count;
}

static const char *cell(char *buffer, const Grid *grid, const GridRow *row, size_t column) {
    return figure_text(buffer, grid->columns[column].unit, row->values[column]);
}

void grid_page(Page *page, const Grid *grid) {
    char text[FORMAT_SIZE];
    const char *headings[GRID_COLUMNS + 1] = {grid->names};
    for (size_t c = 0; c < column_count(grid); c++) headings[c + 1] = grid->columns[c].heading;
    page_table_of(page, headings, column_count(grid) + 1);
    for (size_t i = 0; i < grid->count; i++) {
        const GridRow *row = &grid->rows[i];
        page_row(page, NULL);
        page_put(page, "%s", row->name);
        if (row->remark) page_put(page, " <span class=\"badge failed\">%s</span>", row->remark);
        for (size_t c = 0; c < column_count(grid); c++) page_cell(page, "%s", cell(text, grid, row, c));
    }
    page_table_end(page);
}

/* ---- text ---- */

/* Characters on a terminal. */
static int width_of(const char *text) {
    return (int)text_length(text);
}

void grid_text(FILE *out, const Grid *grid) {
    int name = width_of(grid->names), width[GRID_COLUMNS];
    char text[FORMAT_SIZE];
    for (size_t i = 0; i < grid->count; i++) name = (int)fmax(name, width_of(grid->rows[i].name));
    fprintf(out, "%s%*s", grid->names, name - width_of(grid->names), "");
    for (size_t c = 0; c < column_count(grid); c++) {
        width[c] = width_of(grid->columns[c].heading);
        for (size_t i = 0; i < grid->count; i++)
            width[c] = (int)fmax(width[c], width_of(cell(text, grid, &grid->rows[i], c)));
        fprintf(out, "  %*s", width[c], grid->columns[c].heading);
    }
    fputc('\n', out);
    for (size_t i = 0; i < grid->count; i++) {
        const GridRow *row = &grid->rows[i];
        terminal_put(out, row->name, strlen(row->name));
        fprintf(out, "%*s", name - width_of(row->name), "");
        for (size_t c = 0; c < column_count(grid); c++) {
            cell(text, grid, row, c);
            fprintf(out, "  %*s%s", width[c] - width_of(text), "", text);
        }
        fprintf(out, "%s%s\n", row->remark ? "  " : "", row->remark ? row->remark : "");
    }
}

/* ---- formats ---- */

static void put_csv_table(FILE *out, const Grid *grid) {
    fputs(grid->names, out);
    for (size_t c = 0; c < column_count(grid); c++) fprintf(out, ",%s", grid->columns[c].key);
    fputs(",remark\n", out);
    for (size_t i = 0; i < grid->count; i++) {
        const GridRow *row = &grid->rows[i];
        put_csv(out, row->name);
        for (size_t c = 0; c < column_count(grid); c++) {
            fputc(',', out);
            if (isfinite(row->values[c])) fprintf(out, "%.10g", row->values[c]);
        }
        fputc(',', out);
        if (row->remark) put_csv(out, row->remark);
        fputc('\n', out);
    }
}

void grid_format(FILE *out, const Grid *grid, TableFormat format) {
    size_t columns = column_count(grid);
    const char *cells[GRID_COLUMNS + 1] = {grid->names};
    char text[GRID_COLUMNS][FORMAT_SIZE], name[256];
    if (format == FORMAT_CSV) {
        put_csv_table(out, grid);
        return;
    }
    bool latin = true;
    for (size_t i = 0; i < grid->count; i++) latin &= format_is_latin(grid->rows[i].name);
    format_begin(out, format, columns, latin);
    for (size_t c = 0; c < columns; c++) cells[c + 1] = grid->columns[c].heading;
    format_row(out, format, cells, columns + 1);
    format_head_end(out, format, columns);
    for (size_t i = 0; i < grid->count; i++) {
        const GridRow *row = &grid->rows[i];
        snprintf(name, sizeof name, "%s%s%s%s", row->name, row->remark ? " (" : "",
                 row->remark ? row->remark : "", row->remark ? ")" : "");
        cells[0] = name;
        for (size_t c = 0; c < columns; c++) cells[c + 1] = cell(text[c], grid, row, c);
        format_row(out, format, cells, columns + 1);
    }
    format_end(out, format);
}
