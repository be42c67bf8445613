/* Prints a comparison: the table, then its summary in prose. */
#ifndef WEFT_CLI_SHOW_RESULTS_H
#define WEFT_CLI_SHOW_RESULTS_H

#include "report/results.h"

MUST_USE Status show_results(const Results *results, FILE *out);

#endif
