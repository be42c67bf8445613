/* Which figures the table of a comparison shows, and the sentences above it. */
#ifndef WEFT_REPORT_COLUMNS_H
#define WEFT_REPORT_COLUMNS_H

#include "report/results.h"

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

#endif
