/* A comparison in plain words: which run won, by how much, and why. */
#ifndef WEFT_REPORT_WORDS_H
#define WEFT_REPORT_WORDS_H

#include "report/results.h"

/* One paragraph. To free. */
MUST_USE Status results_words(const Results *results, char **ret_text);

/* The finished run with the most (sign 1) or least (sign -1) of a figure; NULL when none has it. */
const Run *results_best(const Results *results, FigureId figure, int sign);

/* Where a run's step time went, averaged over its ranks. */
typedef enum {
    PHASE_COMPUTE,
    PHASE_OPTIMIZER,
    PHASE_DATA,
    PHASE_WAIT_DATA,
    PHASE_WAIT_TENSOR,
    PHASE_WAIT_PIPELINE,
    PHASES
} Phase;

const char *phase_name(Phase phase);
int phase_color(Phase phase); /* of the page's --p0, --p1 ... */
/* Shares that sum to 1; false when the run does not tell. */
bool run_phases(const Run *run, double ret_share[PHASES]);
/* The same of one line of metrics. */
bool line_phases(const json_t *line, double ret_share[PHASES]);

#endif
