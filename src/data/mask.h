/* BERT's token masking: a fraction of the positions without special tokens is selected for prediction. 80% of
 * these become the mask token, 10% a random token, and 10% stay unchanged. */
#ifndef WEFT_DATA_MASK_H
#define WEFT_DATA_MASK_H

#include "base/rng.h"
#include "data/data.h"

enum { LABEL_IGNORED = -100 };

typedef struct Masking {
    double rate;
    int64_t vocab;
    int32_t mask;
    int32_t special[4]; /* the special tokens of the vocabulary, ascending */
    int special_count;
    const uint8_t *continues; /* for whole-word masking, see DataSpec; NULL: mask single tokens */
} Masking;

Masking masking_from(const DataSpec *spec);

/* Masks `count` tokens in place; `labels` receives the original token at selected positions and -100
 * elsewhere. The number selected is the rate times the number of candidates, rounded, and at least one if
 * there is a candidate. With whole words, a word is selected only if it does not exceed that number, unless
 * no word fits. */
void masking_apply(const Masking *masking, RngKey key, int32_t *tokens, int32_t *labels, int64_t count);

#endif
