/* Choosing the next token from a model's scores.
 *
 * Temperature, top-k and top-p are applied in that order, as transformers does: scores are divided by the
 * temperature, those below the k-th largest are dropped (its equals stay), then the least likely ones
 * whose probabilities sum to at most 1 - p. The draw depends on the seed, the sequence's number and the
 * position alone, so neither other sequences nor their number change it.
 */
#ifndef WEFT_INFER_SAMPLER_H
#define WEFT_INFER_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

typedef struct Sampling {
    double temperature; /* 0: always the largest score, the lowest id among equals */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
} Sampling;

typedef struct Sampler Sampler;

MUST_USE Status sampler_new(Sampler **ret_sampler, const Sampling *sampling, int64_t vocab);
void sampler_free(Sampler *sampler);
DEFINE_FREEP(Sampler, sampler)

/* The token at `position` of sequence number `sequence`, from scores (V). Scores that are not numbers are
 * an error. */
MUST_USE Status sampler_pick(Sampler *sampler, const float *scores, uint64_t sequence, uint64_t position,
                             int32_t *ret_token);
/* What sampler_pick draws from: probabilities (V). */
MUST_USE Status sampler_probabilities(Sampler *sampler, const float *scores, float *ret_probabilities);

#endif
