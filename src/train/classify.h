/* Metrics of a classifier: accuracy, F1 and the confusion matrix. */
#ifndef WEFT_TRAIN_CLASSIFY_H
#define WEFT_TRAIN_CLASSIFY_H

#include "train/job.h"

/* Evaluates the first `limit` examples (0: all) and adds to `result`, or the scores of a regression
 * (regression.h), which a run that is `validating` does not report:
 *   problem_type  unless validating
 *   accuracy      multi-label: fraction of examples whose labels are all correct
 *   f1_macro      mean over the labels that occur as true or predicted; multi-label: over all labels
 *   f1_weighted   weighted by support, the number of examples with a label
 *   f1_micro      multi-label: over all labels of all examples
 *   mcc           single-label: Matthews correlation coefficient, for CoLA
 *   classes       [{label, precision, recall, f1, count}]
 *   confusion     single-label: rows: true labels, columns: predictions; only up to CLASSIFY_MATRIX labels
 * With multi-label classification, a label is predicted if its logit is positive, and true if its target
 * exceeds 0.5. Collective. */
enum { CLASSIFY_MATRIX = 200 };
/* The coefficient of any number of labels, as sklearn's: `given` and `predicted` (labels) count the examples
 * with each label, of which `hits` have the same. 0 if one side has a single label. */
double classify_mcc(const int64_t *given, const int64_t *predicted, int64_t labels, int64_t hits);
MUST_USE Status classify_scores(const Job *job, const Dataset *data, int64_t limit, bool validating,
                                Predictions *out, json_t *result);
/* Writes the predictions for the first `limit` examples alone. Collective. */
MUST_USE Status classify_predict(const Job *job, const Dataset *data, int64_t limit, Predictions *out);
/* Writes those of a batch, which begins with example `at`. */
MUST_USE Status classify_put(const Job *job, const Dataset *data, int64_t at, const HostBatch *batch,
                             const float *scores, Predictions *out);

#endif
