/* The plain-English summary of a comparison, and where each run's time went. */
#ifndef WEFT_REPORT_SUMMARY_H
#define WEFT_REPORT_SUMMARY_H

#include "report/results.h"

/* Writes one paragraph: the fastest run, its lead and the reason, then memory, losses, failures and
 * unfinished runs. Plain UTF-8 without line breaks or control characters. The caller frees *ret_text. */
MUST_USE Status results_summary(const Results *results, char **ret_text);

/* How a rank spends its step time. */
typedef enum {
    SHARE_COMPUTE,
    SHARE_OPTIMIZER,
    SHARE_DATA,
    SHARE_WAIT_DATA,
    SHARE_WAIT_TENSOR,
    SHARE_WAIT_PIPELINE,
    SHARE_REST,
    SHARES
} StepShare;

const char *share_name(StepShare phase); /* short, for legends */
int share_color(StepShare phase);        /* n in the style sheet's --pn */
/* Fractions of the step time, averaged over the ranks; they sum to 1. False if the run recorded no phases. */
bool run_shares(const Run *run, double ret_share[SHARES]);

/* How a run spends its total runtime. */
typedef enum { SPENT_STEPS, SPENT_EVAL, SPENT_CHECKPOINT, SPENT_SETUP, SPENT_PARTS } Spent;
/* Fractions of the runtime that sum to 1; false if the run recorded no phases. */
bool run_spent(const Run *run, double ret_share[SPENT_PARTS]);

#endif
