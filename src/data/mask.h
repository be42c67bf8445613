/* Masked tokens, as BERT has them: of the positions that do not hold special tokens, a share is to be
 * predicted; 80 % of those show the mask token, 10 % a random token, 10 % themselves. */
#ifndef WEFT_DATA_MASK_H
#define WEFT_DATA_MASK_H

#include "base/rng.h"
#include "data/data.h"

enum { LABEL_IGNORED = -100 };

typedef struct Masking {
    double rate;
    int64_t vocab;
    int32_t mask;
    int32_t special[4]; /* those the vocabulary has, ascending */
    int special_count;
    const uint8_t *continues; /* whole words: see DataSpec; NULL: each token by itself */
} Masking;

Masking masking_from(const DataSpec *spec);

/* Masks `count` tokens in place; labels get the tokens that were picked and -100 elsewhere. Exactly the
 * rate's share is picked, rounded, and at least one where any can be. Whole words are picked as long as they
 * do not take it past that share. */
void masking_apply(const Masking *masking, RngKey key, int32_t *tokens, int32_t *labels, int64_t count);

#endif
