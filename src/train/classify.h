/* Metrics of a classifier: accuracy, F1 and the confusion matrix. */
#ifndef WEFT_TRAIN_CLASSIFY_H
#define WEFT_TRAIN_CLASSIFY_H

#include "train/job.h"

/* Evaluates the first `limit` examples (0: all) and adds to `result`:
 *   accuracy
 *   f1_macro      mean over the labels that occur, given or predicted
 *   f1_weighted   weighted by how often a label is given
 *   classes       [{label, precision, recall, f1, count}]
 *   confusion     rows: given labels, columns: predictions; only up to CLASSIFY_MATRIX labels
 * Collective. */
enum { CLASSIFY_MATRIX = 200 };
MUST_USE Status classify_add(const Job *job, const Dataset *data, int64_t limit, json_t *result);

#endif
