/* The table of a comparison for a terminal. */
#ifndef WEFT_REPORT_TABLE_H
#define WEFT_REPORT_TABLE_H

#include "report/results.h"

typedef struct TableLook {
    int width; /* columns of the terminal */
    bool color, utf8;
} TableLook;

/* Every run has its figures and, below them, the difference from the baseline's in percent, or that they are
 * of a part of the run, and its state. Columns that do not fit follow in a second block. Runs that failed say
 * why. To free. */
MUST_USE Status table_text(const Results *results, TableLook look, char **ret_text);

#endif
