/* Metrics of a regression head: mean squared error and correlations. */
#ifndef WEFT_TRAIN_REGRESSION_H
#define WEFT_TRAIN_REGRESSION_H

#include "train/job.h"

/* Evaluates the first `limit` examples (0: all) and adds to `result`:
 *   mse, pearson, spearman   means over the outputs; a correlation is null if it is undefined for an output,
 *                            because its predictions or its targets are constant
 *   outputs                  [{label, mse, pearson, spearman}], if there are several
 * `out`: also writes the predictions; may be NULL. Collective. */
MUST_USE Status regression_add(const Job *job, const Dataset *data, int64_t limit, Predictions *out,
                               json_t *result);

/* Pearson's correlation; NAN: undefined. */
double correlation(const double *x, const double *y, int64_t count);
/* Replaces values by their ranks from 1; equal values share the mean of their ranks. */
MUST_USE Status ranks_of(double *values, int64_t count);

#endif
