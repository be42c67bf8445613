/* Sampling the next token from a model's logits.
 *
 * Temperature, top-k, top-p, min-p and typical-p are applied in that order, as in transformers: logits are
 * divided by the temperature; those below the k-th largest are dropped (ties with it stay); then the least
 * likely tokens whose probabilities sum to at most 1 - p; then tokens less likely than min-p times the
 * likeliest; then all but the most typical tokens, whose -log p is closest to the entropy, with a total
 * probability of typical-p. The draw depends only on the seed, the sequence number and the position, not on
 * other sequences. LogitRules (logits.h) are applied first.
 */
#ifndef WEFT_INFER_SAMPLER_H
#define WEFT_INFER_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

typedef struct Sampling {
    double temperature; /* 0: greedy, the largest logit; ties go to the lowest id */
    int64_t top_k;      /* 0: off */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    double typical_p;   /* 0 or 1: off */
    uint64_t seed;
} Sampling;

typedef struct Sampler Sampler;

/* Fails if a setting is out of range. One sampler serves one thread at a time. */
MUST_USE Status sampler_new(Sampler **ret_sampler, const Sampling *sampling, int64_t vocab);
void sampler_free(Sampler *sampler);
DEFINE_FREEP(Sampler, sampler)

/* Chooses the token at `position` of sequence number `sequence` from logits (V). Fails if a logit is NaN or
 * the largest is infinite. */
MUST_USE Status sampler_pick(Sampler *sampler, const float *logits, uint64_t sequence, uint64_t position,
                             int32_t *ret_token);
/* The distribution that sampler_pick draws from: probabilities (V). */
MUST_USE Status sampler_probabilities(Sampler *sampler, const float *logits, float *ret_probabilities);

#endif
