/* What a run came to before it has, or without, a summary of its own: by its metrics, or by the summary of
 * the part that it goes on from.
 *
 * A run may be stopped and gone on with, or be killed. Its summary is of all its parts: each part's summary
 * is joined with that of the parts before. Where one is missing the metrics stand in for it: lines are
 * samples of steps, so that sums are scaled up to all steps. */
#ifndef WEFT_TRAIN_HISTORY_H
#define WEFT_TRAIN_HISTORY_H

#include "base/json.h"

enum { HISTORY_RANKS = 64, HISTORY_PHASES = 6 };

/* Sums over lines of metrics; zeroes: none yet. */
typedef struct History {
    int64_t lines, last_step;
    double step_ms, samples, tokens; /* samples, tokens: of the lines' steps */
    double busy, mfu, gpu;           /* times step_ms */
    double phase_ms[HISTORY_PHASES]; /* of the mean of ranks */
    double rank_ms[HISTORY_RANKS][HISTORY_PHASES];
    double rank_busy[HISTORY_RANKS];   /* times step_ms */
    int ranks;                         /* that lines have told of; 0: none */
    double sent, elapsed_s, earlier_s; /* elapsed: of the part that lines are of; earlier: before it */
    double eval_s, checkpoint_s;
    json_t *peak;               /* the most of each use of memory in any line */
    json_t *first, *last, *val; /* lines: of the first and the last step, of the last evaluation */
} History;

void history_done(History *history);
/* A line of metrics, of a step or of an evaluation. Steps rise; one that is there already is passed over. */
void history_take(History *history, const json_t *line);
/* In the shape of summary.json, with "by_metrics": true and "interrupted": true. `settings`: the run's
 * config.json, or NULL. NULL where there is no step. */
MUST_USE Status history_summary(const History *history, const json_t *settings, json_t **ret_summary);

/* The summary of the run in a directory up to a step: summary.json where it is of that step, otherwise by the
 * metrics. NULL where nothing is known. */
MUST_USE Status history_read(const char *dir, int64_t step, json_t **ret_summary);
/* Makes a part's summary that of both. Does nothing where the layouts are not the same: means over two of
 * them are of neither. */
MUST_USE Status history_join(json_t *summary, const json_t *earlier);

#endif
