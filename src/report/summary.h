/* A comparison in plain words: which run won, by how much, and why. */
#ifndef WEFT_REPORT_SUMMARY_H
#define WEFT_REPORT_SUMMARY_H

#include "report/results.h"

/* One paragraph. To free. */
MUST_USE Status results_summary(const Results *results, char **ret_text);

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
    PHASE_REST,
    PHASES
} Phase;

const char *phase_name(Phase phase);
int phase_color(Phase phase); /* of the page's --p0, --p1 ... */
/* Shares that sum to 1; false when the run does not tell. */
bool run_phases(const Run *run, double ret_share[PHASES]);

/* Where all of its time went: the steps, and what is not in them. */
typedef enum { SPENT_STEPS, SPENT_EVAL, SPENT_CHECKPOINT, SPENT_SETUP, SPENT_PARTS } Spent;
const char *spent_name(Spent part);
bool run_spent(const Run *run, double ret_share[SPENT_PARTS]);

#endif
