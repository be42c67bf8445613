/* Perplexity of a language model over all tokens of a text, per token and per word. */
#ifndef WEFT_TRAIN_PERPLEXITY_H
#define WEFT_TRAIN_PERPLEXITY_H

#include "train/job.h"

/* Runs the model over windows of the data (dataset_windows; `stride` 0: as long as a window) and gives loss,
 * perplexity, tokens, nll (the sum), accuracy and, where the data is text, words, word_perplexity, bytes and
 * bits_per_byte. */
MUST_USE Status perplexity_run(Job *job, const EvalConfig *config, const Dataset *data, json_t **ret_result);

#endif
