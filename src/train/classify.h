/* How well a model classifies: accuracy, F1 and the confusion matrix. */
#ifndef WEFT_TRAIN_CLASSIFY_H
#define WEFT_TRAIN_CLASSIFY_H

#include "train/job.h"

/* Adds to a result, from the first `limit` (0: all) examples of the data:
 *   accuracy, f1_macro (the mean over the labels that occur, given or predicted), f1_weighted (by how often
 *   they are given), classes [{label, precision, recall, f1, count}], and, for up to CLASSIFY_MATRIX labels,
 *   confusion: for each given label how often each was predicted. */
enum { CLASSIFY_MATRIX = 200 };
MUST_USE Status classify_add(const Job *job, const Dataset *data, int64_t limit, json_t *result);

#endif
