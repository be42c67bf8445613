/* The results table for a terminal. */
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

#endif
