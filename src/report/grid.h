/* A table of named rows of numbers, for pages, papers and terminals. Tables of runs are in report/table.h. */
#ifndef WEFT_REPORT_GRID_H
#define WEFT_REPORT_GRID_H

#include "report/page.h"
#include "report/table.h"

enum { GRID_COLUMNS = 8 };

typedef struct GridColumn {
    const char *heading, *key; /* key: in CSV */
    FigureFormat unit;
} GridColumn;

typedef struct GridRow {
    char *name;
    const char *remark; /* why its numbers are to be read with care; NULL: nothing */
    double values[GRID_COLUMNS];
} GridRow;

/* Starts from {.names = ..., .columns = ...}; ends with grid_done. */
typedef struct Grid {
    const char *names;         /* heading of the rows' names */
    const GridColumn *columns; /* ends with one without heading */
    GridRow *rows;
    size_t count, capacity;
} Grid;

/* Appends a row; the name is copied. `values`: one for each column; NAN: unknown. */
MUST_USE Status grid_add(Grid *grid, const char *name, const char *remark, const double *values);
void grid_done(Grid *grid);

void grid_page(Page *page, const Grid *grid);
void grid_text(FILE *out, const Grid *grid);
void grid_format(FILE *out, const Grid *grid, TableFormat format);

#endif
