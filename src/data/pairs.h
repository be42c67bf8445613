/* Pairs of sentences for BERT's pretraining, from a stream whose shards mark sentences.
 *
 * A document is covered with windows of up to P tokens. Each begins with a sentence and the next begins with
 * the one that its end cut, so what a window loses the next one has; the last is moved back until it is
 * filled. Documents of a single short sentence have no continuation and give none. Part A of a pair is a
 * window's first sentences, cut at any of its sentences; B is the rest of the window or, half of the time,
 * as many tokens of another document, from the begin of a sentence on.
 */
#ifndef WEFT_DATA_PAIRS_H
#define WEFT_DATA_PAIRS_H

#include "base/rng.h"
#include "data/stream.h"

/* 16 bytes, as a large corpus has tens of millions of them. */
typedef struct PairWindow {
    int64_t start;    /* in the stream... */
    int32_t size;     /* ...so many tokens */
    int32_t document; /* number among those that have windows */
} PairWindow;

typedef struct PairSet {
    PairWindow *window;
    size_t count, capacity;
} PairSet;

/* Where parts A and B of a pair lie in the stream. */
typedef struct Pair {
    int64_t a, a_size, b, b_size;
    bool random; /* B is from elsewhere */
} Pair;

/* The windows of tokens begin .. end - 1. */
MUST_USE Status pair_set_build(PairSet *set, const TokenStream *stream, int64_t begin, int64_t end,
                               int64_t P);
void pair_set_done(PairSet *set);
/* The pair that window `index` gives at `place` of the key's order; `scratch` takes P numbers. */
MUST_USE Status pair_draw(const PairSet *set, const TokenStream *stream, RngKey key, uint64_t place,
                          int64_t index, int32_t *scratch, Pair *ret_pair);

#endif
