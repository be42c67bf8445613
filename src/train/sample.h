/* A short sample of text from the model in training. */
#ifndef WEFT_TRAIN_SAMPLE_H
#define WEFT_TRAIN_SAMPLE_H

#include "train/job.h"

/* Refuses models and layouts that cannot generate here: BERT, tensor parallelism, data without a known
 * tokenizer. */
MUST_USE Status sample_check(Job *job);
/* Continues the first tokens of `data`. The text is the same in every layout up to rounding, and depends on
 * the weights, the seed and the step only. *ret_prompt and *ret_text are valid UTF-8 and owned by the caller.
 * Collective; changes nothing that training uses. */
MUST_USE Status sample_make(const Job *job, const Dataset *data, int64_t step, char **ret_prompt,
                            char **ret_text);

#endif
