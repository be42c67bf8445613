/* The results table for papers and wikis. */
#ifndef WEFT_REPORT_FORMATS_H
#define WEFT_REPORT_FORMATS_H

#include "report/results.h"

typedef enum { FORMAT_MARKDOWN, FORMAT_LATEX, FORMAT_CSV } TableFormat;

/* MARKDOWN and LATEX: the columns of the page's table, values with their spreads, and the notes above and
 * below it. CSV: results.csv. The caller frees *ret_text. */
MUST_USE Status table_format(const Results *results, TableFormat format, char **ret_text);

#endif
