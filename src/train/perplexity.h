/* Perplexity of a language model over all tokens of a text, per token and per word. */
#ifndef WEFT_TRAIN_PERPLEXITY_H
#define WEFT_TRAIN_PERPLEXITY_H

#include "train/job.h"

/* Runs the model over sliding windows of the data (see dataset_windows; stride 0: windows do not overlap).
 * Returns loss, perplexity, tokens, nll (sum over tokens), accuracy and, if the data is text, words,
 * word_perplexity, bytes and bits_per_byte. Words are counted with one end-of-line token per line, as is
 * usual for WikiText. Collective. */
MUST_USE Status perplexity_run(Job *job, const EvalConfig *config, const Dataset *data, json_t **ret_result);

#endif
