/* Rules that change a model's logits before a token is chosen, applied in transformers' order: biases, then
 * the repetition penalty, then the n-gram rule. The sampler applies temperature and the filters afterwards.
 */
#ifndef WEFT_INFER_LOGITS_H
#define WEFT_INFER_LOGITS_H

#include <stdint.h>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

/* Added to a token's logit; -INFINITY excludes the token. */
typedef struct TokenBias {
    int32_t token;
    float bias;
} TokenBias;

typedef struct LogitRules {
    /* For tokens that occur in the prompt or the new text: positive logits are divided by it and negative
     * ones multiplied. 0 or 1: off. */
    double repetition_penalty;
    int64_t no_repeat_ngram; /* excludes tokens that would repeat an n-gram of this size; 0: off */
    const TokenBias *biases; /* must outlive the rules */
    int64_t bias_count;
} LogitRules;

bool logit_rules_active(const LogitRules *rules);

typedef struct LogitProcessor LogitProcessor;

/* Fails if a setting is out of range. One processor serves one thread at a time. */
MUST_USE Status logit_processor_new(LogitProcessor **ret_processor, const LogitRules *rules, int64_t vocab);
void logit_processor_free(LogitProcessor *processor);
DEFINE_FREEP(LogitProcessor, logit_processor)
/* Changes logits (V) in place. ids (count) is the sequence so far: prompt and new tokens. */
void logit_processor_apply(LogitProcessor *processor, const int32_t *ids, int64_t count, float *logits);

/* The id of the largest of logits (V); ties go to the lowest id. Fails if a logit is NaN or the largest is
 * infinite. */
MUST_USE Status logits_largest(const float *logits, int64_t vocab, int32_t *ret_id);

/* A token's log probability: log_softmax of logits. */
typedef struct TokenScore {
    int32_t id;
    float logprob;
} TokenScore;
/* Writes `token` and then the `top` likeliest tokens of logits (V) to ret_scores; ties go to the lowest id.
 */
void token_scores(const float *logits, int64_t vocab, int32_t token, int64_t top, TokenScore *ret_scores);

/* Logit biases from command-line text: parses "TOKEN:VALUE" entries. TOKEN is an id, or text that is one
 * token, or a token as spelled in the vocabulary; digits are an id. VALUE is a number or -inf. tokenizer may
 * be NULL, for ids only. The caller frees *ret_biases, which has `count` entries. */
MUST_USE Status token_biases_parse(const char *const *texts, int count, const Tokenizer *tokenizer,
                                   int64_t vocab, TokenBias **ret_biases);

#endif
