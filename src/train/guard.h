/* Notices training that goes wrong: NaN or Inf, spikes of the loss or the gradient norm, a loss that stays
 * far above the first one.
 *
 * A verdict depends only on losses and norms of the run's steps, which all ranks know, and the state is part
 * of every checkpoint. So all ranks and layouts decide alike, and a resumed run decides as it would have.
 */
#ifndef WEFT_TRAIN_GUARD_H
#define WEFT_TRAIN_GUARD_H

#include "base/json.h"

/* What to do about a step that is not fine; see docs/reliability.md. */
typedef enum {
    ON_DIVERGENCE_STOP,
    ON_DIVERGENCE_WARN,
    ON_DIVERGENCE_SKIP,
    ON_DIVERGENCE_ROLLBACK
} GuardPolicy;
MUST_USE Status guard_parse(const char *name, GuardPolicy *ret_policy); /* NULL: stop */

typedef enum {
    STEP_FINE,
    STEP_SPIKE,     /* the loss or the gradient norm is far above that of recent steps */
    STEP_DIVERGED,  /* the loss has stayed above guard_limit */
    STEP_NONFINITE, /* NaN or Inf */
} StepVerdict;

enum {
    GUARD_WINDOW = 64,  /* steps from which the noise is estimated */
    GUARD_LEAST = 16,   /* steps that a spike is compared with; before that, nothing counts as one */
    GUARD_OVER = 8,     /* steps in a row above guard_limit that count as divergence; */
    GUARD_OVER_END = 2, /* at the end of the run */
    GUARD_SKIPS = 10,   /* updates in a row that may be skipped */
    GUARD_TEXT = 200,
};

typedef struct Guard {
    double loss[GUARD_WINDOW], norm[GUARD_WINDOW]; /* logarithms of recent values; value i is at i % WINDOW */
    int64_t count;                                 /* values added so far */
    double first;                                  /* loss of the first step; NAN: none yet */
    int64_t over;                                  /* steps in a row above guard_limit */
    int64_t spikes;                                /* in the whole run */
    int64_t skips;                                 /* updates skipped in a row */
    int64_t rollbacks;                             /* so far */
    int64_t batches;                               /* left out by them: step n trains on batch n + batches */
} Guard;

void guard_init(Guard *guard);
/* Judges a step by its loss and gradient norm, before the update. `text` says what is wrong with it. */
StepVerdict guard_judge(const Guard *guard, double loss, double norm, bool last, char text[GUARD_TEXT]);
/* Adds a step to the history; those whose update is skipped are not added. */
void guard_add(Guard *guard, double loss, double norm);
/* A loss above this is no longer that of a model that has learned anything. */
double guard_limit(const Guard *guard);

/* The state for a checkpoint, and back; NULL restores the initial state. */
MUST_USE Status guard_save(const Guard *guard, json_t **ret_json);
void guard_restore(Guard *guard, const json_t *json);

#endif
