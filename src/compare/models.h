/* Several models, evaluated on the same data. */
#ifndef WEFT_COMPARE_MODELS_H
#define WEFT_COMPARE_MODELS_H

#include "train/train.h"

/* Returns {"models": [{"model", "size_bytes", "peak_bytes", "loss", "tokens_per_s", ...}, ...],
 * "same_tokenizer"}: eval_run's result for each model, starting with the config's own, plus its size on disk
 * and peak memory. With different tokenizers, figures per byte of text are comparable, those per token are
 * not. Refuses models whose losses cannot be compared. */
MUST_USE Status models_measure(const EvalConfig *config, const char *const *others, int count,
                               json_t **ret_result);

#endif
