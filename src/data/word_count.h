/* Counts words as word-level perplexity needs them: runs of characters between white space, plus one per
 * line end, which WikiText's authors count as the word <eos>. */
#ifndef WEFT_DATA_WORD_COUNT_H
#define WEFT_DATA_WORD_COUNT_H

#include "data/reader.h"

typedef struct WordCounts {
    int64_t words, lines; /* the last line of a document counts even without a newline */
    int64_t bytes;        /* bytes of text */
} WordCounts;

MUST_USE Status corpus_count_words(const ReaderSpec *spec, WordCounts *ret_counts);

#endif
