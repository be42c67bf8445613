/* Sentence pairs for BERT pretraining, from a stream whose token files mark sentences.
 *
 * A document is covered with windows of up to P tokens. A window begins at a sentence, and the next window
 * begins at the sentence that the first one cut off, so no text is lost. The last window is moved back so
 * that it is as full as possible. Documents of a single short sentence have no continuation and yield no
 * window. Part A of a pair consists of the window's first sentences, up to a random sentence boundary. B is
 * the rest of the window or, half of the time, a run of the same length from another document that begins at
 * a sentence.
 */
#ifndef WEFT_DATA_PAIRS_H
#define WEFT_DATA_PAIRS_H

#include "base/rng.h"
#include "data/stream.h"

/* Kept at 16 bytes, because a large corpus has tens of millions of windows. */
typedef struct PairWindow {
    int64_t start;    /* offset in the stream */
    int32_t size;     /* tokens */
    int32_t document; /* number among the documents that have windows */
} PairWindow;

typedef struct PairSet {
    PairWindow *window;
    size_t count, capacity;
} PairSet;

/* Stream ranges of parts A and B. */
typedef struct Pair {
    int64_t a, a_size, b, b_size;
    bool random; /* B comes from another document */
} Pair;

/* Builds the windows of tokens begin .. end - 1. */
MUST_USE Status pair_set_build(PairSet *set, const TokenStream *stream, int64_t begin, int64_t end,
                               int64_t P);
void pair_set_done(PairSet *set);
/* Draws the pair of window `index` at `position` of the key's order; `scratch` has space for P
 * entries. */
MUST_USE Status pair_draw(const PairSet *set, const TokenStream *stream, RngKey key, uint64_t position,
                          int64_t index, int32_t *scratch, Pair *ret_pair);

#endif
