/* Several models, evaluated on the same data. */
#ifndef WEFT_COMPARE_MODELS_H
#define WEFT_COMPARE_MODELS_H

#include "train/train.h"

/* Returns {"models": [{"model", "size_bytes", "peak_bytes", "loss", "tokens_per_s", ...}, ...]}: eval_run's
 * result for each model, starting with the config's own, plus its size on disk and peak memory. */
MUST_USE Status models_measure(const EvalConfig *config, const char *const *others, int count,
                               json_t **ret_result);

#endif
