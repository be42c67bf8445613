/* Summaries of runs that were interrupted, killed or are still running.
 *
 * A run may be stopped and resumed any number of times. Its summary covers all parts: the summary of each
 * part is merged with that of the parts before it. If a part has no summary, one is estimated from
 * metrics.jsonl; logged lines are a sample of the steps, so sums are scaled up to all steps. */
#ifndef WEFT_TRAIN_HISTORY_H
#define WEFT_TRAIN_HISTORY_H

#include "base/json.h"

enum { HISTORY_RANKS = 64, HISTORY_PHASES = 6 };

/* Sums over metrics lines; all zero: no lines yet. */
typedef struct History {
    int64_t lines, last_step;
    double step_ms, samples, tokens; /* samples, tokens: in the logged steps */
    double busy, mfu, gpu;           /* sums weighted by step_ms */
    double phase_ms[HISTORY_PHASES]; /* mean over ranks */
    double rank_ms[HISTORY_RANKS][HISTORY_PHASES];
    double rank_busy[HISTORY_RANKS]; /* weighted by step_ms */
    int ranks;                       /* ranks listed in the lines; 0: not listed */
    double sent, between;            /* bytes; between nodes */
    double elapsed_s, earlier_s;     /* current part; parts before it */
    double eval_s, checkpoint_s;
    double val_sum;             /* of the losses of evaluations after step 0 ... */
    int64_t vals;               /* ... and their number */
    json_t *peak;               /* maximum over lines for each kind of memory */
    json_t *first, *last, *val; /* lines of the first and last step, and of the last evaluation */
} History;

void history_done(History *history);
/* Adds a metrics line of a step or an evaluation. Lines come in order of steps; a repeated step is ignored.
 */
void history_take(History *history, const json_t *line);
/* An estimate in the form of summary.json, with "by_metrics": true and "interrupted": true. `settings`: the
 * run's config.json, or NULL. *ret_summary is left unchanged if no step was added. */
MUST_USE Status history_summary(const History *history, const json_t *settings, json_t **ret_summary);

/* The summary of a run directory up to `step`: summary.json if it ends at that step, otherwise estimated from
 * the metrics. *ret_summary is left unchanged if neither exists. */
MUST_USE Status history_read(const char *dir, int64_t step, json_t **ret_summary);
/* Merges `earlier` into `summary`. Does nothing if the layouts differ: averages over two layouts describe
 * neither. */
MUST_USE Status history_join(json_t *summary, const json_t *earlier);

#endif
