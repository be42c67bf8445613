/* Logit biases from command-line text. */
#ifndef WEFT_INFER_BIAS_H
#define WEFT_INFER_BIAS_H

#include "infer/logits.h"
#include "tokenizer/tokenizer.h"

/* Parses "TOKEN:VALUE" entries. TOKEN is an id, or text that is one token, or a token as spelled in the
 * vocabulary; digits are an id. VALUE is a number or -inf. tokenizer may be NULL, for ids only. The caller
 * frees *ret_biases, which has `count` entries. */
MUST_USE Status token_biases_parse(const char *const *texts, int count, const Tokenizer *tokenizer,
                                   int64_t vocab, TokenBias **ret_biases);

#endif
