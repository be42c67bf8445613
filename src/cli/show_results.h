/* A comparison on a terminal: the table, and what it says in words. */
#ifndef WEFT_CLI_SHOW_RESULTS_H
#define WEFT_CLI_SHOW_RESULTS_H

#include "report/results.h"

MUST_USE Status show_results(const Results *results, FILE *out);

#endif
