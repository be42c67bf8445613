/* What a run's validations have shown so far: the latest one, their mean, the best checkpoint, and how long
 * the loss has not improved. Part of every checkpoint, so that a resumed run decides as one that was never
 * interrupted. */
#ifndef WEFT_TRAIN_VALIDATION_H
#define WEFT_TRAIN_VALIDATION_H

#include "base/json.h"
#include "train/job.h"
#include "train/run_summary.h"

typedef struct Validation {
    int64_t step; /* of the latest validation; -1: none yet */
    double loss;  /* NAN: unknown */
    int64_t samples;
    double accuracy, f1, exact; /* fractions; NAN: not measured, or not by this task */
    double mcc;                 /* of a classifier; NAN likewise */
    double sum;                 /* of the losses after step 0 ... */
    int64_t count;              /* ... and their number */
    double lowest;              /* NAN: none yet */
    int64_t since;              /* validations since the lowest */
    double best;                /* loss of the best checkpoint */
    int64_t best_step;          /* 0: no checkpoint was validated */
} Validation;

void validation_init(Validation *val);
/* Takes the result of a validation, without scores. */
void validation_take(Validation *val, int64_t step, const EvalResult *result, bool decoder);
/* Whether the checkpoint of `step` has the lowest loss so far; if so, it becomes the best one. */
bool validation_is_best(Validation *val, int64_t step);

/* Measures accuracy, F1 and MCC of a classifier, or exact match and F1 on the SQuAD files `paths` (`count` 0:
 * no scores), for the first `limit` samples (0: all). Collective. */
MUST_USE Status validation_score(Validation *val, const Job *job, const Dataset *data,
                                 const char *const *paths, int count, int64_t limit);
/* Adds the known ones of accuracy, f1, mcc and exact to an object. */
void validation_add_scores(const Validation *val, json_t *object);
/* Fills in losses, scores and the best checkpoint. */
void validation_summary(const Validation *val, RunSummary *summary);

/* The state for a checkpoint, and back; `saved` may lack it. */
MUST_USE Status validation_save(const Validation *val, json_t **ret_json);
void validation_restore(Validation *val, const json_t *saved, int64_t step);

#endif
