/* The results table: its columns and cells, for a terminal, and for papers and wikis. */
#ifndef WEFT_REPORT_TABLE_H
#define WEFT_REPORT_TABLE_H

#include "report/results.h"

typedef struct TableLook {
    int width; /* of the terminal, in columns */
    bool color, utf8;
} TableLook;

/* Formats one row of figures per run, followed by a row of differences from the baseline in percent. Columns
 * that do not fit the width continue in further blocks. Unfinished runs and runs with errors are listed below
 * with their state. Without color, the text contains no control characters except newlines. The caller frees
 * *ret_text. */
MUST_USE Status table_text(const Results *results, TableLook look, char **ret_text);

typedef enum { FORMAT_MARKDOWN, FORMAT_LATEX, FORMAT_CSV } TableFormat;

/* MARKDOWN and LATEX: the columns of the page's table, values with their spreads, the published ones below
 * them, and the notes above and below it. CSV: results.csv. The caller frees *ret_text. */
MUST_USE Status table_format(const Results *results, TableFormat format, char **ret_text);

/* The same for other tables, in MARKDOWN and LATEX, row by row: begin, the row of headings, head_end, rows,
 * end. `columns`: besides the first, of names; `latin`: format_is_latin of all names. */
void format_begin(FILE *out, TableFormat format, size_t columns, bool latin);
void format_row(FILE *out, TableFormat format, const char *const *cells, size_t count);
void format_head_end(FILE *out, TableFormat format, size_t columns);
void format_end(FILE *out, TableFormat format);
/* A sentence below the table; in LATEX a comment, for a caption. */
void format_note(FILE *out, TableFormat format, const char *text);
/* Whether pdflatex has all characters of a text: those of Latin alphabets, dashes, quotation marks and the
 * ellipsis. */
bool format_is_latin(const char *text);

/* ---- columns and cells ---- */

/* Figures in the order of the columns. A figure that is the same in all runs, or follows from another one,
 * has no column. */
typedef struct Columns {
    size_t shown[FIGURES], equal[FIGURES];
    size_t count, equal_count;
    double tokens_per_sample; /* samples/s follows from tokens/s; NAN: it does not */
} Columns;

/* The figures that the study lists, else all that any run has. */
Columns results_columns(const Results *results);
/* Those of a table without the published figures of a study: all that any run has. */
Columns results_own_columns(const Results *results);
/* What the table does not show: figures that are the same in all runs, the program that predictions describe,
 * and the baseline of each kind of run. May be empty; the caller frees it. */
MUST_USE Status columns_note(const Results *results, const Columns *columns, char **ret_text);

enum { CELL_SIZE = 80 };
/* A value with its spread, "14.7 k ±2.1%", into a buffer of CELL_SIZE bytes, which it returns. */
const char *cell_text(char *buffer, const Run *run, size_t figure, bool utf8);
/* The difference from the baseline: "▲ 12.5%", in parentheses if a value has no interval, or "tie"; empty
 * with CHANGE_NONE. */
typedef enum { CHANGE_NONE, CHANGE_SAME, CHANGE_BETTER, CHANGE_WORSE } Change;
Change change_text(char *buffer, const Run *run, size_t figure, bool utf8);

#endif
